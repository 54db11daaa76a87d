//! Output of `map`.

use numaloc_mapping::{Evaluation, Mapped};
use numaloc_model::number;
use numaloc_topology::Topology;
use serde_json::{Value, json};

use super::Answer;

/// A table of policies, then every mapping.
pub(super) fn text(machine: &Topology, tasks: usize, answers: &[Answer]) -> String {
    let mut out = format!(
        "{} on {} ({})\n\n",
        number::plural(tasks, "task"),
        machine.name(),
        machine.summary()
    );
    out += &format!(
        "{:<12} {:>16} {:>9} {:>16} {:>8} {:>14} {:>14} {:>10}\n",
        "policy", "cost J", "x bound", "remote", "share", "Load_std", "worst load", "time"
    );
    for answer in answers {
        match &answer.outcome {
            Ok((mapped, value)) => out += &row(answer, mapped, value),
            Err(error) => out += &format!("{:<12} not run: {error}\n", answer.policy),
        }
    }
    let bound = answers
        .iter()
        .find_map(|a| Some(a.outcome.as_ref().ok()?.1.lower_bound));
    if let Some(bound) = bound {
        out += &format!("lower bound  {:>16}\n", number::fixed(bound, 0));
    }
    out += "\ncost J: sum over pairs of amount x distance; x bound: J over a lower bound no mapping can\n\
            beat; remote: amount between NUMA nodes; Load_std, worst load: over the nodes' loads\n";
    for answer in answers {
        if let Ok((mapped, _)) = &answer.outcome {
            out += &format!("\n{}: task -> PU L# (P#)\n", answer.policy);
            out += &mapping(machine, mapped);
        }
    }
    out
}

fn row(answer: &Answer, mapped: &Mapped, value: &Evaluation) -> String {
    let share = if value.total > 0.0 {
        100.0 * value.remote / value.total
    } else {
        0.0
    };
    let mut out = format!(
        "{:<12} {:>16} {:>9} {:>16} {:>6} % {:>14} {:>14} {:>7.2} ms\n",
        answer.policy,
        number::fixed(value.cost, 0),
        number::fixed(value.at_most_times_optimal(), 3),
        number::fixed(value.remote, 0),
        number::fixed(share, 1),
        number::fixed(value.load_std, 1),
        number::fixed(value.worst_load, 0),
        answer.seconds * 1e3
    );
    if let Some(worst) = value.worst_concurrent {
        let worst = number::fixed(worst, 0);
        out += &format!("{:<12} worst concurrent traffic on a node {worst}\n", "");
    }
    if mapped.repaired > 0 {
        out += &format!(
            "{:<12} {} tasks moved to keep capacity\n",
            "", mapped.repaired
        );
    }
    for remark in &mapped.remarks {
        out += &format!("{:<12} {remark}\n", "");
    }
    out
}

/// A mapping, with several tasks per line.
fn mapping(machine: &Topology, mapped: &Mapped) -> String {
    let width = mapped.mapping.pu.len().to_string().len();
    let cell = |(task, pu): (usize, &numaloc_model::LogicalPu)| {
        let os = machine.pus()[pu.index()].os.0;
        let pus = format!("{} ({os})", pu.0);
        format!("{task:>width$} -> {pus:<12}")
    };
    let cells: Vec<String> = mapped.mapping.pu.iter().enumerate().map(cell).collect();
    let lines = cells
        .chunks(5)
        .map(|line| format!("  {}\n", line.join(" ").trim_end()));
    lines.collect()
}

/// The same as JSON. `mapping` is logical indexes, `os_mapping` the kernel's numbers.
pub(super) fn json(machine: &Topology, tasks: usize, answers: &[Answer]) -> Value {
    let policies: Vec<Value> = answers
        .iter()
        .map(|answer| match &answer.outcome {
            Err(error) => json!({"policy": answer.policy, "error": error.to_string()}),
            Ok((mapped, value)) => {
                let pus = &mapped.mapping.pu;
                let diagnostics: serde_json::Map<String, Value> = mapped
                    .diagnostics
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), json!(value)))
                    .collect();
                json!({
                    "policy": answer.policy,
                    "mapping": pus.iter().map(|pu| pu.0).collect::<Vec<_>>(),
                    "os_mapping": pus.iter().map(|pu| machine.pus()[pu.index()].os.0).collect::<Vec<_>>(),
                    "cost": value.cost,
                    "remote": value.remote,
                    "total": value.total,
                    "lower_bound": value.lower_bound,
                    "load_std": value.load_std,
                    "worst_load": value.worst_load,
                    "node_imbalance": value.node_imbalance,
                    "node_loads": value.node_load,
                    "worst_concurrent": value.worst_concurrent,
                    "repaired": mapped.repaired,
                    "diagnostics": diagnostics,
                    "remarks": mapped.remarks,
                    "seconds": answer.seconds,
                })
            }
        })
        .collect();
    json!({
        "version": 1,
        "machine": machine.name(),
        "fingerprint": machine.fingerprint(),
        "tasks": tasks,
        "policies": policies,
    })
}
