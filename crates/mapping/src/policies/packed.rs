//! Neighbouring task ids on one NUMA node, node after node (DeLoc, "Packed").
//!
//! Inside a node, where the paper is silent, ids take one PU of every core before any SMT sibling.
//! With more tasks than PUs each node takes one run of ids. O(N + P).

use crate::error::MapError;
use crate::input::MapInput;
use crate::policy::{Mapped, MappingPolicy};
use crate::slots::{Seats, Spread};

/// The policy; see the module documentation.
pub struct Packed;

impl MappingPolicy for Packed {
    fn name(&self) -> &'static str {
        "packed"
    }

    fn summary(&self) -> &'static str {
        "neighbouring ids fill a NUMA node, then the next"
    }

    fn source(&self) -> &'static str {
        "DeLoc 2020"
    }

    fn map(&self, input: &MapInput) -> Result<Mapped, MapError> {
        let mut seats = Seats::new(input.topology(), &input.slots(Spread::Auto));
        let mut node = 0;
        let pu = (0..input.tasks())
            .map(|_| {
                node = seats.next_with(node, 1).expect("seats for all tasks");
                seats.take(node)
            })
            .collect();
        Ok(Mapped::plain(pu))
    }
}
