//! Moves of a plan's schedule: at points of the recorded clock, threads continue on other PUs and pages move to other
//! nodes.
//!
//! Moves are made when the first thread reaches their point, and in its time: it copies the pages one after the other,
//! each for [`PageCosts::move_us`](crate::pages::PageCosts) and the copy, which controllers and links carry. A thread
//! that runs on another PU continues on its new one after a switch
//! ([`Parameters::switch_us`](crate::machine::Parameters)); one that waits, when it wakes up.
//!
//! What a thread has in its recorded private caches moves with it, because hits there are not in the trace.

use numaloc_model::{LogicalNode, LogicalPu};

use crate::machine::Machine;
use crate::memory::Memory;
use crate::setup::SetupError;
use crate::trace::Trace;

/// What moves at one point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moves {
    /// The point in the recorded clock: one of [`TraceBuilder::with_points`](crate::TraceBuilder::with_points).
    pub clock: u64,
    /// Threads, by index, and their new PUs.
    pub threads: Vec<(u32, LogicalPu)>,
    /// Pages, by index into [`Trace::pages`], and their new nodes.
    pub pages: Vec<(u32, LogicalNode)>,
}

/// The moves of a run, and how many of them are made.
#[derive(Debug, Default)]
pub(crate) struct Moving<'a> {
    /// By point; for each thread, the event before which it passes the point, if it does.
    steps: Vec<(&'a Moves, Vec<Option<u32>>)>,
    made: usize,
}

impl<'a> Moving<'a> {
    /// The moves on that machine, in the order of their points.
    pub(crate) fn new(
        moves: &'a [Moves],
        machine: &Machine,
        trace: &Trace,
    ) -> Result<Self, SetupError> {
        let mut steps = Vec::with_capacity(moves.len());
        for step in moves {
            check(step, machine, trace)?;
            let point = trace.points.binary_search(&step.clock).map_err(|_| {
                SetupError::Pages(format!("clock {} is not a point of the trace", step.clock))
            })?;
            let passed = trace.threads.iter().map(|t| t.points.get(point).copied());
            steps.push((step, passed.collect()));
        }
        steps.sort_by_key(|(step, _)| step.clock);
        Ok(Self { steps, made: 0 })
    }

    /// The event at which a thread stops for the next moves, or `end`.
    #[inline]
    pub(crate) fn next(&self, thread: u32, end: usize) -> usize {
        let step = self.steps.get(self.made);
        let passes = step.and_then(|(_, passed)| passed[thread as usize]);
        passes.map_or(end, |at| end.min(at as usize))
    }

    /// Whether a thread before event `at` has reached the next moves.
    pub(crate) fn is_point(&self, thread: u32, at: usize) -> bool {
        let step = self.steps.get(self.made);
        let passes = step.and_then(|(_, passed)| passed[thread as usize]);
        passes.is_some_and(|point| at >= point as usize)
    }

    /// The next moves, if a thread before event `at` has reached them.
    pub(crate) fn reach(&mut self, thread: u32, at: u32) -> Option<&'a Moves> {
        if !self.is_point(thread, at as usize) {
            return None;
        }
        self.made += 1;
        Some(self.steps[self.made - 1].0)
    }
}

fn check(step: &Moves, machine: &Machine, trace: &Trace) -> Result<(), SetupError> {
    let wrong = |what: String| Err(SetupError::Pages(what));
    for &(thread, pu) in &step.threads {
        if thread as usize >= trace.threads() {
            return wrong(format!(
                "a move of thread {thread}, the trace has {}",
                trace.threads()
            ));
        }
        if pu.index() >= machine.pus.len() {
            return Err(SetupError::Pu {
                thread: thread as usize,
                pu,
                pus: machine.pus.len(),
            });
        }
    }
    for &(page, node) in &step.pages {
        if page as usize >= trace.pages().len() {
            return wrong(format!(
                "a move of page {page}, the trace has {}",
                trace.pages().len()
            ));
        }
        if node.index() >= machine.nodes {
            return wrong(format!("{node}, the machine has {} nodes", machine.nodes));
        }
    }
    Ok(())
}

impl Memory<'_> {
    /// Moves pages to nodes one after the other; returns when the last one is there.
    pub(crate) fn move_pages(&mut self, pages: &[(u32, LogicalNode)], mut now: u64) -> u64 {
        for &(page, to) in pages {
            if let Some(from) = self.pages.move_to(page as usize, to.index()) {
                now = self.copy_page(now + self.page_move(), from, to.index());
            }
        }
        now
    }
}
