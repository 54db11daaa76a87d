//! Places in the program's code at which the engine has nothing to do: allocations that are not recorded.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::entry::Place;
use crate::state::{RDI, RDX, RSI, RSP, State};

/// The smallest size of a block that is recorded.
pub static LEAST: AtomicU64 = AtomicU64::new(1);

/// Whether nothing need be recorded at a place; if so, what is known of the thread's call is up to date.
#[inline(always)]
pub fn passes(state: &mut State, place: Option<Place>) -> bool {
    match place {
        None => true,
        Some(Place::Called(allocator)) => {
            let regs = &state.regs;
            let passes = allocator.size([regs[RDI], regs[RSI], regs[RDX]]) < LEAST.load(Relaxed);
            if passes {
                state.call.rsp = 0;
            }
            passes
        }
        Some(Place::Returned) => state.call.rsp != state.regs[RSP],
    }
}
