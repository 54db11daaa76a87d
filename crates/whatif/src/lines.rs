//! The time that threads would wait for contended lines, under changes of those lines.
//!
//! A recording runs threads for slices of time, so that a trace has few of the transfers that threads running at once
//! would cause; the profile estimates these from samples
//! ([`contended`](numaloc_analysis::contended::contended)), and they are added to the simulated time.

use numaloc_analysis::contended::ContendedMemory;

use crate::change::{BATCH, Change};

/// Share of the transfers of memory number `at` that is left under the changes.
fn left(memory: &ContendedMemory, at: usize, changes: &[Change]) -> f64 {
    let of = |change: &Change| match *change {
        Change::Separate(lines) if lines == at => 1.0 - memory.memory.false_share(),
        Change::PerThread(lines) if lines == at => 0.0,
        Change::Batch(lines) | Change::Chunk(lines) if lines == at => 1.0 / BATCH as f64,
        _ => 1.0,
    };
    changes.iter().map(of).product()
}

/// Seconds that a run of `run_s` takes longer because of transfers of `transfer_s` each: threads wait for one memory
/// after the other, and no line moves faster than one transfer after the other.
#[must_use]
pub fn waiting_s(
    memory: &[ContendedMemory],
    changes: &[Change],
    transfer_s: f64,
    run_s: f64,
) -> f64 {
    let mut own = 0.0;
    let mut longest = 0.0f64;
    for (at, one) in memory.iter().enumerate() {
        let transfer_s = transfer_s * left(one, at, changes);
        own += one.of_thread * transfer_s;
        longest = longest.max(one.of_line * transfer_s - run_s);
    }
    longest.max(own)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use numaloc_analysis::sharing::SharedMemory;

    pub(crate) fn memory(numbers: Vec<u64>) -> ContendedMemory {
        ContendedMemory {
            numbers,
            ..contended(1000, 0)
        }
    }

    fn contended(events: u64, false_events: u64) -> ContendedMemory {
        ContendedMemory {
            memory: SharedMemory {
                object: None,
                variables: Vec::new(),
                lines: 1,
                events,
                false_events,
            },
            threads: 4,
            writers: 4,
            visits: 2 * events,
            atomics: 0,
            has_lock: false,
            is_lock: false,
            hands_out: false,
            of_thread: events as f64 / 4.0,
            of_line: events as f64,
            samples: 100,
            places: Default::default(),
            numbers: Vec::new(),
        }
    }

    #[test]
    fn each_change_leaves_its_share_of_the_transfers() {
        let memory = [contended(1000, 750), contended(400, 0)];
        let waiting = |changes: &[Change]| waiting_s(&memory, changes, 1.0, 1e9);
        assert_eq!(waiting(&[]), 350.0);
        assert_eq!(waiting(&[Change::Separate(0)]), 62.5 + 100.0);
        assert_eq!(waiting(&[Change::Separate(1)]), 350.0);
        assert_eq!(waiting(&[Change::PerThread(0)]), 100.0);
        assert_eq!(
            waiting(&[Change::Batch(1), Change::PerThread(0)]),
            100.0 / 64.0
        );
        // A short run waits for the line that moves most.
        assert_eq!(waiting_s(&memory, &[], 1.0, 10.0), 990.0);
    }
}
