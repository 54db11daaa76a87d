//! `numaloc simulate`: what a recorded program would take on a machine, with threads and pages in one place or another.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

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
use numaloc_sim::{Machine, Outcome, Pages, Parameters, Setup, Trace, TraceBuilder};
use numaloc_topology::{Topology, resolve};

use crate::access_trace::{incomplete, open};
use crate::commands::policies;
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
  numaloc simulate app.numaloc --machine epyc-7501 --plan plan.json

The profile needs an access trace. Every machine is combined with every thread policy, page policy and
plan. The machine must have hardware figures (see `numaloc machines`); many of them are presets, and so are the
constants of the model, so compare rows of one machine rather than times with a clock. First touch
and interleave act while the program runs, as in a kernel; other page policies place pages beforehand.")]
pub struct Args {
    /// The profile folder made by `numaloc record --trace`
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
    /// A plan made for the machine by `numaloc plan`; may be given several times
    #[arg(long = "plan", value_name = "FILE")]
    plans: Vec<PathBuf>,
    /// Misses that a core has outstanding at once
    #[arg(long, value_name = "LINES", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=64))]
    outstanding: u16,
    /// Core cycles an access takes when a private cache answers, the instructions around it included
    #[arg(long, value_name = "CYCLES", default_value_t = 1.5, value_parser = cycles)]
    cycles_per_access: f64,
    /// Simulations at once [default: one for each PU of this machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Seed of random policies
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn cycles(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(cycles) if (0.01..=1000.0).contains(&cycles) => Ok(cycles),
        _ => Err("expected a number from 0.01 to 1000".to_owned()),
    }
}

/// A machine to simulate, by the name that was given.
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
    mapping: Vec<LogicalPu>,
    homes: Pages,
}

/// Everything that was found, for showing.
struct Answer {
    targets: Vec<Target>,
    trace: Trace,
    filter: CacheSize,
    /// Cases that were simulated, and what each found.
    rows: Vec<(Case, Outcome)>,
    seconds: f64,
}

impl Args {
    /// Loads the trace once, simulates every combination, and compares.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let targets = self.targets()?;
        let profile = read_parts(&self.profile, Parts { page_slices: true })?;
        let traces = open(&self.profile)?;
        if profile.threads.iter().any(|thread| thread.rank.is_some()) {
            return Err(CliError::tool(format!(
                "cannot simulate {}: messages between ranks are not in the access trace, so nothing says which rank waits for which",
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
        let parameters = Parameters {
            outstanding: self.outstanding.into(),
            cycles_per_access: self.cycles_per_access,
            ..Parameters::default()
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

    /// A trace holds nothing of what the recorder's caches answered: smaller caches cannot be simulated with it.
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
                for policy in policies::threads(name)? {
                    let mapping = self.map(policy, profile, &found.topology)?;
                    for name in &self.pages {
                        for page_policy in policies::pages(name)? {
                            cases.push(planned::Case {
                                target,
                                threads: policy.name().to_owned(),
                                pages: page_policy.name().to_owned(),
                                homes: self.homes(
                                    page_policy,
                                    profile,
                                    &mapping,
                                    &found.topology,
                                )?,
                                mapping: mapping.pu.clone(),
                            });
                        }
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

    fn map(
        &self,
        policy: &dyn numaloc_mapping::MappingPolicy,
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
        Ok(numaloc_mapping::map(policy, &input)
            .map_err(CliError::tool)?
            .mapping)
    }

    fn homes(
        &self,
        policy: &dyn numaloc_placement::PlacementPolicy,
        profile: &Profile,
        mapping: &Mapping,
        machine: &Topology,
    ) -> Result<planned::Homes, CliError> {
        Ok(match policy.name() {
            "first-touch" => planned::Homes::FirstTouch,
            "interleave" => planned::Homes::Interleave,
            _ => {
                let input = PlaceInput {
                    page_slices: &profile.page_slices,
                    slow_loads: profile.slow_loads.as_ref(),
                    seed: self.seed,
                    ..PlaceInput::new(&profile.pages, mapping, machine)
                };
                let placed = numaloc_placement::place(policy, &input).map_err(CliError::usage)?;
                planned::Homes::Placed(placed.placement.node)
            }
        })
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
                    threads: &case.mapping,
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

/// The traces of a profile as the simulator reads them.
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

/// A plan's name for people: its file.
fn plan_name(path: &std::path::Path, plan: &Plan) -> String {
    let name = path
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned());
    name.unwrap_or_else(|| plan.provenance.thread_policy.clone())
}
