//! Follows the guest's system calls, as far as QEMU's threads and processes are concerned.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicBool, Ordering};

use numaloc_follow::calls::{self, Then};

use crate::api::PluginId;
use crate::{GuestThread, adopt, engine, exec, forget_threads, leave, set_engine, thread};

static ENDING: AtomicBool = AtomicBool::new(false);

/// Whether the program has requested its own exit.
pub fn ending() -> bool {
    ENDING.load(Ordering::Relaxed)
}

/// Called before the system call.
pub unsafe extern "C" fn on_call(
    _: PluginId,
    vcpu: c_uint,
    number: i64,
    a1: u64,
    a2: u64,
    a3: u64,
    a4: u64,
    a5: u64,
    a6: u64,
    _: u64,
    _: u64,
) {
    let Some(thread) = thread(vcpu) else { return };
    match thread.before(engine(), number, [a1, a2, a3, a4, a5, a6]) {
        Then::Nothing => {}
        Then::Execute {
            path,
            arguments,
            environment,
        } => exec::follow(thread, path, arguments, environment),
        Then::EndThread => leave(vcpu),
        Then::EndProcess => ENDING.store(true, Ordering::Relaxed),
    }
}

/// Called after the system call.
pub unsafe extern "C" fn on_return(_: PluginId, vcpu: c_uint, number: i64, result: i64) {
    let Some(thread) = thread(vcpu) else { return };
    if thread.after(engine(), number, result) {
        forked(vcpu, thread);
    }
}

/// Starts recording a forked process, of which the calling thread is the only one.
fn forked(vcpu: c_uint, thread: &mut GuestThread) {
    let engine_of_child = calls::forked(thread, engine());
    numaloc_trace::locked::forked();
    forget_threads();
    match engine_of_child {
        Ok(engine) => set_engine(engine),
        // The child continues with an engine whose journal is the parent's, so stop it here.
        Err(_) => engine().stop(),
    }
    // SAFETY: getpid has no preconditions.
    let tid = unsafe { libc::getpid() } as u32;
    adopt(vcpu, *engine().first_thread(tid));
}
