//! Time in MPI: sums of the ranks' calls, and how long they waited for each other.
//!
//! Both sides of a message have the same channel (sender, receiver, communicator, tag) and number in it, and all ranks
//! of a collective the same communicator and number, so the times of the sides are compared after the run:
//!
//! | waiting | a call from `b` to `e` waited for |
//! |---|---|
//! | late sender | min(`s`, `e`) - `b`, if the message was sent at `s` > `b` |
//! | late receiver | `r` - `b`, if the receive was posted at `b` < `r` < `e` |
//! | imbalance | min(`l`, `e`) - `b`, if the last rank, or the root that has the data, entered at `l` > `b` |
//!
//! A call that waits for several messages waits for the one for which it waits longest. Ranks leave messages out when
//! there are many ([`Event::level`]); which ones follows from channel and number, so what is left has both sides, and
//! each stands for the others. The same rule limits the memory of this pass.
//!
//! The times of a host's processes are of one clock. Those of different hosts are compared by the messages themselves
//! (`clocks`).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use numaloc_model::profile::{Profile, ProfileError, Thread};
use numaloc_model::{CodePlace, MpiCall, MpiWait, ThreadIdx, WaitKind};

use self::clocks::{Bounds, Clocks, meets};
use super::MergeError;
use crate::rank_file::{self, Block, Event, EventKind, RankFile, Sum};

mod clocks;

/// Most events that are compared, of all ranks together: about 0.3 GB.
pub const EVENTS: usize = 4 << 20;

/// A code address: file, and offset of a return address from where the file is loaded.
pub type Site = (String, u64);

/// Time in MPI of all ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// The calls of each rank, with the place where the program calls.
    pub calls: Vec<(MpiCall, Option<Site>)>,
    /// Which ranks waited for which.
    pub waits: Vec<MpiWait>,
    /// What limits the figures, one sentence each.
    pub notes: Vec<String>,
}

/// Names the addresses of a file.
pub type Naming<'a> = &'a dyn Fn(&str, &BTreeSet<u64>) -> BTreeMap<u64, CodePlace>;

/// A time for which a call waited.
struct Found {
    rank: u32,
    begin: u64,
    row: u32,
    kind: WaitKind,
    other: u32,
    nanoseconds: u64,
    weight: u64,
}

/// An event, its rank and the number of the rank's host.
type Seen = (Event, u32, u32);

impl Times {
    /// Compares the events in the files of the ranks that are `threads`.
    ///
    /// # Errors
    /// [`MergeError`] if a file cannot be read.
    pub fn of(files: &[PathBuf], threads: &[Thread], most: usize) -> Result<Self, MergeError> {
        let mut ranks = Ranks::of(files, threads)?;
        let level = ranks.level(most);
        let mut events = ranks.events(level)?;
        events.sort_by_key(|(event, rank, _)| (event.channel, event.sequence, *rank));
        let is_one =
            |(a, ..): &Seen, (b, ..): &Seen| (a.channel, a.sequence) == (b.channel, b.sequence);
        if ranks.hosts > 1 {
            let mut bounds = Bounds::default();
            for group in events.chunk_by(is_one) {
                bounds.add(group, ranks.meets(group));
            }
            ranks.clocks = bounds.clocks(ranks.hosts);
            for event in &mut events {
                *event = ranks.clocks.aligned(*event);
            }
        }
        let mut found = Vec::new();
        for group in events.chunk_by(is_one) {
            ranks.compare(group, level, &mut found);
        }
        Ok(ranks.times(found))
    }

    /// The profile with these times, their call sites named.
    ///
    /// # Errors
    /// [`ProfileError`] if amounts exceed what a profile holds.
    pub fn into_profile(self, profile: Profile, name: Naming) -> Result<Profile, ProfileError> {
        let mut wanted: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
        for (file, offset) in self.calls.iter().filter_map(|(_, site)| site.as_ref()) {
            wanted.entry(file).or_default().insert(*offset);
        }
        let named: HashMap<&str, BTreeMap<u64, CodePlace>> = wanted
            .into_iter()
            .map(|(file, offsets)| (file, name(file, &offsets)))
            .collect();
        let unnamed = |(file, offset): &Site| CodePlace {
            function: Some(format!(
                "{}+{offset:#x}",
                numaloc_identity::object::base_name(file)
            )),
            source: None,
        };
        let place = |site: &Site| {
            let known = named.get(&*site.0).and_then(|places| places.get(&site.1));
            known
                .filter(|place| place.is_known())
                .cloned()
                .unwrap_or_else(|| unnamed(site))
        };
        let calls: Vec<MpiCall> = self
            .calls
            .iter()
            .map(|(call, site)| MpiCall {
                place: site.as_ref().map(place).unwrap_or_default(),
                ..call.clone()
            })
            .collect();
        profile.changed(|tables| {
            tables.mpi_calls = calls;
            tables.mpi_waits = self.waits;
            tables.meta.notes.extend(self.notes);
        })
    }
}

/// The files of the ranks, and the sums of their calls.
struct Ranks<'a> {
    files: Vec<(&'a PathBuf, u32, u32)>,
    sums: HashMap<u32, Vec<Sum>>,
    waiting: HashMap<(u32, u32), ([u64; 3], u64)>,
    /// Number of events by the highest level at which they are kept.
    kept: [usize; 33],
    highest: u8,
    untracked: u64,
    /// Messages and collectives whose waiting is not known because clocks of hosts are not.
    across: u64,
    /// Number of hosts, and their clocks.
    hosts: usize,
    clocks: Clocks,
}

impl<'a> Ranks<'a> {
    fn of(files: &'a [PathBuf], threads: &[Thread]) -> Result<Self, MergeError> {
        let mut ranks = Self {
            files: Vec::new(),
            sums: HashMap::new(),
            waiting: HashMap::new(),
            kept: [0; 33],
            highest: 0,
            untracked: 0,
            across: 0,
            hosts: 0,
            clocks: Clocks::default(),
        };
        let mut hosts: HashMap<String, u32> = HashMap::new();
        for path in files {
            // Those that are no rank files were reported by the pass before.
            let Ok(mut file) = RankFile::open(path) else {
                continue;
            };
            let header = file.header().clone();
            let thread = threads.get(header.rank as usize);
            if thread.is_none_or(|thread| thread.pid != header.pid) {
                continue;
            }
            let next = hosts.len() as u32;
            let host = *hosts.entry(header.host).or_insert(next);
            ranks.files.push((path, header.rank, host));
            let mut last = rank_file::Times::default();
            while let Some(block) = file.next_block()? {
                match block {
                    Block::Times { times, .. } => last = times,
                    Block::Events(events) => {
                        for event in events {
                            ranks.kept[kept_at(&event) as usize] += 1;
                            ranks.highest = ranks.highest.max(event.level);
                        }
                    }
                    _ => {}
                }
            }
            ranks.untracked += last.untracked;
            ranks.sums.insert(header.rank, last.sums);
        }
        ranks.hosts = hosts.len();
        Ok(ranks)
    }

    /// The lowest level at which at most this number of events is left.
    fn level(&self, most: usize) -> u32 {
        let mut left: usize = self.kept.iter().sum();
        let mut level = 0;
        while left > most && level < 32 {
            left -= self.kept[level];
            level += 1;
        }
        level as u32
    }

    fn events(&mut self, level: u32) -> Result<Vec<Seen>, MergeError> {
        let mut all = Vec::new();
        for &(path, rank, host) in &self.files {
            let mut file = RankFile::open(path)?;
            while let Some(block) = file.next_block()? {
                if let Block::Events(events) = block {
                    let left = events.into_iter().filter(|event| kept_at(event) >= level);
                    all.extend(left.map(|event| (event, rank, host)));
                }
            }
        }
        self.highest = self.highest.max(level as u8);
        Ok(all)
    }

    /// Whether the sides are those of a collective that no rank leaves before all have entered.
    fn meets(&self, group: &[Seen]) -> bool {
        let (event, rank, _) = &group[0];
        let row = self
            .sums
            .get(rank)
            .and_then(|sums| sums.get(event.row as usize));
        event.kind == EventKind::Collective && row.is_some_and(|row| meets(&row.operation))
    }

    /// Finds the waiting of the sides of one message, or of the ranks of one collective.
    fn compare(&mut self, group: &[Seen], level: u32, found: &mut Vec<Found>) {
        let highest = group.iter().map(|(event, ..)| u32::from(event.level)).max();
        let weight = 1 << highest.unwrap_or(0).max(level).min(32);
        if group[0].0.kind == EventKind::Collective {
            self.collective(group, weight, found);
        } else {
            self.message(group, weight, found);
        }
    }

    fn collective(&mut self, group: &[Seen], weight: u64, found: &mut Vec<Found>) {
        let rows = group
            .iter()
            .filter_map(|(event, rank, _)| self.sums.get(rank)?.get(event.row as usize));
        let expected = rows.map(|sum| sum.ranks as usize).max().unwrap_or(0);
        if group.len() < expected.max(2) {
            return;
        }
        if group.iter().any(|(_, _, host)| *host != group[0].2) {
            self.across += weight;
            return;
        }
        let by_time = |seen: &&Seen| (seen.0.posted, Reverse(seen.1));
        let Some(last) = group.iter().max_by_key(by_time) else {
            return;
        };
        for seen in group {
            let root = seen
                .0
                .peer
                .and_then(|root| group.iter().find(|other| other.1 == root));
            let (event, rank, _) = root.unwrap_or(last);
            let wait = event.posted.min(seen.0.end).saturating_sub(seen.0.begin);
            self.add(seen, WaitKind::Imbalance, (*rank, wait), weight, found);
        }
    }

    fn message(&mut self, group: &[Seen], weight: u64, found: &mut Vec<Found>) {
        let first = |kind: EventKind| {
            let of_kind = group.iter().filter(|(event, ..)| event.kind == kind);
            of_kind.min_by_key(|(event, ..)| event.posted)
        };
        let (sent, received) = (first(EventKind::Send), first(EventKind::Receive));
        for seen in group {
            let (event, _, host) = seen;
            let other = match event.kind {
                EventKind::Receive | EventKind::Probe => sent,
                _ => received,
            };
            let Some((partner, rank, of)) = other else {
                continue;
            };
            if of != host {
                self.across += weight;
                continue;
            }
            let (kind, wait) = match event.kind {
                EventKind::Receive | EventKind::Probe => (
                    WaitKind::LateSender,
                    partner.posted.min(event.end).saturating_sub(event.begin),
                ),
                // What was sent before its receive was posted did not wait for it.
                _ if partner.posted >= event.end => (WaitKind::LateReceiver, 0),
                _ => (
                    WaitKind::LateReceiver,
                    partner.posted.saturating_sub(event.begin),
                ),
            };
            self.add(seen, kind, (*rank, wait), weight, found);
        }
    }

    /// Adds what a call waited for another rank.
    fn add(
        &mut self,
        (event, rank, _): &Seen,
        kind: WaitKind,
        (other, nanoseconds): (u32, u64),
        weight: u64,
        found: &mut Vec<Found>,
    ) {
        if event.end == event.begin {
            return;
        }
        self.waiting.entry((*rank, event.row)).or_default().1 += weight;
        if nanoseconds > 0 && other != *rank {
            found.push(Found {
                rank: *rank,
                begin: event.begin,
                row: event.row,
                kind,
                other,
                nanoseconds,
                weight,
            });
        }
    }

    fn times(mut self, mut found: Vec<Found>) -> Times {
        // Of what one call waited for, the longest.
        found.sort_by_key(|wait| (wait.rank, wait.begin, Reverse(wait.nanoseconds), wait.other));
        found.dedup_by_key(|wait| (wait.rank, wait.begin));
        let mut pairs: BTreeMap<(u32, u32, WaitKind), (u64, u64)> = BTreeMap::new();
        for wait in &found {
            let row = self.waiting.entry((wait.rank, wait.row)).or_default();
            let nanoseconds = wait.nanoseconds.saturating_mul(wait.weight);
            let sum = &mut row.0[wait.kind as usize];
            *sum = sum.saturating_add(nanoseconds);
            let pair = pairs.entry((wait.rank, wait.other, wait.kind)).or_default();
            pair.0 += wait.weight;
            pair.1 = pair.1.saturating_add(nanoseconds);
        }
        let mut calls = Vec::new();
        for (rank, sums) in &self.sums {
            for (row, sum) in sums.iter().enumerate() {
                let known = self.waiting.get(&(*rank, row as u32));
                let (waiting, matched) = known.copied().unwrap_or_default();
                calls.push(call(*rank, sum, waiting, matched));
            }
        }
        let waits = pairs
            .into_iter()
            .map(|((rank, other, kind), (calls, nanoseconds))| MpiWait {
                thread: ThreadIdx(rank),
                other: ThreadIdx(other),
                kind,
                calls,
                nanoseconds,
            });
        Times {
            calls,
            waits: waits.collect(),
            notes: self.notes(),
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.highest > 0 {
            notes.push(format!(
                "waiting in MPI calls is estimated from a sample: at the end of the run, one message in {} was kept",
                1u64 << self.highest
            ));
        }
        if self.untracked > 0 {
            notes.push(format!(
                "{} MPI messages and requests had no room in the tracer: their waiting is not known",
                self.untracked
            ));
        }
        if self.hosts > 1 && self.clocks.error > 0 {
            notes.push(format!(
                "clocks of {} hosts were compared by the messages between them, to within {} ns: waiting for ranks of other \
                 hosts has that error",
                self.clocks.offsets.iter().flatten().count(),
                self.clocks.error
            ));
        }
        if self.across > 0 {
            notes.push(format!(
                "of {} MPI messages and collectives between hosts the waiting is not known: no messages in both directions \
                 compare the clocks of their hosts",
                self.across
            ));
        }
        notes
    }
}

/// The row of the profile; an estimate of the waiting is at most the time of the calls.
fn call(rank: u32, sum: &Sum, waiting: [u64; 3], matched: u64) -> (MpiCall, Option<Site>) {
    let all = waiting
        .iter()
        .fold(0, |sum: u64, part| sum.saturating_add(*part));
    let at_most = |part: u64| {
        if all <= sum.nanoseconds {
            return part;
        }
        (u128::from(part) * u128::from(sum.nanoseconds) / u128::from(all)) as u64
    };
    let call = MpiCall {
        thread: ThreadIdx(rank),
        operation: match sum.operation.as_str() {
            "" => "other".to_owned(),
            name => name.to_owned(),
        },
        ranks: sum.ranks,
        place: CodePlace::default(),
        most_bytes: match sum.size_class {
            0 => 0,
            64.. => u64::MAX,
            bits => (1 << bits) - 1,
        },
        calls: sum.calls,
        bytes: sum.bytes,
        nanoseconds: sum.nanoseconds,
        waiting: waiting.map(at_most),
        partners: sum.partners,
        matched: matched.min(sum.partners),
    };
    (call, sum.site.clone())
}

/// The highest level at which an event is kept, as in `shims/mpi/timing.c`.
fn kept_at(event: &Event) -> u32 {
    mixed(event.channel.wrapping_add(u64::from(event.sequence)))
        .trailing_zeros()
        .min(32)
}

fn mixed(value: u64) -> u64 {
    let value = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    value ^ value >> 32
}

#[cfg(test)]
mod tests;
