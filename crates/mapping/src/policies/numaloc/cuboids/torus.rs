//! Recognises a full torus by the distances of its hosts.

use super::factors::ordered;

/// Dimensions of a torus at most.
const MOST_DIMENSIONS: usize = 4;
/// Hosts whose distances to all others are checked.
const CHECKED: usize = 64;

/// The dimensions, if `hosts` in row-major order are a torus: the distance of two depends on the hops between them
/// alone, and grows with these.
pub(super) fn recognised(hosts: usize, apart: impl Fn(usize, usize) -> f64) -> Option<Vec<usize>> {
    (1..=MOST_DIMENSIONS)
        .flat_map(|count| ordered(hosts, count))
        .filter(|dims| dims.iter().all(|&length| length > 1))
        .find(|dims| fits(dims, hosts, &apart))
}

fn fits(dims: &[usize], hosts: usize, apart: &impl Fn(usize, usize) -> f64) -> bool {
    let mut by_hops: Vec<Option<f64>> = vec![None; dims.iter().sum::<usize>() + 1];
    for a in (0..hosts).step_by(hosts.div_ceil(CHECKED)) {
        for b in (0..hosts).filter(|&b| b != a) {
            let distance = apart(a, b);
            let known = by_hops[hops(dims, a, b)].get_or_insert(distance);
            if (*known - distance).abs() > 1e-9 * distance.abs() {
                return false;
            }
        }
    }
    let known: Vec<f64> = by_hops.into_iter().flatten().collect();
    // With one distance only, every order is as good.
    known.len() > 1 && known.is_sorted_by(|a, b| a < b)
}

/// Hops between two hosts, the shorter way round in each dimension.
fn hops(dims: &[usize], mut a: usize, mut b: usize) -> usize {
    let along = dims.iter().rev().map(|&length| {
        let steps = (a % length).abs_diff(b % length);
        (a, b) = (a / length, b / length);
        steps.min(length - steps)
    });
    along.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torus_is_known_by_its_distances_and_a_tree_is_none() {
        for dims in [vec![8, 8, 8], vec![4, 6], vec![5, 3, 7], vec![9]] {
            let hosts = dims.iter().product();
            let apart = |a, b| 50.0 + 50.0 * hops(&dims, a, b) as f64;
            assert_eq!(recognised(hosts, apart), Some(dims.clone()));
        }
        let tree = |a: usize, b: usize| if a / 8 == b / 8 { 100.0 } else { 150.0 };
        assert_eq!(recognised(64, tree), None);
        assert_eq!(recognised(64, |_, _| 100.0), None);
    }
}
