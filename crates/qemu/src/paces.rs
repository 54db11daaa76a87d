//! Counts the iterations of loops as cheaply as QEMU allows: QEMU calls us for each iteration, and [`on_iteration`]
//! counts in its vCPU's [`Slot`], in machine code, because compiled code would first set up a frame for calls it might
//! make.
//!
//! QEMU 9.1 and later could count in translated code and call only at the end of a run. Measured on QEMU 10.0.2 (three
//! kernels, one and two threads, nine pairs each), the call costs 2.6 % (geometric mean; single pairs 0.62 to 1.43
//! times), so both versions are served by the same code.
//!
//! Runs are over when a thread makes a system call (it ends the block, and a loop's exit ends its run), except in a
//! signal handler that accesses no memory.

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicPtr, AtomicU64};

use numaloc_trace::block::{Block, REGISTERS};
use numaloc_trace::thread::Pace;

use crate::api::{self, TranslationBlock};
use crate::{SLOTS, thread};

/// Registers the counting of `counted`, which repeats, for each execution of `block`.
pub fn register(block: *mut TranslationBlock, counted: &'static Block) {
    let data = std::ptr::from_ref(counted).cast_mut().cast();
    let callback = on_each(counted.shape().groups);
    // SAFETY: a callback of this library, and a block that is never freed.
    unsafe {
        api::qemu_plugin_register_vcpu_tb_exec_cb(block, callback, api::NO_REGISTERS, data);
    }
}

/// The run of a vCPU's thread, as used by [`on_iteration`]; on its own cache line.
#[repr(C, align(64))]
struct Slot {
    /// The block whose iterations are counted, null for none.
    block: AtomicPtr<Block>,
    /// Iterations that may still follow.
    more: AtomicU64,
}

static SLOTS_OF_VCPUS: [Slot; SLOTS] = [const {
    Slot {
        block: AtomicPtr::new(null_mut()),
        more: AtomicU64::new(0),
    }
}; SLOTS];

/// Counts the runs of a vCPU's thread.
pub struct VcpuPace {
    slot: &'static Slot,
}

impl VcpuPace {
    /// The pace of a new thread on `vcpu`.
    ///
    /// # Panics
    /// If `vcpu` is not below [`SLOTS`].
    pub fn new(vcpu: c_uint) -> Self {
        let slot = &SLOTS_OF_VCPUS[vcpu as usize];
        slot.block.store(null_mut(), Relaxed);
        Self { slot }
    }
}

impl Pace for VcpuPace {
    fn begin(&mut self, block: &'static Block, more: u64) {
        let block = std::ptr::from_ref(block).cast_mut();
        self.slot.more.store(more, Relaxed);
        self.slot.block.store(block, Relaxed);
    }

    fn end(&mut self) -> u64 {
        self.slot.block.store(null_mut(), Relaxed);
        self.slot.more.load(Relaxed)
    }
}

/// The callback for each iteration of a block with `groups` groups.
fn on_each(groups: usize) -> api::ExecutionCallback {
    match groups {
        1 => on_iteration::<1>,
        2 => on_iteration::<2>,
        3 => on_iteration::<3>,
        _ => on_iteration::<4>,
    }
}

/// Counts an iteration if the thread's run may have one more. Callbacks have two arguments; the third is QEMU's frame
/// pointer (see [`crate::blocks`]).
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn on_iteration<const N: usize>(vcpu: c_uint, data: *mut c_void) {
    core::arch::naked_asm!(
        "cmp edi, {slots}",
        "jae 2f",
        "mov eax, edi",
        "shl rax, {shift}",
        "lea rcx, [rip + {all}]",
        "cmp [rax + rcx + {block}], rsi",
        "jne 2f",
        "sub qword ptr [rax + rcx + {more}], 1",
        "jb 3f",
        "ret",
        "3: mov qword ptr [rax + rcx + {more}], 0",
        "2: mov rdx, rbp",
        "jmp {otherwise}",
        slots = const SLOTS,
        all = sym SLOTS_OF_VCPUS,
        shift = const size_of::<Slot>().ilog2(),
        block = const std::mem::offset_of!(Slot, block),
        more = const std::mem::offset_of!(Slot, more),
        otherwise = sym iteration::<N>,
    )
}

// On other hosts `blocks::start` never lets a block be registered.
#[cfg(not(target_arch = "x86_64"))]
unsafe extern "C" fn on_iteration<const N: usize>(_: c_uint, _: *mut c_void) {}

unsafe extern "C" fn iteration<const N: usize>(
    vcpu: c_uint,
    data: *mut c_void,
    state: *const [u64; REGISTERS],
) {
    // SAFETY: `data` is the block that `register` passed; `state` holds the registers, as validation has shown.
    let (block, registers) = unsafe { (&*data.cast_const().cast::<Block>(), &*state) };
    if let Some(thread) = thread(vcpu) {
        thread.tracer.iteration::<N>(block, registers);
    }
}
