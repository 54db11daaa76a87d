//! `next-touch`: the page follows the first thread that touches it *after* the one that initialised
//! it (Goglin and Furmento 2009 migrate it in the page fault; the plan does it from the start).
//!
//! With per-slice counts: the first slice in which a thread other than the first toucher accesses the page; of several
//! such threads, the one with most accesses there. Otherwise, from the whole run, the other thread with most accesses.
//! Ties: the lower thread. A page used only by its first toucher stays with it.

use numaloc_model::{LogicalNode, ThreadIdx};

use super::PlacementPolicy;
use crate::view::View;

/// The policy; see the module documentation.
pub struct NextTouch;

/// The first slice in which another thread accesses the page, and that thread with its accesses.
#[derive(Clone, Copy)]
struct Next {
    slice: u32,
    accesses: u64,
    thread: ThreadIdx,
}

impl PlacementPolicy for NextTouch {
    fn name(&self) -> &'static str {
        "next-touch"
    }

    fn summary(&self) -> &'static str {
        "the node of the second thread that uses a page"
    }

    fn source(&self) -> &'static str {
        "Goglin and Furmento 2009"
    }

    fn preferred_nodes(&self, view: &View) -> Vec<Option<LogicalNode>> {
        let usage = view.usage();
        let mut next: Vec<Option<Next>> = vec![None; usage.pages().len()];
        let mut offer = |page: usize, offered: Next| {
            if usage.pages()[page].first_touch == Some(offered.thread) {
                return;
            }
            let rank = |n: &Next| (n.slice, std::cmp::Reverse(n.accesses), n.thread);
            if next[page].is_none_or(|known| rank(&offered) < rank(&known)) {
                next[page] = Some(offered);
            }
        };
        for (slice, page, thread, accesses) in view.page_slices() {
            offer(
                page,
                Next {
                    slice,
                    accesses,
                    thread,
                },
            );
        }
        // Whole-run counts come after every slice, so they decide only where no slice did.
        for (at, page) in usage.pages().iter().enumerate() {
            for access in usage.accesses(page) {
                offer(
                    at,
                    Next {
                        slice: u32::MAX,
                        accesses: access.total(),
                        thread: access.thread,
                    },
                );
            }
        }
        usage
            .pages()
            .iter()
            .zip(next)
            .map(|(page, next)| {
                let thread = next.map(|next| next.thread).or(page.first_touch)?;
                Some(view.node_of(thread))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::PlaceInput;
    use crate::test_support::{machine, mapping, nodes_of, usage};
    use numaloc_model::profile::PageSliceRow;
    use numaloc_model::{SliceIdx, ThreadIdx};

    #[test]
    fn the_initialising_thread_does_not_count() {
        // Thread 0 (node 0) initialises everything. Page 0 is later used by thread 1 (3) and thread 2
        // (8): whole-run counts say thread 2. Page 1 stays with thread 0.
        let pages = usage(&[&[(0, 50), (1, 3), (2, 8)], &[(0, 50)]]);
        let (topology, mapping) = (machine(3), mapping(&[0, 1, 2]));
        let mut input = PlaceInput::new(&pages, &mapping, &topology);
        assert_eq!(nodes_of("next-touch", &input), [2, 0]);
        // The slices say that thread 1 came first (slice 1), thread 2 only in slice 4.
        let row = |slice, thread, accesses| PageSliceRow {
            slice: SliceIdx(slice),
            page: 0,
            thread: ThreadIdx(thread),
            accesses,
        };
        let slices = [row(0, 0, 50), row(1, 1, 3), row(4, 2, 8)];
        input.page_slices = &slices;
        assert_eq!(nodes_of("next-touch", &input), [1, 0]);
    }
}
