//! No input of the builder gives a profile that breaks a rule of the module's head.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::ids::{PageNumber, SliceIdx, ThreadIdx};
use crate::pages::{PageHead, ThreadAccess};

/// Ids that mostly exist: tables have at least three rows.
fn id() -> impl Strategy<Value = u32> {
    prop_oneof![600 => 0..3u32, 1 => 3..6u32, 1 => Just(u32::MAX)]
}

/// Counts, rarely one that no sum can hold.
fn count() -> impl Strategy<Value = u64> {
    prop_oneof![600 => 0..1000u64, 1 => Just(MAX_COUNTED), 1 => Just(u64::MAX)]
}

fn slice() -> impl Strategy<Value = SliceIdx> {
    id().prop_map(SliceIdx)
}

fn thread() -> impl Strategy<Value = ThreadIdx> {
    id().prop_map(ThreadIdx)
}

fn page() -> impl Strategy<Value = PageNumber> {
    prop_oneof![200 => 0..3u64, 1 => 3..6u64].prop_map(PageNumber)
}

fn communication() -> impl Strategy<Value = Vec<CommRow>> {
    let layer = prop::sample::select(Layer::ALL.to_vec());
    let row = (slice(), thread(), thread(), layer, count(), count());
    let row = row.prop_map(|(slice, src, dst, layer, events, bytes)| CommRow {
        slice,
        src,
        dst,
        layer,
        events,
        bytes,
    });
    prop::collection::vec(row, 0..12)
}

fn pages() -> impl Strategy<Value = Vec<(PageHead, Vec<ThreadAccess>)>> {
    let object = prop::option::of(id().prop_map(ObjectIdx));
    let head = (
        page(),
        object,
        0..3u64,
        prop::option::of(thread()),
        0..50u64,
    );
    let head = head.prop_map(
        |(number, object, object_page, first_touch, time)| PageHead {
            number,
            object,
            object_page,
            first_touch,
            first_touch_time: time,
            policy: None,
        },
    );
    let access = (thread(), count(), count());
    let access = access.prop_map(|(thread, reads, writes)| ThreadAccess {
        thread,
        reads,
        writes,
    });
    prop::collection::vec((head, prop::collection::vec(access, 0..4)), 0..8)
}

/// Pages 0 to 2, without accesses.
fn three_pages() -> PageUsage {
    let mut pages = PageUsage::new(4096);
    for number in 0..3 {
        let head = PageHead {
            number: PageNumber(number),
            object: None,
            object_page: 0,
            first_touch: None,
            first_touch_time: 0,
            policy: None,
        };
        pages.push(head, Vec::new());
    }
    pages
}

fn page_slices() -> impl Strategy<Value = Vec<PageSlice>> {
    let row = (slice(), page(), thread(), count());
    let row = row.prop_map(|(slice, page, thread, accesses)| PageSlice {
        slice,
        page,
        thread,
        accesses,
    });
    prop::collection::vec(row, 0..6)
}

fn objects() -> impl Strategy<Value = Vec<Object>> {
    let variable = (0..60u64, 0..41u64).prop_map(|(offset, size)| Variable {
        name: format!("at {offset}"),
        offset,
        size,
        source: None,
    });
    let kind = prop::sample::select(ObjectKind::ALL.to_vec());
    let parts = prop::collection::vec(variable, 0..2);
    let object = (kind, prop::option::of(thread()), parts, 100..200u64);
    let object = object.prop_map(|(kind, thread, variables, size)| Object {
        kind,
        name: "made by a test".to_owned(),
        size,
        order: 0,
        thread,
        base: 0,
        variables,
    });
    prop::collection::vec(object, 3..6)
}

fn lines() -> impl Strategy<Value = Vec<SharedLine>> {
    let object = prop::option::of(id().prop_map(ObjectIdx));
    let line = (0..9u64, object, 0..40u64, 0..7u64);
    let line = line.prop_map(|(line, object, events, false_events)| SharedLine {
        line,
        object,
        object_offset: 0,
        events: events + 5,
        false_events,
    });
    prop::collection::vec(line, 0..4)
}

fn errors() -> impl Strategy<Value = Vec<CellError>> {
    let share = prop_oneof![100 => 0.0..2.0f64, 1 => Just(f64::NAN), 1 => Just(-1.0)];
    let layer = prop::sample::select(Layer::ALL.to_vec());
    let cell = (layer, thread(), thread(), share);
    let cell = cell.prop_map(|(layer, src, dst, relative_error)| CellError {
        layer,
        src,
        dst,
        relative_error,
    });
    prop::collection::vec(cell, 0..4)
}

prop_compose! {
    fn builder()(
        meta in (prop_oneof![12..13u32, 0..14u32], prop_oneof![40 => 0.1..=1.0f64, 1 => Just(0.0)]),
        page_size in prop_oneof![60 => Just(4096u64), 1 => Just(0), 1 => Just(4097)],
        counts in prop::collection::vec((count(), count(), prop::option::of(count())), 3..6),
        borders in prop::collection::vec(0..3u64, 3..6),
        (backwards, twice) in (prop::bool::weighted(0.05), prop::bool::weighted(0.03)),
        tables in (communication(), pages(), page_slices(), objects(), lines(), errors()),
        sums in prop::collection::vec((slice(), thread(), count()), 0..4),
        slow in prop::option::of(prop::collection::vec((page(), thread(), count()), 0..4)),
        visits in prop::collection::vec((thread(), count()), 0..4),
    ) -> ProfileBuilder {
        let meta = Meta {
            line_size: 1 << meta.0,
            sampled: meta.1,
            ..Meta::new("test", Clock::Virtual)
        };
        let mut made = ProfileBuilder::new(meta, page_size);
        for (at, (accesses, bytes, dram_bytes)) in counts.into_iter().enumerate() {
            let at = if at == 2 && twice { 1 } else { at };
            made.thread(Thread {
                accesses,
                read_bytes: bytes,
                dram_bytes,
                ..Thread::new(format!("0.{at}"))
            });
        }
        let mut start = 0;
        for length in borders {
            made.slices.push(Slice { start, end: start + length });
            start += length;
        }
        if backwards {
            made.slices.reverse();
        }
        let (communication, pages, page_slices, objects, lines, errors) = tables;
        made.communication = communication;
        // Most rows name one of these.
        made.usage(&three_pages());
        pages.into_iter().for_each(|(head, accesses)| made.page(head, accesses));
        made.page_slices = page_slices;
        made.access_slices = sums
            .into_iter()
            .map(|(slice, thread, accesses)| AccessSliceRow { slice, thread, accesses })
            .collect();
        made.objects = objects;
        made.shared_lines = lines;
        made.contended_visits = visits
            .into_iter()
            .map(|(thread, visits)| ContendedVisits { thread, visits, ..ContendedVisits::default() })
            .collect();
        made.cell_errors = errors;
        let slow = slow.map(|rows| rows.into_iter().map(|(page, thread, loads)| SlowLoad {
            page,
            thread,
            loads,
        }));
        made.slow_loads = slow.map(|rows| ("made by a test".to_owned(), rows.collect()));
        made
    }
}

/// Whether values ascend strictly.
fn ascend<K: PartialOrd>(keys: impl Iterator<Item = K>) -> bool {
    keys.collect::<Vec<_>>().is_sorted_by(|a, b| a < b)
}

/// Asserts the rules, from the accessors alone.
fn assert_rules(profile: &Profile) {
    let (threads, slices) = (profile.threads().len(), profile.slices().len());
    let (objects, pages) = (profile.objects().len(), profile.pages().pages());
    let is_thread = |thread: ThreadIdx| thread.index() < threads;
    let is_slice = |slice: SliceIdx| slice.index() < slices;
    let sum = |counts: &mut dyn Iterator<Item = u64>| {
        let sum: u128 = counts.map(u128::from).sum();
        assert!(sum <= u128::from(MAX_COUNTED));
    };

    let paths = profile.threads().iter().map(|t| (t.rank, &t.path));
    assert_eq!(paths.collect::<BTreeSet<_>>().len(), threads);
    let meta = profile.meta();
    assert!(meta.line_size.is_power_of_two() && meta.line_size <= 4096);
    assert!(meta.sampled > 0.0 && meta.sampled <= 1.0);
    assert_eq!(profile.pages().page_size(), 4096);
    sum(&mut profile.threads().iter().map(|t| t.accesses));
    sum(&mut profile.threads().iter().map(|t| t.read_bytes));
    sum(&mut profile.threads().iter().filter_map(|t| t.dram_bytes));
    assert!(profile.slices().iter().all(|s| s.start <= s.end));
    assert!(profile.slices().is_sorted_by_key(|s| s.start));

    let rows = profile.communication();
    assert!(ascend(
        rows.iter().map(|r| (r.slice, r.layer, r.src, r.dst))
    ));
    assert!(
        rows.iter()
            .all(|r| is_slice(r.slice) && is_thread(r.src) && is_thread(r.dst))
    );
    sum(&mut rows.iter().map(|r| r.events));
    sum(&mut rows.iter().map(|r| r.bytes));

    assert!(ascend(pages.iter().map(|page| page.number)));
    for page in pages {
        let cells = profile.pages().accesses(page);
        assert!(ascend(cells.iter().map(|cell| cell.thread)));
        assert!(cells.iter().all(|cell| is_thread(cell.thread)));
        assert!(page.first_touch.is_none_or(is_thread));
        assert!(page.object.is_none_or(|object| object.index() < objects));
    }
    assert!(profile.pages().total() <= 2 * MAX_COUNTED);

    let rows = profile.page_slices();
    assert!(ascend(rows.iter().map(|r| (r.slice, r.page, r.thread))));
    assert!(
        rows.iter()
            .all(|r| is_slice(r.slice) && is_thread(r.thread) && (r.page as usize) < pages.len())
    );
    let rows = profile.access_slices();
    assert!(ascend(rows.iter().map(|r| (r.slice, r.thread))));
    assert!(
        rows.iter()
            .all(|r| is_slice(r.slice) && is_thread(r.thread))
    );
    sum(&mut rows.iter().map(|r| r.accesses));

    for object in profile.objects() {
        assert!(object.thread.is_none_or(is_thread));
        assert!(object.variables.is_sorted_by_key(|part| part.offset));
        let fits = |part: &Variable| part.offset + part.size <= object.size;
        assert!(object.kind == ObjectKind::Heap || object.variables.iter().all(fits));
    }
    let cells = profile.cell_errors();
    assert!(cells.is_sorted_by_key(|c| (c.layer, c.src, c.dst)));
    assert!(cells.iter().all(|c| is_thread(c.src)
        && is_thread(c.dst)
        && c.relative_error.is_finite()
        && c.relative_error >= 0.0));
    let lines = profile.shared_lines();
    sum(&mut lines.iter().map(|l| l.events));
    assert!(lines.iter().all(|l| l.false_events <= l.events));
    assert!(
        lines
            .iter()
            .all(|l| l.object.is_none_or(|o| o.index() < objects))
    );
    for row in profile.contended_visits() {
        assert!(is_thread(row.thread));
    }
    if let Some(slow) = profile.slow_loads() {
        assert!(ascend(slow.rows.iter().map(|r| (r.page, r.thread))));
        assert!(
            slow.rows
                .iter()
                .all(|r| is_thread(r.thread) && (r.page as usize) < pages.len())
        );
        sum(&mut slow.rows.iter().map(|r| r.loads));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn tables_give_a_profile_that_keeps_all_rules_or_an_error_that_names_the_place(
        tables in builder(),
    ) {
        match tables.build() {
            Ok(profile) => {
                assert_rules(&profile);
                // Built once more, it is the same profile.
                prop_assert_eq!(profile.clone().into_builder().build().unwrap(), profile);
            }
            Err(error) => {
                prop_assert!(!error.place().is_empty() && !error.expected.is_empty());
                let shown = error.to_string();
                prop_assert!(shown.contains(error.table.name()) && !shown.contains('\n'));
            }
        }
    }

    #[test]
    fn changes_to_a_profile_keep_all_rules(tables in builder(), length in 1..9u64, one in 0..3usize) {
        let Ok(profile) = tables.build() else {
            return Ok(());
        };
        // Every thread but two is attributed to one of them.
        let threads = profile.threads().len();
        let into = |at: usize| ThreadIdx::from_index(if at == one { at } else { (one + 1) % 3 });
        let into: Vec<ThreadIdx> = (0..threads).map(into).collect();
        let accesses = |profile: &Profile| profile.threads().iter().map(|t| t.accesses).sum::<u64>();
        let merged = profile.clone().merge_threads(&into).unwrap();
        assert_rules(&merged);
        prop_assert_eq!(merged.threads().len(), 2);
        prop_assert_eq!(merged.pages().total(), profile.pages().total());
        prop_assert_eq!(accesses(&merged), accesses(&profile));
        prop_assert!(merged.communication().iter().all(|row| row.src != row.dst));

        let reversed = profile.clone().changed(|tables| tables.communication.reverse());
        prop_assert_eq!(&reversed.unwrap(), &profile);
        let events = |profile: &Profile| profile.communication().iter().map(|r| r.events).sum::<u64>();
        if let Ok(longer) = profile.clone().changed(|tables| tables.merge_slices(length, 0)) {
            assert_rules(&longer);
            prop_assert_eq!(events(&longer), events(&profile));
        }
    }
}

#[test]
fn random_tables_are_neither_all_refused_nor_all_accepted() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut made = || builder().new_tree(&mut runner).unwrap().current().build();
    let accepted = (0..500).filter(|_| made().is_ok()).count();
    assert!((50..450).contains(&accepted), "{accepted} of 500 accepted");
}

#[test]
fn a_path_is_that_of_one_thread_in_each_rank() {
    let of = |ranks: [Option<u32>; 2]| {
        let mut tables = ProfileBuilder::new(Meta::new("test", Clock::Wall), 4096);
        for rank in ranks {
            let thread = Thread::new("0.1");
            tables.thread(Thread { rank, ..thread });
        }
        tables.build()
    };
    let message = "table threads, row 1, column path: found \"0.1\" again, expected a path that row 0 does not have";
    assert_eq!(of([None, None]).unwrap_err().to_string(), message);
    assert_eq!(of([Some(3), Some(3)]).unwrap_err().to_string(), message);
    assert_eq!(of([Some(3), Some(4)]).unwrap().threads().len(), 2);
}

#[test]
fn rows_with_one_key_become_one_row() {
    let mut tables = ProfileBuilder::new(Meta::new("test", Clock::Wall), 4096);
    let (a, b) = (
        tables.thread(Thread::new("0")),
        tables.thread(Thread::new("0.1")),
    );
    tables.slices = Slice::even(10, 20).collect();
    let row = |slice, src, dst| CommRow {
        slice: SliceIdx(slice),
        src,
        dst,
        layer: Layer::WriteRead,
        events: 3,
        bytes: 24,
    };
    tables.communication = vec![row(1, a, b), row(0, b, a), row(1, a, b)];
    let head = |number, first_touch| PageHead {
        number: PageNumber(number),
        object: None,
        object_page: 0,
        first_touch,
        first_touch_time: 7,
        policy: None,
    };
    let access = |thread, reads| ThreadAccess {
        thread,
        reads,
        writes: 0,
    };
    tables.page(head(9, None), [access(b, 1)]);
    tables.page(head(4, None), [access(a, 2)]);
    tables.page(head(9, Some(a)), [access(a, 4), access(b, 8)]);
    let use_of = |slice, page| PageSlice {
        slice: SliceIdx(slice),
        page: PageNumber(page),
        thread: a,
        accesses: 5,
    };
    tables.page_slices = vec![use_of(1, 9), use_of(0, 9), use_of(1, 4), use_of(1, 9)];
    let profile = tables.build().unwrap();
    let rows: Vec<_> = profile.communication().iter().map(|r| r.events).collect();
    assert_eq!(rows, [3, 6]);
    let page = &profile.pages().pages()[1];
    assert_eq!(page.first_touch, Some(a));
    let cells = profile.pages().accesses(page);
    assert_eq!(
        cells.iter().map(|c| c.reads).collect::<Vec<_>>(),
        [4, 9],
        "by thread"
    );
    let rows: Vec<_> = profile
        .page_slices()
        .iter()
        .map(|row| (row.slice.0, row.page, row.accesses))
        .collect();
    assert_eq!(rows, [(0, 1, 5), (1, 0, 5), (1, 1, 10)]);
}

#[test]
fn an_error_names_table_row_and_what_was_found() {
    let mut tables = ProfileBuilder::new(Meta::new("test", Clock::Wall), 4096);
    let a = tables.thread(Thread::new("0"));
    tables.slices = Slice::even(10, 10).collect();
    let use_of = |page| PageSlice {
        slice: SliceIdx(0),
        page: PageNumber(page),
        thread: a,
        accesses: 5,
    };
    let head = PageHead {
        number: PageNumber(4),
        object: None,
        object_page: 0,
        first_touch: None,
        first_touch_time: 0,
        policy: None,
    };
    tables.page(head, []);
    tables.page_slices = vec![use_of(4), use_of(5)];
    let error = tables.build().unwrap_err();
    assert_eq!(
        error.to_string(),
        "table page_slices, row 1, column page: found 5, expected a page of the table `pages`"
    );
    assert_eq!((error.table, error.row), (Table::PageSlices, Some(1)));
}
