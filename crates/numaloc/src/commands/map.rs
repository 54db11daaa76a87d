//! `numaloc map`: from a communication matrix and a machine to mappings, compared.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use numaloc_formats::matrix::{MatrixFormat, looks_reversed, read_matrix};
use numaloc_mapping::{Direction, Evaluation, MapError, MapInput, Mapped, MappingPolicy, Spread};
use numaloc_model::{CommMatrix, TaskGroup};
use numaloc_plan::registry::{self, Place};
use numaloc_topology::{Topology, resolve};

use crate::commands::policies;
use crate::error::CliError;
use crate::ui::Ui;

mod files;
mod shown;

const EXAMPLES: &str = "\
Examples:
  numaloc map matrix.csv --topology \"numa:4 core:8 pu:2\"
  numaloc map matrix.csv --topology epyc-7501 --policy all
  numaloc map SP-OMP.csv --reversed --topology \"numa:4 core:16 pu:1\" --distances 10,2 --policy all
  numaloc map mesh.mtx --topology \"group:64 numa:4 core:16 pu:1\" --budget 10s --json

`--policy all` runs every one.";

/// Map tasks to processing units from a communication matrix, with any policy or all of them
#[derive(clap::Args)]
#[command(after_help = policies::help(EXAMPLES, Place::Matrix))]
pub struct Args {
    /// Communication matrix: CSV, .npy, .mtx (MatrixMarket) or .edges (`src dst [amount]` lines)
    #[arg(value_name = "MATRIX")]
    matrix: PathBuf,
    /// `this`, an hwloc XML file, a .toml machine file, a described machine or a synthetic string
    #[arg(
        long,
        visible_alias = "machine",
        value_name = "MACHINE",
        default_value = "this"
    )]
    topology: String,
    /// Distance per branching level of the machine, root first, for example 10,2,1
    #[arg(long, value_name = "D,D,...", value_delimiter = ',')]
    distances: Vec<f64>,
    /// CSV file of nodes x nodes distances, for example measured ones
    #[arg(long, value_name = "FILE", conflicts_with = "distances")]
    node_distances: Option<PathBuf>,
    /// Mapping policy, or `all`
    #[arg(long, value_name = "POLICY", default_value = numaloc_mapping::policies::DEFAULT_POLICY)]
    policy: String,
    /// File with each task's memory load, one number per task (separated by commas, blanks or lines)
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,
    /// File with the pairs that communicate at the same time: `group task task amount` lines
    #[arg(long, value_name = "FILE")]
    groups: Option<PathBuf>,
    /// Format of the matrix (default: by file extension)
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    format: Option<MatrixFormat>,
    /// Rows run from the last task to the first, as numalize and EagerMap write them
    #[arg(long)]
    reversed: bool,
    /// Reject a matrix that is not symmetric
    #[arg(long, conflicts_with = "directed")]
    symmetric: bool,
    /// Treat the two cells of a pair as separate flows and add them up even if they are equal
    #[arg(long)]
    directed: bool,
    /// If there are fewer tasks than PUs, spread them over the whole machine
    #[arg(long, conflicts_with = "compact")]
    spread: bool,
    /// If there are fewer tasks than PUs, fill as few nodes as possible
    #[arg(long)]
    compact: bool,
    /// Time for which policy `numaloc` searches, for example 100ms or 10s
    #[arg(long, value_name = "TIME", value_parser = duration)]
    budget: Option<Duration>,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The answer of one policy.
struct Answer {
    policy: &'static str,
    outcome: Result<(Mapped, Evaluation), MapError>,
    seconds: f64,
}

impl Args {
    /// Maps and prints.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let chosen = registry::mapping(&self.policy)?;
        let machine = self.machine()?;
        let matrix = self.matrix(ui)?;
        let load = self
            .load
            .as_deref()
            .map(|path| files::load(path, matrix.threads()))
            .transpose()?;
        let groups = match &self.groups {
            Some(path) => files::groups(path, &matrix)?,
            None => Vec::new(),
        };
        let answers: Vec<Answer> = chosen
            .iter()
            .map(|policy| self.answer(*policy, &matrix, &machine, load.as_deref(), &groups))
            .collect();
        if let [
            Answer {
                outcome: Err(error),
                ..
            },
        ] = &answers[..]
        {
            return Err(CliError::tool(error));
        }
        ui.result(
            || shown::text(&machine, matrix.threads(), &answers),
            || shown::json(&machine, matrix.threads(), &answers),
        );
        Ok(0)
    }

    fn answer(
        &self,
        policy: &'static dyn MappingPolicy,
        matrix: &CommMatrix,
        machine: &Topology,
        load: Option<&[f64]>,
        groups: &[TaskGroup],
    ) -> Answer {
        let spread = match (self.spread, self.compact) {
            (true, _) => Spread::Spread,
            (_, true) => Spread::Compact,
            _ => Spread::Auto,
        };
        let direction = if self.directed {
            Direction::Directed
        } else {
            Direction::Auto
        };
        let start = Instant::now();
        let expired = || self.budget.is_some_and(|budget| start.elapsed() >= budget);
        let mut input = MapInput::directed(matrix, direction, machine)
            .with_load(load)
            .with_groups(groups)
            .with_spread(spread)
            .with_seed(self.seed);
        if self.budget.is_some() {
            input = input.with_budget(&expired);
        }
        let mapped = numaloc_mapping::map(policy, &input);
        let seconds = start.elapsed().as_secs_f64();
        let outcome = mapped.map(|mapped| {
            let value = numaloc_mapping::evaluate(&input, &mapped.mapping);
            (mapped, value)
        });
        Answer {
            policy: policy.name(),
            outcome,
            seconds,
        }
    }

    fn machine(&self) -> Result<Topology, CliError> {
        let machine = resolve(&self.topology)?;
        if let Some(path) = &self.node_distances {
            let distances = files::numbers(path)?;
            return machine
                .with_node_distances(distances)
                .map_err(|why| CliError::usage(format!("cannot use {}: {why}", path.display())));
        }
        if self.distances.is_empty() {
            return Ok(machine);
        }
        let levels: Vec<String> = machine
            .levels()
            .iter()
            .map(|level| format!("{:?}", level.kind))
            .collect();
        machine
            .with_level_distances(&self.distances)
            .map_err(|why| {
                CliError::usage(format!("cannot use --distances: {why}"))
                    .expected(format!("one number for each of: {}", levels.join(", ")))
            })
    }

    fn matrix(&self, ui: &Ui) -> Result<CommMatrix, CliError> {
        let format = self
            .format
            .or_else(|| MatrixFormat::of_path(&self.matrix))
            .unwrap_or(MatrixFormat::Csv);
        let matrix = read_matrix(&self.matrix, format, self.reversed)?;
        if self.symmetric {
            refuse_asymmetric(&self.matrix, &matrix)?;
        }
        if !self.reversed && looks_reversed(&matrix) {
            ui.remark(format!(
                "the anti-diagonal of {} is zero: are its rows in reverse order (--reversed)?",
                self.matrix.display()
            ));
        }
        Ok(matrix)
    }
}

fn refuse_asymmetric(path: &Path, matrix: &CommMatrix) -> Result<(), CliError> {
    match matrix
        .cells()
        .find(|&(i, j, amount)| matrix.get(j, i) != amount)
    {
        None => Ok(()),
        Some((i, j, amount)) => Err(CliError::tool(format!(
            "matrix {} is not symmetric: cell ({i}, {j}) is {amount}, cell ({j}, {i}) is {}",
            path.display(),
            matrix.get(j, i)
        ))
        .hint("without --symmetric the two cells are added up")),
    }
}

fn format(given: &str) -> Result<MatrixFormat, String> {
    MatrixFormat::from_name(given).ok_or_else(|| {
        let names: Vec<&str> = MatrixFormat::ALL
            .into_iter()
            .map(MatrixFormat::name)
            .collect();
        format!("expected one of: {}", names.join(", "))
    })
}

/// A time with its unit.
pub(super) fn duration(given: &str) -> Result<Duration, String> {
    let digits = given.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds = match &given[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        _ => return Err("expected a time such as 100ms, 10s or 2min".to_owned()),
    };
    let number: f64 = digits
        .parse()
        .map_err(|_| format!("{digits:?} is not a number"))?;
    Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())
}
