//! Lines for which threads would contend, summed by the variables in them.
//!
//! The profile has an estimate for each line ([`Profile::contended_lines`]); here lines with the same variables are one
//! row, with what all its threads and one of them would wait for.
//!
//! Cost: O(lines log variables).

use std::collections::BTreeMap;

use numaloc_model::profile::{ContendedLine, Profile};
use numaloc_model::{CodePlace, ObjectIdx};

use crate::sharing::{SharedMemory, variables_at};

/// Lines of one object, or of the same variables of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct ContendedMemory {
    /// What it is; its events are transfers.
    pub memory: SharedMemory,
    /// Most threads that contend for one of the lines.
    pub threads: u32,
    /// Most of them that write.
    pub writers: u32,
    /// Visits of all threads.
    pub visits: u64,
    /// Those by atomic instructions.
    pub atomics: u64,
    /// Transfers of one thread: each line's divided by its threads.
    pub of_thread: f64,
    /// Transfers of the line that has most: one waits for the other.
    pub of_line: u64,
    /// Samples.
    pub samples: u64,
    /// Where most stores are, and most loads.
    pub places: [CodePlace; 2],
    /// Its lines: address divided by the size of a line; most transfers first.
    pub numbers: Vec<u64>,
}

impl ContendedMemory {
    fn of(line: &ContendedLine, variables: Vec<usize>) -> Self {
        Self {
            memory: SharedMemory {
                object: line.object,
                variables,
                lines: 0,
                events: 0,
                false_events: 0,
            },
            threads: 0,
            writers: 0,
            visits: 0,
            atomics: 0,
            of_thread: 0.0,
            of_line: 0,
            samples: 0,
            // Lines come with the most transfers first.
            places: [line.writer.clone(), line.reader.clone()],
            numbers: Vec::new(),
        }
    }

    fn add(&mut self, line: &ContendedLine) {
        self.numbers.push(line.line);
        self.memory.lines += 1;
        self.memory.events += line.transfers;
        self.memory.false_events += line.false_transfers;
        self.threads = self.threads.max(line.threads);
        self.writers = self.writers.max(line.writers);
        self.visits += line.visits;
        self.atomics += line.atomics;
        self.of_thread += line.transfers as f64 / f64::from(line.threads.max(1));
        self.of_line = self.of_line.max(line.transfers);
        self.samples += line.samples;
    }

    /// Seconds that the run takes longer if a transfer takes `transfer_s` and the run without them `run_s`: each thread
    /// waits for its own, and no line can move faster than one transfer after the other.
    #[must_use]
    pub fn cost_s(&self, transfer_s: f64, run_s: f64) -> f64 {
        let own = self.of_thread * transfer_s;
        own.max(self.of_line as f64 * transfer_s - run_s)
    }
}

/// By variables or object, most transfers first, then first in memory.
#[must_use]
pub fn contended(profile: &Profile) -> Vec<ContendedMemory> {
    let mut sums: BTreeMap<(Option<ObjectIdx>, Vec<usize>), ContendedMemory> = BTreeMap::new();
    for line in profile.contended_lines() {
        let variables = variables_at(profile, line.object, line.object_offset);
        sums.entry((line.object, variables.clone()))
            .or_insert_with(|| ContendedMemory::of(line, variables))
            .add(line);
    }
    let mut memory: Vec<ContendedMemory> = sums.into_values().collect();
    memory.sort_by_key(|m| std::cmp::Reverse(m.memory.events));
    memory
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::tests::profile_of;

    #[test]
    fn each_thread_waits_for_its_transfers_and_a_line_for_all() {
        let profile = profile_of(4, 1, &[(0, 0, 1, 100)]);
        let line = |line, threads, transfers| ContendedLine {
            line,
            threads,
            writers: 2,
            visits: 2000,
            transfers,
            samples: 50,
            ..ContendedLine::default()
        };
        let lines = vec![line(1, 4, 1000), line(2, 2, 300)];
        let profile = profile
            .changed(|tables| tables.contended_lines = lines)
            .unwrap();
        let found = contended(&profile);
        assert_eq!(found.len(), 1);
        let all = &found[0];
        assert_eq!(
            (all.memory.lines, all.memory.events, all.of_line),
            (2, 1300, 1000)
        );
        assert_eq!((all.of_thread, all.threads, all.samples), (400.0, 4, 100));
        // A long run hides what others wait for; a short one takes as long as the line.
        assert_eq!(all.cost_s(1e-3, 10.0), 0.4);
        assert_eq!(all.cost_s(1e-3, 0.1), 0.9);
    }
}
