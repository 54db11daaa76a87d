//! How long threads wait for lines if controllers and links have a given load.
//!
//! A controller or link that is busy for a share `u` of the run delays a line by `u / (2 (1 - u))` of its service time
//! (a queue with random arrivals and one service time). The run takes the shortest time in which the threads receive
//! all lines at the latencies of that load.

use numaloc_topology::{Hardware, Topology};

use super::demand::{Demand, Item};
use super::{CYCLES_PER_ACCESS, MESSAGE_BYTES, OUTSTANDING, PREFETCHED, WINDOW_ACCESSES};
use crate::links::{BYTES_PER_S, Links};

/// From this share on the delay grows with the slope that it has there.
const MOST: f64 = 0.99;
/// Steps of the search for the time of a run.
const STEPS: usize = 48;

/// What a line occupies on its way.
#[derive(Clone, Copy, Debug)]
struct Pass {
    /// Controller of a node, or, above these, a link.
    part: usize,
    /// Seconds for a line that is fetched, and for one that is written back.
    fetch_s: f64,
    back_s: f64,
}

/// Ways from memory to threads.
pub(crate) struct Machine {
    nodes: usize,
    parts: usize,
    /// Threads' node x memory's node: seconds for a line without queues; infinite if there is no way.
    memory_s: Vec<f64>,
    passes: Vec<Vec<Pass>>,
    access_s: f64,
}

impl Machine {
    pub fn of(topology: &Topology, hardware: &Hardware) -> Self {
        let nodes = topology.nodes().len();
        let links = Links::of(topology, BYTES_PER_S, hardware.memory_latency_ns * 1e-9);
        let line = hardware.line_bytes as f64;
        let mut memory_s = Vec::with_capacity(nodes * nodes);
        let mut passes = Vec::with_capacity(nodes * nodes);
        for (reader, memory) in (0..nodes * nodes).map(|at| (at / nodes, at % nodes)) {
            let (latency_ns, bytes_per_s) = hardware.memory_of(memory);
            let (there, back) = (links.route(reader, memory), links.route(memory, reader));
            let mut seconds = latency_ns * 1e-9;
            let mut pass = vec![Pass {
                part: memory,
                fetch_s: line / bytes_per_s,
                back_s: line / hardware.write_bytes_per_s(memory),
            }];
            for (route, fetched, written) in [
                (there, MESSAGE_BYTES, line + MESSAGE_BYTES),
                (back, line + MESSAGE_BYTES, 0.0),
            ] {
                for &link in route {
                    let speed = links.bytes_per_s()[link];
                    seconds += links.latency_s()[link] + fetched / speed;
                    pass.push(Pass {
                        part: nodes + link,
                        fetch_s: fetched / speed,
                        back_s: written / speed,
                    });
                }
            }
            let is_joined = reader == memory || !there.is_empty() && !back.is_empty();
            memory_s.push(if is_joined { seconds } else { f64::INFINITY });
            passes.push(pass);
        }
        Self {
            nodes,
            parts: nodes + links.bytes_per_s().len(),
            memory_s,
            passes,
            access_s: CYCLES_PER_ACCESS / hardware.clock_hz,
        }
    }

    /// Seconds for a line from memory of a node to a core of another, without queues.
    pub fn memory_s(&self, reader: usize, memory: usize) -> f64 {
        self.memory_s[reader * self.nodes + memory]
    }
}

/// Lines on their ways, and how busy they keep controllers and links.
#[derive(Clone)]
pub(crate) struct Loads<'a> {
    machine: &'a Machine,
    /// Seconds by part.
    busy_s: Vec<f64>,
    /// Threads' node x memory's node: lines of sweeps, and others.
    swept: Vec<f64>,
    random: Vec<f64>,
}

impl<'a> Loads<'a> {
    pub fn none(machine: &'a Machine) -> Self {
        let pairs = vec![0.0; machine.nodes * machine.nodes];
        Self {
            machine,
            busy_s: vec![0.0; machine.parts],
            swept: pairs.clone(),
            random: pairs,
        }
    }

    /// Adds a part (0..=1) of an item in memory of a node.
    pub fn add(&mut self, item: &Item, memory: usize, part: f64) {
        for (reader, lines) in item.lines.iter().enumerate().filter(|(_, n)| **n > 0.0) {
            let (pair, lines) = (reader * self.machine.nodes + memory, lines * part);
            for pass in &self.machine.passes[pair] {
                self.busy_s[pass.part] += lines * (pass.fetch_s + item.back * pass.back_s);
            }
            match item.swept {
                true => self.swept[pair] += lines,
                false => self.random[pair] += lines,
            }
        }
    }

    /// Seconds for a line from memory of a node to a core of another in a run of `run_s`.
    pub fn latency_s(&self, reader: usize, memory: usize, run_s: f64) -> f64 {
        let pair = reader * self.machine.nodes + memory;
        let passes = self.machine.passes[pair].iter();
        let waits = passes.map(|pass| pass.fetch_s * delay(self.busy_s[pass.part] / run_s));
        self.machine.memory_s[pair] + waits.sum::<f64>()
    }

    /// Seconds that all lines of an item take in memory of a node, one after the other.
    pub fn cost_s(&self, item: &Item, memory: usize, run_s: f64) -> f64 {
        let lines = item.lines.iter().enumerate();
        lines
            .filter(|(_, lines)| **lines > 0.0)
            .map(|(reader, lines)| lines * self.latency_s(reader, memory, run_s))
            .sum()
    }

    /// Seconds of the run.
    pub fn run_s(&self, demand: &Demand) -> f64 {
        let busiest_s = self.busy_s.iter().copied().fold(0.0, f64::max);
        let idle_s = self.threads_s(demand, f64::INFINITY);
        if idle_s + busiest_s <= 0.0 || idle_s.is_infinite() {
            return idle_s;
        }
        let (mut low, mut high) = (busiest_s.max(idle_s), busiest_s + idle_s);
        while self.threads_s(demand, high) > high {
            high *= 2.0;
        }
        for _ in 0..STEPS {
            let middle = f64::midpoint(low, high);
            match self.threads_s(demand, middle) > middle {
                true => low = middle,
                false => high = middle,
            }
        }
        high
    }

    /// Seconds of the slowest threads at the latencies of a run of `run_s`.
    fn threads_s(&self, demand: &Demand, run_s: f64) -> f64 {
        let nodes = self.machine.nodes;
        let readers = demand.readers.iter().enumerate();
        readers
            .filter(|(_, of)| of.accesses > 0.0)
            .map(|(reader, of)| {
                let wait = |lines: &[f64]| -> f64 {
                    let lines = lines[reader * nodes..][..nodes].iter().enumerate();
                    lines
                        .filter(|(_, lines)| **lines > 0.0)
                        .map(|(memory, lines)| lines * self.latency_s(reader, memory, run_s))
                        .sum()
                };
                let swept_s = wait(&self.swept) / PREFETCHED;
                let random_s = wait(&self.random);
                let work_s = of.accesses * self.machine.access_s;
                let lines = demand.random(reader);
                // While a line is outstanding, the core continues with the accesses of its window.
                let others = WINDOW_ACCESSES * lines / of.accesses;
                let hidden_s = WINDOW_ACCESSES * lines * self.machine.access_s;
                let seconds = match others > 1.0 {
                    true => {
                        let overlapped_s = random_s / (1.0 + others).min(OUTSTANDING);
                        work_s.max(swept_s).max(overlapped_s)
                    }
                    false => (work_s + (random_s - hidden_s).max(0.0)).max(swept_s),
                };
                seconds / of.at_once
            })
            .fold(0.0, f64::max)
    }
}

/// Delay at a part that is busy for a share of the run, in service times.
fn delay(share: f64) -> f64 {
    let below = share.min(MOST);
    let slope = 0.5 / ((1.0 - MOST) * (1.0 - MOST));
    below / (2.0 * (1.0 - below)) + (share - MOST).max(0.0) * slope
}
