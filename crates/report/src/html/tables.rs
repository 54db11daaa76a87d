//! The report's tables.

use std::fmt::Write;

use numaloc_model::profile::Profile;

use super::Report;
use crate::figures::escape;
use crate::metrics::sections;
use crate::number;

/// Maximum number of rows of the thread table.
const LISTED_THREADS: usize = 1024;
/// Maximum number of rows of a table of memory.
const LISTED_OBJECTS: usize = 20;
/// Number of rows that are listed even if their amounts are small.
const ALWAYS_LISTED: usize = 5;

/// Number of rows to list for these amounts (in descending order): those of at least 0.1 % of the sum.
fn worth_listing(amounts: impl Iterator<Item = u64> + Clone) -> usize {
    let all: u64 = amounts.clone().sum();
    let large = amounts
        .clone()
        .filter(|&amount| amount >= all / 1000)
        .count();
    large
        .clamp(ALWAYS_LISTED, LISTED_OBJECTS)
        .min(amounts.count())
}

/// Page policies: data mapping Table I, and what else decides between them.
pub(super) fn policies(out: &mut String, report: &Report<'_>) {
    if report.policies.is_empty() {
        return;
    }
    let share = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), number::percent);
    *out += "<div class=\"card\" id=\"page-policies\"><h3>Page policies</h3><p class=\"hint\">Threads stay where they are; \
             <code>numaloc plan</code> moves them too.</p><div class=\"scroll\"><table><thead><tr><th>policy</th>\
             <th class=\"n\">local accesses</th><th class=\"n\">balance of pages</th>\
             <th class=\"n\">balance of accesses</th><th class=\"n\">right pages</th>\
             <th class=\"n\">accesses to them</th></tr></thead><tbody>\n";
    for policy in report.policies {
        let p = &policy.pages;
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
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

fn rest(out: &mut String, more: usize) {
    if more > 0 {
        let _ = write!(out, "<p class=\"hint\">and {more} smaller.</p>");
    }
}

pub(super) fn sharing(out: &mut String, report: &Report<'_>) {
    let memory = &report.found.sharing.memory;
    if memory.is_empty() {
        return;
    }
    *out += "<div class=\"card\" id=\"sharing\"><h3>Cache lines shared</h3><p class=\"hint\">False: the reader used none of the \
             bytes that the writer had written. Lines of their own for each thread end it.</p>\
             <div class=\"scroll\"><table><thead><tr><th>memory</th><th class=\"n\">events</th>\
             <th class=\"n\">false</th><th class=\"n\">lines</th></tr></thead><tbody>\n";
    let listed = worth_listing(memory.iter().map(|m| m.events));
    for shared in memory.iter().take(listed) {
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
    *out += "</tbody></table></div>";
    rest(out, memory.len() - listed);
    *out += "</div>\n";
}

pub(super) fn objects(out: &mut String, report: &Report<'_>) {
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
    let listed = worth_listing(c.objects.iter().map(|o| o.accesses()));
    for use_ in c.objects.iter().take(listed) {
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
    rest(out, c.objects.len() - listed);
    *out += "</div>\n";
}

pub(super) fn plans(out: &mut String, report: &Report<'_>) {
    if report.plans.is_empty() {
        return;
    }
    let c = report.found;
    let remote = numaloc_analysis::mapping_cost::remote_share(c.weighed(), c.layer, &c.assignment);
    let share = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), number::percent);
    *out += "<div class=\"card\"><h3>Plans compared</h3><div class=\"scroll\"><table><thead><tr><th>plan</th>\
             <th>policies</th><th class=\"n\">remote communication</th><th class=\"n\">Load_std</th><th class=\"n\">local page accesses</th>\
             <th class=\"n\">page balance</th><th class=\"n\">access balance</th></tr></thead><tbody>\n";
    let mut row = |name: &str,
                   policies: &str,
                   remote: f64,
                   deviation: f64,
                   pages: &numaloc_analysis::PageMetrics| {
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escape(name),
            escape(policies),
            number::percent(remote),
            number::count(deviation),
            share(pages.local_share),
            share(pages.page_balance),
            share(pages.access_balance)
        );
    };
    let still = c.load.deviation;
    row("no plan", "in order + first touch", remote, still, &c.pages);
    for plan in report.plans {
        row(
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
    *out += "<section id=\"metrics\">\n<h2 class=\"part\">Metrics</h2>\n<div class=\"card scroll\"><table class=\"metrics\">\
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
    *out += "</table></div>\n</section>\n";
}

pub(super) fn threads(out: &mut String, profile: &Profile) {
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
