//! A visit to a line for which threads contend.
//!
//! Visits are made in the order of their times, so a PU does not run ahead of others at one. The line is at one core at
//! a time: a core that finds it elsewhere waits for the cores that asked before it, then for the transfer. It goes on
//! meanwhile as with other loads, but for an atomic instruction it waits; who takes a lock has its line for the length
//! of a section.
//!
//! Cores are served as they asked, but each takes the line from one of those that waited with it, drawn by lot. So
//! transfers have the mean length of those among all that wait, as if the next were drawn. Served and taken in one
//! order, the cores would keep that in which they came first, whether neighbours or the farthest follow each other,
//! and that order is the host's choice.

use std::collections::VecDeque;

use super::later;
use crate::arrivals::AHEAD;
use crate::event::{Packed, Step, Visit};
use crate::machine::Place;
use crate::memory::{Answer, Memory};
use crate::trace::Trace;
use crate::window::Window;

/// The turns at each contended line, by its place in the trace's list.
pub(crate) type Turns = Vec<Turn>;

/// Who waits for a contended line. A core has as many visits under way as its window holds, so that is the limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turn {
    /// When the line is free for the next core.
    free: u64,
    /// The cores that have it until these times or later, the last one longest.
    takers: VecDeque<(u64, u32)>,
    /// Number of transfers so far.
    transfers: u64,
}

impl Turn {
    /// The core from which one that asks at `now` takes the line; `None` if it waits for nobody but the owner.
    fn taken_from(&mut self, now: u64) -> Option<u32> {
        while self.takers.front().is_some_and(|&(until, _)| until <= now) {
            self.takers.pop_front();
        }
        self.transfers += 1;
        let waiting = self.takers.len();
        // The finaliser of splitmix64, of the number of the transfer.
        let mut lot = self.transfers.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        lot = (lot ^ lot >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        lot = (lot ^ lot >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let drawn = ((lot ^ lot >> 31) % waiting.max(1) as u64) as usize;
        (waiting > 1).then(|| self.takers[drawn].1)
    }
}

/// Whether a core waits before it can make an event's request at `now`, for so long that others' requests come first;
/// if so, `now` becomes the time at which it goes on. At a contended line the wait may be far longer than for memory.
pub(crate) fn waits_long(window: &mut Window, event: Packed, now: &mut u64, limit: u64) -> bool {
    let goes_on = match (event.visit(), event.step()) {
        (Some(visit), _) if visit.waits() => window.drained(*now),
        (Some(_), _) => window.goes_on(*now, 0),
        (None, Step::Read) => window.goes_on(*now, event.waits_for()),
        (None, _) => *now,
    };
    let is_long = goes_on > limit.saturating_add(AHEAD);
    if is_long {
        *now = goes_on;
    }
    is_long
}

/// Makes a visit at `now`; returns when the core continues. An access takes `access` picoseconds.
pub(crate) fn visit(
    (memory, trace): (&mut Memory<'_>, &Trace),
    (turns, window): (&mut Turns, &mut Window),
    (at, access): (Place, f64),
    (visit, event): (Visit, Packed),
    now: u64,
) -> u64 {
    let line = event.line(false);
    let Ok(place) = trace
        .contended
        .binary_search_by_key(&line.number(), |line| line.number)
    else {
        return now;
    };
    let entry = memory.directory.entry(line.number());
    let is_mine = entry.owner == at.core + 1;
    let shares = entry.sharers & memory.directory.bit(at.core) != 0;
    let has = match visit {
        Visit::Load => is_mine || entry.owner == 0 && shares,
        Visit::Store | Visit::Atomic | Visit::Lock => is_mine,
    };
    let waits = visit.waits();
    let now = match waits {
        true => window.drain(now),
        false => window.admit_load(now),
    };
    if has && visit != Visit::Lock {
        return now;
    }
    let turn = &mut turns[place];
    let from = turn.taken_from(now);
    if let Some(core) = from.filter(|&core| core != at.core && entry.owner != 0) {
        memory.hand_to(line, core);
    }
    // Controllers and links are asked now: they take requests in the order of their times.
    let (Answer::Private(done) | Answer::At(done)) = match visit {
        Visit::Load => memory.read(at, line, now),
        _ if shares => memory.own(at, line, now),
        _ => memory.write(at, line, now),
    };
    let transfer = (done - now).saturating_mul(trace.stands_for);
    let done = now.max(turn.free).saturating_add(transfer);
    if visit != Visit::Load || entry.owner != 0 {
        turn.free = done;
    }
    if visit == Visit::Lock {
        let held = trace.contended[place].held.saturating_mul(trace.stands_for);
        turn.free = later(done, held, access);
    }
    if turn.free > now {
        turn.takers.push_back((turn.free, at.core));
    }
    let now = if waits {
        done
    } else {
        window.load_sent(done, false);
        window.add_load(done);
        now
    };
    memory.resume(now)
}
