//! Virtual time of OpenMP's explicit tasks. A task begins no earlier than it was created and than the tasks it depends
//! on ended; a thread that waits for tasks continues no earlier than they ended. A task's accesses count for the
//! thread that runs it.

use std::collections::BTreeMap;
use std::ptr::null_mut;

use crate::clocks::{acquire, release};
use crate::lock::Lock;
use crate::openmp::team::{self, OrderedLoop, Place, Region, tokens_of};
use crate::real::real;

/// A dependence of a task: an address, and whether the task writes there.
pub(crate) type Dependence = (u64, bool);

/// Tokens for the clocks at a task's begin and end. Kept by the run-time library with the task, and may be copied.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Task {
    /// Token with its creator's clock.
    created: u64,
    /// Token at which it leaves its clock for its creator.
    siblings: u64,
    /// Token at which its children leave theirs, 0 while it has none.
    children: u64,
    group: u64,
    region: *const Region,
    passed: usize,
    /// Its dependences: a leaked box, null for none.
    depends: *mut Vec<Dependence>,
}

impl Task {
    /// A task created by the calling thread.
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

    /// Sets the task's dependences.
    pub(crate) fn depend(&mut self, on: Vec<Dependence>) {
        // Freed by nothing else: a created task runs once, or is cancelled.
        self.depends = Box::into_raw(Box::new(on));
    }

    /// Puts the task into the innermost taskgroup.
    pub(crate) fn join_group(&mut self) {
        self.group = team::place().group;
    }

    /// Leaves the creator's clock: the task may begin from now on.
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

    /// The dependences of a task that has not begun.
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

    /// Moves the calling thread into the task; returns its previous place.
    pub(crate) fn begin(&self) -> Place {
        team::go_to(Place {
            region: self.region,
            passed: self.passed,
            children: self.children,
            group: self.group,
            ordered_loop: OrderedLoop::NONE,
        })
    }

    /// Ends the task, or a part of it.
    pub(crate) fn end(&mut self, outer: Place) {
        let place = team::go_to(outer);
        // Another thread may run the next part.
        self.children = place.children;
        self.group = place.group;
        self.tokens().for_each(release);
    }

    /// Tokens from which those who wait for the task take its clock.
    fn tokens(&self) -> impl Iterator<Item = u64> + use<> {
        // SAFETY: the region does not end before its tasks.
        let region = unsafe { self.region.as_ref() };
        let region = region.map(|region| [region.barrier(self.passed), region.end()]);
        let group = (self.group != 0).then_some(self.group);
        let all = std::iter::once(self.siblings).chain(group);
        all.chain(region.into_iter().flatten())
    }

    /// Detaches the task, which also has the dependences `depends`: it is done when its body has ended and `event` was
    /// fulfilled.
    pub(crate) fn detach(&self, event: usize, depends: &[Dependence]) {
        crate::current::ours(|_| {
            let tokens = self.tokens().chain(tokens_after(depends)).collect();
            DETACHED.with(|detached| detached.insert(event, tokens));
        });
    }
}

/// Tokens of detached tasks that are not completed, by event: whoever fulfils the event leaves the clock there.
pub(crate) static DETACHED: Lock<BTreeMap<usize, Vec<u64>>> = Lock::new(BTreeMap::new());

/// Completes a detached task: those who wait for it also wait for the calling thread.
///
/// # Safety
/// As the run-time library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_fulfill_event(event: usize) {
    let real = real!(omp_fulfill_event: fn(usize));
    let mut tokens = None;
    crate::current::ours(|_| tokens = DETACHED.with(|detached| detached.remove(&event)).flatten());
    tokens.into_iter().flatten().for_each(release);
    // SAFETY: guaranteed by the caller.
    team::inside(|| unsafe { real(event) });
}

/// Completes a detached task, for Fortran.
///
/// # Safety
/// As the run-time library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn omp_fulfill_event_(event: *const usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { omp_fulfill_event(*event) };
}

/// Tokens at which those who have used the data leave their clocks.
fn tokens_after(depends: &[Dependence]) -> impl Iterator<Item = u64> {
    let token = |&(address, writes): &Dependence| tokens_of(address)[usize::from(!writes)];
    depends.iter().map(token)
}

/// Takes the clocks of all tasks on which a task with these dependences must wait.
pub(crate) fn wait_for(depends: &[Dependence]) {
    for &(address, writes) in depends {
        let [written, read] = tokens_of(address);
        acquire(written);
        if writes {
            acquire(read);
        }
    }
}

/// Takes the clocks of the children of the calling thread's task, for which it has waited.
pub(crate) fn wait_for_children() {
    let children = team::place().children;
    if children != 0 {
        acquire(children);
    }
}
