//! `numaloc tasks analyze`: from a profile to a plan.

use std::path::PathBuf;

use clap::ValueEnum;
use numaloc_task_plan::{
    Analysis, AnalyzeError, Distribution, Options, analyze, read_profile, write_plan,
};
use numaloc_topology::resolve;
use serde_json::{Value, json};

use super::file_error;
use crate::error::CliError;
use crate::ui::Ui;

#[derive(Clone, Copy, ValueEnum)]
enum Data {
    /// In blocks, in the order of creation (the paper's)
    Block,
    /// Together with the tasks, from the affinities
    Joint,
}

/// Make a plan from a profile: classes of tasks, their affinities, a node for each
#[derive(clap::Args)]
pub(super) struct Analyze {
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

impl Analyze {
    pub(super) fn run(&self, ui: &Ui) -> Result<u8, CliError> {
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
