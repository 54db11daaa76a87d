//! System calls without the C library: no `errno`, no cancellation, no thread-local state.

use std::arch::asm;
use std::sync::OnceLock;

/// Makes a system call; a failure is a negated `errno`.
///
/// # Safety
/// The call and its arguments must be sound for this process: nothing that Rust code relies on may change.
#[inline]
pub unsafe fn call(number: i64, arguments: [u64; 6]) -> i64 {
    let result;
    // SAFETY: the kernel changes rax, rcx and r11; the rest is the caller's promise.
    unsafe {
        asm!("syscall", inlateout("rax") number => result,
            in("rdi") arguments[0], in("rsi") arguments[1], in("rdx") arguments[2],
            in("r10") arguments[3], in("r8") arguments[4], in("r9") arguments[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// Bytes of a large page.
pub const LARGE_PAGE: u64 = 2 << 20;

/// Rounds up to whole pages; `None` beyond the address space.
pub fn page_up(at: u64) -> Option<u64> {
    at.checked_add(PAGE - 1).map(|end| end & !(PAGE - 1))
}

/// Rounds down to a page.
pub fn page_down(at: u64) -> u64 {
    at & !(PAGE - 1)
}

/// Called with the number of bytes before the engine maps them.
static BEFORE: OnceLock<fn(u64)> = OnceLock::new();

/// Has `before` called before the engine maps memory: the program's limits do not count it.
pub fn announce(before: fn(u64)) {
    let _ = BEFORE.set(before);
}

/// Maps private anonymous memory for the engine, without swap reserved for it; at `at` exactly with
/// `MAP_FIXED_NOREPLACE` in `flags`.
pub fn map(at: u64, len: u64, prot: i32, flags: i32) -> Result<u64, i32> {
    if let Some(before) = BEFORE.get() {
        before(len);
    }
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let arguments = [at, len, prot as u64, flags as u64, u64::MAX, 0];
    // SAFETY: a new mapping; callers never pass MAP_FIXED.
    let result = unsafe { call(libc::SYS_mmap, arguments) };
    if result < 0 {
        return Err(-result as i32);
    }
    if flags & libc::MAP_FIXED_NOREPLACE != 0 && result as u64 != at {
        // SAFETY: the mapping was just made, by a kernel that does not know the flag.
        unsafe { call(libc::SYS_munmap, [result as u64, len, 0, 0, 0, 0]) };
        return Err(libc::EEXIST);
    }
    Ok(result as u64)
}

/// Asks for large pages in a range of our own memory: it is used soon, or executed much.
pub fn prefer_large_pages(at: u64, len: u64) {
    // SAFETY: changes no contents.
    unsafe {
        call(
            libc::SYS_madvise,
            [at, len, libc::MADV_HUGEPAGE as u64, 0, 0, 0],
        )
    };
}

/// Keeps a range of our own memory out of the program's core dumps.
pub fn keep_out_of_dumps(at: u64, len: u64) {
    // SAFETY: changes no contents.
    unsafe {
        call(
            libc::SYS_madvise,
            [at, len, libc::MADV_DONTDUMP as u64, 0, 0, 0],
        )
    };
}

/// Writes a line to standard error in one call.
pub fn complain(message: &str) {
    let line = format!("numaloc-native: {message}\n");
    // SAFETY: writes from a live buffer.
    unsafe {
        call(
            libc::SYS_write,
            [2, line.as_ptr() as u64, line.len() as u64, 0, 0, 0],
        )
    };
}

/// Ends the process with an error message.
pub fn give_up(message: &str) -> ! {
    complain(message);
    loop {
        // SAFETY: ends the process.
        unsafe { call(libc::SYS_exit_group, [125, 0, 0, 0, 0, 0]) };
    }
}

/// Sets the calling thread's signal mask in the kernel.
pub fn set_signal_mask(mask: u64) {
    let arguments = [
        libc::SIG_SETMASK as u64,
        (&raw const mask) as u64,
        0,
        8,
        0,
        0,
    ];
    // SAFETY: reads the mask.
    unsafe { call(libc::SYS_rt_sigprocmask, arguments) };
}
