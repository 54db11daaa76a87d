//! Holds a thread's tracer in a few words of thread-local memory, each read with two instructions.
//!
//! Rust reaches a `thread_local!` of a library through a call. The linker removes it when the library is linked into a
//! program, but by then the compiler has saved registers around it: a third of an access's cost. Here the words are
//! defined and read by the initial-exec model (Drepper, *ELF Handling for Thread-Local Storage*, section 4.3): their
//! offset from the thread pointer is a constant of the process.
//!
//! A tracer that records every access is in [`RECORDING`]. One that samples (`--sample`) is in [`SAMPLING`], with
//! copies of what skipped accesses need next to it: they are counted in a dozen instructions.

use std::ptr::null_mut;

use numaloc_trace::ThreadTracer;

/// Offset of the tracer that records every access.
const RECORDING: usize = 0;
/// Offset of the tracer that samples.
const SAMPLING: usize = 8;
/// Offset of the number of accesses that may be counted here, and one more; 0 without a tracer in [`SAMPLING`].
pub(crate) const REMAINING: usize = 16;
/// Offset of the sampling threshold: accesses to lines with a larger place are counted here.
pub(crate) const SAMPLE_THRESHOLD: usize = 24;

#[cfg(target_arch = "x86_64")]
mod place {
    std::arch::global_asm!(
        ".pushsection .tbss.numaloc_tracer,\"awT\",@nobits",
        ".balign 32",
        ".hidden numaloc_tracer",
        ".globl numaloc_tracer",
        ".type numaloc_tracer, @object",
        ".size numaloc_tracer, 32",
        "numaloc_tracer:",
        ".zero 32",
        ".popsection",
    );

    /// Offset of the words from the thread pointer.
    #[inline(always)]
    fn base() -> u64 {
        let base: u64;
        // SAFETY: reads a constant of the process.
        unsafe {
            std::arch::asm!(
                "mov {0}, qword ptr [rip + numaloc_tracer@GOTTPOFF]",
                out(reg) base,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        base
    }

    /// The calling thread's word at offset `WORD`.
    #[inline(always)]
    pub(super) fn get<const WORD: usize>() -> u64 {
        let word: u64;
        // SAFETY: reads 8 of the 32 bytes that every thread has at its thread pointer plus the variable's offset.
        unsafe {
            std::arch::asm!(
                "mov {0}, qword ptr fs:[{1} + {2}]",
                out(reg) word,
                in(reg) base(),
                const WORD,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        word
    }

    #[inline(always)]
    pub(super) fn set<const WORD: usize>(word: u64) {
        // SAFETY: writes 8 bytes that only this module uses, as above.
        unsafe {
            std::arch::asm!(
                "mov qword ptr fs:[{0} + {1}], {2}",
                in(reg) base(),
                const WORD,
                in(reg) word,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod place {
    use std::cell::Cell;

    thread_local! {
        static WORDS: [Cell<u64>; 4] = const { [const { Cell::new(0) }; 4] };
    }

    pub(super) fn get<const WORD: usize>() -> u64 {
        WORDS.with(|words| words[WORD / 8].get())
    }

    pub(super) fn set<const WORD: usize>(word: u64) {
        WORDS.with(|words| words[WORD / 8].set(word));
    }
}

/// The tracer at offset `WORD`.
#[inline(always)]
fn tracer<const WORD: usize>() -> *mut ThreadTracer {
    place::get::<WORD>() as *mut ThreadTracer
}

/// The calling thread's tracer if it records every access; null if it samples, is in use, or does not exist.
#[inline(always)]
pub(crate) fn recording() -> *mut ThreadTracer {
    tracer::<RECORDING>()
}

/// Whether the calling thread has no tracer, or the tracer is in use.
pub(crate) fn is_empty() -> bool {
    recording().is_null() && tracer::<SAMPLING>().is_null()
}

/// The function `$name` for `$accesses` accesses at the address in `rdi`. Continues at `$recording`, with the tracer
/// in `rsi`, if that records every access. Otherwise counts the accesses and returns if the line is not sampled, or
/// continues at `$sampled`. Both get, in `rdx`, where the return address is: it shows which code makes the access.
///
/// In assembly, because the cost of a skipped access is its number of instructions, plus up to half if they do not
/// begin at a cache line. One branch tests two conditions: when no accesses remain, the place is set to 0, which is
/// never above the threshold. If a signal handler interrupts it, one of the two may lose a count, not more.
#[cfg(target_arch = "x86_64")]
macro_rules! entry {
    ($name:ident, $accesses:expr, $recording:path, $sampled:path) => {
        std::arch::global_asm!(
            concat!(".pushsection .text.", stringify!($name), ",\"ax\",@progbits"),
            ".balign 64",
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ", @function"),
            concat!(stringify!($name), ":"),
            ".cfi_startproc",
            "mov rcx, qword ptr [rip + numaloc_tracer@GOTTPOFF]",
            "mov rsi, qword ptr fs:[rcx]",
            "mov rdx, rsp",
            "test rsi, rsi",
            "jne {recording}",
            "mov rax, rdi",
            "shr rax, {shift}",
            "movabs r8, {step}",
            "imul rax, r8",
            "mov r9, qword ptr fs:[rcx + {remaining}]",
            "sub r9, {accesses}",
            "cmovbe rax, rsi",
            "cmp rax, qword ptr fs:[rcx + {threshold}]",
            "jbe {sampled}",
            "mov qword ptr fs:[rcx + {remaining}], r9",
            "ret",
            ".cfi_endproc",
            ".popsection",
            recording = sym $recording,
            sampled = sym $sampled,
            accesses = const $accesses,
            shift = const numaloc_trace::line::FAST_SHIFT,
            step = const numaloc_trace::Watched::STEP,
            remaining = const $crate::slot::REMAINING,
            threshold = const $crate::slot::SAMPLE_THRESHOLD,
        );
    };
}
#[cfg(target_arch = "x86_64")]
pub(crate) use entry;

/// Like [`entry`] for a tracer that samples: counts `accesses` at `address` and returns true if the line is not
/// sampled.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn skip(address: u64, accesses: u64) -> bool {
    let remaining = place::get::<REMAINING>();
    let skips = remaining > accesses
        && numaloc_trace::Watched::usual_place(address) > place::get::<SAMPLE_THRESHOLD>();
    if skips {
        place::set::<REMAINING>(remaining - accesses);
    }
    skips
}

/// Calls `work` to record an access with the calling thread's tracer, if that samples; returns whether it was
/// recorded.
#[inline(always)]
pub(crate) fn sampled(work: impl FnOnce(&mut ThreadTracer) -> bool) -> bool {
    // SAFETY: as for a tracer that records every access (`access`).
    let Some(tracer) = (unsafe { tracer::<SAMPLING>().as_mut() }) else {
        return false;
    };
    tracer.skipped(place::get::<REMAINING>());
    let sampled = work(tracer);
    place::set::<REMAINING>(tracer.remaining());
    sampled
}

/// Takes the calling thread's tracer; null if there is none, or it is in use.
///
/// A signal handler that interrupts this takes the tracer and puts it back at one of the two offsets: both are cleared
/// before the tracer is used, and neither if it was found in none.
#[inline(always)]
pub(crate) fn take() -> *mut ThreadTracer {
    let mut taken = recording();
    if taken.is_null() {
        taken = tracer::<SAMPLING>();
        if taken.is_null() {
            return null_mut();
        }
    }
    place::set::<RECORDING>(0);
    if place::get::<SAMPLING>() != 0 {
        place::set::<SAMPLING>(0);
        let remaining = place::get::<REMAINING>();
        place::set::<REMAINING>(0);
        // SAFETY: the tracer came from a Box on this thread and was taken out of its slot; it is not freed while the
        // thread can be here (`end_on_signal`).
        unsafe { (*taken).skipped(remaining) };
    }
    taken
}

/// Gives the calling thread its tracer, or returns it.
#[inline(always)]
pub(crate) fn put(tracer: &mut ThreadTracer) {
    let place = std::ptr::from_mut(tracer) as u64;
    match tracer.sample_threshold() {
        None => place::set::<RECORDING>(place),
        Some(threshold) => {
            place::set::<SAMPLE_THRESHOLD>(threshold);
            place::set::<REMAINING>(tracer.remaining());
            place::set::<SAMPLING>(place);
        }
    }
}

/// Removes the calling thread's tracer without ending it.
pub(crate) fn forget() {
    place::set::<RECORDING>(0);
    place::set::<REMAINING>(0);
    place::set::<SAMPLING>(0);
}
