//! Crash reports in checked mode: which task crashed, the blocks it held, and the faulting address.
//!
//! The handler uses only memory allocated beforehand and `write`, because the heap or a lock may be corrupt. It then
//! restores the previous action, so that the signal has its usual effect.

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering;

use crate::guid::Guid;
use crate::objects::block::{Block, mode_name};
use crate::objects::task::{Edt, slot_state};
use crate::state;

const SIGNALS: [(libc::c_int, &str); 5] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGABRT, "SIGABRT"),
];
const STACK: usize = 64 << 10;
/// Slots listed in the report.
const LISTED: u32 = 16;

/// Previous signal actions; restored by the handler and at the end.
static BEFORE: Former = Former(UnsafeCell::new([None; SIGNALS.len()]));

struct Former(UnsafeCell<[Option<libc::sigaction>; SIGNALS.len()]>);
// SAFETY: written before any handler can run (one run at a time), only read afterwards.
unsafe impl Sync for Former {}

/// The signal handlers of a run; removed on drop.
pub struct Handlers;

impl Handlers {
    /// Installs the handlers for the process.
    pub fn install() -> Self {
        // SAFETY: one run at a time; the action is plain data, the handler what SA_SIGINFO says.
        unsafe {
            for (at, &(signal, _)) in SIGNALS.iter().enumerate() {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                let mut before: libc::sigaction = std::mem::zeroed();
                let done = libc::sigaction(signal, &raw const action, &raw mut before) == 0;
                (&mut *BEFORE.0.get())[at] = done.then_some(before);
            }
        }
        Self
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        for (signal, _) in SIGNALS {
            restore(signal);
        }
    }
}

fn restore(signal: libc::c_int) {
    for (at, &(own, _)) in SIGNALS.iter().enumerate() {
        if own == signal {
            // SAFETY: written before any handler could run.
            if let Some(before) = unsafe { (&*BEFORE.0.get())[at] } {
                // SAFETY: what sigaction gave.
                unsafe { libc::sigaction(signal, &raw const before, std::ptr::null_mut()) };
            }
        }
    }
}

/// An alternate signal stack for this thread, so that a stack overflow can be reported too.
pub struct Stack(*mut libc::c_void);

impl Stack {
    /// Installs one for this thread, unless it has one.
    pub fn install() -> Option<Self> {
        // SAFETY: a fresh mapping; sigaltstack copies what it is given.
        unsafe {
            let mut old: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(std::ptr::null(), &raw mut old);
            if old.ss_flags & libc::SS_DISABLE == 0 && old.ss_size >= STACK {
                return None;
            }
            let memory = libc::mmap(
                std::ptr::null_mut(),
                STACK,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if memory == libc::MAP_FAILED {
                return None;
            }
            let stack = libc::stack_t {
                ss_sp: memory,
                ss_flags: 0,
                ss_size: STACK,
            };
            libc::sigaltstack(&raw const stack, std::ptr::null_mut());
            Some(Self(memory))
        }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and not in use, because no handler is running.
        unsafe {
            let none = libc::stack_t {
                ss_sp: std::ptr::null_mut(),
                ss_flags: libc::SS_DISABLE,
                ss_size: 0,
            };
            libc::sigaltstack(&raw const none, std::ptr::null_mut());
            libc::munmap(self.0, STACK);
        }
    }
}

/// A text buffer of fixed size.
struct Text {
    bytes: [u8; 2048],
    used: usize,
}

impl std::fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.bytes.len() - self.used;
        let length = text.len().min(room);
        self.bytes[self.used..self.used + length].copy_from_slice(&text.as_bytes()[..length]);
        self.used += length;
        Ok(())
    }
}

extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // With the previous action restored, the fault occurs again; an abort continues by itself.
    restore(signal);
    let mut text = Text {
        bytes: [0; 2048],
        used: 0,
    };
    // SAFETY: the kernel's siginfo; for these signals it has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    describe(&mut text, signal, address);
    // SAFETY: as many bytes as were written.
    unsafe { libc::write(2, text.bytes.as_ptr().cast(), text.used) };
}

fn describe(text: &mut Text, signal: libc::c_int, address: usize) {
    use std::fmt::Write;
    let name = SIGNALS.iter().find(|(own, _)| *own == signal);
    let name = name.map_or("a signal", |(_, name)| name);
    let w = match state::current() {
        w if w.is_null() => state::replaying(),
        w => w,
    };
    // SAFETY: this thread's worker; read only, and nobody else changes it.
    let Some((edt, rt)) = (!w.is_null()).then(|| unsafe { ((*w).current, (*w).rt) }) else {
        return;
    };
    if edt.is_null() {
        return;
    }
    // SAFETY: the current task is alive and this thread's.
    unsafe {
        let guid = rt.arena.guid(edt.cast());
        let _ = write!(
            text,
            "numaloc_ocr: {name} in task {} ({:#x})",
            rt.names.published((*edt).name),
            guid.0
        );
        if signal != libc::SIGABRT {
            let _ = write!(text, ", address {address:#x}");
        }
        let _ = writeln!(text);
        for slot in 0..(*edt).depc.min(LISTED) {
            let dep = &*Edt::slot(edt, slot);
            let state = dep.state.load(Ordering::Relaxed);
            let _ = if dep.guid == Guid::NULL {
                writeln!(text, "numaloc_ocr:   slot {slot}: nothing")
            } else if state & slot_state::HELD == 0 {
                writeln!(
                    text,
                    "numaloc_ocr:   slot {slot}: {:#x}, not held (released, destroyed, or held by another slot)",
                    dep.guid.0
                )
            } else {
                let bytes = rt
                    .object(dep.guid)
                    .map_or(0, |block| (*block.cast::<Block>()).size);
                writeln!(
                    text,
                    "numaloc_ocr:   slot {slot}: data block {:#x}, {}, {bytes} bytes at {:#x}",
                    dep.guid.0,
                    mode_name(state >> slot_state::MODE_SHIFT),
                    dep.ptr as usize
                )
            };
        }
        if (*edt).depc > LISTED {
            let _ = writeln!(
                text,
                "numaloc_ocr:   and {} more slots",
                (*edt).depc - LISTED
            );
        }
    }
}
