//! A plan as flat arrays, in which a task's class is looked up when it is created.
//!
//! The plan is an automaton over classes. A task carries its state; a child's state is looked up by the creator's state
//! and the number of tasks the creator has created, one array index, and checked against the template's number and the
//! number of slots.

use std::collections::HashSet;

use numaloc_task_plan::{Stealing, TaskPlan};

use crate::error::RunError;
use crate::fit::Fit;
use crate::machine::NO_NODE;
use crate::names::Names;

/// State of a task that is not in the plan.
pub const UNPLANNED: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Edge {
    name: u32,
    depc: u32,
    to: u32,
    /// Another edge for the same position, or 0.
    other: u32,
}

const NO_EDGE: Edge = Edge {
    name: u32::MAX,
    depc: 0,
    to: UNPLANNED,
    other: 0,
};

/// A plan as flat arrays.
pub struct FlatPlan {
    /// Index of each class's first edge; one more entry at the end.
    first_edge: Vec<u32>,
    edges: Vec<Edge>,
    first_block: Vec<u32>,
    block_nodes: Vec<u16>,
    nodes: Vec<u16>,
    /// Which workers may steal from other nodes.
    pub(crate) stealing: Stealing,
    /// Templates in the plan.
    names: HashSet<u32>,
    /// Whether it fits this run.
    pub(crate) fit: Fit,
}

impl FlatPlan {
    /// Flattens a plan, with names numbered as in this run.
    ///
    /// # Errors
    /// The plan is for more nodes than the machine has.
    pub fn new(plan: &TaskPlan, names: &Names, nodes: usize) -> Result<Self, RunError> {
        if plan.nodes > nodes {
            return Err(RunError::TooManyNodes {
                planned: plan.nodes,
                nodes,
            });
        }
        let node = |node: Option<u16>| node.unwrap_or(NO_NODE);
        let mut flat = Self {
            first_edge: vec![0],
            edges: Vec::new(),
            first_block: vec![0],
            block_nodes: Vec::new(),
            nodes: plan.classes.iter().map(|class| node(class.node)).collect(),
            stealing: plan.stealing,
            names: HashSet::new(),
            fit: Fit::new(plan, |name| names.number(name)),
        };
        flat.names = plan
            .classes
            .iter()
            .map(|class| names.number(&class.template))
            .collect();
        let mut others = Vec::new();
        for class in &plan.classes {
            let start = flat.edges.len();
            for child in &class.children {
                let at = start + child.position as usize;
                if flat.edges.len() <= at {
                    flat.edges.resize(at + 1, NO_EDGE);
                }
                let edge = Edge {
                    name: names.number(&child.template),
                    depc: child.slots,
                    to: child.class,
                    other: 0,
                };
                if flat.edges[at].name == u32::MAX {
                    flat.edges[at] = edge;
                } else {
                    others.push((at, edge));
                }
            }
            flat.first_edge.push(flat.edges.len() as u32);
            let start = flat.block_nodes.len();
            for block in &class.blocks {
                let at = start + block.position as usize;
                if flat.block_nodes.len() <= at {
                    flat.block_nodes.resize(at + 1, NO_NODE);
                }
                flat.block_nodes[at] = node(block.node);
            }
            flat.first_block.push(flat.block_nodes.len() as u32);
        }
        for (at, mut edge) in others {
            edge.other = flat.edges[at].other;
            flat.edges[at].other = flat.edges.len() as u32;
            flat.edges.push(edge);
        }
        Ok(flat)
    }

    /// The state of child number `position` of a task in state `from`.
    #[inline]
    pub(crate) fn step(&self, from: u32, position: u32, name: u32, depc: u32) -> u32 {
        let Some((&start, &end)) = self
            .first_edge
            .get(from as usize)
            .zip(self.first_edge.get(from as usize + 1))
        else {
            return UNPLANNED;
        };
        let at = u64::from(start) + u64::from(position);
        if at >= u64::from(end) {
            return UNPLANNED;
        }
        let mut edge = self.edges[at as usize];
        loop {
            if edge.name == name && edge.depc == depc {
                return edge.to;
            }
            if edge.other == 0 {
                return UNPLANNED;
            }
            edge = self.edges[edge.other as usize];
        }
    }

    /// The node of the tasks of a class; `NO_NODE`: left open.
    #[inline]
    pub(crate) fn node(&self, class: u32) -> u16 {
        self.nodes[class as usize]
    }

    /// The node of data block number `position` of a task in state `class`, if the plan has one.
    pub(crate) fn block_node(&self, class: u32, position: u32) -> Option<u16> {
        let first = self.first_block.get(class as usize..)?;
        let &[start, end] = first.first_chunk()?;
        let at = u64::from(start) + u64::from(position);
        (at < u64::from(end))
            .then(|| self.block_nodes[at as usize])
            .filter(|&node| node != NO_NODE)
    }

    /// Whether a template occurs in the plan.
    pub(crate) fn knows(&self, name: u32) -> bool {
        self.names.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_task_plan::{PlanChild, PlanClass};

    /// A ring of classes, each with eight children, the last of which is the next class of the ring.
    fn ring(classes: u32) -> TaskPlan {
        let class = |at: u32| PlanClass {
            template: "work".to_owned(),
            slots: 2,
            node: Some((at % 4) as u16),
            children: (0..8)
                .map(|position| PlanChild {
                    position,
                    template: "work".to_owned(),
                    slots: 2,
                    class: (at * 7 + position * 13 + 1) % classes,
                })
                .collect(),
            ..PlanClass::default()
        };
        TaskPlan {
            machine: "test".to_owned(),
            nodes: 4,
            stealing: Stealing::Node,
            classes: (0..classes).map(class).collect(),
        }
    }

    #[test]
    fn steps_follow_the_plan_and_tasks_not_in_it_are_unplanned() {
        let names = Names::default();
        let mut plan = ring(50);
        // Another template created at the same position, as in data-dependent programs.
        plan.classes[3].children.push(PlanChild {
            position: 2,
            template: "other".to_owned(),
            slots: 0,
            class: 9,
        });
        let flat = FlatPlan::new(&plan, &names, 4).unwrap();
        let (work, other) = (names.number("work"), names.number("other"));
        for (at, class) in plan.classes.iter().enumerate() {
            for child in &class.children {
                let name = names.number(&child.template);
                let to = flat.step(at as u32, child.position, name, child.slots);
                assert_eq!(to, child.class);
            }
        }
        assert_eq!(
            flat.step(0, 8, work, 2),
            UNPLANNED,
            "more creations than in the plan"
        );
        assert_eq!(flat.step(0, 0, other, 2), UNPLANNED, "another template");
        assert_eq!(flat.step(0, 0, work, 3), UNPLANNED, "other slots");
        assert_eq!(
            flat.step(UNPLANNED, 0, work, 2),
            UNPLANNED,
            "child of an unplanned task"
        );
        assert!(
            FlatPlan::new(&plan, &names, 2).is_err(),
            "more nodes than the machine has"
        );
    }

    /// `make bench-tasks-plan` prints what a step costs.
    #[test]
    #[ignore = "a measurement, not a test"]
    fn cost_of_a_step() {
        let names = Names::default();
        let flat = FlatPlan::new(&ring(500), &names, 4).unwrap();
        let work = names.number("work");
        let mut times: Vec<f64> = (0..7)
            .map(|_| {
                let start = std::time::Instant::now();
                let mut class = 0;
                for at in 0..10_000_000_u32 {
                    class = flat.step(class, at & 7, work, 2);
                }
                std::hint::black_box(class);
                start.elapsed().as_secs_f64() * 1e9 / 1e7
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!(
            "plan step: {:.2} ns per task (range {:.2}-{:.2})",
            times[3], times[0], times[6]
        );
    }
}
