//! Equal communication load on every node (DeLoc, "Balance"), locality ignored.
//!
//! Tasks by descending load go to the node with the least load so far that has a free core. The paper does not specify
//! ties (here: lowest task, first node), nor whether a node's load counts a task's whole communication or only that
//! with tasks already placed (here: the whole, the classic longest-processing-time rule). `balance-load` does the same
//! with the load vector, each task's load on memory, if there is one. O(N log N + N K).

use numaloc_model::LogicalPu;

use crate::error::MapError;
use crate::input::MapInput;
use crate::policy::{Mapped, MappingPolicy};
use crate::slots::{Seats, Spread};

/// What is balanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Each task's communication, as in the paper.
    Communication,
    /// The load vector; each task's communication without one.
    Memory,
}

/// The policy; see the module documentation.
pub struct Balance {
    /// What is balanced.
    pub by: Load,
}

impl MappingPolicy for Balance {
    fn name(&self) -> &'static str {
        match self.by {
            Load::Communication => "balance",
            Load::Memory => "balance-load",
        }
    }

    fn summary(&self) -> &'static str {
        match self.by {
            Load::Communication => "task with most communication to the node with least",
            Load::Memory => "task with most memory load to the node with least",
        }
    }

    fn source(&self) -> &'static str {
        match self.by {
            Load::Communication => "DeLoc 2020",
            Load::Memory => "DeLoc 2020, load of CMLB 2021",
        }
    }

    fn map(&self, input: &MapInput) -> Result<Mapped, MapError> {
        let load = match self.by {
            Load::Memory => input.task_loads(),
            Load::Communication => (0..input.tasks())
                .map(|task| input.graph().volume(task))
                .collect(),
        };
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
        let by_load = Balance { by: Load::Memory };
        let mapped = crate::policy::map(&by_load, &input).unwrap();
        // 7 | 6; 5 to the 6: 7 | 11; 4 to the 7: 11 | 11; 2: tie, first node: 13 | 11.
        assert_eq!(evaluate(&input, &mapped.mapping).node_load, [13.0, 11.0]);
    }

    #[test]
    fn the_paper_balances_communication_whatever_the_load() {
        // Communication: task 0 has 9, 1 has 9, 2 and 3 have 1 each. Loads say the opposite.
        let machine = resolve("numa:2 core:2 pu:1").unwrap();
        let comm = CommMatrix::from_cells(4, [(0, 1, 9.0), (2, 3, 1.0)]).unwrap();
        let load = [1.0, 1.0, 9.0, 9.0];
        let input = MapInput::new(&comm, &machine).with_load(Some(&load));
        let nodes = |by| {
            let mapped = crate::policy::map(&Balance { by }, &input).unwrap();
            let pus = mapped.mapping.pu.into_iter();
            pus.map(|pu| machine.node_of(pu).0).collect::<Vec<_>>()
        };
        assert_eq!(nodes(Load::Communication), [0, 1, 0, 1]);
        let by_load = nodes(Load::Memory);
        assert_ne!(by_load[2], by_load[3]);
    }
}
