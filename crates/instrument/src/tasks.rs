//! OpenMP's explicit tasks: a task begins no earlier than its creator made it and than the tasks it depends on ended; who waits
//! for tasks goes on no earlier than they ended. Its accesses count for the thread that runs it.

use std::collections::BTreeMap;
use std::ptr::null_mut;

use crate::doacross::OrderedLoop;
use crate::lock::Lock;
use crate::real::real;
use crate::sync::{acquire, release};
use crate::team::{self, Place, Region, tokens_of};

/// What a task depends on: an address, and whether it writes what is there.
pub(crate) type Dependence = (u64, bool);

/// What is to be told when a task begins and ends. Lies in memory that the run-time library keeps with the task, and may be copied.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Task {
    /// Where its creator left the clock.
    created: u64,
    /// Where it leaves its clock for its creator.
    siblings: u64,
    /// Where its own children do, 0 while it has none.
    children: u64,
    group: u64,
    region: *const Region,
    passed: usize,
    /// A leaked box, null for none.
    depends: *mut Vec<Dependence>,
}

impl Task {
    /// A task that the calling thread creates.
    pub(crate) fn new() -> Self {
        let mut place = team::place();
        if place.children == 0 {
            place.children = team::token();
            team::go_to(place);
        }
        Self {
            created: team::token(),
            siblings: place.children,
            children: 0,
            group: place.group,
            region: place.region,
            passed: place.passed,
            depends: null_mut(),
        }
    }

    /// Gives it what it depends on.
    pub(crate) fn depend(&mut self, on: Vec<Dependence>) {
        // Nobody else frees it: a task that is created runs once, or is cancelled.
        self.depends = Box::into_raw(Box::new(on));
    }

    /// Puts it into the innermost taskgroup.
    pub(crate) fn join_group(&mut self) {
        self.group = team::place().group;
    }

    /// From now on it may begin.
    pub(crate) fn ready(&self) {
        release(self.created);
    }

    /// Runs `body` as the task, or the next part of it, on the calling thread.
    pub(crate) fn run(&mut self, body: impl FnOnce()) {
        let depends = self.depends();
        acquire(self.created);
        wait_for(&depends);
        let outer = self.begin();
        team::outside(body);
        self.end(outer);
        tokens_after(&depends).for_each(release);
    }

    /// What it depends on, while it has not begun.
    pub(crate) fn dependences(&self) -> &[Dependence] {
        // SAFETY: from `depend`, and not taken yet.
        unsafe { self.depends.as_ref() }.map_or(&[], Vec::as_slice)
    }

    fn depends(&mut self) -> Vec<Dependence> {
        let depends = std::mem::replace(&mut self.depends, null_mut());
        if depends.is_null() {
            return Vec::new();
        }
        // SAFETY: from `depend`, and taken once.
        *unsafe { Box::from_raw(depends) }
    }

    /// The calling thread is in the task from here on; says where it was.
    pub(crate) fn begin(&self) -> Place {
        team::go_to(Place {
            region: self.region,
            passed: self.passed,
            children: self.children,
            group: self.group,
            ordered_loop: OrderedLoop::NONE,
        })
    }

    /// The task, or a part of it, ends.
    pub(crate) fn end(&mut self, outer: Place) {
        let place = team::go_to(outer);
        // Another thread may run the next part.
        self.children = place.children;
        self.group = place.group;
        self.tokens().for_each(release);
    }

    /// Where those who wait for the task look for its clock.
    fn tokens(&self) -> impl Iterator<Item = u64> + use<> {
        // SAFETY: the region does not end before its tasks.
        let region = unsafe { self.region.as_ref() };
        let region = region.map(|region| [region.barrier(self.passed), region.end()]);
        let group = (self.group != 0).then_some(self.group);
        let all = std::iter::once(self.siblings).chain(group);
        all.chain(region.into_iter().flatten())
    }

    /// The task, of which this is known too, is done when its body has ended and `event` was fulfilled.
    pub(crate) fn detach(&self, event: usize, depends: &[Dependence]) {
        crate::current::ours(|_| {
            let tokens = self.tokens().chain(tokens_after(depends)).collect();
            DETACHED.with(|detached| detached.insert(event, tokens));
        });
    }
}

/// Where whoever fulfils an event leaves the clock: tokens of the detached tasks that have not been completed, by event.
pub(crate) static DETACHED: Lock<BTreeMap<usize, Vec<u64>>> = Lock::new(BTreeMap::new());

/// Completes a detached task: those who wait for it wait for the calling thread too.
///
/// # Safety
/// As the run-time library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_fulfill_event(event: usize) {
    let real = real!(omp_fulfill_event: fn(usize));
    let mut tokens = None;
    crate::current::ours(|_| tokens = DETACHED.with(|detached| detached.remove(&event)).flatten());
    tokens.into_iter().flatten().for_each(release);
    // SAFETY: the caller's promises.
    team::inside(|| unsafe { real(event) });
}

/// Completes a detached task, for Fortran.
///
/// # Safety
/// As the run-time library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_fulfill_event_(event: *const usize) {
    // SAFETY: the caller's promises.
    unsafe { omp_fulfill_event(*event) };
}

/// Where those who have used the data leave their clocks.
fn tokens_after(depends: &[Dependence]) -> impl Iterator<Item = u64> {
    let token = |&(address, writes): &Dependence| tokens_of(address)[usize::from(!writes)];
    depends.iter().map(token)
}

/// The calling thread has waited for all tasks that those who depend on this have to wait for.
pub(crate) fn wait_for(depends: &[Dependence]) {
    for &(address, writes) in depends {
        let [written, read] = tokens_of(address);
        acquire(written);
        if writes {
            acquire(read);
        }
    }
}

/// The calling thread has waited for its task's children.
pub(crate) fn wait_for_children() {
    let children = team::place().children;
    if children != 0 {
        acquire(children);
    }
}
