//! Simulated runs in the report: times, and queues, utilisation and links over time.

use std::fmt::Write;

use super::Report;
use super::tables::{cell, open, share};
use crate::figures::{Bars, Figure, Line, Paint, Panel, bars, escape, over_time};
use crate::number;
use crate::simulation::{OverTime, Row};

/// Number of runs that are drawn over time: the fastest ones.
const DRAWN: usize = 4;
/// Number of links that are drawn: those with most bytes.
const LINKS: usize = 8;

fn with_machine(rows: &[Row]) -> bool {
    rows.iter().any(|row| row.machine != rows[0].machine)
}

fn milliseconds(ns: f64) -> String {
    format!("{} ms", number::count(ns / 1e6))
}

/// The rows' figures; none without rows.
pub(super) fn figures(rows: &[Row], paint: Paint) -> Vec<Figure> {
    if rows.is_empty() {
        return Vec::new();
    }
    let names: Vec<String> = rows
        .iter()
        .map(|row| row.name(with_machine(rows)))
        .collect();
    let times = rows.iter().map(|row| Some(row.time_ns)).collect();
    let chart = Bars {
        label: "simulated times",
        runs: &names,
        series: vec![("time", times)],
        stacked: false,
        show: milliseconds,
    };
    let time = Figure {
        name: "simulated-times",
        title: "Simulated times".to_owned(),
        caption: "Times of the simulator's model: compare runs of one machine with each other."
            .to_owned(),
        svg: bars(&chart, paint),
    };
    let drawn = |name, title: &str, caption: &str, show, lines: fn(&Row) -> Vec<Line>| {
        let panels = rows.iter().zip(&names).take(DRAWN);
        let panels: Vec<Panel> = panels
            .map(|(row, name)| Panel {
                title: name.clone(),
                time_ns: row.time_ns,
                lines: lines(row),
            })
            .collect();
        Figure {
            name,
            title: title.to_owned(),
            caption: caption.to_owned(),
            svg: over_time(title, &panels, show, paint),
        }
    };
    vec![
        time,
        drawn(
            "simulated-utilisation",
            "Utilisation of memory controllers over time",
            "Share of each interval in which a controller serves requests; 100 % is its bandwidth.",
            number::percent,
            |row| by_controller(row, |row, at| &row.controllers[at].busy),
        ),
        drawn(
            "simulated-queue",
            "Queues of memory controllers over time",
            "Mean number of requests that wait at a controller in each interval.",
            number::count,
            |row| by_controller(row, |row, at| &row.controllers[at].wait),
        ),
        drawn(
            "simulated-links",
            "Links over time",
            "Bytes per second on each link, those with most traffic.",
            |rate| format!("{}/s", number::bytes(rate)),
            by_link,
        ),
    ]
}

/// Picoseconds over the picoseconds of an interval, by controller.
fn by_controller(row: &Row, of: fn(&Row, usize) -> &OverTime) -> Vec<Line> {
    let line = |at| {
        let over = of(row, at);
        let share = |sum: &f64| sum / (over.interval_ns * 1e3);
        Line {
            name: format!("node {at}"),
            interval_ns: over.interval_ns,
            values: over.sums.iter().map(share).collect(),
        }
    };
    (0..row.controllers.len()).map(line).collect()
}

fn by_link(row: &Row) -> Vec<Line> {
    let bytes = |over: &OverTime| over.sums.iter().sum::<f64>();
    let mut links: Vec<_> = row.links.iter().collect();
    links.sort_by(|a, b| bytes(&b.bytes).total_cmp(&bytes(&a.bytes)));
    links.truncate(LINKS);
    let line = |link: &&crate::simulation::Link| Line {
        name: format!("{} to {}", link.from, link.to),
        interval_ns: link.bytes.interval_ns,
        values: link
            .bytes
            .sums
            .iter()
            .map(|sum| sum / link.bytes.interval_ns * 1e9)
            .collect(),
    };
    links.iter().map(line).collect()
}

/// The section of the page; nothing without simulated runs.
pub(super) fn write(out: &mut String, report: &Report<'_>, drawn: &[Figure]) {
    let rows = report.simulated;
    if rows.is_empty() {
        return;
    }
    *out += "<section id=\"simulated\">\n<h2 class=\"part\">Simulated runs</h2>\n<div class=\"card wide\">";
    let heads = [
        "machine",
        "threads",
        "pages",
        "time (ms)",
        "remote",
        "queue wait (ns)",
        "busiest controller",
        "links",
    ];
    let heads: String = heads
        .iter()
        .map(|head| format!("<th>{head}</th>"))
        .collect();
    open(out, "simulated", &heads);
    for row in rows {
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td>{}{}{}{}{}</tr>",
            escape(&row.machine),
            escape(&row.threads),
            escape(&row.pages),
            cell(row.time_ns / 1e6, &format!("{:.3}", row.time_ns / 1e6)),
            share(row.remote_percent.map(|percent| percent / 100.0)),
            cell(row.queue_wait_ns, &format!("{:.1}", row.queue_wait_ns)),
            share(Some(row.busiest_percent / 100.0)),
            cell(row.link_bytes, &number::bytes(row.link_bytes)),
        );
    }
    *out += "</tbody></table></div></div>\n";
    for drawn in drawn
        .iter()
        .filter(|figure| figure.name.starts_with("simulated-"))
    {
        super::figure(out, drawn, "wide");
    }
    *out += "</section>\n";
}
