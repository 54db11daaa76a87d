//! `numaloc simulate`: run times of a recorded program on other machines and under other placements.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use numaloc_analysis::assignment::page_affinity;
use numaloc_analysis::characterise::default_layer;
use numaloc_analysis::load::load_to_level;
use numaloc_analysis::{LoadVector, concurrency_groups};
use numaloc_formats::access_trace::{AccessTrace, CacheSize, Order};
use numaloc_formats::profile::{Parts, read_parts};
use numaloc_mapping::{Direction, MapInput};
use numaloc_model::plan::Plan;
use numaloc_model::profile::Amount;
use numaloc_model::{LogicalPu, Mapping, Profile, ThreadIdx};
use numaloc_placement::PlaceInput;
use numaloc_sim::machine::PageCosts;
use numaloc_sim::{Machine, Outcome, Pages, Parameters, Setup, Threads, Trace, TraceBuilder};
use numaloc_topology::{Topology, resolve};

use crate::access_trace::{incomplete, open};
use crate::commands::policies::{self, ThreadPolicy};
use crate::error::CliError;
use crate::ui::{Ui, stderr};

mod planned;
mod shown;

/// Simulate a recorded program on other machines, with threads and pages placed in several ways
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc record --trace --trace-l2 256K/8 -o app.numaloc -- ./app
  numaloc simulate app.numaloc --machine purple
  numaloc simulate app.numaloc --machine purple,skylake-4s --threads scatter,deloc --pages first-touch,locality
  numaloc simulate app.numaloc --machine purple --threads os,deloc --pages first-touch,autonuma
  numaloc simulate app.numaloc --machine epyc-7501 --plan plan.json

The profile needs an access trace. Every machine is combined with every thread policy, page policy and
plan. The machine must have hardware figures (see `numaloc machines`). Many of these and the constants of the
model are presets: compare rows of one machine with each other, not with measured times.

Thread policy os: a scheduler like the operating system's places and moves threads without knowledge of
communication. Page policies first-touch, interleave, next-touch and autonuma act while the program runs, as
in a kernel; the others place pages before it starts.")]
pub struct Args {
    /// Profile folder written by `numaloc record --trace`
    #[arg(value_name = "PROFILE")]
    profile: PathBuf,
    /// Described machines or .toml machine files with hardware figures
    #[arg(
        long,
        value_name = "MACHINE,...",
        required = true,
        value_delimiter = ','
    )]
    machine: Vec<String>,
    /// Thread policies
    #[arg(
        long,
        value_name = "POLICY,...",
        value_delimiter = ',',
        default_value = "scatter,numaloc"
    )]
    threads: Vec<String>,
    /// Page policies
    #[arg(
        long,
        value_name = "POLICY,...",
        value_delimiter = ',',
        default_value = "first-touch,interleave,locality"
    )]
    pages: Vec<String>,
    /// Plan made for the machine by `numaloc plan`; may be given several times
    #[arg(long = "plan", value_name = "FILE")]
    plans: Vec<PathBuf>,
    /// Maximum number of outstanding misses per core
    #[arg(long, value_name = "LINES", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=64))]
    outstanding: u16,
    /// Core cycles per access that a private cache answers, including the instructions around it
    #[arg(long, value_name = "CYCLES", default_value_t = 1.5, value_parser = cycles)]
    cycles_per_access: f64,
    /// Number of simulations that run in parallel [default: one for each PU of this machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Seed of random policies
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of simulations for thread policy `os`, each with its own random choices; the median is
    /// shown
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=99))]
    draws: u8,
    /// Milliseconds between two scans of page policy `autonuma`
    #[arg(long, value_name = "MS", default_value_t = 1000.0, value_parser = scan_period)]
    scan_period: f64,
}

fn scan_period(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(ms) if (0.001..=1e6).contains(&ms) => Ok(ms),
        _ => Err("expected milliseconds from 0.001 to 1000000".to_owned()),
    }
}

/// Page policy of the kernel's NUMA balancing, which exists only in simulations.
const AUTONUMA: &str = "autonuma";

fn cycles(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(cycles) if (0.01..=1000.0).contains(&cycles) => Ok(cycles),
        _ => Err("expected a number from 0.01 to 1000".to_owned()),
    }
}

/// A machine to simulate, with the name that was given.
struct Target {
    topology: Topology,
    machine: Machine,
}

/// One simulation.
struct Case {
    /// Index of the machine.
    target: usize,
    threads: String,
    pages: String,
    mapped: Mapped,
    homes: Pages,
}

/// How threads are mapped.
#[derive(Clone)]
enum Mapped {
    Pinned(Vec<LogicalPu>),
    /// By the operating system, with random choices from a seed.
    Os {
        seed: u64,
    },
}

impl Mapped {
    fn threads(&self) -> Threads<'_> {
        match self {
            Self::Pinned(pus) => Threads::Pinned(pus),
            Self::Os { seed } => Threads::Os { seed: *seed },
        }
    }
}

/// All results, for display.
struct Answer {
    targets: Vec<Target>,
    trace: Trace,
    filter: CacheSize,
    /// The simulated cases and their outcomes.
    rows: Vec<(Case, Outcome)>,
    seconds: f64,
}

impl Args {
    /// Loads the trace once, simulates every combination, and compares.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let targets = self.targets()?;
        let profile = read_parts(&self.profile, Parts { page_slices: false })?;
        let traces = open(&self.profile)?;
        if profile.threads.iter().any(|thread| thread.rank.is_some()) {
            return Err(CliError::tool(format!(
                "cannot simulate {}: messages between ranks are not in the access trace, so it is unknown which rank waits for which",
                self.profile.display()
            )));
        }
        traces
            .iter()
            .filter_map(incomplete)
            .for_each(|line| ui.remark(line));
        let filter = traces[0].head.l2;
        self.say_what_is_hidden(filter, &targets, ui);
        // Policies and plans are checked before the trace, which takes longer, is loaded.
        let cases = self.cases(&targets, &profile)?;
        let trace = load(&traces, &profile, ui)?;
        let cases: Vec<Case> = cases
            .into_iter()
            .map(|case| case.on_pages_of(&trace, &profile))
            .collect::<Result<_, CliError>>()?;
        let start = Instant::now();
        let outcomes = self.simulate(&targets, &trace, &cases, filter.bytes, ui)?;
        let answer = Answer {
            targets,
            trace,
            filter,
            rows: cases.into_iter().zip(outcomes).collect(),
            seconds: start.elapsed().as_secs_f64(),
        };
        ui.result(|| shown::text(&answer), || shown::json(&answer));
        Ok(0)
    }

    fn targets(&self) -> Result<Vec<Target>, CliError> {
        let standard = Parameters::default();
        let parameters = Parameters {
            outstanding: self.outstanding.into(),
            cycles_per_access: self.cycles_per_access,
            page_costs: PageCosts {
                scan_period_ms: self.scan_period,
                ..standard.page_costs
            },
            ..standard
        };
        self.machine
            .iter()
            .map(|name| {
                let topology = resolve(name)?;
                let machine = Machine::new(&topology, parameters.clone()).map_err(|error| {
                    CliError::usage(format!("cannot simulate on {name}: {error}"))
                })?;
                Ok(Target { topology, machine })
            })
            .collect()
    }

    /// Rejects machines with smaller private caches than the recorder's: accesses that hit the recorder's caches are
    /// not in the trace.
    fn say_what_is_hidden(&self, filter: CacheSize, targets: &[Target], ui: &Ui) {
        for target in targets {
            let (ours, ways) = (target.machine.private_bytes, target.machine.private.ways);
            if filter.bytes > ours {
                ui.remark(format!(
                    "{} has private caches of {} KiB, the trace was recorded with {filter}: misses between the two are not in it; record with --trace-l2 {}K/{ways}",
                    target.machine.name,
                    ours >> 10,
                    ours >> 10,
                ));
            }
        }
    }

    fn cases(&self, targets: &[Target], profile: &Profile) -> Result<Vec<planned::Case>, CliError> {
        let mut cases = Vec::new();
        for (target, found) in targets.iter().enumerate() {
            for name in &self.threads {
                for policy in policies::threads_of_profile(name)? {
                    let mapping = self.map(policy, profile, &found.topology)?;
                    let runs = match policy {
                        ThreadPolicy::Os => (0..u64::from(self.draws))
                            .map(|draw| Mapped::Os {
                                seed: self.seed.wrapping_add(draw),
                            })
                            .collect(),
                        _ => vec![Mapped::Pinned(mapping.pu.clone())],
                    };
                    for (pages, homes) in self.homes(profile, &mapping, &found.topology)? {
                        cases.extend(runs.iter().map(|mapped| planned::Case {
                            target,
                            threads: policy.name().to_owned(),
                            pages: pages.to_owned(),
                            mapped: mapped.clone(),
                            homes: homes.clone(),
                        }));
                    }
                }
            }
            for path in &self.plans {
                let plan = numaloc_formats::plan::read(path)?;
                cases.push(planned::of_plan(
                    &plan,
                    path,
                    target,
                    profile,
                    &found.topology,
                )?);
            }
        }
        Ok(cases)
    }

    /// PUs of the threads; for `os`, the PUs that page placement assumes.
    fn map(
        &self,
        policy: ThreadPolicy,
        profile: &Profile,
        machine: &Topology,
    ) -> Result<Mapping, CliError> {
        let layer = default_layer(profile);
        let matrix = profile
            .matrix(layer, Amount::of_layer(layer))
            .map_err(|error| {
                CliError::tool(format!("cannot use {}: {error}", self.profile.display()))
            })?;
        let direction = match layer.is_directed() {
            true => Direction::Directed,
            false => Direction::Undirected,
        };
        let load = LoadVector::of(profile);
        let groups = concurrency_groups(profile, layer).groups;
        let input = MapInput::directed(&matrix, direction, machine)
            .with_load(load_to_level(&load.by_thread))
            .with_groups(&groups)
            .with_seed(self.seed);
        let mapped = match policy {
            ThreadPolicy::Listed(policy) => numaloc_mapping::map(policy, &input),
            ThreadPolicy::SharedPages => return self.by_shared_pages(profile, machine),
            ThreadPolicy::Os => {
                numaloc_mapping::map(&numaloc_mapping::policies::scatter::Scatter, &input)
            }
        };
        Ok(mapped.map_err(CliError::tool)?.mapping)
    }

    /// Groups threads that use the same pages.
    fn by_shared_pages(&self, profile: &Profile, machine: &Topology) -> Result<Mapping, CliError> {
        if profile.pages.pages().is_empty() {
            let path = self.profile.display();
            return Err(CliError::tool(format!(
                "cannot map {path} by shared pages: it has no page usage"
            )));
        }
        let common = page_affinity(&profile.pages, profile.threads.len());
        let input =
            MapInput::directed(&common, Direction::Undirected, machine).with_seed(self.seed);
        let mapped =
            numaloc_mapping::map(&numaloc_mapping::policies::choice_map::ChoiceMap, &input);
        Ok(mapped.map_err(CliError::tool)?.mapping)
    }

    /// The name of each page policy and its placement.
    fn homes(
        &self,
        profile: &Profile,
        mapping: &Mapping,
        machine: &Topology,
    ) -> Result<Vec<(&'static str, planned::Homes)>, CliError> {
        let mut homes = Vec::new();
        for given in &self.pages {
            if given == AUTONUMA {
                homes.push((AUTONUMA, planned::Homes::Acting(Pages::AutoNuma)));
                continue;
            }
            for policy in policies::pages(given, &[AUTONUMA])? {
                let placed = match policy.name() {
                    "first-touch" => planned::Homes::Acting(Pages::FirstTouch),
                    "interleave" => planned::Homes::Acting(Pages::Interleave),
                    "next-touch" => planned::Homes::Acting(Pages::NextTouch),
                    _ => {
                        let input = PlaceInput {
                            slow_loads: profile.slow_loads.as_ref(),
                            seed: self.seed,
                            ..PlaceInput::new(&profile.pages, mapping, machine)
                        };
                        let placed =
                            numaloc_placement::place(policy, &input).map_err(CliError::usage)?;
                        planned::Homes::Placed(placed.placement.node)
                    }
                };
                homes.push((policy.name(), placed));
            }
        }
        Ok(homes)
    }

    /// All cases, several at once; the outcomes in the order of the cases.
    fn simulate(
        &self,
        targets: &[Target],
        trace: &Trace,
        cases: &[Case],
        filter_bytes: u64,
        ui: &Ui,
    ) -> Result<Vec<Outcome>, CliError> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let jobs = self
            .jobs
            .map_or(processors, usize::from)
            .min(cases.len())
            .max(1);
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let found: Vec<Mutex<Option<Result<Outcome, String>>>> =
            cases.iter().map(|_| Mutex::new(None)).collect();
        let start = Instant::now();
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(case) = cases.get(at) else {
                    break;
                };
                let setup = Setup {
                    threads: case.mapped.threads(),
                    pages: &case.homes,
                };
                let machine = &targets[case.target].machine;
                let outcome = numaloc_sim::simulate(machine, trace, &setup, filter_bytes);
                *found[at].lock().expect("nobody panics with it") =
                    Some(outcome.map_err(|error| error.to_string()));
                let ended = done.fetch_add(1, Ordering::Relaxed) + 1;
                if ui.progress() {
                    let left =
                        start.elapsed().as_secs_f64() / ended as f64 * (cases.len() - ended) as f64;
                    stderr(&format!(
                        "\rsimulated {ended} of {}, some {left:.0} s left   ",
                        cases.len()
                    ));
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..jobs {
                scope.spawn(work);
            }
            work();
        });
        if ui.progress() {
            stderr(&format!("\r{:<60}\r", ""));
        }
        found
            .into_iter()
            .map(|outcome| {
                let outcome = outcome.into_inner().expect("nobody panicked with it");
                outcome
                    .expect("every case was simulated")
                    .map_err(CliError::tool)
            })
            .collect()
    }
}

/// Reads the traces of a profile for the simulator.
fn load(traces: &[AccessTrace], profile: &Profile, ui: &Ui) -> Result<Trace, CliError> {
    let cannot =
        |error: numaloc_sim::TraceError| CliError::tool(format!("cannot simulate: {error}"));
    let index: std::collections::HashMap<&str, ThreadIdx> = profile
        .threads
        .iter()
        .enumerate()
        .map(|(at, thread)| (&*thread.path, ThreadIdx::from_index(at)))
        .collect();
    let line_bytes = 1 << traces[0].head.line_shift;
    let paths = profile.threads.iter().map(|thread| &*thread.path);
    let mut builder =
        TraceBuilder::new(paths, line_bytes, profile.pages.page_size()).map_err(cannot)?;
    let records: u64 = crate::access_trace::tally(traces).records;
    let mut count = 0u64;
    for event in Order::new(traces, |path| index.get(path).copied())? {
        let (thread, event) = event?;
        builder.push(thread, &event);
        count += 1;
        if count.is_multiple_of(1 << 22) && ui.progress() {
            stderr(&format!(
                "\rread {} of {} M records   ",
                count >> 20,
                records >> 20
            ));
        }
    }
    if count >= 1 << 22 && ui.progress() {
        stderr(&format!("\r{:<60}\r", ""));
    }
    builder.finish().map_err(cannot)
}

/// Display name of a plan: its file name.
fn plan_name(path: &std::path::Path, plan: &Plan) -> String {
    let name = path
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned());
    name.unwrap_or_else(|| plan.provenance.thread_policy.clone())
}
