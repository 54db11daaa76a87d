//! Filters of system calls, which a thread has in the engine instead of in the kernel.

pub mod bpf;

use std::sync::OnceLock;

use bpf::Instruction;

/// A filter, and those before it. Never freed: threads refer to them.
pub struct Filter {
    /// What it does.
    pub program: Vec<Instruction>,
    before: Option<&'static Filter>,
    /// Strict mode, whose violations kill by SIGKILL.
    pub strict: bool,
}

/// The filters that the first thread has at the start.
static INITIAL: OnceLock<&'static Filter> = OnceLock::new();

/// The filters of the first thread.
pub fn initial() -> Option<&'static Filter> {
    INITIAL.get().copied()
}

/// Sets them.
pub fn begin_with(filters: &'static Filter) {
    let _ = INITIAL.set(filters);
}

impl Filter {
    /// A filter that a thread adds to those that it has.
    pub fn after(
        before: Option<&'static Filter>,
        program: Vec<Instruction>,
        strict: bool,
    ) -> &'static Self {
        Box::leak(Box::new(Self {
            program,
            before,
            strict,
        }))
    }

    /// This filter and those before it, the newest first.
    pub fn all(&'static self) -> impl Iterator<Item = &'static Filter> {
        std::iter::successors(Some(self), |filter| filter.before)
    }
}
