//! Threads, memory and time: what all kernels share.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, OnceLock};
use std::time::Instant;

/// What a kernel is run with.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    /// Number of threads, the main thread included; at least 1.
    pub threads: usize,
    /// Bytes of all memory; kernels that need little take less.
    pub bytes: usize,
    /// Number of iterations, each of which ends at a barrier.
    pub iterations: usize,
    /// The number of the node on which the calling thread runs.
    pub node: &'a (dyn Fn() -> u32 + Sync),
}

/// Memory of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its address.
    pub address: usize,
    /// Its length.
    pub bytes: usize,
}

/// How often a thread accesses a block in the whole run, evenly over its words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Use {
    /// The thread, 0 is the main thread.
    pub thread: usize,
    /// Index of the block.
    pub block: usize,
    /// Loads and stores of 8 bytes.
    pub accesses: f64,
}

/// What a run of a kernel did. The memory exists until this is dropped.
pub struct Outcome {
    /// Seconds in which memory was initialised and threads were started.
    pub initial_s: f64,
    /// Seconds of all iterations.
    pub iterations_s: f64,
    /// By thread: on which node it ran, and at how many of its iterations.
    pub nodes: Vec<BTreeMap<u32, u64>>,
    /// Which thread accesses which block; empty if the kernel's memory stays in private caches.
    pub uses: Vec<Use>,
    memory: Vec<OnceLock<Words>>,
}

/// Words that all threads may access.
pub(crate) type Words = Vec<AtomicU64>;

impl Outcome {
    /// Where the memory is.
    #[must_use]
    pub fn blocks(&self) -> Vec<Block> {
        let of = |words: &Words| Block {
            address: words.as_ptr() as usize,
            bytes: size_of_val(&words[..]),
        };
        self.memory
            .iter()
            .map(|words| of(words.get_or_init(Vec::new)))
            .collect()
    }
}

/// Who touches a block first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The main thread, before it starts the others.
    Main,
    /// This thread, when it begins.
    Thread(usize),
}

/// A kernel's memory and work.
pub(crate) struct Program<S> {
    /// Words and owner of each block.
    pub blocks: Vec<(usize, Owner)>,
    /// Blocks that a thread accesses, and how often in one iteration.
    pub uses: fn(&Team<'_>, usize) -> Vec<(usize, f64)>,
    /// One iteration of a thread.
    pub step: S,
}

/// The threads and their memory, as a kernel's step sees them.
pub(crate) struct Team<'a> {
    /// Number of threads.
    pub threads: usize,
    /// Number of iterations.
    pub iterations: usize,
    blocks: &'a [(usize, Owner)],
    memory: &'a [OnceLock<Words>],
}

impl Team<'_> {
    /// A block's words; none before its owner has initialised it.
    pub fn words(&self, block: usize) -> &[AtomicU64] {
        self.memory[block].get().map_or(&[], |words| words)
    }

    /// The number of a block's words.
    pub fn length(&self, block: usize) -> usize {
        self.blocks[block].0
    }

    fn initialise(&self, owner: Owner) {
        for (at, &(words, of)) in self.blocks.iter().enumerate() {
            if of == owner {
                let values = (0..words).map(|word| AtomicU64::new(word as u64));
                let _ = self.memory[at].set(values.collect());
            }
        }
    }
}

/// Runs a kernel. The main thread is thread 0.
pub(crate) fn run<S>(work: &Work<'_>, program: Program<S>) -> Outcome
where
    S: Fn(&Team<'_>, usize, usize) -> u64 + Sync,
{
    let start = Instant::now();
    let memory: Vec<OnceLock<Words>> = program.blocks.iter().map(|_| OnceLock::new()).collect();
    let team = Team {
        threads: work.threads,
        iterations: work.iterations,
        blocks: &program.blocks,
        memory: &memory,
    };
    team.initialise(Owner::Main);
    let barrier = Barrier::new(work.threads);
    let one = |thread: usize| {
        team.initialise(Owner::Thread(thread));
        barrier.wait();
        let begin = Instant::now();
        let (mut nodes, mut sum) = (BTreeMap::new(), 0u64);
        for iteration in 0..work.iterations {
            *nodes.entry((work.node)()).or_insert(0) += 1;
            sum = sum.wrapping_add((program.step)(&team, thread, iteration));
            barrier.wait();
        }
        black_box(sum);
        (nodes, begin, Instant::now())
    };
    let (nodes, begin, end) = std::thread::scope(|scope| {
        let others: Vec<_> = (1..work.threads)
            .map(|thread| scope.spawn(move || one(thread).0))
            .collect();
        let (own, begin, end) = one(0);
        let others = others
            .into_iter()
            .map(|other| other.join().unwrap_or_default());
        let nodes: Vec<_> = std::iter::once(own).chain(others).collect();
        (nodes, begin, end)
    });
    let of = |thread: usize| {
        let uses = (program.uses)(&team, thread).into_iter();
        uses.map(move |(block, accesses)| Use {
            thread,
            block,
            accesses: accesses * work.iterations as f64,
        })
    };
    let uses = (0..work.threads).flat_map(of).collect();
    Outcome {
        initial_s: (begin - start).as_secs_f64(),
        iterations_s: (end - begin).as_secs_f64(),
        nodes,
        uses,
        memory,
    }
}

/// Reads every word; their sum.
pub(crate) fn sum(words: &[AtomicU64]) -> u64 {
    words
        .iter()
        .fold(0, |sum: u64, word| sum.wrapping_add(word.load(Relaxed)))
}
