//! Records allocation sites: the call stack of each allocation, which the recorder resolves to functions and
//! `FILE:LINE`.
//!
//! The stack is walked by the compilers' unwinder (libgcc's `_Unwind_Backtrace` over `.eh_frame`, which every x86-64
//! program has), at one or two microseconds per block. So the number of blocks is bounded: at first all are recorded,
//! then only those that fill pages, then only those that the C library maps on their own ([`STEPS`]). Each takes about
//! 20 bytes of the journal.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use numaloc_trace::Record;

use crate::current;
use crate::lock::Lock;

/// Steps (blocks, bytes): after this many blocks only larger ones are recorded.
const STEPS: [(u64, u64); 3] = [(1 << 14, 4096), (1 << 16, 1 << 17), (1 << 18, u64::MAX)];
/// Most frames kept, innermost first: enough to reach the program's own through the layers of an allocation library.
const FRAMES: usize = 24;

/// Number of blocks recorded so far, and the smallest size recorded.
static BLOCKS: AtomicU64 = AtomicU64::new(0);
static LEAST: AtomicU64 = AtomicU64::new(1);
/// Whether the program's recording has begun; allocations before are the recorder's.
static BEGUN: AtomicBool = AtomicBool::new(false);
/// Numbers of the call stacks seen.
static SITES: Lock<Option<HashMap<Stack, u32>>> = Lock::new(None);

unsafe extern "C" {
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

/// The return addresses of a call stack, innermost first.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Stack {
    length: usize,
    frames: [u64; FRAMES],
}

impl Stack {
    /// The calling thread's call stack.
    fn walk() -> Self {
        let mut stack = Self {
            length: 0,
            frames: [0; FRAMES],
        };
        // SAFETY: `visit` gets the address of `stack`, which outlives the call.
        unsafe { _Unwind_Backtrace(visit, (&raw mut stack).cast()) };
        stack
    }
}

extern "C" fn visit(context: *mut c_void, data: *mut c_void) -> c_int {
    const GO_ON: c_int = 0;
    const ENOUGH: c_int = 5;
    // SAFETY: `walk` passes a Stack that nothing else uses meanwhile; the context is the unwinder's, for its own
    // function.
    let (stack, address) = unsafe { (&mut *data.cast::<Stack>(), _Unwind_GetIP(context)) };
    if stack.length == FRAMES || address == 0 {
        return ENOUGH;
    }
    stack.frames[stack.length] = address as u64;
    stack.length += 1;
    GO_ON
}

/// Records a block of `length` bytes that the calling thread has allocated at `address`.
pub(crate) fn note(address: u64, length: u64) {
    if !BEGUN.load(Relaxed) || length < LEAST.load(Relaxed) {
        return;
    }
    let Some(engine) = current::engine() else {
        return;
    };
    // Allocations of the tracer itself find no tracer here.
    current::with(|tracer| {
        let count = BLOCKS.fetch_add(1, Relaxed) + 1;
        if let Some((_, least)) = STEPS.iter().find(|step| step.0 == count) {
            LEAST.fetch_max(*least, Relaxed);
        }
        let stack = Stack::walk();
        let site = SITES.with(|sites| {
            let sites = sites.get_or_insert_default();
            let new = sites.len() as u32;
            *sites.entry(stack).or_insert_with_key(|stack| {
                engine.write(&Record::Site {
                    site: new,
                    frames: stack.frames[..stack.length].to_vec(),
                });
                new
            })
        });
        let Some(site) = site else { return };
        tracer.record(&Record::Block {
            sequence: engine.sequence(),
            thread: tracer.number(),
            address,
            length,
            site,
        });
    });
}

/// Begins recording: the program allocates from here on.
pub(crate) fn begin() {
    BEGUN.store(true, Relaxed);
}

/// Forgets the sites in a forked child, whose journal has none yet.
///
/// # Safety
/// The process has one thread.
pub(crate) unsafe fn forget() {
    // SAFETY: as the caller guarantees.
    unsafe { SITES.reset(|| None) };
}
