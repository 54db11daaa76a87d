//! The report: one self-contained HTML file that needs no network.
//!
//! Figures and tables are drawn as SVG and HTML when the file is written; the scripts add the interactive matrix and
//! timeline, sort and search tables and save what is shown. The page's `Content-Security-Policy` forbids every
//! connection. All text from a profile goes through [`escape`]; the data block cannot close its element.

use std::fmt::Write;

use numaloc_analysis::Characterisation;
use numaloc_model::profile::Profile;
use numaloc_topology::Topology;

use crate::figures::{Figure, Paint, PolicyPages, escape, shade_variables};
use crate::next::Step;
use crate::number;
use crate::plan::PlanView;
use crate::runs::Run;
use crate::simulation::Row;
use crate::window;

use self::data::View;

mod answer;
mod comparison;
mod data;
mod drawn;
mod encode;
mod lanes;
mod mpi;
pub mod sheet;
mod simulated;
pub(crate) mod sites;
mod tables;

pub use comparison::{Compared, comparison};
pub use drawn::figures;

const CSS: &str = include_str!("html/page.css");
/// What the page does: the interactive matrix, the timeline, tables, saving of figures.
const SCRIPTS: &str = concat!(
    include_str!("html/common.js"),
    include_str!("html/tips.js"),
    include_str!("html/page.js"),
    include_str!("html/lanes.js"),
    include_str!("html/csv.js"),
    include_str!("html/tables.js"),
    include_str!("html/figures.js")
);
/// The same without the interactive matrix and the timeline.
const SCRIPTS_OF_COMPARISONS: &str = concat!(
    include_str!("html/common.js"),
    include_str!("html/tips.js"),
    include_str!("html/csv.js"),
    include_str!("html/tables.js"),
    include_str!("html/figures.js")
);
/// The contents of a report.
pub struct Report<'a> {
    /// The recorded run.
    pub profile: &'a Profile,
    /// Its characterisation.
    pub found: &'a Characterisation,
    /// What page metrics assume, in words.
    pub assumed: &'a str,
    /// The machine, if known.
    pub machine: Option<&'a Topology>,
    /// Plans for that machine.
    pub plans: &'a [PlanView],
    /// Page policies under the setting's assignment of threads; the first is first touch.
    pub policies: &'a [PolicyPages],
    /// This run and the runs it is compared with; empty if there are no others.
    pub compared: &'a [Run],
    /// Simulated runs; empty if none are shown.
    pub simulated: &'a [Row],
    /// Commands that follow from the verdict.
    pub next: &'a [Step],
    /// Name of the profile.
    pub title: &'a str,
    /// When and by which version the report was written.
    pub written: &'a str,
}

/// The page.
#[must_use]
pub fn page(report: &Report<'_>) -> String {
    let mut out = opened(report.title);
    head(&mut out, report);
    out += "<main>\n";
    answer::write(&mut out, report);
    let drawn = figures(report, Paint::page());
    let views = data::views(report);
    communication(&mut out, report, &drawn, &views);
    memory(&mut out, report, &drawn);
    mpi::tables(&mut out, report);
    mapping(&mut out, report, &drawn);
    compared(&mut out, report, &drawn);
    simulated::write(&mut out, report, &drawn);
    tables::metrics(&mut out, report);
    tables::roles(&mut out, report);
    tables::segments(&mut out, report);
    tables::threads(&mut out, report.profile);
    about(&mut out, report);
    close(&mut out, &data::of(report, &views), SCRIPTS);
    out
}

/// The beginning of a page, up to its body.
fn opened(title: &str) -> String {
    let mut out = String::with_capacity(1 << 20);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n\
         <title>{} - numaloc</title>\n<style>{CSS}{}</style>\n</head>\n<body>\n",
        escape(title),
        shades()
    );
    out
}

/// The end of a page: the data of its scripts, and the scripts.
fn close(out: &mut String, data: &serde_json::Value, scripts: &str) {
    let data = data.to_string().replace('<', "\\u003c");
    let _ = write!(
        out,
        "</main>\n<div id=\"tip\" role=\"status\" hidden></div>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n<script>{scripts}</script>\n</body>\n</html>\n"
    );
}

/// The brand, links to the parts of the page (id, word), and the choice of light or dark.
fn bar(parts: &[(&str, &str)]) -> String {
    let links: String = parts
        .iter()
        .map(|(id, word)| format!("<a href=\"#{id}\">{word}</a>"))
        .collect();
    format!(
        "<div class=\"bar\"><span class=\"brand\">numaloc</span>\
         <nav aria-label=\"Parts of the report\">{links}</nav>\
         <button id=\"theme\" type=\"button\" class=\"quiet\">light / dark</button></div>"
    )
}

/// Shades of the static matrices, for the page's light or dark background.
fn shades() -> String {
    let (light, dark) = (shade_variables(false), shade_variables(true));
    format!(
        ":root{{{light}}}:root[data-theme=dark]{{{dark}}}@media (prefers-color-scheme:dark){{\
         :root:not([data-theme=light]){{{dark}}}}}@media print{{:root,:root[data-theme=dark]{{{light}}}}}"
    )
}

fn head(out: &mut String, report: &Report<'_>) {
    let p = report.profile;
    let accesses: u64 = p.threads().iter().map(|t| t.accesses).sum();
    let facts = [
        (number::count(p.threads().len() as f64), "threads"),
        (number::count(accesses as f64), "accesses"),
        (
            number::bytes(report.found.pages.memory_bytes() as f64),
            "memory",
        ),
        (number::count(p.slices().len() as f64), "time slices"),
    ];
    let facts: String = facts
        .iter()
        .map(|(value, word)| format!("<li><b>{}</b> {word}</li>", escape(value)))
        .collect();
    let short = if p.meta().complete {
        ""
    } else {
        "<p class=\"alarm\">This profile was cut short: the run was interrupted or a limit was hit.</p>"
    };
    let mut parts = vec![("communication", "communication")];
    if report.found.pages.pages > 0 {
        parts.push(("pages", "pages"));
    }
    if report.machine.is_some() {
        parts.push(("mapping", "threads"));
    }
    if report.compared.len() > 1 {
        parts.push(("runs", "other runs"));
    }
    if !report.simulated.is_empty() {
        parts.push(("simulated", "simulated runs"));
    }
    parts.push(("metrics", "metrics"));
    let _ = write!(
        out,
        "<header>\n{}\n<h1>{}</h1>\n<p class=\"command\"><code>{}</code></p>\n<ul class=\"facts\">{facts}</ul>{short}\n</header>\n",
        bar(&parts),
        escape(report.title),
        escape(&p.meta().command.join(" "))
    );
}

fn figure(out: &mut String, figure: &Figure, class: &str) {
    let _ = writeln!(
        out,
        "<figure class=\"card {class}\" id=\"{}\"><figcaption><h3>{}</h3><p>{}</p></figcaption>{}</figure>",
        figure.name,
        escape(&figure.title),
        escape(&figure.caption),
        figure.svg
    );
}

fn of<'a>(drawn: &'a [Figure], name: &str) -> Option<&'a Figure> {
    drawn.iter().find(|figure| figure.name == name)
}

fn communication(out: &mut String, report: &Report<'_>, drawn: &[Figure], views: &[View]) {
    *out += "<section id=\"communication\">\n<h2 class=\"part\">Which threads communicate, and when</h2>\n";
    let Some(still) = of(drawn, "matrix") else {
        *out += "<p class=\"card\">No communication was observed.</p></section>\n";
        return;
    };
    let _ = write!(
        out,
        r#"<div class="card heat">
<div class="stage"><canvas id="heat" width="1120" height="1120" tabindex="0" role="application" aria-label="Communication matrix. Arrow keys move the cell cursor, plus and minus zoom, 0 shows everything."></canvas>
<noscript>{}</noscript></div>
<div class="side">
<h3>Communication matrix</h3>
<p class="hint">Rows produce (write, send), columns consume (read, receive).</p>
<div class="controls">
<label>Layer <select id="layer"></select></label>
<label>When <select id="view"></select></label>
<label>Order <select id="order"></select></label>
<label>Scale <select id="scale"><option value="log">logarithmic</option><option value="sqrt">square root</option><option value="linear">linear</option></select></label>
</div>
<div class="ramp" aria-hidden="true"><span id="low">0</span><canvas id="ramp" width="200" height="10"></canvas><span id="high"></span></div>
<dl class="cell" id="cell" aria-live="polite"><dt>Cell</dt><dd>point at the matrix, or focus it and use the arrow keys</dd></dl>
<p class="hint keys"><kbd>+</kbd> <kbd>&minus;</kbd> or wheel: zoom &nbsp; drag: move &nbsp; <kbd>0</kbd> or double click: everything</p>
</div>
</div>
"#,
        still.svg
    );
    if let Some(timeline) = of(drawn, "timeline") {
        figure(out, timeline, "wide");
        data::chips(out, report, views);
    }
    lanes::card(out, report);
    for name in ["behaviour", "phase-matrices", "load"] {
        if let Some(drawn) = of(drawn, name) {
            figure(out, drawn, "wide");
        }
    }
    *out += "</section>\n";
}

fn memory(out: &mut String, report: &Report<'_>, drawn: &[Figure]) {
    let c = report.found;
    if c.pages.pages == 0 {
        *out += "<section><h2 class=\"part\">Whose pages</h2><p class=\"card\">No page use was recorded.</p></section>\n";
        return;
    }
    let _ = write!(
        out,
        "<section id=\"pages\">\n<h2 class=\"part\">Whose pages, and where</h2>\n<p class=\"lead\">For {}.</p>\n<div class=\"pair\">\n",
        escape(report.assumed)
    );
    for name in [
        "exclusivity",
        "exclusivity-by-page-size",
        "pages-per-node",
        "accesses-per-node",
        "balance",
        "accuracy",
        "migrations",
    ] {
        if let Some(drawn) = of(drawn, name) {
            figure(out, drawn, "");
        }
    }
    *out += "</div>\n";
    if let Some(drawn) = of(drawn, "page-behaviour") {
        figure(out, drawn, "wide");
    }
    tables::policies(out, report);
    tables::objects(out, report);
    tables::sharing(out, report);
    sites::tables(out, report);
    *out += "</section>\n";
}

fn mapping(out: &mut String, report: &Report<'_>, drawn: &[Figure]) {
    let maps: Vec<&Figure> = drawn
        .iter()
        .filter(|f| f.name.starts_with("threads-"))
        .collect();
    if maps.is_empty() && report.plans.is_empty() {
        return;
    }
    *out += "<section id=\"mapping\">\n<h2 class=\"part\">Where threads go</h2>\n";
    if let Some(machine) = report.machine {
        let colours = if report.plans.is_empty() {
            "One colour is one node."
        } else {
            "One colour is one node of the first plan."
        };
        let _ = writeln!(
            out,
            "<p class=\"lead\">{}: {}. {colours}</p>",
            escape(machine.name()),
            machine.summary()
        );
    }
    *out += if maps.len() > 1 {
        "<div class=\"pair\">\n"
    } else {
        "<div>\n"
    };
    for map in maps {
        figure(out, map, "");
    }
    *out += "</div>\n";
    tables::plans(out, report);
    *out += "</section>\n";
}

fn compared(out: &mut String, report: &Report<'_>, drawn: &[Figure]) {
    if report.compared.len() < 2 {
        return;
    }
    *out += "<section id=\"runs\">\n<h2 class=\"part\">Compared with other runs</h2>\n<div class=\"pair\">\n";
    for drawn in drawn.iter().filter(|f| f.name.starts_with("runs-")) {
        figure(out, drawn, "");
    }
    *out += "</div>\n</section>\n";
}

fn about(out: &mut String, report: &Report<'_>) {
    let meta = report.profile.meta();
    let mut notes: Vec<String> = vec![
        format!("recorded with {}", meta.frontend),
        format!(
            "{} clock, times in {}",
            meta.clock.name(),
            meta.clock.unit()
        ),
        format!("cache lines of {} bytes", meta.line_size),
        format!(
            "pages of {}",
            number::page_size(report.profile.pages().page_size())
        ),
    ];
    notes.extend(window::sampled_words(meta));
    notes.extend(meta.window.iter().flat_map(window::lines));
    if let Some(source) = &meta.dram_source {
        notes.push(format!("DRAM bytes from: {source}"));
    }
    notes.extend(meta.notes.iter().cloned());
    let notes: String = notes
        .iter()
        .map(|note| format!("<li>{}</li>", escape(note)))
        .collect();
    let _ = writeln!(
        out,
        "<footer><ul>{notes}</ul><p>{}</p></footer>",
        escape(report.written)
    );
}
