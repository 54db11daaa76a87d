//! Simulates a placement on the tasks of the profile: list scheduling on the described machine in virtual time, by the
//! rules of the runtime's scheduler `numa` and the costs of [`crate::model`].
//!
//! Where workers may steal from any node, chance decides which of those that become idle at the same time goes
//! first. (In a fixed order, equal tasks would go to the same workers in every iteration, and find their data where no
//! real run finds it.) Such runs are simulated [`REPETITIONS`] times, and the result is the mean.
//!
//! A task can start when its creator and every task that satisfied one of its slots have ended. Older profiles do not
//! record who satisfied a slot: then only creators count. A worker takes its newest task, else the oldest of its node's
//! inbox, else steals the oldest of another worker of the node, and, as allowed ([`Stealing`]), of other nodes. Tasks
//! without a node belong where their creator ran. Blocks are where they are placed, else where their creator ran. If
//! the program has a loop, only the data of what the loop repeats counts: data of other tasks (the first iteration,
//! set-up, a check after the loop) costs nothing, because the run has more iterations than the profile. Deterministic;
//! the result depends on the structure and the bytes in the profile, not on measured times.

use std::collections::{BTreeMap, VecDeque};

use numaloc_topology::Topology;

use crate::data::Data;
use crate::model::{Patience, SECONDS_PER_TASK, Stealing, seconds_per_byte};
use crate::profile::TaskProfile;

/// Simulations with other random numbers, if chance decides who steals.
const REPETITIONS: u64 = 4;

/// Result of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SimulatedRun {
    /// Virtual time from the start of the first task to the end of the last.
    pub seconds: f64,
    /// Bytes of tasks' blocks on the node where the task ran.
    pub local_bytes: u64,
    /// Bytes of tasks' blocks on other nodes.
    pub remote_bytes: u64,
}

impl SimulatedRun {
    /// Share of the bytes that were remote, 0 to 1.
    #[must_use]
    pub fn remote_share(&self) -> f64 {
        self.remote_bytes as f64 / self.local_bytes.saturating_add(self.remote_bytes).max(1) as f64
    }
}

/// The placement to simulate.
pub struct Placement<'a> {
    /// The node of a task, by task number in the profile.
    pub task: &'a dyn Fn(usize) -> Option<u16>,
    /// The node of a block, by block number in the profile.
    pub block: &'a dyn Fn(usize) -> Option<u16>,
    /// Which workers may steal from other nodes.
    pub stealing: Stealing,
}

struct Core {
    node: usize,
    queue: VecDeque<usize>,
    idle: bool,
}

/// The machine and the tasks; shared by all simulations.
pub struct ScheduleSimulation<'a> {
    data: &'a Data<'a>,
    /// Node of each core.
    cores: Vec<usize>,
    /// By (taker's node, node).
    patience: Vec<Patience>,
    /// Bytes of the blocks of a task that has any, in the mean.
    bytes_per_task: f64,
    nodes: usize,
    cost: Vec<f64>,
    /// Tasks that can start only after a task, by task.
    next: Vec<Vec<u32>>,
    /// Number of tasks that each task has to wait for.
    before: Vec<u32>,
    /// Blocks of each task, one per slot, if its data counts.
    blocks: Vec<Vec<u32>>,
    /// Blocks that each task creates.
    creates: Vec<Vec<u32>>,
}

impl<'a> ScheduleSimulation<'a> {
    /// Prepares simulations of the profile's tasks on a machine.
    pub fn new(data: &'a Data<'a>, machine: &Topology) -> Self {
        let profile = data.profile;
        let ids = machine.nodes_with_pus();
        let cores: Vec<usize> = ids
            .iter()
            .enumerate()
            .flat_map(|(node, id)| vec![node; machine.nodes()[id.index()].pus.len()])
            .collect();
        let nodes = ids.len();
        let cost = seconds_per_byte(machine, cores.len());
        let patience = (0..nodes * nodes)
            .map(|at| Patience {
                workers: cores.iter().filter(|&&core| core == at % nodes).count(),
                near: cost[at % nodes * (nodes + 1)],
                far: cost[at],
            })
            .collect();
        let count = profile.tasks.len();
        let (mut next, mut before) = (vec![Vec::new(); count], vec![0; count]);
        let edges = profile
            .tasks
            .iter()
            .enumerate()
            .filter_map(|(at, task)| Some((task.creator?, at as u32)))
            .chain(profile.dependences.iter().copied());
        for (after, task) in edges {
            next[after as usize].push(task);
            before[task as usize] += 1;
        }
        let mut blocks = vec![Vec::new(); count];
        let in_loop = data.in_loop();
        for access in &profile.accesses {
            let class = data.class_of[access.task as usize].index();
            if in_loop.as_ref().is_some_and(|in_loop| !in_loop[class]) {
                continue;
            }
            blocks[access.task as usize].push(access.block);
        }
        let mut creates = vec![Vec::new(); count];
        for (at, block) in profile.blocks.iter().enumerate() {
            if let Some(creator) = block.creator {
                creates[creator as usize].push(at as u32);
            }
        }
        Self {
            data,
            nodes,
            cost,
            cores,
            patience,
            bytes_per_task: bytes_per_task(profile, &blocks),
            next,
            before,
            blocks,
            creates,
        }
    }

    /// Simulates the tasks under a placement, with all blocks `scale` times as large as in the profile.
    pub fn run(&self, placement: &Placement, scale: u64) -> SimulatedRun {
        let repetitions = if placement.stealing == Stealing::Any {
            REPETITIONS
        } else {
            1
        };
        let mut mean = SimulatedRun::default();
        for repetition in 0..repetitions {
            let one = self.once(placement, scale, repetition);
            mean.seconds += one.seconds / repetitions as f64;
            mean.local_bytes += one.local_bytes / repetitions;
            mean.remote_bytes += one.remote_bytes / repetitions;
        }
        mean
    }

    fn once(&self, placement: &Placement, scale: u64, repetition: u64) -> SimulatedRun {
        let mut run = Run {
            simulation: self,
            placement,
            scale,
            cores: self
                .cores
                .iter()
                .map(|&node| Core {
                    node,
                    queue: VecDeque::new(),
                    idle: true,
                })
                .collect(),
            inboxes: vec![VecDeque::new(); self.nodes],
            before: self.before.clone(),
            created_on: vec![0; self.data.profile.tasks.len()],
            block_node: vec![0; self.data.profile.blocks.len()],
            events: BTreeMap::new(),
            number: 0,
            random: 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(2 * repetition + 1),
            result: SimulatedRun::default(),
        };
        run.all();
        run.result
    }
}

/// Bytes of the blocks of a task that has any, in the mean.
fn bytes_per_task(profile: &TaskProfile, blocks: &[Vec<u32>]) -> f64 {
    let with_data = blocks.iter().filter(|blocks| !blocks.is_empty());
    let bytes = with_data.clone().flatten();
    let bytes: f64 = bytes
        .map(|&block| profile.blocks[block as usize].bytes as f64)
        .sum();
    bytes / with_data.count().max(1) as f64
}

struct Run<'a> {
    simulation: &'a ScheduleSimulation<'a>,
    placement: &'a Placement<'a>,
    scale: u64,
    cores: Vec<Core>,
    inboxes: Vec<VecDeque<usize>>,
    before: Vec<u32>,
    /// Where the creator of each task ran.
    created_on: Vec<usize>,
    block_node: Vec<usize>,
    /// Events by time in nanoseconds, turn among those of the same time, and number: the core is free, and the given
    /// task has ended.
    events: BTreeMap<(u64, usize, u64), (usize, Option<usize>)>,
    number: u64,
    random: u64,
    result: SimulatedRun,
}

impl Run<'_> {
    fn all(&mut self) {
        self.publish(0, 0, 0);
        while let Some(((now, ..), (core, ended))) = self.events.pop_first() {
            if let Some(ended) = ended {
                self.result.seconds = now as f64 * 1e-9;
                let simulation = self.simulation;
                for &task in &simulation.next[ended] {
                    self.before[task as usize] -= 1;
                    if self.before[task as usize] == 0 {
                        self.publish(now, core, task as usize);
                    }
                }
            }
            match self.find(core) {
                Some(task) => self.start(now, core, task),
                None => self.cores[core].idle = true,
            }
        }
    }

    /// Queues a task that can start: at the core that made it ready, or in its node's inbox.
    fn publish(&mut self, now: u64, by: usize, task: usize) {
        let node = (self.placement.task)(task).map_or(self.created_on[task], usize::from);
        let own = self.cores[by].node == node;
        if own {
            self.cores[by].queue.push_back(task);
        } else {
            self.inboxes[node].push_back(task);
        }
        let any = own && self.placement.stealing == Stealing::Any;
        let first = if any {
            self.random_below(self.cores.len())
        } else {
            0
        };
        let count = self.cores.len();
        let idle = (0..count)
            .map(|at| (first + at) % count)
            .find(|&at| self.cores[at].idle && (self.cores[at].node == node || any))
            .or_else(|| {
                let surplus = self.placement.stealing == Stealing::Surplus;
                let waiting = if surplus { self.waiting(node) } else { 0 };
                (0..count).find(|&at| {
                    self.cores[at].idle && waiting >= self.patience(self.cores[at].node, node)
                })
            });
        if let Some(core) = idle {
            self.cores[core].idle = false;
            self.event(now, core, None);
        }
    }

    /// Number of tasks that wait on a node.
    fn waiting(&self, node: usize) -> usize {
        let on_node = self.cores.iter().filter(|core| core.node == node);
        on_node.map(|core| core.queue.len()).sum::<usize>() + self.inboxes[node].len()
    }

    /// Tasks that wait on `node` from which on a core of node `by` may take one.
    fn patience(&self, by: usize, node: usize) -> usize {
        let simulation = self.simulation;
        let bytes = simulation.bytes_per_task * self.scale as f64;
        simulation.patience[by * simulation.nodes + node].tasks(bytes)
    }

    fn event(&mut self, time: u64, core: usize, ended: Option<usize>) {
        self.number += 1;
        let turn = if self.placement.stealing == Stealing::Any {
            self.random_below(usize::MAX)
        } else {
            core
        };
        self.events.insert((time, turn, self.number), (core, ended));
    }

    fn random_below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % bound as u64) as usize
    }

    fn find(&mut self, core: usize) -> Option<usize> {
        let node = self.cores[core].node;
        if let Some(task) = self.cores[core].queue.pop_back() {
            return Some(task);
        }
        if let Some(task) = self.inboxes[node].pop_front() {
            return Some(task);
        }
        self.steal(Some(node))
            .or_else(|| match self.placement.stealing {
                Stealing::Node => None,
                Stealing::Surplus => {
                    let most = (0..self.inboxes.len())
                        .filter(|&other| {
                            other != node && self.waiting(other) >= self.patience(node, other)
                        })
                        .max_by_key(|&other| (self.waiting(other), std::cmp::Reverse(other)))?;
                    self.steal(Some(most))
                        .or_else(|| self.inboxes[most].pop_front())
                }
                Stealing::Any => self
                    .steal(None)
                    .or_else(|| self.inboxes.iter_mut().find_map(VecDeque::pop_front)),
            })
    }

    fn steal(&mut self, node: Option<usize>) -> Option<usize> {
        let count = self.cores.len();
        let first = self.random_below(count);
        (0..count)
            .map(|at| (first + at) % count)
            .filter(|&at| node.is_none_or(|node| self.cores[at].node == node))
            .find(|&at| !self.cores[at].queue.is_empty())
            .and_then(|at| self.cores[at].queue.pop_front())
    }

    fn start(&mut self, now: u64, core: usize, task: usize) {
        let simulation = self.simulation;
        let node = self.cores[core].node;
        for &block in &simulation.creates[task] {
            self.block_node[block as usize] =
                (self.placement.block)(block as usize).map_or(node, usize::from);
        }
        let profile = simulation.data.profile;
        let mut seconds = SECONDS_PER_TASK;
        for &block in &simulation.blocks[task] {
            let bytes = profile.blocks[block as usize]
                .bytes
                .saturating_mul(self.scale);
            let at = self.block_node[block as usize];
            if at == node {
                self.result.local_bytes = self.result.local_bytes.saturating_add(bytes);
            } else {
                self.result.remote_bytes = self.result.remote_bytes.saturating_add(bytes);
            }
            seconds += bytes as f64 * simulation.cost[node * simulation.nodes + at];
        }
        for &next in &simulation.next[task] {
            if profile.tasks[next as usize].creator == Some(task as u32) {
                self.created_on[next as usize] = node;
            }
        }
        self.event(now + (seconds * 1e9) as u64, core, Some(task));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Access, Block, Task};
    use crate::recursion::by_depth_where_bounded;

    /// A task that creates thirty-two, each with a block of this many bytes.
    fn wide(bytes: u64) -> TaskProfile {
        let task = |creator, position| Task {
            creator,
            position,
            template: if creator.is_some() { "part" } else { "main" }.to_owned(),
            ..Task::default()
        };
        let mut profile = TaskProfile {
            tasks: vec![task(None, 0)],
            ..TaskProfile::default()
        };
        for part in 0..32 {
            profile.tasks.push(task(Some(0), part));
            profile.blocks.push(Block {
                creator: Some(0),
                position: part,
                bytes,
                hint: None,
            });
            profile.accesses.push(Access {
                task: part + 1,
                slot: 0,
                block: part,
                mode: "RW".to_owned(),
            });
        }
        profile
    }

    fn seconds(profile: &TaskProfile, stealing: Stealing, nodes: usize) -> f64 {
        let machine = numaloc_topology::resolve("numa:4 pu:4").unwrap();
        let (data, _) = by_depth_where_bounded(profile);
        let node = |at: usize| Some((at % nodes) as u16);
        let placement = Placement {
            task: &node,
            block: &|block| node(block + 1),
            stealing,
        };
        ScheduleSimulation::new(&data, &machine)
            .run(&placement, 1)
            .seconds
    }

    #[test]
    fn a_node_that_falls_behind_gives_tasks_away_and_others_keep_theirs() {
        for bytes in [100, 1_000_000] {
            let profile = wide(bytes);
            let [strict, surplus] =
                [Stealing::Node, Stealing::Surplus].map(|stealing| seconds(&profile, stealing, 1));
            assert!(surplus < 0.6 * strict, "{bytes}: {surplus} {strict}");
            // On four nodes with eight each, nobody waits for others.
            let [strict, surplus] =
                [Stealing::Node, Stealing::Surplus].map(|stealing| seconds(&profile, stealing, 4));
            assert!(surplus <= strict, "{bytes}: {surplus} {strict}");
        }
    }
}
