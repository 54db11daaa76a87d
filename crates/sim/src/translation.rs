//! Address translation: a TLB for each core, and walks through page tables.
//!
//! A core keeps the translations of the pages that it used last ([`crate::Parameters::tlb`]: those of the second level;
//! the first one, of some 64 entries, costs a few cycles that `cycles_per_access` contains). For another page it walks
//! through the page table, whose radix tree has 512 entries a level, 8 bytes each. So a line of the lowest level has
//! the entries of eight neighbouring pages, and an entry above leads to 512 pages, whatever their size:
//!
//! - The entry above is in the walk cache of the core ([`ABOVE`] entries), or costs one access to a private cache. The
//!   levels further up always are.
//! - The line with the page's entry is among the last [`NEAR`] that the core has used (its private caches), among the
//!   last of its last-level cache (a [`SHARED`]th of its lines), or in memory on the page's node.
//!
//! A core walks [`WALKERS`] times at once; further misses wait. Lines of page tables take no bandwidth and displace no
//! data, and the trace has no hits in the private caches of the recording, which would keep pages in the TLB: so walks
//! are an upper bound for programs whose private caches hold lines of many pages.

use crate::cache::{Cache, Replacement, Shape};
use crate::line::Line;
use crate::machine::{Machine, Place};
use crate::outcome::Walks;

/// log2 of the entries in a line of a page table, and of those in a table.
const LINE_SHIFT: u32 = 3;
const TABLE_SHIFT: u32 = 9;
/// Entries of a core's walk cache. A preset: Skylake's cores have about 32 for the level above the lowest.
const ABOVE: u64 = 32;
/// Lines of page tables in the private caches of a core. A preset: a sixteenth of 256 KiB.
const NEAR: u64 = 256;
/// Part of the lines of a last-level cache that page tables have. A preset.
const SHARED: u64 = 16;
/// Walks of a core under way at once: two since Broadwell.
const WALKERS: usize = 2;
const WAYS: u64 = 8;

/// The TLBs of all cores, and what their walks find in caches.
pub(crate) struct Translation {
    /// By page: the line of the page table with its entry, and the entry above, both numbered densely.
    tables: Vec<(u32, u32)>,
    /// By core.
    tlbs: Vec<Cache>,
    above: Vec<Cache>,
    near: Vec<Cache>,
    /// By last-level cache.
    shared: Vec<Cache>,
    /// By core: when each walker is free.
    walkers: Vec<[u64; WALKERS]>,
    walks: Walks,
}

impl Translation {
    /// Empty TLBs of the shape that the machine's parameters have, for pages with these numbers; `None` without a
    /// shape.
    pub(crate) fn new(machine: &Machine, pages: &[u64]) -> Option<Self> {
        let tlb = machine.parameters.tlb?;
        let tables = numbered(pages);
        let cores = machine.core_node.len();
        let all = |count: usize, lines: u64, ways: u64, of: usize| -> Vec<Cache> {
            let shape = Shape {
                lines,
                ways: ways.min(lines),
            };
            (0..count)
                .map(|_| Cache::new(shape, Replacement::Lru, of))
                .collect()
        };
        let shared = (machine.llc.lines / SHARED).max(1);
        Some(Self {
            tlbs: all(cores, tlb.lines, tlb.ways, pages.len()),
            above: all(cores, ABOVE, ABOVE, pages.len()),
            near: all(cores, NEAR, WAYS, pages.len()),
            shared: all(machine.groups, shared, WAYS, pages.len()),
            walkers: vec![[0; WALKERS]; cores],
            walks: Walks::default(),
            tables,
        })
    }

    /// Whether a core has the translation of a page, which it has from now on.
    #[inline(always)]
    pub(crate) fn has(&mut self, at: Place, page: usize) -> bool {
        let tlb = &mut self.tlbs[at.core as usize];
        found(tlb, page as u32)
    }

    /// How long a core walks for a page on node `home`.
    #[cold]
    pub(crate) fn walk(&mut self, machine: &Machine, at: Place, page: usize, home: usize) -> u64 {
        let (line, above) = self.tables[page];
        let core = at.core as usize;
        let further = match found(&mut self.above[core], above) {
            true => 0,
            false => machine.private_latency,
        };
        let near = found(&mut self.near[core], line);
        let shared = found(&mut self.shared[at.group as usize], line);
        let time = further
            + match (near, shared) {
                (true, _) => machine.private_latency,
                (false, true) => machine.llc_latency,
                (false, false) => machine.idle_latency(at.node as usize, home),
            };
        self.walks.count += 1;
        self.walks.time += time;
        time
    }

    /// When a walk of a core that takes this `time` ends, if it is asked for at `now`.
    pub(crate) fn wait(&mut self, at: Place, now: u64, time: u64) -> u64 {
        let walkers = &mut self.walkers[at.core as usize];
        let free = usize::from(walkers[1] < walkers[0]);
        let begin = now.max(walkers[free]);
        walkers[free] = begin + time;
        self.walks.time += begin - now;
        begin + time
    }

    /// What has been walked so far.
    pub(crate) fn walks(&self) -> Walks {
        self.walks
    }
}

/// Whether a cache has a number, which it has from now on.
#[inline(always)]
fn found(cache: &mut Cache, number: u32) -> bool {
    let line = Line::new(number, false);
    let found = cache.touch(line);
    if !found {
        cache.put_absent(line, false);
    }
    found
}

/// Dense numbers of the table lines and of the entries above, of pages in ascending order.
fn numbered(pages: &[u64]) -> Vec<(u32, u32)> {
    let mut last: Option<u64> = None;
    let (mut line, mut above) = (0, 0);
    let number = |&page: &u64| {
        if let Some(last) = last.replace(page) {
            line += u32::from(last >> LINE_SHIFT != page >> LINE_SHIFT);
            above += u32::from(last >> TABLE_SHIFT != page >> TABLE_SHIFT);
        }
        (line, above)
    };
    pages.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_pages_share_a_line_and_512_an_entry_above() {
        let pages = [0, 7, 8, 511, 512, 4096];
        assert_eq!(
            numbered(&pages),
            [(0, 0), (0, 0), (1, 0), (2, 0), (3, 1), (4, 2)]
        );
    }
}
