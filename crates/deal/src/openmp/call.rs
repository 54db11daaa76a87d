//! Calls with any number of arguments.

use std::ffi::c_int;

/// A region's function as libomp calls it: thread numbers, then one word for each shared variable.
pub type Microtask = unsafe extern "C-unwind" fn(*mut c_int, *mut c_int, ...);

/// Where the words that follow fixed arguments are: three in registers, the others on the stack.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Words {
    /// The first three.
    pub first: *const [usize; 3],
    /// The fourth and later ones.
    pub rest: *const usize,
    /// Their number.
    pub count: usize,
}

/// Calls `function` with `thread`, `bound` and `words`.
///
/// # Safety
/// `words` has as many words as it says, and `function` may be called with them.
pub unsafe fn call(function: Microtask, thread: *mut c_int, bound: *mut c_int, words: &Words) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        pass(
            function,
            thread,
            bound,
            words.first,
            words.rest,
            words.count,
        )
    }
}

#[unsafe(naked)]
unsafe extern "C-unwind" fn pass(
    function: Microtask,
    thread: *mut c_int,
    bound: *mut c_int,
    first: *const [usize; 3],
    rest: *const usize,
    count: usize,
) {
    // The fourth word goes into the last register, further ones on the stack, which is aligned to 16 bytes at a call.
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rax, rdi",
        "mov r10, rcx",
        "mov r11, r8",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "xor edx, edx",
        "cmp r9, 4",
        "jb 4f",
        "mov rdx, qword ptr [r11]",
        "mov rcx, r9",
        "sub rcx, 4",
        "jz 4f",
        "test cl, 1",
        "jz 3f",
        "push 0",
        "3:",
        "push qword ptr [r11 + rcx * 8]",
        "dec rcx",
        "jnz 3b",
        "4:",
        "mov r9, rdx",
        "mov rdx, qword ptr [r10]",
        "mov rcx, qword ptr [r10 + 8]",
        "mov r8, qword ptr [r10 + 16]",
        "mov r11, rax",
        "xor eax, eax",
        "call r11",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}
