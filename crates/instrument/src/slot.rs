//! Where a thread keeps its tracer: a few words of thread-local memory, each read with two instructions.
//!
//! Rust reaches a `thread_local!` of a library through a call, which the linker takes out again when the library goes into a program,
//! but the compiler has saved its registers around it by then: a third of what an access costs. Here the words are defined
//! and read as the initial-exec model has it (Drepper, *ELF Handling for Thread-Local Storage*, section 4.3): their offset
//! from the thread pointer is a constant of the process.
//!
//! A tracer that looks at every access lies in [`RECORDING`]. One that looks at some of them only, because of `--sample`, lies in
//! [`SAMPLING`], and what of it the others need is copied beside it: they are counted in a dozen instructions.

use std::ptr::null_mut;

use numaloc_trace::ThreadTracer;

/// The tracer that looks at every access.
const RECORDING: usize = 0;
/// The tracer that looks at some only.
const SAMPLING: usize = 8;
/// Accesses that may be counted here before the tracer is asked, and one more; 0 while there is none in [`SAMPLING`].
pub(crate) const REMAINING: usize = 16;
/// Accesses to lines whose place is above this are counted here.
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

    /// The words' offset from the thread pointer.
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

    /// The word `WORD` bytes into the thread's own.
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

/// What lies in one of the two places for a tracer.
#[inline(always)]
fn tracer<const WORD: usize>() -> *mut ThreadTracer {
    place::get::<WORD>() as *mut ThreadTracer
}

/// The calling thread's tracer if it looks at every access; null when not, when the thread has none, and when it is in use.
#[inline(always)]
pub(crate) fn recording() -> *mut ThreadTracer {
    tracer::<RECORDING>()
}

/// Whether the calling thread has no tracer, or it is in use.
pub(crate) fn is_empty() -> bool {
    recording().is_null() && tracer::<SAMPLING>().is_null()
}

/// The function `$name` for `$accesses` accesses at the address in `rdi`. Goes on at `$recording`, with the tracer in `rsi`, when that looks
/// at every access; else counts them and returns if it does not look at this line, or goes on at `$sampled`.
///
/// In assembly, because an access that is not looked at costs as much as it has instructions, and up to half more when they do not begin
/// with a line of the cache. One branch stands for two questions: nothing is above what is in sight when nothing is left.
/// A signal handler may come in between: one of the two may lose a count, not more.
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
            "test rsi, rsi",
            "jne {recording}",
            "mov rax, rdi",
            "shr rax, {shift}",
            "movabs r8, {step}",
            "imul rax, r8",
            "mov rdx, qword ptr fs:[rcx + {remaining}]",
            "sub rdx, {accesses}",
            "cmovbe rax, rsi",
            "cmp rax, qword ptr fs:[rcx + {threshold}]",
            "jbe {sampled}",
            "mov qword ptr fs:[rcx + {remaining}], rdx",
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

/// What [`entry`] does for a tracer that looks at some accesses only: counts `accesses` at `address` if it does not look at them; says
/// whether.
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

/// Lets `work` count an access with the calling thread's tracer, if it looks at some only; says whether it did.
#[inline(always)]
pub(crate) fn sampled(work: impl FnOnce(&mut ThreadTracer) -> bool) -> bool {
    // SAFETY: as for a tracer that is awake (`access`).
    let Some(tracer) = (unsafe { tracer::<SAMPLING>().as_mut() }) else {
        return false;
    };
    tracer.skipped(place::get::<REMAINING>());
    let sampled = work(tracer);
    place::set::<REMAINING>(tracer.remaining());
    sampled
}

/// Takes the calling thread's tracer; null when there is none, or it is in use.
///
/// A signal handler that comes in between takes it and puts it back, in one place or the other: both are emptied before it is used,
/// and neither when it was found in none.
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
        // SAFETY: the tracer came from a Box on this thread and was taken out of where it lay; it is not freed while the
        // thread can be here (`end_on_signal`).
        unsafe { (*taken).skipped(remaining) };
    }
    taken
}

/// Gives the calling thread its tracer, or gives it back.
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

/// Forgets the calling thread's tracer, without ending it.
pub(crate) fn forget() {
    place::set::<RECORDING>(0);
    place::set::<REMAINING>(0);
    place::set::<SAMPLING>(0);
}
