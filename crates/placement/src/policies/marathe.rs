//! `marathe`: the page goes to the node of the thread with most long-latency loads (Marathe and
//! Mueller 2006, the baseline of OPT section 7.6).
//!
//! Their profile comes from a performance counter that reports loads slower than a threshold; OPT used the loads that
//! miss simulated caches. A profile has such loads if hardware sampled them or an access trace went through the cache
//! model. Each of them then counts once: those from hardware are samples already, those from the model are complete.
//!
//! Any other profile has exact counts of all loads, so the counter is imitated without its threshold: each thread's
//! loads are counted page by page, and every [`SAMPLE_PERIOD`]-th is a sample for its page; the counter starts at a
//! phase drawn from the seed. A remark of the policy says so.
//!
//! Stores are ignored, as in the original. A page without a sample is left to first touch; of threads with equally many
//! samples the lowest is taken. Deliberately different from `locality`: it uses threads instead of nodes, loads instead
//! of accesses, and samples instead of counts.

use numaloc_model::{LogicalNode, ThreadIdx};

use super::PlacementPolicy;
use crate::random::SplitMix64;
use crate::view::View;

/// Loads of a thread per sample, if loads that took long are not known. A prime, so that it does not resonate with
/// loops over rows and pages.
pub const SAMPLE_PERIOD: u64 = 97;

/// The policy; see the module documentation.
pub struct Marathe;

impl PlacementPolicy for Marathe {
    fn name(&self) -> &'static str {
        "marathe"
    }

    fn summary(&self) -> &'static str {
        "the node of the thread with most slow loads of a page"
    }

    fn source(&self) -> &'static str {
        "Marathe and Mueller 2006"
    }

    fn preferred_nodes(&self, view: &View) -> Vec<Option<LogicalNode>> {
        let hottest = if view.slow_loads_source().is_some() {
            by_slow_loads(view)
        } else {
            by_all_loads(view)
        };
        let nodes = hottest.into_iter();
        nodes
            .map(|hottest| hottest.thread.map(|thread| view.node_of(thread)))
            .collect()
    }

    fn remark(&self, view: &View) -> Option<String> {
        Some(match view.slow_loads_source() {
            Some(source) => format!("marathe goes by long-latency loads: {source}"),
            None => format!(
                "marathe goes by every {SAMPLE_PERIOD}th of all loads, for the profile does not say which of them took long \
                 (hardware samples do, and record --trace)"
            ),
        })
    }
}

/// The thread with most samples of a page so far.
#[derive(Clone, Copy, Default)]
struct Hottest {
    samples: u64,
    thread: Option<ThreadIdx>,
}

impl Hottest {
    fn offer(&mut self, thread: ThreadIdx, samples: u64) {
        if samples > self.samples {
            *self = Self {
                samples,
                thread: Some(thread),
            };
        }
    }
}

fn by_slow_loads(view: &View) -> Vec<Hottest> {
    // Recorded pages of one larger page are added up.
    let mut rows: Vec<(usize, ThreadIdx, u64)> = view.slow_loads().collect();
    rows.sort_unstable();
    let mut hottest = vec![Hottest::default(); view.usage().pages().len()];
    for cell in rows.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let (page, thread, _) = cell[0];
        hottest[page].offer(thread, cell.iter().map(|row| row.2).sum());
    }
    hottest
}

fn by_all_loads(view: &View) -> Vec<Hottest> {
    let usage = view.usage();
    let mut draw = SplitMix64::new(view.seed());
    let mut counter: Vec<u64> = Vec::new();
    let pages = usage.pages().iter();
    pages
        .map(|page| {
            let mut hottest = Hottest::default();
            for access in usage.accesses(page) {
                while counter.len() <= access.thread.index() {
                    counter.push(draw.next() % SAMPLE_PERIOD);
                }
                let counted = &mut counter[access.thread.index()];
                *counted += access.reads;
                hottest.offer(access.thread, *counted / SAMPLE_PERIOD);
                *counted %= SAMPLE_PERIOD;
            }
            hottest
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use numaloc_model::ThreadIdx;
    use numaloc_model::profile::{SlowLoadRow, SlowLoads};

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

    #[test]
    fn known_slow_loads_decide() {
        // Thread 0 loads page 0 a thousand times from its caches, thread 1 waits for ten of its loads. No thread waits
        // for page 1. Of pages 2 and 3, each thread waits for most of one; together, thread 1 waits longer.
        let pages = usage(&[
            &[(0, 1000), (1, 10)],
            &[(0, 500)],
            &[(0, 300), (1, 2)],
            &[(0, 300), (1, 9)],
        ]);
        let slow = |page, thread, loads| SlowLoadRow {
            page,
            thread: ThreadIdx(thread),
            loads,
        };
        let slow = SlowLoads {
            source: "a test".to_owned(),
            rows: vec![slow(0, 1, 10), slow(2, 0, 4), slow(2, 1, 2), slow(3, 1, 9)],
        };
        let (topology, mapping) = (machine(2), mapping(&[0, 1]));
        let mut input = PlaceInput::new(&pages, &mapping, &topology);
        assert_eq!(nodes_of("marathe", &input), [0, 0, 0, 0]);
        let remark = |input: &PlaceInput| {
            let placed = crate::place(crate::policy("marathe").unwrap(), input).unwrap();
            placed.diagnostics.join("; ")
        };
        assert!(
            remark(&input).contains("every 97th of all loads"),
            "{}",
            remark(&input)
        );
        input.slow_loads = Some(&slow);
        assert_eq!(nodes_of("marathe", &input), [1, -1, 0, 1]);
        assert!(remark(&input).contains("a test"), "{}", remark(&input));
        input.page_size = 8192;
        assert_eq!(nodes_of("marathe", &input), [1, 1, 1, 1]);
    }
}
