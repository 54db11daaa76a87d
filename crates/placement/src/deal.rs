//! Deals pages to nodes in proportion to weights, so that every beginning of the sequence has them in proportion.

/// Node of each of `pages` pages: after any number k of pages, node n has k times its share of the weights, to within
/// one page (at most `1 - 1 / (2 N - 2)`, for N nodes with a weight).
///
/// The rule is that of Tijdeman, "The chairman assignment problem" (1980): of the nodes that are behind by at least
/// `1 / (2 N - 2)` page, the one that would be behind by too much first. Ties: the lower node.
///
/// # Panics
/// If all weights are 0. Weights are below 2^40, so that products with the number of pages do not overflow.
pub(crate) fn deal(weights: &[u64], pages: usize) -> Vec<usize> {
    let weighted: Vec<usize> = (0..weights.len()).filter(|&n| weights[n] > 0).collect();
    assert!(!weighted.is_empty(), "a node with a weight");
    if let [only] = weighted[..] {
        return vec![only; pages];
    }
    let weight = |node: usize| i128::from(weights[node]);
    let total: i128 = weighted.iter().map(|&node| weight(node)).sum();
    let parts = 2 * weighted.len() as i128 - 2;
    // Pages that a node is behind, in units of 1 / (parts x total).
    let mut behind = vec![0_i128; weights.len()];
    (0..pages)
        .map(|_| {
            for &node in &weighted {
                behind[node] += parts * weight(node);
            }
            let due = weighted
                .iter()
                .copied()
                .filter(|&node| behind[node] >= total);
            let until = |node: usize| (parts - 1) * total - behind[node];
            // until / weight is the number of pages that may still be dealt to others.
            let next = due
                .min_by(|&a, &b| (until(a) * weight(b)).cmp(&(until(b) * weight(a))))
                .expect("some node is behind by 1 / N page or more");
            behind[next] -= parts * total;
            next
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn three_to_one() {
        assert_eq!(deal(&[3, 1], 8), [0, 0, 1, 0, 0, 0, 1, 0]);
        assert_eq!(deal(&[0, 2, 2], 4), [1, 2, 1, 2]);
        assert_eq!(deal(&[0, 5], 2), [1, 1]);
    }

    proptest! {
        #[test]
        fn every_beginning_is_in_proportion(
            weights in prop::collection::vec(prop_oneof![Just(0_u64), 1..10_u64, 1..1_u64 << 40], 1..17),
            pages in 0_usize..400,
        ) {
            prop_assume!(weights.iter().any(|&weight| weight > 0));
            let total: u64 = weights.iter().sum();
            let mut counts = vec![0_u64; weights.len()];
            for (at, node) in deal(&weights, pages).into_iter().enumerate() {
                counts[node] += 1;
                for (count, weight) in counts.iter().zip(&weights) {
                    let share = (at + 1) as f64 * *weight as f64 / total as f64;
                    prop_assert!((*count as f64 - share).abs() < 1.0, "{counts:?}");
                    prop_assert!(*weight > 0 || *count == 0);
                }
            }
        }
    }
}
