//! Whatever valid profile or plan is written is read again as it was.

use std::collections::BTreeMap;

use numaloc_formats::matrix::{MatrixFormat, read_matrix, write_matrix_to};
use numaloc_formats::profile::{Parts, read, read_parts, write};
use numaloc_model::conditions::{Conditions, Repeats, VARIABLES, WorkSharing};
use numaloc_model::pages::{PageHead, ThreadAccess};
use numaloc_model::plan::{
    ObjectKey, PagePlan, PhasePlan, Plan, Predicted, PredictedMove, Provenance, ThreadPlan, Trigger,
};
use numaloc_model::profile::{
    Amount, CellError, Clock, CommRow, Meta, Object, ObjectKind, PageSlice, Profile,
    ProfileBuilder, SharedLine, Slice, SlowLoad, Thread, ThreadRole, Variable,
};
use numaloc_model::roles::{
    NodePlan, RoleKey, RoleMemory, RolePlan, RolesPlan, Seats, SegmentPages, SegmentPlan,
};
use numaloc_model::{
    Layer, LogicalNode, LogicalPu, MarkKind, MarkPlace, MarkRow, ObjectIdx, OsNode, OsPu,
    PageNumber, SliceIdx, ThreadIdx,
};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Text with the characters that files treat specially, and any other.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9./]{0,8}",
        "[\"\\\\,;|\n\r\t\u{0} äß漢🦀]{0,6}",
        any::<String>()
    ]
}

/// Counts whose sums over a table are within the limit, small and large.
fn count() -> impl Strategy<Value = u64> {
    prop_oneof![0..9u64, 0..1u64 << 50]
}

/// Amounts and shares, with bits that only exact conversions keep.
fn amount() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 0.0..1.0f64, 0.0..1e300f64]
}

prop_compose! {
    fn meta()(
        texts in (vec(text(), 0..4), text(), vec(text(), 0..3), option::of(text())),
        shape in (any::<bool>(), 0..13u32, any::<bool>(), prop_oneof![Just(1.0), 1e-9..1.0f64]),
        environment in environment(),
        sharing in vec((select(WorkSharing::ALL.to_vec()), text()), 0..3),
        repeats in option::of((any::<u32>(), option::of(-1.0..1.0f64), any::<bool>())),
    ) -> Meta {
        let (command, frontend, notes, dram_source) = texts;
        let (is_wall, line_shift, complete, sampled) = shape;
        Meta {
            window: None,
            command,
            frontend,
            clock: if is_wall { Clock::Wall } else { Clock::Virtual },
            line_size: 1 << line_shift,
            complete,
            notes,
            sampled,
            dram_source,
            conditions: Conditions {
                environment,
                sharing,
                repeats: repeats.map(|(runs, correlation, same_threads)| Repeats {
                    runs,
                    correlation,
                    same_threads,
                }),
            },
        }
    }
}

/// Variables that are kept, by name.
fn environment() -> impl Strategy<Value = Vec<(String, String)>> {
    let variables = btree_map(select(&VARIABLES[..]), text(), 0..4);
    variables.prop_map(|found| {
        let found = found.into_iter();
        found
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    })
}

prop_compose! {
    fn thread()(
        (start_of_path, label) in (text(), option::of(text())),
        (pid, tid, rank) in any::<(u32, u32, Option<u32>)>(),
        (start, end) in any::<(u64, u64)>(),
        counts in (count(), count(), count(), option::of(count())),
        (name, title) in (option::of(text()), option::of(text())),
    ) -> Thread {
        let (accesses, read_bytes, write_bytes, dram_bytes) = counts;
        Thread {
            path: start_of_path,
            role: ThreadRole::from_label(label),
            pid,
            tid,
            rank,
            start,
            end,
            accesses,
            read_bytes,
            write_bytes,
            dram_bytes,
            name,
            title,
        }
    }
}

prop_compose! {
    fn object()(
        (kind, name) in (select(ObjectKind::ALL.to_vec()), text()),
        (size, order, base) in (0..1u64 << 40, any::<u32>(), any::<u64>()),
        owner in option::of(any::<Index>()),
        parts in vec((text(), 0.0..1.0f64, 0.0..1.0f64, option::of(text())), 0..3),
    ) -> (Object, Option<Index>) {
        let variable = |(name, offset, size_of_rest, source): (String, f64, f64, _)| {
            let offset = (offset * size as f64) as u64;
            let size = (size_of_rest * (size - offset) as f64) as u64;
            Variable { name, offset, size, source }
        };
        let object = Object {
            kind,
            name,
            size,
            order,
            thread: None,
            base,
            variables: parts.into_iter().map(variable).collect(),
        };
        (object, owner)
    }
}

/// A page: object, page in it, first toucher among its threads, time of the first touch, and accesses by thread.
type PageUse = (
    Option<Index>,
    u64,
    Option<Index>,
    u64,
    Vec<(Index, (u64, u64))>,
);

/// Pages by number. Files list a page by the threads that accessed it, so each has one.
fn pages() -> impl Strategy<Value = BTreeMap<u64, PageUse>> {
    let accesses = vec((any::<Index>(), (count(), count())), 1..4);
    let page = (
        option::of(any::<Index>()),
        any::<u64>(),
        option::of(any::<Index>()),
        any::<u64>(),
        accesses,
    );
    btree_map(any::<u64>(), page, 0..6)
}

/// Slow loads: what defines them, and page, thread and number of each row.
type SlowLoads = Option<(String, Vec<(Index, Index, u64)>)>;

/// Rows of other tables, as indexes of what they refer to.
#[derive(Clone, Debug)]
struct Rows {
    communication: Vec<(Index, Index, Index, Layer, u64, u64)>,
    page_slices: Vec<(Index, Index, Index, u64)>,
    cell_errors: Vec<(Layer, Index, Index, f64)>,
    shared_lines: Vec<(u64, Option<Index>, u64, u64, u64)>,
    marks: Vec<(MarkKind, String, u64, Index, u64)>,
    slow_loads: SlowLoads,
}

prop_compose! {
    fn rows()(
        communication in vec(
            (any::<Index>(), any::<Index>(), any::<Index>(), select(Layer::ALL.to_vec()), count(), count()),
            0..9,
        ),
        page_slices in vec((any::<Index>(), any::<Index>(), any::<Index>(), count()), 0..9),
        cell_errors in vec((select(Layer::ALL.to_vec()), any::<Index>(), any::<Index>(), amount()), 0..4),
        shared_lines in vec(
            (any::<u64>(), option::of(any::<Index>()), any::<u64>(), count(), count()),
            0..4,
        ),
        marks in vec(
            (select(MarkKind::ALL.to_vec()), text(), 1..u64::MAX, any::<Index>(), any::<u64>()),
            0..4,
        ),
        slow_loads in option::of((text(), vec((any::<Index>(), any::<Index>(), count()), 0..4))),
    ) -> Rows {
        Rows { communication, page_slices, cell_errors, shared_lines, marks, slow_loads }
    }
}

prop_compose! {
    /// A valid profile with one thread and one slice at least.
    fn profile()(
        (meta, page_shift) in (meta(), 9..35u32),
        threads in vec(thread(), 1..6),
        borders in vec(any::<(u64, u64)>(), 1..5),
        objects in vec(object(), 0..4),
        pages in pages(),
        rows in rows(),
    ) -> Profile {
        let mut tables = ProfileBuilder::new(meta, 1 << page_shift);
        let count = threads.len();
        let thread = |at: &Index| ThreadIdx::from_index(at.index(count));
        for (number, mut thread) in threads.into_iter().enumerate() {
            // The path is unique by its last digit.
            thread.path += &number.to_string();
            tables.thread(thread);
        }
        let slices = borders.len();
        let slice = |at: &Index| SliceIdx::from_index(at.index(slices));
        let order = |(a, b): (u64, u64)| Slice { start: a.min(b), end: a.max(b) };
        tables.slices = borders.into_iter().map(order).collect();
        tables.slices.sort_by_key(|slice| slice.start);
        let count = objects.len();
        let object = |at: &Index| (count > 0).then(|| ObjectIdx::from_index(at.index(count)));
        for (mut object, owner) in objects {
            object.thread = owner.as_ref().map(thread);
            tables.object(object);
        }
        let numbers: Vec<u64> = pages.keys().copied().collect();
        for (number, (of, object_page, first, first_touch_time, accesses)) in pages {
            let accesses: BTreeMap<ThreadIdx, (u64, u64)> =
                accesses.iter().map(|(at, counts)| (thread(at), *counts)).collect();
            // Files have rows for threads that used a page, or placed it.
            let used = accesses.values().any(|&(reads, writes)| reads + writes > 0);
            let users: Vec<ThreadIdx> = accesses.keys().copied().collect();
            let head = PageHead {
                number: PageNumber(number),
                object: of.as_ref().and_then(object),
                object_page,
                first_touch: first.map(|at| *at.get(&users)).or((!used).then(|| users[0])),
                first_touch_time,
                policy: None,
            };
            let access = |(thread, (reads, writes))| ThreadAccess { thread, reads, writes };
            tables.page(head, accesses.into_iter().map(access));
        }
        tables.communication = rows.communication.iter().map(|(at, src, dst, layer, events, bytes)| {
            let (slice, src, dst) = (slice(at), thread(src), thread(dst));
            CommRow { slice, src, dst, layer: *layer, events: *events, bytes: *bytes }
        }).collect();
        if !numbers.is_empty() {
            let page = |at: &Index| PageNumber(*at.get(&numbers));
            tables.page_slices = rows.page_slices.iter().map(|(at, of, user, accesses)| PageSlice {
                slice: slice(at),
                page: page(of),
                thread: thread(user),
                accesses: *accesses,
            }).collect();
            tables.slow_loads = rows.slow_loads.as_ref().map(|(source, rows)| {
                let row = |(of, user, loads): &(Index, Index, u64)| {
                    SlowLoad { page: page(of), thread: thread(user), loads: *loads }
                };
                (source.clone(), rows.iter().map(row).collect())
            });
        }
        tables.cell_errors = rows.cell_errors.iter().map(|(layer, src, dst, relative_error)| CellError {
            layer: *layer,
            src: thread(src),
            dst: thread(dst),
            relative_error: *relative_error,
        }).collect();
        tables.shared_lines = rows.shared_lines.iter().map(|(line, of, object_offset, true_events, false_events)| {
            SharedLine {
                line: *line,
                object: of.as_ref().and_then(object),
                object_offset: *object_offset,
                events: true_events + false_events,
                false_events: *false_events,
            }
        }).collect();
        tables.marks = rows.marks.iter().map(|(kind, name, occurrence, by, time)| MarkRow {
            place: MarkPlace { kind: *kind, name: name.clone() },
            occurrence: *occurrence,
            thread: thread(by),
            time: *time,
        }).collect();
        tables.build().expect("rows refer to what exists, sums are within the limit")
    }
}

fn thread_plans() -> impl Strategy<Value = Vec<ThreadPlan>> {
    vec((text(), any::<u32>(), any::<u32>()), 0..4).prop_map(|threads| {
        let threads = threads.into_iter().enumerate();
        let thread = |(number, (path, pu, os_pu))| ThreadPlan {
            path: format!("{path}{number}"),
            pu: LogicalPu(pu),
            os_pu: OsPu(os_pu),
        };
        threads.map(thread).collect()
    })
}

/// Ranges of pages of `objects` objects that do not overlap, in any order.
fn page_plans(objects: u32) -> impl Strategy<Value = Vec<PagePlan>> {
    let row = (
        0..objects.max(1),
        0..1u64 << 20,
        any::<u32>(),
        0..1u32 << 15,
    );
    let rows = vec(row, if objects == 0 { 0..1 } else { 0..6 });
    rows.prop_map(move |rows| {
        let rows = rows.into_iter().filter(|_| objects > 0).enumerate();
        let plan = |(number, (object, pages, node, os_node))| PagePlan {
            object,
            first_page: (number as u64) << 20,
            pages,
            node: LogicalNode(node),
            os_node: OsNode(os_node),
        };
        rows.map(plan).collect::<Vec<_>>()
    })
    .prop_shuffle()
}

fn object_keys() -> impl Strategy<Value = Vec<ObjectKey>> {
    let kind = select(ObjectKind::ALL.to_vec());
    let key = (kind, text(), option::of(text()), any::<u64>(), any::<u32>());
    let key = key.prop_map(|(kind, name, creator, size, order)| ObjectKey {
        kind,
        name,
        creator,
        size,
        order,
    });
    vec(key, 0..4)
}

prop_compose! {
    fn provenance()(
        names in (text(), text(), text()),
        parameters in vec((text(), text()), 0..4),
        (command, left_out) in (vec(text(), 0..4), vec(text(), 0..3)),
        environment in option::of(environment()),
    ) -> Provenance {
        let (thread_policy, page_policy, tool) = names;
        Provenance { thread_policy, page_policy, parameters, command, tool, environment, left_out }
    }
}

prop_compose! {
    fn predicted()(
        (cost, remote, total, node_imbalance) in (amount(), amount(), amount(), amount()),
        (remote_accesses, accesses) in any::<(u64, u64)>(),
    ) -> Predicted {
        Predicted { cost, remote, total, node_imbalance, remote_accesses, accesses }
    }
}

prop_compose! {
    fn trigger()(
        (kind, name) in (select(MarkKind::ALL.to_vec()), text()),
        occurrence in 1..u64::MAX,
        every in option::of(1..u64::MAX),
    ) -> Trigger {
        Trigger { place: MarkPlace { kind, name }, occurrence, every }
    }
}

prop_compose! {
    fn phase_plan(objects: u32)(
        at in 0.0..=1.0f64,
        trigger in option::of(trigger()),
        predicted in option::of((amount(), amount())),
        threads in thread_plans(),
        pages in page_plans(objects),
    ) -> PhasePlan {
        let predicted = predicted.map(|(gain_s, cost_s)| PredictedMove { gain_s, cost_s });
        PhasePlan { at, trigger, predicted, threads, pages }
    }
}

/// A name of a role or segment.
fn name() -> impl Strategy<Value = String> {
    "[ -~\u{e4}\u{20ac}]{1,12}"
}

/// Nodes of [`roles_plan`], at least one.
fn on() -> impl Strategy<Value = Vec<LogicalNode>> {
    vec((0..3u32).prop_map(LogicalNode), 1..4)
}

fn seats() -> impl Strategy<Value = Seats> {
    prop_oneof![
        Just(Seats::Left),
        on().prop_map(Seats::Any),
        on().prop_map(Seats::Each)
    ]
}

prop_compose! {
    fn role_plan(number: u32)(
        (name, called, routine) in (name(), option::of(name()), option::of(name())),
        (parent, creator) in (option::of(any::<u32>()), option::of(any::<u32>())),
        (members, seats) in (any::<u64>(), seats()),
        memory in select(RoleMemory::NAMES.map(|(memory, _)| memory).to_vec()),
        is_process in any::<bool>(),
    ) -> RolePlan {
        let before = |other: Option<u32>| other.filter(|_| number > 0).map(|other| other % number);
        // Each is recognised by something else.
        let called = Some(format!("{number}{}", called.unwrap_or_default()));
        let key = RoleKey { called, routine, is_process, parent: before(parent) };
        RolePlan { name, key, creator: before(creator), members, seats, memory }
    }
}

prop_compose! {
    fn segment_plan(roles: u32)(
        (name, memory) in (name(), name()),
        kind in select(vec![ObjectKind::Mapping, ObjectKind::Shared]),
        role in 0..roles,
        (one, other) in any::<(u64, u64)>(),
        pages in prop_oneof![
            on().prop_map(SegmentPages::Interleave),
            (0..3u32).prop_map(|node| SegmentPages::Prefer(LogicalNode(node)))
        ],
    ) -> SegmentPlan {
        SegmentPlan { name, kind, memory, role, bytes: (one.min(other), one.max(other)), pages }
    }
}

prop_compose! {
    fn some_roles()(count in 1..4u32)(
        roles in (0..count).map(role_plan).collect::<Vec<_>>(),
        segments in vec(segment_plan(count), 0..3),
        pus in vec(vec(0..1000u32, 1..4), 3),
        os in 0..1000u32,
    ) -> RolesPlan {
        let node = |(node, os_pus)| NodePlan { node: LogicalNode(node), os_node: OsNode(os + node), os_pus };
        RolesPlan { nodes: (0..).zip(pus).map(node).collect(), roles, segments }
    }
}

fn roles_plan() -> impl Strategy<Value = RolesPlan> {
    prop_oneof![Just(RolesPlan::default()), some_roles()]
}

prop_compose! {
    fn plan()(objects in object_keys())(
        (machine, fingerprint) in (text(), text()),
        (provenance, predicted) in (provenance(), predicted()),
        page_shift in 9..35u32,
        threads in thread_plans(),
        pages in page_plans(objects.len() as u32),
        mut schedule in vec(phase_plan(objects.len() as u32), 0..3),
        objects in Just(objects),
        roles in roles_plan(),
    ) -> Plan {
        schedule.sort_by(|a, b| a.at.total_cmp(&b.at));
        let page_size = 1 << page_shift;
        Plan { machine, fingerprint, provenance, predicted, page_size, threads, objects, pages, schedule, roles }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn profiles_are_read_as_they_were_written(profile in profile()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.numaloc");
        write(&profile, &path, false).unwrap();
        let sums = read_parts(&path, Parts { page_slices: false }).unwrap();
        prop_assert_eq!(sums.accesses_by_slice(), profile.accesses_by_slice());
        prop_assert_eq!(read(&path).unwrap(), profile);
    }

    #[test]
    fn matrices_of_profiles_are_read_as_they_were_written(profile in profile()) {
        let folder = tempfile::tempdir().unwrap();
        for format in MatrixFormat::ALL {
            let path = folder.path().join(format!("a.{}", format.name()));
            for layer in Layer::choices() {
                let matrix = profile.matrix(layer, Amount::of_layer(layer)).unwrap();
                let mut file = std::fs::File::create(&path).unwrap();
                write_matrix_to(&mut file, &matrix, format).unwrap();
                prop_assert_eq!(read_matrix(&path, format, false).unwrap(), matrix);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn plans_are_read_as_they_were_written(plan in plan()) {
        prop_assert_eq!(plan.check(), Ok(()));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        numaloc_formats::plan::write(&plan, &path, false).unwrap();
        prop_assert_eq!(numaloc_formats::plan::read(&path).unwrap(), plan);
    }
}
