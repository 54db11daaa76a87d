//! The first screen: verdicts, what to do, what to run next.

use std::fmt::Write;

use numaloc_analysis::mapping_cost::remote_share;
use numaloc_analysis::verdict::Likelihood;
use numaloc_analysis::{Characterisation, PageMetrics};

use super::Report;
use crate::figures::escape;
use crate::number;
use crate::repeatability;

pub(super) fn write(out: &mut String, report: &Report<'_>) {
    answer(out, report);
    verdicts(out, report.found);
    ways(out, report.found);
    outcome(out, report);
    repeatable(out, report);
    next(out, report);
}

/// The answer: what is wrong as a headline, then where, what to do, what it gives, how sure.
fn answer(out: &mut String, report: &Report<'_>) {
    let lines = crate::answer::lines(report.profile, report.found, report.assumed);
    let mut lines = lines.iter();
    let Some(first) = lines.next() else {
        return;
    };
    let _ = write!(
        out,
        "<section class=\"card headline\" aria-label=\"Answer\"><h2>{}</h2><dl>",
        prose(&first.text)
    );
    for line in lines {
        let text = prose(&line.text);
        let _ = write!(out, "<dt>{}</dt><dd>{text}</dd>", line.word);
    }
    *out += "</dl>";
    if let Some(others) = crate::answer::others(report.found) {
        let _ = write!(out, "<p class=\"hint\">Also: {}</p>", prose(&others));
    }
    for remark in &report.found.memory {
        let text = prose(&remark.text());
        let _ = write!(out, "<p class=\"hint\">Memory: {text}</p>");
    }
    *out += "</section>\n";
}

fn verdicts(out: &mut String, c: &Characterisation) {
    *out += "<section class=\"verdicts\" aria-label=\"Verdict\">\n";
    for verdict in &c.verdicts {
        let (class, sign) = match verdict.likelihood {
            Likelihood::Likely => ("yes", "&#10003;"),
            Likelihood::Unlikely => ("no", "&#8722;"),
            Likelihood::CannotTell => ("maybe", "?"),
        };
        let action = verdict
            .action
            .as_deref()
            .map_or_else(String::new, |action| {
                format!("<p class=\"action\">{}</p>", prose(action))
            });
        let _ = writeln!(
            out,
            "<article class=\"verdict {class}\"><h2>{}</h2><p class=\"answer\"><span aria-hidden=\"true\">{sign}</span>{}</p>{action}<p class=\"why\">{}</p></article>",
            prose(verdict.measure.words()).trim_end_matches('.'),
            verdict.likelihood.words(),
            prose(&verdict.reason)
        );
    }
    *out += "</section>\n";
}

/// What binding, mapping and placement would each give.
fn ways(out: &mut String, c: &Characterisation) {
    if c.assignment.homes.len() < 2 {
        return;
    }
    let shown = |value: Option<f64>| value.map_or_else(|| "not known".to_owned(), number::percent);
    let _ = write!(
        out,
        "<section class=\"card outcome\" aria-label=\"What each step gives\"><table><thead><tr>\
         <th title=\"accesses are those beyond private caches of {} KiB; threads that are not bound may be moved to any node\">\
         what each step gives</th><th class=\"n\">communication between nodes</th><th class=\"n\">accesses that are local</th>\
         <th class=\"n\">balance of accesses</th></tr></thead><tbody>",
        c.private_cache_bytes >> 10
    );
    for outlook in &c.outlooks {
        let _ = write!(
            out,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escape(&outlook.way.words()),
            number::percent(outlook.remote),
            shown(outlook.local),
            shown(outlook.balance)
        );
    }
    *out += "</tbody></table></section>\n";
}

/// What the plans would change, in the two numbers that matter most.
fn outcome(out: &mut String, report: &Report<'_>) {
    if report.plans.is_empty() {
        return;
    }
    let c = report.found;
    let today = remote_share(c.weighed(), c.layer, &c.assignment);
    let local = |pages: &PageMetrics| pages.local_share.map(number::percent);
    *out += "<section class=\"card outcome\" aria-label=\"What the plans change\"><table><thead><tr><th>computed</th>\
             <th class=\"n\">communication between nodes</th><th class=\"n\">page accesses that are local</th>\
             <th class=\"n\">balance of accesses</th></tr></thead><tbody>";
    let mut row = |name: &str, remote: f64, pages: &PageMetrics| {
        let _ = write!(
            out,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escape(name),
            number::percent(remote),
            local(pages).as_deref().unwrap_or("not observed"),
            pages
                .access_balance
                .map_or_else(|| "not observed".to_owned(), number::percent)
        );
    };
    row("bound in order, first touch", today, &c.pages);
    for plan in report.plans {
        row(
            &format!("plan {}", plan.name),
            plan.remote_share,
            &plan.pages,
        );
    }
    *out += "</tbody></table></section>\n";
}

/// Whether threads do the same work in another run, and what to do if not.
fn repeatable(out: &mut String, report: &Report<'_>) {
    let Some(sentence) = repeatability::sentence(report.profile) else {
        return;
    };
    let _ = write!(
        out,
        "<section class=\"card outcome repeatability\" aria-label=\"Repeatability\"><p>{}</p>",
        prose(&sentence)
    );
    if let Some(advice) = repeatability::advice(report.profile) {
        let _ = write!(out, "<p class=\"hint\">Try: {}.</p>", escape(&advice));
    }
    *out += "</section>\n";
}

fn next(out: &mut String, report: &Report<'_>) {
    if report.next.is_empty() {
        return;
    }
    *out +=
        "<section class=\"card next\" aria-label=\"Commands to run next\"><h2>Run next</h2><ol>\n";
    for step in report.next {
        let _ = writeln!(
            out,
            "<li><div class=\"run\"><code tabindex=\"0\">{}</code><button type=\"button\" class=\"quiet copy\">copy</button></div><p class=\"hint\">{}</p></li>",
            escape(&step.command),
            escape(step.why)
        );
    }
    *out += "</ol></section>\n";
}

/// A sentence with a capital and a full stop; `names` and (--options) as code.
fn prose(text: &str) -> String {
    let mut out = String::new();
    for (at, part) in text.split('`').enumerate() {
        let part = escape(part);
        if at % 2 == 1 {
            let _ = write!(out, "<code>{part}</code>");
            continue;
        }
        // A percentage stays on one line.
        let part = part.replace(" %", "&nbsp;%");
        let mut rest = part.as_str();
        while let Some(from) = rest.find("(--") {
            let to = rest[from..].find(')').map_or(rest.len(), |to| from + to);
            let _ = write!(
                out,
                "{}(<code class=\"option\">{}</code>",
                &rest[..from],
                &rest[from + 1..to]
            );
            rest = &rest[to..];
        }
        out += rest;
    }
    if out.is_char_boundary(1) {
        out[..1].make_ascii_uppercase();
    }
    out + "."
}

#[cfg(test)]
mod tests {
    use super::prose;

    #[test]
    fn names_and_options_are_code_and_text_is_escaped() {
        assert_eq!(
            prose("put `a<b` there (--threads x)"),
            "Put <code>a&lt;b</code> there (<code class=\"option\">--threads x</code>)."
        );
        assert_eq!(
            prose("an open (--option"),
            "An open (<code class=\"option\">--option</code>."
        );
    }
}
