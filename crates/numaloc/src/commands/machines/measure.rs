//! Measures latencies and bandwidths of this machine.
//!
//! Latency: a thread on a PU of one node follows pointers through memory of another, one line after the other, in an
//! order that neither streams nor leaves a page before all its lines have been read, so that misses of the TLB count
//! little. Bandwidth: threads on all cores of one node read memory of another. Each figure is the median of many
//! short pieces.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::error::CliError;

/// Smallest number of pieces of which the median is taken.
const PIECES: usize = 5;
/// Accesses of a piece of a pointer chase, and bytes of a piece of a stream: shorter than the time slices of the
/// operating system, so that other programs disturb single pieces only.
const STEPS: usize = 1 << 13;
const PIECE_BYTES: usize = 1 << 20;
const PAGE: usize = 4096;
const WORD: usize = size_of::<u64>();

/// Which PUs access memory, and where it is; by the kernel's numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access<'a> {
    /// PUs that access the memory; at least one.
    pub pus: &'a [u32],
    /// The memory's node; `None` on machines with a single one, which may lack memory policies.
    pub node: Option<u32>,
    /// Bytes of a cache line.
    pub line_bytes: usize,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Binds the calling thread to PUs.
fn bind(pus: &[u32]) -> Result<(), CliError> {
    numaloc_sys::affinity::set(0, pus)
        .map_err(|error| CliError::tool(format!("cannot run on PUs {pus:?}: {error}")))
}

/// Smallest request that the C library always answers with fresh pages: their place is still open.
pub(super) const FRESH: usize = 64 << 20;

/// Memory of `bytes`, zeroed. On `node` if there are at least [`FRESH`] bytes, else where the calling thread runs.
fn memory_on(node: Option<u32>, bytes: usize) -> Result<Vec<u64>, CliError> {
    let mut words: Vec<u64> = Vec::with_capacity(bytes / WORD);
    if let Some(node) = node
        && bytes >= FRESH
    {
        // Whole pages inside of it.
        let first = (words.as_ptr() as usize).next_multiple_of(PAGE);
        numaloc_sys::memory::prefer(first, bytes / PAGE * PAGE - PAGE, node).map_err(|error| {
            CliError::tool(format!("cannot place memory on node {node}: {error}"))
        })?;
    }
    words.resize(bytes / WORD, 0);
    Ok(words)
}

/// xorshift64*.
fn random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
}

/// Links the first words of all lines to one cycle: pages in random order, and all lines of a page in random order.
fn link_lines(words: &mut [u64], line_bytes: usize) {
    let per_line = line_bytes / WORD;
    let lines = words.len() / per_line;
    let per_page = (PAGE / line_bytes).max(1);
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let mut shuffled = |count: usize| -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for at in (1..count).rev() {
            order.swap(at, random(&mut state) as usize % (at + 1));
        }
        order
    };
    let mut order = Vec::with_capacity(lines);
    for page in shuffled(lines.div_ceil(per_page)) {
        let of_page = shuffled(per_page).into_iter();
        order.extend(
            of_page
                .map(|line| page * per_page + line)
                .filter(|line| *line < lines),
        );
    }
    for (at, &line) in order.iter().enumerate() {
        let next = order[(at + 1) % order.len()];
        words[line * per_line] = (next * per_line) as u64;
    }
}

/// Nanoseconds of an access that depends on the one before, in a working set of `bytes`.
pub(super) fn latency(from: Access<'_>, bytes: usize, time: Duration) -> Result<f64, CliError> {
    bind(&from.pus[..1])?;
    let mut words = memory_on(from.node, bytes)?;
    link_lines(&mut words, from.line_bytes);
    let lines = words.len() * WORD / from.line_bytes;
    let mut at = 0;
    let mut follow = |steps: usize| {
        for _ in 0..steps {
            at = words[at] as usize;
        }
        black_box(at);
    };
    // Fills the caches, as far as they are large enough.
    follow(lines);
    let (start, mut pieces) = (Instant::now(), Vec::new());
    while pieces.len() < PIECES || start.elapsed() < time {
        let piece = Instant::now();
        follow(STEPS);
        pieces.push(piece.elapsed().as_secs_f64() * 1e9 / STEPS as f64);
    }
    Ok(median(pieces))
}

/// Bytes per second that threads on all given PUs read together, each from `bytes` of its own.
pub(super) fn bandwidth(from: Access<'_>, bytes: usize, time: Duration) -> Result<f64, CliError> {
    let barrier = Barrier::new(from.pus.len());
    let one = |pu: u32| -> Result<f64, CliError> {
        let ready = bind(&[pu]).and_then(|()| memory_on(from.node, bytes));
        // Every thread arrives, also one that failed.
        barrier.wait();
        let words = ready?;
        let (start, mut rates) = (Instant::now(), Vec::new());
        for piece in words.chunks(PIECE_BYTES / WORD).cycle() {
            if rates.len() >= PIECES && start.elapsed() >= time {
                break;
            }
            let begin = Instant::now();
            let mut sums = [0u64; 8];
            for chunk in piece.chunks_exact(8) {
                for (sum, word) in sums.iter_mut().zip(chunk) {
                    *sum = sum.wrapping_add(*word);
                }
            }
            black_box(sums);
            rates.push(size_of_val(piece) as f64 / begin.elapsed().as_secs_f64());
        }
        Ok(median(rates))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = from
            .pus
            .iter()
            .map(|&pu| scope.spawn(move || one(pu)))
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread.join().unwrap_or_else(|_| {
                    Err(CliError::tool("cannot measure bandwidth: a thread ended"))
                })
            })
            .sum()
    })
}

/// Core clock in Hz: the rate of dependent additions and rotations, one cycle each.
pub(super) fn clock(pu: u32, time: Duration) -> Result<f64, CliError> {
    const STEPS: u64 = 1 << 15;
    bind(&[pu])?;
    let mut best = 0.0f64;
    let start = Instant::now();
    while start.elapsed() < time || best == 0.0 {
        let round = Instant::now();
        let mut value = black_box(1u64);
        for step in 0..STEPS {
            value = value.rotate_left(5).wrapping_add(step | 1);
        }
        black_box(value);
        best = best.max(2.0 * STEPS as f64 / round.elapsed().as_secs_f64());
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_chase_reads_every_line_once_and_a_page_at_a_time() {
        let mut words = vec![0; 10 * PAGE / WORD + 3 * 8];
        link_lines(&mut words, 64);
        let lines = words.len() / 8;
        let (mut at, mut visited, mut changes) = (0, vec![false; lines], 0);
        for _ in 0..lines {
            assert!(!std::mem::replace(&mut visited[at / 8], true));
            let next = words[at] as usize;
            changes += usize::from(next / 512 != at / 512);
            at = next;
        }
        assert_eq!(at, 0, "one cycle");
        assert!(changes <= 12, "{changes}");
    }

    #[test]
    fn measurements_are_positive() {
        let pus = numaloc_sys::affinity::get(0).unwrap();
        let from = Access {
            pus: &pus[..1],
            node: None,
            line_bytes: 64,
        };
        let time = Duration::from_millis(1);
        // On a thread of its own, which ends with its affinity.
        std::thread::scope(|scope| {
            let measured = scope.spawn(|| {
                [
                    latency(from, 1 << 16, time),
                    bandwidth(from, 1 << 16, time),
                    clock(pus[0], time),
                ]
            });
            for found in measured.join().unwrap() {
                assert!(found.unwrap() > 0.0);
            }
        });
    }
}
