//! Where pages are expected to be, and which accesses to them are local: one rule for every command that prints a share
//! of local or remote accesses, and for every time.
//!
//! **Scope.** Shares count accesses beyond private caches ([`crate::beyond_caches`]), because the others reach no
//! memory, wherever it is.
//!
//! **Threads that are not bound.** The kernel moves them between nodes, and their pages stay. The model assumes that a
//! thread is equally likely to be on any node at each access, also at the first touch of a page; then an access is
//! local with probability 1/N, and two of T threads are on one node as often as under an arbitrary mapping. A thread
//! that works alone, while the others wait, is not moved: in the slices where it does, it has the figures of bound
//! threads. The model is a lower limit: threads that the kernel leaves in place have the figures of bound threads.
//! Measured values lie between the two (`docs/metrics.md`), nearer to 1/N the more often threads sleep and wake.

use numaloc_model::pages::Page;
use numaloc_model::profile::ObjectKind;
use numaloc_model::{LogicalNode, PageUsage, Placement, Profile, ThreadAccess, ThreadIdx};

/// Words of 8 bytes in a line of 64.
const WORDS_OF_A_LINE: f64 = 8.0;

/// Where a page is expected to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// On this node.
    Node(LogicalNode),
    /// On any node with equal probability: a page of the page cache, which all processes share and no plan places,
    /// shared memory that was there before the run, or a page that no thread used.
    Anywhere,
}

/// The home of a page on a machine with `nodes` nodes: where it is `placed`, else where a memory policy of the program
/// puts it (nodes by their indexes), else its first toucher's node, or if first touch was not observed, that of its
/// main user (ties: the last). A page of the page cache is anywhere, wherever a plan puts it; one of shared memory that
/// no thread placed was there before the run (a mapped file, another program's segment), also anywhere unless placed.
#[must_use]
pub fn home(
    profile: &Profile,
    page: &Page,
    placed: Option<LogicalNode>,
    nodes: usize,
    node_of: impl Fn(ThreadIdx) -> LogicalNode,
) -> Home {
    if profile.is_in_page_cache(page) {
        return Home::Anywhere;
    }
    let was_there = || {
        let is_shared = |object| profile.object(object).kind == ObjectKind::Shared;
        profile.pages().knows_touches() && page.object.is_some_and(is_shared)
    };
    let main_user = || {
        if was_there() {
            return None;
        }
        let accesses = profile.pages().accesses(page).iter();
        let most = accesses.max_by_key(|access| access.total());
        most.map(|access| access.thread)
    };
    let of_toucher = || page.first_touch.or_else(main_user).map(node_of);
    let unplanned = || match page.policy {
        Some(policy) => {
            let toucher = of_toucher().map(LogicalNode::index);
            let node = policy.node(page.object_page, nodes, toucher);
            node.map(LogicalNode::from_index)
        }
        None => of_toucher(),
    };
    placed.or_else(unplanned).map_or(Home::Anywhere, Home::Node)
}

/// Remote accesses, and all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    /// Accesses to pages on another node than the accessing thread's.
    pub remote: f64,
    /// All accesses.
    pub all: f64,
}

impl Counted {
    /// Share of remote accesses; `None` without accesses.
    #[must_use]
    pub fn remote_share(&self) -> Option<f64> {
        (self.all > 0.0).then(|| self.remote / self.all)
    }

    /// Share of local accesses; `None` without accesses.
    #[must_use]
    pub fn local_share(&self) -> Option<f64> {
        self.remote_share().map(|share| 1.0 - share)
    }

    fn add(&mut self, accesses: f64, local: f64) {
        self.all += accesses;
        self.remote += accesses * (1.0 - local);
    }
}

/// The accesses of a run that are counted, on a machine.
#[derive(Clone, Copy)]
pub struct Accesses<'a> {
    /// The run.
    pub profile: &'a Profile,
    /// Its page accesses beyond private caches: the pages of the profile in the same order.
    pub beyond: &'a PageUsage,
    /// Share of each thread's accesses in slices where it alone works; empty if slices do not show it.
    pub alone: &'a [f64],
    /// Nodes that threads can run on.
    pub homes: usize,
    /// Nodes with memory.
    pub memories: usize,
}

impl Accesses<'_> {
    /// With threads bound to `node_of`, and pages at `placed`. O(page cells).
    ///
    /// # Panics
    /// If the placement does not fit the profile.
    #[must_use]
    pub fn bound(&self, node_of: impl Fn(ThreadIdx) -> LogicalNode, placed: &Placement) -> Counted {
        self.count(&node_of, placed, |access| access.total() as f64)
    }

    /// With threads bound to `node_of` and pages by first touch, if a store misses once per line, as in a sweep; loads
    /// count fully. A profile does not show which programs sweep; a conclusion must hold under both assumptions.
    #[must_use]
    pub fn if_stores_sweep(&self, node_of: impl Fn(ThreadIdx) -> LogicalNode) -> Counted {
        self.count(&node_of, &self.untouched(), |access| {
            access.reads as f64 + access.writes as f64 / WORDS_OF_A_LINE
        })
    }

    /// With threads that are not bound and pages by first touch, by the model of the module documentation. Bound, they
    /// would be at `node_of`.
    #[must_use]
    pub fn unbound(&self, node_of: impl Fn(ThreadIdx) -> LogicalNode) -> Counted {
        let by_chance = 1.0 / self.homes.max(1) as f64;
        let mut counted = Counted::default();
        for (page, home) in self.homes_of(&node_of, &self.untouched()) {
            for access in self.beyond.accesses(page) {
                let alone = self.alone.get(access.thread.index());
                let alone = alone.copied().unwrap_or(0.0);
                let local = match home {
                    Home::Anywhere => self.anywhere(),
                    Home::Node(node) if node == node_of(access.thread) => {
                        alone + (1.0 - alone) * by_chance
                    }
                    Home::Node(_) => (1.0 - alone) * by_chance,
                };
                counted.add(access.total() as f64, local);
            }
        }
        counted
    }

    /// As [`bound`](Self::bound) with pages by first touch, for each thread.
    #[must_use]
    pub fn bound_by_thread(&self, node_of: impl Fn(ThreadIdx) -> LogicalNode) -> Vec<Counted> {
        let mut counted = vec![Counted::default(); self.profile.threads().len()];
        for (page, home) in self.homes_of(&node_of, &self.untouched()) {
            for access in self.beyond.accesses(page) {
                let local = match home {
                    Home::Anywhere => self.anywhere(),
                    Home::Node(node) => f64::from(u8::from(node == node_of(access.thread))),
                };
                counted[access.thread.index()].add(access.total() as f64, local);
            }
        }
        counted
    }

    /// As [`bound`](Self::bound) with pages by first touch, for each page of the profile.
    #[must_use]
    pub fn bound_by_page(&self, node_of: impl Fn(ThreadIdx) -> LogicalNode) -> Vec<Counted> {
        let placed = self.untouched();
        let pages = self.homes_of(&node_of, &placed).map(|(page, home)| {
            let mut counted = Counted::default();
            for access in self.beyond.accesses(page) {
                let local = match home {
                    Home::Anywhere => self.anywhere(),
                    Home::Node(node) => f64::from(u8::from(node == node_of(access.thread))),
                };
                counted.add(access.total() as f64, local);
            }
            counted
        });
        pages.collect()
    }

    fn count(
        &self,
        node_of: &impl Fn(ThreadIdx) -> LogicalNode,
        placed: &Placement,
        weight: impl Fn(&ThreadAccess) -> f64,
    ) -> Counted {
        let mut counted = Counted::default();
        for (page, home) in self.homes_of(node_of, placed) {
            for access in self.beyond.accesses(page) {
                let local = match home {
                    Home::Anywhere => self.anywhere(),
                    Home::Node(node) => f64::from(u8::from(node == node_of(access.thread))),
                };
                counted.add(weight(access), local);
            }
        }
        counted
    }

    /// Pages of `beyond` with their homes.
    fn homes_of(
        &self,
        node_of: &impl Fn(ThreadIdx) -> LogicalNode,
        placed: &Placement,
    ) -> impl Iterator<Item = (&Page, Home)> {
        let all = self.profile.pages().pages();
        assert_eq!(placed.node.len(), all.len(), "a node per page");
        let pages = self.beyond.pages().iter().zip(all).zip(&placed.node);
        pages.map(move |((beyond, page), &node)| {
            let home = home(self.profile, page, node, self.memories, node_of);
            (beyond, home)
        })
    }

    fn anywhere(&self) -> f64 {
        1.0 / self.memories.max(1) as f64
    }

    fn untouched(&self) -> Placement {
        Placement {
            node: vec![None; self.profile.pages().pages().len()],
        }
    }
}

/// Share of each thread's accesses in slices where no other thread does a hundredth of its work.
#[must_use]
pub fn alone(profile: &Profile) -> Vec<f64> {
    let mut shares = vec![(0u64, 0u64); profile.threads().len()];
    let rows = profile.accesses_by_slice();
    for slice in rows.chunk_by(|a, b| a.slice == b.slice) {
        let most = slice.iter().map(|row| row.accesses).max().unwrap_or(0);
        let working = slice.iter().filter(|row| row.accesses > most / 100).count();
        for row in slice {
            let (alone, all) = &mut shares[row.thread.index()];
            *all += row.accesses;
            if working == 1 && row.accesses == most {
                *alone += row.accesses;
            }
        }
    }
    let share = |(alone, all): (u64, u64)| alone as f64 / all.max(1) as f64;
    shares.into_iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_model::ObjectIdx;
    use numaloc_model::PageNumber;
    use numaloc_model::pages::PageHead;
    use numaloc_model::profile::{Clock, Meta, Object, ObjectKind, ProfileBuilder, Thread};

    /// Two threads, a node for each. Pages by object (0: memory, 1: a library's file), first toucher, and the accesses
    /// of both threads.
    fn profile(pages: &[(Option<u32>, Option<u32>, [u64; 2])]) -> Profile {
        let mut tables = ProfileBuilder::new(Meta::new("native", Clock::Virtual), 4096);
        tables.threads = ["0", "0.1"].map(Thread::new).to_vec();
        let object = |name: &str, order| Object {
            kind: ObjectKind::Mapping,
            name: name.to_owned(),
            size: 1 << 20,
            order,
            thread: Some(ThreadIdx(0)),
            base: u64::from(order) << 30,
            variables: Vec::new(),
        };
        tables.objects = vec![object("[anon]", 0), object("libc.so.6", 1)];
        for (number, &(object, toucher, reads)) in (0..).zip(pages) {
            let head = PageHead {
                number: PageNumber(number),
                object: object.map(ObjectIdx),
                object_page: number,
                first_touch: toucher.map(ThreadIdx),
                first_touch_time: 0,
                policy: None,
            };
            let used = (0..).zip(reads).filter(|(_, reads)| *reads > 0);
            let rows: Vec<_> = used
                .map(|(thread, reads)| ThreadAccess {
                    thread: ThreadIdx(thread),
                    reads,
                    writes: 0,
                })
                .collect();
            tables.page(head, rows);
        }
        tables.build().unwrap()
    }

    fn of<T>(profile: &Profile, alone: &[f64], ask: impl Fn(Accesses<'_>) -> T) -> T {
        ask(Accesses {
            profile,
            beyond: profile.pages(),
            alone,
            homes: 2,
            memories: 2,
        })
    }

    fn node_of(thread: ThreadIdx) -> LogicalNode {
        LogicalNode(thread.0)
    }

    #[test]
    fn pages_are_where_they_are_placed_or_touched_or_mostly_used() {
        let all = profile(&[
            (Some(0), Some(0), [10, 1]),
            (Some(0), None, [2, 20]),
            (Some(1), Some(0), [40, 60]),
        ]);
        let placed = |first| Placement {
            node: vec![first, None, Some(LogicalNode(1))],
        };
        // Thread 1 reads a page of thread 0, thread 0 one of thread 1, and half of the library is remote for both.
        let counted = of(&all, &[], |a| a.bound(node_of, &placed(None)));
        assert_eq!((counted.remote, counted.all), (1.0 + 2.0 + 50.0, 133.0));
        let moved = placed(Some(LogicalNode(1)));
        let counted = of(&all, &[], |a| a.bound(node_of, &moved));
        assert_eq!(counted.remote, 10.0 + 2.0 + 50.0);
        assert_eq!(counted.remote_share(), Some(62.0 / 133.0));
    }

    #[test]
    fn shared_memory_that_nobody_placed_is_anywhere_until_a_plan_places_it() {
        // The third page is of memory that is shared, without a first toucher, and used by thread 1 alone.
        let shared = |pages: &[_]| {
            profile(pages)
                .changed(|tables| tables.objects[1].kind = ObjectKind::Shared)
                .unwrap()
        };
        let remote = |profile: &Profile, node| {
            let node = vec![node; profile.pages().pages().len()];
            let placed = Placement { node };
            of(profile, &[], |a| a.bound(node_of, &placed)).remote
        };
        let known = shared(&[(Some(0), Some(0), [10, 0]), (Some(1), None, [0, 60])]);
        assert_eq!(remote(&known, None), 30.0);
        assert_eq!(remote(&known, Some(LogicalNode(1))), 10.0);
        // Where no first touch was observed, its main user is the best guess.
        let unknown = shared(&[(Some(0), None, [10, 0]), (Some(1), None, [0, 60])]);
        assert_eq!(remote(&unknown, None), 0.0);
        // A first toucher of shared memory counts.
        let touched = shared(&[(Some(0), Some(0), [10, 0]), (Some(1), Some(0), [0, 60])]);
        assert_eq!(remote(&touched, None), 60.0);
    }

    #[test]
    fn threads_that_are_not_bound_are_local_by_chance_unless_they_work_alone() {
        let all = profile(&[(Some(0), Some(0), [100, 100]), (Some(1), Some(0), [10, 0])]);
        let local = |alone: &[f64]| {
            let counted = of(&all, alone, |a| a.unbound(node_of));
            counted.all - counted.remote
        };
        assert_eq!(local(&[]), 50.0 + 50.0 + 5.0);
        // Thread 0 stays with its page, thread 1 away from it, each in the half of its accesses in which it is alone.
        assert_eq!(local(&[0.5, 0.0]), 75.0 + 50.0 + 5.0);
        assert_eq!(local(&[0.5, 0.5]), 75.0 + 25.0 + 5.0);
    }

    #[test]
    fn nothing_has_no_share() {
        let counted = Counted::default();
        assert_eq!(
            (counted.remote_share(), counted.local_share()),
            (None, None)
        );
    }
}
