//! Merges records of several ring buffers in time order and passes them to the collector.

use crate::collect::Collector;
use crate::record::{Event, Layout, kind};

use super::SAMPLE_TYPE;
use super::ring::RawRecord;

/// Records that were read but not yet passed on.
#[derive(Debug)]
pub struct Feed {
    collector: Collector,
    /// Kernel id of each opened event, and its source.
    ids: Vec<(u64, usize)>,
    pending: Vec<(u64, usize, Event)>,
}

impl Feed {
    /// `ids`: the event id in a sample determines its source.
    pub fn new(collector: Collector, ids: Vec<(u64, usize)>) -> Self {
        Self {
            collector,
            ids,
            pending: Vec::new(),
        }
    }

    /// Adds a record of any buffer.
    pub fn record(&mut self, record: RawRecord<'_>) {
        if let Some((source, event)) = parsed(record, &self.ids) {
            self.pending.push((event.time(), source, event));
        }
    }

    /// Counts bytes that are no record as one lost record.
    pub fn record_broken(&mut self) {
        self.pending.push((0, 0, Event::Lost(1)));
    }

    /// Passes on all records older than `time`, oldest first.
    pub fn flush_until(&mut self, time: u64) {
        self.pending.sort_by_key(|&(at, ..)| at);
        let ready = self.pending.partition_point(|&(at, ..)| at < time);
        for (_, source, event) in self.pending.drain(..ready) {
            self.collector.feed(source, event);
        }
    }

    /// The collector with everything passed on so far.
    pub fn into_collector(self) -> Collector {
        self.collector
    }
}

/// The event of a record and the source of a sample, by the ids of the opened events.
pub(super) fn parsed(record: RawRecord<'_>, ids: &[(u64, usize)]) -> Option<(usize, Event)> {
    let layout = Layout {
        sample_type: SAMPLE_TYPE,
        sample_id_all: true,
        big_endian: cfg!(target_endian = "big"),
        ..Layout::default()
    };
    let event = layout.parse(record.kind, record.misc, record.body)?;
    // A sample begins with its event's id.
    let id = record.body.first_chunk::<8>();
    let source = id
        .filter(|_| record.kind == kind::SAMPLE)
        .map(|id| u64::from_ne_bytes(*id))
        .and_then(|id| ids.iter().find(|(known, _)| *known == id))
        .map_or(0, |&(_, source)| source);
    Some((source, event))
}
