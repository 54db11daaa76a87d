//! Experiments: a task is run repeatedly before its real run, with its data blocks near or far as the design says; each
//! replay is undone.
//!
//! *Replay mode.* During a replay, API calls have no effect: creations return a GUID that refers to nothing (for a
//! data block, with scratch memory), all other calls succeed without effect, creation counters do not advance, and
//! printing is suppressed. Replays therefore lack the cost of the API, and are compared with replays only.
//!
//! *Undo.* All blocks the task holds, its parameters and its slots are copied before and restored after each replay. A
//! task that changes a block it holds RO or CONST is marked and not replayed again.
//!
//! *Side effects elsewhere.* Before the first replay of a class, one is made in a forked child: if it writes to the
//! program's static data, prints other than through the runtime, waits inside the task, crashes or hangs, the class is
//! marked with the reason and never replayed.
//!
//! *Far.* The profiling thread is pinned to the PUs of one node. On a machine with several nodes, near blocks are
//! copied into memory of that node and far ones into memory of the farthest (`relocate`); with a single node, far
//! blocks are flushed from the caches and near ones read into them (`evict`), which measures the cost of memory over
//! cache.
//!
//! *Design.* Up to four blocks: full factorial. More: random subsets, each followed by its complement. Each task gets a
//! few runs of its class's design, in random order; each run takes the smaller of two times. A class is done when the
//! near runs' standard error is small or its budget is used up.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use numaloc_model::maps::{self, MapsLine};

use crate::config::{Design, Experiments};
use crate::error::{Error, Result};
use crate::guid::Guid;
use crate::objects::block::{Block, mode};
use crate::objects::blocks;
use crate::objects::task::{Dep, Edt};
use crate::state::{self, Worker};

/// Runs of the design per task.
const RUNS_PER_TASK: usize = 8;
/// Largest number of blocks with a full factorial design.
const FACTORIAL: usize = 4;
/// GUID returned by creations in a replay; refers to nothing.
const FAKE: i64 = (1 << 62) | 4096;

thread_local! {
    /// The task made a call that replay mode cannot imitate.
    static UNFIT: Cell<bool> = const { Cell::new(false) };
    static SCRATCH: RefCell<Vec<Box<[u64]>>> = const { RefCell::new(Vec::new()) };
}

/// A GUID that refers to nothing.
pub fn fake_guid() -> Guid {
    Guid(FAKE)
}

/// Marks the task as unfit: it made a call that replay mode cannot imitate.
pub fn unfit() {
    UNFIT.set(true);
}

/// Scratch memory for a block created in a replay; freed when the replay ends.
///
/// # Errors
/// ENOMEM.
pub fn scratch(size: u64) -> Result<*mut u8> {
    let words = usize::try_from(size.div_ceil(8)).map_err(|_| Error::OutOfMemory)?;
    let mut memory = Vec::new();
    memory
        .try_reserve_exact(words)
        .map_err(|_| Error::OutOfMemory)?;
    memory.resize(words, 0);
    let mut memory = memory.into_boxed_slice();
    let pointer = memory.as_mut_ptr().cast();
    SCRATCH.with(|scratch| scratch.borrow_mut().push(memory));
    Ok(pointer)
}

/// State of the experiments with a class.
#[derive(Default)]
pub(crate) struct ClassState {
    tried: bool,
    mark: Option<&'static str>,
    runs: u32,
    next: usize,
    /// Times of runs with all blocks near.
    near: Vec<f64>,
}

/// A block that a task about to be replayed holds.
pub(crate) struct Held {
    slot: u32,
    block: *mut Block,
    bytes: usize,
    writes: bool,
    copy: Vec<u8>,
}

/// Which runs of its class's design a task makes.
pub(crate) struct Due {
    mark: Option<&'static str>,
    tried: bool,
    next: usize,
}

/// A replay that was made.
pub(crate) struct Run {
    /// Slots whose block was far.
    pub(crate) far: Vec<u32>,
    pub(crate) seconds: f64,
}

/// The experiments made with a task.
pub(crate) struct Made {
    /// Why the task must not be replayed.
    pub(crate) mark: Option<&'static str>,
    pub(crate) runs: Vec<Run>,
    /// State of the random numbers afterwards.
    pub(crate) random: u64,
}

impl ClassState {
    /// The runs that are due for a task of this class, which holds these blocks; `None`: the class is done.
    pub(crate) fn due(&mut self, limits: Experiments, held: &[Held]) -> Option<Due> {
        let bytes: u64 = held.iter().map(|held| held.bytes as u64).sum();
        if bytes > limits.largest_bytes {
            self.mark = Some("blocks too large");
        }
        if self.mark.is_none() && known(self, limits, held.len()) {
            return None;
        }
        Some(Due {
            mark: self.mark,
            tried: self.tried,
            next: self.next,
        })
    }

    /// Adds the experiments made with one task.
    pub(crate) fn add(&mut self, made: &Made) {
        self.tried = true;
        self.mark = made.mark;
        self.next += RUNS_PER_TASK;
        self.runs += made.runs.len() as u32;
        let near = made.runs.iter().filter(|run| run.far.is_empty());
        self.near.extend(near.map(|run| run.seconds));
    }
}

/// Makes the experiments that are due with a task that is about to run.
pub(crate) fn experiment(
    w: &mut Worker,
    design: Design,
    edt: *mut Edt,
    mut held: Vec<Held>,
    due: Due,
    mut random: u64,
) -> Made {
    let mut runs = Vec::new();
    if due.mark.is_some() {
        return Made {
            mark: due.mark,
            runs,
            random,
        };
    }
    let saved = Saved::new(edt, &mut held);
    let mut mark = if due.tried { None } else { try_in_child(edt) };
    if mark.is_none() {
        let mut points: Vec<u64> = (0..RUNS_PER_TASK)
            .map(|at| match design {
                Design::Full => design_point(held.len(), due.next + at, &mut random),
                Design::Near => 0,
                Design::Far => (1 << held.len().min(63)) - 1,
            })
            .collect();
        for at in (1..points.len()).rev() {
            points.swap(at, below(&mut random, at + 1));
        }
        for far in points {
            let mut best = f64::INFINITY;
            for _ in 0..2 {
                best = best.min(timed_run(w, edt, &held, far));
                if !saved.restore(edt, &held) {
                    mark = Some("writes a block it holds RO or CONST");
                }
            }
            let far = held.iter().enumerate().filter(|(at, _)| far >> at & 1 == 1);
            runs.push(Run {
                far: far.map(|(_, held)| held.slot).collect(),
                seconds: best,
            });
        }
        if mark.is_some() {
            runs.clear();
        }
    }
    Made { mark, runs, random }
}

/// Whether a class needs no more runs.
fn known(state: &ClassState, limits: Experiments, blocks: usize) -> bool {
    if state.runs >= limits.per_class {
        return true;
    }
    if limits.design != Design::Full || (state.runs as usize) < 4 * blocks || state.near.len() < 3 {
        return false;
    }
    let n = state.near.len() as f64;
    let mean = state.near.iter().sum::<f64>() / n;
    let variance = state.near.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / (n - 1.0);
    2.0 * (variance / n).sqrt() < limits.precision * mean
}

/// Bit mask of the blocks that are far in run `at` of a class's design.
fn design_point(blocks: usize, at: usize, random: &mut u64) -> u64 {
    let blocks = blocks.min(63);
    if blocks <= FACTORIAL {
        return at as u64 & ((1 << blocks) - 1);
    }
    // Pairs: a random subset, then its complement. Both come from the same draw.
    let pair = (at / 2) as u64;
    let mut bits = (*random ^ pair.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1;
    for _ in 0..3 {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
    }
    let all = (1 << blocks) - 1;
    match at % 16 {
        0 => 0,
        1 => all,
        at if at % 2 == 0 => bits & all,
        _ => !bits & all,
    }
}

fn below(random: &mut u64, bound: usize) -> usize {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    (*random % bound as u64) as usize
}

/// The blocks that a task holds, which is about to run on this thread.
pub(crate) fn blocks_of(w: &Worker, edt: *mut Edt) -> Vec<Held> {
    let mut held = Vec::new();
    blocks::for_each_held(w, edt, |slot, block, mode| {
        // SAFETY: held, so alive.
        let bytes = unsafe { (*block).size } as usize;
        if bytes > 0 {
            held.push(Held {
                slot,
                block,
                bytes,
                writes: matches!(mode, mode::RW | mode::EW),
                copy: Vec::new(),
            });
        }
    });
    held
}

/// What a replay may change, apart from the contents of its blocks.
struct Saved {
    params: Vec<u64>,
    slots: Vec<(Guid, *mut std::ffi::c_void, u32)>,
}

impl Saved {
    fn new(edt: *mut Edt, held: &mut [Held]) -> Self {
        for held in held {
            // SAFETY: a held block's memory.
            held.copy =
                unsafe { std::slice::from_raw_parts((*held.block).data, held.bytes) }.to_vec();
        }
        // SAFETY: about to run.
        unsafe {
            Self {
                params: Edt::params_of(edt).to_vec(),
                slots: (0..(*edt).depc)
                    .map(|at| {
                        let dep: &Dep = &*Edt::slot(edt, at);
                        (dep.guid, dep.ptr, dep.mode)
                    })
                    .collect(),
            }
        }
    }

    /// Undoes a replay. False: the task changed a block that it may only read.
    fn restore(&self, edt: *mut Edt, held: &[Held]) -> bool {
        let mut honest = true;
        // SAFETY: about to run; the blocks are held.
        unsafe {
            Edt::params_of(edt).copy_from_slice(&self.params);
            for (at, &(guid, ptr, mode)) in self.slots.iter().enumerate() {
                let dep = &mut *Edt::slot(edt, at as u32);
                (dep.guid, dep.ptr, dep.mode) = (guid, ptr, mode);
            }
            for held in held {
                let now = std::slice::from_raw_parts_mut((*held.block).data, held.bytes);
                if held.writes {
                    now.copy_from_slice(&held.copy);
                } else if now != held.copy.as_slice() {
                    honest = false;
                    now.copy_from_slice(&held.copy);
                }
            }
        }
        SCRATCH.with(|scratch| scratch.borrow_mut().clear());
        honest
    }
}

/// Time in seconds of one replay, with the blocks in the bit mask `far` far.
fn timed_run(w: &mut Worker, edt: *mut Edt, held: &[Held], far: u64) -> f64 {
    let mut relocated = Vec::new();
    // The node this thread is pinned to; `w.node` is the node assigned to the task.
    let here = w.rt.queues.workers[w.index].node;
    if w.rt.machine.bindable_nodes().is_some() {
        for (at, held) in held.iter().enumerate() {
            let node = if far >> at & 1 == 1 {
                farthest(w, here)
            } else {
                here
            };
            let Some((memory, home)) = w.rt.memory.allocate(held.bytes as u64, node) else {
                continue;
            };
            // SAFETY: fresh memory of that size; the slot is the task's.
            unsafe {
                std::ptr::copy_nonoverlapping(held.copy.as_ptr(), memory, held.bytes);
                for slot in 0..(*edt).depc {
                    let dep = &mut *Edt::slot(edt, slot);
                    if dep.ptr == (*held.block).data.cast() {
                        dep.ptr = memory.cast();
                    }
                }
                flush(memory, held.bytes);
            }
            relocated.push((memory, held.bytes, home));
        }
    } else {
        for held in held {
            // SAFETY: a held block's memory.
            unsafe { flush((*held.block).data, held.bytes) };
        }
        for (at, held) in held.iter().enumerate() {
            if far >> at & 1 == 0 {
                // SAFETY: as above.
                unsafe { touch((*held.block).data, held.bytes) };
            }
        }
    }
    let seconds = run_once(edt);
    w.storage.retain(|(owner, _)| *owner != edt);
    for (memory, bytes, home) in relocated {
        // SAFETY: allocated above; `restore` resets the slots before they are read again.
        unsafe { w.rt.memory.free(memory, bytes as u64, home) };
    }
    seconds
}

fn farthest(w: &Worker, here: u16) -> u16 {
    (0..w.rt.machine.nodes() as u16)
        .max_by(|&a, &b| {
            let far = |node| w.rt.machine.distance(here, node);
            far(a).total_cmp(&far(b)).then(b.cmp(&a))
        })
        .unwrap_or(here)
}

fn run_once(edt: *mut Edt) -> f64 {
    state::replay(|| {
        let start = Instant::now();
        // SAFETY: about to run; in a replay its calls change nothing.
        unsafe { Edt::call(edt) };
        start.elapsed().as_secs_f64()
    })
}

const LINE: usize = 64;

/// Evicts memory from all caches, if the instruction set has an instruction for that.
///
/// # Safety
/// `memory` has `bytes` readable bytes.
unsafe fn flush(memory: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise; the instructions change no data.
    unsafe {
        for at in (0..bytes).step_by(LINE) {
            std::arch::x86_64::_mm_clflush(memory.add(at));
        }
        std::arch::x86_64::_mm_mfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (memory, bytes);
}

/// Reads memory into the caches.
///
/// # Safety
/// As for [`flush`].
unsafe fn touch(memory: *const u8, bytes: usize) {
    let mut sum = 0_u8;
    for at in (0..bytes).step_by(LINE) {
        // SAFETY: the caller's promise.
        sum = sum.wrapping_add(unsafe { memory.add(at).read_volatile() });
    }
    std::hint::black_box(sum);
}

/// Makes a replay in a forked child, to find side effects that cannot be undone.
fn try_in_child(edt: *mut Edt) -> Option<&'static str> {
    const PRINTS: i32 = 1;
    const WRITES: i32 = 2;
    const UNFITTING: i32 = 4;
    // SAFETY: profiling runs have one thread, so the child may do whatever the parent may.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        match libc::fork() {
            -1 => Some("cannot fork for a trial"),
            0 => {
                libc::alarm(20);
                let output = libc::memfd_create(c"output".as_ptr(), 0);
                libc::dup2(output, 1);
                libc::dup2(output, 2);
                let data = static_data();
                let before = checksum(&data);
                UNFIT.set(false);
                run_once(edt);
                let mut found = 0;
                if checksum(&data) != before {
                    found |= WRITES;
                }
                libc::fflush(std::ptr::null_mut());
                if libc::lseek(output, 0, libc::SEEK_END) > 0 {
                    found |= PRINTS;
                }
                if UNFIT.get() {
                    found |= UNFITTING;
                }
                libc::_exit(found)
            }
            child => {
                let mut status = 0;
                while libc::waitpid(child, &mut status, 0) < 0
                    && *libc::__errno_location() == libc::EINTR
                {}
                if libc::WIFSIGNALED(status) {
                    return Some(if libc::WTERMSIG(status) == libc::SIGALRM {
                        "hangs in a trial"
                    } else {
                        "crashes in a trial"
                    });
                }
                match libc::WEXITSTATUS(status) {
                    0 => None,
                    found if found & UNFITTING != 0 => Some("waits inside the task"),
                    found if found & WRITES != 0 => Some("writes static data"),
                    found if found & PRINTS != 0 => Some("prints"),
                    _ => Some("exits"),
                }
            }
        }
    }
}

/// Writable memory of the program file itself (.data, .bss), without libraries.
fn static_data() -> Vec<(usize, usize)> {
    let Ok(program) = std::fs::read_link("/proc/self/exe") else {
        return Vec::new();
    };
    let program = program.to_string_lossy().into_owned();
    let Ok(maps) = std::fs::read("/proc/self/maps") else {
        return Vec::new();
    };
    let maps = maps::text(maps);
    let mut found: Vec<(usize, usize)> = Vec::new();
    let mut last_end = 0;
    for line in maps.lines() {
        let Some(mapped) = MapsLine::parse(line) else {
            continue;
        };
        let (start, end, path) = (mapped.start as usize, mapped.end as usize, mapped.name);
        // .bss follows the file's own mapping and has no name.
        let bss = path.is_empty() && start == last_end;
        if mapped.is_writable() && (path == program || bss) {
            found.push((start, end));
            last_end = end;
        } else if path == program {
            last_end = end;
        }
    }
    found
}

/// FNV-1a over words.
fn checksum(ranges: &[(usize, usize)]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for &(start, end) in ranges {
        for at in (start..end).step_by(8) {
            // SAFETY: mapped readable a moment ago, and this process has one thread.
            let word = unsafe { (at as *const u64).read_volatile() };
            hash = (hash ^ word).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}
