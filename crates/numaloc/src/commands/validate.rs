//! `numaloc validate`: compares what numaloc predicts with what this machine does.

use std::path::{Path, PathBuf};

use numaloc_files::FileOutput;
use numaloc_kernels::{KERNELS, Kernel, named};
use numaloc_launch::Stop;
use numaloc_model::number::plural;

use crate::error::CliError;
use crate::ui::{Ui, stderr};

mod judged;
mod kernel;
mod machine;
mod measured;
mod page;
mod program;
mod recorded;
mod shown;
mod variants;

use judged::{Conditions, Judgement, Outcome};
use machine::{LeftOut, Machine};
use measured::{Meters, Row, Runner};
use program::Program;
use recorded::Recorded;
use variants::Variant;

pub use kernel::{KERNEL, run as run_kernel};

/// Check predictions, verdicts and plans against this machine, with small programs, and write a page
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc validate --quick -o quick.html
  numaloc validate --runs 10 -o validation.html --json=validation.json
  numaloc validate --kernels triad,pipeline --variants pinned,plan -o two.html
  numaloc validate --kernel triad --threads 4          runs one kernel alone, to be recorded

Looks at the machine, calibrates it if it has several nodes, then takes each kernel: records it, predicts, runs
it in every variant, and says where predictions held and where not. Other programs should not run meanwhile.
Variants: none, interleave, autonuma, pinned, mapped and placed (what verdicts recommend), plan, plan-pmu, online,
online-pmu. What cannot be done here is left out, with the reason. Ctrl-C keeps what has been measured, restores the
settings of the kernel, and still writes the page.
Exit status: 0 whether or not predictions held; 1 if nothing could be measured.")]
pub struct Args {
    /// Page to write, a self-contained HTML file (`-`: standard output)
    #[arg(short, long, value_name = "FILE", default_value = "validation.html")]
    output: PathBuf,
    /// Replace the page if it exists
    #[arg(long)]
    force: bool,
    /// Short runs of little memory, three of each variant: shows that everything works, not how well
    #[arg(long)]
    quick: bool,
    /// Kernels to run [default: all]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = kernel_named)]
    kernels: Vec<&'static Kernel>,
    /// Variants to run in addition to `none` [default: all that this machine permits]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = Variant::named)]
    variants: Vec<Variant>,
    /// Number of runs of each variant [default: 5, 3 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..1000))]
    runs: Option<u32>,
    /// Seconds that a run takes without anything around it [default: 0.5, 0.2 with --quick]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<f64>,
    /// Memory of each kernel [default: four times the last-level caches, 64M to 1G; 4M with --quick]
    #[arg(long, value_name = "BYTES", value_parser = crate::size::byte_size)]
    size: Option<u64>,
    /// Number of threads of each kernel [default: one for each PU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..65_536))]
    threads: Option<u32>,
    /// Seed of the order of runs
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Iterations of the run that shows how long one takes; fewer are never run: each page is used this many times after
/// it was initialised.
const LEAST_ITERATIONS: u64 = 16;
/// More are never run.
const MOST_ITERATIONS: u64 = 1 << 20;

fn kernel_named(name: &str) -> Result<&'static Kernel, String> {
    named(name).ok_or_else(|| {
        let names: Vec<&str> = KERNELS.iter().map(|kernel| kernel.name).collect();
        format!("expected one of: {}", names.join(", "))
    })
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds from 0.001 to 600".to_owned()),
    }
}

/// How large kernels are, and how often they run.
#[derive(Clone, Copy)]
struct Settings {
    runs: u32,
    seconds: f64,
    bytes: u64,
    threads: usize,
    seed: u64,
}

/// Everything about one kernel.
struct Found {
    kernel: &'static Kernel,
    iterations: u64,
    recorded: Option<Recorded>,
    rows: Vec<Row>,
    judged: Vec<Judgement>,
}

/// The whole validation.
struct Validation {
    machine: Machine,
    meters: Meters,
    settings: Settings,
    kernels: Vec<Found>,
    left_out: Vec<LeftOut>,
    complete: bool,
}

impl Args {
    /// Measures, writes the page, and shows the summary.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let output = ui.output(&self.output, self.force)?;
        let stop = Stop::new().map_err(CliError::tool)?;
        let work = tempfile::tempdir().map_err(CliError::tool)?;
        ui.remark("looking at the machine");
        let mut machine = Machine::of_this(&stop)?;
        let settings = self.settings(&machine);
        if machine.has_places() && machine.emulated {
            machine.left_out.push(LeftOut {
                what: machine::CALIBRATION.to_owned(),
                why: "an emulator executes the instructions: times mean nothing".to_owned(),
            });
        } else if machine.has_places() {
            ui.remark("measuring latencies and bandwidths between nodes");
            machine.calibrate((settings.seconds / 2.0).min(0.5), work.path(), &stop);
        }
        let mut validation = Validation {
            left_out: std::mem::take(&mut machine.left_out),
            machine,
            meters: Meters::of_this_machine(),
            settings,
            kernels: Vec::new(),
            complete: false,
        };
        self.kernels(ui, &mut validation, work.path(), &stop)?;
        if validation.kernels.iter().all(|found| found.rows.is_empty()) && !stop.asked() {
            let why = validation.left_out.last();
            return Err(CliError::tool(match why {
                Some(left) => format!("nothing could be measured: {}: {}", left.what, left.why),
                None => "nothing could be measured".to_owned(),
            }));
        }
        if !validation.complete {
            ui.remark("interrupted: the page has what was measured until then");
        }
        shown_to(ui, &output, &validation)?;
        Ok(stop.status().unwrap_or(0))
    }

    fn settings(&self, machine: &Machine) -> Settings {
        const LEAST: u64 = 64 << 20;
        const MOST: u64 = 1 << 30;
        let of_caches = (4 * machine.cache_bytes()).clamp(LEAST, MOST);
        let (runs, seconds, bytes) = match self.quick {
            true => (3, 0.2, 4 << 20),
            false => (5, 0.5, of_caches),
        };
        Settings {
            runs: self.runs.unwrap_or(runs),
            seconds: self.seconds.unwrap_or(seconds),
            bytes: self.size.unwrap_or(bytes),
            threads: match self.threads {
                Some(threads) => threads as usize,
                None => machine.topology.pus().len(),
            },
            seed: self.seed,
        }
    }

    /// The variants that are asked for, and that the machine permits whatever the kernel is.
    fn variants(&self, machine: &Machine) -> Vec<Variant> {
        let is_asked = |variant: &Variant| {
            *variant == Variant::None || self.variants.is_empty() || self.variants.contains(variant)
        };
        let is_possible = |variant: &Variant| match variant {
            Variant::Interleave => machine.has_places(),
            Variant::AutoNuma => machine.balancing.is_some(),
            Variant::PlanPmu => !machine.sampled.is_empty(),
            Variant::Online => machine.online[0].is_some(),
            Variant::OnlinePmu => machine.online[1].is_some(),
            _ => true,
        };
        let all = Variant::ALL.into_iter();
        all.filter(is_asked).filter(is_possible).collect()
    }

    fn kernels(
        &self,
        ui: &Ui,
        validation: &mut Validation,
        work: &Path,
        stop: &Stop,
    ) -> Result<(), CliError> {
        let own = std::env::current_exe().map_err(CliError::tool)?;
        let all: Vec<&Kernel> = match &self.kernels[..] {
            [] => KERNELS.iter().collect(),
            chosen => chosen.to_vec(),
        };
        let variants = self.variants(&validation.machine);
        if !validation.machine.has_places() {
            validation.left_out.push(LeftOut {
                what: "variant interleave".to_owned(),
                why: "this machine has one NUMA node".to_owned(),
            });
        }
        let is_asked = |left: &LeftOut| {
            let name = left.what.strip_prefix("variant ");
            let name = name.and_then(|name| name.split(' ').next());
            let variant = name.and_then(|name| Variant::named(name).ok());
            self.variants.is_empty() || variant.is_none_or(|v| self.variants.contains(&v))
        };
        validation.left_out.retain(is_asked);
        let mut draw = self.seed;
        for (at, kernel) in all.iter().enumerate() {
            let folder = work.join(kernel.name);
            std::fs::create_dir_all(&folder).map_err(CliError::tool)?;
            let of = One {
                ui,
                stop,
                folder: &folder,
                title: format!("{} ({} of {})", kernel.name, at + 1, all.len()),
            };
            let (found, left_out) = of.kernel(validation, kernel, &own, &variants, &mut draw);
            validation.kernels.extend(found);
            validation.left_out.extend(left_out);
            if stop.asked() {
                return Ok(());
            }
        }
        validation.complete = true;
        Ok(())
    }
}

/// What takes one kernel through all steps.
struct One<'a> {
    ui: &'a Ui,
    stop: &'a Stop,
    folder: &'a Path,
    title: String,
}

impl One<'_> {
    fn kernel(
        &self,
        validation: &Validation,
        kernel: &'static Kernel,
        own: &Path,
        variants: &[Variant],
        draw: &mut u64,
    ) -> (Option<Found>, Vec<LeftOut>) {
        let settings = validation.settings;
        let runner = Runner {
            machine: &validation.machine,
            meters: &validation.meters,
            stop: self.stop,
            folder: self.folder,
            runs: settings.runs,
        };
        let mut program = Program {
            kernel,
            own,
            threads: settings.threads,
            bytes: settings.bytes,
            iterations: LEAST_ITERATIONS,
        };
        let left_out = |what: &str, why: String| LeftOut {
            what: format!("{}: {what}", kernel.name),
            why,
        };
        match runner.alone(&program) {
            Ok(line) => program.iterations = iterations(&line, settings.seconds),
            Err(why) => return (None, vec![left_out("all of it", why)]),
        }
        self.ui.remark(format!("{}: recording", self.title));
        let mut missing = Vec::new();
        let recorded = self.recorded(&program, validation, variants);
        let recorded = recorded.map_err(|why| missing.push(left_out("prediction", why)));
        let (recorded, by_samples) = recorded.ok().unzip();
        missing.extend(
            by_samples
                .flatten()
                .map(|why| left_out("variant plan-pmu", why)),
        );
        let planned = recorded
            .as_ref()
            .map_or(&[][..], |recorded: &Recorded| &recorded.planned);
        let has_plan = |variant: &Variant| {
            let plan = planned.iter().find(|planned| planned.variant == *variant);
            !variant.is_planned() || plan.is_some_and(|planned| planned.file.is_some())
        };
        let variants: Vec<Variant> = variants.iter().copied().filter(has_plan).collect();
        self.ui.remark(format!(
            "{}: {} in {}",
            self.title,
            plural(settings.runs as usize, "run"),
            plural(variants.len(), "variant")
        ));
        let progress = |round: u32, variant: Variant| {
            if self.ui.progress() {
                stderr(&format!("\rround {}: {:<40}\r", round + 1, variant.name()));
            }
        };
        let (rows, failed) = runner.rounds(&program, &variants, planned, draw, &progress);
        missing.extend(failed);
        let conditions = Conditions {
            has_places: validation.machine.has_places(),
            emulated: validation.machine.emulated,
        };
        let judged = match &recorded {
            Some(recorded) => judged::judge(recorded, &rows, conditions),
            None => Vec::new(),
        };
        self.ui
            .remark(format!("{}: {}", self.title, counts(&judged)));
        let found = Found {
            kernel,
            iterations: program.iterations,
            recorded,
            rows,
            judged,
        };
        (Some(found), missing)
    }

    /// The recording, with the plan from samples if that is asked for; why there is no such plan.
    fn recorded(
        &self,
        program: &Program<'_>,
        validation: &Validation,
        variants: &[Variant],
    ) -> Result<(Recorded, Option<String>), String> {
        let machine = &validation.machine.topology;
        let mut recorded = recorded::record(program, &[], machine, self.folder, self.stop)?;
        if !variants.contains(&Variant::PlanPmu) {
            return Ok((recorded, None));
        }
        let folder = self.folder.join("pmu");
        let options = ["--frontend", "perf"];
        let by_samples = std::fs::create_dir_all(&folder)
            .map_err(|why| why.to_string())
            .and_then(|()| recorded::record(program, &options, machine, &folder, self.stop));
        Ok(match by_samples {
            Ok(by_samples) => {
                let plan = by_samples.planned.into_iter();
                let plan = plan.filter(|planned| planned.variant == Variant::Plan);
                recorded
                    .planned
                    .extend(plan.map(|planned| recorded::Planned {
                        variant: Variant::PlanPmu,
                        ..planned
                    }));
                (recorded, None)
            }
            Err(why) => (recorded, Some(why)),
        })
    }
}

/// Iterations that take about that many seconds, by what a kernel reported of a short run.
fn iterations(line: &serde_json::Value, seconds: f64) -> u64 {
    let number = |name: &str| line[name].as_f64().unwrap_or(0.0);
    let each = number("iterations_s") / number("iterations").max(1.0);
    let wanted = seconds / each.max(1e-9);
    (wanted as u64).clamp(LEAST_ITERATIONS, MOST_ITERATIONS)
}

/// `5 predictions held, 1 failed, 2 open`.
fn counts(judged: &[Judgement]) -> String {
    let count = |outcome| {
        judged
            .iter()
            .filter(|judged| judged.outcome == outcome)
            .count()
    };
    let (held, failed, open) = (
        count(Outcome::Held),
        count(Outcome::Failed),
        count(Outcome::Open),
    );
    format!(
        "{} held, {failed} failed, {open} open",
        plural(held, "prediction")
    )
}

/// Writes the page, and shows the result.
fn shown_to(ui: &Ui, output: &FileOutput, validation: &Validation) -> Result<(), CliError> {
    output.write(page::page(validation).as_bytes())?;
    ui.written(
        output,
        || shown::text(validation, output.path()),
        || shown::json(validation),
    );
    Ok(())
}
