//! `marathe`: the page goes to the node of the thread with most sampled long-latency loads (Marathe
//! and Mueller 2006, the baseline of OPT section 7.6).
//!
//! Their profile comes from a performance counter that reports every n-th load slower than a
//! threshold. A numaloc profile has exact counts, so the counter is imitated: each thread's loads are
//! counted page by page, and every [`SAMPLE_PERIOD`]-th gives a sample for the page it falls on; the
//! counter starts at a phase drawn from the seed. Stores are not seen, as there; whether a load was
//! slow is not known to the profile, so every load counts as a candidate. A page without a sample is
//! left to first touch. Deliberately not equal to `locality`: it knows threads instead of nodes,
//! loads instead of accesses, and samples instead of counts.

use numaloc_model::LogicalNode;

use super::PlacementPolicy;
use crate::random::SplitMix64;
use crate::view::View;

/// Loads of a thread per sample. A prime, so that it does not beat with loops over rows and pages.
pub const SAMPLE_PERIOD: u64 = 97;

/// See the module.
pub struct Marathe;

impl PlacementPolicy for Marathe {
    fn name(&self) -> &'static str {
        "marathe"
    }

    fn about(&self) -> &'static str {
        "the node of the thread with most sampled loads of a page (OPT section 7.6)"
    }

    fn wish(&self, view: &View) -> Vec<Option<LogicalNode>> {
        let usage = view.usage();
        let mut draw = SplitMix64::new(view.seed());
        let mut counter: Vec<u64> = Vec::new();
        let pages = usage.pages().iter();
        pages
            .map(|page| {
                let mut hottest = (0, None);
                for access in usage.accesses(page) {
                    while counter.len() <= access.thread.index() {
                        counter.push(draw.next() % SAMPLE_PERIOD);
                    }
                    let counted = &mut counter[access.thread.index()];
                    *counted += access.reads;
                    let samples = *counted / SAMPLE_PERIOD;
                    *counted %= SAMPLE_PERIOD;
                    if samples > hottest.0 {
                        hottest = (samples, Some(view.node_of(access.thread)));
                    }
                }
                hottest.1
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::PlaceInput;
    use crate::test_support::{machine, mapping, nodes_of, usage};

    #[test]
    fn the_hottest_thread_decides_not_the_hottest_node() {
        // Threads 0 and 1 on node 0 with 400 loads each, thread 2 on node 1 with 600: whatever the
        // phase, 400 loads give 4 or 5 samples and 600 give 6 or 7. So node 1, although node 0 has 800.
        let pages = usage(&[&[(0, 400), (1, 400), (2, 600)]]);
        let (topology, mapping) = (machine(2), mapping(&[0, 0, 1]));
        let mut input = PlaceInput::new(&pages, &mapping, &topology);
        for seed in 0..20 {
            input.seed = seed;
            assert_eq!(nodes_of("marathe", &input), [1]);
            assert_eq!(nodes_of("locality", &input), [0]);
        }
    }

    #[test]
    fn pages_between_samples_are_left_to_first_touch() {
        // 40 pages with 10 loads each: 400 loads, 4 or 5 samples in all.
        let rows = vec![[(0, 10)]; 40];
        let rows: Vec<&[(u32, u64)]> = rows.iter().map(|row| &row[..]).collect();
        let pages = usage(&rows);
        let (topology, mapping) = (machine(2), mapping(&[0]));
        let input = PlaceInput::new(&pages, &mapping, &topology);
        let placed = nodes_of("marathe", &input);
        let sampled = placed.iter().filter(|&&node| node == 0).count();
        assert!((4..=5).contains(&sampled), "{placed:?}");
    }
}
