//! The calling thread's tracer, and the recording it belongs to.

use std::cell::Cell;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use numaloc_trace::{Engine, ThreadTracer};

use crate::lock::Lock;
use crate::slot;

static ENGINE: AtomicPtr<Engine> = AtomicPtr::new(null_mut());
/// Kernel ids of the threads that have a tracer, which must write their counts at exit.
static ALIVE: Lock<Vec<i32>> = Lock::new(Vec::new());

/// Number of created threads without a tracer yet.
pub(crate) static PENDING_THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this thread has or had a tracer, so that an empty slot does not mean a missing one.
    static KNOWN: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread is in [`ours`].
    static OURS: Cell<bool> = const { Cell::new(false) };
}

/// The recording, if there is one.
pub(crate) fn engine() -> Option<&'static Engine> {
    // SAFETY: ENGINE holds null or a leaked Box, never freed.
    unsafe { ENGINE.load(Ordering::Acquire).cast_const().as_ref() }
}

/// Runs `work` with the calling thread's tracer. Does nothing without a recording, inside the tracer itself, and in
/// signal handlers that interrupt it.
#[inline(always)]
pub(crate) fn with(work: impl FnOnce(&mut ThreadTracer)) {
    let mut tracer = slot::take();
    if tracer.is_null() {
        tracer = missing();
        if tracer.is_null() {
            return;
        }
    }
    // SAFETY: the pointer came from a Box on this thread and was taken out of its only slot, so nothing else refers to
    // it until it is put back.
    let tracer = unsafe { &mut *tracer };
    // Whoever knows which code it is sets it.
    tracer.set_place(0);
    work(tracer);
    slot::put(tracer);
}

/// Runs `work` with the recording, if there is one, to record what a wrapped call of the program has done. Copies,
/// allocations and mappings made meanwhile are not the program's and are not recorded: the engine's locks may be held.
pub(crate) fn ours(work: impl FnOnce(&'static Engine)) {
    let Some(engine) = engine() else { return };
    if !OURS.replace(true) {
        work(engine);
        OURS.set(false);
    }
}

/// Whether the calling thread is in [`ours`].
pub(crate) fn is_in_ours() -> bool {
    OURS.get()
}

/// Whether the calling thread works for the recorder: it is in [`ours`], or in its tracer.
pub(crate) fn is_ours() -> bool {
    OURS.get() || KNOWN.get() && slot::is_empty()
}

/// A tracer for a thread without one: its creation was not observed. Null if there is no recording.
#[cold]
fn missing() -> *mut ThreadTracer {
    let Some(engine) = engine() else {
        return null_mut();
    };
    // A signal may come to a thread before its own first function: its creator is known.
    if KNOWN.get() || PENDING_THREADS.load(Ordering::Relaxed) != 0 {
        return null_mut();
    }
    expect();
    register();
    Box::into_raw(engine.adopt_unknown(tid() as u32))
}

/// Announces that the calling thread is about to get its tracer: until then its accesses and allocations are the
/// recorder's, and must not look for one.
pub(crate) fn expect() {
    KNOWN.set(true);
}

/// Gives the calling thread its tracer.
pub(crate) fn install(tracer: Box<ThreadTracer>) {
    expect();
    slot::put(Box::leak(tracer));
    register();
}

fn register() {
    ALIVE.with(|alive| alive.push(tid()));
}

/// Whether the process is recorded, or the calling thread is the recorder's.
pub(crate) fn has_begun() -> bool {
    engine().is_some() || KNOWN.get()
}

/// The kernel's id of the calling thread.
pub(crate) fn tid() -> i32 {
    // SAFETY: gettid has no arguments and cannot fail. A call by number: glibc has the function since 2.30 only.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// Ends the calling thread's tracer: writes its counts; later accesses are not counted.
pub(crate) fn end_thread() {
    if let Some(tracer) = ended_tracer() {
        // SAFETY: it came from a Box, and was taken out of its slot for good.
        drop(unsafe { Box::from_raw(tracer) });
    }
}

/// Like [`end_thread`], without freeing the tracer.
fn ended_tracer() -> Option<*mut ThreadTracer> {
    let tracer = slot::take();
    // SAFETY: as in `with`; the tracer is not put back.
    unsafe { tracer.as_mut() }?.end(0);
    let me = tid();
    ALIVE.with(|alive| alive.retain(|&tid| tid != me));
    Some(tracer)
}

/// Writes the calling thread's counts; it continues counting.
pub(crate) fn flush_thread() {
    with(ThreadTracer::flush);
}

extern "C" fn end_on_signal(_: libc::c_int) {
    // SAFETY: errno belongs to the interrupted thread and is restored.
    unsafe {
        let errno = *libc::__errno_location();
        // The interrupted code may be counting an access: its tracer is not freed.
        ended_tracer();
        *libc::__errno_location() = errno;
    }
}

/// Ends the recording of the process: every thread writes its counts. Other threads are interrupted by a signal,
/// repeatedly for up to a fifth of a second, until each was found outside its tracer.
pub(crate) fn end_process() {
    if engine().is_none() {
        return;
    }
    end_thread();
    if ALIVE.with(|alive| !alive.is_empty()) == Some(true) {
        let signal = libc::SIGRTMAX() - 3;
        // SAFETY: the handler is async-signal-tolerant here: it acts only where the thread is outside the tracer, at
        // the end of the process; sigaction gets a zeroed, then filled structure.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = end_on_signal as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, null_mut());
        }
        for attempt in 0..200 {
            let left = ALIVE.with(|alive| alive.clone()).unwrap_or_default();
            if left.is_empty() {
                break;
            }
            // Signal again now and then: a thread that was in its tracer may have left it.
            for tid in left.iter().filter(|_| attempt % 10 == 0) {
                // SAFETY: sends a signal that has a handler to a thread of this process, if it still exists.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), *tid, signal) };
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    // Later actions of destructors (libomp's unmap memory) are not recorded: nothing may follow the journal's end.
    let ended = ENGINE.swap(null_mut(), Ordering::AcqRel);
    // SAFETY: as in `engine`.
    if let Some(engine) = unsafe { ended.cast_const().as_ref() } {
        engine.finish();
    }
}

/// Makes `engine` this process's recording, and the calling thread its first thread.
pub(crate) fn adopt_engine(engine: Engine) {
    expect();
    let engine: &'static Engine = Box::leak(Box::new(engine));
    ENGINE.store(std::ptr::from_ref(engine).cast_mut(), Ordering::Release);
    install(engine.first_thread(tid() as u32));
}

/// Forgets the calling thread's tracer in a forked child, whose parent it belongs to: it is leaked on purpose. Nothing
/// is counted from here on.
pub(crate) fn forget_tracer() {
    slot::forget();
    expect();
}

/// Forgets the parent's threads and recording in a forked child.
///
/// # Safety
/// The process has one thread, whose tracer is forgotten.
pub(crate) unsafe fn forget_recording() {
    // SAFETY: as the caller guarantees.
    unsafe { ALIVE.reset(Vec::new) };
    numaloc_trace::locked::forked();
    PENDING_THREADS.store(0, Ordering::Relaxed);
    ENGINE.store(null::<Engine>().cast_mut(), Ordering::Release);
}
