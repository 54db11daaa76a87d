//! Assigns nodes to classes: first lasting data blocks, then the tasks that use them, then the rest.
//!
//! 1. *Lasting* blocks are those created once before the loop and used in it. Of each kind (same creating template,
//!    position) the Q classes are distributed over the N nodes in blocks, in the order of their creators' paths (the
//!    paper says in the order of creation, which depends on how the creators happened to run): class q goes to node
//!    floor(q N / Q), the paper's pre-defined distribution. Kinds with fewer classes than nodes (tables, arguments)
//!    stay open.
//! 2. Each task class goes to the node where the least time is lost to distance: the sum over its slots of affinity
//!    times excess distance to the block's node. Those with most to lose choose first; no node gets more than (1 +
//!    slack) of the mean load, unless there is no alternative.
//! 3. Tasks without placed data go to the node of the lasting blocks that they create, else to that of most of the work
//!    that they create.
//! 4. Blocks still open go to the node of their main user (tables), or of their creator (blocks made in a loop).

use std::collections::BTreeMap;

use crate::affinity::Affinity;
use crate::data::Data;

/// Nodes by class of tasks and by class of blocks.
#[derive(Clone)]
pub struct Placed {
    pub tasks: Vec<Option<u16>>,
    pub blocks: Vec<Option<u16>>,
    /// Load (typical seconds) by node.
    pub load: Vec<f64>,
}

/// The machine as used by the placement.
pub struct Nodes<'a> {
    pub count: usize,
    /// Distance over local distance, minus 1.
    pub excess: &'a dyn Fn(u16, u16) -> f64,
}

/// Places all classes; `refused` classes get no node; `fixed` blocks keep theirs.
pub fn place(
    data: &Data,
    affinity: &Affinity,
    nodes: &Nodes,
    refused: &[bool],
    fixed: Vec<Option<u16>>,
    slack: f64,
) -> Placed {
    let mut placed = Placed {
        tasks: vec![None; data.class_data.len()],
        blocks: fixed,
        load: vec![0.0; nodes.count],
    };
    by_data(data, affinity, nodes, refused, &mut placed, slack);
    by_creations(data, refused, &mut placed);
    open_blocks(data, affinity, refused, &mut placed);
    placed
}

/// The paper's distribution of lasting blocks.
pub fn block_pattern(data: &Data, nodes: usize) -> Vec<Option<u16>> {
    let mut blocks = vec![None; data.block_classes.len()];
    for kind in kinds_of_lasting_blocks(data) {
        if kind.len() < nodes {
            continue;
        }
        for (q, &block) in kind.iter().enumerate() {
            blocks[block] = Some((q * nodes / kind.len()) as u16);
        }
    }
    blocks
}

/// Places blocks by affinities: blocks used by the same tasks are merged, strongest connection first, as long as a
/// group stays within a node's share of the bytes; the groups then fill the nodes, largest first.
pub fn joint(data: &Data, affinity: &Affinity, nodes: usize) -> Vec<Option<u16>> {
    let mut ties: std::collections::BTreeMap<(usize, usize), f64> = Default::default();
    let lasting: Vec<usize> = kinds_of_lasting_blocks(data)
        .into_iter()
        .flatten()
        .collect();
    let is_lasting = |block: usize| lasting.contains(&block);
    let in_loop = data.in_loop();
    for (class, used) in data.class_data.iter().enumerate() {
        if in_loop.as_ref().is_some_and(|in_loop| !in_loop[class]) {
            continue;
        }
        let mine: Vec<(usize, f64)> = used
            .uses
            .iter()
            .filter(|((_, block), _)| is_lasting(*block))
            .map(|(&(slot, block), &count)| {
                let b = affinity.weight(class, slot).unwrap_or(0.0);
                (block, b * count as f64)
            })
            .collect();
        for (at, &(a, wa)) in mine.iter().enumerate() {
            for &(b, wb) in &mine[at + 1..] {
                if a != b {
                    *ties.entry((a.min(b), a.max(b))).or_default() += wa.min(wb);
                }
            }
        }
    }
    let bytes = |block: usize| data.block_classes[block].bytes as f64;
    let total: f64 = lasting.iter().map(|&block| bytes(block)).sum();
    let share = total / nodes as f64 * 1.05;
    let mut group: Vec<usize> = (0..data.block_classes.len()).collect();
    let mut weight: Vec<f64> = (0..group.len()).map(bytes).collect();
    let mut order: Vec<_> = ties.into_iter().collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    for ((a, b), _) in order {
        let (a, b) = (group[a], group[b]);
        if a != b && weight[a] + weight[b] <= share {
            weight[a] += weight[b];
            for member in &mut group {
                if *member == b {
                    *member = a;
                }
            }
        }
    }
    let mut groups: Vec<usize> = lasting.iter().map(|&block| group[block]).collect();
    groups.sort_unstable();
    groups.dedup();
    groups.sort_by(|&a, &b| weight[b].total_cmp(&weight[a]).then(a.cmp(&b)));
    let mut filled = vec![0.0; nodes];
    let mut blocks = vec![None; data.block_classes.len()];
    for part in groups {
        let node = (0..nodes)
            .min_by(|&a, &b| f64::total_cmp(&filled[a], &filled[b]).then(a.cmp(&b)))
            .unwrap_or(0);
        filled[node] += weight[part];
        for &block in lasting.iter().filter(|&&block| group[block] == part) {
            blocks[block] = Some(node as u16);
        }
    }
    blocks
}

/// Lasting blocks by kind, each in the order of the creators' paths.
fn kinds_of_lasting_blocks(data: &Data) -> Vec<Vec<usize>> {
    let repeating = data.classes.repeating();
    // Blocks that the loop never uses are not lasting; without a loop, all are.
    let any_loop = repeating.iter().any(|&repeats| repeats);
    let mut in_use = vec![!any_loop; data.block_classes.len()];
    let below_loop = below(data, &repeating);
    for (class, used) in data.class_data.iter().enumerate() {
        for (_, block) in used.uses.keys() {
            in_use[*block] |= below_loop[class];
        }
    }
    let mut kinds: BTreeMap<(&str, u32), Vec<usize>> = BTreeMap::new();
    for (at, block) in data.block_classes.iter().enumerate() {
        if let Some(creator) = block.creator
            && !repeating[creator.index()]
        {
            // A task directly below a loop is created in every iteration: one block per iteration.
            if block.count == 1 && in_use[at] {
                kinds
                    .entry((data.classes.template(creator), block.position))
                    .or_default()
                    .push(at);
            }
        }
    }
    kinds.into_values().collect()
}

/// Whether each class is on a cycle, or created by a class on one.
pub fn below(data: &Data, repeating: &[bool]) -> Vec<bool> {
    let mut below = repeating.to_vec();
    loop {
        let before = below.clone();
        for (from, _, to) in data.classes.transitions() {
            below[to.index()] |= below[from.index()];
        }
        if before == below {
            return below;
        }
    }
}

/// Loss by distance on each node (weights times excess distance), per task of the class; `None` if no placed data is
/// used.
fn losses(
    data: &Data,
    affinity: &Affinity,
    nodes: &Nodes,
    placed: &Placed,
    class: usize,
) -> Option<Vec<f64>> {
    let mut losses = vec![0.0; nodes.count];
    let mut any = false;
    for (&(slot, block), &count) in &data.class_data[class].uses {
        let (Some(at), Some(weight)) = (placed.blocks[block], affinity.weight(class, slot)) else {
            continue;
        };
        any = true;
        for (node, loss) in losses.iter_mut().enumerate() {
            *loss += weight * count as f64 * (nodes.excess)(node as u16, at);
        }
    }
    any.then_some(losses)
}

fn by_data(
    data: &Data,
    affinity: &Affinity,
    nodes: &Nodes,
    refused: &[bool],
    placed: &mut Placed,
    slack: f64,
) {
    let mut waiting: Vec<(f64, usize, Vec<f64>)> = Vec::new();
    let mut total = 0.0;
    for class in (0..data.class_data.len()).filter(|&class| !refused[class]) {
        let Some(losses) = losses(data, affinity, nodes, placed, class) else {
            continue;
        };
        let mut sorted = losses.clone();
        sorted.sort_by(f64::total_cmp);
        // The loss when the second-best node is chosen.
        let gap = sorted.get(1).map_or(0.0, |second| second - sorted[0]);
        total += load(data, class);
        waiting.push((gap, class, losses));
    }
    waiting.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let most = total / nodes.count as f64 * (1.0 + slack);
    for (_, class, losses) in waiting {
        let load = load(data, class);
        let mut order: Vec<usize> = (0..nodes.count).collect();
        order.sort_by(|&a, &b| {
            losses[a]
                .total_cmp(&losses[b])
                .then(placed.load[a].total_cmp(&placed.load[b]))
                .then(a.cmp(&b))
        });
        let node = order
            .iter()
            .copied()
            .find(|&node| placed.load[node] + load <= most)
            .unwrap_or(order[0]);
        placed.load[node] += load;
        placed.tasks[class] = Some(node as u16);
    }
}

fn load(data: &Data, class: usize) -> f64 {
    data.class_data[class].steady_seconds * data.class_data[class].tasks as f64
}

fn by_creations(data: &Data, refused: &[bool], placed: &mut Placed) {
    let nodes = placed.load.len();
    let mut votes: Vec<Vec<f64>> = vec![vec![0.0; nodes]; data.class_data.len()];
    for (at, block) in data.block_classes.iter().enumerate() {
        if let (Some(creator), Some(node)) = (block.creator, placed.blocks[at]) {
            votes[creator.index()][usize::from(node)] += block.bytes as f64 * block.count as f64;
        }
    }
    let decide = |placed: &mut Placed, class: usize, votes: &[f64], most: f64| {
        let best = (0..nodes).max_by(|&a, &b| votes[a].total_cmp(&votes[b]).then(b.cmp(&a)));
        if let Some(best) = best {
            let all: f64 = votes.iter().sum();
            if placed.tasks[class].is_none()
                && !refused[class]
                && all > 0.0
                && votes[best] >= most * all
            {
                placed.tasks[class] = Some(best as u16);
                placed.load[best] += load(data, class);
            }
        }
    };
    for (class, votes) in votes.iter().enumerate() {
        decide(placed, class, votes, 0.0);
    }
    // Creators of placed tasks, from the leaves up: only if most of what they create is on one node, and never the
    // root, which stays open.
    for _ in 0..data.classes.len().min(16) {
        let before = placed.tasks.clone();
        let mut votes: Vec<Vec<f64>> = vec![vec![0.0; nodes]; data.class_data.len()];
        for (from, _, to) in data.classes.transitions() {
            if let Some(node) = placed.tasks[to.index()] {
                votes[from.index()][usize::from(node)] += data.class_data[to.index()].tasks as f64;
            }
        }
        for (class, votes) in votes.iter().enumerate().skip(1) {
            decide(placed, class, votes, 0.75);
        }
        if before == placed.tasks {
            break;
        }
    }
}

fn open_blocks(data: &Data, affinity: &Affinity, refused: &[bool], placed: &mut Placed) {
    let repeating = data.classes.repeating();
    let nodes = placed.load.len();
    let mut votes = vec![vec![0.0; nodes]; data.block_classes.len()];
    for (class, used) in data.class_data.iter().enumerate() {
        let Some(node) = placed.tasks[class] else {
            continue;
        };
        for (&(slot, block), &count) in &used.uses {
            let b = affinity.weight(class, slot).unwrap_or(0.0);
            votes[block][usize::from(node)] += b * count as f64;
        }
    }
    for (at, block) in data.block_classes.iter().enumerate() {
        let Some(creator) = block.creator else {
            continue;
        };
        if placed.blocks[at].is_some() || refused[creator.index()] {
            continue;
        }
        let made_in_a_loop = repeating[creator.index()] || block.count > 1;
        placed.blocks[at] = match placed.tasks[creator.index()] {
            Some(node) if made_in_a_loop => Some(node),
            at_creator => {
                let votes = &votes[at];
                let best =
                    (0..nodes).max_by(|&a, &b| votes[a].total_cmp(&votes[b]).then(b.cmp(&a)));
                best.filter(|&best| votes[best] > 0.0)
                    .map(|best| best as u16)
                    .or(at_creator)
            }
        };
    }
}
