//! Records marks: called at the first instruction of functions that [`numaloc_follow::marks`] finds.
//!
//! As with QEMU, the function of a parallel region is that of the first one which the thread enters after the library's
//! entry point.

use numaloc_follow::marks::{self, Function};
use numaloc_trace::marks::{MarkKind, NAME_BYTES, region_entry};

use super::traced;
use crate::guest;
use crate::state::{RDI, State};

/// The thread is at the first instruction of `function`, which is at `pc`.
pub fn reached(state: &mut State, function: Function, pc: u64) {
    let entered = match function {
        Function::Region => state.region.take(),
        Function::Entry(..) => None,
    };
    let name = match function {
        Function::Entry(MarkKind::User, _) => guest::string(state.regs[RDI], NAME_BYTES + 1),
        _ => None,
    };
    let names_regions = marks::names_regions();
    if let Function::Entry(MarkKind::Region, entry) = function
        && names_regions
    {
        state.region = Some(region_entry(entry));
        return;
    }
    let Some(thread) = traced(state) else { return };
    let tracer = &mut thread.tracer;
    match function {
        Function::Region => {
            if let Some(entry) = entered {
                tracer.pass(MarkKind::Region, entry, pc);
            }
        }
        Function::Entry(MarkKind::Region, entry) => {
            tracer.pass(MarkKind::Region, region_entry(entry), 0);
        }
        Function::Entry(MarkKind::User, _) => {
            let Some(name) = name else { return };
            let mut name = String::from_utf8_lossy(&name).into_owned();
            name.truncate(name.floor_char_boundary(NAME_BYTES));
            tracer.pass(MarkKind::User, &name, 0);
        }
        Function::Entry(kind, entry) => tracer.pass(kind, entry, 0),
    }
}
