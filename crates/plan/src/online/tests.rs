//! A simulated program: threads access pages in a fixed order, and decisions are carried out at once.

use numaloc_model::Served;
use numaloc_topology::resolve;

use super::policies::Chosen;
use super::*;
use crate::{Choice, Options};

/// Pages of each thread.
const PAGES: u64 = 16;

/// Threads on four nodes of two PUs, all pages on some node.
struct Program {
    present: Present,
    moved_threads: usize,
    moved_pages: usize,
    decisions: usize,
}

/// The page that thread `by` owns.
fn page(by: usize, at: u64) -> u64 {
    0x1000 + by as u64 * 0x100 + at
}

impl Program {
    fn new(node_of_page: impl Fn(usize) -> u32) -> Self {
        let pus = (0..8)
            .map(|thread| (thread, LogicalPu(thread as u32)))
            .collect();
        let all = (0..8).flat_map(|t| (0..PAGES).map(move |at| (t, page(t, at))));
        Self {
            present: Present {
                threads: pus,
                pages: all
                    .map(|(t, page)| (page, LogicalNode(node_of_page(t))))
                    .collect(),
            },
            moved_threads: 0,
            moved_pages: 0,
            decisions: 0,
        }
    }

    /// Runs from `from_s` to `to_s`: every 50 ms each thread accesses its pages, and then those of its partner.
    fn run(
        &mut self,
        online: &mut Online,
        (from_s, to_s): (f64, f64),
        partner: impl Fn(usize) -> usize,
    ) {
        for step in 0..((to_s - from_s) / 0.05).round() as u64 {
            let now_s = from_s + step as f64 * 0.05;
            for of in 0..2 {
                for thread in 0..8 {
                    let owner = if of == 0 { thread } else { partner(thread) };
                    for at in 0..PAGES {
                        online.observe(thread, &Access::to(page(owner, at) * PAGE), now_s);
                    }
                }
            }
            self.decide(online, now_s);
        }
    }

    /// Carries out what is decided now, if anything is.
    fn decide(&mut self, online: &mut Online, now_s: f64) {
        if online.due(now_s).is_none() {
            return;
        }
        let decision = online.decide(now_s, &self.present).unwrap();
        self.decisions += 1;
        for (thread, pu) in decision.iter().flat_map(|of| &of.threads) {
            let before = self.present.threads.insert(*thread, *pu);
            self.moved_threads += usize::from(before != Some(*pu));
        }
        for (page, node) in decision.iter().flat_map(|of| &of.pages) {
            self.present.pages.insert(page / PAGE, *node);
            self.moved_pages += 1;
        }
    }

    fn node(&self, thread: usize) -> u32 {
        self.present.threads[&thread].0 / 2
    }

    /// Whether the pages of each thread are on its node or that of its partner.
    fn pages_are_near(&self, partner: impl Fn(usize) -> usize) -> bool {
        (0..8).all(|thread| {
            (0..PAGES).all(|at| {
                let node = self.present.pages[&page(thread, at)].0;
                node == self.node(thread) || node == self.node(partner(thread))
            })
        })
    }
}

fn constants() -> Constants {
    Constants {
        dynamics: crate::Dynamics {
            page_interval_s: 1.0,
            ..crate::Dynamics::default()
        },
        ..Constants::default()
    }
}

fn with_online<T>(constants: Constants, run: impl FnOnce(&mut Online) -> T) -> T {
    let machine = resolve("numa:4 core:2 pu:1").unwrap();
    let choice = Choice::new("numaloc", "locality").unwrap();
    let policies = Chosen::new(&choice, &machine, Options::default()).unwrap();
    run(&mut Online::new(&policies, &machine, constants))
}

#[test]
fn pages_that_one_thread_initialised_go_to_their_users_and_stay_there() {
    with_online(constants(), |online| {
        let mut program = Program::new(|_| 0);
        program.run(online, (0.0, 20.0), |thread| thread);
        assert!(program.pages_are_near(|thread| thread));
        // Each once: those of the two threads on node 0 are there already.
        assert_eq!(
            (program.moved_pages, program.moved_threads),
            (6 * PAGES as usize, 0)
        );
        assert!(program.decisions > 3);
    });
}

#[test]
fn threads_follow_their_partners_from_phase_to_phase() {
    with_online(constants(), |online| {
        let mut program = Program::new(|thread| thread as u32 / 2);
        let neighbour = |thread: usize| thread ^ 1;
        let distant = |thread: usize| (thread + 4) % 8;
        program.run(online, (0.0, 20.0), neighbour);
        assert_eq!(
            (program.moved_threads, program.moved_pages),
            (0, 0),
            "all is well"
        );
        program.run(online, (20.0, 40.0), distant);
        assert_eq!(online.phases(), 1);
        assert!((0..8).all(|t| program.node(t) == program.node(distant(t))));
        assert!(program.pages_are_near(distant));
        // Half of the threads are enough, and only their pages.
        assert!(program.moved_threads <= 6, "{}", program.moved_threads);
        assert!(
            program.moved_pages <= 6 * PAGES as usize,
            "{}",
            program.moved_pages
        );
        let (threads, pages) = (program.moved_threads, program.moved_pages);
        program.run(online, (40.0, 60.0), distant);
        assert_eq!(
            (program.moved_threads, program.moved_pages),
            (threads, pages)
        );
    });
}

/// The first accesses of a phase say little: a mapping made from them is checked again.
#[test]
fn a_mapping_from_few_accesses_is_revised_without_a_new_phase() {
    // Both patterns are equally heterogeneous: no new phase is seen.
    let constants = Constants {
        detector: Detector::Heterogeneity,
        ..constants()
    };
    with_online(constants, |online| {
        let mut program = Program::new(|thread| thread as u32 / 2);
        let (neighbour, distant) = (|thread: usize| thread ^ 1, |thread: usize| (thread + 4) % 8);
        program.run(online, (0.0, 1.2), distant);
        assert!((0..8).all(|t| program.node(t) == program.node(distant(t))));
        program.run(online, (1.2, 20.0), neighbour);
        assert_eq!(online.phases(), 0);
        assert!((0..8).all(|t| program.node(t) == program.node(neighbour(t))));
        assert!(program.pages_are_near(neighbour));
    });
}

#[test]
fn moves_keep_their_distance() {
    // With OPT's ten seconds, pages that are used by others after four seconds wait until thirteen.
    let constants = Constants {
        dynamics: crate::Dynamics::default(),
        ..Constants::default()
    };
    with_online(constants, |online| {
        let mut program = Program::new(|_| 0);
        program.run(online, (0.0, 2.9), |thread| thread);
        assert_eq!(program.moved_pages, 0, "pages wait for threads");
        program.run(online, (2.9, 4.0), |thread| thread);
        let first = program.moved_pages;
        assert_eq!(first, 6 * PAGES as usize);
        program.run(online, (4.0, 12.0), |thread| (thread + 2) % 8);
        let moved_later = program.moved_pages - first;
        assert_eq!(moved_later, 0);
    });
}

#[test]
fn a_program_with_one_thread_and_threads_that_have_ended_are_left_alone() {
    with_online(constants(), |online| {
        let mut program = Program::new(|_| 3);
        for thread in 1..8 {
            program.present.threads.remove(&thread);
        }
        program.run(online, (0.0, 5.0), |thread| thread);
        assert_eq!((program.moved_threads, program.moved_pages), (0, 0));
    });
}

#[test]
fn threads_that_share_a_pu_are_settled_on_free_ones() {
    with_online(constants(), |online| {
        let mut program = Program::new(|_| 0);
        for thread in 0..8 {
            program
                .present
                .threads
                .insert(thread, LogicalPu(thread as u32 / 2 * 2));
        }
        program.run(online, (0.0, 5.0), |thread| thread);
        let mut pus: Vec<u32> = program.present.threads.values().map(|pu| pu.0).collect();
        pus.sort_unstable();
        // The first two have their pages where they are, and are left to the kernel.
        assert_eq!(pus, [0, 0, 2, 3, 4, 5, 6, 7]);
        assert!(program.pages_are_near(|thread| thread));
    });
}

/// Neighbours load the same memory often, distant threads rarely take lines from each other's caches: `azimi` sees only
/// those.
#[test]
fn azimi_goes_by_transfers_from_cache_to_cache_only() {
    let (neighbour, distant) = (|thread: usize| thread ^ 1, |thread: usize| (thread + 4) % 8);
    let run = |communication_by| {
        let constants = Constants {
            communication_by,
            pages_by: communication_by,
            ..constants()
        };
        with_online(constants, |online| {
            let mut program = Program::new(|thread| thread as u32 / 2);
            for step in 0..400 {
                let now_s = step as f64 * 0.05;
                for (to, served, times) in [
                    (&neighbour as &dyn Fn(usize) -> usize, Served::Memory, 8),
                    (&distant, Served::OtherCache, 1),
                ] {
                    for (thread, at) in (0..8).flat_map(|t| (0..2 * times).map(move |at| (t, at))) {
                        // Both threads of a pair use the page of the lower one.
                        let owner = thread.min(to(thread));
                        let access = Access {
                            served: Some(served),
                            store: Some(false),
                            ..Access::to(page(owner, at) * PAGE)
                        };
                        online.observe(thread, &access, now_s);
                    }
                }
                program.decide(online, now_s);
            }
            let near = |to: &dyn Fn(usize) -> usize| {
                (0..8).all(|thread| program.node(thread) == program.node(to(thread)))
            };
            (near(&neighbour), near(&distant))
        })
    };
    assert_eq!(run(Evidence::All), (true, false));
    assert_eq!(run(Evidence::CacheToCache), (false, true));
}

/// A page that a thread loads from its cache all the time belongs, for `marathe`, to the one that waits for it.
#[test]
fn marathe_moves_pages_to_the_threads_that_wait_for_them() {
    let machine = resolve("numa:4 core:2 pu:1").unwrap();
    let node = |pages: &str, by| {
        let choice = Choice::new("numaloc", pages).unwrap();
        let policies = Chosen::new(&choice, &machine, Options::default()).unwrap();
        let constants = Constants {
            pages_by: by,
            ..constants()
        };
        let mut online = Online::new(&policies, &machine, constants);
        let mut program = Program::new(|_| 3);
        for step in 0..200 {
            let now_s = step as f64 * 0.05;
            for (thread, served, loads) in [(0, Served::OwnCache, 8), (2, Served::Memory, 2)] {
                for _ in 0..loads {
                    let access = Access {
                        served: Some(served),
                        store: Some(false),
                        ..Access::to(page(0, 0) * PAGE)
                    };
                    online.observe(thread, &access, now_s);
                }
            }
            program.decide(&mut online, now_s);
        }
        let at = program.present.pages[&page(0, 0)].0;
        [0, 2].map(|thread| program.node(thread) == at)
    };
    assert!(node("marathe", Evidence::SlowLoads)[1]);
    assert!(node("locality", Evidence::All)[0]);
}

/// Whoever reads what a thread writes is not seen. Where its private cache holds that, its pages would be moved for
/// nobody that is known.
#[test]
fn pages_of_threads_that_write_little_stay_where_only_writes_are_seen() {
    let moved = |cache, guard: bool| {
        let constants = Constants {
            writes_only_beyond: cache,
            ..constants()
        };
        with_online(constants, |online| {
            let mut program = Program::new(|_| 0);
            for step in 0..100 {
                let from_s = f64::from(step) * 0.1;
                program.run(online, (from_s, from_s + 0.1), |thread| thread);
                // Another page of each thread faults ten times as often.
                for thread in (0..8).flat_map(|thread| [thread; 40]).filter(|_| guard) {
                    online.observe(thread, &Access::to(page(thread, PAGES) * PAGE), from_s);
                }
            }
            (program.moved_threads, program.moved_pages)
        })
    };
    let all = 6 * PAGES as usize;
    assert_eq!(moved(None, false), (0, all));
    assert_eq!(moved(Some((PAGES - 1) * PAGE), false), (0, all));
    assert_eq!(moved(Some(PAGES * PAGE), false), (0, 0));
    assert_eq!(moved(Some((PAGES - 1) * PAGE), true), (0, all));
}

/// Phases of six seconds.
#[test]
fn the_length_of_phases_is_learned() {
    with_online(constants(), |online| {
        let mut program = Program::new(|thread| thread as u32 / 2);
        let partner = |phase: usize| {
            move |thread: usize| match phase % 2 {
                0 => thread ^ 1,
                _ => (thread + 4) % 8,
            }
        };
        for phase in 0..6 {
            let from_s = 6.0 * phase as f64;
            program.run(online, (from_s, from_s + 6.0), partner(phase));
        }
        assert_eq!(online.phases(), 5);
        // A phase is recognised after a second: five more are expected then.
        assert!((4.0..6.0).contains(&online.lengths.remaining_s(1.0)));
        assert!(online.lengths.remaining_s(5.9) < 1.0);
    });
}

/// A source that shows few accesses: 16 a second. Windows then last longer, and no phase is seen where there is none.
#[test]
fn few_accesses_are_enough_in_a_longer_time() {
    // Such a source does not show amounts.
    let mut constants = constants();
    constants.half_life_s = 10.0;
    constants.dynamics.least_events_per_s = 0.0;
    let machine = resolve("numa:4 core:2 pu:1").unwrap();
    let choice = Choice::new("numaloc", "locality").unwrap();
    let policies = Chosen::new(&choice, &machine, Options::default()).unwrap();
    let mut online = Online::new(&policies, &machine, constants);
    let distant = |thread: usize| (thread + 4) % 8;
    let mut program = Program::new(|_| 0);
    for step in 0..960_u64 {
        let now_s = step as f64 / 16.0;
        // A page of each thread in turn, by its owner, and by its partner the next time.
        let (owner, at) = ((step % 8) as usize, step / 8 % PAGES);
        let by_partner = (step / 8 + step / 128) % 2 == 1;
        let thread = if by_partner { distant(owner) } else { owner };
        online.observe(thread, &Access::to(page(owner, at) * PAGE), now_s);
        if online.due(now_s).is_some()
            && let Some(decision) = online.decide(now_s, &program.present).unwrap()
        {
            program.present.threads.extend(decision.threads);
            let pages = decision
                .pages
                .iter()
                .map(|(page, node)| (page / PAGE, *node));
            program.present.pages.extend(pages);
        }
    }
    assert_eq!(online.phases(), 0);
    assert!((0..8).all(|t| program.node(t) == program.node(distant(t))));
    assert!(program.pages_are_near(distant));
}
