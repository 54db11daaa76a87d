//! `numaloc simulate`: run times of a recorded program on other machines and under other placements.

use std::path::PathBuf;
use std::time::Instant;

use numaloc_formats::access_trace::{AccessTrace, CacheSize};
use numaloc_formats::profile::{Parts, read_parts};
use numaloc_plan::registry::Place;
use numaloc_sim::machine::{PageCosts, Replacement, Shape};
use numaloc_sim::{Outcome, Parameters, Sample};
use numaloc_topology::resolve;

use crate::access_trace::{marks_loads, windows, windows_share};
use crate::commands::policies;
use crate::error::CliError;
use crate::simulation::loading::Traces;
use crate::simulation::running::{Job, Runner};
use crate::simulation::saved::Saved;
use crate::simulation::sensitivity::{self, Variant};
use crate::simulation::{self, Case, Target};
use crate::ui::Ui;

mod cases;
mod shown;

const EXAMPLES: &str = "\
Examples:
  numaloc record --trace --trace-l2 256K/8 -o app.numaloc -- ./app
  numaloc simulate app.numaloc --machine purple
  numaloc simulate app.numaloc --machine purple,skylake-4s --threads scatter,deloc --pages locality
  numaloc simulate app.numaloc --machine purple --threads os,deloc --pages first-touch,autonuma
  numaloc simulate app.numaloc --machine epyc-7501 --plan plan.json
  numaloc simulate app.numaloc --machine purple --sensitivity --resume purple.sims
  numaloc simulate app.numaloc --machine purple --sample 5%
  numaloc simulate app.numaloc --machine purple --trace-windows 5%
  numaloc simulate app.numaloc --machine skylake-4s --page-size 4K,2M

The profile needs an access trace. Every machine is combined with every thread policy, page policy
and plan. The machine must have hardware figures (see `numaloc machines`). Many of these and the
constants of the model are presets: compare rows of one machine with each other, not with measured
times.

Thread policy os: a scheduler like the operating system's places and moves threads without
knowledge of communication. Page policies first-touch, interleave, next-touch and autonuma act
while the program runs, as in a kernel; the others place pages before it starts.";

/// Simulate a recorded program on other machines, with threads and pages placed in several ways
#[derive(clap::Args)]
#[command(after_help = policies::help(EXAMPLES, Place::Simulation))]
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
    /// Replacement in last-level caches [default: as the machine's file says, else lru]
    #[arg(long, value_name = "POLICY")]
    replacement: Option<LlcReplacement>,
    /// Simulate on pages of these sizes, and how long cores walk through page tables. Memory is placed by whole pages
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = page_size)]
    page_size: Vec<u64>,
    /// With --page-size: translations of pages that a core keeps (in the second level of its TLB)
    #[arg(long, value_name = "ENTRIES", default_value_t = 1536, requires = "page_size", value_parser = clap::value_parser!(u16).range(16..))]
    tlb: u16,
    /// Number of simulations that run in parallel [default: one for each PU of this machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Repeat all simulations with presets of the model at both ends of their ranges, and report which rows differ from
    /// the best by more than that changes
    #[arg(long)]
    sensitivity: bool,
    /// File that keeps finished simulations: with the same file, an interrupted run continues
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
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
    /// Simulate this share of the records in detail, in windows over the whole run, and extrapolate
    #[arg(long, value_name = "SHARE", value_parser = share)]
    sample: Option<f64>,
    /// With --sample: share of the other records that keep caches warm; those before them are skipped
    #[arg(long, value_name = "SHARE", default_value = "100%", value_parser = share_or_none, requires = "sample")]
    warmed: f64,
    /// Leave out what `record --trace-windows` leaves out, to see how far times from such a recording are off
    #[arg(long, value_name = "SHARE", value_parser = windows_share, conflicts_with = "sample")]
    trace_windows: Option<u32>,
    /// With --trace-windows: memory of each thread whose last requests are kept before a window
    #[arg(long, value_name = "BYTES", default_value = "2M", value_parser = crate::size::byte_size, requires = "trace_windows")]
    trace_warm: u64,
}

/// A share of 1, or in percent.
fn share_or_none(text: &str) -> Result<f64, String> {
    let parsed = match text.strip_suffix('%') {
        Some(percent) => percent.parse().map(|percent: f64| percent / 100.0),
        None => text.parse(),
    };
    match parsed {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected a share from 0 to 1, or percent as in 5%".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match share_or_none(text) {
        Ok(share) if share < 1e-4 => Err("expected a share of at least 0.01%".to_owned()),
        found => found,
    }
}

/// Values of `--replacement`.
#[derive(Clone, Copy, clap::ValueEnum)]
enum LlcReplacement {
    /// Least recently used line
    Lru,
    /// Line whose next use is predicted latest (SRRIP)
    Rrip,
}

fn page_size(text: &str) -> Result<u64, String> {
    match crate::size::byte_size(text) {
        Ok(bytes) if bytes.is_power_of_two() && (4 << 10..=1 << 30).contains(&bytes) => Ok(bytes),
        _ => Err("expected a power of two from 4K to 1G, such as 4K or 2M".to_owned()),
    }
}

/// Translations in a set of a TLB. A preset: those of Skylake's second level.
const TLB_WAYS: u64 = 12;

fn scan_period(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(ms) if (0.001..=1e6).contains(&ms) => Ok(ms),
        _ => Err("expected milliseconds from 0.001 to 1000000".to_owned()),
    }
}

fn cycles(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(cycles) if (0.01..=1000.0).contains(&cycles) => Ok(cycles),
        _ => Err("expected a number from 0.01 to 1000".to_owned()),
    }
}

/// For each target, its presets at the ends of their ranges, and the time of each case there (0 for cases of other
/// targets).
type Varied = Vec<Vec<(Variant, Vec<u64>)>>;

/// All results, for display.
struct Answer {
    targets: Vec<Target>,
    traces: Traces,
    /// Whether the trace says which loads wait for others.
    marks_loads: bool,
    filter: CacheSize,
    /// The simulated cases and their outcomes.
    rows: Vec<(Case, Outcome)>,
    /// Empty without `--sensitivity`.
    varied: Varied,
    seconds: f64,
}

impl Args {
    /// Loads the trace once, simulates every combination, and compares.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let targets = self.targets()?;
        let saved = Saved::open(self.resume.as_deref())?;
        let profile = read_parts(&self.profile, Parts { page_slices: false })?;
        let (mut traces, filter) = simulation::recorded(&self.profile, &profile, &targets, ui)?;
        if let Some(share_ppm) = self.trace_windows {
            let reduced = |trace: AccessTrace| {
                let line_bytes = 1 << trace.head.line_shift;
                trace.reduced_to(windows(share_ppm, self.trace_warm, line_bytes))
            };
            traces = traces.into_iter().map(reduced).collect();
        }
        // Policies and plans are checked before the trace, which takes longer, is loaded.
        let cases = self.cases(&targets, &profile)?;
        let due = cases.iter().flat_map(|case| &case.schedule);
        let points = due.map(|moves| moves.clock).collect();
        let marks_loads = marks_loads(&traces);
        let traces = Traces::load(&traces, &profile, &targets, points, ui)?;
        let cases: Vec<Case> = cases
            .into_iter()
            .map(|case| {
                let trace = traces.of(&targets[case.target]);
                case.on_pages_of(trace, &profile)
            })
            .collect();
        let start = Instant::now();
        let (outcomes, varied) =
            self.simulate(&targets, &traces, &cases, filter.bytes, &saved, ui)?;
        let answer = Answer {
            varied,
            targets,
            traces,
            marks_loads,
            filter,
            rows: cases.into_iter().zip(outcomes).collect(),
            seconds: start.elapsed().as_secs_f64(),
        };
        ui.result(|| shown::text(&answer), || shown::json(&answer));
        Ok(0)
    }

    /// All cases, and with `--sensitivity` their times with presets at the ends of their ranges.
    fn simulate<'a>(
        &self,
        targets: &'a [Target],
        traces: &'a Traces,
        cases: &'a [Case],
        filter_bytes: u64,
        saved: &Saved,
        ui: &Ui,
    ) -> Result<(Vec<Outcome>, Varied), CliError> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let runner = Runner {
            workers: self.jobs.map_or(processors, usize::from),
            saved,
            ui,
        };
        let fingerprint = match saved.is_kept() {
            true => traces.recorded().fingerprint(),
            false => 0,
        };
        let sample = self.sample.map(|share| Sample {
            share,
            warmed: self.warmed,
        });
        let job = |machine, case: &'a Case| Job {
            machine,
            trace: traces.of(&targets[case.target]),
            fingerprint,
            case,
            filter_bytes,
            sample,
        };
        let jobs: Vec<Job<'_>> = cases
            .iter()
            .map(|case| job(&targets[case.target].machine, case))
            .collect();
        let outcomes = runner.run(&jobs, "outcome", |outcome| outcome)?;
        if !self.sensitivity {
            return Ok((outcomes, Vec::new()));
        }
        let variants: Vec<Vec<Variant>> = targets
            .iter()
            .map(|target| sensitivity::variants(&target.machine))
            .collect();
        let jobs: Vec<Job<'_>> = cases
            .iter()
            .flat_map(|case| {
                let of_target = variants[case.target].iter();
                of_target.map(move |variant| (&variant.machine, case))
            })
            .map(|(machine, case)| job(machine, case))
            .collect();
        let mut times = runner
            .run(&jobs, "time", |outcome| outcome.time)?
            .into_iter();
        let by_case: Vec<Vec<u64>> = cases
            .iter()
            .map(|case| times.by_ref().take(variants[case.target].len()).collect())
            .collect();
        let varied = variants.into_iter().enumerate().map(|(target, variants)| {
            let with_times = variants.into_iter().enumerate().map(|(at, variant)| {
                let time = |(case, times): (&Case, &Vec<u64>)| match case.target == target {
                    true => times[at],
                    false => 0,
                };
                (variant, cases.iter().zip(&by_case).map(time).collect())
            });
            with_times.collect()
        });
        Ok((outcomes, varied.collect()))
    }

    fn targets(&self) -> Result<Vec<Target>, CliError> {
        let standard = Parameters::default();
        let parameters = Parameters {
            outstanding: self.outstanding.into(),
            cycles_per_access: self.cycles_per_access,
            llc_replacement: self.replacement.map(|wanted| match wanted {
                LlcReplacement::Lru => Replacement::Lru,
                LlcReplacement::Rrip => Replacement::Rrip,
            }),
            page_costs: PageCosts {
                scan_period_ms: self.scan_period,
                ..standard.page_costs
            },
            ..standard
        };
        let mut targets = Vec::new();
        for name in &self.machine {
            let target = Target::new(name, resolve(name)?, parameters.clone())?;
            match &*self.page_size {
                [] => targets.push(target),
                sizes => targets.extend(sizes.iter().map(|&bytes| self.on_pages(&target, bytes))),
            }
        }
        Ok(targets)
    }

    /// A machine with pages of `bytes`, whose translation takes time.
    fn on_pages(&self, target: &Target, bytes: u64) -> Target {
        let mut target = target.clone();
        target.machine.page_bytes = Some(bytes);
        let lines = u64::from(self.tlb);
        target.machine.parameters.tlb = Some(Shape {
            lines,
            ways: TLB_WAYS,
        });
        target
    }
}
