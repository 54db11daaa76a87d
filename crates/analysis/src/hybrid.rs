//! Profiles of MPI ranks with threads: a common unit for messages and shared memory, and the threads that need a place.

use std::collections::HashMap;

use numaloc_identity::ThreadPath;
use numaloc_model::profile::{CommRow, CommSums, ProfileError};
use numaloc_model::{Layer, Profile, ThreadIdx};

/// Whether messages between ranks and memory accesses of their threads were both recorded.
#[must_use]
pub fn is_hybrid(profile: &Profile) -> bool {
    let has = |wanted: &[Layer]| {
        let mut rows = profile.communication().iter();
        rows.any(|row| wanted.contains(&row.layer))
    };
    profile.threads().iter().any(|thread| thread.rank.is_some())
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
pub fn in_cache_lines(profile: &Profile) -> Vec<CommRow> {
    let line = profile.meta().line_size.max(1);
    let rank = |thread: ThreadIdx| profile.threads()[thread.index()].rank;
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
    for row in profile.communication() {
        if let (Some(lines), Some(pair)) = (lines(row), pair(row)) {
            views.entry(pair).or_default()[usize::from(is_message(row))] += lines;
        }
    }
    let mut sums = CommSums::default();
    for row in profile.communication() {
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
///
/// # Errors
/// [`ProfileError`] as of [`Profile::merge_threads`].
pub fn without_helpers(profile: Profile) -> Result<Profile, ProfileError> {
    let threads = profile.threads();
    let paths: HashMap<&str, usize> = threads
        .iter()
        .enumerate()
        .map(|(index, thread)| (thread.path.as_str(), index))
        .collect();
    // The thread to which a thread is attributed: itself unless it is a helper with a known creator.
    let stand_in = |mut index: usize| {
        while threads[index].role.is_helper()
            && let Some(creator) = ThreadPath::new(&threads[index].path).creator()
            && let Some(&above) = paths.get(creator.as_str())
        {
            index = above;
        }
        ThreadIdx::from_index(index)
    };
    let into: Vec<ThreadIdx> = (0..threads.len()).map(stand_in).collect();
    profile.merge_threads(&into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_model::pages::{PageHead, ThreadAccess};
    use numaloc_model::profile::{Clock, Meta, ProfileBuilder, Slice, Thread, ThreadRole};
    use numaloc_model::{PageNumber, PageUsage, SliceIdx};

    fn thread(path: &str, rank: u32, label: Option<&str>) -> Thread {
        Thread {
            role: ThreadRole::from_label(label.map(str::to_owned)),
            pid: 1,
            tid: 1,
            rank: Some(rank),
            end: 10,
            accesses: 5,
            read_bytes: 3,
            write_bytes: 2,
            ..Thread::new(path)
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
                policy: None,
            },
            vec![access(0, 1), access(1, 2), access(4, 3)],
        );
        let mut tables = ProfileBuilder::new(Meta::new("mpi+qemu", Clock::Wall), pages.page_size());
        tables.usage(&pages);
        tables.threads = vec![
            thread("r0", 0, None),
            thread("r0.1", 0, Some("runtime helper (libopen-pal.so)")),
            thread("r0.2", 0, Some("libgomp.so.1")),
            thread("r1", 1, None),
            thread("r1.1", 1, None),
            thread("r2", 2, None),
        ];
        tables.slices = vec![Slice { start: 0, end: 10 }];
        tables.communication = communication;
        tables.build().unwrap()
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
        assert!(is_hybrid(&profile));
        let rows = in_cache_lines(&profile);
        let cells: Vec<_> = rows
            .iter()
            .map(|row| (row.src.0, row.dst.0, row.events))
            .collect();
        assert_eq!(cells, [(0, 2, 9), (0, 3, 100), (3, 0, 10), (4, 5, 25)]);
        assert!(rows.iter().all(|row| row.layer == Layer::WriteRead));
    }

    #[test]
    fn helpers_are_attributed_to_their_creators() {
        let profile = without_helpers(profile(vec![
            row(1, 0, Layer::WriteRead, 4, 32),
            row(1, 3, Layer::WriteRead, 5, 40),
            row(2, 1, Layer::WriteRead, 6, 48),
        ]))
        .unwrap();
        let paths: Vec<_> = profile.threads().iter().map(|t| t.path.as_str()).collect();
        assert_eq!(paths, ["r0", "r0.2", "r1", "r1.1", "r2"]);
        assert_eq!(profile.threads()[0].accesses, 10);
        let cells: Vec<_> = profile
            .communication()
            .iter()
            .map(|row| (row.src.0, row.dst.0, row.events))
            .collect();
        assert_eq!(cells, [(0, 2, 5), (1, 0, 6)]);
        let page = &profile.pages().pages()[0];
        assert_eq!(page.first_touch, Some(ThreadIdx(0)));
        let accesses = profile.pages().accesses(page).iter();
        let accesses: Vec<_> = accesses.map(|a| (a.thread.0, a.reads)).collect();
        assert_eq!(accesses, [(0, 3), (3, 3)]);
    }
}
