//! Output of `plan`.

use numaloc_model::number::{self, plural};
use numaloc_plan::Unplanned;
use serde_json::{Value, json};

use super::Answer;

/// A share as a percentage with one decimal.
fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 {
        number::fixed(100.0 * part / whole, 1) + " %"
    } else {
        "-".to_owned()
    }
}

/// Two tables and a line about the plan.
pub(super) fn text(answer: &Answer) -> String {
    let planned = &answer.planned;
    let (machine, subject) = (planned.request().machine, planned.request().subject);
    let mut out = format!(
        "machine: {} ({})\n\nthreads, by {} communication in {}:\n",
        machine.name(),
        machine.summary(),
        subject.layer().name(),
        subject.unit().name()
    );
    out += &thread_policies(answer);
    out += &format!("  load: {}\n", subject.load_in_words());
    out += &format!(
        "\npages, threads mapped by {}:\n",
        planned.threads()[0].policy
    );
    out += &page_policies(answer);
    if let Some((dynamic, schedule)) = &answer.dynamic {
        out += &super::dynamic::text(dynamic, schedule);
    }
    out += &written(answer);
    out
}

/// The table of thread policies and its legend.
fn thread_policies(answer: &Answer) -> String {
    let rows = answer.planned.threads();
    let cluster = rows.iter().any(|row| row.between_hosts.is_some());
    let hosts = |text: String| {
        if cluster {
            format!(" {text:>13}")
        } else {
            String::new()
        }
    };
    let mut out = format!(
        "  {:<12}{} {:>10} {:>14} {:>9} {:>12} {:>9}\n",
        "policy",
        hosts("between hosts".to_owned()),
        "remote",
        "cost",
        "x bound",
        "node load",
        "time"
    );
    for row in rows {
        let value = &row.value;
        out += &format!(
            "  {:<12}{} {:>10} {:>14} {:>9} {:>9} x {:>6.1} ms\n",
            row.policy,
            hosts(percent(row.between_hosts.unwrap_or(0.0), value.total)),
            percent(value.remote, value.total),
            number::fixed(value.cost, 0),
            number::fixed(value.at_most_times_optimal(), 2),
            number::fixed(value.node_imbalance, 2),
            answer.times.of(row.work()) * 1e3
        );
        for remark in &row.mapped.remarks {
            out += &format!("    {remark}\n");
        }
    }
    out += "  remote: share of communication between nodes; cost: sum of amount x distance;\n";
    out += "  x bound: cost over a lower bound no mapping can beat; node load: largest over mean\n";
    out
}

/// The table of page policies and its legend, with the ways of running without a plan first.
fn page_policies(answer: &Answer) -> String {
    let mut out = format!(
        "  {:<12} {:>16} {:>10} {:>9}\n",
        "policy", "remote accesses", "spilled", "time"
    );
    let (remote, accesses) = answer.unplanned.bound;
    if accesses > 0 {
        for (name, share) in [
            ("unbound", percent(answer.unplanned.free, 1.0)),
            ("pinned", percent(remote as f64, accesses as f64)),
        ] {
            out += &format!("  {name:<12} {share:>16} {:>10} {:>9}\n", "-", "-");
        }
    }
    for row in answer.planned.pages() {
        out += &format!(
            "  {:<12} {:>16} {:>10} {:>6.1} ms\n",
            row.policy,
            percent(row.remote as f64, row.accesses as f64),
            row.spilled,
            answer.times.of(row.work()) * 1e3
        );
        for remark in &row.remarks {
            out += &format!("    {remark}\n");
        }
    }
    if accesses > 0 {
        out += "  unbound: first touch if the kernel moves threads between nodes, at worst;\n";
        out += "  pinned: first touch with threads bound in the order of their creation\n";
    }
    out
}

/// What was written to the plan; empty if nothing was.
fn written(answer: &Answer) -> String {
    let Some((path, assembled)) = &answer.written else {
        return String::new();
    };
    let plan = &assembled.plan;
    let pages: u64 = plan.pages.iter().map(|range| range.pages).sum();
    let mut out = format!(
        "\nplan: {}, {} in {} of {} -> {}\n",
        plural(plan.threads.len(), "thread"),
        plural(pages as usize, "page"),
        plural(plan.pages.len(), "range"),
        plural(plan.objects.len(), "object"),
        path.display()
    );
    if assembled.nameless_pages > 0 {
        out += &format!(
            "  {} pages belong to no known object and follow first touch\n",
            assembled.nameless_pages
        );
    }
    out
}

/// The same as JSON; shares are 0 to 1, amounts in the layer's unit, mapping in logical indexes.
pub(super) fn json(answer: &Answer) -> Value {
    let planned = &answer.planned;
    let (machine, subject) = (planned.request().machine, planned.request().subject);
    let threads: Vec<Value> = planned
        .threads()
        .iter()
        .map(|row| {
            json!({
                "policy": row.policy,
                "mapping": row.mapped.mapping.pu.iter().map(|pu| pu.0).collect::<Vec<_>>(),
                "cost": row.value.cost,
                "remote": row.value.remote,
                "between_hosts": row.between_hosts,
                "total": row.value.total,
                "load_std": row.value.load_std,
                "node_imbalance": row.value.node_imbalance,
                "lower_bound": row.value.lower_bound,
                "repaired": row.mapped.repaired,
                "remarks": row.mapped.remarks,
                "seconds": answer.times.of(row.work()),
            })
        })
        .collect();
    let pages: Vec<Value> = planned
        .pages()
        .iter()
        .map(|row| {
            json!({
                "policy": row.policy,
                "remote_accesses": row.remote,
                "accesses": row.accesses,
                "remote_share": if row.accesses > 0 { row.remote as f64 / row.accesses as f64 } else { 0.0 },
                "spilled_pages": row.spilled,
                "remarks": row.remarks,
                "seconds": answer.times.of(row.work()),
            })
        })
        .collect();
    let mut shown = json!({
        "version": 1,
        "machine": machine.name(),
        "fingerprint": machine.fingerprint(),
        "layer": subject.layer().name(),
        "unit": subject.unit().name(),
        "load": {
            "source": subject.load_in_words(),
            "by_thread": subject.load().by_thread,
        },
        "policies": threads,
        "page_policies": pages,
        "unplanned": unplanned(&answer.unplanned),
        "repeatability": answer.repeatability,
        "plan": answer.written.as_ref().map(|(path, assembled)| json!({
            "path": path,
            "threads": assembled.plan.threads.len(),
            "objects": assembled.plan.objects.len(),
            "ranges": assembled.plan.pages.len(),
            "pages": assembled.plan.pages.iter().map(|range| range.pages).sum::<u64>(),
            "nameless_pages": assembled.nameless_pages,
        })),
    });
    if let Some((dynamic, schedule)) = &answer.dynamic {
        shown["dynamic"] = super::dynamic::json(dynamic, schedule);
    }
    shown
}

fn unplanned(found: &Unplanned) -> Value {
    let (remote, accesses) = found.bound;
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    json!({
        "unbound": {"remote_share": if accesses > 0 { found.free } else { 0.0 }},
        "pinned": {
            "remote_accesses": remote,
            "accesses": accesses,
            "remote_share": share(remote as f64, accesses as f64),
            "remote_communication_share": share(found.communication.0, found.communication.1),
        },
    })
}
