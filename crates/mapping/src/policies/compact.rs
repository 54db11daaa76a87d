//! Round-robin over the PUs in hierarchy order (OPT section 7.1, "Compact"; `KMP_AFFINITY=compact`).
//!
//! Unlike `packed` it fills the SMT siblings of a core before the next core, and with more tasks than PUs it assigns
//! them in rounds. O(N + P).

use numaloc_model::LogicalPu;

use crate::error::MapError;
use crate::input::MapInput;
use crate::policy::{Mapped, MappingPolicy};
use crate::slots::Spread;

/// The policy; see the module documentation.
pub struct Compact;

impl MappingPolicy for Compact {
    fn name(&self) -> &'static str {
        "compact"
    }

    fn summary(&self) -> &'static str {
        "task i on the i-th PU of a depth-first walk, round and round"
    }

    fn source(&self) -> &'static str {
        "OPT 2015, section 7.1"
    }

    fn map(&self, input: &MapInput) -> Result<Mapped, MapError> {
        let slots = input.slots(Spread::Auto);
        let capacity = slots.capacity();
        let mut pu = Vec::with_capacity(input.tasks());
        for round in 0.. {
            if pu.len() >= input.tasks() {
                break;
            }
            let free = (0..capacity.len()).filter(|&at| capacity[at] > round);
            pu.extend(
                free.map(LogicalPu::from_index)
                    .take(input.tasks() - pu.len()),
            );
        }
        Ok(Mapped::plain(pu))
    }
}
