//! `numaloc lab compare`: the same program on the same machine under several placements.

use std::path::{Path, PathBuf};

use numaloc_lab::{Job, Outcome, Sinks, balance};
use numaloc_model::number;
use serde_json::{Value, json};

use super::topology::Buffer;
use super::{Lab, Program, Shape, launch, shown};
use crate::error::CliError;
use crate::ui::Ui;

/// Compare first-touch, interleave, AutoNUMA and plans: same program, same machine
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc lab compare -- ./app 1000
  numaloc lab compare --plan joint.json --plan locality.json --runs 3 -- ./app 1000
  numaloc lab compare --nodes 2 --cpus 4 --json --plan plan.json -- ./app

Every run boots the machine anew. The program's output is kept back; if it differs between runs, that
is said.")]
pub struct Args {
    #[command(flatten)]
    shape: Shape,
    /// A plan to compare (repeatable); its row is named after the file
    #[arg(long = "plan", value_name = "FILE")]
    plans: Vec<PathBuf>,
    /// Runs of each row
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    #[command(flatten)]
    program: Program,
}

/// How a row's runs are started.
enum Start<'a> {
    FirstTouch,
    Interleave,
    AutoNuma,
    Plan(&'a Path),
}

impl Start<'_> {
    fn name(&self) -> String {
        match self {
            Self::FirstTouch => "first-touch".into(),
            Self::Interleave => "interleave".into(),
            Self::AutoNuma => "autonuma".into(),
            Self::Plan(path) => path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
        }
    }

    fn job(&self, program: &Program) -> Result<Job, CliError> {
        let mut job = program.job()?;
        match self {
            Self::FirstTouch => {}
            Self::Interleave => launch::with_numactl(&mut job, "--interleave=all")?,
            Self::AutoNuma => job.autonuma = true,
            Self::Plan(path) => launch::with_plan(&mut job, path, None)?,
        }
        Ok(job)
    }
}

/// One row of the table.
struct Row {
    name: String,
    outcomes: Vec<Outcome>,
    /// What the last run's launcher and program said on stderr.
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

    /// The run in the middle by remote share.
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
        let mut starts = vec![Start::FirstTouch, Start::Interleave, Start::AutoNuma];
        starts.extend(self.plans.iter().map(|plan| Start::Plan(plan)));
        let mut rows = Vec::new();
        let mut said: Option<String> = None;
        for start in &starts {
            let job = start.job(&self.program)?;
            let mut row = Row {
                name: start.name(),
                outcomes: Vec::new(),
                words: String::new(),
            };
            for run in 1..=self.runs {
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
                    let last = row.words.lines().last().unwrap_or("no message").to_owned();
                    return Err(CliError::tool(format!(
                        "{}: the program ended with status {status}: {last}",
                        row.name
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
            rows.push(row);
        }
        ui.result(|| text(&lab, &rows), || json(&lab, &rows));
        Ok(0)
    }
}

fn text(lab: &Lab, rows: &[Row]) -> String {
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
    out
}

fn json(lab: &Lab, rows: &[Row]) -> Value {
    json!({
        "version": 1,
        "machine": lab.machine.name,
        "rows": rows.iter().map(|row| json!({
            "name": row.name,
            "remote_share": row.median().accesses.remote_share(),
            "remote_shares": row.remote_shares(),
            "stderr": row.words,
            "runs": row.outcomes.iter().map(|run| shown::json(&lab.machine, run)).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    })
}
