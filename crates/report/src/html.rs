//! The report: one HTML file that needs nothing else, not even a network.
//!
//! Everything a reader needs is drawn as SVG and tables when the file is written; the script only adds the
//! interactive matrix. The page forbids itself every connection (`Content-Security-Policy`). All text
//! from a profile goes through [`escape`]; the data block cannot close its element.

use std::fmt::Write;

use numaloc_analysis::Characterisation;
use numaloc_analysis::verdict::Likelihood;
use numaloc_model::profile::{Amount, Profile};
use numaloc_topology::Topology;
use serde_json::{Value, json};

use crate::figures::{self, Figure, NodeSeries, Occupied, Paint, escape};
use crate::metrics;
use crate::number;
use crate::plan::PlanView;

mod encode;

const CSS: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");
/// Characters of matrix data that one report may hold: the file stays below 5 MB.
const MATRIX_BUDGET: usize = 4_000_000;
/// Rows of the thread table before it is cut.
const LISTED_THREADS: usize = 1024;
/// Rows of the object table.
const LISTED_OBJECTS: usize = 20;

/// What a report is made of.
pub struct Report<'a> {
    /// The recorded run.
    pub profile: &'a Profile,
    /// What it was found to do.
    pub found: &'a Characterisation,
    /// What page metrics assume, in words.
    pub assumed: &'a str,
    /// The machine, where one is known.
    pub machine: Option<&'a Topology>,
    /// Plans for that machine.
    pub plans: &'a [PlanView],
    /// Name of the profile.
    pub title: &'a str,
    /// When and by which version the report was written.
    pub written: &'a str,
}

/// The figures that do not need a reader's hand, in the report's order.
#[must_use]
pub fn figures(report: &Report<'_>, paint: Paint) -> Vec<Figure> {
    let (profile, c) = (report.profile, report.found);
    let mut all = Vec::new();
    if c.events.stored_cells() > 0 {
        all.push(Figure {
            name: "matrix",
            title: format!("Communication matrix ({})", c.layer.name()),
            caption: "Who produces (rows) what whom needs (columns).".into(),
            svg: figures::matrix(&c.events, paint),
        });
        all.push(Figure {
            name: "timeline",
            title: "Communication over time".into(),
            caption:
                "Events by slice. One colour is one cluster: what communicates at the same time."
                    .into(),
            svg: figures::timeline(profile, c, paint),
        });
        all.push(Figure {
            name: "behaviour",
            title: "Pattern over time".into(),
            caption: "Heterogeneity of every slice: high where few pairs talk, low where everybody does. \
                      Lines mark changes of the pattern.".into(),
            svg: figures::behaviour(c, paint),
        });
    }
    if let Some(svg) = figures::load(profile, paint) {
        all.push(Figure {
            name: "load",
            title: "Memory accesses over time".into(),
            caption: "Loads and stores by slice: where the memory is under pressure.".into(),
            svg,
        });
    }
    if c.pages.pages > 0 {
        all.push(Figure {
            name: "exclusivity",
            title: "Page exclusivity".into(),
            caption:
                "Far right: pages that one node uses alone. They gain most from their right place."
                    .into(),
            svg: figures::distribution(c, paint),
        });
        all.push(Figure {
            name: "exclusivity-by-page-size",
            title: "Exclusivity by page size".into(),
            caption: "Share of the accesses that can be local. Larger pages hold more users each."
                .into(),
            svg: figures::by_page_size(c, paint),
        });
        let mut pages = vec![series("first touch", &c.pages.node_pages)];
        let mut accesses = vec![series("first touch", &c.pages.node_accesses)];
        for plan in report.plans {
            pages.push(series(&plan.name, &plan.pages.node_pages));
            accesses.push(series(&plan.name, &plan.pages.node_accesses));
        }
        all.push(Figure {
            name: "pages-per-node",
            title: "Pages on every node".into(),
            caption: "Where pages lie; even bars are page balance 1.".into(),
            svg: figures::per_node(&pages, "pages", paint),
        });
        all.push(Figure {
            name: "accesses-per-node",
            title: "Accesses that every node answers".into(),
            caption: "The load of the memory controllers; one tall bar is a bottleneck.".into(),
            svg: figures::per_node(&accesses, "accesses", paint),
        });
    }
    if let Some(found) = &c.migrations {
        all.push(Figure {
            name: "migrations",
            title: "Page migrations".into(),
            caption: "Moves needed to keep every page on the node that uses it most in each slice. Mostly \
                      none: a place chosen once will do.".into(),
            svg: figures::migrations(found, paint),
        });
    }
    if let Some(machine) = report.machine {
        for (name, title, caption, pus) in mappings(report, machine) {
            all.push(Figure {
                name,
                title,
                caption,
                svg: figures::machine(
                    machine,
                    &pus,
                    if report.plans.is_empty() {
                        1080.0
                    } else {
                        530.0
                    },
                    paint,
                ),
            });
        }
    }
    all
}

fn series(name: &str, by_node: &[u64]) -> NodeSeries {
    NodeSeries {
        name: name.to_owned(),
        by_node: by_node.to_vec(),
    }
}

/// Threads on PUs, before (in order) and after every plan. Colours: the node of the first plan, so
/// that "after" is one colour per node and "before" shows what was mixed.
fn mappings(
    report: &Report<'_>,
    machine: &Topology,
) -> Vec<(&'static str, String, String, Vec<Occupied>)> {
    let c = report.found;
    let colour = |t: usize| match report.plans.first() {
        Some(plan) => plan.assignment.node(t),
        None => c.assignment.node(t),
    };
    let count = machine.pus().len();
    let threads = report.profile.threads.len();
    let mut before = vec![Occupied::default(); count];
    // Blocks over nodes, in order within a node: what page metrics assume.
    let mut next: Vec<usize> = vec![0; machine.nodes().len()];
    for t in 0..threads {
        let node = c.assignment.node(t).min(machine.nodes().len() - 1);
        let pus = &machine.nodes()[node].pus;
        if !pus.is_empty() {
            let pu = pus[next[node] % pus.len()];
            next[node] += 1;
            before[pu.index()].threads.push((t, colour(t)));
        }
    }
    let share = numaloc_analysis::mapping_cost::remote_share(&c.events, c.layer, &c.assignment);
    let mut all = vec![(
        "threads-before",
        "Before: threads in order".to_owned(),
        format!(
            "{} of the communication is between nodes.",
            number::percent(share)
        ),
        before,
    )];
    const NAMES: [&str; 4] = [
        "threads-plan-1",
        "threads-plan-2",
        "threads-plan-3",
        "threads-plan-4",
    ];
    for (plan, name) in report.plans.iter().zip(NAMES) {
        let mut after = vec![Occupied::default(); count];
        for (t, pu) in plan.pus.iter().enumerate() {
            if let Some(pu) = pu {
                after[pu.index()].threads.push((t, colour(t)));
            }
        }
        let missing = match plan.missing_threads {
            0 => String::new(),
            n => format!(" {n} threads of the run are not in the plan."),
        };
        all.push((
            name,
            format!("{}: {}", plan.name, plan.policies),
            format!(
                "{} of the communication is between nodes; busiest node {:.2} times the mean.{missing}",
                number::percent(plan.remote_share),
                plan.imbalance
            ),
            after,
        ));
    }
    all
}

/// The page.
#[must_use]
pub fn page(report: &Report<'_>) -> String {
    let mut out = String::with_capacity(1 << 20);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n\
         <title>{} - numaloc</title>\n<style>{CSS}</style>\n</head>\n<body>\n",
        escape(report.title)
    );
    head(&mut out, report);
    out += "<main>\n";
    verdicts(&mut out, report.found);
    let drawn = figures(report, Paint::page());
    communication(&mut out, report, &drawn);
    memory(&mut out, report, &drawn);
    mapping(&mut out, report, &drawn);
    metric_table(&mut out, report);
    threads(&mut out, report.profile);
    about(&mut out, report);
    out += "</main>\n";
    let data = data(report).to_string().replace('<', "\\u003c");
    let _ = write!(
        out,
        "<script type=\"application/json\" id=\"data\">{data}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    );
    out
}

fn head(out: &mut String, report: &Report<'_>) {
    let p = report.profile;
    let accesses: u64 = p.threads.iter().map(|t| t.accesses).sum();
    let facts = [
        (number::count(p.threads.len() as f64), "threads"),
        (number::count(accesses as f64), "accesses"),
        (
            number::bytes(report.found.pages.memory_bytes() as f64),
            "memory",
        ),
        (number::count(p.slices.len() as f64), "time slices"),
    ];
    let facts: String = facts
        .iter()
        .map(|(value, word)| format!("<li><b>{}</b> {word}</li>", escape(value)))
        .collect();
    let short = if p.meta.complete {
        ""
    } else {
        "<p class=\"alarm\">This profile was cut short: the run was interrupted or a limit was hit.</p>"
    };
    let _ = write!(
        out,
        "<header>\n<div class=\"bar\"><span class=\"brand\">numaloc</span>\
         <button id=\"theme\" type=\"button\" class=\"quiet\">light / dark</button></div>\n\
         <h1>{}</h1>\n<p class=\"command\"><code>{}</code></p>\n<ul class=\"facts\">{facts}</ul>{short}\n</header>\n",
        escape(report.title),
        escape(&p.meta.command.join(" "))
    );
}

fn verdicts(out: &mut String, c: &Characterisation) {
    *out += "<section class=\"verdicts\" aria-label=\"Verdict\">\n";
    for verdict in &c.verdicts {
        let (class, sign) = match verdict.likelihood {
            Likelihood::Likely => ("yes", "&#10003;"),
            Likelihood::Unlikely => ("no", "&#8722;"),
            Likelihood::CannotTell => ("maybe", "?"),
        };
        let mut name = verdict.measure.words().to_owned();
        name[..1].make_ascii_uppercase();
        let _ = writeln!(
            out,
            "<article class=\"verdict {class}\"><h2>{}</h2><p class=\"answer\"><span aria-hidden=\"true\">{sign}</span>{}</p><p>{}</p></article>",
            escape(&name),
            verdict.likelihood.words(),
            options_as_code(&escape(&sentence(&verdict.reason)))
        );
    }
    *out += "</section>\n";
}

/// Options of commands must not break at their hyphens.
fn options_as_code(escaped: &str) -> String {
    escaped
        .replace("(--", "(<code class=\"option\">--")
        .replace("locality).", "locality</code>).")
        .replace("deloc).", "deloc</code>).")
}

/// With a capital and a full stop.
fn sentence(text: &str) -> String {
    let mut text = text.to_owned();
    if text.is_char_boundary(1) {
        text[..1].make_ascii_uppercase();
    }
    text + "."
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

fn communication(out: &mut String, report: &Report<'_>, drawn: &[Figure]) {
    *out += "<section>\n<h2 class=\"part\">Who talks to whom, and when</h2>\n";
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
        clusters(out, report);
    }
    for name in ["behaviour", "load"] {
        if let Some(drawn) = of(drawn, name) {
            figure(out, drawn, "wide");
        }
    }
    *out += "</section>\n";
}

fn clusters(out: &mut String, report: &Report<'_>) {
    let c = report.found;
    *out += "<div class=\"chips\" role=\"group\" aria-label=\"Show one cluster in the matrix\">";
    *out += "<button type=\"button\" class=\"chip\" data-view=\"0\">whole run</button>";
    for (at, (cluster, group)) in c
        .concurrency
        .clusters
        .iter()
        .zip(&c.concurrency.groups)
        .enumerate()
    {
        let _ = write!(
            out,
            "<button type=\"button\" class=\"chip\" data-view=\"{}\" title=\"slices {} to {}\"><i style=\"background:{}\"></i>cluster {}: {} events, {} pairs</button>",
            at + 1,
            cluster.first.0,
            cluster.last.0,
            figures::SERIES[at % figures::SERIES.len()],
            at + 1,
            number::count(cluster.events as f64),
            number::count(group.pairs.len() as f64)
        );
    }
    *out += "</div>\n";
}

fn memory(out: &mut String, report: &Report<'_>, drawn: &[Figure]) {
    let c = report.found;
    if c.pages.pages == 0 {
        *out += "<section><h2 class=\"part\">Whose pages</h2><p class=\"card\">No page use was recorded.</p></section>\n";
        return;
    }
    let _ = write!(
        out,
        "<section>\n<h2 class=\"part\">Whose pages, and where</h2>\n<p class=\"lead\">For {}.</p>\n<div class=\"pair\">\n",
        escape(report.assumed)
    );
    for name in [
        "exclusivity",
        "exclusivity-by-page-size",
        "pages-per-node",
        "accesses-per-node",
        "migrations",
    ] {
        if let Some(drawn) = of(drawn, name) {
            figure(out, drawn, "");
        }
    }
    *out += "</div>\n";
    objects(out, report);
    sharing(out, report);
    *out += "</section>\n";
}

fn sharing(out: &mut String, report: &Report<'_>) {
    let memory = &report.found.sharing.memory;
    if memory.is_empty() {
        return;
    }
    *out += "<div class=\"card\" id=\"sharing\"><h3>Cache lines shared</h3><p class=\"hint\">False: the reader used none of the \
             bytes that the writer had written. Lines of their own for each thread end it.</p>\
             <div class=\"scroll\"><table><thead><tr><th>memory</th><th class=\"n\">events</th>\
             <th class=\"n\">false</th><th class=\"n\">lines</th></tr></thead><tbody>\n";
    for shared in memory.iter().take(LISTED_OBJECTS) {
        let _ = writeln!(
            out,
            "<tr><td class=\"name\">{}</td><td class=\"n\">{}</td><td class=\"n{}\">{}</td><td class=\"n\">{}</td></tr>",
            escape(&shared.label(report.profile)),
            number::count(shared.events as f64),
            if shared.false_share() > 0.5 {
                " bad"
            } else {
                ""
            },
            number::percent(shared.false_share()),
            shared.lines,
        );
    }
    *out += "</tbody></table></div></div>\n";
}

fn objects(out: &mut String, report: &Report<'_>) {
    let c = report.found;
    if c.objects.is_empty() {
        return;
    }
    let most = c.objects.first().map_or(1, |o| o.accesses().max(1));
    *out += "<div class=\"card\"><h3>Memory by object</h3><p class=\"hint\">Local: share of the accesses that \
             first touch makes local. Best: the share the best node for every page would give.</p>\
             <div class=\"scroll\"><table><thead><tr><th>object</th><th class=\"n\">accesses</th>\
             <th class=\"n\">pages</th><th class=\"n\">threads</th><th>first touched by</th>\
             <th class=\"n\">local</th><th class=\"n\">best</th></tr></thead><tbody>\n";
    for use_ in c.objects.iter().take(LISTED_OBJECTS) {
        let object = use_.object(report.profile);
        let kind = object.map_or("", |object| object.kind.name());
        let toucher = use_.first_toucher.map_or_else(
            || "not observed".to_owned(),
            |(thread, _)| {
                format!(
                    "thread {} ({})",
                    thread.0,
                    number::percent(use_.first_touch_share())
                )
            },
        );
        let loses = use_.exclusivity - use_.local_share > 0.2;
        let _ = writeln!(
            out,
            "<tr><td class=\"name\"><span class=\"kind\">{}</span> {}</td>\
             <td class=\"n\"><span class=\"meter\" style=\"--w:{:.1}%\"></span>{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td>{}</td><td class=\"n{}\">{}</td><td class=\"n\">{}</td></tr>",
            escape(kind),
            escape(&use_.label(report.profile)),
            use_.accesses() as f64 / most as f64 * 100.0,
            number::count(use_.accesses() as f64),
            number::count(use_.pages as f64),
            use_.threads,
            escape(&toucher),
            if loses { " bad" } else { "" },
            number::percent(use_.local_share),
            number::percent(use_.exclusivity),
        );
    }
    *out += "</tbody></table></div>";
    if c.objects.len() > LISTED_OBJECTS {
        let _ = write!(
            out,
            "<p class=\"hint\">and {} more.</p>",
            c.objects.len() - LISTED_OBJECTS
        );
    }
    *out += "</div>\n";
}

fn mapping(out: &mut String, report: &Report<'_>, drawn: &[Figure]) {
    let maps: Vec<&Figure> = drawn
        .iter()
        .filter(|f| f.name.starts_with("threads-"))
        .collect();
    if maps.is_empty() && report.plans.is_empty() {
        return;
    }
    *out += "<section>\n<h2 class=\"part\">Where threads go</h2>\n";
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
    plans(out, report);
    *out += "</section>\n";
}

fn plans(out: &mut String, report: &Report<'_>) {
    if report.plans.is_empty() {
        return;
    }
    let c = report.found;
    let remote = numaloc_analysis::mapping_cost::remote_share(&c.events, c.layer, &c.assignment);
    let share = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), number::percent);
    *out += "<div class=\"card\"><h3>Plans compared</h3><div class=\"scroll\"><table><thead><tr><th>plan</th>\
             <th>policies</th><th class=\"n\">remote communication</th><th class=\"n\">local page accesses</th>\
             <th class=\"n\">page balance</th><th class=\"n\">access balance</th></tr></thead><tbody>\n";
    let mut row = |name: &str,
                   policies: &str,
                   remote: f64,
                   pages: &numaloc_analysis::PageMetrics| {
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escape(name),
            escape(policies),
            number::percent(remote),
            share(pages.local_share),
            share(pages.page_balance),
            share(pages.access_balance)
        );
    };
    row("no plan", "in order + first touch", remote, &c.pages);
    for plan in report.plans {
        row(&plan.name, &plan.policies, plan.remote_share, &plan.pages);
    }
    *out += "</tbody></table></div></div>\n";
}

fn metric_table(out: &mut String, report: &Report<'_>) {
    *out += "<section>\n<h2 class=\"part\">Metrics</h2>\n<div class=\"card scroll\"><table class=\"metrics\">\
             <thead><tr><th>metric</th><th></th><th class=\"n\">value</th><th>range</th><th>meaning</th><th>source</th></tr></thead>\n";
    for section in metrics::sections(report.found) {
        let _ = writeln!(
            out,
            "<tbody><tr class=\"group\"><th colspan=\"6\">{}</th></tr>",
            section.title
        );
        for m in &section.metrics {
            let _ = writeln!(
                out,
                "<tr><td{}>{}</td><td class=\"symbol\">{}</td><td class=\"n value\">{}</td><td class=\"range\">{}</td><td>{}</td><td class=\"source\">{}</td></tr>",
                if m.name.starts_with(' ') {
                    " class=\"sub\""
                } else {
                    ""
                },
                escape(m.name.trim()),
                escape(m.symbol),
                escape(&m.shown()),
                escape(m.range),
                escape(m.meaning),
                escape(m.source)
            );
        }
        *out += "</tbody>\n";
    }
    *out += "</table></div>\n</section>\n";
}

fn threads(out: &mut String, profile: &Profile) {
    let most = profile
        .threads
        .iter()
        .map(|t| t.accesses)
        .max()
        .unwrap_or(1)
        .max(1);
    let _ = write!(
        out,
        "<section>\n<details class=\"card\"><summary>Threads ({})</summary><div class=\"scroll\"><table><thead><tr>\
         <th class=\"n\">thread</th><th>path</th><th>label</th><th class=\"n\">accesses</th><th class=\"n\">read</th>\
         <th class=\"n\">written</th></tr></thead><tbody>\n",
        profile.threads.len()
    );
    for (at, t) in profile.threads.iter().enumerate().take(LISTED_THREADS) {
        let _ = writeln!(
            out,
            "<tr><td class=\"n\">{at}</td><td><code>{}</code></td><td>{}</td><td class=\"n\"><span class=\"meter\" style=\"--w:{:.1}%\"></span>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escape(&t.path),
            escape(t.label.as_deref().unwrap_or("")),
            t.accesses as f64 / most as f64 * 100.0,
            number::count(t.accesses as f64),
            number::bytes(t.read_bytes as f64),
            number::bytes(t.write_bytes as f64)
        );
    }
    *out += "</tbody></table></div></details>\n</section>\n";
}

fn about(out: &mut String, report: &Report<'_>) {
    let meta = &report.profile.meta;
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
            number::page_size(report.profile.pages.page_size())
        ),
    ];
    if meta.sampled < 1.0 {
        notes.push(format!(
            "{} of the accesses sampled",
            number::percent(meta.sampled)
        ));
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

/// What the script needs: matrices by layer and cluster, orders, thread names.
fn data(report: &Report<'_>) -> Value {
    let (profile, c) = (report.profile, report.found);
    let threads = profile.threads.len();
    let bins = threads.min(encode::SIDE);
    let mut spent = 0;
    let mut left_out = 0;
    let mut layers = Vec::new();
    let mut all = profile.layers();
    all.sort_by_key(|&layer| layer != c.layer);
    for layer in all {
        let mut views = Vec::new();
        let mut push = |name: String, matrix: &numaloc_model::CommMatrix| {
            let coded = encode::matrix(matrix, bins);
            let size = coded["cells"].as_str().map_or(0, str::len);
            if spent + size > MATRIX_BUDGET {
                left_out += 1;
                return;
            }
            spent += size;
            views.push(json!({"name": name, "matrix": coded}));
        };
        if layer == c.layer {
            push("whole run".into(), &c.events);
            for (at, cluster) in c.concurrency.clusters.iter().enumerate() {
                let slices = cluster.first.0..cluster.last.0 + 1;
                if let Ok(matrix) = profile.matrix_of_slices(layer, Amount::Events, slices) {
                    push(format!("cluster {}", at + 1), &matrix);
                }
            }
        } else if let Ok(matrix) = profile.matrix(layer, Amount::Events) {
            push("whole run".into(), &matrix);
        }
        if !views.is_empty() {
            layers.push(json!({"name": layer.name(), "views": views}));
        }
    }
    let orders: Vec<Value> = if bins < threads {
        Vec::new()
    } else {
        report
            .plans
            .iter()
            .map(|plan| order(plan, threads))
            .collect()
    };
    json!({
        "threads": threads,
        "bins": bins,
        "labels": profile.threads.iter().map(|t| match &t.label {
            Some(label) => format!("{} {label}", t.path),
            None => t.path.clone(),
        }).take(encode::SIDE).collect::<Vec<_>>(),
        "layers": layers,
        "orders": orders,
        "leftOut": left_out,
    })
}

/// Threads by planned node and PU, and where a new node begins.
fn order(plan: &PlanView, threads: usize) -> Value {
    let mut order: Vec<usize> = (0..threads).collect();
    let key = |t: usize| (plan.assignment.node(t), plan.pus[t], t);
    order.sort_by_key(|&t| key(t));
    let starts: Vec<usize> = (1..threads)
        .filter(|&at| plan.assignment.node(order[at]) != plan.assignment.node(order[at - 1]))
        .collect();
    json!({"name": format!("by node of {}", plan.name), "order": order, "starts": starts})
}
