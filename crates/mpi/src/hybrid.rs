//! Combines two profiles of a run: the messages of the ranks and the memory accesses of all their threads.
//!
//! Thread paths are those of the memory trace: rank 3's first thread is `r3`, threads it created are `r3.1`, `r3.2`.
//! A rank's messages are attributed to its first thread, which sends them in `MPI_THREAD_FUNNELED` programs; the
//! message tracer does not distinguish the threads of a rank. Both tracers record wall time since the start of the
//! recording. Slices have the larger of the two slice lengths, which are the same base length times powers of two.

use std::collections::{BTreeMap, HashMap};

use numaloc_identity::ThreadPath;
use numaloc_model::profile::{CommRow, CommSums, Profile, Slice};
use numaloc_model::{SliceIdx, ThreadIdx};

/// Adds the messages of the ranks to the profile of their threads.
#[must_use]
pub fn join(messages: Profile, mut memory: Profile) -> Profile {
    for thread in &mut memory.threads {
        thread.rank = ThreadPath::new(&thread.path).rank();
    }
    let of_path: HashMap<String, ThreadIdx> = memory
        .threads
        .iter()
        .enumerate()
        .map(|(index, thread)| (thread.path.clone(), ThreadIdx::from_index(index)))
        .collect();
    // Maps ranks to threads; a rank without a traced thread becomes a thread of its own, at the end.
    let mut untraced = Vec::new();
    let thread_of: Vec<ThreadIdx> = messages
        .threads
        .iter()
        .map(|rank| match of_path.get(&rank.path) {
            Some(&thread) => {
                let known = &mut memory.threads[thread.index()];
                known.start = known.start.min(rank.start);
                known.end = known.end.max(rank.end);
                thread
            }
            None => {
                untraced.push(rank.path.clone());
                memory.threads.push(rank.clone());
                ThreadIdx::from_index(memory.threads.len() - 1)
            }
        })
        .collect();

    let length = length(&messages.slices).max(length(&memory.slices));
    let all = || messages.slices.iter().chain(&memory.slices);
    let end = all().map(|slice| slice.end).max().unwrap_or(0).max(1);
    let places = |slices: &[Slice]| -> Vec<SliceIdx> {
        let place = |slice: &Slice| SliceIdx((slice.start / length) as u32);
        slices.iter().map(place).collect()
    };
    let (of_messages, of_memory) = (places(&messages.slices), places(&memory.slices));
    let slices = (0..end.div_ceil(length))
        .map(|k| Slice {
            start: k * length,
            end: ((k + 1) * length).min(end),
        })
        .collect();

    let mut sums = CommSums::default();
    for row in &memory.communication {
        sums.add(CommRow {
            slice: of_memory[row.slice.index()],
            ..*row
        });
    }
    for row in &messages.communication {
        sums.add(CommRow {
            slice: of_messages[row.slice.index()],
            src: thread_of[row.src.index()],
            dst: thread_of[row.dst.index()],
            ..*row
        });
    }
    memory.communication = sums.into_rows().collect();
    let mut counts: BTreeMap<_, u64> = BTreeMap::new();
    for row in &memory.page_slices {
        let slice = of_memory[row.slice.index()];
        *counts.entry((slice, row.page, row.thread)).or_default() += row.accesses;
    }
    memory.page_slices = counts
        .into_iter()
        .map(
            |((slice, page, thread), accesses)| numaloc_model::profile::PageSliceRow {
                slice,
                page,
                thread,
                accesses,
            },
        )
        .collect();
    memory.slices = slices;
    // The launcher's command line: after a recorder was killed, only the ranks' folder still contains it.
    memory.meta.command = messages.meta.command;
    memory.meta.frontend = format!("mpi+{}", memory.meta.frontend);
    memory.meta.complete &= messages.meta.complete && untraced.is_empty();
    memory.meta.notes.extend(messages.meta.notes);
    if let Some(first) = untraced.first() {
        memory.meta.notes.push(format!(
            "no memory access was traced of {} ranks, {first} first",
            untraced.len()
        ));
    }
    memory
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
    use numaloc_model::Layer;
    use numaloc_model::pages::PageUsage;
    use numaloc_model::profile::{Clock, Meta, Thread};

    fn thread(path: &str, rank: Option<u32>) -> Thread {
        Thread {
            path: path.to_owned(),
            label: None,
            pid: 1,
            tid: 1,
            rank,
            start: 3,
            end: 90,
            accesses: 0,
            read_bytes: 0,
            write_bytes: 0,
            dram_bytes: None,
        }
    }

    fn profile(
        frontend: &str,
        threads: Vec<Thread>,
        slice: u64,
        end: u64,
        communication: Vec<CommRow>,
    ) -> Profile {
        Profile {
            meta: Meta {
                command: vec!["mpirun".to_owned()],
                frontend: frontend.to_owned(),
                clock: Clock::Wall,
                line_size: 64,
                complete: true,
                notes: vec![format!("a note of {frontend}")],
                sampled: 1.0,
                dram_source: None,
                conditions: numaloc_model::conditions::Conditions::default(),
            },
            threads,
            slices: (0..end.div_ceil(slice))
                .map(|k| Slice {
                    start: k * slice,
                    end: ((k + 1) * slice).min(end),
                })
                .collect(),
            communication,
            pages: PageUsage::new(4096),
            page_slices: Vec::new(),
            access_slices: Vec::new(),
            objects: Vec::new(),
            cell_errors: Vec::new(),
            shared_lines: Vec::new(),
            slow_loads: None,
        }
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

        let joined = join(messages, memory);
        let threads: Vec<_> = joined
            .threads
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
            .communication
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
        assert_eq!(joined.slices.last(), Some(&Slice { start: 60, end: 65 }));
        assert_eq!(
            (joined.meta.frontend.as_str(), joined.meta.complete),
            ("mpi+qemu", false)
        );
        assert_eq!(joined.meta.notes.len(), 3, "{:?}", joined.meta.notes);
    }

    #[test]
    fn the_command_is_the_launchers_and_complete_is_what_both_traces_are() {
        let ranks = || vec![thread("r0", Some(0))];
        for (messages_end, memory_ends) in
            [(true, true), (true, false), (false, true), (false, false)]
        {
            let mut messages = profile("mpi", ranks(), 10, 10, Vec::new());
            let mut memory = profile("instrument", ranks(), 10, 10, Vec::new());
            messages.meta.complete = messages_end;
            memory.meta.complete = memory_ends;
            // As read by `record --salvage`, which is given no program.
            memory.meta.command.clear();
            let joined = join(messages, memory);
            assert_eq!(joined.meta.complete, messages_end && memory_ends);
            assert_eq!(joined.meta.command, ["mpirun"]);
        }
    }
}
