//! Rates sets of changes: the simulated time of the run with them, and what threads would wait for contended lines.

use std::collections::BTreeMap;

use numaloc_analysis::contended::ContendedMemory;
use numaloc_formats::access_trace::AccessTrace;
use numaloc_model::{LogicalNode, LogicalPu, Mapping, Profile};
use numaloc_plan::Options;
use numaloc_plan::pages::by_speed;
use numaloc_sim::{Machine, Outcome, Pages, Trace};
use numaloc_whatif::change::{BATCH, Change, Speeds};
use numaloc_whatif::facts::Facts;
use numaloc_whatif::lines::waiting_s;
use numaloc_whatif::parts::Part;
use numaloc_whatif::rewrite::{Rewriter, placed_by};

use crate::error::CliError;
use crate::simulation::loading::Traces;
use crate::simulation::running::{Job, Runner};
use crate::simulation::sensitivity::variants;
use crate::simulation::{Case, Mapped, Target, pages};

/// Simulations of a run whose threads the operating system places, each with its own random choices; the median counts.
const DRAWS: u64 = 3;
/// Largest value that a loop keeps in a register.
const MOST_REGISTER_BYTES: u64 = 16;
/// Page policy of [`Change::PlacePages`].
const PLACES: &str = "locality";

/// A mapping and its thread policy.
pub(super) type Named = (&'static str, Mapping);

/// Picoseconds of a simulated run, and its requests for pages of other nodes in percent.
type Draw = (u64, Option<f64>);

/// A run and what is known of it.
pub(super) struct Run<'a> {
    pub profile: &'a Profile,
    pub traces: &'a [AccessTrace],
    pub target: &'a Target,
    pub facts: &'a Facts,
    pub parts: &'a [Part],
    /// Contended memory of the profile.
    pub memory: &'a [ContendedMemory],
    /// How threads can be bound.
    pub mappings: &'a [Named],
    /// Where the operating system is assumed to put threads.
    pub unbound: &'a Mapping,
    /// Seconds of a transfer of a line between two cores: least, usual, most.
    pub transfer_s: [f64; 3],
    /// The same between threads that are bound, for each way.
    pub bound_transfer_s: &'a [[f64; 3]],
}

/// Rates sets of changes of one run on one machine.
pub(super) struct Ratings<'a> {
    pub of: Run<'a>,
    /// Memory for which threads would wait long enough: the trace has no events of its lines.
    pub contended: Vec<&'a ContendedMemory>,
    /// The trace without changes.
    pub recorded: Traces,
    pub filter_bytes: u64,
    pub runner: Runner<'a>,
}

/// The time of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    /// Simulated, and the fastest and slowest draw.
    pub simulated: [f64; 3],
    /// Waiting for contended lines: with transfers that take least, as usual, most.
    pub waiting: [f64; 3],
    /// Requests below private caches for pages of other nodes in percent, of the median draw; `None` if unknown.
    pub remote: Option<f64>,
}

impl Time {
    pub fn seconds(&self) -> f64 {
        self.simulated[0] + self.waiting[1]
    }
}

impl<'a> Ratings<'a> {
    /// From now on, events of these contended lines are left out of the trace: what threads wait for them is estimated.
    pub fn leave_out(&mut self, contended: Vec<&'a ContendedMemory>) -> Result<(), CliError> {
        if !contended.is_empty() {
            self.contended = contended;
            self.recorded = self.changed(&[], &[])?;
        }
        Ok(())
    }

    /// The times of the run under each set of changes.
    pub fn times(&self, sets: &[Vec<Change>]) -> Result<Vec<Time>, CliError> {
        self.drawn(sets, DRAWS)
    }

    /// The seconds of the run under each set of changes, for choosing among them: one draw, the same for all.
    pub fn seconds(&self, sets: &[Vec<Change>]) -> Result<Vec<f64>, CliError> {
        let times = self.drawn(sets, 1)?;
        Ok(times.iter().map(Time::seconds).collect())
    }

    fn drawn(&self, sets: &[Vec<Change>], draws: u64) -> Result<Vec<Time>, CliError> {
        self.on(&[&self.of.target.machine], sets, draws)
            .map(|mut times| times.remove(0))
    }

    /// The times on each of several variants of the machine.
    fn on(
        &self,
        machines: &[&Machine],
        sets: &[Vec<Change>],
        draws: u64,
    ) -> Result<Vec<Vec<Time>>, CliError> {
        let mut times: Vec<Vec<Option<Time>>> = vec![vec![None; sets.len()]; machines.len()];
        // Sets with the same events share a trace, and only one is in memory at a time.
        let mut by_events: BTreeMap<(Vec<Change>, Option<usize>), Vec<usize>> = BTreeMap::new();
        for (at, set) in sets.iter().enumerate() {
            by_events.entry(events_of(set)).or_default().push(at);
        }
        for ((changes, _), of_trace) in by_events {
            let made;
            let traces = match changes.is_empty() {
                true => &self.recorded,
                false => {
                    made = self.changed(&changes, &sets[of_trace[0]])?;
                    &made
                }
            };
            let trace = traces.of(self.of.target);
            let cases = of_trace
                .iter()
                .map(|&at| self.cases(&sets[at], trace, draws));
            let cases: Vec<Vec<Case>> = cases.collect::<Result<_, _>>()?;
            let job = |machine, case| Job {
                machine,
                trace,
                fingerprint: 0,
                case,
                filter_bytes: self.filter_bytes,
                sample: None,
            };
            let each = || cases.iter().flatten();
            let jobs: Vec<Job<'_>> = machines
                .iter()
                .flat_map(|machine| each().map(move |case| job(machine, case)))
                .collect();
            let found = self
                .runner
                .run(&jobs, "time and remote share", |outcome: Outcome| {
                    (outcome.time, outcome.remote_requests_percent())
                })?;
            let mut found = found.into_iter();
            for of_machine in &mut times {
                for (&at, cases) in of_trace.iter().zip(&cases) {
                    let draws: Vec<Draw> = found.by_ref().take(cases.len()).collect();
                    of_machine[at] = Some(self.time(&sets[at], draws));
                }
            }
        }
        let complete = |times: Vec<Option<Time>>| times.into_iter().flatten().collect();
        Ok(times.into_iter().map(complete).collect())
    }

    fn time(&self, set: &[Change], mut draws: Vec<Draw>) -> Time {
        draws.sort_by_key(|(time, _)| *time);
        let seconds = |(picoseconds, _): Draw| picoseconds as f64 * 1e-12;
        let typical = draws[(draws.len() - 1) / 2];
        let median = seconds(typical);
        let waiting = |transfer_s| waiting_s(self.of.memory, set, transfer_s, median);
        let bound = set.iter().find_map(|change| match *change {
            Change::Bind(at) => self.of.bound_transfer_s.get(at),
            _ => None,
        });
        let transfer_s = bound.unwrap_or(&self.of.transfer_s);
        Time {
            simulated: [median, seconds(draws[0]), seconds(draws[draws.len() - 1])],
            waiting: transfer_s.map(waiting),
            // Without the events of contended lines, requests are not complete.
            remote: typical.1.filter(|_| self.contended.is_empty()),
        }
    }

    /// Largest change of the ratio of two sets' times when a preset of the model is at an end of its range, as a share.
    pub fn uncertainty(&self, slow: &[Change], fast: &[Change]) -> Result<f64, CliError> {
        let variants = variants(&self.of.target.machine);
        let mut machines: Vec<&Machine> = variants.iter().map(|variant| &variant.machine).collect();
        machines.push(&self.of.target.machine);
        let times = self.on(&machines, &[slow.to_vec(), fast.to_vec()], 1)?;
        let ratio = |times: &Vec<Time>| times[1].simulated[0] / times[0].simulated[0].max(1e-12);
        let base = times.last().map_or(1.0, ratio);
        let change = |times: &Vec<Time>| (ratio(times) - base).abs();
        Ok(times.iter().map(change).fold(0.0, f64::max))
    }

    /// Seconds of the run if nothing waited for another node, a queue or a line of another thread: the fastest of the
    /// run with bound threads and the run under `best`.
    pub fn bound(&self, best: &[Change]) -> Result<f64, CliError> {
        let mut machine = self.of.target.machine.clone();
        machine.service.fill(0);
        for link in &mut machine.links {
            (link.hop, link.ps_per_byte) = (0, 0.0);
        }
        let mut sets = vec![best.to_vec()];
        sets.extend((0..self.of.mappings.len()).map(|at| vec![Change::Bind(at)]));
        let times = self.on(&[&machine], &sets, 1)?;
        let least = times[0].iter().map(|time| time.simulated[0]);
        Ok(least.fold(f64::INFINITY, f64::min))
    }

    /// The mapping of threads under a set; that of the operating system if it binds none.
    fn mapping(&self, set: &[Change]) -> &Mapping {
        let bound = set.iter().find_map(|change| match *change {
            Change::Bind(at) => Some(&self.of.mappings[at].1),
            _ => None,
        });
        bound.unwrap_or(self.of.unbound)
    }

    /// The trace under changes; `set` has the mapping of its threads.
    fn changed(&self, changes: &[Change], set: &[Change]) -> Result<Traces, CliError> {
        let of = &self.of;
        let node = |pu: &LogicalPu| of.target.machine.place(*pu).node as usize;
        let node_of: Vec<usize> = self.mapping(set).pu.iter().map(node).collect();
        let line_bytes = 1 << of.traces[0].head.line_shift;
        let known = (of.facts, of.parts);
        let mut rewriter = Rewriter::new(changes, known, &self.contended, line_bytes, &node_of);
        for counter in self.contended.iter().filter(|one| one.is_counter()) {
            rewriter = rewriter.without_order(counter);
        }
        for change in changes {
            let (at, left) = match *change {
                Change::PerThread(at) if !fits_register(of.profile, &of.memory[at]) => (at, 1.0),
                Change::PerThread(at) => (at, 0.0),
                Change::Batch(at) | Change::Chunk(at) => (at, 1.0 / BATCH as f64),
                _ => continue,
            };
            let memory = &of.memory[at];
            rewriter = rewriter
                .without_order(memory)
                .with_registers(at, memory, left);
        }
        let placed = placed_by(of.profile.pages(), changes, of.parts);
        Traces::changed(of.traces, of.profile, of.target, rewriter, &placed)
    }

    /// The simulations of a set.
    fn cases(&self, set: &[Change], trace: &Trace, draws: u64) -> Result<Vec<Case>, CliError> {
        let homes = self.homes(set, trace)?;
        // A copy is that of the node a thread is assumed to run on.
        let stays = |change: &Change| matches!(change, Change::Bind(_) | Change::Replicate(_));
        let mapped = match set.iter().any(stays) {
            true => vec![Mapped::Pinned(self.mapping(set).pu.clone())],
            false => (1..=draws).map(|seed| Mapped::Os { seed }).collect(),
        };
        let case = |mapped| Case {
            target: 0,
            threads: String::new(),
            pages: String::new(),
            mapped,
            homes: homes.clone(),
            moves: Vec::new(),
        };
        Ok(mapped.into_iter().map(case).collect())
    }

    /// Pages of parts that are dealt over memory of different speed, and their nodes.
    fn dealt_by_speed(&self, set: &[Change]) -> Vec<(u64, LogicalNode)> {
        let of = &self.of;
        let parts = set.iter().filter_map(|change| match *change {
            Change::Deal(part, speeds) => Some((&of.parts[part].pages, speeds)),
            _ => None,
        });
        let parts: Vec<(&Vec<u64>, Speeds)> = parts.collect();
        if parts.is_empty() {
            return Vec::new();
        }
        let by_speed = by_speed(of.profile, self.mapping(set), &of.target.topology);
        let mut homes = Vec::new();
        for (pages, speeds) in parts {
            let placement = by_speed.iter().find(|known| known.0 == speeds);
            let usage = of.profile.pages().pages().iter();
            let nodes = placement.map_or(&[][..], |(_, placement)| &placement.node);
            let placed = usage.zip(nodes).filter_map(|(page, node)| {
                let is_of_part = pages.binary_search(&page.number.0).is_ok();
                (*node)
                    .filter(|_| is_of_part)
                    .map(|node| (page.number.0, node))
            });
            homes.extend(placed);
        }
        homes
    }

    fn homes(&self, set: &[Change], trace: &Trace) -> Result<Pages, CliError> {
        let of = &self.of;
        if set.contains(&Change::InterleaveAll) {
            return Ok(Pages::Interleave);
        }
        if set.contains(&Change::PlacePages) {
            let policies =
                numaloc_plan::registry::pages(PLACES, numaloc_plan::registry::Place::Simulation)?;
            let (mapping, machine) = (self.mapping(set), &of.target.topology);
            let placed = numaloc_plan::pages::place(
                policies[0],
                of.profile,
                mapping,
                machine,
                &Options::default(),
            );
            let nodes = placed.map_err(CliError::usage)?.placement.node;
            return Ok(Pages::Placed(pages::on_trace(&nodes, trace, of.profile)));
        }
        let dealt = set.iter().filter_map(|change| match *change {
            Change::Interleave(part) => Some(&of.parts[part].pages),
            _ => None,
        });
        let factor = (trace.page_bytes() / of.profile.pages().page_size()).max(1);
        let nodes = of.target.machine.nodes as u64;
        let home = |page: u64| LogicalNode((page / factor % nodes) as u32);
        let mut homes: BTreeMap<u64, LogicalNode> =
            dealt.flatten().map(|&page| (page, home(page))).collect();
        homes.extend(self.dealt_by_speed(set));
        if homes.is_empty() {
            return Ok(Pages::FirstTouch);
        }
        let usage = of.profile.pages().pages().iter();
        let nodes: Vec<_> = usage
            .map(|page| homes.get(&page.number.0).copied())
            .collect();
        Ok(Pages::Placed(pages::on_trace(&nodes, trace, of.profile)))
    }
}

/// Whether the memory is one value, as far as known: threads of an array use different bytes at times.
fn fits_register(profile: &Profile, memory: &ContendedMemory) -> bool {
    let object = memory.memory.object.map(|at| profile.object(at));
    let size = |at: &usize| object.and_then(|object| Some(object.variables.get(*at)?.size));
    let is_value = |at: &usize| size(at).is_some_and(|bytes| bytes <= MOST_REGISTER_BYTES);
    memory.memory.lines == 1
        && memory.memory.false_share() < 0.1
        && memory.memory.variables.iter().all(is_value)
}

/// What decides the events of a trace: changes of parts, and for copies per node the mapping.
fn events_of(set: &[Change]) -> (Vec<Change>, Option<usize>) {
    let rewrites = |change: &Change| match change {
        Change::TouchByUsers(_)
        | Change::Replicate(_)
        | Change::PerThread(_)
        | Change::Batch(_)
        | Change::Chunk(_) => true,
        Change::Bind(_)
        | Change::PlacePages
        | Change::InterleaveAll
        | Change::Interleave(_)
        | Change::Deal(..)
        | Change::Separate(_) => false,
    };
    let mut changes: Vec<Change> = set.iter().copied().filter(rewrites).collect();
    changes.sort_unstable();
    let copies = changes
        .iter()
        .any(|change| matches!(change, Change::Replicate(_)));
    let bound = set.iter().find_map(|change| match *change {
        Change::Bind(at) if copies => Some(at),
        _ => None,
    });
    (changes, bound)
}
