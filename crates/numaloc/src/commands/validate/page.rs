//! The page of a validation.

use numaloc_model::number;
use numaloc_report::html::sheet::{Cell, Chart, Part, Sheet, Table, sheet};

use super::judged::{Judgement, Outcome, Range};
use super::measured::Row;
use super::recorded::Planned;
use super::shown::{limits, ratio_to_none, slowdown, summary};
use super::variants::Variant;
use super::{Found, Validation};
use crate::commands::compare::statistics::Sample;
use crate::commands::report::today;

/// The page.
pub(super) fn page(validation: &Validation) -> String {
    let (machine, settings) = (&validation.machine, &validation.settings);
    let fact = |value: String, word: &str| (value, word.to_owned());
    let mut alarms = limits(machine);
    if !validation.complete {
        alarms.push("This validation was interrupted: kernels and runs are missing.".to_owned());
    }
    let mut parts = vec![results(validation)];
    parts.extend(
        validation
            .kernels
            .iter()
            .map(|found| kernel(validation, found)),
    );
    parts.push(of_machine(validation));
    sheet(&Sheet {
        title: "Validation of numaloc on this machine".to_owned(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        facts: vec![
            fact(machine.topology.summary(), ""),
            fact(settings.threads.to_string(), "threads"),
            fact(number::bytes(settings.bytes as f64), "memory of a kernel"),
            fact(settings.runs.to_string(), "runs of each variant"),
        ],
        alarms,
        parts,
        written: format!("numaloc {}, {}", env!("CARGO_PKG_VERSION"), today()),
    })
}

fn count(count: usize) -> Cell {
    Cell::Number(count as f64, count.to_string())
}

/// Where predictions held and where not.
fn results(validation: &Validation) -> Part {
    let rows = summary(validation).into_iter().map(|(topic, counts)| {
        let [held, failed, open, untested] = counts;
        let failed = match failed {
            0 => count(0),
            failed => Cell::No(failed.to_string()),
        };
        vec![
            Cell::text(topic.words()),
            count(held),
            failed,
            count(open),
            count(untested),
        ]
    });
    let judged = validation.kernels.iter().flat_map(|found| {
        let failed = found.judged.iter();
        let failed = failed.filter(|judged| judged.outcome == Outcome::Failed);
        failed.map(move |judged| {
            let mut row = vec![Cell::text(found.kernel.name)];
            row.extend(judgement(judged));
            row
        })
    });
    let failed: Vec<_> = judged.collect();
    let mut tables = vec![Table {
        name: "summary".to_owned(),
        title: "How many".to_owned(),
        caption: "Open: the measurement is not precise enough. Untested: nothing was measured that could decide."
            .to_owned(),
        heads: vec!["predictions", "held", "failed", "open", "untested"],
        rows: rows.collect(),
    }];
    if !failed.is_empty() {
        tables.push(Table {
            name: "failed".to_owned(),
            title: "What did not hold".to_owned(),
            caption: JUDGED.to_owned(),
            heads: vec![
                "kernel",
                "of",
                "prediction",
                "predicted",
                "measured",
                "outcome",
                "why",
            ],
            rows: failed,
        });
    }
    Part {
        id: "results".to_owned(),
        word: "results".to_owned(),
        title: "Where predictions held, and where not".to_owned(),
        tables,
        ..Part::default()
    }
}

/// How to read a table of judgements.
const JUDGED: &str = "Remote shares: predicted within 10 points. Times: over those without anything, predicted within \
    15 %, measured with the 95 % interval. Orders: time of the slower variant over that of the faster.";

fn interval(range: &Option<Range>) -> Cell {
    range.map_or(Cell::Unknown, |range| {
        let shown = format!("{:.2} ({:.2} to {:.2})", range.value, range.low, range.high);
        Cell::Number(range.value, shown)
    })
}

fn judgement(judged: &Judgement) -> Vec<Cell> {
    let name = judged.outcome.name().to_owned();
    vec![
        Cell::text(judged.topic.name().replace('_', " ")),
        Cell::text(&judged.what),
        interval(&judged.predicted),
        interval(&judged.measured),
        match judged.outcome {
            Outcome::Held => Cell::Yes(name),
            Outcome::Failed => Cell::No(name),
            Outcome::Open | Outcome::Untested => Cell::Open(name),
        },
        Cell::text(&judged.why),
    ]
}

fn share(share: Option<f64>) -> Cell {
    share.map_or(Cell::Unknown, |share| {
        Cell::Number(share, number::percent(share))
    })
}

fn mean(sample: &Sample) -> Option<f64> {
    (sample.len() > 0).then(|| sample.mean())
}

fn kernel(validation: &Validation, found: &Found) -> Part {
    let mut paragraphs = vec![format!("{}.", found.kernel.about)];
    if let Some(recorded) = &found.recorded {
        let times = slowdown(found).map_or_else(String::new, |times| {
            format!(
                ", {} times as long as the kernel alone",
                number::fixed(times, 1)
            )
        });
        paragraphs.push(format!(
            "Recorded in {} s{times}: {} accesses. numaloc says: {}.",
            number::fixed(recorded.seconds, 1),
            number::count(recorded.accesses as f64),
            recorded.answer
        ));
    }
    Part {
        id: format!("kernel-{}", found.kernel.name),
        word: found.kernel.name.to_owned(),
        title: found.kernel.name.to_owned(),
        paragraphs,
        charts: charts(found),
        tables: vec![
            variants(found),
            counted(validation, found),
            judgements(found),
        ]
        .into_iter()
        .filter(|table| !table.rows.is_empty())
        .collect(),
    }
}

fn planned(found: &Found, variant: Variant) -> Option<&Planned> {
    let recorded = found.recorded.as_ref()?;
    recorded
        .planned
        .iter()
        .find(|planned| planned.variant == variant)
}

fn charts(found: &Found) -> Vec<Chart> {
    let rows = || found.rows.iter();
    let expected = |row: &Row| planned(found, row.variant)?.expected;
    let chart = |title: &str, caption: &str, predicted, measured, show| Chart {
        title: title.to_owned(),
        caption: caption.to_owned(),
        names: rows().map(|row| row.variant.name().to_owned()).collect(),
        series: vec![("predicted", predicted), ("measured", measured)],
        show,
    };
    let mut charts = vec![chart(
        "Time",
        "Over that without anything, less is better.",
        rows()
            .map(|row| expected(row).map(|expected| expected.ratio()))
            .collect(),
        rows()
            .map(|row| Some(ratio_to_none(&found.rows, row)?.value))
            .collect(),
        |value| format!("{value:.2} x"),
    )];
    if rows().any(|row| mean(&row.measured.remote_share).is_some_and(|share| share > 0.0)) {
        charts.push(chart(
            "Remote share",
            "Accesses to pages on another node than the thread's.",
            rows().map(|row| expected(row)?.remote_share).collect(),
            rows().map(|row| mean(&row.measured.remote_share)).collect(),
            |value| format!("{:.1} %", 100.0 * value),
        ));
    }
    charts
}

fn variants(found: &Found) -> Table {
    let rows = found.rows.iter().map(|row| {
        let measured = &row.measured;
        let seconds = &measured.seconds;
        let policies = planned(found, row.variant).map_or_else(String::new, |planned| {
            format!("threads by {}, pages by {}", planned.threads, planned.pages)
        });
        let applied = measured.applied.last();
        let of = |what: &str| applied.and_then(|applied| applied[what]["share"].as_f64());
        let moved = applied.and_then(|applied| applied["pages_moved"].as_u64());
        vec![
            Cell::text(row.variant.name()),
            Cell::text(policies),
            mean(seconds).map_or(Cell::Unknown, |mean| {
                let half = seconds.half_width();
                Cell::Number(mean, format!("{mean:.4} +- {half:.4}"))
            }),
            interval(&ratio_to_none(&found.rows, row)),
            mean(&measured.wall_s).map_or(Cell::Unknown, |mean| {
                Cell::Number(mean, format!("{mean:.4}"))
            }),
            share(mean(&measured.remote_share)),
            share(mean(&measured.counted_share)),
            share(of("threads")),
            share(of("pages")),
            moved.map_or(Cell::Unknown, |moved| count(moved as usize)),
        ]
    });
    Table {
        name: format!("{}-variants", found.kernel.name),
        title: "Variants".to_owned(),
        caption: "Time: of the kernel itself, with the 95 % interval of its mean; wall: with everything around it. \
                  Remote: by the places of pages and threads; counted: loads from DRAM, by the PMU."
            .to_owned(),
        heads: vec![
            "variant",
            "policies",
            "time (s)",
            "over none",
            "wall (s)",
            "remote",
            "counted",
            "threads in place",
            "pages in place",
            "pages moved",
        ],
        rows: rows.collect(),
    }
}

/// Hardware events and the figures of the memory system; no rows where the machine counts none.
fn counted(validation: &Validation, found: &Found) -> Table {
    let figure = |row: &Row, name: String, unit: &str, value: Option<f64>| {
        vec![
            Cell::text(name),
            Cell::text(unit),
            Cell::text(row.variant.name()),
            value.map_or(Cell::Unknown, |value| {
                Cell::Number(value, number::count(value))
            }),
        ]
    };
    let mut rows = Vec::new();
    for row in &found.rows {
        let events = validation.meters.counters.names().iter();
        for (name, sample) in events.zip(&row.measured.counts) {
            rows.push(figure(row, name.clone(), "events", mean(sample)));
        }
        let figures = validation.meters.memory.figures().iter();
        for (of, sample) in figures.zip(&row.measured.memory) {
            let name = format!("{}, socket {}", of.name, of.socket);
            rows.push(figure(row, name, of.unit, mean(sample)));
        }
    }
    Table {
        name: format!("{}-counters", found.kernel.name),
        title: "Counters".to_owned(),
        caption: "Means of all runs; uncore counters count everything that runs on the machine."
            .to_owned(),
        heads: vec!["figure", "unit", "variant", "mean"],
        rows,
    }
}

fn judgements(found: &Found) -> Table {
    Table {
        name: format!("{}-predictions", found.kernel.name),
        title: "Predictions".to_owned(),
        caption: JUDGED.to_owned(),
        heads: vec![
            "of",
            "prediction",
            "predicted",
            "measured",
            "outcome",
            "why",
        ],
        rows: found.judged.iter().map(judgement).collect(),
    }
}

/// The machine, and what was left out.
fn of_machine(validation: &Validation) -> Part {
    let machine = &validation.machine;
    let row = |what: &str, found: String| vec![Cell::text(what), Cell::text(found)];
    let mut facts = vec![
        row("processor", machine.processor.clone()),
        row("kernel", machine.kernel.clone()),
    ];
    for node in machine.topology.nodes() {
        let memory = number::bytes(node.memory_bytes as f64);
        let pus = number::plural(node.pus.len(), "PU");
        facts.push(row(
            &format!("node {}", node.os.0),
            format!("{pus}, {memory}"),
        ));
    }
    if let Some(measured) = &machine.calibration {
        facts.push(row("latencies (ns)", measured["latency_ns"].to_string()));
        let rates = measured["bandwidth_bytes_per_s"].to_string();
        facts.push(row("bandwidths (bytes/s)", rates));
    }
    for (file, content) in &machine.settings {
        facts.push(row(file, content.clone()));
    }
    if !machine.sampled.is_empty() {
        facts.push(row(
            "events that sample accesses",
            machine.sampled.join(", "),
        ));
    }
    let sources = machine.online.iter().flatten().copied();
    let sources = sources.collect::<Vec<_>>().join(", ");
    facts.push(row("sources of online placement", sources));
    let left = validation.left_out.iter();
    let mut missing: Vec<_> = left.map(|left| row(&left.what, left.why.clone())).collect();
    if let Some(why) = validation.meters.counters.why_not() {
        missing.push(row("hardware events", why));
    }
    for (topic, why) in validation.meters.memory.missing() {
        missing.push(row(topic.name(), why.clone()));
    }
    let table = |name: &str, title: &str, heads, rows| Table {
        name: name.to_owned(),
        title: title.to_owned(),
        caption: String::new(),
        heads,
        rows,
    };
    let variants = Variant::ALL.iter();
    let variants = variants.map(|variant| row(variant.name(), variant.about().to_owned()));
    Part {
        id: "machine".to_owned(),
        word: "machine".to_owned(),
        title: "The machine, and what was left out".to_owned(),
        tables: vec![
            table("machine", "Machine", vec!["what", "found"], facts),
            table("left-out", "Left out", vec!["what", "why"], missing),
            table(
                "variants",
                "Variants",
                vec!["variant", "is"],
                variants.collect(),
            ),
        ],
        ..Part::default()
    }
}
