//! Output of `plan`.

use numaloc_analysis::load::load_to_level;
use numaloc_model::number;
use serde_json::{Value, json};

use super::{Answer, plan};

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
    let mut out = format!(
        "machine: {} ({})\n\nthreads, by {} communication in {}:\n",
        answer.machine.name(),
        answer.machine.summary(),
        answer.layer.name(),
        answer.unit
    );
    let cluster = answer.threads.iter().any(|row| row.between_hosts.is_some());
    let hosts = |text: String| {
        if cluster {
            format!(" {text:>13}")
        } else {
            String::new()
        }
    };
    out += &format!(
        "  {:<12}{} {:>10} {:>14} {:>9} {:>12} {:>9}\n",
        "policy",
        hosts("between hosts".to_owned()),
        "remote",
        "cost",
        "x bound",
        "node load",
        "time"
    );
    for row in &answer.threads {
        let value = &row.value;
        out += &format!(
            "  {:<12}{} {:>10} {:>14} {:>9} {:>9} x {:>6.1} ms\n",
            row.policy,
            hosts(percent(row.between_hosts.unwrap_or(0.0), value.total)),
            percent(value.remote, value.total),
            number::fixed(value.cost, 0),
            number::fixed(value.at_most_times_optimal(), 2),
            number::fixed(value.node_imbalance, 2),
            row.seconds * 1e3
        );
        for remark in &row.mapped.remarks {
            out += &format!("    {remark}\n");
        }
    }
    out += "  remote: share of communication between nodes; cost: sum of amount x distance;\n";
    out += "  x bound: cost over a lower bound no mapping can beat; node load: largest over mean\n";
    out += &format!("  load: {}\n", load(answer));
    out += &format!("\npages, threads mapped by {}:\n", answer.threads[0].policy);
    out += &format!(
        "  {:<12} {:>16} {:>10} {:>9}\n",
        "policy", "remote accesses", "spilled", "time"
    );
    if let Some(unplanned) = answer.unplanned.as_ref().filter(|u| u.bound.1 > 0) {
        let (remote, accesses) = unplanned.bound;
        for (name, share) in [
            ("unbound", percent(unplanned.free, 1.0)),
            ("pinned", percent(remote as f64, accesses as f64)),
        ] {
            out += &format!("  {name:<12} {share:>16} {:>10} {:>9}\n", "-", "-");
        }
    }
    for row in &answer.pages {
        out += &format!(
            "  {:<12} {:>16} {:>10} {:>6.1} ms\n",
            row.policy,
            percent(row.remote as f64, row.accesses as f64),
            row.spilled,
            row.seconds * 1e3
        );
        for remark in &row.remarks {
            out += &format!("    {remark}\n");
        }
    }
    if answer.unplanned.as_ref().is_some_and(|u| u.bound.1 > 0) {
        out += "  unbound: first touch if the kernel moves threads between nodes, at worst;\n";
        out += "  pinned: first touch with threads bound in the order of their creation\n";
    }
    if let (Some(plan), Some((path, assembled))) = (plan(answer), &answer.written) {
        let pages: u64 = plan.pages.iter().map(|range| range.pages).sum();
        out += &format!(
            "\nplan: {} threads, {pages} pages in {} ranges of {} objects -> {}\n",
            plan.threads.len(),
            plan.pages.len(),
            plan.objects.len(),
            path.display()
        );
        if assembled.nameless_pages > 0 {
            out += &format!(
                "  {} pages belong to no known object and follow first touch\n",
                assembled.nameless_pages
            );
        }
    }
    out
}

/// Quantity that "node load" and `load_std` refer to.
fn load(answer: &Answer) -> String {
    match load_to_level(&answer.load.by_thread) {
        Some(_) => answer.load.source.in_words(),
        None => "communication (no accesses were recorded)".to_owned(),
    }
}

/// The same as JSON; shares are 0 to 1, amounts in the layer's unit, mapping in logical indexes.
pub(super) fn json(answer: &Answer) -> Value {
    let threads: Vec<Value> = answer
        .threads
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
                "seconds": row.seconds,
            })
        })
        .collect();
    let pages: Vec<Value> = answer
        .pages
        .iter()
        .map(|row| {
            json!({
                "policy": row.policy,
                "remote_accesses": row.remote,
                "accesses": row.accesses,
                "remote_share": if row.accesses > 0 { row.remote as f64 / row.accesses as f64 } else { 0.0 },
                "spilled_pages": row.spilled,
                "remarks": row.remarks,
                "seconds": row.seconds,
            })
        })
        .collect();
    json!({
        "version": 1,
        "machine": answer.machine.name(),
        "fingerprint": answer.machine.fingerprint(),
        "layer": answer.layer.name(),
        "unit": answer.unit,
        "load": {
            "source": load(answer),
            "by_thread": answer.load.by_thread,
        },
        "policies": threads,
        "page_policies": pages,
        "unplanned": answer.unplanned.as_ref().map(super::pinned::Unplanned::json),
        "repeatability": answer.repeatability,
        "plan": answer.written.as_ref().map(|(path, assembled)| json!({
            "path": path,
            "threads": assembled.plan.threads.len(),
            "objects": assembled.plan.objects.len(),
            "ranges": assembled.plan.pages.len(),
            "pages": assembled.plan.pages.iter().map(|range| range.pages).sum::<u64>(),
            "nameless_pages": assembled.nameless_pages,
        })),
    })
}
