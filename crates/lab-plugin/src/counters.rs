//! Counts accesses per vCPU and memory node, and their growth over time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of slices kept; when they are full, neighbours are merged and the interval doubles.
pub const MAX_SLICES: usize = 256;

/// Four counts of one vCPU for one memory node.
#[derive(Default)]
pub struct Cell {
    loads: AtomicU64,
    stores: AtomicU64,
    fetched_loads: AtomicU64,
    fetched_stores: AtomicU64,
}

fn bump(counter: &AtomicU64) {
    // There is one writer (the vCPU's own thread), so no read-modify-write is needed.
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}

impl Cell {
    /// Counts one access; `hit`: the private cache served it.
    pub fn count(&self, store: bool, hit: bool) {
        bump(if store { &self.stores } else { &self.loads });
        if !hit {
            bump(if store {
                &self.fetched_stores
            } else {
                &self.fetched_loads
            });
        }
    }

    fn fetches(&self) -> u64 {
        self.fetched_loads.load(Relaxed) + self.fetched_stores.load(Relaxed)
    }

    fn clear(&self) {
        for counter in [
            &self.loads,
            &self.stores,
            &self.fetched_loads,
            &self.fetched_stores,
        ] {
            counter.store(0, Relaxed);
        }
    }
}

/// vCPUs x nodes.
pub struct Counters {
    cells: Vec<Cell>,
    nodes: usize,
}

impl Counters {
    /// Counters that are all zero.
    pub fn new(vcpus: usize, nodes: usize) -> Self {
        let cells = (0..vcpus * nodes).map(|_| Cell::default()).collect();
        Self { cells, nodes }
    }

    /// The counts of `vcpu` on `node`.
    pub fn cell(&self, vcpu: usize, node: usize) -> &Cell {
        &self.cells[vcpu * self.nodes + node]
    }

    /// Resets all counters.
    pub fn clear(&self) {
        self.cells.iter().for_each(Cell::clear);
    }

    /// Accesses below the private caches so far, vCPU by vCPU, node by node.
    pub fn fetches(&self) -> Vec<u64> {
        self.cells.iter().map(Cell::fetches).collect()
    }

    /// One line per vCPU and kind: `KIND VCPU count-on-node-0 count-on-node-1 ...`.
    pub fn write(&self, out: &mut String) {
        type Pick = fn(&Cell) -> &AtomicU64;
        let kinds: [(&str, Pick); 4] = [
            ("loads", |cell| &cell.loads),
            ("stores", |cell| &cell.stores),
            ("fetched-loads", |cell| &cell.fetched_loads),
            ("fetched-stores", |cell| &cell.fetched_stores),
        ];
        for (name, pick) in kinds {
            for (vcpu, row) in self.cells.chunks(self.nodes).enumerate() {
                *out += &format!("{name} {vcpu}");
                for cell in row {
                    *out += &format!(" {}", pick(cell).load(Relaxed));
                }
                out.push('\n');
            }
        }
    }
}

/// Growth of [`Counters::fetches`] per interval.
#[derive(Default)]
pub struct Slices {
    ends_s: Vec<f64>,
    counts: Vec<Vec<u64>>,
    last: Vec<u64>,
}

impl Slices {
    /// Ends a slice at `end_s` seconds with the counts so far. Returns true if slices were merged and the caller
    /// must double its interval.
    pub fn push(&mut self, end_s: f64, so_far: Vec<u64>) -> bool {
        let grown = so_far
            .iter()
            .enumerate()
            .map(|(at, now)| now - self.last.get(at).copied().unwrap_or(0))
            .collect();
        self.last = so_far;
        self.ends_s.push(end_s);
        self.counts.push(grown);
        if self.counts.len() < MAX_SLICES {
            return false;
        }
        self.ends_s = self
            .ends_s
            .chunks(2)
            .map(|pair| pair[pair.len() - 1])
            .collect();
        self.counts = self
            .counts
            .chunks(2)
            .map(|pair| {
                (0..pair[0].len())
                    .map(|at| pair.iter().map(|slice| slice[at]).sum())
                    .collect()
            })
            .collect();
        true
    }

    /// One line per slice: `slice END_SECONDS counts...`, in the order of [`Counters::fetches`].
    pub fn write(&self, out: &mut String) {
        for (end, counts) in self.ends_s.iter().zip(&self.counts) {
            *out += &format!("slice {end:.6}");
            for count in counts {
                *out += &format!(" {count}");
            }
            out.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_written_by_vcpu_and_node() {
        let counters = Counters::new(2, 2);
        counters.cell(0, 1).count(false, false);
        counters.cell(0, 1).count(false, true);
        counters.cell(1, 0).count(true, false);
        let mut out = String::new();
        counters.write(&mut out);
        assert_eq!(
            out,
            "loads 0 0 2\nloads 1 0 0\nstores 0 0 0\nstores 1 1 0\n\
             fetched-loads 0 0 1\nfetched-loads 1 0 0\nfetched-stores 0 0 0\nfetched-stores 1 1 0\n"
        );
    }

    #[test]
    fn merged_slices_keep_all_counts() {
        let mut slices = Slices::default();
        let merged = (1..=1000)
            .filter(|&i| slices.push(i as f64, vec![3 * i, i]))
            .count();
        assert!(merged >= 6 && slices.counts.len() < MAX_SLICES);
        let sum = |at: usize| slices.counts.iter().map(|slice| slice[at]).sum::<u64>();
        assert_eq!((sum(0), sum(1)), (3000, 1000));
        assert_eq!(slices.ends_s.last(), Some(&1000.0));
    }
}
