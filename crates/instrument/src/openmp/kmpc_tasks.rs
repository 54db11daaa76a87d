//! libomp's entry points for tasks.
//!
//! The compiler has libomp allocate a task (its function, room for shared and for private data), fills it, and submits
//! it. We request more room to keep a [`Tail`] in front of the shared data, and pass [`run`] in place of the task's
//! function. Where libomp copies a task, for the parts of a loop, it copies the Tail too.

use std::ffi::{c_int, c_longlong, c_ulonglong, c_void};

use crate::openmp::ident::Ident;
use crate::openmp::sharing::hands_out;
use crate::openmp::tasks::{self, Dependence, Task};
use crate::openmp::team;
use crate::real::real;

/// A task's function: takes the thread's number and the task.
type Entry = unsafe extern "C-unwind" fn(c_int, *mut Allocated) -> c_int;

/// The part of a task that compilers and libomp share (`kmp_task_t`) and that is used here.
#[repr(C)]
pub struct Allocated {
    shared: *mut c_void,
    entry: Option<Entry>,
}

/// Our data for a task.
#[repr(C)]
struct Tail {
    entry: Entry,
    task: Task,
    /// Previous place of the thread that runs it without [`run`].
    outer: team::Place,
    /// The event that completes it if it is detached, otherwise 0.
    event: usize,
}

/// `kmp_depend_info_t`.
#[repr(C)]
pub struct Depend {
    address: u64,
    length: usize,
    flags: u8,
}

/// Our data for a task, if we allocated it.
///
/// # Safety
/// The task has not ended.
unsafe fn tail<'a>(task: *mut Allocated) -> Option<&'a mut Tail> {
    // SAFETY: a task that libomp allocated; with our entry, a Tail precedes the shared data.
    unsafe {
        let ours = (*task)
            .entry
            .is_some_and(|entry| entry as usize == run as *const () as usize);
        ours.then(|| &mut *(*task).shared.cast::<Tail>().sub(1))
    }
}

/// Runs a task, or the next part of an untied one.
unsafe extern "C-unwind" fn run(thread: c_int, task: *mut Allocated) -> c_int {
    // SAFETY: libomp calls this for tasks that have it as their entry, before they end.
    let Some(tail) = (unsafe { tail(task) }) else {
        return 0;
    };
    let entry = tail.entry;
    let mut result = 0;
    // SAFETY: the program's own function.
    tail.task.run(|| result = unsafe { entry(thread, task) });
    result
}

/// Allocates a task.
///
/// # Safety
/// As libomp's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_omp_task_alloc(
    ident: Ident,
    thread: c_int,
    flags: c_int,
    size: usize,
    shared: usize,
    entry: Entry,
) -> *mut Allocated {
    let real = real!(__kmpc_omp_task_alloc: fn(Ident, c_int, c_int, usize, usize, Entry) -> *mut Allocated);
    let room = size_of::<Tail>() + shared;
    // SAFETY: guaranteed by the caller, with our function and more room.
    let task = team::inside(|| unsafe { real(ident, thread, flags, size, room, run) });
    // SAFETY: the `room` bytes from `shared` on, a multiple of 8, are ours until the task ends.
    unsafe {
        let ours = (*task).shared.cast::<Tail>();
        ours.write(Tail {
            entry,
            task: Task::new(),
            outer: team::place(),
            event: 0,
        });
        (*task).shared = ours.add(1).cast();
    }
    task
}

/// Detaches a task: creates the event that completes it in addition to the end of its body.
///
/// # Safety
/// As libomp's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_task_allow_completion_event(
    ident: Ident,
    thread: c_int,
    task: *mut Allocated,
) -> usize {
    let real = real!(__kmpc_task_allow_completion_event: fn(Ident, c_int, *mut Allocated) -> usize);
    // SAFETY: guaranteed by the caller; the task has not begun.
    unsafe {
        let event = team::inside(|| real(ident, thread, task));
        if let Some(tail) = tail(task) {
            tail.event = event;
            tail.task.detach(event, &[]);
        }
        event
    }
}

/// Reads the lists of a task's dependences.
///
/// # Safety
/// The lists have as many entries as stated.
unsafe fn dependences(lists: [(c_int, *const Depend); 2]) -> Vec<Dependence> {
    const WRITES: u8 = !1;
    let list = |(count, list): (c_int, *const Depend)| {
        // SAFETY: guaranteed by the caller.
        (0..count.max(0) as usize).map(move |index| unsafe { &*list.add(index) })
    };
    let all = lists.into_iter().flat_map(list);
    all.map(|depend| (depend.address, depend.flags & WRITES != 0))
        .collect()
}

/// Submits a task.
///
/// # Safety
/// As libomp's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_omp_task(
    ident: Ident,
    thread: c_int,
    task: *mut Allocated,
) -> c_int {
    hands_out!(__kmpc_omp_task);
    let real = real!(__kmpc_omp_task: fn(Ident, c_int, *mut Allocated) -> c_int);
    // SAFETY: guaranteed by the caller; the task has not begun.
    unsafe {
        if let Some(tail) = tail(task) {
            tail.task.ready();
        }
        team::inside(|| real(ident, thread, task))
    }
}

/// Submits a task with dependences.
///
/// # Safety
/// As libomp's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_omp_task_with_deps(
    ident: Ident,
    thread: c_int,
    task: *mut Allocated,
    count: c_int,
    list: *mut Depend,
    more: c_int,
    more_list: *mut Depend,
) -> c_int {
    hands_out!(__kmpc_omp_task_with_deps);
    let real = real!(__kmpc_omp_task_with_deps: fn(Ident, c_int, *mut Allocated, c_int, *mut Depend, c_int, *mut Depend) -> c_int);
    // SAFETY: guaranteed by the caller; the task has not begun.
    unsafe {
        if let Some(tail) = tail(task) {
            let depends = dependences([(count, list), (more, more_list)]);
            if tail.event != 0 {
                tail.task.detach(tail.event, &depends);
            }
            tail.task.depend(depends);
            tail.task.ready();
        }
        team::inside(|| real(ident, thread, task, count, list, more, more_list))
    }
}

/// Waits for the dependences of a task that the calling thread runs immediately.
///
/// # Safety
/// As libomp's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_omp_wait_deps(
    ident: Ident,
    thread: c_int,
    count: c_int,
    list: *mut Depend,
    more: c_int,
    more_list: *mut Depend,
) {
    let real =
        real!(__kmpc_omp_wait_deps: fn(Ident, c_int, c_int, *mut Depend, c_int, *mut Depend));
    // SAFETY: guaranteed by the caller.
    unsafe {
        team::inside(|| real(ident, thread, count, list, more, more_list));
        tasks::wait_for(&dependences([(count, list), (more, more_list)]));
    }
}

/// Begins a task that the calling thread runs immediately.
///
/// # Safety
/// As libomp's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_omp_task_begin_if0(
    ident: Ident,
    thread: c_int,
    task: *mut Allocated,
) {
    let real = real!(__kmpc_omp_task_begin_if0: fn(Ident, c_int, *mut Allocated));
    // SAFETY: guaranteed by the caller; the task has not begun.
    unsafe {
        team::inside(|| real(ident, thread, task));
        if let Some(tail) = tail(task) {
            tail.outer = tail.task.begin();
        }
    }
}

/// Ends a task that the calling thread runs immediately.
///
/// # Safety
/// As libomp's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_omp_task_complete_if0(
    ident: Ident,
    thread: c_int,
    task: *mut Allocated,
) {
    let real = real!(__kmpc_omp_task_complete_if0: fn(Ident, c_int, *mut Allocated));
    // SAFETY: guaranteed by the caller; the task ends here.
    unsafe {
        if let Some(tail) = tail(task) {
            tail.task.end(tail.outer);
        }
        team::inside(|| real(ident, thread, task));
    }
}

macro_rules! loops {
    ($($name:ident($($more:ident: $type:ty),*);)*) => {$(
        /// Creates tasks for the parts of a loop, and waits for them unless `nogroup` is set.
        ///
        /// # Safety
        /// As libomp's.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C-unwind" fn $name(
            ident: Ident,
            thread: c_int,
            task: *mut Allocated,
            deferred: c_int,
            lower: *mut c_ulonglong,
            upper: *mut c_ulonglong,
            step: c_longlong,
            nogroup: c_int,
            schedule: c_int,
            grain: c_ulonglong,
            $($more: $type),*
        ) {
            hands_out!($name);
            let real = real!($name: fn(Ident, c_int, *mut Allocated, c_int, *mut c_ulonglong, *mut c_ulonglong, c_longlong, c_int, c_int, c_ulonglong, $($type),*));
            if nogroup == 0 {
                team::begin_group();
            }
            // SAFETY: guaranteed by the caller; no part of the loop has begun.
            unsafe {
                if let Some(tail) = tail(task) {
                    tail.task.join_group();
                    tail.task.ready();
                }
                team::inside(|| real(ident, thread, task, deferred, lower, upper, step, nogroup, schedule, grain, $($more),*));
            }
            if nogroup == 0 {
                team::end_group();
            }
        }
    )*};
}

loops! {
    __kmpc_taskloop(copy: *mut c_void);
    __kmpc_taskloop_5(modifier: c_int, copy: *mut c_void);
}

/// Waits for the tasks that the calling task has created.
///
/// # Safety
/// As libomp's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_omp_taskwait(ident: Ident, thread: c_int) -> c_int {
    let real = real!(__kmpc_omp_taskwait: fn(Ident, c_int) -> c_int);
    // SAFETY: guaranteed by the caller.
    let status = team::inside(|| unsafe { real(ident, thread) });
    tasks::wait_for_children();
    status
}

/// Begins a taskgroup.
///
/// # Safety
/// As libomp's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_taskgroup(ident: Ident, thread: c_int) {
    let real = real!(__kmpc_taskgroup: fn(Ident, c_int));
    // SAFETY: guaranteed by the caller.
    team::inside(|| unsafe { real(ident, thread) });
    team::begin_group();
}

/// Waits for all tasks that were created in the taskgroup.
///
/// # Safety
/// As libomp's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_end_taskgroup(ident: Ident, thread: c_int) {
    let real = real!(__kmpc_end_taskgroup: fn(Ident, c_int));
    // SAFETY: guaranteed by the caller.
    team::inside(|| unsafe { real(ident, thread) });
    team::end_group();
}

macro_rules! reductions {
    ($($name:ident;)*) => {$(
        /// Begins a construct with task reductions, which is a taskgroup.
        ///
        /// # Safety
        /// As libomp's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            ident: Ident,
            thread: c_int,
            of_loop: c_int,
            count: c_int,
            data: *mut c_void,
        ) -> *mut c_void {
            let real = real!($name: fn(Ident, c_int, c_int, c_int, *mut c_void) -> *mut c_void);
            // SAFETY: guaranteed by the caller.
            let reductions = team::inside(|| unsafe { real(ident, thread, of_loop, count, data) });
            team::begin_group();
            reductions
        }
    )*};
}

reductions! {
    __kmpc_taskred_modifier_init;
    __kmpc_task_reduction_modifier_init;
}

/// Ends a construct with task reductions: waits for its tasks.
///
/// # Safety
/// As libomp's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_task_reduction_modifier_fini(
    ident: Ident,
    thread: c_int,
    of_loop: c_int,
) {
    let real = real!(__kmpc_task_reduction_modifier_fini: fn(Ident, c_int, c_int));
    // SAFETY: guaranteed by the caller.
    team::inside(|| unsafe { real(ident, thread, of_loop) });
    team::end_group();
}
