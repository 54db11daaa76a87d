//! Teams of libomp: what their threads share for the loops that are dealt. (libgomp has memory for each loop itself.)
//!
//! The function of each region is called through [`enter`], which notes the team for the thread. A team has room for
//! [`PLACES`] loops at a time; a thread that is further ahead waits, as in libomp itself.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use super::call::{Microtask, Words, call};
use super::libomp::{RUNTIMES, function};
use super::schedule::Agreed;
use crate::loops;
use crate::ranges::Share;
use crate::real::Runtime;
use crate::settings;

/// Loops of a team that its threads may be in at the same time (`nowait`).
const PLACES: u64 = 8;

/// Memory of one loop after another; all zeroes at first.
#[repr(C, align(64))]
pub struct Place {
    /// Loops that had this place before.
    uses: AtomicU64,
    /// Threads that have left the present one.
    left: AtomicU32,
    /// The schedule.
    pub agreed: Agreed,
}

/// A team, on the stack of the thread that starts it.
pub struct Team {
    microtask: Microtask,
    words: Words,
    runtime: &'static Runtime,
    /// Each place, followed by its shares; null until the first loop.
    places: AtomicPtr<u8>,
}

/// A thread of a team, on its stack.
pub struct Member {
    team: *const Team,
    level: c_int,
    rank: u32,
    threads: u32,
    /// Loops that the thread has begun.
    begun: Cell<u64>,
    /// The loop that it has not left, plus 1.
    inside: Cell<u64>,
}

thread_local! {
    static MEMBER: Cell<*const Member> = const { Cell::new(null()) };
}

/// Starts a region of libomp: `(location, count, microtask, ...)`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __kmpc_fork_call() {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "sub rsp, 8",
        "push r9",
        "push r8",
        "push rcx",
        "mov rcx, rsp",
        "lea r8, [rbp + 16]",
        "call {fork}",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        fork = sym started,
    )
}

/// # Safety
/// As for libomp's `__kmpc_fork_call`: `first` and `rest` hold `count` words that live until the region's end.
unsafe extern "C-unwind" fn started(
    location: *const c_void,
    count: c_int,
    microtask: Microtask,
    first: *const [usize; 3],
    rest: *const usize,
) {
    let count = usize::try_from(count).unwrap_or(0);
    let words = Words { first, rest, count };
    // SAFETY: guaranteed by the caller.
    unsafe { fork(location, microtask, &words) }
}

/// Starts a region.
///
/// # Safety
/// As for libomp's `__kmpc_fork_call`; `words` lives until the region's end.
unsafe fn fork(location: *const c_void, microtask: Microtask, words: &Words) {
    let runtime = RUNTIMES.of(microtask as usize);
    // SAFETY: the function of this name has this type, and each process with callers of it has one.
    let real = unsafe {
        std::mem::transmute::<
            usize,
            unsafe extern "C-unwind" fn(*const c_void, c_int, *const c_void, *const Team),
        >(function::FORK_CALL.required(runtime))
    };
    let team = Team {
        microtask,
        words: *words,
        runtime,
        places: AtomicPtr::new(null_mut()),
    };
    let entered: unsafe extern "C-unwind" fn(*mut c_int, *mut c_int, *const Team) = enter;
    // SAFETY: libomp calls `enter` with the one word given, and returns after all threads have left it.
    unsafe { real(location, 1, entered as *const c_void, &raw const team) };
    let places = team.places.load(Acquire);
    if !places.is_null() {
        // SAFETY: allocated by `calloc`, and no thread is in the team any more.
        unsafe { libc::free(places.sub(offset(places)).cast()) };
    }
}

/// A thread of the team executes the region's function.
///
/// # Safety
/// For libomp: the pointers are those of [`fork`] and of its own.
unsafe extern "C-unwind" fn enter(thread: *mut c_int, bound: *mut c_int, team: *const Team) {
    // SAFETY: lives until all threads have returned from here.
    let team_of = unsafe { &*team };
    let runtime = team_of.runtime;
    let member = Member {
        team,
        level: function::LEVEL.ask(runtime),
        rank: function::THREAD_NUM.ask(runtime) as u32,
        threads: function::NUM_THREADS.ask(runtime) as u32,
        begun: Cell::new(0),
        inside: Cell::new(0),
    };
    let before = MEMBER.replace(&raw const member);
    let depth = loops::depth();
    // SAFETY: the words of the region, which live until all threads have returned.
    unsafe { call(team_of.microtask, thread, bound, &team_of.words) };
    // A cancelled region leaves its loops without a call.
    loops::cut(depth);
    MEMBER.set(before);
}

/// The calling thread's place among several in its team; `None` if its team is not known or has one thread.
pub fn member() -> Option<&'static Member> {
    let member = MEMBER.get();
    if member.is_null() || !settings::deals() {
        return None;
    }
    // SAFETY: on the stack of this thread, as long as it is in the region; callers do not keep it longer.
    let member = unsafe { &*member };
    // SAFETY: lives as long as the region.
    let runtime = unsafe { &*member.team }.runtime;
    // A region that was started otherwise (`if`, teams) is another level.
    let is_ours = function::LEVEL.ask(runtime) == member.level
        && function::THREAD_NUM.ask(runtime) as u32 == member.rank;
    (is_ours && member.threads > 1).then_some(member)
}

impl Member {
    /// Position of the thread.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Threads of the team.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// Begins the team's next loop; `None` if there is no memory for it.
    pub fn begin(&self) -> Option<&Place> {
        self.leave();
        let number = self.begun.get();
        self.begun.set(number + 1);
        let place = self.place(number)?;
        self.inside.set(number + 1);
        let mut tries = 0_u32;
        while place.uses.load(Acquire) != number / PLACES {
            tries += 1;
            match tries < 100 {
                true => std::hint::spin_loop(),
                false => {
                    // SAFETY: takes no arguments.
                    unsafe { libc::sched_yield() };
                }
            }
        }
        Some(place)
    }

    /// The shares of a place, one for each thread.
    pub fn shares<'a>(&self, place: &'a Place) -> &'a [Share] {
        // SAFETY: that many shares follow each place (`place`).
        unsafe {
            let first = std::ptr::from_ref(place).add(1).cast::<Share>();
            std::slice::from_raw_parts(first, self.threads as usize)
        }
    }

    /// Leaves the loop that the thread has begun, if it has not left it.
    pub fn leave(&self) {
        let Some(number) = self.inside.replace(0).checked_sub(1) else {
            return;
        };
        let Some(place) = self.place(number) else {
            return;
        };
        if place.left.fetch_add(1, AcqRel) + 1 < self.threads {
            return;
        }
        for share in self.shares(place) {
            share.reset();
        }
        place.agreed.reset();
        place.left.store(0, Relaxed);
        place.uses.fetch_add(1, Release);
    }

    fn place(&self, number: u64) -> Option<&Place> {
        // SAFETY: lives as long as the region.
        let team = unsafe { &*self.team };
        let each = size_of::<Place>() + self.threads as usize * size_of::<Share>();
        let mut places = team.places.load(Acquire);
        if places.is_null() {
            // SAFETY: takes numbers.
            let memory = unsafe { libc::calloc(each * PLACES as usize + 64, 1) }.cast::<u8>();
            if memory.is_null() {
                // Threads that have memory and threads that have none would execute different iterations.
                std::process::abort();
            }
            let gap = 64 - memory as usize % 64;
            // SAFETY: the allocation has 64 bytes more than the places need, of which the first `gap` note its start.
            let aligned = unsafe { memory.add(gap) };
            // SAFETY: the byte before the places is within the allocation, because the gap has at least one.
            unsafe { aligned.sub(1).write(gap as u8) };
            match team
                .places
                .compare_exchange(null_mut(), aligned, AcqRel, Acquire)
            {
                Ok(_) => places = aligned,
                Err(theirs) => {
                    // SAFETY: allocated above, and nobody else knows it.
                    unsafe { libc::free(memory.cast()) };
                    places = theirs;
                }
            }
        }
        let at = (number % PLACES) as usize * each;
        // SAFETY: within the allocation, aligned, and all zeroes is a place.
        Some(unsafe { &*places.add(at).cast::<Place>() })
    }
}

/// Bytes before the places in their allocation.
fn offset(places: *mut u8) -> usize {
    // SAFETY: noted there when the memory was allocated.
    usize::from(unsafe { places.sub(1).read() })
}
