//! `numaloc tasks analyse`: from a profile to a plan.

use std::path::PathBuf;

use clap::ValueEnum;
use numaloc_files::FolderOutput;
use numaloc_task_plan::{
    AnalyseError, Analysis, Distribution, Doubt, LARGER, Options, PLAN_FOLDER, Scales,
    SimulatedRun, Stealing, Traffic, analyse, read_profile, write_plan,
};
use numaloc_topology::resolve;
use serde_json::{Value, json};

use super::file_error;
use crate::error::CliError;
use crate::ui::Ui;

#[derive(Clone, Copy, ValueEnum)]
enum Data {
    /// Whichever of the other two is faster on the tasks of the profile
    Best,
    /// In blocks, in the order of their creators' paths (as in the paper)
    Block,
    /// Together with the tasks, by affinity
    Joint,
}

/// Make a plan from a profile: classes of tasks, their affinities, a node for each
#[derive(clap::Args)]
pub(super) struct Analyse {
    /// Profile folder written by `numaloc tasks profile`
    profile: PathBuf,
    /// Folder for the plan (CSV files that can be read and edited)
    #[arg(long, short, value_name = "FOLDER")]
    output: PathBuf,
    /// The machine to plan for
    #[arg(long, value_name = "MACHINE", default_value = "this")]
    machine: String,
    /// How long-lived data blocks are distributed
    #[arg(long, value_enum, default_value = "best")]
    data: Data,
    /// How far the load of a node may exceed the mean, as a share of the mean
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    slack: f64,
    /// Replace an existing plan, and write the plan even if it is slower than no plan on the tasks of
    /// the profile or places next to nothing
    #[arg(long)]
    force: bool,
    /// List every class
    #[arg(long)]
    classes: bool,
}

impl Analyse {
    pub(super) fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        if !(self.slack.is_finite() && self.slack >= 0.0) {
            return Err(CliError::usage(format!("slack {} is no share", self.slack))
                .expected("a number of at least 0, such as 0.1"));
        }
        // Profiles and plans are both folders of CSV files, and both contain blocks.csv.
        if self.output.join("run.csv").exists() {
            return Err(CliError::usage(format!(
                "{} holds a profile, which the plan would overwrite",
                self.output.display()
            ))
            .expected("another folder for the plan, as in -o plan"));
        }
        let output = FolderOutput::check(&self.output, self.force, PLAN_FOLDER)?;
        let machine = resolve(&self.machine)?;
        let profile = read_profile(&self.profile).map_err(file_error)?;
        let options = Options {
            distribution: match self.data {
                Data::Best => Distribution::Best,
                Data::Block => Distribution::Block,
                Data::Joint => Distribution::Joint,
            },
            slack: self.slack,
        };
        let analysis = analyse(&profile, &machine, options).map_err(|error| {
            let hint = match &error {
                AnalyseError::Recursion { .. } => {
                    "run it without a plan: `numaloc tasks run --steal any`"
                }
                _ => "profile a run that creates data blocks and tasks that use them",
            };
            CliError::tool(error).hint(hint)
        })?;
        if let Some(doubt) = analysis.doubt() {
            let why = match doubt {
                Doubt::Slower => format!(
                    "the plan is slower than no plan on the tasks of the profile with {LARGER} times the data: {:.6} s against {:.6} s by the model",
                    analysis.simulated.larger.seconds,
                    analysis.simulated_without_plan.larger.seconds
                ),
                Doubt::PlacesFewTasks => format!(
                    "the plan places only {} of {} tasks",
                    analysis.placed_tasks, analysis.tasks
                ),
            };
            if !self.force {
                ui.result(|| self.text(&analysis), || to_json(&analysis));
                return Err(CliError::tool(format!("{why}; not written")).hint(
                    "run the program without a plan: `numaloc tasks run`; or write the plan anyway: --force",
                ));
            }
            ui.remark(why);
        }
        output.fill(|folder| write_plan(folder, &analysis.plan).map_err(file_error))?;
        if profile.nodes != analysis.plan.nodes {
            ui.remark(format!(
                "the profile was made for {} nodes, the plan is for {}: hints cannot be compared",
                profile.nodes, analysis.plan.nodes
            ));
        }
        ui.result(
            || self.text(&analysis) + &format!("plan: {}\n", self.output.display()),
            || to_json(&analysis),
        );
        Ok(0)
    }

    fn text(&self, analysis: &Analysis) -> String {
        let share = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
        let mut out = format!(
            "{} tasks in {} classes, {} classes of data blocks, {} replays\n",
            analysis.tasks,
            analysis.plan.classes.len(),
            analysis.block_classes,
            analysis.affinity.replays
        );
        out += &format!(
            "a remote byte costs {:.4} ns (slots differ from this by a factor of about {:.2})\n",
            analysis.affinity.seconds_per_byte * 1e9,
            analysis.affinity.spread
        );
        out += &format!(
            "placed: {} of {} tasks ({:.1} %); the plan leaves the rest open\n",
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
        out += &simulations(analysis);
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
        out
    }
}

/// Traffic in words, one line.
fn traffic(name: &str, traffic: &Traffic) -> String {
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    format!(
        "{name}: {:.3} MB remote of {:.3} MB, {:.6} s lost to distance\n",
        megabytes(traffic.remote_bytes),
        megabytes(traffic.remote_bytes + traffic.local_bytes),
        traffic.remote_seconds
    )
}

/// The simulations of the profile's tasks, with what the plan says about data and stealing.
fn simulations(analysis: &Analysis) -> String {
    let mut out = format!(
        "on the tasks of the profile, by the model of {}; and with blocks {LARGER} times as large, as in a run:\n",
        analysis.plan.machine
    );
    let tried = |name: &str, tried: Option<&Scales>| match tried {
        Some(Scales {
            as_profiled,
            larger,
        }) => format!(
            "  {name:<8} {:.6} s, {:.1} % of bytes remote; {:.6} s, {:.1} %\n",
            as_profiled.seconds,
            100.0 * as_profiled.remote_share(),
            larger.seconds,
            100.0 * larger.remote_share()
        ),
        None => format!("  {name:<8} none in the program\n"),
    };
    out += &tried("no plan", Some(&analysis.simulated_without_plan));
    out += &tried("hints", analysis.simulated_with_hints.as_ref());
    out += &tried("plan", Some(&analysis.simulated));
    out += &format!(
        "distribution of data: {}; idle workers steal {}\n",
        distribution_name(analysis.distribution),
        match analysis.plan.stealing {
            Stealing::Node => "inside their node",
            Stealing::Surplus => "inside their node, and from nodes that fall behind",
            Stealing::Any => "from any node",
        }
    );
    out
}

fn distribution_name(distribution: Distribution) -> &'static str {
    match distribution {
        Distribution::Block => "block",
        Distribution::Joint => "joint",
        Distribution::Best => "best",
    }
}

fn to_json(analysis: &Analysis) -> Value {
    let traffic = |traffic: &Traffic| {
        json!({
            "local_bytes": traffic.local_bytes,
            "remote_bytes": traffic.remote_bytes,
            "unknown_bytes": traffic.unknown_bytes,
            "remote_seconds": traffic.remote_seconds,
        })
    };
    let tried = |tried: &Scales| {
        let one = |tried: &SimulatedRun| {
            json!({
                "seconds": tried.seconds,
                "local_bytes": tried.local_bytes,
                "remote_bytes": tried.remote_bytes,
            })
        };
        json!({"as_profiled": one(&tried.as_profiled), "larger": one(&tried.larger)})
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
        "tried": {
            "no_plan": tried(&analysis.simulated_without_plan),
            "hints": analysis.simulated_with_hints.as_ref().map(tried),
            "plan": tried(&analysis.simulated),
        },
        "distribution": distribution_name(analysis.distribution),
        "steal": analysis.plan.stealing.name(),
        "load_seconds": analysis.load,
        "affinities": affinities,
    })
}
