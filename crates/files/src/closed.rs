//! Determines whether standard output was open when the process started.
//!
//! Rust's start-up code opens `/dev/null` in place of a closed descriptor, so a command would write its result
//! to nothing and report success. By the time `main` runs it is too late to check; functions that the linker puts
//! into `.init_array` are called before that code.

use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look() {
    // SAFETY: descriptor 1 is only queried; it is neither used nor closed, and may be closed already.
    let stdout = unsafe { std::os::fd::BorrowedFd::borrow_raw(1) };
    CLOSED.store(rustix::io::fcntl_getfd(stdout).is_err(), Ordering::Relaxed);
}

// SAFETY: the section holds pointers to functions without arguments or result, and `look` is one.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// Whether the process was started without a standard output.
pub(crate) fn stdout_was_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}
