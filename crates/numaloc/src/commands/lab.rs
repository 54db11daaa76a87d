//! `numaloc lab`: run a program in a virtual NUMA machine and count who accesses whose memory.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use numaloc_lab::{HugePages, Job, Kernel, LabError, Machine, Outcome, PrivateCache, Sinks};
use numaloc_topology::resolve;

use crate::error::CliError;
use crate::ui::Ui;

mod compare;
mod launch;
mod shown;
mod topology;

pub(super) use self::launch::plugin;

/// Run a program in a virtual NUMA machine (real Linux kernel, emulated nodes) and count its accesses
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
Examples:
  numaloc lab -- ./app 1000
  numaloc lab --nodes 2 --cpus 4 --autonuma --json -- ./app
  numaloc lab --numactl \"--interleave=all\" -- ./app
  numaloc lab topology --output lab.xml
  numaloc plan app.numaloc --machine lab.xml -o plan.json
  numaloc lab --plan plan.json -- ./app
  numaloc lab --kernel linux-image-6.12-cloud-amd64 --weights 3,1 --nodes 2 --plan plan.json -- ./app
  numaloc lab compare --plan plan.json -- ./app

The program's output and exit status are passed through; the report goes to stderr, with --json to
stdout (and the program's output to stderr). Exit status: the program's own; 125 when numaloc itself fails,
126 when the program cannot be executed, 127 when there is no such program, 124 after a time-out.")]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    single: Single,
}

#[derive(clap::Subcommand)]
enum Action {
    Compare(compare::Args),
    Topology(topology::Args),
}

/// One run.
#[derive(clap::Args)]
struct Single {
    #[command(flatten)]
    shape: Shape,
    /// Let the guest's kernel balance pages and threads (AutoNUMA)
    #[arg(long)]
    autonuma: bool,
    /// Apply this plan (`numaloc run --plan` inside the guest)
    #[arg(long, value_name = "FILE", conflicts_with = "numactl")]
    plan: Option<PathBuf>,
    /// Place threads and pages by what the program does (`numaloc run --online` inside the guest, with
    /// these options)
    #[arg(long, value_name = "OPTIONS", num_args = 0..=1, default_missing_value = "", require_equals = true, conflicts_with_all = ["plan", "numactl"])]
    online: Option<String>,
    /// With --online: sample one in N accesses below the private caches, as a PMU does
    #[arg(long, value_name = "N", requires = "online", value_parser = clap::value_parser!(u32).range(1..))]
    samples: Option<u32>,
    /// Exit with status 3 if fewer percent of the planned threads or pages are in place
    #[arg(long, value_name = "PERCENT", requires = "plan")]
    require: Option<f64>,
    /// Start the program with numactl and these arguments
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true)]
    numactl: Option<String>,
    #[command(flatten)]
    program: Program,
}

/// The machine.
#[derive(clap::Args, Clone)]
pub struct Shape {
    /// Take nodes, CPUs and distances from this machine (see `numaloc topology --help`), with --memory
    /// per node
    #[arg(long, value_name = "MACHINE", conflicts_with_all = ["nodes", "cpus", "distances"])]
    machine: Option<String>,
    /// Number of memory nodes
    #[arg(long, value_name = "N", default_value_t = 4)]
    nodes: usize,
    /// Number of CPUs, distributed evenly over the nodes
    #[arg(long, value_name = "N", default_value_t = 8)]
    cpus: usize,
    /// Memory of each node
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = crate::size::byte_size)]
    memory: u64,
    /// Node distances, row by row, 10 = local (default: 20 between different nodes)
    #[arg(long, value_name = "D,D,...", value_delimiter = ',')]
    distances: Vec<u8>,
    /// A Debian package with a cloud kernel, fetched once with apt and kept, or a folder with an unpacked one
    /// [default: linux-image-cloud-amd64]
    #[arg(long, value_name = "PACKAGE|FOLDER")]
    kernel: Option<String>,
}

/// The program and its environment in the guest.
#[derive(clap::Args, Clone)]
pub struct Program {
    /// File or folder to copy into the guest: HOST or HOST:GUEST
    #[arg(long = "file", value_name = "HOST[:GUEST]")]
    files: Vec<String>,
    /// Environment variable for the program: NAME=VALUE, or NAME to pass the current value on
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    environment: Vec<String>,
    /// File for the program's standard input (default: empty)
    #[arg(long, value_name = "FILE")]
    stdin: Option<PathBuf>,
    /// Transparent huge pages in the guest: never, madvise or always
    #[arg(long, value_name = "WHEN", default_value = "never", value_parser = huge_pages)]
    huge_pages: HugePages,
    /// Size of the private cache of each CPU, which filters accesses before they are counted; 0 counts
    /// every access
    #[arg(long, value_name = "SIZE", default_value = "256K", value_parser = crate::size::byte_size)]
    cache: u64,
    /// Weight of each node for the guest's weighted interleaving (Linux 6.9 or newer), for example 3,1
    #[arg(long, value_name = "W,W,...", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..))]
    weights: Vec<u8>,
    /// Time limit of the run in seconds, not counting the boot
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    timeout: u64,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

fn huge_pages(given: &str) -> Result<HugePages, String> {
    [HugePages::Never, HugePages::Madvise, HugePages::Always]
        .into_iter()
        .find(|kind| kind.name() == given)
        .ok_or_else(|| "expected never, madvise or always".to_owned())
}

impl Args {
    /// Runs the program once, or hands over to a subcommand.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        match &self.action {
            Some(Action::Compare(args)) => args.run(ui),
            Some(Action::Topology(args)) => args.run(ui),
            None => self.single.run(ui),
        }
    }
}

impl Single {
    fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let lab = Lab::new(&self.shape, ui)?;
        let mut job = self.program.job()?;
        job.autonuma = self.autonuma;
        if let Some(plan) = &self.plan {
            let percent = self.require.map(|percent| percent.to_string());
            let require = percent.iter().flat_map(|percent| ["--require", percent]);
            launch::with_plan(&mut job, plan, &require.collect::<Vec<_>>())?;
        } else if let Some(arguments) = &self.numactl {
            launch::with_numactl(&mut job, arguments)?;
        } else if let Some(options) = &self.online {
            launch::with_online(&mut job, options)?;
            job.sample_period = self.samples;
        }
        ui.remark(format!("booting {}", lab.machine.name));
        let outcome = lab.run(&job, ui.json)?;
        ui.result(String::new, || shown::json(&lab.machine, &outcome));
        if !ui.json && !ui.quiet {
            crate::ui::stderr(&shown::text(&lab.machine, &outcome));
        }
        match (outcome.ended.status(), outcome.unwritten) {
            // The program's own status takes precedence over our failure to write its output.
            (0, Some(why)) => Err(CliError::tool(format!(
                "cannot write standard output of the program: {why}"
            ))),
            (status, _) => Ok(status),
        }
    }
}

/// A machine ready to be booted.
pub struct Lab {
    /// Layout of the virtual machine.
    pub machine: Machine,
    kernel: Kernel,
    plugin: PathBuf,
}

impl Lab {
    /// Finds the guest's kernel and the counting plugin.
    pub fn new(shape: &Shape, ui: &Ui) -> Result<Self, CliError> {
        let machine = shape.machine()?;
        let kernel = match &shape.kernel {
            Some(what) => Kernel::named(what, &|text| ui.remark(text)),
            None => Kernel::get(&|text| ui.remark(text)),
        }
        .map_err(error)?;
        Ok(Self {
            machine,
            kernel,
            plugin: launch::plugin()?,
        })
    }

    /// Boots and runs; the program's standard output goes to stderr when `json` has stdout.
    pub fn run(&self, job: &Job, json: bool) -> Result<Outcome, CliError> {
        let sinks = Sinks {
            out: if json {
                Box::new(io::stderr())
            } else {
                Box::new(io::stdout())
            },
            err: Box::new(io::stderr()),
        };
        self.run_into(job, sinks)
    }

    /// Boots and runs; the program's output goes to the given writers.
    pub fn run_into(&self, job: &Job, sinks: Sinks) -> Result<Outcome, CliError> {
        let outcome = numaloc_lab::run(&self.machine, &self.kernel, &self.plugin, job, sinks)
            .map_err(error)?;
        let unknown = outcome.counts.unknown;
        // A page may be unmapped between the access and the lookup of its node; more than a trace of such accesses is
        // an error.
        if unknown > 100 + outcome.all_accesses.total() / 10_000 {
            return Err(error(LabError::Counts(format!(
                "{unknown} accesses went to memory of no node ({} layout)",
                outcome.counts.layout
            ))));
        }
        Ok(outcome)
    }
}

impl Shape {
    fn machine(&self) -> Result<Machine, CliError> {
        match &self.machine {
            Some(name) => Machine::like(&resolve(name)?, self.memory),
            None => {
                let distances = (!self.distances.is_empty()).then_some(self.distances.as_slice());
                Machine::even(self.nodes, self.cpus, self.memory, distances)
            }
        }
        .map_err(error)
    }
}

impl Program {
    /// The job, without numactl or `numaloc run` in front of it.
    fn job(&self) -> Result<Job, CliError> {
        let mut job = Job::new(launch::program(&self.command[0])?, &[]);
        job.arguments = self.command[1..].to_vec();
        job.environment = launch::environment(&self.environment)?;
        job.folder = std::env::current_dir()
            .map_err(|error| CliError::tool(format!("cannot find the working folder: {error}")))?;
        job.stdin = self.stdin.clone();
        job.files = self
            .files
            .iter()
            .map(|file| launch::file(file))
            .collect::<Result<_, _>>()?;
        job.huge_pages = self.huge_pages;
        job.weights = self.weights.clone();
        job.cache = PrivateCache {
            bytes: self.cache,
            ..PrivateCache::default()
        };
        job.timeout = Duration::from_secs(self.timeout);
        Ok(job)
    }
}

/// Exit status: 125 to 127 for our own failures as in `env`, 124 for a time-out as in `timeout`, 128 + number for
/// a signal.
fn error(error: LabError) -> CliError {
    let status = match &error {
        LabError::NotStarted { errno: 2, .. } => 127,
        LabError::NotStarted { .. } => 126,
        LabError::Timeout { .. } => 124,
        LabError::Interrupted { signal } => numaloc_launch::status_of_signal(*signal),
        LabError::Machine(_) => crate::error::USAGE,
        _ => 125,
    };
    let hint = match &error {
        LabError::Tool { package, .. } => Some(format!("apt-get install {package}")),
        LabError::Timeout { .. } => Some("a smaller input, or a longer --timeout".to_owned()),
        LabError::NotStarted { .. } => Some("--file for what the program needs".to_owned()),
        _ => None,
    };
    let failed = CliError::tool(error).status(status);
    match hint {
        Some(hint) => failed.hint(hint),
        None => failed,
    }
}
