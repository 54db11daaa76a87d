//! Experiments: a task is run repeatedly before its real run, with its data blocks near or far as the design says; each
//! replay is undone.
//!
//! *Replay mode.* While [`active`], API calls have no effect: creations return a GUID that refers to nothing (for a
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

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use numaloc_model::MapsLine;
use numaloc_task_plan::{ClassId, Replay};

use crate::abi::{Dep, Errno, Guid, Result, mode};
use crate::block::{self, Block};
use crate::config::{Design, Experiments};
use crate::edt::{Edt, slot_state};
use crate::record::Recorder;
use crate::worker::Worker;

/// Runs of the design per task.
const RUNS_PER_TASK: usize = 8;
/// Largest number of blocks with a full factorial design.
const FACTORIAL: usize = 4;
/// GUID returned by creations in a replay; refers to nothing.
const FAKE: i64 = (1 << 62) | 4096;

/// Profiling runs have one thread, so one flag is enough.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// The task made a call that replay mode cannot imitate.
static UNFIT: AtomicBool = AtomicBool::new(false);

thread_local! {
    static SCRATCH: RefCell<Vec<Box<[u64]>>> = const { RefCell::new(Vec::new()) };
}

/// Whether a replay is running.
#[inline]
pub fn active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// A GUID that refers to nothing.
pub fn fake_guid() -> Guid {
    Guid(FAKE)
}

/// Marks the task as unfit: it made a call that replay mode cannot imitate.
pub fn unfit() {
    UNFIT.store(true, Ordering::Relaxed);
}

/// Scratch memory for a block created in a replay; freed when the replay ends.
///
/// # Errors
/// ENOMEM.
pub fn scratch(size: u64) -> Result<*mut u8> {
    let words = usize::try_from(size.div_ceil(8)).map_err(|_| Errno::ENOMEM)?;
    let mut memory = Vec::new();
    memory.try_reserve_exact(words).map_err(|_| Errno::ENOMEM)?;
    memory.resize(words, 0);
    let mut memory = memory.into_boxed_slice();
    let pointer = memory.as_mut_ptr().cast();
    SCRATCH.with(|scratch| scratch.borrow_mut().push(memory));
    Ok(pointer)
}

/// State of the experiments with a class.
#[derive(Default)]
pub struct ClassState {
    tried: bool,
    mark: Option<&'static str>,
    runs: u32,
    next: usize,
    /// Times of runs with all blocks near.
    near: Vec<f64>,
}

struct Held {
    slot: u32,
    block: *mut Block,
    bytes: usize,
    writes: bool,
    copy: Vec<u8>,
}

/// Makes experiments with a task that is about to run, if its class is due.
pub fn experiment(w: &mut Worker, recorder: &'static Recorder, edt: *mut Edt, class: ClassId) {
    let mut held = blocks_of(w, edt);
    if held.is_empty() {
        return;
    }
    let started = Instant::now();
    // SAFETY: about to run.
    let id = unsafe { (*edt).id } as usize;
    let bytes: u64 = held.iter().map(|held| held.bytes as u64).sum();
    let limits = recorder.experiments;
    let (mark, from, mut random) = {
        let mut state = recorder.state.lock().expect("no panic while locked");
        if state.spent.as_secs() >= limits.budget_seconds {
            if !std::mem::replace(&mut state.budget_reported, true) {
                w.rt.report(&format!(
                    "the time limit of {} s for experiments is reached; unmeasured classes are estimated from bytes",
                    limits.budget_seconds
                ));
            }
            return;
        }
        let random = state.random;
        let state = state.class_states.entry(class).or_default();
        if bytes > limits.largest_bytes {
            state.mark = Some("blocks too large");
        }
        if state.mark.is_none() && known(state, limits, held.len()) {
            return;
        }
        (state.mark, (state.tried, state.next), random)
    };
    let (tried, next) = from;
    let mut mark = mark;
    let saved = Saved::new(edt, &mut held);
    if mark.is_none() && !tried {
        mark = try_in_child(w, edt);
    }
    let mut runs: Vec<(u64, f64)> = Vec::new();
    if mark.is_none() {
        let mut design: Vec<u64> = (0..RUNS_PER_TASK)
            .map(|at| match limits.design {
                Design::Full => design_point(held.len(), next + at, &mut random),
                Design::Near => 0,
                Design::Far => (1 << held.len().min(63)) - 1,
            })
            .collect();
        for at in (1..design.len()).rev() {
            design.swap(at, below(&mut random, at + 1));
        }
        for far in design {
            let mut best = f64::INFINITY;
            for _ in 0..2 {
                best = best.min(timed_run(w, edt, &held, far));
                if !saved.restore(edt, &held) {
                    mark = Some("writes a block it holds RO or CONST");
                }
            }
            runs.push((far, best));
        }
        if mark.is_some() {
            runs.clear();
        }
    }
    let mut state = recorder.state.lock().expect("no panic while locked");
    let state = &mut *state;
    state.random = random;
    state.spent += started.elapsed();
    let class = state.class_states.entry(class).or_default();
    class.tried = true;
    class.mark = mark;
    class.next += RUNS_PER_TASK;
    class.runs += runs.len() as u32;
    for (far, seconds) in runs {
        if far == 0 {
            class.near.push(seconds);
        }
        state.profile.replays.push(Replay {
            task: id as u32,
            far: (0..held.len())
                .filter(|at| far >> at & 1 == 1)
                .map(|at| held[at].slot)
                .collect(),
            seconds,
        });
    }
    if let Some(mark) = mark {
        state.profile.tasks[id].mark = mark.to_owned();
    }
    recorder.show_progress(state);
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

fn blocks_of(w: &Worker, edt: *mut Edt) -> Vec<Held> {
    let mut held = Vec::new();
    // SAFETY: about to run, so owned by this thread, its blocks held.
    unsafe {
        for slot in 0..(*edt).depc {
            let dep = &*Edt::slot(edt, slot);
            let state = dep.state.load(Ordering::Relaxed);
            if state & slot_state::HELD == 0 {
                continue;
            }
            let Ok(block) = block::find(w, dep.guid) else {
                continue;
            };
            if (*block).size > 0 {
                held.push(Held {
                    slot,
                    block,
                    bytes: (*block).size as usize,
                    writes: matches!(state >> slot_state::MODE_SHIFT, mode::RW | mode::EW),
                    copy: Vec::new(),
                });
            }
        }
    }
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
    let here = w.rt.workers[w.index].node;
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
    ACTIVE.store(true, Ordering::Relaxed);
    let start = Instant::now();
    // SAFETY: about to run; in replay mode its calls change nothing.
    unsafe { Edt::call(edt) };
    let seconds = start.elapsed().as_secs_f64();
    ACTIVE.store(false, Ordering::Relaxed);
    seconds
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
fn try_in_child(w: &mut Worker, edt: *mut Edt) -> Option<&'static str> {
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
                UNFIT.store(false, Ordering::Relaxed);
                let _ = w;
                run_once(edt);
                let mut found = 0;
                if checksum(&data) != before {
                    found |= WRITES;
                }
                libc::fflush(std::ptr::null_mut());
                if libc::lseek(output, 0, libc::SEEK_END) > 0 {
                    found |= PRINTS;
                }
                if UNFIT.load(Ordering::Relaxed) {
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
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else {
        return Vec::new();
    };
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
