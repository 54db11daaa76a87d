//! Tests of what ocr.h specifies about misuse, ends of runs and memory, one property per test.

#[path = "../src/border/mod.rs"]
mod border;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use border::abi::{CollectiveParams, Dep, EdtFunction, EventParams, Guid, mode};
use border::blocks::*;
use border::events::*;
use border::labels::*;
use border::program::*;
use border::tasks::*;
use border::waits::*;
use numaloc_tasks::config::{Config, SchedulerKind};

static ONE: Mutex<()> = Mutex::new(());
static COUNT: AtomicU64 = AtomicU64::new(0);
const EINVAL: u8 = 22;
const EGUIDEXISTS: u8 = 100;

/// Runs a program; returns its outcome and its counter, which is reset for the next test.
fn run(function: EdtFunction, workers: usize) -> (numaloc_tasks::Outcome, u64) {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    COUNT.store(0, Ordering::SeqCst);
    let mut config = Config::on(numaloc_topology::resolve("this").unwrap());
    config.workers = Some(workers);
    if workers == 0 {
        config.scheduler = SchedulerKind::Single;
    }
    // SAFETY: the functions below keep to ocr.h, or break it where it says what happens.
    let outcome = unsafe { numaloc_tasks::run(config, function, &[b"test"]) }.expect("it runs");
    (outcome, COUNT.load(Ordering::SeqCst))
}

unsafe fn template(function: EdtFunction, params: u32, slots: u32) -> Guid {
    let mut guid = Guid::NULL;
    // SAFETY: as ocr.h says.
    let status = unsafe {
        ocrEdtTemplateCreate_internal(&mut guid, Some(function), params, slots, c"task".as_ptr())
    };
    assert_eq!(status, 0);
    guid
}

unsafe fn create(template: Guid, params: &[u64], finish: bool, output: *mut Guid) -> Guid {
    let mut guid = Guid::NULL;
    // Null if there are none: another pointer is refused.
    let params = if params.is_empty() {
        std::ptr::null()
    } else {
        params.as_ptr()
    };
    // SAFETY: as ocr.h says.
    let status = unsafe {
        ocrEdtCreate(
            &mut guid,
            template,
            u32::MAX - 1,
            params,
            u32::MAX - 1,
            std::ptr::null(),
            u16::from(finish),
            std::ptr::null(),
            output,
        )
    };
    assert_eq!(status, 0);
    guid
}

unsafe fn event(kind: u32) -> Guid {
    let mut guid = Guid::NULL;
    // SAFETY: as ocr.h says.
    assert_eq!(unsafe { ocrEventCreate(&mut guid, kind, 0) }, 0);
    guid
}

unsafe extern "C" fn count(_: u32, _: *mut u64, _: u32, _: *mut Dep) -> Guid {
    COUNT.fetch_add(1, Ordering::Relaxed);
    Guid::NULL
}

unsafe extern "C" fn misuse(_: u32, _: *mut u64, _: u32, _: *mut Dep) -> Guid {
    // SAFETY: what ocr.h allows, or says is answered with an error.
    unsafe {
        // Stale, never valid, and of the wrong kind.
        let once = event(1);
        assert_eq!(ocrEventSatisfy(once, Guid::NULL), 0);
        assert_eq!(ocrEventSatisfy(once, Guid::NULL), EINVAL);
        assert_eq!(ocrEventDestroy(once), EINVAL);
        for bad in [0x1234_5678_9abc, i64::MAX, -1, -2, 0] {
            assert_eq!(ocrEventSatisfy(Guid(bad), Guid::NULL), EINVAL, "{bad:#x}");
            assert_eq!(ocrDbDestroy(Guid(bad)), EINVAL);
            assert_eq!(ocrEdtTemplateDestroy(Guid(bad)), EINVAL);
        }
        // Double satisfaction: an error for STICKY, nothing for IDEM.
        let (sticky, idem) = (event(3), event(2));
        assert_eq!(ocrEventSatisfy(sticky, Guid::NULL), 0);
        assert_eq!(ocrEventSatisfy(sticky, Guid::NULL), EINVAL);
        assert_eq!(ocrEventSatisfy(idem, Guid::NULL), 0);
        assert_eq!(ocrEventSatisfy(idem, Guid::NULL), 0);
        // Slots: out of range, connected twice.
        let two = template(count, 0, 2);
        let edt = create(two, &[], false, std::ptr::null_mut());
        assert_eq!(ocrAddDependence(sticky, edt, 2, mode::RO), EINVAL);
        assert_eq!(ocrAddDependence(sticky, edt, 0, mode::RO), 0);
        assert_eq!(ocrAddDependence(sticky, edt, 0, mode::RO), EINVAL);
        assert_eq!(ocrAddDependence(sticky, edt, 1, 3), EINVAL);
        assert_eq!(ocrAddDependence(idem, edt, 1, mode::RO), 0);
        // Use after destroy.
        let (mut block, mut memory) = (Guid::NULL, std::ptr::null_mut());
        assert_eq!(
            ocrDbCreate(&mut block, &mut memory, 64, 0, std::ptr::null(), 0),
            0
        );
        assert_eq!(ocrDbDestroy(block), 0);
        assert_eq!(ocrDbDestroy(block), EINVAL, "gone: its holder destroyed it");
        assert_eq!(ocrDbRelease(block), EINVAL);
        // Labels: get or create, and use as they are.
        let (mut range, mut label) = (Guid::NULL, Guid::NULL);
        assert_eq!(ocrGuidRangeCreate(&mut range, 10, 6), 0);
        assert_eq!(ocrGuidFromIndex(&mut label, range, 10), EINVAL);
        assert_eq!(ocrGuidFromIndex(&mut label, range, 9), 0);
        assert_eq!(
            ocrEventSatisfy(label, Guid::NULL),
            EINVAL,
            "nothing there yet"
        );
        assert_eq!(ocrEventCreate(&mut label, 3, 0x300), 0);
        assert_eq!(ocrEventCreate(&mut label, 3, 0x300), EGUIDEXISTS);
        assert_eq!(ocrEventSatisfy(label, Guid::NULL), 0);
        assert_eq!(ocrEventDestroy(label), 0);
        assert_eq!(
            ocrEventCreate(&mut label, 3, 0x300),
            0,
            "the label is free again"
        );
        assert_eq!(ocrGuidMapDestroy(range), 0);
        assert_eq!(
            ocrEventSatisfy(label, Guid::NULL),
            EINVAL,
            "a label of no range"
        );
        ocrShutdown();
    }
    Guid::NULL
}

#[test]
fn a_thread_that_is_no_worker_gets_an_error_code() {
    const EPERM: u8 = 1;
    let mut guid = Guid::NULL;
    // SAFETY: as ocr.h says.
    let status = unsafe { ocrEventCreate(&mut guid, 1, 0) };
    assert_eq!((status, guid), (EPERM, Guid::NULL));
    assert_eq!(ocrDbRelease(Guid::NULL), EPERM);
    assert_eq!(ocrWait(Guid::NULL), Guid::ERROR);
    assert_eq!(ocrNbWorkers(), 0);
    assert_eq!(numaloc_ocr_replaying(), 0);
}

#[test]
fn misuse_gets_an_error_code() {
    let (outcome, counted) = run(misuse, 1);
    assert_eq!((outcome.status, counted), (0, 1));
}

unsafe extern "C" fn destroy_what_it_holds(_: u32, _: *mut u64, _: u32, _: *mut Dep) -> Guid {
    // SAFETY: as ocr.h says.
    unsafe {
        let (mut block, mut memory) = (Guid::NULL, std::ptr::null_mut());
        assert_eq!(
            ocrDbCreate(&mut block, &mut memory, 64, 0, std::ptr::null(), 0),
            0
        );
        let mut output = event(3);
        let mut edt = Guid::NULL;
        let status = ocrEdtCreate(
            &mut edt,
            template(count, 0, 1),
            0,
            std::ptr::null(),
            1,
            std::ptr::null(),
            8,
            std::ptr::null(),
            &mut output,
        );
        assert_eq!(status, 0);
        assert_eq!(ocrAddDependence(block, edt, 0, mode::EW), 0);
        // The other task waits for the block; destroying it gives the block to that task, for the last time.
        assert_eq!(ocrDbDestroy(block), 0);
        assert_eq!(ocrWait(output), Guid::NULL);
        assert_eq!(COUNT.load(Ordering::SeqCst), 1);
        assert_eq!(ocrDbDestroy(block), EINVAL, "gone");
        ocrShutdown();
    }
    Guid::NULL
}

#[test]
fn destroying_a_block_ends_the_hold_of_the_destroying_task() {
    for workers in [0, 1, 2] {
        let (outcome, counted) = run(destroy_what_it_holds, workers);
        assert_eq!((outcome.status, counted), (0, 1));
    }
}

unsafe extern "C" fn collective_twice(_: u32, _: *mut u64, _: u32, _: *mut Dep) -> Guid {
    // SAFETY: as ocr.h says; the parameters are those of a COLLECTIVE event.
    unsafe {
        let (mut range, mut label) = (Guid::NULL, Guid::NULL);
        assert_eq!(ocrGuidRangeCreate(&mut range, 1, 10), 0);
        assert_eq!(ocrGuidFromIndex(&mut label, range, 0), 0);
        let params = EventParams {
            collective: CollectiveParams {
                max_generations: 1,
                contributors: 2,
                contributors_here: 2,
                values: 1,
                arity: 2,
                operator: 3 | 7 << 2, // the sum of u64
                kind: 1,              // allreduce
                reuse_block: 0,
            },
        };
        let sum = template(sum_of_seven, 0, 1);
        for rank in 0..2_u32 {
            // Each contributor creates the event, then contributes.
            assert_eq!(ocrEventCreateParams(&mut label, 7, 0x100, &params), 0);
            let edt = create(sum, &[], false, std::ptr::null_mut());
            assert_eq!(ocrAddDependenceSlot(label, rank, edt, 0, mode::RO), 0);
            let value = 3 + u64::from(rank);
            let value = (&raw const value).cast();
            assert_eq!(ocrEventCollectiveSatisfySlot(label, value, rank), 0);
        }
        assert_eq!(
            ocrEventCreateParams(&mut label, 7, 0x300, &params),
            EGUIDEXISTS
        );
    }
    Guid::NULL
}

unsafe extern "C" fn sum_of_seven(_: u32, _: *mut u64, _: u32, slots: *mut Dep) -> Guid {
    // SAFETY: as the runtime promises tasks.
    assert_eq!(unsafe { (*slots).ptr.cast::<u64>().read() }, 7);
    if COUNT.fetch_add(1, Ordering::SeqCst) == 1 {
        ocrShutdown();
    }
    Guid::NULL
}

#[test]
fn contributors_that_each_create_a_collective_event_share_one() {
    for workers in [0, 2] {
        let (outcome, counted) = run(collective_twice, workers);
        assert_eq!((outcome.status, counted), (0, 2));
    }
}

unsafe extern "C" fn depend_on_labels(_: u32, _: *mut u64, _: u32, _: *mut Dep) -> Guid {
    // SAFETY: as ocr.h says.
    unsafe {
        let (mut range, mut block, mut wake, mut late) =
            (Guid::NULL, Guid::NULL, Guid::NULL, Guid::NULL);
        assert_eq!(ocrGuidRangeCreate(&mut range, 3, 1), 0);
        assert_eq!(ocrGuidFromIndex(&mut block, range, 0), 0);
        assert_eq!(ocrGuidFromIndex(&mut wake, range, 1), 0);
        assert_eq!(ocrGuidFromIndex(&mut late, range, 2), 0);
        let edt = create(template(nine, 0, 2), &[], false, std::ptr::null_mut());
        // A block and an event that do not exist yet, and a task that does not.
        assert_eq!(ocrAddDependence(block, edt, 0, mode::RO), 0);
        assert_eq!(
            ocrAddDependence(block, edt, 0, mode::RO),
            EINVAL,
            "the slot is taken"
        );
        assert_eq!(ocrAddDependence(wake, edt, 1, mode::NULL), 0);
        assert_eq!(ocrAddDependence(wake, late, 0, mode::NULL), 0);
        let creator = create(
            template(create_labelled, 3, 0),
            &[block.0 as u64, wake.0 as u64, late.0 as u64],
            false,
            std::ptr::null_mut(),
        );
        assert_ne!(creator, Guid::NULL);
    }
    Guid::NULL
}

unsafe extern "C" fn create_labelled(_: u32, params: *mut u64, _: u32, _: *mut Dep) -> Guid {
    // SAFETY: as ocr.h says, and as the runtime promises tasks.
    unsafe {
        let mut block = Guid(*params as i64);
        let mut wake = Guid(*params.add(1) as i64);
        let mut late = Guid(*params.add(2) as i64);
        let mut memory = std::ptr::null_mut();
        assert_eq!(
            ocrDbCreate(&mut block, &mut memory, 8, 0x300, std::ptr::null(), 0),
            0
        );
        memory.cast::<u64>().write(9);
        assert_eq!(ocrDbRelease(block), 0);
        assert_eq!(ocrEventCreate(&mut wake, 3, 0x300), 0);
        let status = ocrEdtCreate(
            &mut late,
            template(count, 0, 1),
            0,
            std::ptr::null(),
            1,
            std::ptr::null(),
            0x300,
            std::ptr::null(),
            std::ptr::null_mut(),
        );
        assert_eq!(status, 0);
        assert_eq!(ocrEventSatisfy(wake, Guid::NULL), 0);
    }
    Guid::NULL
}

unsafe extern "C" fn nine(_: u32, _: *mut u64, _: u32, slots: *mut Dep) -> Guid {
    // SAFETY: as the runtime promises tasks.
    assert_eq!(unsafe { (*slots).ptr.cast::<u64>().read() }, 9);
    COUNT.fetch_add(1, Ordering::Relaxed);
    ocrShutdown();
    Guid::NULL
}

#[test]
fn a_dependence_on_a_label_waits_for_what_is_created_under_it() {
    for workers in [0, 1, 3] {
        let (outcome, counted) = run(depend_on_labels, workers);
        assert_eq!((outcome.status, counted), (0, 2));
    }
}

unsafe extern "C" fn never_satisfied(_: u32, _: *mut u64, _: u32, _: *mut Dep) -> Guid {
    // SAFETY: as ocr.h says.
    unsafe { create(template(count, 0, 1), &[], false, std::ptr::null_mut()) };
    Guid::NULL
}

#[test]
fn a_deadlock_ends_the_run_with_an_error() {
    for workers in [0, 1, 3] {
        let (outcome, counted) = run(never_satisfied, workers.max(1));
        assert_eq!((outcome.status, counted), (1, 0));
    }
}

unsafe extern "C" fn scope_done(_: u32, params: *mut u64, _: u32, _: *mut Dep) -> Guid {
    // SAFETY: as the runtime promises tasks.
    assert_eq!(COUNT.load(Ordering::SeqCst), unsafe { *params });
    ocrShutdown();
    Guid::NULL
}

/// params: depth. Creates a tree of nested FINISH tasks.
unsafe extern "C" fn nested(_: u32, params: *mut u64, _: u32, _: *mut Dep) -> Guid {
    COUNT.fetch_add(1, Ordering::Relaxed);
    // SAFETY: as ocr.h says.
    unsafe {
        if *params > 0 {
            let this = template(nested, 1, 0);
            for child in 0..3 {
                create(this, &[*params - 1], child == 1, std::ptr::null_mut());
            }
        }
    }
    Guid::NULL
}

unsafe extern "C" fn finish_main(_: u32, _: *mut u64, _: u32, _: *mut Dep) -> Guid {
    // SAFETY: as ocr.h says.
    unsafe {
        let all: u64 = (0..=7).map(|level| 3_u64.pow(level)).sum();
        let done = create(
            template(scope_done, 1, 1),
            &[all],
            false,
            std::ptr::null_mut(),
        );
        let gated = template(nested_gate, 0, 1);
        let mut output = Guid::NULL;
        let mut root = Guid::NULL;
        let status = ocrEdtCreate(
            &mut root,
            gated,
            0,
            std::ptr::null(),
            1,
            std::ptr::null(),
            1,
            std::ptr::null(),
            &mut output,
        );
        assert_eq!(status, 0);
        assert_eq!(ocrAddDependence(output, done, 0, mode::NULL), 0);
        assert_eq!(ocrAddDependence(Guid::NULL, root, 0, mode::NULL), 0);
    }
    Guid::NULL
}

unsafe extern "C" fn nested_gate(_: u32, _: *mut u64, _: u32, _: *mut Dep) -> Guid {
    // SAFETY: as ocr.h says.
    unsafe { create(template(nested, 1, 0), &[7], true, std::ptr::null_mut()) };
    Guid::NULL
}

#[test]
fn a_finish_scope_waits_for_everything_below_it() {
    for workers in [1, 2, 4] {
        assert_eq!(run(finish_main, workers).0.status, 0);
    }
}

/// params: tasks remaining. One block and one event per task: memory must be reused.
unsafe extern "C" fn chain(_: u32, params: *mut u64, _: u32, _: *mut Dep) -> Guid {
    // SAFETY: as ocr.h says.
    unsafe {
        let remaining = *params;
        if remaining == 0 {
            ocrShutdown();
            return Guid::NULL;
        }
        let (mut block, mut memory) = (Guid::NULL, std::ptr::null_mut());
        assert_eq!(
            ocrDbCreate(&mut block, &mut memory, 128, 0, std::ptr::null(), 0),
            0
        );
        assert_eq!(ocrDbDestroy(block), 0);
        let this = template(chain, 1, 0);
        create(this, &[remaining - 1], false, std::ptr::null_mut());
        assert_eq!(ocrEdtTemplateDestroy(this), 0);
    }
    Guid::NULL
}

unsafe extern "C" fn chain_main(_: u32, _: *mut u64, _: u32, _: *mut Dep) -> Guid {
    // SAFETY: as ocr.h says.
    unsafe {
        create(
            template(chain, 1, 0),
            &[200_000],
            false,
            std::ptr::null_mut(),
        )
    };
    Guid::NULL
}

#[test]
fn memory_does_not_grow_with_the_number_of_tasks() {
    for workers in [1, 4] {
        let (outcome, _) = run(chain_main, workers);
        assert_eq!(outcome.status, 0);
        assert!(outcome.stats.counters.tasks > 200_000);
        assert!(
            outcome.stats.object_bytes < 1 << 20,
            "{} bytes of objects",
            outcome.stats.object_bytes
        );
    }
}
