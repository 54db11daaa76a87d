//! The second pass over rank files: their messages by slice and pair.

use std::collections::BTreeMap;
use std::path::Path;

use numaloc_model::comm::Layer;
use numaloc_model::profile::{CommRow, CommSums};
use numaloc_model::{SliceIdx, ThreadIdx};

use super::MergeError;
use crate::rank_file::{Block, Entry, Kind, RankFile};

/// Limits of the sums of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Ranks of the world.
    pub size: u32,
    /// End of the run.
    pub end: u64,
    /// Largest number of rows.
    pub rows: usize,
}

/// Messages of some ranks.
///
/// The slices of the whole are the shortest ones that keep within the rows, however the ranks are shared and in
/// whatever order they are added: a part that has too many rows shows that the whole has.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    pub rows: CommSums,
    /// Length of a slice of `rows`.
    pub slice_ns: u64,
    /// Whether messages inside collectives are modelled.
    pub modelled: bool,
    /// Number and bytes of messages of ranks to themselves.
    pub to_self: (u64, u64),
}

/// Largest number of pairs in [`Current`], but for those of a block.
const MOST_AT_ONCE: usize = 1 << 16;

/// Sums of one slice, before they are added to those of all.
type Current = BTreeMap<(Layer, u32, u32), (u64, u64)>;

impl Sums {
    pub fn new(slice_ns: u64) -> Self {
        Self {
            rows: CommSums::default(),
            slice_ns,
            modelled: false,
            to_self: (0, 0),
        }
    }

    /// Adds the messages of a rank's file.
    pub fn add_file(&mut self, path: &Path, rank: u32, limits: &Limits) -> Result<(), MergeError> {
        let mut file = RankFile::open(path)?;
        // Blocks are shorter than slices: most follow another one of their slice.
        let (mut current, mut slice) = (Current::new(), 0);
        while let Some(block) = file.next_block()? {
            let Block::Slice {
                start_ns, entries, ..
            } = block
            else {
                continue;
            };
            let at = start_ns / self.slice_ns;
            if at != slice || current.len() > MOST_AT_ONCE {
                let shortest = self.slice_ns;
                self.flush(&mut current, slice, limits);
                slice = at / (self.slice_ns / shortest);
            }
            for entry in entries {
                if entry.peer >= limits.size {
                    return Err(MergeError::Peer {
                        path: path.to_owned(),
                        rank,
                        peer: entry.peer,
                        size: limits.size,
                    });
                }
                self.add_entry(&mut current, rank, &entry);
            }
        }
        self.flush(&mut current, slice, limits);
        Ok(())
    }

    fn add_entry(&mut self, current: &mut Current, rank: u32, entry: &Entry) {
        let (layer, src, dst) = match entry.kind {
            Kind::PointToPoint | Kind::Persistent | Kind::Put => (Layer::Message, rank, entry.peer),
            Kind::Get => (Layer::Message, entry.peer, rank),
            Kind::Collective | Kind::Started | Kind::Modelled => {
                (Layer::Collective, rank, entry.peer)
            }
            Kind::Operation => return,
        };
        self.modelled |= entry.kind == Kind::Modelled;
        // A rank's messages to itself move no data between places.
        if src == dst {
            add(&mut self.to_self, (entry.events, entry.bytes));
            return;
        }
        let sum = current.entry((layer, src, dst)).or_default();
        add(sum, (entry.events, entry.bytes));
    }

    /// Adds the sums of one slice.
    fn flush(&mut self, current: &mut Current, slice: u64, limits: &Limits) {
        for ((layer, src, dst), (events, bytes)) in std::mem::take(current) {
            self.rows.add(CommRow {
                slice: SliceIdx(slice as u32),
                src: ThreadIdx(src),
                dst: ThreadIdx(dst),
                layer,
                events,
                bytes,
            });
        }
        self.fit(limits);
    }

    /// Merges neighbouring slices until the limit of rows holds.
    fn fit(&mut self, limits: &Limits) {
        while self.rows.len() > limits.rows && limits.end > self.slice_ns {
            self.halve();
        }
    }

    fn halve(&mut self) {
        self.rows = std::mem::take(&mut self.rows).halved();
        self.slice_ns *= 2;
    }

    /// Merges neighbouring slices until they have at least this length, which is a power of two times theirs or less.
    pub fn lengthen(&mut self, slice_ns: u64) {
        while self.slice_ns < slice_ns {
            self.halve();
        }
    }

    /// Adds rows of other ranks, with slices of `slice_ns`, which are not longer than these.
    pub fn add_rows(
        &mut self,
        rows: impl Iterator<Item = CommRow>,
        slice_ns: u64,
        limits: &Limits,
    ) {
        let times = (self.slice_ns / slice_ns).max(1);
        for row in rows {
            self.rows.add(CommRow {
                slice: SliceIdx((u64::from(row.slice.0) / times) as u32),
                ..row
            });
        }
        self.fit(limits);
    }

    /// Adds what is not in rows.
    pub fn add_rest(&mut self, modelled: bool, to_self: (u64, u64)) {
        self.modelled |= modelled;
        add(&mut self.to_self, to_self);
    }

    /// Notes about messages that are modelled or left out.
    pub fn omissions(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.modelled {
            notes.push(
                "collective messages are modelled: decomposed by the standard algorithm for their size, \
                 because this MPI library does not tell which messages it sends"
                    .to_owned(),
            );
        }
        let (messages, bytes) = self.to_self;
        if messages > 0 {
            notes.push(format!(
                "{messages} messages of ranks to themselves, {bytes} bytes together, are left out: they move no data between places"
            ));
        }
        notes
    }
}

/// Adds an amount; sums saturate.
fn add(sum: &mut (u64, u64), amount: (u64, u64)) {
    sum.0 = sum.0.saturating_add(amount.0);
    sum.1 = sum.1.saturating_add(amount.1);
}
