//! `numaloc compare`: measures the gain of plans on this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use numaloc_launch::Stop;
use numaloc_perf::live::counting::Counters as MemoryCounters;
use numaloc_perf::uncore;
use numaloc_plan::Choice;
use numaloc_plan::registry::JOINT;
use numaloc_sys::balancing::Balancing;

use crate::error::CliError;
use crate::ui::{Ui, stderr};

pub(super) mod memory;
pub(super) mod meters;
mod planned;
mod shown;
pub(super) mod statistics;

use meters::{Counters, Energy, EnergyError};
use planned::Wanted;
use statistics::Sample;

/// Run a program under several plans and the system's defaults, interleaved at random, and compare
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc compare --threads eager-map,deloc --pages locality,mixed --runs 10 -- ./app --size 1000
  numaloc compare --profile app.numaloc --threads numaloc,joint -- ./app --size 1000
  numaloc compare --plan deloc.json --plan joint.json --runs 10 -- ./app --size 1000
  numaloc compare --plan plan.json --warm-up 1 --prepare 'sync' --md ./app --size 1000

With --threads or --pages, every combination of policies is planned from one profile: the one given, or one
that is recorded first. Each round runs every variant once, in an order drawn from the seed. Times are wall
times of the whole process; for plans they include `numaloc run`. AutoNUMA is a variant if the machine has
several nodes and the sysctl can be written; the old setting is always restored. Ctrl-C ends the running
program and shows the results of the complete rounds. `numaloc plan --help` lists all policies.")]
pub struct Args {
    /// Plan made by `numaloc plan`; repeat the option for several variants
    #[arg(long = "plan", value_name = "FILE")]
    plans: Vec<PathBuf>,
    /// Thread policies to plan with, `joint`, `shared-pages` or `os` (leaves threads to the operating
    /// system)
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
    threads: Vec<String>,
    /// Page policies to plan with
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
    pages: Vec<String>,
    /// Profile to plan from [default: record the program first]
    #[arg(long, value_name = "PROFILE")]
    profile: Option<PathBuf>,
    /// Number of runs of each variant
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..))]
    runs: u32,
    /// Number of rounds that are run first and not counted
    #[arg(long, value_name = "ROUNDS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..1000))]
    warm_up: u32,
    /// Shell command to run before each run; its time does not count
    #[arg(long, value_name = "COMMAND")]
    prepare: Option<OsString>,
    /// Print the comparison as a Markdown table
    #[arg(long, conflicts_with = "csv")]
    md: bool,
    /// Print the comparison as CSV, a line for each variant, times in seconds
    #[arg(long)]
    csv: bool,
    /// Seed of the order of runs and of random policies, which draw again in each round
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The program and its arguments; `--` in front is needed if one of them is also an option of numaloc
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Thread policy where only page policies are given.
const THREADS: &str = "numaloc";
/// Page policy where only thread policies are given.
const PAGES: &str = "locality";
/// Policy that draws a new mapping or placement in each round.
const RANDOM: &str = "random";

/// One way to run the program, and its measurements.
struct Variant {
    name: String,
    /// The plans of the rounds, used in turn; empty to run without a plan.
    plans: Vec<PathBuf>,
    /// Whether the kernel's NUMA balancing is on, if it can be changed.
    autonuma: bool,
    seconds: Sample,
    joules: Sample,
    counts: Vec<Sample>,
    /// Samples of each figure of the memory system.
    memory: Vec<Sample>,
}

/// Measurements of one run.
struct Run {
    seconds: f64,
    joules: Option<f64>,
    counts: Vec<Option<f64>>,
    memory: Vec<Option<f64>>,
}

/// Counters that are read before and after each run.
struct Meters {
    energy: Result<Energy, EnergyError>,
    counters: Counters,
    memory: MemoryCounters,
}

impl Args {
    /// Runs and compares.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        super::separated::check::<Self>(&self.command)?;
        let combinations = self.combinations()?;
        if self.plans.is_empty() && combinations.is_empty() {
            return Err(CliError::usage("there is nothing to compare")
                .expected("--plan FILE, or --threads and --pages with policies")
                .hint("numaloc compare --threads numaloc --pages locality,interleave -- ./app"));
        }
        for plan in &self.plans {
            numaloc_formats::plan::read(plan)?;
        }
        let stop = Stop::new().map_err(CliError::tool)?;
        let work = tempfile::tempdir().map_err(CliError::tool)?;
        let mut plans: Vec<(String, Vec<PathBuf>)> = self
            .plans
            .iter()
            .map(|plan| (plan.display().to_string(), vec![plan.clone()]))
            .collect();
        if !combinations.is_empty() {
            let profile = self.profile(ui, work.path(), &stop)?;
            plans.extend(planned::write(profile, combinations, work.path(), &stop)?);
        }
        let nodes = numaloc_topology::identity_of_this_machine()?.nodes;
        let (balancing, no_balancing) = match Balancing::take(nodes) {
            Ok(balancing) => (Some(balancing), None),
            Err(why) => (None, Some(why.to_string())),
        };
        let meters = Meters::of_this_machine();
        let mut variants = variants(plans, balancing.is_some(), &meters);
        let complete = self.rounds(ui, &mut variants, balancing.as_ref(), &meters, &stop)?;
        drop(balancing);
        let missing = shown::Missing {
            autonuma: no_balancing,
            energy: meters.energy.as_ref().err().map(ToString::to_string),
            counters: meters.counters.why_not(),
        };
        if complete < self.runs {
            ui.remark(format!(
                "interrupted: {complete} of {} rounds were complete",
                self.runs
            ));
        }
        if complete >= 2 {
            ui.result(
                || match (self.md, self.csv) {
                    (true, _) => shown::markdown(&variants),
                    (_, true) => shown::csv(&variants),
                    _ => shown::text(&variants, &meters, &missing),
                },
                || shown::json(&variants, &meters, &missing),
            );
        }
        Ok(stop.status().unwrap_or(0))
    }

    /// All requested combinations of thread and page policies.
    fn combinations(&self) -> Result<Vec<Wanted>, CliError> {
        let or = |given: &[String], default: &str| match given {
            [] => vec![default.to_owned()],
            given => given.to_vec(),
        };
        if self.threads.is_empty() && self.pages.is_empty() {
            return Ok(Vec::new());
        }
        let (all_threads, all_pages) = (or(&self.threads, THREADS), or(&self.pages, PAGES));
        let mut wanted: Vec<Wanted> = Vec::new();
        for threads in &all_threads {
            for pages in &all_pages {
                let choice = Choice::new(threads, pages)?;
                if !choice.is_one_plan() {
                    return Err(CliError::usage("cannot compare `all` policies")
                        .expected("the policies' names, separated by commas"));
                }
                // `joint` decides threads and pages, so it is combined with no other policy.
                let name = match choice {
                    Choice::Joint => JOINT.to_owned(),
                    Choice::Separate { .. } | Choice::Best(_) => format!("{threads}+{pages}"),
                };
                if name == JOINT && wanted.iter().any(|wanted| wanted.name == JOINT) {
                    continue;
                }
                let is_random = [threads, pages].iter().any(|policy| *policy == RANDOM);
                let rounds = if is_random { self.runs } else { 1 };
                let seeds = (0..u64::from(rounds)).map(|round| self.seed.wrapping_add(round));
                wanted.push(Wanted {
                    name,
                    choice,
                    seeds: seeds.collect(),
                });
            }
        }
        Ok(wanted)
    }

    /// The profile of `--profile`, or one recorded now.
    fn profile(&self, ui: &Ui, work: &Path, stop: &Stop) -> Result<PathBuf, CliError> {
        if let Some(profile) = &self.profile {
            return Ok(profile.clone());
        }
        ui.remark("recording the program once, to plan from");
        let profile = work.join("recorded.numaloc");
        let mut command = own()?;
        command.args(["--quiet", "record", "-o"]).arg(&profile);
        command.arg("--").args(&self.command);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let status = stop.run(&mut command).map_err(CliError::tool)?;
        let shown = self.command[0].display();
        succeeded(status, &format!("recording {shown}"), stop)?;
        Ok(profile)
    }

    /// Runs every variant once per round until all rounds are done or the user interrupts; returns the number of
    /// complete rounds.
    fn rounds(
        &self,
        ui: &Ui,
        variants: &mut [Variant],
        balancing: Option<&Balancing>,
        meters: &Meters,
        stop: &Stop,
    ) -> Result<u32, CliError> {
        let mut draw = self.seed;
        for number in 0..self.warm_up + self.runs {
            // Rounds that warm up run the plans of the first.
            let counted = number.checked_sub(self.warm_up);
            let round = counted.unwrap_or(0);
            let mut runs: Vec<Option<Run>> = variants.iter().map(|_| None).collect();
            for at in shuffled(variants.len(), &mut draw) {
                if ui.progress() {
                    let name = &variants[at].name;
                    let shown = match counted {
                        Some(round) => format!("round {} of {}", round + 1, self.runs),
                        None => "warm-up".to_owned(),
                    };
                    stderr(&format!("\r{shown}: {name:<40}"));
                }
                self.prepare(stop)?;
                match self.measure(&variants[at], round, balancing, meters, stop) {
                    Err(_) if stop.asked() => return Ok(round),
                    measured => runs[at] = Some(measured?),
                }
            }
            if counted.is_none() {
                continue;
            }
            for (variant, run) in variants.iter_mut().zip(runs.into_iter().flatten()) {
                variant.add(&run);
            }
        }
        if ui.progress() {
            stderr("\n");
        }
        Ok(self.runs)
    }

    /// Runs the command of `--prepare`.
    fn prepare(&self, stop: &Stop) -> Result<(), CliError> {
        let Some(script) = &self.prepare else {
            return Ok(());
        };
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(script);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        match stop.run(&mut command) {
            _ if stop.asked() => Ok(()),
            Ok(status) => succeeded(status, &format!("--prepare {}", script.display()), stop),
            Err(error) => Err(CliError::tool(format!("cannot run /bin/sh: {error}"))),
        }
    }

    fn measure(
        &self,
        variant: &Variant,
        round: u32,
        balancing: Option<&Balancing>,
        meters: &Meters,
        stop: &Stop,
    ) -> Result<Run, CliError> {
        if let Some(balancing) = balancing {
            let set = balancing.set(variant.autonuma);
            set.map_err(CliError::tool)?;
        }
        let mut words: Vec<OsString> = Vec::new();
        if let Some(plan) = variant.plan(round) {
            words.push(std::env::current_exe().map_err(CliError::tool)?.into());
            words.extend(["--quiet", "run", "--plan"].map(OsString::from));
            words.push(plan.into());
            words.push("--".into());
        }
        words.extend(self.command.iter().cloned());
        let mut counted = meters.counters.around(words).map_err(CliError::tool)?;
        let command = &mut counted.command;
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let energy = meters.energy.as_ref().ok();
        let before = energy.map(Energy::read);
        let memory = meters.memory.read();
        let start = Instant::now();
        let shown = self.command[0].display();
        let status = stop
            .run(command)
            .map_err(|error| CliError::tool(format!("cannot run {shown}: {error}")))?;
        let seconds = start.elapsed().as_secs_f64();
        let memory = meters.memory.since(&memory, seconds);
        succeeded(status, &format!("{shown} under {}", variant.name), stop)?;
        Ok(Run {
            seconds,
            joules: energy
                .zip(before)
                .and_then(|(energy, before)| energy.joules_since(&before)),
            counts: counted.read(),
            memory,
        })
    }
}

impl Variant {
    fn plan(&self, round: u32) -> Option<&PathBuf> {
        let at = (round as usize).checked_rem(self.plans.len())?;
        self.plans.get(at)
    }

    fn add(&mut self, run: &Run) {
        self.seconds.push(run.seconds);
        if let Some(joules) = run.joules {
            self.joules.push(joules);
        }
        let samples = self.counts.iter_mut().chain(&mut self.memory);
        for (sample, count) in samples.zip(run.counts.iter().chain(&run.memory)) {
            if let Some(count) = count {
                sample.push(*count);
            }
        }
    }
}

impl Meters {
    fn of_this_machine() -> Self {
        Self {
            energy: Energy::of_this_machine(),
            counters: Counters::of_this_machine(),
            memory: MemoryCounters::open(uncore::discover(Path::new(uncore::SYSFS))),
        }
    }
}

fn variants(plans: Vec<(String, Vec<PathBuf>)>, balancing: bool, meters: &Meters) -> Vec<Variant> {
    let variant = |name: String, plans: Vec<PathBuf>, autonuma: bool| Variant {
        name,
        plans,
        autonuma,
        seconds: Sample::default(),
        joules: Sample::default(),
        counts: vec![Sample::default(); meters.counters.names().len()],
        memory: vec![Sample::default(); meters.memory.figures().len()],
    };
    let mut variants = vec![variant("os-default".to_owned(), Vec::new(), false)];
    if balancing {
        variants.push(variant("autonuma".to_owned(), Vec::new(), true));
    }
    for (name, plans) in plans {
        variants.push(variant(name, plans, false));
    }
    variants
}

/// `0..count` in an order drawn from `draw` (Fisher and Yates).
pub(super) fn shuffled(count: usize, draw: &mut u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        // A linear congruential step (Knuth's MMIX constants), upper bits used.
        *draw = draw
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (*draw >> 33) as usize % (last + 1));
    }
    order
}

pub(super) fn own() -> Result<Command, CliError> {
    Ok(Command::new(
        std::env::current_exe().map_err(CliError::tool)?,
    ))
}

/// An error if a signal has come while `what` was done.
fn not_stopped(what: &str, stop: &Stop) -> Result<(), CliError> {
    match stop.status() {
        None => Ok(()),
        Some(status) => Err(CliError::tool(format!("{what} was interrupted")).status(status)),
    }
}

fn succeeded(status: ExitStatus, what: &str, stop: &Stop) -> Result<(), CliError> {
    not_stopped(what, stop)?;
    if status.success() {
        return Ok(());
    }
    Err(CliError::tool(format!("{what} ended with {status}"))
        .expected("a program that succeeds, so that times can be compared"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_is_a_permutation_and_all_occur() {
        let mut draw = 1;
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let order = shuffled(3, &mut draw);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2]);
            seen.insert(order);
        }
        assert_eq!(seen.len(), 6);
        let (mut a, mut b) = (7, 7);
        assert_eq!(shuffled(5, &mut a), shuffled(5, &mut b));
    }
}
