//! Where a thread keeps its tracer: one pointer of thread-local memory, read with two instructions.
//!
//! Rust reaches a `thread_local!` of a library through a call, which the linker takes out again when the library goes into a program,
//! but the compiler has saved its registers around it by then: a third of what an access costs. Here the variable is defined
//! and read as the initial-exec model has it (Drepper, *ELF Handling for Thread-Local Storage*, section 4.3): its offset
//! from the thread pointer is a constant of the process.

use numaloc_trace::ThreadTracer;

#[cfg(target_arch = "x86_64")]
mod place {
    use numaloc_trace::ThreadTracer;

    std::arch::global_asm!(
        ".pushsection .tbss.numaloc_tracer,\"awT\",@nobits",
        ".balign 8",
        ".hidden numaloc_tracer",
        ".globl numaloc_tracer",
        ".type numaloc_tracer, @object",
        ".size numaloc_tracer, 8",
        "numaloc_tracer:",
        ".zero 8",
        ".popsection",
    );

    #[inline(always)]
    pub(super) fn get() -> *mut ThreadTracer {
        let tracer: *mut ThreadTracer;
        // SAFETY: reads 8 bytes that every thread has, at its thread pointer plus the variable's offset.
        unsafe {
            std::arch::asm!(
                "mov {0}, qword ptr [rip + numaloc_tracer@GOTTPOFF]",
                "mov {0}, qword ptr fs:[{0}]",
                out(reg) tracer,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        tracer
    }

    #[inline(always)]
    pub(super) fn set(tracer: *mut ThreadTracer) {
        // SAFETY: writes 8 bytes that only this module uses, as above.
        unsafe {
            std::arch::asm!(
                "mov {0}, qword ptr [rip + numaloc_tracer@GOTTPOFF]",
                "mov qword ptr fs:[{0}], {1}",
                out(reg) _,
                in(reg) tracer,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod place {
    use std::cell::Cell;
    use std::ptr::null_mut;

    use numaloc_trace::ThreadTracer;

    thread_local! {
        static TRACER: Cell<*mut ThreadTracer> = const { Cell::new(null_mut()) };
    }

    pub(super) fn get() -> *mut ThreadTracer {
        TRACER.get()
    }

    pub(super) fn set(tracer: *mut ThreadTracer) {
        TRACER.set(tracer);
    }
}

/// The calling thread's tracer, null when it has none or it is in use.
#[inline(always)]
pub(crate) fn get() -> *mut ThreadTracer {
    place::get()
}

/// Puts a tracer into the calling thread's slot.
#[inline(always)]
pub(crate) fn set(tracer: *mut ThreadTracer) {
    place::set(tracer);
}

/// Takes the tracer out of the slot, and puts another one there.
#[inline(always)]
pub(crate) fn replace(tracer: *mut ThreadTracer) -> *mut ThreadTracer {
    let before = get();
    set(tracer);
    before
}
