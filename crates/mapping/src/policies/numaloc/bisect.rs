//! Construction: recursive multilevel bisection down the machine's tree, to exact sizes.
//!
//! The tasks of an object are split over its children by repeatedly halving the list of children, so that every child
//! gets exactly its number of seats. A split coarsens by heavy-edge matching, grows a half from a few random seeds on
//! the coarsest graph, and refines with Fiduccia-Mattheyses moves on the way back. Distances are not used: in a tree, a
//! split is determined by its cut.

use fastrand::Rng;
use std::collections::BinaryHeap;

/// A vertex-weighted graph of one subproblem.
pub(super) struct Graph {
    start: Vec<u32>,
    to: Vec<u32>,
    weight: Vec<f64>,
    size: Vec<u32>,
}

/// Graphs above this size are split in parallel: both halves concurrently, and so are the tries of each split. Every
/// branch has its own random numbers, so the result does not depend on the number of threads.
const PARALLEL: usize = 8192;
/// At most two to this power concurrent branches.
const PARALLEL_DEPTH: u32 = 4;
/// Size at which coarsening stops.
const COARSEST: usize = 32;
/// Seeds tried on the coarsest graph.
const TRIES: usize = 6;
/// Minimum number of moves without improvement after which a pass ends.
const PATIENCE: usize = 40;
const PASSES: usize = 4;

impl Graph {
    pub(super) fn new(tasks: &crate::TaskGraph) -> Self {
        let n = tasks.tasks();
        let mut graph = Self {
            start: Vec::with_capacity(n + 1),
            to: Vec::with_capacity(tasks.stored_cells()),
            weight: Vec::with_capacity(tasks.stored_cells()),
            size: vec![1; n],
        };
        graph.start.push(0);
        for task in 0..n {
            let (to, weight) = tasks.neighbours(task);
            graph.to.extend_from_slice(to);
            graph.weight.extend_from_slice(weight);
            graph.start.push(graph.to.len() as u32);
        }
        graph
    }

    fn len(&self) -> usize {
        self.size.len()
    }

    fn row(&self, v: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let range = self.start[v] as usize..self.start[v + 1] as usize;
        self.to[range.clone()]
            .iter()
            .zip(&self.weight[range])
            .map(|(&t, &w)| (t as usize, w))
    }

    /// The two induced subgraphs, and for each its vertices in this graph.
    fn halves(&self, side: &[bool]) -> [(Self, Vec<u32>); 2] {
        let mut local = vec![0u32; self.len()];
        let mut members = [Vec::new(), Vec::new()];
        for v in 0..self.len() {
            let half = &mut members[usize::from(side[v])];
            local[v] = half.len() as u32;
            half.push(v as u32);
        }
        members.map(|members| {
            let mut graph = Self {
                start: vec![0],
                to: Vec::new(),
                weight: Vec::new(),
                size: members.iter().map(|&v| self.size[v as usize]).collect(),
            };
            for &v in &members {
                for (t, w) in self.row(v as usize) {
                    if side[t] == side[v as usize] {
                        graph.to.push(local[t]);
                        graph.weight.push(w);
                    }
                }
                graph.start.push(graph.to.len() as u32);
            }
            (graph, members)
        })
    }

    /// Heavy-edge matching in random order; `None` if the graph would hardly shrink.
    fn coarsen(&self, heaviest: u32, rng: &mut Rng) -> Option<(Self, Vec<u32>)> {
        let n = self.len();
        let mut order: Vec<u32> = (0..n as u32).collect();
        rng.shuffle(&mut order);
        let mut coarse = vec![u32::MAX; n];
        let mut size = Vec::with_capacity(n / 2 + 1);
        let mut members: Vec<[u32; 2]> = Vec::with_capacity(n / 2 + 1);
        for &v in &order {
            let v = v as usize;
            if coarse[v] != u32::MAX {
                continue;
            }
            // Weight over size, so that heavy clusters do not absorb all their neighbours.
            let mut best: Option<(f64, usize)> = None;
            for (t, w) in self.row(v) {
                if coarse[t] == u32::MAX && self.size[v] + self.size[t] <= heaviest {
                    let score = w / f64::from(self.size[t]);
                    if best.is_none_or(|(b, _)| score > b) {
                        best = Some((score, t));
                    }
                }
            }
            let id = size.len() as u32;
            coarse[v] = id;
            match best {
                Some((_, t)) => {
                    coarse[t] = id;
                    size.push(self.size[v] + self.size[t]);
                    members.push([v as u32, t as u32]);
                }
                None => {
                    size.push(self.size[v]);
                    members.push([v as u32, v as u32]);
                }
            }
        }
        if size.len() * 20 > n * 19 {
            return None;
        }
        let mut graph = Self {
            start: Vec::with_capacity(size.len() + 1),
            to: Vec::with_capacity(self.to.len()),
            weight: Vec::with_capacity(self.to.len()),
            size,
        };
        graph.start.push(0);
        let mut at = vec![u32::MAX; graph.len()];
        for (id, &[a, b]) in members.iter().enumerate() {
            let from = graph.to.len();
            for v in [a, b].into_iter().take(if a == b { 1 } else { 2 }) {
                for (t, w) in self.row(v as usize) {
                    let t = coarse[t];
                    if t as usize == id {
                        continue;
                    }
                    let seen = at[t as usize];
                    if seen != u32::MAX && seen as usize >= from {
                        graph.weight[seen as usize] += w;
                    } else {
                        at[t as usize] = graph.to.len() as u32;
                        graph.to.push(t);
                        graph.weight.push(w);
                    }
                }
            }
            graph.start.push(graph.to.len() as u32);
        }
        Some((graph, coarse))
    }

    /// The best of several splits.
    fn bisect(&self, first: u32, tries: usize, rng: &mut Rng) -> Vec<bool> {
        if self.len() > PARALLEL && tries > 1 {
            return self.bisect_in_parallel(first, tries, rng);
        }
        let mut best = self.bisect_once(first, rng);
        // The coarsest graph is tried several times in any case.
        let tries = if self.len() <= COARSEST { 1 } else { tries };
        for _ in 1..tries {
            let again = self.bisect_once(first, rng);
            if again.0 < best.0 {
                best = again;
            }
        }
        best.1
    }

    fn bisect_in_parallel(&self, first: u32, tries: usize, rng: &mut Rng) -> Vec<bool> {
        let seeds: Vec<Rng> = (0..tries).map(|_| rng.fork()).collect();
        let found = std::thread::scope(|scope| {
            let one = |mut rng| scope.spawn(move || self.bisect_once(first, &mut rng));
            let running: Vec<_> = seeds.into_iter().map(one).collect();
            let ended = running.into_iter().map(std::thread::ScopedJoinHandle::join);
            ended.collect::<Result<Vec<_>, _>>()
        });
        let found = found.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let best = found.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
        best.expect("at least one try").1
    }

    /// Splits into sides of exactly `first` and the rest (for vertices of size 1).
    fn bisect_once(&self, first: u32, rng: &mut Rng) -> (f64, Vec<bool>) {
        let total: u32 = self.size.iter().sum();
        let heaviest = (first.min(total - first) / 4).max(1);
        let mut levels: Vec<(Self, Vec<u32>)> = Vec::new();
        loop {
            let finest = levels.last().map_or(self, |(graph, _)| graph);
            if finest.len() <= COARSEST {
                break;
            }
            match finest.coarsen(heaviest, rng) {
                Some(level) => levels.push(level),
                None => break,
            }
        }
        let coarsest = levels.last().map_or(self, |(graph, _)| graph);
        let mut best: Option<(f64, Vec<bool>)> = None;
        for _ in 0..TRIES {
            let mut side = coarsest.grow(first, rng);
            let cut = coarsest.refine(&mut side, first);
            if best.as_ref().is_none_or(|(b, _)| cut < *b) {
                best = Some((cut, side));
            }
        }
        let (mut cut, mut side) = best.expect("at least one try");
        for at in (0..levels.len()).rev() {
            let finer = if at == 0 { self } else { &levels[at - 1].0 };
            side = levels[at].1.iter().map(|&c| side[c as usize]).collect();
            cut = finer.refine(&mut side, first);
        }
        (cut, side)
    }

    /// Grows side `false` from a random vertex by strongest attachment until it holds `first`.
    fn grow(&self, first: u32, rng: &mut Rng) -> Vec<bool> {
        let n = self.len();
        let mut side = vec![true; n];
        let mut gain: Vec<f64> = (0..n)
            .map(|v| -self.row(v).map(|(_, w)| w).sum::<f64>())
            .collect();
        let mut held = 0;
        let mut next = rng.usize(0..n);
        // A graph with many parts may not coarsen, so n may be all tasks. Ties go to the last vertex.
        let entry = |gain: f64, v: usize| Entry {
            gain,
            vertex: !(v as u32),
        };
        let mut heap: BinaryHeap<Entry> = (0..n).map(|v| entry(gain[v], v)).collect();
        loop {
            side[next] = false;
            held += self.size[next];
            if held >= first {
                return side;
            }
            for (t, w) in self.row(next) {
                gain[t] += 2.0 * w;
                if side[t] {
                    heap.push(entry(gain[t], t));
                }
            }
            loop {
                let Some(top) = heap.pop() else {
                    return side;
                };
                let v = !top.vertex as usize;
                if side[v] && top.gain.total_cmp(&gain[v]).is_eq() {
                    next = v;
                    break;
                }
            }
        }
    }

    /// Fiduccia-Mattheyses passes; returns the cut. Sides of size-1 vertices come out exact.
    fn refine(&self, side: &mut [bool], first: u32) -> f64 {
        let n = self.len();
        let mut gain = vec![0.0; n];
        let mut cut = 0.0;
        let mut held = 0;
        for v in 0..n {
            held += if side[v] { 0 } else { self.size[v] };
            for (t, w) in self.row(v) {
                gain[v] += if side[t] == side[v] { -w } else { w };
                cut += if side[t] == side[v] { 0.0 } else { w };
            }
        }
        let mut refinement = Refinement {
            graph: self,
            first,
            tolerance: i64::from(self.size.iter().copied().max().unwrap_or(1)) - 1,
            side,
            gain,
            cut: cut / 2.0,
            held,
            moved_in: vec![0; n],
        };
        for pass in 1..=PASSES as u32 {
            if !refinement.pass(pass) {
                break;
            }
        }
        refinement.cut
    }
}

/// Two sides while vertices move between them.
struct Refinement<'a> {
    graph: &'a Graph,
    /// Wanted size of the first side.
    first: u32,
    /// Sizes this far from the wanted one are equally good.
    tolerance: i64,
    /// By vertex: whether it is on the second side.
    side: &'a mut [bool],
    /// By vertex: by how much its move lowers the cut.
    gain: Vec<f64>,
    cut: f64,
    /// Size of the first side.
    held: u32,
    /// By vertex: the pass in which it was moved, or kept for its size.
    moved_in: Vec<u32>,
}

impl Refinement<'_> {
    /// How far the first side with size `held` is from the wanted size.
    fn off(&self, held: u32) -> i64 {
        (i64::from(held) - i64::from(self.first)).abs()
    }

    /// What is minimised: the deviation beyond the tolerance, then the cut.
    fn state(&self) -> (i64, f64) {
        (self.off(self.held).max(self.tolerance), self.cut)
    }

    /// The size of the first side after the move of a vertex.
    fn held_after(&self, v: usize) -> u32 {
        if self.side[v] {
            self.held + self.graph.size[v]
        } else {
            self.held - self.graph.size[v]
        }
    }

    /// Moves a vertex to the other side.
    fn shift(&mut self, v: usize) {
        self.held = self.held_after(v);
        self.cut -= self.gain[v];
        self.side[v] = !self.side[v];
        self.gain[v] = -self.gain[v];
        for (t, w) in self.graph.row(v) {
            self.gain[t] += if self.side[t] == self.side[v] {
                -2.0 * w
            } else {
                2.0 * w
            };
        }
    }

    /// Moves each vertex at most once, the best first, and keeps the moves up to the best state. Returns whether it
    /// kept any.
    fn pass(&mut self, pass: u32) -> bool {
        let n = self.graph.len();
        let patience = PATIENCE.max(n / 10);
        let mut heaps: [BinaryHeap<Entry>; 2] = [BinaryHeap::new(), BinaryHeap::new()];
        for v in 0..n {
            heaps[usize::from(self.side[v])].push(self.entry(v));
        }
        let mut best = self.state();
        let mut log: Vec<u32> = Vec::new();
        let mut kept = 0;
        while let Some(v) = self.next(&mut heaps, pass) {
            self.moved_in[v] = pass;
            if self.off(self.held_after(v)) > self.off(self.held).max(self.tolerance + 1) {
                continue;
            }
            self.shift(v);
            log.push(v as u32);
            for (t, _) in self.graph.row(v) {
                if self.moved_in[t] != pass {
                    heaps[usize::from(self.side[t])].push(self.entry(t));
                }
            }
            let now = self.state();
            if now.0 < best.0 || (now.0 == best.0 && now.1 < best.1 - 1e-9 * best.1.abs()) {
                best = now;
                kept = log.len();
            } else if log.len() - kept > patience {
                break;
            }
        }
        for &v in log[kept..].iter().rev() {
            self.shift(v as usize);
        }
        kept > 0
    }

    fn entry(&self, v: usize) -> Entry {
        Entry {
            gain: self.gain[v],
            vertex: v as u32,
        }
    }

    /// Takes the vertex to move next off its heap: of the side that is too large, else the one with the larger gain.
    fn next(&self, heaps: &mut [BinaryHeap<Entry>; 2], pass: u32) -> Option<usize> {
        for (at, heap) in heaps.iter_mut().enumerate() {
            while let Some(top) = heap.peek() {
                let v = top.vertex as usize;
                let stale = self.moved_in[v] == pass
                    || self.side[v] != (at == 1)
                    || top.gain != self.gain[v];
                if !stale {
                    break;
                }
                heap.pop();
            }
        }
        let from = match (heaps[0].peek(), heaps[1].peek()) {
            (None, None) => return None,
            (Some(_), None) => 0,
            (None, Some(_)) => 1,
            (Some(_), Some(_)) if self.held > self.first => 0,
            (Some(_), Some(_)) if self.held < self.first => 1,
            (Some(a), Some(b)) => usize::from(b.gain > a.gain),
        };
        heaps[from].pop().map(|top| top.vertex as usize)
    }
}

#[derive(PartialEq)]
struct Entry {
    gain: f64,
    vertex: u32,
}

impl Eq for Entry {}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.gain
            .total_cmp(&other.gain)
            .then(other.vertex.cmp(&self.vertex))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Gives every task a PU; `capacity` sums to the number of tasks.
pub(super) fn construct(
    graph: Graph,
    topology: &numaloc_topology::Topology,
    capacity: &[u32],
    tries: usize,
    rng: &mut Rng,
) -> Vec<u32> {
    let mut before = vec![0u32; capacity.len() + 1];
    for (pu, &c) in capacity.iter().enumerate() {
        before[pu + 1] = before[pu] + c;
    }
    let builder = Builder {
        topology,
        before,
        tries,
    };
    let tasks = graph.len();
    let mut seated = Vec::with_capacity(tasks);
    let all = (0..tasks as u32).collect();
    let part = Part {
        graph,
        tasks: all,
        depth: 0,
    };
    builder.object(0, part, rng, &mut seated);
    let mut pus = vec![0; tasks];
    for (task, pu) in seated {
        pus[task as usize] = pu;
    }
    pus
}

/// Tasks that share an object, their graph, and the number of halvings so far.
struct Part {
    graph: Graph,
    tasks: Vec<u32>,
    depth: u32,
}

/// `(task, PU)` in the order in which they are assigned.
type Seated = Vec<(u32, u32)>;

struct Builder<'a> {
    topology: &'a numaloc_topology::Topology,
    /// Number of seats on all PUs before each.
    before: Vec<u32>,
    tries: usize,
}

impl Builder<'_> {
    fn seats(&self, object: u32) -> u32 {
        let pus = &self.topology.objects()[object as usize].pus;
        self.before[pus.end as usize] - self.before[pus.start as usize]
    }

    fn object(&self, object: u32, part: Part, rng: &mut Rng, seated: &mut Seated) {
        let this = &self.topology.objects()[object as usize];
        if this.children.is_empty() {
            seated.extend(part.tasks.iter().map(|&task| (task, this.pus.start)));
            return;
        }
        let used: Vec<u32> = this
            .children
            .iter()
            .copied()
            .filter(|&child| self.seats(child) > 0)
            .collect();
        self.children(&used, part, rng, seated);
    }

    fn children(&self, children: &[u32], part: Part, rng: &mut Rng, seated: &mut Seated) {
        if let [only] = children {
            return self.object(*only, part, rng, seated);
        }
        if children.is_empty() {
            return;
        }
        let objects = self.topology.objects();
        // If every child is a single seat and all are equally far apart, order does not matter.
        let leaves = children
            .iter()
            .all(|&c| objects[c as usize].children.is_empty() && self.seats(c) == 1);
        if leaves {
            let pus = children.iter().map(|&c| objects[c as usize].pus.start);
            seated.extend(part.tasks.into_iter().zip(pus));
            return;
        }
        let (left, right) = children.split_at(children.len() / 2);
        let first: u32 = left.iter().map(|&c| self.seats(c)).sum();
        let side = part.graph.bisect(first, self.tries, rng);
        let [near, far] = part.graph.halves(&side).map(|(graph, members)| Part {
            graph,
            tasks: members.iter().map(|&v| part.tasks[v as usize]).collect(),
            depth: part.depth + 1,
        });
        if part.graph.len() <= PARALLEL || part.depth >= PARALLEL_DEPTH {
            drop(part);
            self.children(left, near, rng, seated);
            self.children(right, far, rng, seated);
            return;
        }
        drop(part);
        let mut other = rng.fork();
        let of_far = std::thread::scope(|scope| {
            let running = scope.spawn(|| {
                let mut seated = Seated::new();
                self.children(right, far, &mut other, &mut seated);
                seated
            });
            self.children(left, near, rng, seated);
            running.join()
        });
        seated.extend(of_far.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    }
}
