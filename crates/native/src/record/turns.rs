//! Turns of loops that were made without being recorded: records them when a loop ends, and before anything else
//! happens to the thread.
#![allow(unsafe_code)]

use numaloc_trace::thread::{Loop, When};

use super::traced;
use crate::state::State;

/// A loop whose accesses move by constants.
pub struct Turns {
    /// Its accesses.
    pub recorded: Loop,
    /// A register that each turn changes by a constant.
    pub leader: usize,
    /// This constant.
    pub stride: i64,
    /// Address of the instruction that changes it.
    pub steps_at: u64,
}

impl Turns {
    /// Number of turns in which the leader went from `first` to `now`.
    fn made(&self, first: u64, now: u64) -> u64 {
        (now.wrapping_sub(first) as i64 / self.stride) as u64
    }

    /// Turns to count for one that was begun, at the instruction at `pc`, but not made: its accesses may have been.
    fn begun(&self, pc: u64) -> u64 {
        u64::from(pc <= self.steps_at)
    }
}

/// The loop whose turns are to be recorded.
fn pending(state: &State) -> Option<&'static Turns> {
    // SAFETY: 0, or set by a fragment that owns it, in which the thread is or has just been.
    unsafe { (state.turns as *const Turns).as_ref() }
}

/// Records the turns made, and `more`; the registers are in the state.
pub fn record(state: &mut State, more: u64) {
    let Some(turns) = pending(state) else { return };
    state.turns = 0;
    let registers = state.turn_registers;
    let made = turns.made(registers[turns.leader], state.regs[turns.leader]) + more;
    if made > 0
        && let Some(thread) = traced(state)
    {
        let tracer = &mut thread.tracer;
        tracer.recorded_loop(&turns.recorded, &registers, made, When::After);
    }
}

/// Records the turns made when the thread leaves the cache at an instruction: at `pc` within a turn, or between turns.
pub fn interrupted(state: &mut State, within: Option<u64>) {
    let begun = pending(state).zip(within);
    let more = begun.map_or(0, |(turns, pc)| turns.begun(pc));
    record(state, more);
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_trace::block::{Form, Kind, Piece, Step};

    #[test]
    fn the_leader_shows_the_number_of_turns() {
        let form = Form {
            base: Some(1),
            index: None,
        };
        let piece = Piece {
            form,
            displacement: 0,
            size: 8,
            kind: Kind::Read,
        };
        let turns = |stride: i64| Turns {
            recorded: Loop::new(&[piece], [Some(Step::default()); 16]),
            leader: 1,
            stride,
            steps_at: 0x1008,
        };
        assert_eq!(turns(8).made(0x5000, 0x5000), 0);
        assert_eq!(turns(8).made(0x5000, 0x5040), 8);
        assert_eq!(turns(-24).made(0x5000, 0x5000 - 24 * 7), 7);
        assert_eq!(turns(3).made(u64::MAX - 2, 3), 2, "past the highest number");
        // Before and at the instruction that changes the leader, this turn does not show yet.
        assert_eq!(turns(8).begun(0x1000) + turns(8).begun(0x1008), 2);
        assert_eq!(turns(8).begun(0x100c), 0);
    }
}
