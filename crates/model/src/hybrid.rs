//! Profiles of MPI ranks with threads: a common unit for messages and shared memory, and the threads that need a place.

use std::collections::{BTreeMap, HashMap};

use crate::comm::Layer;
use crate::ids::ThreadIdx;
use crate::pages::{PageHead, PageUsage, ThreadAccess};
use crate::profile::{
    AccessSliceRow, CommRow, CommSums, PageSliceRow, Profile, SlowLoadRow, SlowLoads,
};

/// Prefix of the labels of threads that serve a run-time system, not the program.
const HELPER: &str = "runtime helper";

impl Profile {
    /// Whether messages between ranks and memory accesses of their threads were both recorded.
    #[must_use]
    pub fn is_hybrid(&self) -> bool {
        let has = |wanted: &[Layer]| {
            let mut rows = self.communication.iter();
            rows.any(|row| wanted.contains(&row.layer))
        };
        self.threads.iter().any(|thread| thread.rank.is_some())
            && has(&[Layer::WriteRead])
            && has(&[Layer::Message, Layer::Collective])
    }

    /// All communication of a hybrid profile as rows of layer `write_read`, in cache lines moved. Bytes are those of
    /// whole lines, so that weighting by bytes (groups of concurrent communication) gives the same.
    ///
    /// An event of shared memory moves one line; `n` messages (of both layers) of `b` bytes in total move `b` / line
    /// size lines, at least `n`. Within a rank only shared memory counts. Between two ranks, a message on one host is
    /// itself copied through shared memory, so the two views must not be summed: the one with more lines over the
    /// whole run counts for the pair, the other is left out.
    #[must_use]
    pub fn in_cache_lines(&self) -> Vec<CommRow> {
        let line = self.meta.line_size.max(1);
        let rank = |thread: ThreadIdx| self.threads[thread.index()].rank;
        let lines = |row: &CommRow| match row.layer {
            Layer::WriteRead => Some(row.events),
            Layer::Message | Layer::Collective => Some(row.events.max(row.bytes.div_ceil(line))),
            _ => None,
        };
        let is_message = |row: &CommRow| row.layer != Layer::WriteRead;
        // By unordered pair of ranks: lines by shared memory, lines by messages.
        let mut views: HashMap<_, [u64; 2]> = HashMap::new();
        let pair = |row: &CommRow| {
            let (a, b) = (rank(row.src), rank(row.dst));
            (a != b).then(|| (a.min(b), a.max(b)))
        };
        for row in &self.communication {
            if let (Some(lines), Some(pair)) = (lines(row), pair(row)) {
                views.entry(pair).or_default()[usize::from(is_message(row))] += lines;
            }
        }
        let mut sums = CommSums::default();
        for row in &self.communication {
            let Some(lines) = lines(row) else { continue };
            let stands = pair(row).is_none_or(|pair| {
                let [memory, messages] = views[&pair];
                is_message(row) == (messages > memory)
            });
            if stands {
                sums.add(CommRow {
                    layer: Layer::WriteRead,
                    events: lines,
                    bytes: lines.saturating_mul(line),
                    ..*row
                });
            }
        }
        sums.into_rows().collect()
    }

    /// The profile in which the activity of run-time helper threads is attributed to the threads that created them. A
    /// plan needs no place for a helper, because it sleeps.
    #[must_use]
    pub fn without_helpers(mut self) -> Self {
        let is_helper = |label: &Option<String>| {
            label
                .as_ref()
                .is_some_and(|label| label.starts_with(HELPER))
        };
        let paths: HashMap<&str, usize> = self
            .threads
            .iter()
            .enumerate()
            .map(|(index, thread)| (thread.path.as_str(), index))
            .collect();
        // Maps each thread, by old index, to the one it is attributed to: itself unless it is a helper with a known
        // creator.
        let stand_in = |mut index: usize| {
            while is_helper(&self.threads[index].label)
                && let Some((creator, _)) = self.threads[index].path.rsplit_once(['.', '/'])
                && let Some(&above) = paths.get(creator)
            {
                index = above;
            }
            index
        };
        let stands: Vec<usize> = (0..self.threads.len()).map(stand_in).collect();
        let mut new = vec![ThreadIdx(0); stands.len()];
        let mut kept = Vec::new();
        for (index, thread) in self.threads.iter().enumerate() {
            if stands[index] == index {
                new[index] = ThreadIdx::from_index(kept.len());
                kept.push(thread.clone());
            }
        }
        let of = |thread: ThreadIdx| new[stands[thread.index()]];
        for (index, thread) in self.threads.iter().enumerate() {
            if stands[index] != index {
                let creator = &mut kept[new[stands[index]].index()];
                creator.accesses += thread.accesses;
                creator.read_bytes += thread.read_bytes;
                creator.write_bytes += thread.write_bytes;
                creator.dram_bytes = match (creator.dram_bytes, thread.dram_bytes) {
                    (Some(own), Some(more)) => Some(own + more),
                    (own, _) => own,
                };
            }
        }
        self.communication.retain_mut(|row| {
            (row.src, row.dst) = (of(row.src), of(row.dst));
            row.src != row.dst
        });
        let mut usage = PageUsage::new(self.pages.page_size());
        for page in self.pages.pages() {
            let accesses = self.pages.accesses(page).iter();
            usage.push(
                PageHead {
                    number: page.number,
                    object: page.object,
                    object_page: page.object_page,
                    first_touch: page.first_touch.map(of),
                    first_touch_time: page.first_touch_time,
                },
                accesses
                    .map(|access| ThreadAccess {
                        thread: of(access.thread),
                        ..*access
                    })
                    .collect(),
            );
        }
        let rows = self.access_slices.iter();
        self.access_slices =
            AccessSliceRow::sums(rows.map(|row| (row.slice, of(row.thread), row.accesses)));
        let mut slices: BTreeMap<_, u64> = BTreeMap::new();
        for row in &self.page_slices {
            *slices
                .entry((row.slice, row.page, of(row.thread)))
                .or_default() += row.accesses;
        }
        self.page_slices = slices
            .into_iter()
            .map(|((slice, page, thread), accesses)| PageSliceRow {
                slice,
                page,
                thread,
                accesses,
            })
            .collect();
        self.slow_loads = self.slow_loads.map(|slow| {
            let rows = slow.rows.into_iter().map(|row| SlowLoadRow {
                thread: of(row.thread),
                ..row
            });
            SlowLoads::sums(slow.source, rows)
        });
        for object in &mut self.objects {
            object.thread = object.thread.map(of);
        }
        // Errors of merged cells are not known.
        let whole = |thread: ThreadIdx| {
            let same = stands.iter().filter(|&&s| s == stands[thread.index()]);
            same.count() == 1
        };
        self.cell_errors
            .retain(|cell| whole(cell.src) && whole(cell.dst));
        for cell in &mut self.cell_errors {
            (cell.src, cell.dst) = (of(cell.src), of(cell.dst));
        }
        self.pages = usage;
        self.threads = kept;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{PageNumber, SliceIdx};
    use crate::profile::{Clock, Meta, Slice, Thread};

    fn thread(path: &str, rank: u32, label: Option<&str>) -> Thread {
        Thread {
            path: path.to_owned(),
            label: label.map(str::to_owned),
            pid: 1,
            tid: 1,
            rank: Some(rank),
            start: 0,
            end: 10,
            accesses: 5,
            read_bytes: 3,
            write_bytes: 2,
            dram_bytes: None,
        }
    }

    fn row(src: u32, dst: u32, layer: Layer, events: u64, bytes: u64) -> CommRow {
        CommRow {
            slice: SliceIdx(0),
            src: ThreadIdx(src),
            dst: ThreadIdx(dst),
            layer,
            events,
            bytes,
        }
    }

    /// Ranks 0 and 1 with two threads each, rank 0 with a helper between them; rank 2 with one.
    fn profile(communication: Vec<CommRow>) -> Profile {
        let mut pages = PageUsage::new(4096);
        let access = |thread, reads| ThreadAccess {
            thread: ThreadIdx(thread),
            reads,
            writes: 0,
        };
        pages.push(
            PageHead {
                number: PageNumber(7),
                object: None,
                object_page: 0,
                first_touch: Some(ThreadIdx(1)),
                first_touch_time: 0,
            },
            vec![access(0, 1), access(1, 2), access(4, 3)],
        );
        Profile {
            meta: Meta {
                command: vec![],
                frontend: "mpi+qemu".to_owned(),
                clock: Clock::Wall,
                line_size: 64,
                complete: true,
                notes: vec![],
                sampled: 1.0,
                dram_source: None,
                conditions: crate::conditions::Conditions::default(),
            },
            threads: vec![
                thread("r0", 0, None),
                thread("r0.1", 0, Some("runtime helper (libopen-pal.so)")),
                thread("r0.2", 0, Some("libgomp.so.1")),
                thread("r1", 1, None),
                thread("r1.1", 1, None),
                thread("r2", 2, None),
            ],
            slices: vec![Slice { start: 0, end: 10 }],
            communication,
            pages,
            page_slices: vec![],
            access_slices: vec![],
            objects: vec![],
            cell_errors: vec![],
            shared_lines: vec![],
            slow_loads: None,
        }
    }

    #[test]
    fn between_ranks_the_larger_view_counts_and_within_a_rank_shared_memory() {
        let profile = profile(vec![
            row(0, 2, Layer::WriteRead, 9, 72),
            // 0 and 1: 6,400 + 640 bytes are 110 lines, more than the 30 counted in shared memory.
            row(0, 3, Layer::Message, 2, 6400),
            row(3, 0, Layer::Collective, 1, 640),
            row(0, 3, Layer::WriteRead, 30, 240),
            // 1 and 2: ten small messages are ten lines, less than 25.
            row(3, 5, Layer::Message, 10, 80),
            row(4, 5, Layer::WriteRead, 25, 200),
            row(4, 5, Layer::FalseSharing, 20, 160),
        ]);
        assert!(profile.is_hybrid());
        let rows = profile.in_cache_lines();
        let cells: Vec<_> = rows
            .iter()
            .map(|row| (row.src.0, row.dst.0, row.events))
            .collect();
        assert_eq!(cells, [(0, 2, 9), (0, 3, 100), (3, 0, 10), (4, 5, 25)]);
        assert!(rows.iter().all(|row| row.layer == Layer::WriteRead));
    }

    #[test]
    fn helpers_are_attributed_to_their_creators() {
        let profile = profile(vec![
            row(1, 0, Layer::WriteRead, 4, 32),
            row(1, 3, Layer::WriteRead, 5, 40),
            row(2, 1, Layer::WriteRead, 6, 48),
        ])
        .without_helpers();
        let paths: Vec<_> = profile.threads.iter().map(|t| t.path.as_str()).collect();
        assert_eq!(paths, ["r0", "r0.2", "r1", "r1.1", "r2"]);
        assert_eq!(profile.threads[0].accesses, 10);
        let cells: Vec<_> = profile
            .communication
            .iter()
            .map(|row| (row.src.0, row.dst.0, row.events))
            .collect();
        assert_eq!(cells, [(0, 2, 5), (1, 0, 6)]);
        let page = &profile.pages.pages()[0];
        assert_eq!(page.first_touch, Some(ThreadIdx(0)));
        let accesses = profile.pages.accesses(page).iter();
        let accesses: Vec<_> = accesses.map(|a| (a.thread.0, a.reads)).collect();
        assert_eq!(accesses, [(0, 3), (3, 3)]);
    }
}
