//! Models the private caches of a core: a set-associative LRU filter per vCPU, kept coherent by
//! one directory word per line.
//!
//! A real L1/L2 pair serves most accesses; only its misses reach a memory controller, and those are
//! what the lab counts. The filter models one level of private cache, inclusive, with LRU in each set.
//! Coherence is reduced to what decides hit or miss: a line that another vCPU has written since it was
//! fetched is a miss. The directory holds, for each line, a version (incremented when the writer changes) and
//! the current writer; a cached line is valid only while its version equals the directory's. Fetches of a line
//! that is dirty in another cache count as accesses to the line's home node, where the request goes first.
//! Not modelled: write-backs, instruction fetches, prefetching, shared last-level caches.
//!
//! Versions have 24 bits: a line whose version increased by an exact multiple of 16 M in between is taken
//! for a hit. Directory words are read and written without locking: if two vCPUs write one line at the
//! same time, one of the two transfers may not be counted, as on a machine that merges them.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use numaloc_cache_model::Cache;

const LINE_BITS: u32 = 6;
const VERSION_BITS: u32 = 24;
const VERSION: u32 = (1 << VERSION_BITS) - 1;

/// Bytes of a cache line.
pub const LINE_BYTES: u64 = 1 << LINE_BITS;

/// The last writer of each line of the guest's memory, and a count of writer changes.
pub struct Directory {
    words: Vec<AtomicU32>,
}

impl Directory {
    /// A directory for `bytes` of memory: one word of 4 bytes per line. Untouched lines take no memory.
    pub fn new(bytes: u64) -> Self {
        let lines = (bytes >> LINE_BITS) as usize;
        let zeroed = std::mem::ManuallyDrop::new(vec![0_u32; lines]);
        // SAFETY: AtomicU32 has the size, alignment and bit validity of u32, and the vector is converted
        // as a whole. Building it element by element would touch every page of a table meant to stay sparse.
        let words = unsafe {
            Vec::from_raw_parts(
                zeroed.as_ptr().cast::<AtomicU32>().cast_mut(),
                lines,
                zeroed.capacity(),
            )
        };
        Self { words }
    }

    /// Records that `cpu` (below 255) reads or writes `line`.
    fn touch(&self, line: u64, cpu: u32, store: bool) -> Touched {
        let word = &self.words[line as usize];
        let now = word.load(Relaxed);
        let (version, writer) = (now & VERSION, now >> VERSION_BITS);
        let me = cpu + 1;
        let mut touched = Touched {
            before: version,
            after: version,
            dirty_in: None,
        };
        if writer == me {
            return touched;
        }
        touched.dirty_in = writer.checked_sub(1);
        if store {
            touched.after = (version + 1) & VERSION;
            word.store(me << VERSION_BITS | touched.after, Relaxed);
        } else if writer != 0 {
            // Now shared: the writer's next store invalidates our copy.
            word.store(version, Relaxed);
        }
        touched
    }
}

/// What an access did to its line.
struct Touched {
    /// The line's version before the access, and the one that the CPU now sees.
    before: u32,
    after: u32,
    /// The other CPU that wrote it last, if no CPU has read it since.
    dirty_in: Option<u32>,
}

/// What served an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// The private cache of its own CPU.
    Own,
    /// The same, but for a store that takes the line from the caches that have read it. No data moves; the request
    /// leaves the private cache.
    Upgrade,
    /// The private cache of another CPU, which wrote the line last. (It may have left that cache meanwhile: write-backs
    /// are not modelled.)
    Other(u32),
    /// Memory.
    Memory,
}

/// The private cache of one vCPU; values are the versions of lines. `None`: every access is a miss.
pub struct Filter(Option<Cache<u32>>);

impl Served {
    /// Whether no data comes from outside the private cache.
    pub fn is_hit(self) -> bool {
        matches!(self, Self::Own | Self::Upgrade)
    }
}

impl Filter {
    /// A cache of at most `bytes` (rounded down to a power of two of sets); with 0 bytes every access is a
    /// miss.
    pub fn new(bytes: u64, associativity: usize) -> Self {
        let sets = bytes / LINE_BYTES / associativity as u64;
        Self((sets > 0).then(|| Cache::new(1 << sets.ilog2(), associativity as u64)))
    }

    /// One access of `cpu` to `line`.
    pub fn access(&mut self, directory: &Directory, line: u64, cpu: u32, store: bool) -> Served {
        let Some(cache) = &mut self.0 else {
            return Served::Memory;
        };
        let touched = directory.touch(line, cpu, store);
        let place = cache.place(line);
        let found = cache.newest(place).or_else(|| cache.find(place));
        let hit = found.is_some_and(|slot| cache[slot] == touched.before);
        let slot = found.unwrap_or_else(|| cache.insert(place).0);
        cache[slot] = touched.after;
        match touched.dirty_in {
            _ if hit && touched.after != touched.before => Served::Upgrade,
            _ if hit => Served::Own,
            Some(other) => Served::Other(other),
            None => Served::Memory,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn machine(cpus: usize) -> (Directory, Vec<Filter>) {
        let filters = (0..cpus).map(|_| Filter::new(4096, 4)).collect();
        (Directory::new(1 << 20), filters)
    }

    #[test]
    fn second_access_hits_and_the_least_recent_line_leaves() {
        // 4096 B, 4 ways: 16 sets; lines 0, 16, 32, 48, 64 share set 0.
        let (directory, mut filters) = machine(1);
        let mut read = |line| filters[0].access(&directory, line, 0, false) == Served::Own;
        assert!(![0, 16, 32, 48].map(&mut read).contains(&true));
        assert!(read(0)); // 0 is now the most recent, 16 the least
        assert!(!read(64)); // pushes 16 out
        assert_eq!([0, 32, 48, 64].map(&mut read), [true; 4]);
        assert!(!read(16));
    }

    #[test]
    fn a_line_written_by_another_is_a_miss_once() {
        let (directory, mut filters) = machine(2);
        let mut access = |cpu: usize, store| filters[cpu].access(&directory, 5, cpu as u32, store);
        assert_eq!(access(0, true), Served::Memory);
        assert_eq!(access(1, false), Served::Other(0));
        assert_eq!(access(1, false), Served::Own);
        assert_eq!(access(0, true), Served::Upgrade); // 0 still has it: an upgrade moves no data
        assert_eq!(access(1, false), Served::Other(0)); // stale
        assert_eq!(access(0, false), Served::Own); // shared reading costs nothing more
        assert_eq!(access(1, false), Served::Own);
    }

    #[test]
    fn ping_pong_misses_every_time_after_the_first() {
        let (directory, mut filters) = machine(2);
        let misses = (0..20)
            .filter(|i| filters[i % 2].access(&directory, 9, (i % 2) as u32, true) != Served::Own)
            .count();
        assert_eq!(misses, 20);
    }

    #[test]
    fn without_a_cache_all_accesses_miss() {
        let directory = Directory::new(4096);
        let mut none = Filter::new(0, 8);
        assert!((0..10).all(|_| none.access(&directory, 1, 0, false) == Served::Memory));
    }

    proptest! {
        /// For a single vCPU, hits are exactly those of a plain LRU stack per set.
        #[test]
        fn equals_a_plain_lru(lines in proptest::collection::vec((0u64..100, any::<bool>()), 1..400)) {
            let (directory, mut filters) = machine(1);
            let mut stacks = vec![Vec::new(); 16];
            for (line, store) in lines {
                let stack: &mut Vec<u64> = &mut stacks[(line % 16) as usize];
                let depth = stack.iter().position(|&other| other == line);
                if let Some(depth) = depth { stack.remove(depth); }
                stack.insert(0, line);
                stack.truncate(4);
                let hit = filters[0].access(&directory, line, 0, store).is_hit();
                prop_assert_eq!(hit, depth.is_some());
            }
        }
    }
}
