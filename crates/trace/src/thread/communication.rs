//! What a thread has received from others since it was last written to the journal.

use std::collections::{BTreeMap, HashMap};

use numaloc_journal::GROUPS;
use numaloc_model::Layer;

use crate::extra::layer_index;

/// Writer ids below this index a table; the others (programs that create thousands of threads) are in a map.
const NEAR: usize = 1024;

/// Communication received from one writer.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub events: u64,
    pub bytes: u64,
    pub false_events: u64,
    pub false_bytes: u64,
}

/// A thread's counts by writer.
#[derive(Default)]
pub(super) struct Communication {
    /// By writer id, below [`NEAR`].
    near: Vec<Received>,
    far: HashMap<u32, Received>,
    /// The writer ids with counts.
    writers: Vec<u32>,
    /// Events by layer and writer id in each part of the sampled lines.
    groups: BTreeMap<(u8, u32), [u64; GROUPS]>,
}

impl Communication {
    /// The counts received from `writer`, which the caller is about to increase.
    pub fn of(&mut self, writer: u32) -> &mut Received {
        let index = writer as usize;
        let cell = if index < NEAR {
            if index >= self.near.len() {
                self.near.resize(index + 1, Received::default());
            }
            &mut self.near[index]
        } else {
            self.far.entry(writer).or_default()
        };
        if cell.events + cell.false_events == 0 {
            self.writers.push(writer);
        }
        cell
    }

    /// The counts received from `writer`, if there are some already and its id is below [`NEAR`].
    #[inline(always)]
    pub fn known(&mut self, writer: u32) -> Option<&mut Received> {
        let cell = self.near.get_mut(writer as usize);
        cell.filter(|cell| cell.events + cell.false_events != 0)
    }

    /// Adds the counts received from one writer, 0 for none. Not for sampled lines, whose events are also counted by
    /// part.
    pub fn add(&mut self, (writer, more): (u32, Received)) {
        if writer != 0 {
            let cell = self.of(writer);
            cell.events += more.events;
            cell.bytes += more.bytes;
        }
    }

    /// Counts an event in a part of the sampled lines.
    pub fn count_part(&mut self, layer: Layer, writer: u32, part: usize) {
        let sums = self.groups.entry((layer_index(layer), writer)).or_default();
        sums[part] += 1;
    }

    /// Whether nothing was received.
    pub fn is_empty(&self) -> bool {
        self.writers.is_empty()
    }

    /// Takes the counts by writer id, ascending.
    pub fn take(&mut self) -> Vec<(u32, Received)> {
        self.writers.sort_unstable();
        let (near, far) = (&mut self.near, &mut self.far);
        let mut take = |writer| match near.get_mut(writer as usize) {
            Some(cell) => std::mem::take(cell),
            None => far.remove(&writer).unwrap_or_default(),
        };
        let writers = self.writers.drain(..);
        writers.map(|writer| (writer, take(writer))).collect()
    }

    /// Takes the events by layer index and writer id in each part of the sampled lines.
    pub fn take_parts(&mut self) -> BTreeMap<(u8, u32), [u64; GROUPS]> {
        std::mem::take(&mut self.groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(events: u64) -> Received {
        Received {
            events,
            bytes: 8 * events,
            ..Received::default()
        }
    }

    #[test]
    fn counts_are_taken_once_by_ascending_writer() {
        let mut communication = Communication::default();
        for writer in [2000, 3, 2000, 1] {
            communication.add((writer, events(1)));
        }
        communication.add((0, events(9)));
        communication.of(3).false_events += 1;
        let mut third = events(1);
        third.false_events = 1;
        assert_eq!(
            communication.take(),
            [(1, events(1)), (3, third), (2000, events(2))]
        );
        assert!(communication.is_empty() && communication.take().is_empty());
        communication.add((3, events(4)));
        assert_eq!(communication.take(), [(3, events(4))]);
    }

    #[test]
    fn parts_of_the_sampled_lines_are_counted_by_layer_and_writer() {
        let mut communication = Communication::default();
        for part in [0, 15, 15] {
            communication.count_part(Layer::WriteRead, 7, part);
        }
        communication.count_part(Layer::FalseSharing, 7, 1);
        let parts = communication.take_parts();
        let counts = parts[&(layer_index(Layer::WriteRead), 7)];
        assert_eq!(
            (counts[0], counts[15], counts.iter().sum::<u64>()),
            (1, 2, 3)
        );
        assert_eq!(parts[&(layer_index(Layer::FalseSharing), 7)][1], 1);
        assert!(communication.take_parts().is_empty());
    }
}
