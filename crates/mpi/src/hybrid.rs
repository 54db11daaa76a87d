//! Combines two profiles of a run: the messages of the ranks and the memory accesses of all their threads.
//!
//! Thread paths are those of the memory trace: rank 3's first thread is `r3`, threads it created are `r3.1`, `r3.2`.
//! A rank's messages are attributed to its first thread, which sends them in `MPI_THREAD_FUNNELED` programs; the
//! message tracer does not distinguish the threads of a rank. Both tracers record wall time since the start of the
//! recording. Slices have the larger of the two slice lengths, which are the same base length times powers of two.

use std::collections::HashMap;

use numaloc_identity::ThreadPath;
use numaloc_model::profile::{CommRow, Profile, ProfileError, Slice};
use numaloc_model::{MpiCall, MpiWait, ThreadIdx};

/// Adds the messages of the ranks to the profile of their threads.
///
/// # Errors
/// [`ProfileError`] if amounts exceed what a profile holds.
pub fn join(messages: Profile, memory: Profile) -> Result<Profile, ProfileError> {
    let length = length(messages.slices()).max(length(memory.slices()));
    let (mut messages, mut tables) = (messages.into_builder(), memory.into_builder());
    let last = messages.slices.last().map_or(0, |slice| slice.end);
    tables.merge_slices(length, last);
    messages.merge_slices(length, 0);
    for thread in &mut tables.threads {
        thread.rank = ThreadPath::new(&thread.path).rank();
    }
    let thread_of: HashMap<String, ThreadIdx> = tables
        .threads
        .iter()
        .enumerate()
        .map(|(index, thread)| (thread.path.clone(), ThreadIdx::from_index(index)))
        .collect();
    // Maps ranks to threads; a rank without a traced thread becomes a thread of its own, at the end.
    let mut untraced = Vec::new();
    let mut of_rank = Vec::with_capacity(messages.threads.len());
    for rank in messages.threads {
        of_rank.push(match thread_of.get(&rank.path) {
            Some(&thread) => {
                let known = &mut tables.threads[thread.index()];
                known.start = known.start.min(rank.start);
                known.end = known.end.max(rank.end);
                thread
            }
            None => {
                untraced.push(rank.path.clone());
                tables.thread(rank)
            }
        });
    }
    let rows = messages.communication.iter().map(|row| CommRow {
        src: of_rank[row.src.index()],
        dst: of_rank[row.dst.index()],
        ..*row
    });
    tables.communication.extend(rows);
    let calls = messages.mpi_calls.into_iter().map(|call| MpiCall {
        thread: of_rank[call.thread.index()],
        ..call
    });
    tables.mpi_calls.extend(calls);
    let waits = messages.mpi_waits.into_iter().map(|wait| MpiWait {
        thread: of_rank[wait.thread.index()],
        other: of_rank[wait.other.index()],
        ..wait
    });
    tables.mpi_waits.extend(waits);
    let meta = &mut tables.meta;
    // The launcher's command line: after a recorder was killed, only the ranks' folder still contains it.
    meta.command = messages.meta.command;
    meta.frontend = format!("mpi+{}", meta.frontend);
    meta.complete &= messages.meta.complete && untraced.is_empty();
    meta.notes.extend(messages.meta.notes);
    if let Some(first) = untraced.first() {
        meta.notes.push(format!(
            "no memory access was traced of {} ranks, {first} first",
            untraced.len()
        ));
    }
    tables.build()
}

/// Length of a slice; all but the last are equally long.
fn length(slices: &[Slice]) -> u64 {
    slices
        .first()
        .map_or(1, |slice| (slice.end - slice.start).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_model::profile::{Clock, Meta, ProfileBuilder, Thread};
    use numaloc_model::{Layer, SliceIdx};

    fn thread(path: &str, rank: Option<u32>) -> Thread {
        Thread {
            pid: 1,
            tid: 1,
            rank,
            start: 3,
            end: 90,
            ..Thread::new(path)
        }
    }

    fn profile(
        frontend: &str,
        threads: Vec<Thread>,
        slice: u64,
        end: u64,
        communication: Vec<CommRow>,
    ) -> Profile {
        let mut tables = ProfileBuilder::new(
            Meta {
                command: vec!["mpirun".to_owned()],
                notes: vec![format!("a note of {frontend}")],
                ..Meta::new(frontend, Clock::Wall)
            },
            4096,
        );
        tables.threads = threads;
        tables.slices = Slice::even(slice, end).collect();
        tables.communication = communication;
        tables.build().unwrap()
    }

    fn row(slice: u32, src: u32, dst: u32, layer: Layer, events: u64) -> CommRow {
        CommRow {
            slice: SliceIdx(slice),
            src: ThreadIdx(src),
            dst: ThreadIdx(dst),
            layer,
            events,
            bytes: 8 * events,
        }
    }

    #[test]
    fn ranks_become_their_first_threads_and_slices_the_longer_ones() {
        let ranks = (0..3).map(|rank| thread(&format!("r{rank}"), Some(rank)));
        // Slices of 10; the seventh is incomplete.
        let messages = vec![
            row(0, 0, 1, Layer::Message, 1),
            row(1, 0, 1, Layer::Message, 2),
            row(6, 2, 0, Layer::Collective, 3),
        ];
        let messages = profile("mpi", ranks.collect(), 10, 65, messages);
        // Slices of 20. Nothing was traced of rank 2.
        let traced = ["r0", "r0.1", "r1"].map(|path| thread(path, None)).to_vec();
        let memory = vec![
            row(0, 1, 0, Layer::WriteRead, 4),
            row(2, 0, 2, Layer::WriteRead, 5),
        ];
        let memory = profile("qemu", traced, 20, 60, memory);

        let joined = join(messages, memory).unwrap();
        let threads: Vec<_> = joined
            .threads()
            .iter()
            .map(|t| (t.path.as_str(), t.rank))
            .collect();
        let expected = [
            ("r0", Some(0)),
            ("r0.1", Some(0)),
            ("r1", Some(1)),
            ("r2", Some(2)),
        ];
        assert_eq!(threads, expected);
        let cells: Vec<_> = joined
            .communication()
            .iter()
            .map(|r| (r.slice.0, r.layer, r.src.0, r.dst.0, r.events, r.bytes))
            .collect();
        assert_eq!(
            cells,
            [
                (0, Layer::WriteRead, 1, 0, 4, 32),
                (0, Layer::Message, 0, 2, 3, 24),
                (2, Layer::WriteRead, 0, 2, 5, 40),
                (3, Layer::Collective, 3, 0, 3, 24),
            ]
        );
        assert_eq!(joined.slices().last(), Some(&Slice { start: 60, end: 65 }));
        assert_eq!(
            (joined.meta().frontend.as_str(), joined.meta().complete),
            ("mpi+qemu", false)
        );
        assert_eq!(joined.meta().notes.len(), 3, "{:?}", joined.meta().notes);
    }

    #[test]
    fn the_command_is_the_launchers_and_complete_is_what_both_traces_are() {
        let ranks = || vec![thread("r0", Some(0))];
        for (messages_end, memory_ends) in
            [(true, true), (true, false), (false, true), (false, false)]
        {
            let mut messages = profile("mpi", ranks(), 10, 10, Vec::new());
            let mut memory = profile("instrument", ranks(), 10, 10, Vec::new());
            messages.set_complete(messages_end);
            memory.set_complete(memory_ends);
            // As read by `record --salvage`, which is given no program.
            let mut memory = memory.into_builder();
            memory.meta.command.clear();
            let joined = join(messages, memory.build().unwrap()).unwrap();
            assert_eq!(joined.meta().complete, messages_end && memory_ends);
            assert_eq!(joined.meta().command, ["mpirun"]);
        }
    }
}
