//! Random task graphs against a sequential reference interpreter, on every scheduler.
//!
//! A program is a list of tasks over a few data blocks. Task i waits for some earlier tasks (through
//! events of a random type), holds some blocks in random modes, and folds what it reads into what it
//! writes. Writers of a block are ordered by an extra dependence on the last task that used it, readers
//! on its last writer, so that every legal schedule gives the reference's result.

#[path = "../src/border/mod.rs"]
mod border;

use std::sync::Mutex;

use border::abi::{Dep, Guid, mode};
use border::affinities::*;
use border::blocks::*;
use border::events::*;
use border::program::*;
use border::tasks::*;
use numaloc_tasks::config::{Config, SchedulerKind, Stealing};
use numaloc_tasks::memory::Allocator;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Task {
    waits_for: Vec<usize>,
    uses: Vec<(usize, u32)>,
    event: u32,
    finish: bool,
    node: u64,
}

#[derive(Clone, Debug)]
struct Program {
    blocks: usize,
    tasks: Vec<Task>,
}

const EVENTS: [u32; 4] = [1, 2, 3, 5]; // ONCE, IDEM, STICKY, COUNTED

fn program() -> impl Strategy<Value = Program> {
    (1_usize..6, 1_usize..60).prop_flat_map(|(blocks, tasks)| {
        let one = |at: usize| {
            let waits = prop::collection::vec(0..at.max(1), 0..4.min(at + 1));
            let modes = prop::sample::select(vec![mode::RO, mode::RW, mode::EW, mode::CONST]);
            let uses = prop::collection::btree_map(0..blocks, modes, 0..=blocks.min(4));
            (waits, uses, 0..4_usize, any::<bool>(), 0..4_u64).prop_map(
                move |(mut waits_for, uses, event, finish, node)| {
                    if at == 0 {
                        waits_for.clear();
                    }
                    waits_for.sort_unstable();
                    waits_for.dedup();
                    Task {
                        waits_for,
                        uses: uses.into_iter().collect(),
                        event: EVENTS[event],
                        finish,
                        node,
                    }
                },
            )
        };
        (0..tasks)
            .map(one)
            .collect::<Vec<_>>()
            .prop_map(move |tasks| Program { blocks, tasks })
    })
}

fn writes(mode: u32) -> bool {
    matches!(mode, mode::RW | mode::EW)
}

fn step(task: usize, values: &mut [(u64, bool)]) {
    let sum = values.iter().fold(task as u64 + 1, |sum, (value, _)| {
        sum.wrapping_mul(31).wrapping_add(*value)
    });
    for (at, (value, writes)) in values.iter_mut().enumerate() {
        if *writes {
            *value = value.wrapping_mul(3).wrapping_add(sum ^ at as u64);
        }
    }
}

/// The reference: runs the tasks in order, without the runtime.
fn interpret(program: &Program) -> Vec<u64> {
    let mut blocks: Vec<u64> = (0..program.blocks as u64).collect();
    for (at, task) in program.tasks.iter().enumerate() {
        let mut values: Vec<(u64, bool)> = task
            .uses
            .iter()
            .map(|&(block, mode)| (blocks[block], writes(mode)))
            .collect();
        step(at, &mut values);
        for (&(block, _), (value, _)) in task.uses.iter().zip(values) {
            blocks[block] = value;
        }
    }
    blocks
}

/// The current program and its results.
static CURRENT: Mutex<Option<(Program, Vec<u64>)>> = Mutex::new(None);

fn with<T>(body: impl FnOnce(&mut (Program, Vec<u64>)) -> T) -> T {
    body(CURRENT.lock().unwrap().as_mut().expect("a program"))
}

unsafe extern "C" fn nothing(_: u32, _: *mut u64, _: u32, _: *mut Dep) -> Guid {
    Guid::NULL
}

/// params: number of the task, its event. The first slots are its blocks.
unsafe extern "C" fn work(_: u32, params: *mut u64, slots: u32, deps: *mut Dep) -> Guid {
    // SAFETY: as the runtime promises tasks.
    unsafe {
        let at = *params as usize;
        let event = Guid(*params.add(1) as i64);
        let task = with(|current| current.0.tasks[at].clone());
        let mut values: Vec<(u64, bool)> = (0..task.uses.len())
            .map(|slot| {
                let dep = &*deps.add(slot);
                assert!(!dep.ptr.is_null(), "slot {slot} of {slots}");
                (*dep.ptr.cast::<u64>(), writes(task.uses[slot].1))
            })
            .collect();
        step(at, &mut values);
        for (slot, (value, writes)) in values.into_iter().enumerate() {
            if writes {
                *(*deps.add(slot)).ptr.cast::<u64>() = value;
            }
        }
        if task.finish {
            // Creates something below itself, so that the scope has work.
            let mut template = Guid::NULL;
            assert_eq!(
                ocrEdtTemplateCreate_internal(
                    &mut template,
                    Some(nothing),
                    0,
                    0,
                    c"nothing".as_ptr()
                ),
                0
            );
            for _ in 0..3 {
                let status = ocrEdtCreate(
                    std::ptr::null_mut(),
                    template,
                    0,
                    std::ptr::null(),
                    0,
                    std::ptr::null(),
                    0,
                    std::ptr::null(),
                    std::ptr::null_mut(),
                );
                assert_eq!(status, 0);
            }
            assert_eq!(ocrEdtTemplateDestroy(template), 0);
        }
        for slot in 0..task.uses.len() {
            assert_eq!(ocrDbRelease((*deps.add(slot)).guid), 0);
        }
        assert_eq!(ocrEventSatisfy(event, Guid::NULL), 0);
        Guid::NULL
    }
}

unsafe extern "C" fn collect(_: u32, _: *mut u64, slots: u32, deps: *mut Dep) -> Guid {
    // SAFETY: as the runtime promises tasks.
    unsafe {
        for slot in 0..with(|current| current.0.blocks) {
            let dep = &*deps.add(slot);
            let value = *dep.ptr.cast::<u64>();
            with(|current| current.1.push(value));
            assert_eq!(ocrDbDestroy(dep.guid), 0);
        }
        let _ = slots;
        ocrShutdown();
        Guid::NULL
    }
}

unsafe extern "C" fn main_edt(_: u32, _: *mut u64, _: u32, _: *mut Dep) -> Guid {
    let program = with(|current| current.0.clone());
    // SAFETY: the calls as ocr.h describes them.
    unsafe {
        let mut blocks = Vec::new();
        for at in 0..program.blocks as u64 {
            let (mut block, mut memory) = (Guid::NULL, std::ptr::null_mut());
            assert_eq!(
                ocrDbCreate(&mut block, &mut memory, 8, 0, std::ptr::null(), 0),
                0
            );
            *memory.cast::<u64>() = at;
            assert_eq!(ocrDbRelease(block), 0);
            blocks.push(block);
        }
        // Order required by the data.
        let mut before: Vec<Vec<usize>> =
            program.tasks.iter().map(|t| t.waits_for.clone()).collect();
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); program.blocks];
        let mut writer: Vec<Option<usize>> = vec![None; program.blocks];
        for (at, task) in program.tasks.iter().enumerate() {
            for &(block, mode) in &task.uses {
                if writes(mode) {
                    before[at].append(&mut users[block]);
                    before[at].extend(writer[block]);
                    writer[block] = Some(at);
                } else {
                    before[at].extend(writer[block]);
                    users[block].push(at);
                }
            }
            before[at].sort_unstable();
            before[at].dedup();
        }
        let tasks = program.tasks.len();
        let mut gate = Guid::NULL;
        assert_eq!(ocrEventCreate(&mut gate, 3, 0), 0);
        // Every task's event is also waited for by the collector.
        let mut waiters = vec![1_u64; tasks];
        for earlier in before.iter().flatten() {
            waiters[*earlier] += 1;
        }
        let events: Vec<Guid> = program
            .tasks
            .iter()
            .zip(&waiters)
            .map(|(task, &count)| {
                let mut event = Guid::NULL;
                let params = border::abi::EventParams { count };
                assert_eq!(
                    ocrEventCreateParams(&mut event, task.event, 0, &raw const params),
                    0
                );
                event
            })
            .collect();
        let mut collector = Guid::NULL;
        let mut template = Guid::NULL;
        ocrEdtTemplateCreate_internal(
            &mut template,
            Some(collect),
            0,
            u32::MAX,
            c"collect".as_ptr(),
        );
        let slots = (program.blocks + tasks) as u32;
        let status = ocrEdtCreate(
            &mut collector,
            template,
            0,
            std::ptr::null(),
            slots,
            std::ptr::null(),
            0,
            std::ptr::null(),
            std::ptr::null_mut(),
        );
        assert_eq!(status, 0);
        for (at, &event) in events.iter().enumerate() {
            assert_eq!(
                ocrAddDependence(event, collector, (program.blocks + at) as u32, mode::NULL),
                0
            );
        }
        for (at, &block) in blocks.iter().enumerate() {
            assert_eq!(ocrAddDependence(block, collector, at as u32, mode::RO), 0);
        }
        ocrEdtTemplateCreate_internal(&mut template, Some(work), 2, u32::MAX, c"work".as_ptr());
        for (at, task) in program.tasks.iter().enumerate() {
            let params = [at as u64, events[at].0 as u64];
            let slots = (task.uses.len() + before[at].len() + 1) as u32;
            let mut edt = Guid::NULL;
            let mut hint = border::abi::Hint::default();
            let mut affinity = Guid::NULL;
            ocrHintInit(&mut hint, 1);
            let mut nodes = 0;
            assert_eq!(ocrAffinityCount(1, &mut nodes), 0);
            assert_eq!(ocrAffinityGetAt(1, task.node % nodes, &mut affinity), 0);
            ocrHintSetValue(&mut hint, 3, ocrAffinityToHintValue(affinity));
            let mut output = Guid::NULL;
            let status = ocrEdtCreate(
                &mut edt,
                template,
                u32::MAX - 1,
                params.as_ptr(),
                slots,
                std::ptr::null(),
                u16::from(task.finish),
                &raw const hint,
                if task.finish {
                    &mut output
                } else {
                    std::ptr::null_mut()
                },
            );
            assert_eq!(status, 0);
            for (slot, earlier) in before[at].iter().enumerate() {
                let slot = (task.uses.len() + slot) as u32;
                assert_eq!(ocrAddDependence(events[*earlier], edt, slot, mode::NULL), 0);
            }
            for (slot, &(block, mode)) in task.uses.iter().enumerate() {
                assert_eq!(ocrAddDependence(blocks[block], edt, slot as u32, mode), 0);
            }
            // A ONCE event must not fire before all dependences on it were added; the others may, which also tests
            // dependences on events that have fired already.
            let source = if task.event == 1 { gate } else { Guid::NULL };
            assert_eq!(ocrAddDependence(source, edt, slots - 1, mode::NULL), 0);
        }
        assert_eq!(ocrEventSatisfy(gate, Guid::NULL), 0);
    }
    Guid::NULL
}

/// One program at a time in this process.
static ONE: Mutex<()> = Mutex::new(());

fn run_on(program: &Program, config: Config) -> Vec<u64> {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    *CURRENT.lock().unwrap() = Some((program.clone(), Vec::new()));
    // SAFETY: main_edt keeps to ocr.h.
    let outcome = unsafe { numaloc_tasks::run(config, main_edt, &[b"graph"]) }.expect("it runs");
    assert_eq!((outcome.status, outcome.stats.complaints), (0, 0));
    CURRENT.lock().unwrap().take().expect("a program").1
}

fn machine(spec: &str) -> Config {
    let mut config = Config::on(numaloc_topology::resolve(spec).expect("a machine"));
    config.checked = true;
    config
}

/// Schedulers and machines on which every program must give the same result.
fn configurations() -> Vec<(&'static str, Config)> {
    let mut all = Vec::new();
    for workers in [1, 4] {
        let mut config = machine("this");
        config.workers = Some(workers);
        all.push(("threads", config));
    }
    for stealing in [Stealing::Node, Stealing::Surplus] {
        let mut config = machine("numa:4 pu:2");
        config.threads = true;
        config.stealing = Some(stealing);
        all.push(("threads on four virtual nodes", config));
    }
    let mut config = machine("this");
    config.scheduler = SchedulerKind::Single;
    config.allocator = Allocator::System;
    all.push(("single", config));
    if numaloc_tasks::config::HAS_TBB {
        let mut config = machine("this");
        config.scheduler = SchedulerKind::Tbb;
        config.workers = Some(3);
        all.push(("tbb", config));
    }
    for scheduler in [SchedulerKind::Numa, SchedulerKind::Tbb] {
        let mut config = machine("numa:4 pu:2");
        config.scheduler = scheduler;
        all.push(("simulated", config));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_scheduler_gives_the_references_result(program in program()) {
        let expected = interpret(&program);
        for (name, config) in configurations() {
            prop_assert_eq!(&run_on(&program, config), &expected, "{}", name);
        }
    }
}
