//! Threads and processes: whose accesses are they.
//!
//! `pthread_create` hands the new thread its path and clock directly; `fork` gives the child a recording
//! of its own; threads end through a thread-specific key, which also runs after `pthread_exit` and
//! cancellation. Processes made by `vfork` or `posix_spawn` execute another program at once and are seen
//! only if that program is instrumented too.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use numaloc_trace::{PendingThread, Record};

use crate::current::UNBORN;
use crate::real::real;
use crate::{current, memory, team};

type Routine = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// What a new thread needs to know.
struct Birth {
    routine: Routine,
    argument: *mut c_void,
    pending: PendingThread,
    /// Number of the thread that creates it.
    creator: u32,
    /// A run-time library makes it, for itself.
    inside: bool,
}

/// Key whose destructor ends a thread's tracer.
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);
thread_local! {
    /// Path of the child that this thread is forking, and the clock at its birth: from a box, null when there is none.
    static CHILD: Cell<*mut (String, u64)> = const { Cell::new(null_mut()) };
}

/// Starts the recording if one is asked for, and hooks the ends of threads and process.
pub(crate) fn start() {
    if current::engine().is_some() {
        return;
    }
    crate::copies::find();
    current::start();
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
    // Whoever joins this thread takes its clock from here.
    current::with(|tracer| tracer.release(me));
    current::end_thread();
}

/// The new thread's first function. Holds nothing to drop while the program's routine runs, because
/// `pthread_exit` and cancellation unwind through here.
unsafe extern "C-unwind" fn begin(birth: *mut c_void) -> *mut c_void {
    current::expect();
    // SAFETY: `pthread_create` below passed a leaked Birth, to this thread alone.
    let Birth {
        routine,
        argument,
        pending,
        creator,
        inside,
    } = *unsafe { Box::from_raw(birth.cast::<Birth>()) };
    if let Some(engine) = current::engine() {
        current::install(engine.attach(pending, current::tid() as u32));
        memory::describe_stack(creator);
        let key = KEY.load(Ordering::Acquire);
        if key != u32::MAX {
            // SAFETY: the key was created and is never deleted; any non-null value arms its destructor.
            unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(1)) };
        }
    }
    UNBORN.fetch_sub(1, Ordering::Relaxed);
    if inside {
        team::begin_inside();
    }
    // SAFETY: the program's own routine and argument.
    unsafe { routine(argument) }
}

/// Creates a thread that knows its path.
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
    let mut pending = None;
    current::with(|tracer| {
        pending = Some((
            tracer.pending_thread(routine as usize as u64),
            tracer.number(),
        ));
    });
    memory::describe_file_of(routine as usize as u64);
    let Some((pending, creator)) = pending else {
        // SAFETY: the caller's promises.
        return unsafe { create(thread, attributes, routine, argument) };
    };
    let birth = Box::into_raw(Box::new(Birth {
        routine,
        argument,
        pending,
        creator,
        inside: team::is_inside(),
    }));
    UNBORN.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the caller's promises; `begin` takes the Birth.
    let status = unsafe { create(thread, attributes, begin, birth.cast()) };
    if status == 0 {
        current::with(|tracer| drop(tracer.creator.next_thread()));
    } else {
        UNBORN.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: no thread was made, so the Birth is still ours.
        drop(unsafe { Box::from_raw(birth) });
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
    // SAFETY: the caller's promises.
    let status = unsafe { join(thread, result) };
    current::with(|tracer| tracer.acquire(thread));
    status
}

/// Names a thread; the names that threads give themselves go into the profile.
///
/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setname_np(thread: libc::pthread_t, name: *const c_char) -> c_int {
    let set = real!(pthread_setname_np: fn(libc::pthread_t, *const c_char) -> c_int);
    // SAFETY: the caller's promises.
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
    let mut born = null_mut();
    current::with(|tracer| {
        born = Box::into_raw(Box::new((tracer.creator.upcoming_process(), tracer.time())));
    });
    CHILD.set(born);
}

/// The child that the calling thread has forked.
fn child() -> Option<Box<(String, u64)>> {
    let born = CHILD.replace(null_mut());
    // SAFETY: from `before_fork`, and taken out.
    (!born.is_null()).then(|| unsafe { Box::from_raw(born) })
}

unsafe extern "C" fn after_fork_parent() {
    drop(child());
    current::with(|tracer| drop(tracer.creator.next_process()));
}

unsafe extern "C" fn after_fork_child() {
    let parent = current::engine();
    // SAFETY: a child has one thread.
    unsafe { current::forget_parent() };
    if let (Some(parent), Some(child)) = (parent, child()) {
        let (path, clock) = *child;
        let program = std::env::current_exe().unwrap_or_default();
        if let Ok(engine) = parent.forked(path, clock, &program.to_string_lossy()) {
            current::adopt_engine(engine);
            memory::describe_process();
        }
    }
}

/// Ends the process without exit handlers; the counts are written first.
///
/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    current::end_process();
    // SAFETY: ends every thread of the process; no argument but the status.
    unsafe { libc::syscall(libc::SYS_exit_group, status) };
    std::process::abort();
}

/// As [`_exit`].
///
/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: the same function under its other name.
    unsafe { _exit(status) }
}
