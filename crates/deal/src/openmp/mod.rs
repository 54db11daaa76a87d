//! The entry points of OpenMP's run-time systems that hand out iterations.

/// The body of an entry point that keeps its arguments, calls `$where` with those that `$set` puts into rdi, rsi and
/// rdx, and continues with its own arguments at the address that this returns.
macro_rules! continue_where {
    ($where:path, $($set:expr,)+) => {
        std::arch::naked_asm!(
            ".cfi_startproc",
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "push rax",
            ".cfi_def_cfa_offset 64",
            $($set,)+
            "call {function}",
            "mov r11, rax",
            "pop rax",
            "pop r9",
            "pop r8",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            ".cfi_def_cfa_offset 8",
            "jmp r11",
            ".cfi_endproc",
            function = sym $where,
        )
    };
}

mod call;
mod gomp;
mod gomp_entries;
mod kmpc;
mod libomp;
mod schedule;
mod team;
