//! Helpers for entry points with any number of arguments, and for calling functions with them.

use std::ffi::c_int;

/// A function of any number of words. Its first two parameters are libomp's.
pub(crate) type Function = unsafe extern "C-unwind" fn(*mut c_int, *mut c_int, ...);

/// Prologue of a naked function: `rbp` becomes its frame pointer, and unwinding finds its caller.
macro_rules! begin_frame {
    () => {
        ".cfi_startproc
        push rbp
        .cfi_def_cfa_offset 16
        .cfi_offset rbp, -16
        mov rbp, rsp
        .cfi_def_cfa_register rbp"
    };
}
pub(crate) use begin_frame;

/// Epilogue of a naked function.
macro_rules! end_frame {
    () => {
        "leave
        .cfi_def_cfa rsp, 8
        ret
        .cfi_endproc"
    };
}
pub(crate) use end_frame;

/// Calls `function` with `thread`, `bound`, and `count` arguments: three at `first`, the others at `rest`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C-unwind" fn pass_on(
    function: Function,
    thread: *mut c_int,
    bound: *mut c_int,
    first: *const [usize; 3],
    rest: *const usize,
    count: usize,
) {
    // Six arguments are passed in registers, the others on the stack, which must be aligned to 16 bytes at a call.
    std::arch::naked_asm!(
        begin_frame!(),
        "mov r11, rdi",
        "mov r10, rcx",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rax, r9",
        "sub rax, 4",
        "jle 3f",
        "test al, 1",
        "jz 2f",
        "push rax",
        "2:",
        "push qword ptr [r8 + rax * 8]",
        "dec rax",
        "jnz 2b",
        "3:",
        "cmp r9, 4",
        "jl 4f",
        "mov r9, qword ptr [r8]",
        "4:",
        "mov rdx, qword ptr [r10]",
        "mov rcx, qword ptr [r10 + 8]",
        "mov r8, qword ptr [r10 + 16]",
        "xor eax, eax",
        "call r11",
        end_frame!(),
    )
}
