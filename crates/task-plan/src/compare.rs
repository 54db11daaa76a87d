//! A placement tried on the tasks of the profile: list scheduling on the described machine in virtual time, by the rules
//! of the runtime's scheduler `numa` and the costs of [`crate::model`].
//!
//! A task can start when its creator and every task that satisfied one of its slots have ended. Older profiles do
//! not say who satisfied what: then only creators count. A worker takes its newest task, else the oldest of its
//! node's inbox, else steals the oldest of another worker of the node, and, where that is allowed, of any node.
//! What nobody places belongs where its creator ran. Blocks are where they are placed, else where their creator ran.
//! Where the program has a loop, only what the loop repeats counts: of other tasks (the first turn, set-up, a check when the loop
//! ends) the data is taken to cost nothing, because the run turns more often than the profile did.
//! Deterministic; what it gives depends on the structure and the bytes in the profile, not on times measured.

use std::collections::{BTreeMap, VecDeque};

use numaloc_topology::Topology;

use crate::data::Data;
use crate::model::{SECONDS_PER_TASK, seconds_per_byte};

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tried {
    /// Virtual time from the first task to the end of the last.
    pub seconds: f64,
    /// Bytes of blocks handed to tasks on the block's node.
    pub local_bytes: u64,
    /// Bytes of blocks handed to tasks on other nodes.
    pub remote_bytes: u64,
}

impl Tried {
    /// Share of the bytes that were remote, 0 to 1.
    #[must_use]
    pub fn remote_share(&self) -> f64 {
        self.remote_bytes as f64 / self.local_bytes.saturating_add(self.remote_bytes).max(1) as f64
    }
}

/// What is tried.
pub struct Placement<'a> {
    /// The node of a task, by number in the profile.
    pub task: &'a dyn Fn(usize) -> Option<u16>,
    /// The node of a block, by number in the profile.
    pub block: &'a dyn Fn(usize) -> Option<u16>,
    /// Whether workers without work take it from other nodes.
    pub steal_anywhere: bool,
}

struct Core {
    node: usize,
    queue: VecDeque<usize>,
    idle: bool,
}

/// The machine and the tasks; made once for all placements that are tried.
pub struct Trial<'a> {
    data: &'a Data<'a>,
    /// Node of each core.
    cores: Vec<usize>,
    nodes: usize,
    cost: Vec<f64>,
    /// Tasks that can start at the earliest after a task.
    next: Vec<Vec<u32>>,
    /// How many tasks each has to wait for.
    before: Vec<u32>,
    /// Blocks of each task, once for each slot, where its data counts.
    blocks: Vec<Vec<u32>>,
    /// Blocks that each task creates.
    creates: Vec<Vec<u32>>,
}

impl<'a> Trial<'a> {
    /// Gets ready.
    pub fn new(data: &'a Data<'a>, machine: &Topology) -> Self {
        let profile = data.profile;
        let ids = machine.nodes_with_pus();
        let cores: Vec<usize> = ids
            .iter()
            .enumerate()
            .flat_map(|(node, id)| vec![node; machine.nodes()[id.index()].pus.len()])
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
        let turns = data.turns();
        for access in &profile.accesses {
            let class = data.class_of[access.task as usize].index();
            if turns.as_ref().is_some_and(|turns| !turns[class]) {
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
            nodes: ids.len(),
            cost: seconds_per_byte(machine, cores.len()),
            cores,
            next,
            before,
            blocks,
            creates,
        }
    }

    /// Runs the tasks under a placement, all blocks being `scale` times as large as in the profile.
    pub fn run(&self, placement: &Placement, scale: u64) -> Tried {
        let mut run = Run {
            trial: self,
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
            random: 0x9e37_79b9_7f4a_7c15,
            tried: Tried::default(),
        };
        run.all();
        run.tried
    }
}

struct Run<'a> {
    trial: &'a Trial<'a>,
    placement: &'a Placement<'a>,
    scale: u64,
    cores: Vec<Core>,
    inboxes: Vec<VecDeque<usize>>,
    before: Vec<u32>,
    /// Where the creator of each task ran.
    created_on: Vec<usize>,
    block_node: Vec<usize>,
    /// Cores that are done, by time in nanoseconds, core and number; with the task that has ended.
    events: BTreeMap<(u64, usize, u64), Option<usize>>,
    number: u64,
    random: u64,
    tried: Tried,
}

impl Run<'_> {
    fn all(&mut self) {
        self.publish(0, 0, 0);
        while let Some(((now, core, _), ended)) = self.events.pop_first() {
            if let Some(ended) = ended {
                self.tried.seconds = now as f64 * 1e-9;
                let trial = self.trial;
                for &task in &trial.next[ended] {
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

    /// A task can start: to the core that made it ready, or to its node's inbox.
    fn publish(&mut self, now: u64, by: usize, task: usize) {
        let node = (self.placement.task)(task).map_or(self.created_on[task], usize::from);
        let own = self.cores[by].node == node;
        if own {
            self.cores[by].queue.push_back(task);
        } else {
            self.inboxes[node].push_back(task);
        }
        let first = if own && self.placement.steal_anywhere {
            self.random_below(self.cores.len())
        } else {
            0
        };
        let count = self.cores.len();
        let idle = (0..count).map(|at| (first + at) % count).find(|&at| {
            self.cores[at].idle
                && (self.cores[at].node == node || (own && self.placement.steal_anywhere))
        });
        if let Some(core) = idle {
            self.cores[core].idle = false;
            self.event(now, core, None);
        }
    }

    fn event(&mut self, time: u64, core: usize, ended: Option<usize>) {
        self.number += 1;
        self.events.insert((time, core, self.number), ended);
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
        self.steal(Some(node)).or_else(|| {
            if !self.placement.steal_anywhere {
                return None;
            }
            let stolen = self.steal(None);
            stolen.or_else(|| self.inboxes.iter_mut().find_map(VecDeque::pop_front))
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
        let trial = self.trial;
        let node = self.cores[core].node;
        for &block in &trial.creates[task] {
            self.block_node[block as usize] =
                (self.placement.block)(block as usize).map_or(node, usize::from);
        }
        let profile = trial.data.profile;
        let mut seconds = SECONDS_PER_TASK;
        for &block in &trial.blocks[task] {
            let bytes = profile.blocks[block as usize]
                .bytes
                .saturating_mul(self.scale);
            let at = self.block_node[block as usize];
            if at == node {
                self.tried.local_bytes = self.tried.local_bytes.saturating_add(bytes);
            } else {
                self.tried.remote_bytes = self.tried.remote_bytes.saturating_add(bytes);
            }
            seconds += bytes as f64 * trial.cost[node * trial.nodes + at];
        }
        for &next in &trial.next[task] {
            if profile.tasks[next as usize].creator == Some(task as u32) {
                self.created_on[next as usize] = node;
            }
        }
        self.event(now + (seconds * 1e9) as u64, core, Some(task));
    }
}
