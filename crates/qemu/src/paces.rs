//! Counts the iterations of loops as cheaply as QEMU allows.
//!
//! Since version 9.1 the translated code counts, with a conditional callback: each loop has a counter in the vCPU's
//! row of a *scoreboard*, which its block decrements, and calls us only when it was zero. Older versions can only call
//! for each iteration. Then [`on_iteration`] counts in its vCPU's [`Slot`], in machine code, because compiled code
//! would first set up a frame for calls it might make.
//!
//! QEMU moves a scoreboard when it grows it for more vCPUs, while no vCPU runs code, so a counter is looked up for
//! each use. Runs are over when a thread makes a system call (it ends the block, and a loop's exit ends its run),
//! except in a signal handler that accesses no memory.

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use numaloc_trace::block::{Block, REGISTERS};
use numaloc_trace::thread::Pace;

use crate::api::{self, TranslationBlock};
use crate::scoreboard::Scoreboard;
use crate::{SLOTS, thread};

/// Most loops counted by translated code; each takes 8 bytes for every vCPU that ever existed. Later ones are counted
/// by call.
const COUNTERS: u32 = 2048;
static COUNTERS_USED: AtomicU32 = AtomicU32::new(0);

/// The scoreboard; `None` if QEMU has none.
static SCOREBOARD: OnceLock<Option<Scoreboard>> = OnceLock::new();

/// Sets up the scoreboard if the running QEMU has one and it is `wanted`.
pub fn start(wanted: bool) {
    SCOREBOARD.get_or_init(|| wanted.then(|| Scoreboard::new(COUNTERS as usize)).flatten());
}

fn scoreboard() -> Option<&'static Scoreboard> {
    SCOREBOARD.get().and_then(Option::as_ref)
}

/// Allocates a counter for a loop; `None` if none is free.
pub fn counter() -> Option<u32> {
    scoreboard()?;
    let next = |used: u32| (used < COUNTERS).then_some(used + 1);
    COUNTERS_USED.fetch_update(Relaxed, Relaxed, next).ok()
}

/// Registers the counting of `counted`, which repeats, for each execution of `block`.
pub fn register(block: *mut TranslationBlock, counted: &'static Block) {
    let data = std::ptr::from_ref(counted).cast_mut().cast();
    match (scoreboard(), counted.counter) {
        (Some(scoreboard), Some(counter)) => {
            let callback = on_last(counted.shape().groups);
            // SAFETY: a callback of this library, and a block that is never freed.
            unsafe { scoreboard.count_down(block, counter, callback, data) };
        }
        _ => {
            let callback = on_each(counted.shape().groups);
            // SAFETY: as above.
            unsafe {
                api::qemu_plugin_register_vcpu_tb_exec_cb(block, callback, api::NO_REGISTERS, data);
            }
        }
    }
}

/// Clears the runs of other threads in a forked child, which has one thread. A slot is cleared when a thread comes to
/// its vCPU.
pub fn forget() {
    if let Some(scoreboard) = scoreboard() {
        scoreboard.clear(COUNTERS_USED.load(Relaxed));
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
    vcpu: c_uint,
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
        Self { vcpu, slot }
    }

    /// The counter of `block` in the scoreboard.
    fn counter(&self, block: &Block) -> Option<&AtomicU64> {
        Some(scoreboard()?.counter(self.vcpu, block.counter?))
    }
}

impl Pace for VcpuPace {
    fn begin(&mut self, block: &'static Block, more: u64) {
        if let Some(counter) = self.counter(block) {
            counter.store(more, Relaxed);
        } else {
            let block = std::ptr::from_ref(block).cast_mut();
            self.slot.more.store(more, Relaxed);
            self.slot.block.store(block, Relaxed);
        }
    }

    fn end(&mut self, block: &'static Block) -> u64 {
        if let Some(counter) = self.counter(block) {
            let more = counter.load(Relaxed);
            counter.store(0, Relaxed);
            // The block's code decrements a zero, too.
            (more as i64).max(0) as u64
        } else {
            self.slot.block.store(null_mut(), Relaxed);
            self.slot.more.load(Relaxed)
        }
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

/// The callback for an iteration that the block's code does not count.
fn on_last(groups: usize) -> api::ExecutionCallback {
    match groups {
        1 => on_uncounted::<1>,
        2 => on_uncounted::<2>,
        3 => on_uncounted::<3>,
        _ => on_uncounted::<4>,
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

#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn on_uncounted<const N: usize>(vcpu: c_uint, data: *mut c_void) {
    core::arch::naked_asm!("mov rdx, rbp", "jmp {}", sym iteration::<N>)
}

// On other hosts `blocks::start` never lets a block be registered.
#[cfg(not(target_arch = "x86_64"))]
unsafe extern "C" fn on_iteration<const N: usize>(_: c_uint, _: *mut c_void) {}
#[cfg(not(target_arch = "x86_64"))]
unsafe extern "C" fn on_uncounted<const N: usize>(_: c_uint, _: *mut c_void) {}

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
