//! Output of `plan`.

use numaloc_analysis::verdict::time;
use numaloc_model::number::{self, plural};
use numaloc_plan::{Ranking, Worth};
use numaloc_report::json::remark;
use serde_json::{Value, json};

use super::Answer;

/// Candidates in the table, the fastest first.
const SHOWN: usize = 8;

/// A share as a percentage with one decimal.
fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 {
        number::fixed(100.0 * part / whole, 1) + " %"
    } else {
        "-".to_owned()
    }
}

/// Tables and lines about worth and plan.
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
    if let Some(ranking) = &answer.ranking {
        out += &worth(ranking);
    }
    if let Some(ranking) = &answer.ranks {
        out += &super::shown_ranks::text(ranking);
    }
    if !answer.notes.is_empty() {
        out += "\nmemory:\n";
    }
    for note in &answer.notes {
        out += &format!("  {}\n", note.text());
    }
    out += &written(answer);
    out
}

/// The candidates by their worth, and what the plan gains.
fn worth(ranking: &Ranking) -> String {
    let mut fastest: Vec<_> = ranking.candidates.iter().collect();
    fastest.sort_by(|a, b| a.worth.seconds.total_cmp(&b.worth.seconds));
    let shown = fastest.iter().take(SHOWN);
    let width = shown
        .map(|rated| rated.pages.len())
        .max()
        .unwrap_or(0)
        .max(14);
    let mut out = format!(
        "\nworth, by the model:\n  {:<14} {:<width$} {:>10} {:>11}  mostly\n",
        "threads", "pages", "time", "x as it is"
    );
    let times = |worth: &Worth| worth.seconds / ranking.as_it_is.seconds.max(f64::MIN_POSITIVE);
    let row = |threads: &str, pages: &str, worth: &Worth| {
        format!(
            "  {threads:<14} {pages:<width$} {:>10} {:>11}  {}\n",
            time(worth.seconds),
            number::fixed(times(worth), 3),
            worth.bound_by()
        )
    };
    out += &row("(as it is)", "", &ranking.as_it_is);
    for rated in fastest.iter().take(SHOWN) {
        out += &row(rated.threads, rated.pages, &rated.worth);
    }
    if fastest.len() > SHOWN {
        out += &format!("  ({} slower ones in --json)\n", fastest.len() - SHOWN);
    }
    out + &gain(ranking)
}

/// What the plan gains, where, and how sure that is.
fn gain(ranking: &Ranking) -> String {
    let (as_it_is, plan) = (&ranking.as_it_is, ranking.plan());
    let error = format!("+- {} %", number::fixed(100.0 * ranking.error(), 0));
    let chosen = &ranking.candidates[ranking.chosen];
    let saved = as_it_is.saved_by(plan);
    if ranking.leaves_as_it_is() {
        return format!(
            "  left as it is: no plan is faster than {} by more than the model's error ({error})\n",
            time(as_it_is.seconds)
        );
    }
    let what = if plan.saves(as_it_is) {
        "saves"
    } else if plan.loses_to(as_it_is) {
        "loses"
    } else {
        "no difference beyond the error:"
    };
    format!(
        "  {} with {}: as it is {}, with this plan {} {error}; {what} {} ({} %), mostly {}\n",
        chosen.threads,
        chosen.pages,
        time(as_it_is.seconds),
        time(plan.seconds),
        time((as_it_is.seconds - plan.seconds).abs()),
        number::fixed(100.0 * saved.abs(), 0),
        as_it_is.gain_by(plan)
    )
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
            "  {:<20} {:>8} {:>10} {:>6.1} ms\n",
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
        out += "  accesses: those beyond private caches, as in `show`;\n";
        out += "  unbound: first touch if the kernel moves threads that do not work alone to any node;\n";
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
            "  {} of no known object: by first touch\n",
            plural(assembled.nameless_pages as usize, "page")
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
            let mut shown = numaloc_plan::json::pages(row);
            shown["seconds"] = answer.times.of(row.work()).into();
            shown
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
        "unplanned": numaloc_plan::json::unplanned(&answer.unplanned),
        "repeatability": answer.repeatability,
        "worth": answer.ranking.as_ref().map(numaloc_plan::json::worth),
        "rank_worth": answer.ranks.as_ref().map(numaloc_plan::json::rank_worth),
        "memory": answer.notes.iter().map(remark).collect::<Vec<_>>(),
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
