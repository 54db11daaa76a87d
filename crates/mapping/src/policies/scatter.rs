//! Neighbouring task ids on different NUMA nodes (DeLoc, "Scatter"; "Socket-span" of its HiPC'17
//! predecessor): task i on node i mod K, on its next free core. Full nodes are skipped. O(N K).

use crate::error::MapError;
use crate::input::MapInput;
use crate::policy::{Mapped, MappingPolicy};
use crate::slots::{Seats, Spread};

/// The policy; see the module documentation.
pub struct Scatter;

impl MappingPolicy for Scatter {
    fn name(&self) -> &'static str {
        "scatter"
    }

    fn summary(&self) -> &'static str {
        "neighbouring ids on different NUMA nodes, round-robin"
    }

    fn source(&self) -> &'static str {
        "DeLoc 2020"
    }

    fn map(&self, input: &MapInput) -> Result<Mapped, MapError> {
        let mut seats = Seats::new(input.topology(), &input.slots(Spread::Auto));
        let nodes = seats.nodes();
        let mut next = 0;
        let pu = (0..input.tasks())
            .map(|_| {
                let node = seats.next_with(next, 1).expect("seats for all tasks");
                next = (node + 1) % nodes;
                seats.take(node)
            })
            .collect();
        Ok(Mapped::plain(pu))
    }
}
