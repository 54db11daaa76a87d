//! How the iterations of a loop are to be handed out: agreed once by all threads of a team, because the schedule of
//! `schedule(runtime)` belongs to each thread.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::ranges::Portion;

/// A schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// In portions of this many iterations.
    Dealt(Portion, u64),
    /// By the run-time system.
    Left,
}

/// Functions of a run-time system that ask for `omp_get_schedule`.
pub type GetSchedule = unsafe extern "C" fn(*mut c_uint, *mut c_int);

/// The modifier `monotonic` of `omp_sched_t`.
const MONOTONIC: c_uint = 0x8000_0000;
/// `omp_sched_dynamic`, `omp_sched_guided`.
const DYNAMIC: c_uint = 2;
const GUIDED: c_uint = 3;

impl Schedule {
    /// That of the calling thread (`OMP_SCHEDULE`, `omp_set_schedule`).
    ///
    /// # Safety
    /// `get` is `omp_get_schedule` of a run-time system.
    pub unsafe fn of_runtime(get: GetSchedule) -> Self {
        let (mut kind, mut chunk) = (0, 0);
        // SAFETY: the pointers are valid (and function contract).
        unsafe { get(&raw mut kind, &raw mut chunk) };
        let chunk = u64::try_from(chunk).unwrap_or(0).max(1);
        match kind {
            // A modifier asks for an order that dealing does not keep.
            _ if kind & MONOTONIC != 0 => Self::Left,
            DYNAMIC => Self::Dealt(Portion::One, chunk),
            GUIDED => Self::Dealt(Portion::Quarter, chunk),
            _ => Self::Left,
        }
    }

    fn word(self) -> u64 {
        match self {
            Self::Left => 1,
            Self::Dealt(Portion::One, chunk) => chunk.min(u64::MAX >> 2) << 2 | 2,
            Self::Dealt(Portion::Quarter, chunk) => chunk.min(u64::MAX >> 2) << 2 | 3,
        }
    }

    fn of_word(word: u64) -> Self {
        match word & 3 {
            2 => Self::Dealt(Portion::One, word >> 2),
            3 => Self::Dealt(Portion::Quarter, word >> 2),
            _ => Self::Left,
        }
    }
}

/// The place at which a team agrees; all zeroes before.
#[repr(transparent)]
pub struct Agreed(AtomicU64);

impl Agreed {
    /// The schedule of the first thread that asks; `wanted` is called if it is this one.
    pub fn on(&self, wanted: impl FnOnce() -> Schedule) -> Schedule {
        let known = self.0.load(Acquire);
        if known != 0 {
            return Schedule::of_word(known);
        }
        let mine = wanted().word();
        match self.0.compare_exchange(0, mine, Release, Acquire) {
            Ok(_) => Schedule::of_word(mine),
            Err(theirs) => Schedule::of_word(theirs),
        }
    }

    /// Makes it as before the loop.
    pub fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_decides_for_all() {
        let agreed = Agreed(AtomicU64::new(0));
        let first = Schedule::Dealt(Portion::Quarter, 7);
        assert_eq!(agreed.on(|| first), first);
        assert_eq!(agreed.on(|| Schedule::Left), first);
        agreed.reset();
        assert_eq!(agreed.on(|| Schedule::Left), Schedule::Left);
        assert_eq!(agreed.on(|| first), Schedule::Left);
    }

    #[test]
    fn a_schedule_set_by_the_user_is_dealt_unless_it_is_static_or_monotonic() {
        unsafe extern "C" fn dynamic(kind: *mut c_uint, chunk: *mut c_int) {
            // SAFETY: valid pointers of the caller.
            unsafe { (*kind, *chunk) = (DYNAMIC, 0) };
        }
        unsafe extern "C" fn fixed(kind: *mut c_uint, chunk: *mut c_int) {
            // SAFETY: valid pointers of the caller.
            unsafe { (*kind, *chunk) = (1, 4) };
        }
        unsafe extern "C" fn monotonic(kind: *mut c_uint, chunk: *mut c_int) {
            // SAFETY: valid pointers of the caller.
            unsafe { (*kind, *chunk) = (MONOTONIC | GUIDED, 4) };
        }
        let of = |get: GetSchedule| {
            // SAFETY: functions of this type that do what is asked.
            unsafe { Schedule::of_runtime(get) }
        };
        assert_eq!(of(dynamic), Schedule::Dealt(Portion::One, 1));
        assert_eq!(of(fixed), Schedule::Left);
        assert_eq!(of(monotonic), Schedule::Left);
    }
}
