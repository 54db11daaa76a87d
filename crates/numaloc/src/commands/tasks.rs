//! `numaloc tasks`: OCR programs, from compiling them to running them where their data is.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use clap::{Subcommand, ValueEnum};
use numaloc_task_plan::{
    Analysis, AnalyzeError, Distribution, FileError, Options, analyze, read_profile, write_plan,
};
use numaloc_topology::resolve;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::ui::Ui;

/// Task programs (OCR): compile, profile once, make a plan, run where the data is
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc tasks cc -O3 stencil2d.c -o stencil2d -lm
  numaloc tasks profile -o prof --machine skylake-4s -- ./stencil2d 1024 8 10 4
  numaloc tasks analyze prof -o plan --machine skylake-4s
  numaloc tasks run --plan plan --machine skylake-4s -- ./stencil2d 2048 8 10 1000
  numaloc tasks run --scheduler tbb --allocator system -- ./stencil2d 2048 8 10 1000")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Cc(Cc),
    Run(Run),
    Profile(ProfileArgs),
    Analyze(AnalyzeArgs),
}

/// Compile an OCR program: the C compiler with our ocr.h and libnumaloc_ocr
#[derive(clap::Args)]
struct Cc {
    /// The compiler
    #[arg(long, value_name = "COMPILER", default_value = "cc")]
    compiler: String,
    /// Link libnumaloc_ocr.a into the program instead of the shared library
    #[arg(long)]
    r#static: bool,
    /// Arguments for the compiler
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    arguments: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Scheduler {
    /// Work stealing inside NUMA nodes
    Numa,
    /// oneTBB, which does not know about nodes
    Tbb,
    /// One thread, the same order in every run
    Single,
}

#[derive(Clone, Copy, ValueEnum)]
enum Allocator {
    /// Pools per node, bound
    Numa,
    /// The C library's: first touch
    System,
}

#[derive(Clone, Copy, ValueEnum)]
enum Steal {
    /// Inside nodes only
    Node,
    /// From other nodes when the own one has nothing
    Any,
}

/// Run an OCR program, with a plan or without
///
/// Without a plan, tasks go where the program's hints say, else where their creator runs, and idle
/// workers may steal from other nodes. With a plan, tasks and data blocks go where it says; what it does
/// not know falls back to hints and is counted. A described machine is simulated.
#[derive(clap::Args)]
struct Run {
    /// Folder of a plan made by `numaloc tasks analyze`
    #[arg(long, value_name = "FOLDER")]
    plan: Option<PathBuf>,
    /// Who runs ready tasks
    #[arg(long, value_enum, default_value = "numa")]
    scheduler: Scheduler,
    /// Where data blocks get their memory
    #[arg(long, value_enum, default_value = "numa")]
    allocator: Allocator,
    /// Who may steal from whom [default: any without a plan, node with one]
    #[arg(long, value_enum)]
    steal: Option<Steal>,
    /// Number of workers [default: one for each PU]
    #[arg(long, value_name = "N")]
    workers: Option<u32>,
    /// `this`, or a machine to simulate (see `numaloc machines`)
    #[arg(long, value_name = "MACHINE", default_value = "this")]
    machine: String,
    /// Ignore the program's affinity hints
    #[arg(long)]
    no_hints: bool,
    /// Say what the program does wrong (stale GUIDs, double satisfaction, tasks that never ran)
    #[arg(long)]
    checked: bool,
    /// Seed of random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write statistics (JSON) to a file
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    program: Vec<String>,
}

/// Run an OCR program once, on one thread, and measure how its tasks depend on where their data is
///
/// Tasks are run several times with their data blocks near and far, and undone. A few iterations and a
/// smaller problem will do: classes of tasks are the same for any number of iterations. The number of
/// parts the problem is cut into must be that of the later run.
#[derive(clap::Args)]
struct ProfileArgs {
    /// Folder for the profile (CSV files)
    #[arg(long, short, value_name = "FOLDER")]
    output: PathBuf,
    /// The machine whose nodes the program sees
    #[arg(long, value_name = "MACHINE", default_value = "this")]
    machine: String,
    /// Replays per class of tasks at most; 0 records the structure only
    #[arg(long, value_name = "N", default_value_t = 32)]
    replays: u32,
    /// Seed of the order of experiments
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    program: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Data {
    /// In blocks, in the order of creation (the paper's)
    Block,
    /// Together with the tasks, from the affinities
    Joint,
}

/// Make a plan from a profile: classes of tasks, their affinities, a node for each
#[derive(clap::Args)]
struct AnalyzeArgs {
    /// Folder of the profile
    profile: PathBuf,
    /// Folder for the plan (CSV files, to be read and edited)
    #[arg(long, short, value_name = "FOLDER")]
    output: PathBuf,
    /// The machine to plan for
    #[arg(long, value_name = "MACHINE", default_value = "this")]
    machine: String,
    /// How data blocks that last are distributed
    #[arg(long, value_enum, default_value = "block")]
    data: Data,
    /// How much more than the mean a node may have to do
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    slack: f64,
    /// List every class
    #[arg(long)]
    classes: bool,
}

impl Args {
    /// Does what was asked.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        match &self.what {
            What::Cc(cc) => cc.run(),
            What::Run(run) => run.run(ui),
            What::Profile(profile) => profile.run(ui),
            What::Analyze(analyze) => analyze.run(ui),
        }
    }
}

/// Where ocr.h and the library are: `NUMALOC_OCR_HOME` (with `include` and `lib`), an installation around
/// this program, or the build tree it lies in.
struct Home {
    include: PathBuf,
    library: PathBuf,
}

impl Home {
    fn find() -> Result<Self, CliError> {
        let mut tried = Vec::new();
        let mut candidates = Vec::new();
        if let Some(home) = std::env::var_os("NUMALOC_OCR_HOME") {
            let home = PathBuf::from(home);
            candidates.push((home.join("include"), home.join("lib")));
        }
        if let Some(bin) = std::env::current_exe()
            .ok()
            .as_deref()
            .and_then(Path::parent)
        {
            candidates.push((bin.join("../include"), bin.join("../lib")));
            for up in ["../..", "../../.."] {
                candidates.push((bin.join(up).join("crates/tasks/include"), bin.to_owned()));
            }
        }
        for (include, library) in candidates {
            if include.join("ocr.h").is_file() && library.join("libnumaloc_ocr.so").is_file() {
                let real = |path: &Path| path.canonicalize().unwrap_or(path.to_owned());
                return Ok(Self {
                    include: real(&include),
                    library: real(&library),
                });
            }
            tried.push(format!("{} and {}", include.display(), library.display()));
        }
        Err(
            CliError::tool("cannot find ocr.h and libnumaloc_ocr.so".to_owned())
                .expected(format!("them in {}", tried.join("; or ")))
                .hint("cargo build -p numaloc-ocr, or set NUMALOC_OCR_HOME")
                .status(125),
        )
    }
}

impl Cc {
    fn run(&self) -> Result<u8, CliError> {
        let home = Home::find()?;
        let mut command = Command::new(&self.compiler);
        command.arg(format!("-I{}", home.include.display()));
        command.args(&self.arguments);
        // Only compiling: a compiler complains about libraries it does not use.
        let compiles_only = ["-c", "-S", "-E", "-fsyntax-only"]
            .iter()
            .any(|flag| self.arguments.iter().any(|given| given == flag));
        if !compiles_only {
            if self.r#static {
                command.arg(home.library.join("libnumaloc_ocr.a"));
                command.args(["-lhwloc", "-ltbb", "-lstdc++", "-lm", "-lpthread", "-ldl"]);
            } else {
                command.arg(format!("-L{}", home.library.display()));
                command.arg(format!("-Wl,-rpath,{}", home.library.display()));
                command.args(["-lnumaloc_ocr", "-lm"]);
            }
        }
        let status = command.status().map_err(|error| {
            CliError::tool(format!(
                "cannot run the compiler {}: {error}",
                self.compiler
            ))
            .status(127)
        })?;
        Ok(code_of(status))
    }
}

fn code_of(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128 + signal as u8,
        (None, None) => 125,
    }
}

/// Runs the program; with `--json` its own output goes to stderr, stdout being ours.
fn run_program(
    program: &[String],
    settings: &[(&str, String)],
    ui: &Ui,
) -> Result<ExitStatus, CliError> {
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]);
    for (name, value) in settings {
        command.env(format!("NUMALOC_OCR_{name}"), value);
    }
    if ui.json {
        command.stdout(Stdio::from(std::io::stderr()));
    }
    command.status().map_err(|error| {
        let status = if error.kind() == std::io::ErrorKind::NotFound {
            127
        } else {
            126
        };
        CliError::tool(format!("cannot run {}: {error}", program[0])).status(status)
    })
}

fn absolute(path: &Path) -> Result<String, CliError> {
    std::path::absolute(path)
        .map(|path| path.display().to_string())
        .map_err(|error| CliError::tool(format!("cannot use {}: {error}", path.display())))
}

fn file_error(error: FileError) -> CliError {
    CliError::tool(error)
}

impl Run {
    fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        resolve(&self.machine)?;
        let name = |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| {
            value().map_or(String::new(), |value| value.get_name().to_owned())
        };
        let own_stats = std::env::temp_dir().join(format!(
            "numaloc-tasks-{}-{}.json",
            std::process::id(),
            std::time::UNIX_EPOCH
                .elapsed()
                .map_or(0, |since| since.as_nanos())
        ));
        let stats = self.stats.clone().unwrap_or_else(|| own_stats.clone());
        let _ = std::fs::remove_file(&stats);
        let mut settings = vec![
            ("SCHEDULER", name(&|| self.scheduler.to_possible_value())),
            ("ALLOCATOR", name(&|| self.allocator.to_possible_value())),
            ("MACHINE", self.machine.clone()),
            ("HINTS", u8::from(!self.no_hints).to_string()),
            ("CHECKED", u8::from(self.checked).to_string()),
            ("SEED", self.seed.to_string()),
            ("STATS", absolute(&stats)?),
            ("PROFILE", String::new()),
            ("PLAN", String::new()),
        ];
        if let Some(steal) = self.steal {
            settings.push(("STEAL", name(&|| steal.to_possible_value())));
        }
        if let Some(workers) = self.workers {
            settings.push(("WORKERS", workers.to_string()));
        }
        if let Some(plan) = &self.plan {
            numaloc_task_plan::read_plan(plan).map_err(|error| file_error(error).status(125))?;
            settings.push(("PLAN", absolute(plan)?));
        }
        let status = run_program(&self.program, &settings, ui)?;
        let told = std::fs::read_to_string(&stats).ok();
        let _ = std::fs::remove_file(&own_stats);
        let Some(told) = told.and_then(|text| serde_json::from_str::<Value>(&text).ok()) else {
            if status.success() {
                ui.remark(format!(
                    "{} did not run tasks (is it linked with -lnumaloc_ocr?)",
                    self.program[0]
                ));
            }
            return Ok(code_of(status));
        };
        if ui.json {
            ui.result(String::new, || told.clone());
        } else {
            self.remark(ui, &told);
        }
        Ok(code_of(status))
    }

    fn remark(&self, ui: &Ui, told: &Value) {
        let number = |name: &str| told[name].as_f64().unwrap_or(0.0);
        if self.plan.is_some() {
            let (planned, open, unknown) = (
                number("planned"),
                number("planned_no_opinion"),
                number("unplanned"),
            );
            let all = (planned + open + unknown).max(1.0);
            ui.remark(format!(
                "plan: {planned} tasks placed, {open} without opinion, {unknown} unknown ({:.2} % of {all} covered)",
                100.0 * (planned + open) / all
            ));
        }
        if told["placement"] == "simulated" {
            ui.remark(format!(
                "simulated placement on {}: {:.1} % of bytes remote, {:.6} s by the model",
                told["machine"].as_str().unwrap_or("?"),
                100.0 * number("remote_share"),
                number("simulated_seconds")
            ));
        }
        if number("bindings_refused") > 0.0 {
            ui.remark(format!(
                "the kernel refused to bind {} mappings to their node",
                number("bindings_refused")
            ));
        }
    }
}

impl ProfileArgs {
    fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        resolve(&self.machine)?;
        let settings = [
            ("PROFILE", absolute(&self.output)?),
            ("MACHINE", self.machine.clone()),
            ("REPLAYS", self.replays.to_string()),
            ("SEED", self.seed.to_string()),
            ("PLAN", String::new()),
            ("STATS", String::new()),
        ];
        // A folder with run.csv is complete: an old one must not pass for new.
        let _ = std::fs::remove_file(self.output.join("run.csv"));
        let status = run_program(&self.program, &settings, ui)?;
        if !self.output.join("run.csv").is_file() {
            if status.success() {
                return Err(CliError::tool(format!(
                    "{} wrote no profile to {}",
                    self.program[0],
                    self.output.display()
                ))
                .hint("link it with -lnumaloc_ocr (numaloc tasks cc)")
                .status(125));
            }
            return Ok(code_of(status));
        }
        let profile = read_profile(&self.output).map_err(file_error)?;
        let marks: std::collections::BTreeMap<&str, usize> = profile
            .tasks
            .iter()
            .filter(|task| !task.mark.is_empty())
            .fold(Default::default(), |mut marks, task| {
                *marks.entry(task.mark.as_str()).or_default() += 1;
                marks
            });
        for (mark, tasks) in &marks {
            ui.remark(format!("{tasks} tasks not replayed: {mark}"));
        }
        let told = json!({
            "version": 1,
            "tasks": profile.tasks.len(),
            "blocks": profile.blocks.len(),
            "replays": profile.replays.len(),
            "method": profile.method,
            "nodes": profile.nodes,
            "not_replayed": marks,
        });
        if ui.json {
            ui.result(String::new, || told);
        } else {
            ui.remark(format!(
                "{}: {} tasks, {} data blocks, {} replays ({})",
                self.output.display(),
                profile.tasks.len(),
                profile.blocks.len(),
                profile.replays.len(),
                match profile.method.as_str() {
                    "relocate" => "data moved between nodes",
                    "evict" => "one node: data in and out of the caches stands for near and far",
                    _ => "structure only",
                }
            ));
        }
        Ok(code_of(status))
    }
}

impl AnalyzeArgs {
    fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        if !(self.slack.is_finite() && self.slack >= 0.0) {
            return Err(CliError::usage(format!("slack {} is no share", self.slack))
                .expected("a number of at least 0, such as 0.1"));
        }
        let machine = resolve(&self.machine)?;
        let profile = read_profile(&self.profile).map_err(file_error)?;
        let options = Options {
            distribution: match self.data {
                Data::Block => Distribution::Block,
                Data::Joint => Distribution::Joint,
            },
            slack: self.slack,
        };
        let analysis = analyze(&profile, &machine, options).map_err(|error| {
            let hint = match &error {
                AnalyzeError::Recursion { .. } => {
                    "run it without a plan: `numaloc tasks run --steal any`"
                }
                _ => "profile a run that creates data blocks and tasks that use them",
            };
            CliError::tool(error).hint(hint)
        })?;
        write_plan(&self.output, &analysis.plan).map_err(file_error)?;
        if profile.nodes != analysis.plan.nodes {
            ui.remark(format!(
                "the profile was made for {} nodes, the plan is for {}: hints cannot be compared",
                profile.nodes, analysis.plan.nodes
            ));
        }
        ui.result(|| self.text(&analysis), || to_json(&analysis));
        Ok(0)
    }

    fn text(&self, analysis: &Analysis) -> String {
        let share = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let mut out = format!(
            "{} tasks in {} classes, {} classes of data blocks, {} replays\n",
            analysis.tasks,
            analysis.plan.classes.len(),
            analysis.block_classes,
            analysis.affinity.replays
        );
        out += &format!(
            "a far byte costs {:.4} ns (slots differ from that by a factor of about {:.2})\n",
            analysis.affinity.seconds_per_byte * 1e9,
            analysis.affinity.spread
        );
        out += &format!(
            "placed: {} of {} tasks ({:.1} %); the rest has no opinion\n",
            analysis.placed_tasks,
            analysis.tasks,
            share(analysis.placed_tasks, analysis.tasks)
        );
        for refusal in analysis.refused.iter().take(5) {
            out += &format!(
                "refused (recursion): {} tasks of {}\n",
                refusal.tasks, refusal.path
            );
        }
        let traffic = |name: &str, traffic: &numaloc_task_plan::Traffic| {
            format!(
                "{name}: {:.3} MB remote of {:.3} MB, {:.6} s lost to distance\n",
                megabytes(traffic.remote_bytes),
                megabytes(traffic.remote_bytes + traffic.local_bytes),
                traffic.remote_seconds
            )
        };
        out += &traffic("predicted with the plan", &analysis.traffic);
        if let Some(hints) = &analysis.hint_traffic {
            out += &traffic("predicted with hints", hints);
            out += &format!(
                "agreement with hints: {} of {} tasks ({:.1} %)\n",
                analysis.hints_agreeing,
                analysis.hints_compared,
                share(analysis.hints_agreeing, analysis.hints_compared)
            );
        }
        let load: Vec<String> = analysis.load.iter().map(|s| format!("{s:.4}")).collect();
        out += &format!("work by node, s: {}\n", load.join(" "));
        if self.classes {
            for (at, class) in analysis.plan.classes.iter().enumerate() {
                out += &format!(
                    "class {at}: {} tasks, node {}, {}\n",
                    analysis.class_tasks[at],
                    class.node.map_or("-".to_owned(), |node| node.to_string()),
                    class.path
                );
            }
        }
        out += &format!("plan: {}\n", self.output.display());
        out
    }
}

fn to_json(analysis: &Analysis) -> Value {
    let traffic = |traffic: &numaloc_task_plan::Traffic| {
        json!({
            "local_bytes": traffic.local_bytes,
            "remote_bytes": traffic.remote_bytes,
            "unknown_bytes": traffic.unknown_bytes,
            "remote_seconds": traffic.remote_seconds,
        })
    };
    let affinities: Vec<Value> = analysis
        .affinity
        .estimates
        .iter()
        .enumerate()
        .flat_map(|(class, slots)| {
            slots.iter().map(move |(slot, estimate)| {
                json!({
                    "class": class,
                    "slot": slot,
                    "seconds": estimate.seconds,
                    "standard_error_seconds": estimate.standard_error,
                    "measured_seconds": estimate.measured,
                    "bytes": estimate.bytes,
                })
            })
        })
        .collect();
    let classes: Vec<Value> = analysis
        .plan
        .classes
        .iter()
        .zip(&analysis.class_tasks)
        .map(|(class, tasks)| {
            json!({
                "template": class.template,
                "path": class.path,
                "tasks": tasks,
                "node": class.node,
            })
        })
        .collect();
    json!({
        "version": 1,
        "tasks": analysis.tasks,
        "classes": classes,
        "block_classes": analysis.block_classes,
        "replays": analysis.affinity.replays,
        "placed_tasks": analysis.placed_tasks,
        "refused_tasks": analysis.refused.iter().map(|refusal| refusal.tasks).sum::<u64>(),
        "seconds_per_far_byte": analysis.affinity.seconds_per_byte,
        "predicted": traffic(&analysis.traffic),
        "predicted_with_hints": analysis.hint_traffic.as_ref().map(traffic),
        "hints_compared": analysis.hints_compared,
        "hints_agreeing": analysis.hints_agreeing,
        "load_seconds": analysis.load,
        "affinities": affinities,
    })
}
