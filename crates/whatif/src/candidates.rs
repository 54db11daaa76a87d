//! The changes that a run could gain from. Whether it does is for a simulation to say.

use numaloc_analysis::contended::ContendedMemory;

use crate::change::{Change, Speeds};
use crate::parts::Part;

/// Largest number of contended memories that changes are tried on.
const MOST_LINES: usize = 3;

/// Changes worth a try on a machine with `nodes` nodes, whose memory differs in these ways, where threads can be bound
/// in `mappings` ways. `matters` says whether threads would wait for a contended memory long enough.
#[must_use]
pub fn candidates(
    parts: &[Part],
    memory: &[ContendedMemory],
    matters: impl Fn(&ContendedMemory) -> bool,
    mappings: usize,
    (nodes, speeds): (usize, &[Speeds]),
) -> Vec<Change> {
    let mut changes: Vec<Change> = (0..mappings).map(Change::Bind).collect();
    if nodes > 1 {
        changes.extend([Change::PlacePages, Change::InterleaveAll]);
        for (at, part) in parts.iter().enumerate() {
            if !part.beginners.is_empty() {
                changes.push(Change::TouchByUsers(at));
            }
            changes.push(Change::Interleave(at));
            changes.extend(speeds.iter().map(|&speeds| Change::Deal(at, speeds)));
            if !part.constant.is_empty() {
                changes.push(Change::Replicate(at));
            }
        }
    }
    let contended = memory.iter().enumerate().filter(|(_, one)| matters(one));
    for (at, one) in contended.take(MOST_LINES) {
        if one.hands_out {
            changes.push(Change::Chunk(at));
        } else if one.is_false() {
            changes.push(Change::Separate(at));
        } else if one.writers > 1 && !one.orders() && !one.hands_over() {
            changes.push(Change::PerThread(at));
            if one.is_counter() {
                changes.push(Change::Batch(at));
            }
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use numaloc_analysis::sharing::SharedMemory;
    use numaloc_model::{CodePlace, Named, ObjectIdx, ThreadIdx};

    use super::*;

    const NAMED: Named = Named {
        object: ObjectIdx(0),
        variable: None,
    };

    fn part(beginners: Vec<(u64, ThreadIdx)>, is_written_after: bool) -> Part {
        Part {
            memory: vec![NAMED],
            first: ThreadIdx(0),
            beginnings: Vec::new(),
            pages: vec![0],
            own_pages: Vec::new(),
            beginners,
            requests_of_others: 1,
            constant: if is_written_after {
                vec![]
            } else {
                vec![NAMED]
            },
            constant_pages: Vec::new(),
        }
    }

    fn memory(false_events: u64, writers: u32, atomics: u64) -> ContendedMemory {
        ContendedMemory {
            memory: SharedMemory {
                object: None,
                variables: Vec::new(),
                lines: 1,
                events: 100,
                false_events,
            },
            threads: 4,
            writers,
            visits: 100,
            atomics,
            has_lock: false,
            is_lock: false,
            hands_out: false,
            of_thread: 25.0,
            of_line: 100.0,
            samples: 100,
            places: Default::default(),
            numbers: Vec::new(),
        }
    }

    #[test]
    fn counters_are_changed_by_several_threads_atomically() {
        assert!(memory(0, 4, 100).is_counter());
        // Different bytes, one writer, plain stores, a lock.
        assert!(!memory(80, 4, 100).is_counter());
        assert!(!memory(0, 1, 100).is_counter());
        assert!(!memory(0, 4, 10).is_counter());
        let mut lock = memory(0, 4, 100);
        lock.places[0].function = Some("pthread_mutex_lock".to_owned());
        assert!(!lock.is_counter());
    }

    #[test]
    fn what_is_written_gets_no_copies_and_one_node_no_pages() {
        let parts = [part(vec![(0, ThreadIdx(1))], true), part(Vec::new(), false)];
        let found = candidates(&parts, &[], |_| true, 1, (2, &[]));
        assert_eq!(
            found,
            [
                Change::Bind(0),
                Change::PlacePages,
                Change::InterleaveAll,
                Change::TouchByUsers(0),
                Change::Interleave(0),
                Change::Interleave(1),
                Change::Replicate(1),
            ]
        );
        assert_eq!(candidates(&parts, &[], |_| true, 0, (1, &Speeds::ALL)), []);
        let dealt = candidates(&parts[1..], &[], |_| true, 0, (2, &[Speeds::Tier]));
        assert!(dealt.contains(&Change::Deal(0, Speeds::Tier)), "{dealt:?}");
        assert!(!dealt.contains(&Change::Deal(0, Speeds::Weighted)));
    }

    #[test]
    fn lines_are_separated_where_sharing_is_false_and_counted_apart_where_it_is_true() {
        let guarded = ContendedMemory {
            has_lock: true,
            ..memory(0, 4, 0)
        };
        let memory = [memory(90, 4, 0), memory(0, 4, 80), guarded, memory(0, 1, 0)];
        let of = |matters: bool| candidates(&[], &memory, |_| matters, 0, (1, &[]));
        assert_eq!(
            of(true),
            [
                Change::Separate(0),
                Change::PerThread(1),
                Change::Batch(1),
                Change::PerThread(2),
            ]
        );
        assert_eq!(of(false), []);
    }

    #[test]
    fn what_one_thread_writes_for_another_is_not_counted_apart() {
        // Without atomic instructions or a lock, a sum would lose values.
        assert_eq!(
            candidates(&[], &[memory(0, 2, 0)], |_| true, 0, (1, &[])),
            []
        );
    }

    #[test]
    fn locks_and_run_time_systems_keep_their_memory() {
        let of = |function: &str, source: Option<&str>| {
            let mut memory = memory(0, 4, 80);
            memory.places[0] = CodePlace {
                function: Some(function.to_owned()),
                source: source.map(str::to_owned),
            };
            candidates(&[], &[memory], |_| true, 0, (1, &[])).len()
        };
        assert_eq!(of("add", Some("app.c:7")), 2);
        assert_eq!(of("count_blocks", None), 2);
        assert_eq!(
            of("___pthread_mutex_lock", Some("pthread_mutex_lock.c:93")),
            0
        );
        assert_eq!(of("std::sys::sync::mutex::futex::Mutex::lock", None), 0);
        assert_eq!(of("gomp_barrier_wait_end", Some("bar.c:40")), 0);
        assert_eq!(of("libgomp.so.1.0.0+0x1f93a", None), 0);
    }

    #[test]
    fn a_loop_that_a_library_hands_out_is_handed_out_in_larger_pieces() {
        let mut memory = memory(0, 4, 100);
        memory.places[0].function = Some("libgomp.so.1.0.0+0xe72d".to_owned());
        memory.hands_out = true;
        assert!(memory.is_counter());
        let found = candidates(&[], &[memory], |_| true, 0, (1, &[]));
        assert_eq!(found, [Change::Chunk(0)]);
    }
}
