//! Equal communication load on every node (DeLoc, "Balance"), locality ignored.
//!
//! Tasks by descending load go to the node with the least load so far that has a free core. The paper does not specify
//! ties (here: lowest task, first node), nor whether a node's load counts a task's whole communication or only that
//! with tasks already placed (here: the whole, the classic longest-processing-time rule). A load vector, if given,
//! replaces communication. O(N log N + N K).

use numaloc_model::LogicalPu;

use crate::error::MapError;
use crate::input::MapInput;
use crate::policy::{Mapped, MappingPolicy};
use crate::slots::{Seats, Spread};

/// The policy; see the module documentation.
pub struct Balance;

impl MappingPolicy for Balance {
    fn name(&self) -> &'static str {
        "balance"
    }

    fn summary(&self) -> &'static str {
        "heaviest task to the least loaded NUMA node"
    }

    fn source(&self) -> &'static str {
        "DeLoc 2020"
    }

    fn map(&self, input: &MapInput) -> Result<Mapped, MapError> {
        let load = input.task_loads();
        let mut seats = Seats::new(input.topology(), &input.slots(Spread::Auto));
        let mut heaviest_first: Vec<usize> = (0..input.tasks()).collect();
        heaviest_first.sort_by(|&a, &b| load[b].total_cmp(&load[a]).then(a.cmp(&b)));
        let mut node_load = vec![0.0_f64; seats.nodes()];
        let mut pu = vec![LogicalPu(0); input.tasks()];
        for task in heaviest_first {
            let node = (0..seats.nodes())
                .filter(|&node| seats.free(node) > 0)
                .min_by(|&a, &b| node_load[a].total_cmp(&node_load[b]))
                .expect("seats for all tasks");
            node_load[node] += load[task];
            pu[task] = seats.take(node);
        }
        Ok(Mapped::plain(pu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::evaluate;
    use numaloc_model::CommMatrix;
    use numaloc_topology::resolve;

    #[test]
    fn five_loads_on_two_nodes_by_hand() {
        let machine = resolve("numa:2 core:3 pu:1").unwrap();
        let load = [7.0, 6.0, 5.0, 4.0, 2.0];
        let comm = CommMatrix::empty(5);
        let input = MapInput::new(&comm, &machine).with_load(Some(&load));
        let mapped = crate::policy::map(&Balance, &input).unwrap();
        // 7 | 6; 5 to the 6: 7 | 11; 4 to the 7: 11 | 11; 2: tie, first node: 13 | 11.
        assert_eq!(evaluate(&input, &mapped.mapping).node_load, [13.0, 11.0]);
    }
}
