//! Chooses the node of a new task or data block: the plan's, else the hint's, else the creator's.
//!
//! The plan is an automaton over classes. A task carries its state; a child's state is looked up by the creator's state
//! and the number of tasks the creator has created, one array index, and checked against the template's number and the
//! number of slots. A task that does not match is counted and falls back to hints, with all tasks that it creates.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::Ordering;

use numaloc_task_plan::Plan;

use crate::block::Block;
use crate::edt::Edt;
use crate::names::Names;
use crate::worker::{NO_NODE, Worker};

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
    /// Whether workers without work may steal from other nodes.
    pub(crate) steal_anywhere: bool,
    /// Templates in the plan.
    names: HashSet<u32>,
}

impl FlatPlan {
    /// Flattens a plan, with names numbered as in this run.
    ///
    /// # Errors
    /// A message, if the plan is for more nodes than the machine has.
    pub fn new(plan: &Plan, names: &Names, nodes: usize) -> Result<Self, String> {
        if plan.nodes > nodes {
            return Err(format!(
                "the plan is for a machine of {} nodes, this one has {nodes}",
                plan.nodes
            ));
        }
        let node = |node: Option<u16>| node.unwrap_or(NO_NODE);
        let mut flat = Self {
            first_edge: vec![0],
            edges: Vec::new(),
            first_block: vec![0],
            block_nodes: Vec::new(),
            nodes: plan.classes.iter().map(|class| node(class.node)).collect(),
            steal_anywhere: plan.steal_anywhere,
            names: HashSet::new(),
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
    fn step(&self, from: u32, position: u32, name: u32, depc: u32) -> u32 {
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
}

/// Sets class and node of a new task.
#[inline]
pub fn place_task(w: &mut Worker, parent: *mut Edt, edt: &mut Edt) {
    edt.class = UNPLANNED;
    let hinted = if w.rt.config.hints {
        edt.hinted
    } else {
        NO_NODE
    };
    let fallback = if hinted == NO_NODE { w.node } else { hinted };
    edt.node = fallback;
    if parent.is_null() {
        edt.class = 0;
        return;
    }
    // SAFETY: the current task is alive and this thread's.
    let parent = unsafe { &mut *parent };
    let position = parent.children;
    parent.children += 1;
    let Some(plan) = &w.rt.plan else {
        return;
    };
    edt.class = plan.step(parent.class, position, edt.name, edt.depc);
    if edt.class == UNPLANNED {
        w.counters.unplanned += 1;
        if parent.class == 0 && position == 0 && !plan.names.contains(&edt.name) {
            refuse(w, edt.name);
        }
        return;
    }
    let node = plan.nodes[edt.class as usize];
    if node == NO_NODE {
        w.counters.no_opinion += 1;
        return;
    }
    w.counters.planned += 1;
    if edt.hinted != NO_NODE {
        w.counters.hint_compared += 1;
        w.counters.hint_agrees += u64::from(edt.hinted == node);
    }
    edt.node = node;
}

/// Ends the process: the template of the first task that the program creates does not occur in the plan.
#[cold]
fn refuse(w: &Worker, name: u32) -> ! {
    let folder = w.rt.config.plan.as_deref().unwrap_or(Path::new("?"));
    w.rt.report(&format!(
        "the plan {} is of another program: the first task here is of template {}, which it does not know; \
         make a plan of this program, or run it without",
        folder.display(),
        w.rt.names.name(name)
    ));
    // SAFETY: flushes the C streams and ends the process; only the program's first task has started.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        libc::_exit(125);
    }
}

/// Whether the plan decided, and the node for the next data block of the current task.
pub fn place_block(w: &mut Worker, parent: *mut Edt, hinted: u16) -> (bool, u16) {
    let hinted = if w.rt.config.hints { hinted } else { NO_NODE };
    let fallback = if hinted == NO_NODE { w.node } else { hinted };
    if parent.is_null() {
        return (false, fallback);
    }
    // SAFETY: the current task is alive and this thread's.
    let parent = unsafe { &mut *parent };
    let position = parent.blocks;
    parent.blocks += 1;
    if let Some(plan) = &w.rt.plan
        && let Some(&[start, end]) = plan
            .first_block
            .get(parent.class as usize..)
            .and_then(|first| first.first_chunk())
    {
        let at = u64::from(start) + u64::from(position);
        if at < u64::from(end) && plan.block_nodes[at as usize] != NO_NODE {
            return (true, plan.block_nodes[at as usize]);
        }
    }
    (false, fallback)
}

/// The node of a data block, if known.
pub fn node_of(block: &Block) -> Option<u16> {
    let node = block.node.load(Ordering::Relaxed);
    (node != NO_NODE).then_some(node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_task_plan::{PlanChild, PlanClass};

    /// A ring of classes, each with eight children, the last of which is the next class of the ring.
    fn ring(classes: u32) -> Plan {
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
        Plan {
            machine: "test".to_owned(),
            nodes: 4,
            steal_anywhere: false,
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
