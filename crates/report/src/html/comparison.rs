//! Two runs compared: one page with the matrices, every metric, nodes and memory next to each other.

use std::fmt::Write;

use numaloc_analysis::Characterisation;
use numaloc_analysis::compare::{Comparison, ObjectPair, ObjectTotals};
use numaloc_model::profile::Profile;
use serde_json::json;

use super::{SCRIPTS_OF_COMPARISONS, bar, close, figure, opened, tables};
use crate::better::Better;
use crate::figures::{self, Figure, Paint, escape};
use crate::metrics;
use crate::number;
use crate::runs::{self, Run};

/// One of the two runs.
#[derive(Clone, Copy)]
pub struct Compared<'a> {
    /// Name of its profile.
    pub name: &'a str,
    /// The recorded run.
    pub profile: &'a Profile,
    /// Its characterisation.
    pub found: &'a Characterisation,
}

/// The page that compares `a` with `b`; `assumed` is what page metrics assume, `written` when and by which version the
/// page was written.
#[must_use]
pub fn comparison(
    a: Compared<'_>,
    b: Compared<'_>,
    sides: &Comparison,
    better: &Better,
    assumed: &str,
    written: &str,
) -> String {
    let mut out = opened(&format!("{} and {}", a.name, b.name));
    head(&mut out, a, b, sides);
    out += "<main>\n";
    answer(&mut out, a, b, better);
    communication(&mut out, a, b, sides);
    pages(&mut out, a, b, sides, assumed);
    changes(&mut out, a, b);
    charts(&mut out, a, b);
    let _ = writeln!(out, "<footer><p>{}</p></footer>", escape(written));
    close(&mut out, &json!({}), SCRIPTS_OF_COMPARISONS);
    out
}

fn head(out: &mut String, a: Compared<'_>, b: Compared<'_>, sides: &Comparison) {
    let command = |run: Compared<'_>| {
        let words = run.profile.meta().command.join(" ");
        format!(
            "<p class=\"command\">{}: <code>{}</code></p>",
            escape(run.name),
            escape(&words)
        )
    };
    let correlation = sides.correlation.map_or_else(
        || "not known".to_owned(),
        |correlation| number::fixed(correlation, 4),
    );
    let facts: String = [
        (sides.matched.to_string(), "threads in both".to_owned()),
        (
            sides.only_a.len().to_string(),
            format!("only in {}", a.name),
        ),
        (
            sides.only_b.len().to_string(),
            format!("only in {}", b.name),
        ),
        (correlation, "correlation of the matrices".to_owned()),
    ]
    .iter()
    .map(|(value, word)| format!("<li><b>{}</b> {}</li>", escape(value), escape(word)))
    .collect();
    let parts = [
        ("communication", "communication"),
        ("pages", "pages"),
        ("metrics", "metrics"),
        ("charts", "charts"),
    ];
    let _ = writeln!(
        out,
        "<header>\n{}\n<h1>{} and {}</h1>\n{}{}\n<ul class=\"facts\">{facts}</ul>\n</header>",
        bar(&parts),
        escape(a.name),
        escape(b.name),
        command(a),
        command(b),
    );
}

/// Which run is better, as a headline, and the problems that went, came and are left.
fn answer(out: &mut String, a: Compared<'_>, b: Compared<'_>, better: &Better) {
    let _ = write!(
        out,
        "<section class=\"card headline\" aria-label=\"Answer\"><h2>{}</h2><dl>",
        escape(&better.headline(a.name, b.name))
    );
    for (word, text) in better.problems() {
        let _ = write!(out, "<dt>{word}</dt><dd>{}</dd>", escape(&text));
    }
    *out += "</dl></section>\n";
}

/// The matrices of the threads that occur in both runs.
fn communication(out: &mut String, a: Compared<'_>, b: Compared<'_>, sides: &Comparison) {
    *out += "<section id=\"communication\">\n<h2 class=\"part\">Which threads communicate</h2>\n<div class=\"pair\">\n";
    for (name, run, matrix) in [("matrix-a", a, &sides.a), ("matrix-b", b, &sides.b)] {
        let drawn = Figure {
            name,
            title: format!("{} ({})", run.name, run.found.layer.name()),
            caption: "Rows produce, columns consume; threads of both runs.".to_owned(),
            svg: figures::matrix(matrix, number::count, Paint::page()),
        };
        figure(out, &drawn, "");
    }
    *out += "</div>\n</section>\n";
}

/// Memory by node and by object.
fn pages(out: &mut String, a: Compared<'_>, b: Compared<'_>, sides: &Comparison, assumed: &str) {
    let _ = writeln!(
        out,
        "<section id=\"pages\">\n<h2 class=\"part\">Whose pages, and where</h2>\n<p class=\"lead\">For {}.</p>",
        escape(assumed)
    );
    let heads: String = ["pages", "accesses"]
        .iter()
        .flat_map(|what| [(what, a.name), (what, b.name)])
        .map(|(what, name)| format!("<th class=\"n\">{what}, {}</th>", escape(name)))
        .collect();
    *out += "<div class=\"card\"><h3>By node, under first touch</h3>";
    tables::open(out, "nodes", &format!("<th>node</th>{heads}"));
    let (of_a, of_b) = (&a.found.pages, &b.found.pages);
    for node in 0..of_a.node_pages.len().max(of_b.node_pages.len()) {
        let at = |values: &[u64]| {
            let value = values.get(node).copied().unwrap_or(0) as f64;
            tables::cell(value, &number::count(value))
        };
        let _ = writeln!(
            out,
            "<tr><td>node {node}</td>{}{}{}{}</tr>",
            at(&of_a.node_pages),
            at(&of_b.node_pages),
            at(&of_a.node_accesses),
            at(&of_b.node_accesses)
        );
    }
    *out += "</tbody></table></div></div>\n";
    objects(out, a, b, &sides.objects);
    *out += "</section>\n";
}

fn objects(out: &mut String, a: Compared<'_>, b: Compared<'_>, pairs: &[ObjectPair]) {
    if pairs.is_empty() {
        return;
    }
    *out += "<div class=\"card\"><h3>Memory by object</h3><p class=\"hint\">Objects are matched by name. Local: share of the \
             accesses that first touch makes local.</p>";
    let heads: String = ["accesses", "pages", "local"]
        .iter()
        .flat_map(|what| [(what, a.name), (what, b.name)])
        .map(|(what, name)| format!("<th class=\"n\">{what}, {}</th>", escape(name)))
        .collect();
    tables::open(out, "objects", &format!("<th>object</th>{heads}"));
    for (at, pair) in pairs.iter().take(tables::LISTED_OBJECTS).enumerate() {
        let count = |side: Option<ObjectTotals>, value: fn(ObjectTotals) -> u64| {
            side.map_or_else(
                || "<td class=\"n\">-</td>".to_owned(),
                |side| {
                    let value = value(side) as f64;
                    tables::cell(value, &number::count(value))
                },
            )
        };
        let local = |side: Option<ObjectTotals>| tables::share(side.map(|side| side.local_share));
        let _ = writeln!(
            out,
            "{}<td class=\"name\">{}</td>{}{}{}{}{}{}</tr>",
            tables::row(at, tables::SHOWN_OBJECTS),
            escape(&pair.label),
            count(pair.a, |side| side.accesses),
            count(pair.b, |side| side.accesses),
            count(pair.a, |side| side.pages),
            count(pair.b, |side| side.pages),
            local(pair.a),
            local(pair.b),
        );
    }
    *out += "</tbody></table></div>";
    tables::rest(out, pairs.len().saturating_sub(tables::LISTED_OBJECTS));
    *out += "</div>\n";
}

/// Every metric of both runs.
fn changes(out: &mut String, a: Compared<'_>, b: Compared<'_>) {
    let _ = writeln!(
        out,
        "<section id=\"metrics\">\n<h2 class=\"part\">Metrics</h2>\n<div class=\"card\"><p class=\"hint\">pp: percentage \
         points. =: equal.</p><div class=\"scroll\"><table class=\"metrics\" data-name=\"metrics\"><thead><tr><th>metric</th>\
         <th class=\"n\">{}</th><th class=\"n\">{}</th><th class=\"n\">change</th><th>meaning</th></tr></thead>",
        escape(a.name),
        escape(b.name)
    );
    let sections = metrics::sections(a.found).into_iter();
    for (of_a, of_b) in sections.zip(metrics::sections(b.found)) {
        let _ = writeln!(
            out,
            "<tbody><tr class=\"group\"><th colspan=\"5\">{}</th></tr>",
            of_a.title
        );
        for (x, y) in of_a.metrics.iter().zip(&of_b.metrics) {
            let _ = writeln!(
                out,
                "<tr><td>{}</td><td class=\"n value\">{}</td><td class=\"n value\">{}</td><td class=\"n value\">{}</td><td>{}</td></tr>",
                escape(x.name.trim()),
                escape(&x.shown()),
                escape(&y.shown()),
                escape(&metrics::change(x, y)),
                escape(x.meaning)
            );
        }
        *out += "</tbody>\n";
    }
    *out += "</table></div></div>\n</section>\n";
}

/// The overview charts, a bar for each run.
fn charts(out: &mut String, a: Compared<'_>, b: Compared<'_>) {
    *out += "<section id=\"charts\">\n<h2 class=\"part\">Charts</h2>\n<div class=\"pair\">\n";
    let runs = [Run::of(a.name, a.found), Run::of(b.name, b.found)];
    for drawn in runs::figures(&runs, Paint::page()) {
        figure(out, &drawn, "");
    }
    *out += "</div>\n</section>\n";
}
