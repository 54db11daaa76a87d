//! The kernels. What each should gain is known by construction: it is stated in [`Kernel::about`].

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::team::{Outcome, Owner, Program, Team, Work, run, sum};

/// A kernel.
pub struct Kernel {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, and what should help it, in a clause.
    pub about: &'static str,
    run: fn(&Work<'_>) -> Outcome,
}

impl Kernel {
    /// Runs it to its end.
    #[must_use]
    pub fn run(&self, work: &Work<'_>) -> Outcome {
        (self.run)(work)
    }
}

/// Every kernel.
pub const KERNELS: [Kernel; 12] = [
    Kernel {
        name: "triad",
        about: "a = b + 3 c, each thread on its part of arrays that the main thread initialised: pages belong with their users",
        run: triad,
    },
    Kernel {
        name: "triad-local",
        about: "the same, initialised by the users: nothing to gain but threads that stay",
        run: triad_local,
    },
    Kernel {
        name: "random",
        about: "updates at random places of a table that the main thread initialised: pages belong on all nodes",
        run: random,
    },
    Kernel {
        name: "read-only",
        about: "a table that the main thread initialised, read by all threads in turn: pages belong on all nodes",
        run: read_only,
    },
    Kernel {
        name: "stencil",
        about: "each thread on its part of a grid, reading an eighth of the parts next to it: neighbours belong together",
        run: stencil,
    },
    Kernel {
        name: "pipeline",
        about: "each thread of the first half fills a buffer that one of the second half reads: partners belong together",
        run: pipeline,
    },
    Kernel {
        name: "transpose",
        about: "each thread reads a part of every other's memory: no mapping is better than another",
        run: transpose,
    },
    Kernel {
        name: "counter",
        about: "all threads add to one word: only a change of the program helps",
        run: counter,
    },
    Kernel {
        name: "false-sharing",
        about: "each thread adds to a word of its own, all in a few lines: only a change of the program helps",
        run: false_sharing,
    },
    Kernel {
        name: "uneven",
        about: "each thread on memory of its own, the last with four times the work of the first: load belongs on all nodes",
        run: uneven,
    },
    Kernel {
        name: "private",
        about: "each thread on 16 KiB of its own, which its cache holds: nothing to gain",
        run: private,
    },
    Kernel {
        name: "phases",
        about: "partners that exchange memory, others in the second half of the run: no one mapping serves both halves",
        run: phases,
    },
];

/// The kernel of that name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Kernel> {
    KERNELS.iter().find(|kernel| kernel.name == name)
}

const WORD: usize = 8;
/// Words of the memory that a private cache holds.
const CACHED: usize = (16 << 10) / WORD;
/// Passes over that memory in an iteration: enough that waiting for the others, which shares a line, is little.
const PASSES: usize = 64;
/// Additions of an iteration of the kernels that contend for lines.
const ADDITIONS: usize = 2000;

/// `per_thread` blocks of equal size for each thread, which take all memory; those of a thread follow each other.
fn blocks(work: &Work<'_>, per_thread: usize, by_main: bool) -> Vec<(usize, Owner)> {
    let count = work.threads * per_thread;
    let words = (work.bytes / WORD / count).max(64);
    (0..count)
        .map(|block| match by_main {
            true => (words, Owner::Main),
            false => (words, Owner::Thread(block / per_thread)),
        })
        .collect()
}

/// The uses of kernels whose memory stays in private caches.
fn unused(_: &Team<'_>, _: usize) -> Vec<(usize, f64)> {
    Vec::new()
}

fn add(team: &Team<'_>, thread: usize, _: usize) -> u64 {
    let [a, b, c] = [0, 1, 2].map(|array| team.words(3 * thread + array));
    for ((a, b), c) in a.iter().zip(b).zip(c) {
        let value = b
            .load(Relaxed)
            .wrapping_add(c.load(Relaxed).wrapping_mul(3));
        a.store(value, Relaxed);
    }
    0
}

fn of_triad(team: &Team<'_>, thread: usize) -> Vec<(usize, f64)> {
    let own = 3 * thread..3 * thread + 3;
    own.map(|block| (block, team.length(block) as f64))
        .collect()
}

fn triad(work: &Work<'_>) -> Outcome {
    run(
        work,
        Program {
            blocks: blocks(work, 3, true),
            uses: of_triad,
            step: add,
        },
    )
}

fn triad_local(work: &Work<'_>) -> Outcome {
    run(
        work,
        Program {
            blocks: blocks(work, 3, false),
            uses: of_triad,
            step: add,
        },
    )
}

/// splitmix64.
fn mixed(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *state;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Updates of an iteration of `random`: for each thread an eighth of its part of the table, a line each on average.
fn updates(team: &Team<'_>) -> usize {
    team.length(0) / 8
}

fn random(work: &Work<'_>) -> Outcome {
    let step = |team: &Team<'_>, thread: usize, iteration: usize| {
        let mut state = ((iteration * team.threads + thread) as u64) << 20;
        let (parts, words) = (team.threads as u64, team.length(0) as u64);
        for _ in 0..updates(team) {
            let drawn = mixed(&mut state);
            let word = &team.words((drawn % parts) as usize)[(drawn / parts % words) as usize];
            word.store(word.load(Relaxed) ^ drawn, Relaxed);
        }
        0
    };
    run(
        work,
        Program {
            blocks: blocks(work, 1, true),
            uses: |team, _| {
                let each = 2.0 * updates(team) as f64 / team.threads as f64;
                (0..team.threads).map(|block| (block, each)).collect()
            },
            step,
        },
    )
}

fn read_only(work: &Work<'_>) -> Outcome {
    run(
        work,
        Program {
            blocks: blocks(work, 1, true),
            // A part in each iteration, all of them in turn.
            uses: |team, _| {
                let each = team.length(0) as f64 / team.threads as f64;
                (0..team.threads).map(|block| (block, each)).collect()
            },
            step: |team: &Team<'_>, thread: usize, iteration: usize| {
                sum(team.words((thread + iteration) % team.threads))
            },
        },
    )
}

/// The parts next to a thread's, in a ring; none for a single thread.
fn neighbours(team: &Team<'_>, thread: usize) -> Vec<usize> {
    match team.threads {
        1 => Vec::new(),
        2 => vec![1 - thread],
        threads => vec![(thread + threads - 1) % threads, (thread + 1) % threads],
    }
}

fn stencil(work: &Work<'_>) -> Outcome {
    let step = |team: &Team<'_>, thread: usize, iteration: usize| {
        let (old, new) = (iteration % 2, 1 - iteration % 2);
        let from = team.words(2 * thread + old);
        let mut around = 0;
        for other in neighbours(team, thread) {
            around += sum(&team.words(2 * other + old)[..from.len() / 8]) % 16;
        }
        for (at, word) in team.words(2 * thread + new).iter().enumerate() {
            let left = from[at.saturating_sub(1)].load(Relaxed);
            word.store(left / 2 + from[at].load(Relaxed) / 2 + around, Relaxed);
        }
        around
    };
    run(
        work,
        Program {
            blocks: blocks(work, 2, false),
            uses: |team, thread| {
                let words = team.length(0) as f64;
                // Old and new change places: per iteration one and a half of each.
                let own = [0, 1].map(|array| (2 * thread + array, 1.5 * words));
                let others = neighbours(team, thread).into_iter();
                let others = others.flat_map(|other| {
                    [0, 1].map(|array| (2 * other + array, (team.length(0) / 8) as f64 / 2.0))
                });
                own.into_iter().chain(others).collect()
            },
            step,
        },
    )
}

/// The thread of the second half that reads what this one of the first half writes, and the reverse; itself for the
/// last of an odd number.
fn partner(team: &Team<'_>, thread: usize) -> usize {
    let half = team.threads / 2;
    match thread {
        first if first < half => first + half,
        second if second < 2 * half => second - half,
        last => last,
    }
}

fn pipeline(work: &Work<'_>) -> Outcome {
    let step = |team: &Team<'_>, thread: usize, iteration: usize| {
        let (written, read) = (iteration % 2, 1 - iteration % 2);
        let other = partner(team, thread);
        let mut found = 0;
        if thread <= other {
            for word in team.words(2 * thread + written) {
                word.store(iteration as u64, Relaxed);
            }
        }
        if thread >= other {
            found = sum(team.words(2 * other + read));
        }
        found
    };
    // The second half has no buffers, but for the last thread of an odd number.
    let half = work.threads / 2;
    let blocks = blocks(work, 2, false).into_iter().enumerate();
    let blocks = blocks.map(|(block, (words, owner))| match block / 2 {
        thread if thread < half => (2 * words, owner),
        thread if thread < 2 * half => (0, owner),
        _ => (words, owner),
    });
    run(
        work,
        Program {
            blocks: blocks.collect(),
            uses: |team, thread| {
                let other = partner(team, thread);
                let times = if thread == other { 2.0 } else { 1.0 };
                let of = thread.min(other);
                [0, 1]
                    .map(|buffer| (2 * of + buffer, times * team.length(2 * of) as f64 / 2.0))
                    .to_vec()
            },
            step,
        },
    )
}

fn transpose(work: &Work<'_>) -> Outcome {
    let step = |team: &Team<'_>, thread: usize, iteration: usize| {
        let (old, new) = (iteration % 2, 1 - iteration % 2);
        let to = team.words(2 * thread + new);
        let part = to.len() / team.threads;
        for from in 0..team.threads {
            let theirs = &team.words(2 * from + old)[thread * part..][..part];
            for (own, other) in to[from * part..].iter().zip(theirs) {
                own.store(other.load(Relaxed), Relaxed);
            }
        }
        0
    };
    run(
        work,
        Program {
            blocks: blocks(work, 2, false),
            uses: |team, thread| {
                let part = (team.length(0) / team.threads) as f64;
                let own =
                    [0, 1].map(|array| (2 * thread + array, part * team.threads as f64 / 2.0));
                let all = (0..2 * team.threads).map(|block| (block, part / 2.0));
                own.into_iter().chain(all).collect()
            },
            step,
        },
    )
}

fn counter(work: &Work<'_>) -> Outcome {
    let step = |team: &Team<'_>, _: usize, _: usize| {
        let word = &team.words(0)[0];
        for _ in 0..ADDITIONS {
            word.fetch_add(1, Relaxed);
        }
        0
    };
    run(
        work,
        Program {
            blocks: vec![(8, Owner::Main)],
            uses: unused,
            step,
        },
    )
}

/// Adds without locking the line for each addition.
fn add_to(word: &AtomicU64) {
    for _ in 0..ADDITIONS {
        word.store(word.load(Relaxed).wrapping_add(1), Relaxed);
    }
}

fn false_sharing(work: &Work<'_>) -> Outcome {
    run(
        work,
        Program {
            blocks: vec![(work.threads, Owner::Main)],
            uses: unused,
            step: |team: &Team<'_>, thread: usize, _: usize| {
                add_to(&team.words(0)[thread]);
                0
            },
        },
    )
}

/// A load and a store of each word.
fn update(words: &[AtomicU64]) {
    for word in words {
        word.store(word.load(Relaxed).wrapping_mul(3), Relaxed);
    }
}

/// How often a thread of `uneven` passes over its memory in an iteration: once, the last one four times.
fn passes(team: &Team<'_>, thread: usize) -> usize {
    1 + 3 * thread / (team.threads - 1).max(1)
}

fn uneven(work: &Work<'_>) -> Outcome {
    let step = |team: &Team<'_>, thread: usize, _: usize| {
        for _ in 0..passes(team, thread) {
            update(team.words(thread));
        }
        0
    };
    run(
        work,
        Program {
            blocks: blocks(work, 1, false),
            uses: |team, thread| {
                let times = 2 * passes(team, thread);
                vec![(thread, (times * team.length(thread)) as f64)]
            },
            step,
        },
    )
}

fn private(work: &Work<'_>) -> Outcome {
    let own = (0..work.threads).map(|thread| (CACHED, Owner::Thread(thread)));
    run(
        work,
        Program {
            blocks: own.collect(),
            uses: unused,
            step: |team: &Team<'_>, thread: usize, _: usize| {
                for _ in 0..PASSES {
                    update(team.words(thread));
                }
                0
            },
        },
    )
}

/// The partner of a thread in an iteration of `phases`: the next one, later the one half the threads away.
fn partner_of_phase(team: &Team<'_>, thread: usize, iteration: usize) -> usize {
    match iteration < team.iterations / 2 {
        true => (thread ^ 1).min(team.threads - 1),
        false => partner(team, thread),
    }
}

fn phases(work: &Work<'_>) -> Outcome {
    let step = |team: &Team<'_>, thread: usize, iteration: usize| {
        let (old, new) = (iteration % 2, 1 - iteration % 2);
        let other = partner_of_phase(team, thread, iteration);
        let theirs = team.words(2 * other + old);
        for (own, other) in team.words(2 * thread + new).iter().zip(theirs) {
            own.store(other.load(Relaxed), Relaxed);
        }
        0
    };
    run(
        work,
        Program {
            blocks: blocks(work, 2, false),
            uses: |team, thread| {
                let words = team.length(0) as f64;
                let early = (team.iterations / 2) as f64 / team.iterations.max(1) as f64;
                let mut found = Vec::new();
                for array in [0, 1] {
                    let [first, last] = [0, team.iterations - 1]
                        .map(|iteration| partner_of_phase(team, thread, iteration));
                    found.push((2 * thread + array, words / 2.0));
                    found.push((2 * first + array, early * words / 2.0));
                    found.push((2 * last + array, (1.0 - early) * words / 2.0));
                }
                found
            },
            step,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(threads: usize) -> Work<'static> {
        Work {
            threads,
            bytes: 1 << 18,
            iterations: 6,
            node: &|| 0,
        }
    }

    #[test]
    fn every_kernel_runs_with_any_number_of_threads_and_names_blocks_that_exist() {
        for kernel in &KERNELS {
            for threads in 1..=5 {
                let done = kernel.run(&work(threads));
                let blocks = done.blocks();
                assert_eq!(done.nodes.len(), threads, "{}", kernel.name);
                let seen = |nodes: &std::collections::BTreeMap<u32, u64>| nodes[&0];
                assert!(done.nodes.iter().all(|nodes| seen(nodes) == 6));
                for used in &done.uses {
                    assert!(used.accesses >= 0.0 && used.thread < threads);
                    assert!(
                        used.accesses == 0.0 || blocks[used.block].bytes > 0,
                        "{}",
                        kernel.name
                    );
                }
                let bytes: usize = blocks.iter().map(|block| block.bytes).sum();
                assert!(
                    bytes <= (1 << 18) + threads * CACHED * WORD,
                    "{}",
                    kernel.name
                );
            }
        }
    }

    /// By hand, three threads of 1000 words a block.
    #[test]
    fn accesses_are_those_of_the_loops() {
        let work = Work {
            bytes: 9 * 1000 * WORD,
            ..work(3)
        };
        let sum = |name: &str| -> f64 {
            let done = named(name).unwrap().run(&work);
            done.uses.iter().map(|used| used.accesses).sum()
        };
        // Two loads and a store for each of 3000 words.
        assert_eq!(sum("triad"), 6.0 * 9000.0);
        // 3000 words a thread: 1, 2 and 4 passes, a load and a store each.
        assert_eq!(sum("uneven"), 6.0 * 2.0 * (1.0 + 2.0 + 4.0) * 3000.0);
        // Blocks of 1500 words, of each thread 3 * 500 read and written.
        assert_eq!(sum("transpose"), 6.0 * 3.0 * 2.0 * 1500.0);
        // Two partners exchange 3000 words an iteration; the third thread writes and reads half as many.
        assert_eq!(sum("pipeline"), 6.0 * 3.0 * 3000.0);
        assert_eq!(sum("counter"), 0.0);
    }

    #[test]
    fn partners_are_each_others() {
        let done = named("pipeline").unwrap().run(&work(4));
        let of = |thread: usize| -> Vec<usize> {
            let uses = done.uses.iter().filter(|used| used.thread == thread);
            uses.map(|used| used.block).collect()
        };
        assert_eq!((of(0), of(1)), (of(2), of(3)));
        assert_ne!(of(0), of(1));
    }
}
