//! A visit to a line for which threads contend.
//!
//! Visits are made in the order of their times, so a PU does not run ahead of others at one. The line is at one core at
//! a time: a core that finds it elsewhere waits for the cores that asked before it, then for the transfer. It goes on
//! meanwhile as with other loads, but for an atomic instruction it waits; who takes a lock has its line for the length
//! of a section.

use super::later;
use crate::event::{Packed, Visit};
use crate::machine::Place;
use crate::memory::{Answer, Memory};
use crate::trace::Trace;
use crate::window::Window;

/// When each contended line is free for the next core, by its place in the trace's list.
pub(crate) type Free = Vec<u64>;

/// Makes a visit at `now`; returns when the core continues. An access takes `access` picoseconds.
pub(crate) fn visit(
    (memory, trace): (&mut Memory<'_>, &Trace),
    (free, window): (&mut Free, &mut Window),
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
    let waits = matches!(visit, Visit::Atomic | Visit::Lock);
    let now = match waits {
        true => window.drain(now),
        false => window.admit_load(now),
    };
    if has && visit != Visit::Lock {
        return now;
    }
    // Controllers and links are asked now: they take requests in the order of their times.
    let (Answer::Private(done) | Answer::At(done)) = match visit {
        Visit::Load => memory.read(at, line, now),
        _ if shares => memory.own(at, line, now),
        _ => memory.write(at, line, now),
    };
    let transfer = (done - now).saturating_mul(trace.stands_for);
    let done = now.max(free[place]).saturating_add(transfer);
    if visit != Visit::Load || entry.owner != 0 {
        free[place] = done;
    }
    if visit == Visit::Lock {
        let held = trace.contended[place].held.saturating_mul(trace.stands_for);
        free[place] = later(done, held, access);
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
