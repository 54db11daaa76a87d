//! The report's tables. Numbers have their exact value in `data-v`, for sorting and CSV (`tables.js`).

use std::fmt::Write;

use numaloc_analysis::roles::are_worth_listing;
use numaloc_analysis::segments;
use numaloc_model::profile::Profile;

use super::Report;
use crate::figures::escape;
use crate::metrics::sections;
use crate::number;

/// Maximum number of rows of the thread table.
const LISTED_THREADS: usize = 4096;
/// Maximum number of rows of a table of memory.
pub(super) const LISTED_OBJECTS: usize = 2000;
/// Rows of the thread table that are shown before the reader asks for all.
const SHOWN_THREADS: usize = 128;
/// Rows of a table of memory that are shown before the reader asks for all.
pub(super) const SHOWN_OBJECTS: usize = 20;
/// Number of rows that are shown even if their amounts are small.
const ALWAYS_SHOWN: usize = 5;

/// Number of rows to show at first for these amounts (in descending order): those of at least 0.1 % of the sum.
fn worth_showing(amounts: impl Iterator<Item = u64> + Clone) -> usize {
    let all: u64 = amounts.clone().sum();
    let large = amounts
        .clone()
        .filter(|&amount| amount >= all / 1000)
        .count();
    large
        .clamp(ALWAYS_SHOWN, SHOWN_OBJECTS)
        .min(amounts.count())
}

/// Opens a table that the page's script sorts, searches and saves under `name`; `heads` are the cells of its head.
pub(super) fn open(out: &mut String, name: &str, heads: &str) {
    let _ = writeln!(
        out,
        "<div class=\"scroll\"><table data-name=\"{name}\"><thead><tr>{heads}</tr></thead><tbody>"
    );
}

/// A cell with a number: `shown` is what is read, `value` what is sorted and saved.
pub(super) fn cell(value: f64, shown: &str) -> String {
    format!("<td class=\"n\" data-v=\"{value}\">{}</td>", escape(shown))
}

/// A cell with a share, in percent when shown; `-` if there is none.
pub(super) fn share(value: Option<f64>) -> String {
    value.map_or_else(
        || "<td class=\"n\">-</td>".to_owned(),
        |value| cell(value, &number::percent(value)),
    )
}

/// As [`cell`], with a bar of `part` of its width.
fn metered(value: f64, shown: &str, part: f64) -> String {
    format!(
        "<td class=\"n\" data-v=\"{value}\"><span class=\"meter\" style=\"--w:{:.1}%\"></span>{}</td>",
        part * 100.0,
        escape(shown)
    )
}

/// As [`cell`], marked if it is `bad`.
fn judged(value: f64, shown: &str, bad: bool) -> String {
    let class = if bad { "n bad" } else { "n" };
    format!(
        "<td class=\"{class}\" data-v=\"{value}\">{}</td>",
        escape(shown)
    )
}

/// The start of a row: one after the first `shown` is hidden until the reader asks for all.
pub(super) fn row(at: usize, shown: usize) -> &'static str {
    if at < shown {
        "<tr>"
    } else {
        "<tr class=\"more\">"
    }
}

/// Page policies: data mapping Table I, and what else decides between them.
pub(super) fn policies(out: &mut String, report: &Report<'_>) {
    if report.policies.is_empty() {
        return;
    }
    *out += "<div class=\"card\" id=\"page-policies\"><h3>Page policies</h3><p class=\"hint\">Threads stay where they are; \
             <code>numaloc plan</code> moves them too.</p>";
    open(
        out,
        "page-policies",
        "<th>policy</th><th class=\"n\">local accesses</th><th class=\"n\">balance of pages</th>\
         <th class=\"n\">balance of accesses</th><th class=\"n\">right pages</th><th class=\"n\">accesses to them</th>",
    );
    for policy in report.policies {
        let p = &policy.pages;
        let _ = writeln!(
            out,
            "<tr><td>{}</td>{}{}{}{}{}</tr>",
            escape(&policy.name),
            share(p.local_share),
            share(p.page_balance),
            share(p.access_balance),
            share(p.page_accuracy),
            share(p.access_accuracy)
        );
    }
    *out += "</tbody></table></div></div>\n";
}

/// Says how many rows were left out.
pub(super) fn rest(out: &mut String, more: usize) {
    if more > 0 {
        let _ = write!(out, "<p class=\"hint\">and {more} more in the profile.</p>");
    }
}

pub(super) fn sharing(out: &mut String, report: &Report<'_>) {
    let memory = &report.found.sharing.memory;
    if memory.is_empty() {
        return;
    }
    *out += "<div class=\"card\" id=\"sharing\"><h3>Cache lines shared</h3><p class=\"hint\">False: the reader used none of the \
             bytes that the writer had written. Lines of their own for each thread end it.</p>";
    open(
        out,
        "cache-lines-shared",
        "<th>memory</th><th class=\"n\">events</th><th class=\"n\">false</th><th class=\"n\">lines</th>",
    );
    let shown = worth_showing(memory.iter().map(|m| m.events));
    for (at, shared) in memory.iter().take(LISTED_OBJECTS).enumerate() {
        let _ = writeln!(
            out,
            "{}<td class=\"name\">{}</td>{}{}{}</tr>",
            row(at, shown),
            escape(&shared.label(report.profile)),
            cell(shared.events as f64, &number::count(shared.events as f64)),
            judged(
                shared.false_share(),
                &number::percent(shared.false_share()),
                shared.false_share() > 0.5
            ),
            cell(shared.lines as f64, &shared.lines.to_string()),
        );
    }
    *out += "</tbody></table></div>";
    rest(out, memory.len().saturating_sub(LISTED_OBJECTS));
    *out += "</div>\n";
}

pub(super) fn objects(out: &mut String, report: &Report<'_>) {
    let c = report.found;
    if c.objects.is_empty() {
        return;
    }
    let most = c.objects.first().map_or(1, |o| o.accesses().max(1));
    *out += "<div class=\"card\"><h3>Memory by object</h3><p class=\"hint\">Local: share of the accesses that \
             first touch makes local. Best: the share the best node for every page would give.</p>";
    open(
        out,
        "memory-by-object",
        "<th>object</th><th class=\"n\">accesses</th><th class=\"n\">pages</th><th class=\"n\">threads</th>\
         <th>first touched by</th><th class=\"n\">local</th><th class=\"n\">best</th>",
    );
    let shown = worth_showing(c.objects.iter().map(|o| o.accesses()));
    for (at, use_) in c.objects.iter().take(LISTED_OBJECTS).enumerate() {
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
            "{}<td class=\"name\"><span class=\"kind\">{}</span> {}</td>{}{}{}<td>{}</td>{}{}</tr>",
            row(at, shown),
            escape(kind),
            escape(&use_.label(report.profile)),
            metered(
                use_.accesses() as f64,
                &number::count(use_.accesses() as f64),
                use_.accesses() as f64 / most as f64
            ),
            cell(use_.pages as f64, &number::count(use_.pages as f64)),
            cell(use_.threads as f64, &use_.threads.to_string()),
            escape(&toucher),
            judged(use_.local_share, &number::percent(use_.local_share), loses),
            cell(use_.exclusivity, &number::percent(use_.exclusivity)),
        );
    }
    *out += "</tbody></table></div>";
    rest(out, c.objects.len().saturating_sub(LISTED_OBJECTS));
    *out += "</div>\n";
}

pub(super) fn plans(out: &mut String, report: &Report<'_>) {
    if report.plans.is_empty() {
        return;
    }
    let c = report.found;
    let remote = numaloc_analysis::mapping_cost::remote_share(c.weighed(), c.layer, &c.assignment);
    *out += "<div class=\"card\"><h3>Plans compared</h3>";
    open(
        out,
        "plans",
        "<th>plan</th><th>policies</th><th class=\"n\">remote communication</th><th class=\"n\">Load_std</th>\
         <th class=\"n\">local page accesses</th><th class=\"n\">page balance</th><th class=\"n\">access balance</th>",
    );
    let mut line = |name: &str,
                    policies: &str,
                    remote: f64,
                    deviation: f64,
                    pages: &numaloc_analysis::PageMetrics| {
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td>{}{}{}{}{}</tr>",
            escape(name),
            escape(policies),
            share(Some(remote)),
            cell(deviation, &number::count(deviation)),
            share(pages.local_share),
            share(pages.page_balance),
            share(pages.access_balance)
        );
    };
    let still = c.load.deviation;
    line("no plan", "in order + first touch", remote, still, &c.pages);
    for plan in report.plans {
        line(
            &plan.name,
            &plan.policies,
            plan.remote_share,
            plan.load_deviation,
            &plan.pages,
        );
    }
    *out += "</tbody></table></div></div>\n";
}

pub(super) fn metrics(out: &mut String, report: &Report<'_>) {
    *out += "<section id=\"metrics\">\n<h2 class=\"part\">Metrics</h2>\n<div class=\"card\"><div class=\"scroll\"><table class=\"metrics\" data-name=\"metrics\">\
             <thead><tr><th>metric</th><th></th><th class=\"n\">value</th><th>range</th><th>meaning</th><th>source</th></tr></thead>\n";
    for section in sections(report.found) {
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
    *out += "</table></div></div>\n</section>\n";
}

/// The roles of a program with many threads or several processes.
pub(super) fn roles(out: &mut String, report: &Report<'_>) {
    let roles = &report.found.roles;
    if !are_worth_listing(report.profile) {
        return;
    }
    let _ = write!(
        out,
        "<section>\n<details class=\"card\" open><summary>Roles ({})</summary>",
        roles.len()
    );
    open(
        out,
        "roles",
        "<th>role</th><th class=\"n\">threads</th><th class=\"n\">processes</th>\
         <th class=\"n\">accesses</th><th class=\"n\">remote</th><th>most used memory</th>",
    );
    for (at, role) in roles.iter().enumerate().take(LISTED_THREADS) {
        let count = |number: usize| cell(number as f64, &number.to_string());
        let objects = role.objects.iter().map(|(name, _)| name.as_str());
        let objects = objects.collect::<Vec<_>>().join("; ");
        let _ = writeln!(
            out,
            "{}<td>{}</td>{}{}{}{}<td>{}</td></tr>",
            row(at, SHOWN_THREADS),
            escape(&role.group.name),
            count(role.group.threads.len()),
            count(role.processes),
            metered(
                role.accesses as f64,
                &number::count(role.accesses as f64),
                role.share
            ),
            share(role.remote_share),
            escape(&objects)
        );
    }
    *out += "</tbody></table></div>";
    rest(out, roles.len().saturating_sub(LISTED_THREADS));
    *out += "</details>\n</section>\n";
}

/// Memory by the names that people use for it, if a rule for a program holds.
pub(super) fn segments(out: &mut String, report: &Report<'_>) {
    let segments = &report.found.segments;
    if !segments::are_worth_listing(segments) {
        return;
    }
    let _ = write!(
        out,
        "<section>\n<details class=\"card\" open><summary>Memory by segment ({})</summary>",
        segments.len()
    );
    open(
        out,
        "segments",
        "<th>segment</th><th class=\"n\">accesses</th><th class=\"n\">remote</th>\
         <th class=\"n\">pages</th><th class=\"n\">threads</th><th class=\"n\">processes</th>\
         <th>the program's own settings</th>",
    );
    for (at, segment) in segments.iter().enumerate() {
        let count = |number: usize| cell(number as f64, &number.to_string());
        let _ = writeln!(
            out,
            "{}<td>{}</td>{}{}{}{}{}<td>{}</td></tr>",
            row(at, SHOWN_OBJECTS),
            escape(&segment.name),
            metered(
                segment.accesses as f64,
                &number::count(segment.accesses as f64),
                segment.share
            ),
            share(segment.remote_share),
            cell(segment.pages as f64, &number::count(segment.pages as f64)),
            count(segment.threads),
            count(segment.processes),
            escape(segment.switch.as_deref().unwrap_or_default())
        );
    }
    *out += "</tbody></table></div></details>\n</section>\n";
}

pub(super) fn threads(out: &mut String, profile: &Profile) {
    let most = profile
        .threads()
        .iter()
        .map(|t| t.accesses)
        .max()
        .unwrap_or(1)
        .max(1);
    let _ = write!(
        out,
        "<section>\n<details class=\"card\"><summary>Threads ({})</summary>",
        profile.threads().len()
    );
    open(
        out,
        "threads",
        "<th class=\"n\">thread</th><th>path</th><th>name</th><th class=\"n\">accesses</th>\
         <th class=\"n\">read</th><th class=\"n\">written</th>",
    );
    for (at, t) in profile.threads().iter().enumerate().take(LISTED_THREADS) {
        let _ = writeln!(
            out,
            "{}{}<td><code>{}</code></td><td>{}</td>{}{}{}</tr>",
            row(at, SHOWN_THREADS),
            cell(at as f64, &at.to_string()),
            escape(&t.path),
            escape(&t.shown().unwrap_or_default()),
            metered(
                t.accesses as f64,
                &number::count(t.accesses as f64),
                t.accesses as f64 / most as f64
            ),
            cell(t.read_bytes as f64, &number::bytes(t.read_bytes as f64)),
            cell(t.write_bytes as f64, &number::bytes(t.write_bytes as f64))
        );
    }
    *out += "</tbody></table></div>";
    rest(out, profile.threads().len().saturating_sub(LISTED_THREADS));
    *out += "</details>\n</section>\n";
}
