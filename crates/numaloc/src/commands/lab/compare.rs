//! `numaloc lab compare`: the same program on the same machine under several placements.

use std::fmt;
use std::path::{Path, PathBuf};

use numaloc_lab::{Job, LabError, Machine, Outcome, Sinks, balance};
use numaloc_launch::Stop;
use numaloc_model::plan::{Plan, ThreadPlan};
use numaloc_model::{Mapping, OsPu, number};
use serde_json::{Value, json};

use super::topology::Buffer;
use super::{Lab, Program, Shape, error, launch, shown};
use crate::error::CliError;
use crate::ui::Ui;

/// Compare first-touch, bound threads, interleave, AutoNUMA and plans: same program, same machine
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc lab compare -- ./app 1000
  numaloc lab compare --rows first-touch,pinned -- ./app 1000
  numaloc lab compare --plan joint.json --plan locality.json --runs 3 -- ./app 1000
  numaloc lab compare --nodes 2 --cpus 4 --json --plan plan.json -- ./app

`pinned` is first touch with threads bound in the order of their creation, in even blocks over the CPUs.
It shows the gain of binding alone; what a plan gains over it is due to mapping and placement. Its threads
are those of the first plan or, without a plan, the first thread and those it creates, one for each CPU.

Every run has a machine of its own. The program's output is not shown; a warning is printed if it differs
between runs.")]
pub struct Args {
    #[command(flatten)]
    shape: Shape,
    /// Plan to compare (repeatable); its row is named after the file
    #[arg(long = "plan", value_name = "FILE")]
    plans: Vec<PathBuf>,
    /// Rows to measure in addition to those of the plans
    #[arg(long, value_name = "ROW,...", value_delimiter = ',', default_values_t = Baseline::ALL)]
    rows: Vec<Baseline>,
    /// Measure only the plans
    #[arg(long, requires = "plans", conflicts_with = "rows")]
    only_plans: bool,
    /// Number of runs of each row
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    #[command(flatten)]
    program: Program,
}

/// Rows that plans are compared with.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Baseline {
    FirstTouch,
    Pinned,
    Interleave,
    Autonuma,
}

impl Baseline {
    const ALL: [Self; 4] = [
        Self::FirstTouch,
        Self::Pinned,
        Self::Interleave,
        Self::Autonuma,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::FirstTouch => "first-touch",
            Self::Pinned => "pinned",
            Self::Interleave => "interleave",
            Self::Autonuma => "autonuma",
        }
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a row's runs are started.
enum Start<'a> {
    Baseline(Baseline),
    Plan(&'a Path),
}

impl Start<'_> {
    fn name(&self) -> String {
        match self {
            Self::Baseline(row) => row.name().to_owned(),
            Self::Plan(path) => path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
        }
    }

    /// The job of one run; `pinned` is the plan of that row.
    fn job(&self, program: &Program, pinned: &Path) -> Result<Job, CliError> {
        let mut job = program.job()?;
        match self {
            Self::Baseline(Baseline::FirstTouch) => {}
            Self::Baseline(Baseline::Pinned) => {
                launch::with_plan(&mut job, pinned, &["--force-machine"])?;
            }
            Self::Baseline(Baseline::Interleave) => {
                launch::with_numactl(&mut job, "--interleave=all")?;
            }
            Self::Baseline(Baseline::Autonuma) => job.autonuma = true,
            Self::Plan(path) => launch::with_plan(&mut job, path, &[])?,
        }
        Ok(job)
    }
}

/// The plan of row `pinned`: these threads in order, in even blocks over the CPUs; no pages. The lab numbers
/// CPUs node by node, so kernel numbers are all that it needs.
fn pinned(paths: &[String], cpus: usize) -> Plan {
    let mapping = Mapping::blocks(paths.len(), cpus);
    let mut plan = Plan::by_hand("lab", "");
    let threads = paths.iter().zip(mapping.pu);
    plan.threads = threads
        .map(|(path, pu)| ThreadPlan {
            path: path.clone(),
            pu,
            os_pu: OsPu(pu.0),
        })
        .collect();
    plan
}

/// One row of the table.
struct Row {
    name: String,
    outcomes: Vec<Outcome>,
    /// Output of the last run's launcher and program on stderr.
    words: String,
}

impl Row {
    fn remote_shares(&self) -> Vec<f64> {
        let mut shares: Vec<f64> = self
            .outcomes
            .iter()
            .map(|outcome| outcome.accesses.remote_share())
            .collect();
        shares.sort_by(f64::total_cmp);
        shares
    }

    /// The median run by remote share.
    fn median(&self) -> &Outcome {
        let mut order: Vec<&Outcome> = self.outcomes.iter().collect();
        order.sort_by(|a, b| {
            a.accesses
                .remote_share()
                .total_cmp(&b.accesses.remote_share())
        });
        order[order.len() / 2]
    }
}

impl Args {
    /// Runs every row and prints the table; status 1 if a run of the program failed.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let lab = Lab::new(&self.shape, ui)?;
        let baselines: &[Baseline] = if self.only_plans { &[] } else { &self.rows };
        let mut starts: Vec<Start> = baselines.iter().copied().map(Start::Baseline).collect();
        starts.extend(self.plans.iter().map(|plan| Start::Plan(plan)));
        let folder = tempfile::tempdir().map_err(|error| {
            CliError::tool(format!("cannot create a temporary folder: {error}")).status(125)
        })?;
        let pinned_plan = folder.path().join("pinned.json");
        let pinned = pinned(&self.threads(&lab)?, lab.machine.cpu_count());
        numaloc_formats::plan::write(&pinned, &pinned_plan, false)?;
        let mut rows = Vec::new();
        // From here on a signal ends the present run, not this process: what was measured is shown.
        let stop = Stop::new()
            .map_err(|error| CliError::tool(format!("no signal handler: {error}")).status(125))?;
        let measured = self.measure(&lab, &starts, &pinned_plan, &stop, &mut rows, ui);
        rows.retain(|row| !row.outcomes.is_empty());
        let complete = measured.is_ok();
        ui.result(
            || match rows.is_empty() {
                true => String::new(),
                false => text(&lab, &rows, complete),
            },
            || json(&lab.machine, &rows, self.runs, complete),
        );
        measured.map(|()| 0)
    }

    /// Measures row by row, run by run.
    fn measure(
        &self,
        lab: &Lab,
        starts: &[Start<'_>],
        pinned_plan: &Path,
        stop: &Stop,
        rows: &mut Vec<Row>,
        ui: &Ui,
    ) -> Result<(), CliError> {
        let mut said: Option<String> = None;
        for start in starts {
            let job = start.job(&self.program, pinned_plan)?;
            rows.push(Row {
                name: start.name(),
                outcomes: Vec::new(),
                words: String::new(),
            });
            let Some(row) = rows.last_mut() else { continue };
            for run in 1..=self.runs {
                if let Some(signal) = stop.signal() {
                    return Err(error(LabError::Interrupted { signal }));
                }
                ui.remark(format!("{}: run {run} of {}", row.name, self.runs));
                let (out, err) = (Buffer::default(), Buffer::default());
                let sinks = Sinks {
                    out: Box::new(out.clone()),
                    err: Box::new(err.clone()),
                };
                let outcome = lab.run_into(&job, sinks)?;
                row.words = err.text();
                let status = outcome.ended.status();
                if status != 0 {
                    return Err(CliError::tool(format!(
                        "{}: the program ended with status {status}: {}",
                        row.name,
                        reason(&row.words)
                    )));
                }
                if said.get_or_insert_with(|| out.text()) != &out.text() {
                    ui.remark(format!(
                        "{}: the program's output differs from the first run's",
                        row.name
                    ));
                }
                row.outcomes.push(outcome);
            }
        }
        Ok(())
    }

    /// Paths of the threads that row `pinned` binds, in the order of their creation.
    fn threads(&self, lab: &Lab) -> Result<Vec<String>, CliError> {
        let Some(first) = self.plans.first() else {
            let children = (1..lab.machine.cpu_count()).map(|number| format!("0.{number}"));
            return Ok(std::iter::once("0".to_owned()).chain(children).collect());
        };
        let plan = numaloc_formats::plan::read(first)?;
        Ok(plan.threads.into_iter().map(|thread| thread.path).collect())
    }
}

fn text(lab: &Lab, rows: &[Row], complete: bool) -> String {
    let mut out = format!("{}\n", lab.machine.name);
    out += &format!(
        "{:<16} {:>8} {:>10} {:>10} {:>8} {:>9} {:>11} {:>9}\n",
        "", "remote", "remote", "accesses", "balance", "over time", "hint faults", "migrated"
    );
    for row in rows {
        let run = row.median();
        let counter = |name| run.guest.counters.get(name).copied().unwrap_or(0);
        out += &format!(
            "{:<16} {:>6} % {:>10} {:>10} {:>8} {:>9} {:>11} {:>9}",
            row.name,
            number::fixed(100.0 * run.accesses.remote_share(), 1),
            shown::short(run.accesses.remote()),
            shown::short(run.accesses.total()),
            number::fixed(balance(&run.accesses.controllers()), 3),
            number::fixed(run.balance_over_time(), 3),
            shown::short(counter("numa_hint_faults")),
            shown::short(counter("numa_pages_migrated")),
        );
        let shares = row.remote_shares();
        if let ([first, .., last], true) = (shares.as_slice(), shares.len() > 1) {
            out += &format!(
                "  ({} to {} %)",
                number::fixed(100.0 * first, 1),
                number::fixed(100.0 * last, 1)
            );
        }
        out.push('\n');
    }
    out +=
        "accesses are those below the private caches; balance: 1 even, 0 one controller has all\n";
    if !complete {
        out += "incomplete: the other rows or runs were not measured\n";
    }
    out
}

fn json(machine: &Machine, rows: &[Row], runs: u32, complete: bool) -> Value {
    json!({
        "version": 1,
        "machine": machine.name,
        "complete": complete,
        "rows": rows.iter().map(|row| json!({
            "name": row.name,
            "complete": row.outcomes.len() == runs as usize,
            "remote_share": row.median().accesses.remote_share(),
            "remote_shares": row.remote_shares(),
            "stderr": row.words,
            "runs": row.outcomes.iter().map(|run| shown::json(machine, run)).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    })
}

/// Why a program ended: its last line of error, without the hints below it, or else its last line.
fn reason(words: &str) -> &str {
    let errors = words.lines().rev().find(|line| line.starts_with("error: "));
    errors.or(words.lines().last()).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_line_of_error_above_its_hints() {
        let words = "numaloc: run 1\nerror: no such plan\n  try: make one";
        assert_eq!(reason(words), "error: no such plan");
        assert_eq!(reason("Killed\n"), "Killed");
        assert_eq!(reason(""), "no message");
    }

    #[test]
    fn pinned_threads_have_kernel_numbers_in_order_and_no_pages() {
        let paths: Vec<String> = (0..4).map(|t| format!("0.{t}")).collect();
        let plan = pinned(&paths, 8);
        assert!(plan.pages.is_empty());
        let threads = plan.threads.iter();
        let found: Vec<_> = threads
            .map(|thread| (&thread.path, thread.os_pu.0))
            .collect();
        let expected: Vec<_> = paths.iter().zip([0, 2, 4, 6]).collect();
        assert_eq!(found, expected);
    }
}
