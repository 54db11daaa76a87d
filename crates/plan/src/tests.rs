//! Plans of a profile whose best mapping and placement are known.

use std::borrow::Cow;
use std::cell::RefCell;

use numaloc_model::pages::PageHead;
use numaloc_model::profile::{
    Clock, CommRow, Meta, Profile, ProfileBuilder, Slice, Thread, ThreadRole,
};
use numaloc_model::{Layer, LogicalNode, PageNumber, PageUsage, SliceIdx, ThreadAccess, ThreadIdx};
use numaloc_topology::{Topology, resolve};

use crate::{
    Choice, Observer, Options, PlanError, PlanRequest, Planned, Scope, Subject, Unit, Unobserved,
    Work, plan,
};

/// Four threads, the last a run-time helper that thread 0 created. Threads 0 and 2 communicate, 1 has one page to
/// itself, 0 and 2 share another that 2 uses more.
fn profile() -> Profile {
    profile_with(&two_pages())
}

fn two_pages() -> PageUsage {
    let mut pages = PageUsage::new(4096);
    let uses: [&[(u32, u64)]; 2] = [&[(1, 50)], &[(0, 40), (2, 60)]];
    for (number, uses) in uses.into_iter().enumerate() {
        let head = PageHead {
            number: PageNumber(number as u64),
            object: None,
            object_page: 0,
            first_touch: Some(ThreadIdx(0)),
            first_touch_time: 0,
            policy: None,
        };
        let access = |&(thread, reads): &(u32, u64)| ThreadAccess {
            thread: ThreadIdx(thread),
            reads,
            writes: 0,
        };
        pages.push(head, uses.iter().map(access).collect());
    }
    pages
}

fn profile_with(pages: &PageUsage) -> Profile {
    let thread = |(at, label): (u32, Option<&str>)| Thread {
        role: ThreadRole::from_label(label.map(str::to_owned)),
        pid: 1,
        tid: at + 1,
        end: 10,
        accesses: 100,
        read_bytes: 800,
        ..Thread::new(["0", "0.1", "0.2", "0.3"][at as usize])
    };
    let row = |src: u32, dst: u32, layer: Layer, events: u64, bytes: u64| CommRow {
        slice: SliceIdx(0),
        src: ThreadIdx(src),
        dst: ThreadIdx(dst),
        layer,
        events,
        bytes,
    };
    let mut tables = ProfileBuilder::new(
        Meta {
            command: vec!["./app".to_owned()],
            ..Meta::new("test", Clock::Virtual)
        },
        pages.page_size(),
    );
    tables.usage(pages);
    tables.threads = [(0, None), (1, None), (2, None), (3, Some("runtime helper"))]
        .map(thread)
        .into();
    tables.slices = vec![Slice { start: 0, end: 10 }];
    tables.communication = vec![
        row(0, 2, Layer::WriteRead, 100, 800),
        row(2, 1, Layer::SharedLine, 7, 56),
    ];
    tables.build().unwrap()
}

fn machine() -> Topology {
    resolve("numa:2 core:2 pu:1").unwrap()
}

fn subject(scope: &Scope) -> Result<Subject<'static>, PlanError> {
    Subject::new(Cow::Owned(profile()), scope)
}

/// Calls `look` with the plan of these policies for three threads.
fn planned(threads: &str, pages: &str, observer: &dyn Observer, look: impl FnOnce(&Planned)) {
    let (machine, options) = (machine(), Options::default());
    let scope = Scope {
        exclude_helpers: true,
        ..Scope::default()
    };
    let request = PlanRequest {
        subject: &subject(&scope).unwrap(),
        machine: &machine,
        choice: &Choice::new(threads, pages).unwrap(),
        options: &options,
    };
    look(&plan(request, observer).unwrap());
}

#[test]
fn partners_share_a_node_and_pages_follow_their_users() {
    planned("numaloc", "locality", &Unobserved, |planned| {
        let [threads] = planned.threads() else {
            panic!("one policy")
        };
        let machine = machine();
        let node = |at: usize| machine.node_of(threads.mapped.mapping.pu[at]);
        assert_eq!(node(0), node(2));
        assert_ne!(node(0), node(1));
        assert_eq!((threads.value.remote, threads.value.total), (0.0, 100.0));
        let [first_touch, locality] = planned.pages() else {
            panic!("the baseline and one policy")
        };
        // Thread 0 touches both pages first; thread 1 makes 50 of 150 accesses.
        assert_eq!(
            (first_touch.policy, first_touch.remote),
            ("first-touch", 50)
        );
        let homes: Vec<LogicalNode> = locality.placement.node.iter().flatten().copied().collect();
        assert_eq!((locality.remote, homes), (0, vec![node(1), node(2)]));
        let plan = planned.assemble().plan;
        assert_eq!(
            (plan.predicted.remote_accesses, plan.predicted.accesses),
            (0, 150)
        );
        assert_eq!(plan.provenance.thread_policy, "numaloc");
        assert_eq!(plan.provenance.left_out, ["0.3"]);
        let paths: Vec<&str> = plan.threads.iter().map(|thread| &*thread.path).collect();
        assert_eq!(paths, ["0", "0.1", "0.2"]);
    });
}

#[test]
fn the_joint_answer_comes_first_for_threads_and_last_for_pages() {
    planned("joint", "locality", &Unobserved, |planned| {
        let names: Vec<&str> = planned
            .threads()
            .iter()
            .map(|answer| answer.policy)
            .collect();
        assert_eq!(names[..2], ["joint", "packed"]);
        assert_eq!(names.len(), 1 + numaloc_mapping::registry().len());
        assert_eq!(
            planned
                .pages()
                .last()
                .map(|answer| (answer.policy, answer.remote)),
            Some(("joint", 0))
        );
        assert_eq!(planned.assemble().plan.provenance.page_policy, "joint");
    });
}

#[test]
fn threads_left_to_the_system_are_listed_as_left_out() {
    planned("os", "locality", &Unobserved, |planned| {
        let plan = planned.assemble().plan;
        assert!(plan.threads.is_empty());
        assert_eq!(plan.provenance.left_out, ["0.3", "0", "0.1", "0.2"]);
        assert_eq!(planned.threads()[0].mapped.remarks.len(), 1);
    });
}

#[test]
fn what_a_run_without_a_plan_does_is_rated_by_the_recorded_communication() {
    planned("numaloc", "locality", &Unobserved, |planned| {
        let found = planned.unplanned();
        // Bound in order and spread, threads 0 and 1 are on the first node: 60 accesses of thread 2 are remote.
        assert_eq!((found.free, found.bound), (0.5, (60, 150)));
        assert_eq!(found.communication, (100.0, 100.0));
    });
}

/// Records the work it observes.
#[derive(Default)]
struct Notes(RefCell<Vec<(bool, Work)>>);

impl Observer for Notes {
    fn begin(&self, work: Work) {
        self.0.borrow_mut().push((true, work));
    }

    fn end(&self, work: Work) {
        self.0.borrow_mut().push((false, work));
    }
}

#[test]
fn each_piece_of_work_ends_before_the_next_begins_and_belongs_to_an_answer() {
    for (threads, pages) in [("packed", "locality"), ("joint", "joint")] {
        let notes = Notes::default();
        planned(threads, pages, &notes, |planned| {
            let notes = notes.0.borrow();
            for pair in notes.chunks(2) {
                assert_eq!((pair[0].0, pair[1].0, pair[0].1), (true, false, pair[1].1));
            }
            let done = |work: Work| notes.iter().any(|(_, done)| *done == work);
            assert!(planned.threads().iter().all(|answer| done(answer.work())));
            assert!(planned.pages().iter().all(|answer| done(answer.work())));
        });
    }
}

#[test]
fn the_layer_is_the_one_asked_for_or_the_default_of_the_analysis() {
    let found = subject(&Scope::default()).unwrap();
    let default = numaloc_analysis::characterise::default_layer(found.profile());
    assert_eq!(
        (found.layer(), default),
        (Layer::WriteRead, Layer::WriteRead)
    );
    assert_eq!((found.unit(), found.left_out().len()), (Unit::Events, 0));
    let asked = |layer| {
        subject(&Scope {
            layer: Some(layer),
            ..Scope::default()
        })
    };
    assert_eq!(
        asked(Layer::SharedLine)
            .unwrap()
            .communication()
            .matrix()
            .total(),
        7.0
    );
    let error = asked(Layer::Message).unwrap_err();
    let present = vec![Layer::WriteRead, Layer::SharedLine];
    assert_eq!(
        error,
        PlanError::NoLayer {
            layer: Layer::Message,
            present
        }
    );
}

#[test]
fn messages_and_shared_lines_of_ranks_become_one_layer_in_cache_lines() {
    let mut tables = profile().into_builder();
    for (thread, rank) in tables.threads.iter_mut().zip([0, 1, 0, 0]) {
        thread.rank = Some(rank);
    }
    tables.communication.push(CommRow {
        dst: ThreadIdx(1),
        layer: Layer::Message,
        events: 1,
        bytes: 640,
        ..tables.communication[0]
    });
    let profile = tables.build().unwrap();
    let found = Subject::new(Cow::Owned(profile.clone()), &Scope::default()).unwrap();
    assert!(found.is_hybrid());
    assert_eq!(
        (found.unit(), found.layer()),
        (Unit::CacheLines, Layer::WriteRead)
    );
    // 640 bytes are ten lines; the helper is left out without being asked for.
    assert_eq!(found.communication().matrix().total(), 110.0);
    assert_eq!(found.left_out(), ["0.3"]);
    let scope = Scope {
        layer: Some(Layer::Message),
        ..Scope::default()
    };
    let found = Subject::new(Cow::Owned(profile), &scope).unwrap();
    assert_eq!(
        (found.unit(), found.communication().matrix().total()),
        (Unit::Bytes, 640.0)
    );
}

#[test]
fn failures_say_which_part_of_the_request_is_wrong() {
    let (machine, options) = (machine(), Options::default());
    let profile = profile_with(&PageUsage::new(4096));
    let subject = Subject::new(Cow::Owned(profile), &Scope::default()).unwrap();
    let failure = |threads: &str, pages: &str, options: &Options| {
        let request = PlanRequest {
            subject: &subject,
            machine: &machine,
            choice: &Choice::new(threads, pages).unwrap(),
            options,
        };
        plan(request, &Unobserved).err()
    };
    assert_eq!(
        failure("shared-pages", "locality", &options),
        Some(PlanError::NoPageUse)
    );
    let sized = Options {
        page_size: Some(100),
        ..options.clone()
    };
    assert!(matches!(
        failure("packed", "locality", &sized),
        Some(PlanError::Place(_))
    ));
    assert_eq!(failure("packed", "locality", &options), None);
}
