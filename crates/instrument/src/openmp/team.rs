//! Virtual time of OpenMP's teams, called by the entry points of libgomp ([`crate::openmp::gomp`]) and libomp
//! ([`crate::openmp::kmpc`]).
//!
//! A region begins no earlier than its fork in each thread, and its master continues no earlier than each thread's
//! end. Clocks are kept at addresses of our own: in [`Region`] for teams, and in a table of words ([`token`]) for
//! tasks.

use std::cell::{Cell, RefCell};
use std::ptr::null;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};

use crate::clocks::{acquire, release};

/// A parallel region; each of its clocks has a line of its own.
#[repr(C, align(64))]
pub(crate) struct Region {
    start: [u8; 64],
    barrier: [[u8; 64]; 2],
    ordered: [u8; 64],
    end: [u8; 64],
}

/// The loop with `ordered(n)` in its region that a thread is in.
#[derive(Clone, Copy)]
pub(crate) struct OrderedLoop {
    /// Number of such loops that the thread has begun in the region.
    pub(super) number: u32,
    /// Depth of this loop's nest: numbers that identify an iteration.
    pub(super) depth: u32,
}

impl OrderedLoop {
    pub(crate) const NONE: Self = Self {
        number: 0,
        depth: 0,
    };
}

/// The calling thread's place in OpenMP's constructs.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The region it works in, null outside.
    pub(crate) region: *const Region,
    /// Barriers it has passed in the region.
    pub(crate) passed: usize,
    /// Token at which the children of its present task leave their clocks, 0 while it has none.
    pub(crate) children: u64,
    /// Token of the innermost taskgroup, 0 outside.
    pub(crate) group: u64,
    pub(crate) ordered_loop: OrderedLoop,
}

impl Place {
    const NOWHERE: Self = Self {
        region: null(),
        passed: 0,
        children: 0,
        group: 0,
        ordered_loop: OrderedLoop::NONE,
    };
}

thread_local! {
    static PLACE: Cell<Place> = const { Cell::new(Place::NOWHERE) };
    /// Whether the calling thread runs code of a run-time library, not of the program.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Previous places, for regions of one thread that begin and end with a call each.
    static OUTER: RefCell<Vec<Place>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn place() -> Place {
    PLACE.get()
}

/// Sets the calling thread's place; returns the previous one.
pub(crate) fn go_to(place: Place) -> Place {
    PLACE.replace(place)
}

/// Calls the run-time library. Its use of mutexes and condition variables is not the program's: the host decides which
/// thread is first.
pub(crate) fn inside<T>(call: impl FnOnce() -> T) -> T {
    let outer = INSIDE.replace(true);
    let result = call();
    INSIDE.set(outer);
    result
}

/// Runs the program's code on behalf of the run-time library.
pub(crate) fn outside(body: impl FnOnce()) {
    let outer = INSIDE.replace(false);
    body();
    INSIDE.set(outer);
}

/// Whether the calling thread runs code of the run-time library.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// Marks the calling thread as one of the run-time library's own.
pub(crate) fn begin_inside() {
    INSIDE.set(true);
}

pub(crate) fn at<T>(token: &T) -> u64 {
    std::ptr::from_ref(token) as u64
}

impl Region {
    pub(crate) fn new() -> Self {
        Self {
            start: [0; 64],
            barrier: [[0; 64]; 2],
            ordered: [0; 64],
            end: [0; 64],
        }
    }

    /// Calls `fork`, which returns when every thread of the team is done.
    pub(crate) fn enter(&self, fork: impl FnOnce()) {
        release(at(&self.start));
        inside(fork);
        acquire(at(&self.end));
    }

    /// Runs `body` as the calling thread's part of the region.
    pub(crate) fn work(&self, body: impl FnOnce()) {
        let outer = go_to(Place {
            region: self,
            ..Place::NOWHERE
        });
        acquire(at(&self.start));
        outside(body);
        release(at(&self.end));
        go_to(outer);
    }

    /// Token for the clocks at the barrier after `passed` others. Two alternate, so that a fast thread's next arrival
    /// is not mistaken for the present one.
    pub(crate) fn barrier(&self, passed: usize) -> u64 {
        at(&self.barrier[passed % 2])
    }

    /// Token for the clocks of threads that are done with the region.
    pub(crate) fn end(&self) -> u64 {
        at(&self.end)
    }
}

/// The calling thread's region.
fn region() -> Option<&'static Region> {
    // SAFETY: a thread leaves its region before the Region does.
    unsafe { PLACE.get().region.as_ref() }
}

/// Records that the calling thread has arrived at its team's next barrier.
pub(crate) fn arrive() {
    if let Some(region) = region() {
        release(region.barrier(PLACE.get().passed));
    }
}

/// Records that the calling thread leaves the barrier.
pub(crate) fn leave() {
    if let Some(region) = region() {
        let place = PLACE.get();
        acquire(region.barrier(place.passed));
        PLACE.set(Place {
            passed: place.passed + 1,
            ..place
        });
    }
}

/// Runs `wait` as a barrier of the calling thread's team.
pub(crate) fn barrier<T>(wait: impl FnOnce() -> T) -> T {
    arrive();
    let waited = inside(wait);
    leave();
    waited
}

/// Begins the ordered part of the calling thread's iteration: the previous one's has ended.
pub(crate) fn begin_ordered() {
    if let Some(region) = region() {
        acquire(at(&region.ordered));
    }
}

/// Ends the ordered part of the calling thread's iteration.
pub(crate) fn end_ordered() {
    if let Some(region) = region() {
        release(at(&region.ordered));
    }
}

/// Begins a region of the calling thread alone.
pub(crate) fn begin_alone() {
    crate::current::ours(|_| {
        let outer = go_to(Place::NOWHERE);
        OUTER.with_borrow_mut(|places| places.push(outer));
    });
}

/// Ends a region of the calling thread alone.
pub(crate) fn end_alone() {
    crate::current::ours(|_| {
        if let Some(outer) = OUTER.with_borrow_mut(Vec::pop) {
            go_to(outer);
        }
    });
}

/// Number of tokens given out in turn, then again; and of tokens for dependences, by hash of the address.
const GIVEN: usize = 1 << 20;
const HASHED: usize = 1 << 20;

/// The words that serve as tokens: 8 MiB of address space. Only taskgroups store to them: a group's word holds the
/// number of the enclosing one.
fn words() -> &'static [AtomicU32] {
    static WORDS: OnceLock<&'static [AtomicU32]> = OnceLock::new();
    let make = || {
        let words: &'static mut [u32] = vec![0; GIVEN + HASHED].leak();
        // SAFETY: an atomic integer has the size and alignment of a plain one, and this is the only reference.
        unsafe { &*(std::ptr::from_mut(words) as *const [AtomicU32]) }
    };
    if WORDS.get().is_none() {
        crate::current::ours(|_| _ = WORDS.get_or_init(make));
    }
    WORDS.get_or_init(make)
}

/// An address whose clock was last used long ago.
pub(crate) fn token() -> u64 {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    at(&words()[NEXT.fetch_add(1, Relaxed) % GIVEN])
}

/// Two tokens for the clocks of tasks that depend on the data at `address`: of its writers and of its readers. If two
/// addresses share them, a task may begin later than necessary.
pub(crate) fn tokens_of(address: u64) -> [u64; 2] {
    let index = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (65 - HASHED.ilog2()) << 1;
    [0, 1].map(|word| at(&words()[GIVEN + index as usize + word]))
}

/// Begins a taskgroup on the calling thread.
pub(crate) fn begin_group() {
    let place = PLACE.get();
    let group = token();
    word(group).store(number(place.group), Relaxed);
    PLACE.set(Place { group, ..place });
}

/// Ends the taskgroup: all its tasks are done.
pub(crate) fn end_group() {
    let place = PLACE.get();
    if place.group == 0 {
        return;
    }
    acquire(place.group);
    let group = match word(place.group).load(Relaxed) {
        0 => 0,
        number => at(&words()[number as usize - 1]),
    };
    PLACE.set(Place { group, ..place });
}

/// The index of a token in the table, from 1; 0 for none.
fn number(token: u64) -> u32 {
    match token {
        0 => 0,
        token => ((token - at(&words()[0])) / 4 + 1) as u32,
    }
}

fn word(token: u64) -> &'static AtomicU32 {
    &words()[number(token) as usize - 1]
}
