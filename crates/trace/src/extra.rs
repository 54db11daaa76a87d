//! The layers recorded for comparison: `shared_line` (OPT 6.1) and `last_two` (numalize).
//!
//! Both need every access, so a thread that counts them leaves the fast path.
//!
//! * `shared_line`: two threads access one line in one slice; one event for each pair, line and slice. Threads collect
//!   the lines of a slice and the recorder compares the sets: comparing by host time would depend on the order in
//!   which the host ran the threads. Memory: 8 bytes for each line of a slice and thread.
//! * `last_two`: a line remembers its last two accessors; an access counts one event with each of them that is another
//!   thread, then shifts. Undirected, racy like the original, and dependent on the host's scheduling (measured: up to
//!   100-fold).

use std::sync::atomic::Ordering::Relaxed;

use numaloc_model::Layer;

use crate::engine::Engine;
use numaloc_journal::Record;

/// Lines collected before duplicates are dropped.
const CROWDED: usize = 1 << 16;

/// One thread's counts for the extra layers.
pub(crate) struct Extra {
    shared_line: bool,
    last_two: bool,
    lines: Vec<u64>,
    /// Length of `lines` at which duplicates are next dropped.
    compact_at: usize,
    /// Events and bytes by accessor id.
    events: std::collections::BTreeMap<u32, (u64, u64)>,
}

impl Extra {
    /// `None` when no extra layer is recorded.
    pub fn new(layers: &[Layer]) -> Option<Box<Self>> {
        let extra = Self {
            shared_line: layers.contains(&Layer::SharedLine),
            last_two: layers.contains(&Layer::LastTwo),
            lines: Vec::new(),
            compact_at: CROWDED,
            events: std::collections::BTreeMap::new(),
        };
        (extra.shared_line || extra.last_two).then(|| Box::new(extra))
    }

    /// Records one access by the thread with writer id `me`.
    pub fn access(&mut self, engine: &Engine, me: u32, address: u64, size: u32) {
        if self.shared_line {
            let line = address >> engine.config.line_shift;
            if self.lines.last() != Some(&line) {
                self.lines.push(line);
                if self.lines.len() >= self.compact_at {
                    self.compact();
                    self.compact_at = CROWDED.max(2 * self.lines.len());
                }
            }
        }
        if self.last_two
            && let Some(table) = &engine.tables.last_two
        {
            let word = table.word(address);
            let before = word.load(Relaxed);
            for other in [before & 0xffff_ffff, before >> 32] {
                if other != 0 && other != u64::from(me) {
                    let sum = self.events.entry(other as u32).or_default();
                    sum.0 += 1;
                    sum.1 += u64::from(size);
                }
            }
            let after = u64::from(me) | before << 32;
            if after != before {
                word.store(after, Relaxed);
            }
        }
    }

    fn compact(&mut self) {
        self.lines.sort_unstable();
        self.lines.dedup();
    }

    /// Writes the counts of a slice to `out`.
    pub fn flush(&mut self, thread: u32, start: u64, length: u64, out: &mut Vec<u8>) {
        self.compact();
        if !self.lines.is_empty() {
            Record::Lines {
                thread,
                start,
                length,
                lines: std::mem::take(&mut self.lines),
            }
            .encode(out);
            self.compact_at = CROWDED;
        }
        if !self.events.is_empty() {
            Record::Comm {
                thread,
                layer: layer_index(Layer::LastTwo),
                start,
                length,
                cells: std::mem::take(&mut self.events)
                    .into_iter()
                    .map(|(other, (events, bytes))| (other - 1, events, bytes))
                    .collect(),
            }
            .encode(out);
        }
    }
}

/// The index of a layer in journals.
pub(crate) fn layer_index(layer: Layer) -> u8 {
    Layer::ALL
        .iter()
        .position(|&known| known == layer)
        .unwrap_or(0) as u8
}
