//! A thread of the program, and the state of its present system call.

use numaloc_trace::ThreadTracer;

use crate::memory;

/// A thread of the program: its tracer, and the state of its present system call. The tracer comes first, so that
/// generated code finds its fast path's state at fixed offsets.
#[repr(C)]
pub struct Traced {
    /// Its tracer.
    pub tracer: ThreadTracer,
    pub(crate) arguments: [u64; 6],
    /// The word last changed by an atomic instruction of the allocator, usually a lock.
    pub allocator_word: u64,
    /// Its last `brk` call failed to grow the heap.
    pub(crate) break_refused: bool,
    /// Its present system call maps memory in place of a failed `brk`.
    pub(crate) extends_heap: bool,
    /// End of the stack for which its last system call, `clone3`, was refused; 0 otherwise.
    pub(crate) refused_stack: u64,
    /// Place of its present system call, `munmap`, in the order of memory events.
    pub(crate) unmapped_at: Option<u64>,
    /// Pages in the page cache before its present system call, `mmap`.
    pub(crate) cached: Vec<u8>,
}

impl Traced {
    /// The calling thread, outside system calls.
    #[must_use]
    pub fn new(mut tracer: ThreadTracer) -> Self {
        tracer.inherit_policy(memory::own_policy());
        Self {
            tracer,
            arguments: [0; 6],
            allocator_word: 0,
            break_refused: false,
            extends_heap: false,
            refused_stack: 0,
            unmapped_at: None,
            cached: Vec::new(),
        }
    }
}
