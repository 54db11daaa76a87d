//! Threads and processes: follows creation and end, so that accesses are recorded for the right one.
//!
//! `pthread_create` passes the new thread its path and clock directly; `fork` gives the child its own recording;
//! threads end through a thread-specific key, which also runs after `pthread_exit` and cancellation. Processes made by
//! `vfork` or `posix_spawn` execute another program at once and are recorded only if that is instrumented too.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use numaloc_trace::{PendingThread, Record};

use crate::current::PENDING_THREADS;
use crate::libc::objects;
use crate::openmp::team;
use crate::real::real;
use crate::{current, marks, process};

type Routine = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// Arguments of a new thread's first function.
struct StartArguments {
    routine: Routine,
    argument: *mut c_void,
    pending: PendingThread,
    /// Number of the thread that creates it.
    creator: u32,
    /// Whether a run-time library creates it for itself.
    inside: bool,
}

/// Key whose destructor ends a thread's tracer.
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);
thread_local! {
    /// Path of the child that this thread is forking, and its clock at the start: a leaked box, null if there is none.
    static CHILD: Cell<*mut (String, u64)> = const { Cell::new(null_mut()) };
}

/// Starts the recording if one is requested, and registers callbacks for the end of threads and process.
pub(crate) fn start() {
    if current::engine().is_some() {
        return;
    }
    crate::libc::copies::find();
    process::start();
    if current::engine().is_none() {
        return;
    }
    let mut key = 0;
    // SAFETY: plain registrations of functions that live as long as the program.
    unsafe {
        if libc::pthread_key_create(&raw mut key, Some(end_of_thread)) == 0 {
            KEY.store(key, Ordering::Release);
        }
        libc::atexit(end_of_process);
        libc::pthread_atfork(
            Some(before_fork),
            Some(after_fork_parent),
            Some(after_fork_child),
        );
    }
}

extern "C" fn end_of_process() {
    current::end_process();
}

unsafe extern "C" fn end_of_thread(_: *mut c_void) {
    // SAFETY: pthread_self cannot fail.
    let me = unsafe { libc::pthread_self() };
    // A thread that joins this one takes its clock from here.
    current::with(|tracer| tracer.release(me));
    current::end_thread();
}

/// The new thread's first function. Holds nothing to drop while the program's routine runs, because `pthread_exit` and
/// cancellation unwind through here.
unsafe extern "C-unwind" fn begin(arguments: *mut c_void) -> *mut c_void {
    current::expect();
    // SAFETY: `pthread_create` below passed a leaked StartArguments, to this thread alone.
    let StartArguments {
        routine,
        argument,
        pending,
        creator,
        inside,
    } = *unsafe { Box::from_raw(arguments.cast::<StartArguments>()) };
    if let Some(engine) = current::engine() {
        current::install(engine.attach(pending, current::tid() as u32));
        objects::describe_stack(creator);
        let key = KEY.load(Ordering::Acquire);
        if key != u32::MAX {
            // SAFETY: the key was created and is never deleted; any non-null value arms its destructor.
            unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(1)) };
        }
    }
    PENDING_THREADS.fetch_sub(1, Ordering::Relaxed);
    if inside {
        team::begin_inside();
    }
    // SAFETY: the program's own routine and argument.
    unsafe { routine(argument) }
}

/// Creates a thread, and passes it its path.
///
/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    let create = real!(pthread_create: fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Routine, *mut c_void) -> c_int);
    marks::creation("pthread_create");
    let mut pending = None;
    current::with(|tracer| {
        pending = Some((
            tracer.pending_thread(routine as usize as u64),
            tracer.number(),
        ));
    });
    objects::describe_file_of(routine as usize as u64);
    let Some((pending, creator)) = pending else {
        // SAFETY: guaranteed by the caller.
        return unsafe { create(thread, attributes, routine, argument) };
    };
    let arguments = Box::into_raw(Box::new(StartArguments {
        routine,
        argument,
        pending,
        creator,
        inside: team::is_inside(),
    }));
    PENDING_THREADS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: guaranteed by the caller; `begin` takes the StartArguments.
    let status = unsafe { create(thread, attributes, begin, arguments.cast()) };
    if status == 0 {
        current::with(|tracer| tracer.creator.count_thread());
    } else {
        PENDING_THREADS.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: no thread was created, so the StartArguments are still ours.
        drop(unsafe { Box::from_raw(arguments) });
    }
    status
}

/// Joins a thread and takes its clock.
///
/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_join(thread: libc::pthread_t, result: *mut *mut c_void) -> c_int {
    let join = real!(pthread_join: fn(libc::pthread_t, *mut *mut c_void) -> c_int);
    // SAFETY: guaranteed by the caller.
    let status = unsafe { join(thread, result) };
    current::with(|tracer| tracer.acquire(thread));
    status
}

/// Names a thread; a name that a thread sets for itself is recorded.
///
/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setname_np(thread: libc::pthread_t, name: *const c_char) -> c_int {
    let set = real!(pthread_setname_np: fn(libc::pthread_t, *const c_char) -> c_int);
    // SAFETY: guaranteed by the caller.
    let status = unsafe { set(thread, name) };
    // SAFETY: pthread_self cannot fail.
    if status == 0 && thread == unsafe { libc::pthread_self() } {
        // SAFETY: a C string, which the real function has read.
        let name = unsafe { CStr::from_ptr(name) };
        current::with(|tracer| {
            tracer.record(&Record::ThreadName {
                thread: tracer.number(),
                name: name.to_string_lossy().into_owned(),
            });
        });
    }
    status
}

unsafe extern "C" fn before_fork() {
    current::flush_thread();
    let mut child_start = null_mut();
    current::with(|tracer| {
        child_start = Box::into_raw(Box::new((tracer.creator.upcoming_process(), tracer.time())));
    });
    CHILD.set(child_start);
}

/// Takes the child that the calling thread is forking.
fn child() -> Option<Box<(String, u64)>> {
    let child_start = CHILD.replace(null_mut());
    // SAFETY: from `before_fork`, and taken once.
    (!child_start.is_null()).then(|| unsafe { Box::from_raw(child_start) })
}

unsafe extern "C" fn after_fork_parent() {
    drop(child());
    current::with(|tracer| tracer.creator.count_process());
}

unsafe extern "C" fn after_fork_child() {
    let parent = current::engine();
    // SAFETY: a child has one thread.
    unsafe { process::forget_parent() };
    if let (Some(parent), Some(child)) = (parent, child()) {
        let (path, clock) = *child;
        let program = std::env::current_exe().unwrap_or_default();
        if let Ok(engine) = parent.forked(path, clock, &program.to_string_lossy()) {
            // Its files, heap and stack are in the parent's journal.
            current::adopt_engine(engine);
        }
    }
}

/// Ends the process without exit handlers, after writing the counts.
///
/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    current::end_process();
    // SAFETY: ends every thread of the process; its only argument is the status.
    unsafe { libc::syscall(libc::SYS_exit_group, status) };
    std::process::abort();
}

/// Like [`_exit`].
///
/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: the same function under its other name.
    unsafe { _exit(status) }
}
