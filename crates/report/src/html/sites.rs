//! The report's tables of code sites: where the program communicates, and where it uses memory of others.

use std::fmt::Write;

use numaloc_analysis::objects::named_label;
use numaloc_analysis::sites::place_label;
use numaloc_model::profile::Profile;
use numaloc_model::{Named, ThreadIdx};

use super::Report;
use super::tables::{LISTED_OBJECTS, SHOWN_OBJECTS, cell, open, rest, row};
use crate::figures::escape;
use crate::number;

/// The name of memory, or `-`.
pub(crate) fn memory_name(profile: &Profile, memory: Option<Named>) -> String {
    memory.map_or_else(|| "-".to_owned(), |memory| named_label(profile, memory))
}

fn pair(pair: Option<(ThreadIdx, ThreadIdx)>) -> String {
    pair.map_or_else(
        || "-".to_owned(),
        |(from, to)| format!("T{} \u{2192} T{}", from.0, to.0),
    )
}

/// Both tables.
pub(super) fn tables(out: &mut String, report: &Report<'_>) {
    exchanges(out, report);
    accesses(out, report);
}

fn exchanges(out: &mut String, report: &Report<'_>) {
    let found = &report.found.sites.exchanges;
    if found.is_empty() {
        return;
    }
    *out += "<div class=\"card\" id=\"code-communication\"><h3>Code that communicates</h3><p class=\"hint\">From a sample of the \
             events of layer write_read.</p>";
    open(
        out,
        "code-communication",
        "<th>written in</th><th>read in</th><th>object</th><th class=\"n\">events</th>\
         <th class=\"n\">samples</th><th class=\"n\">pairs</th><th>most</th>",
    );
    for (at, one) in found.iter().take(LISTED_OBJECTS).enumerate() {
        let _ = writeln!(
            out,
            "{}<td class=\"name\">{}</td><td class=\"name\">{}</td><td class=\"name\">{}</td>{}{}{}<td>{}</td></tr>",
            row(at, SHOWN_OBJECTS),
            escape(&place_label(&one.write)),
            escape(&place_label(&one.read)),
            escape(&memory_name(report.profile, one.memory)),
            cell(one.events as f64, &number::count(one.events as f64)),
            cell(one.samples as f64, &number::count(one.samples as f64)),
            cell(one.pairs as f64, &one.pairs.to_string()),
            escape(&pair(one.most)),
        );
    }
    *out += "</tbody></table></div>";
    rest(out, found.len().saturating_sub(LISTED_OBJECTS));
    *out += "</div>\n";
}

fn accesses(out: &mut String, report: &Report<'_>) {
    let found = &report.found.sites.accesses;
    if found.is_empty() {
        return;
    }
    *out += "<div class=\"card\" id=\"code-accesses\"><h3>Code that accesses memory</h3><p class=\"hint\">From a sample of the \
             accesses. Of others: to pages that another thread touched first.</p>";
    open(
        out,
        "code-accesses",
        "<th>code</th><th></th><th>object</th><th class=\"n\">accesses</th><th class=\"n\">of others</th>\
         <th class=\"n\">samples</th>",
    );
    for (at, one) in found.iter().take(LISTED_OBJECTS).enumerate() {
        let _ = writeln!(
            out,
            "{}<td class=\"name\">{}</td><td>{}</td><td class=\"name\">{}</td>{}{}{}</tr>",
            row(at, SHOWN_OBJECTS),
            escape(&place_label(&one.place)),
            if one.stores { "store" } else { "load" },
            escape(&memory_name(report.profile, one.memory)),
            cell(one.accesses as f64, &number::count(one.accesses as f64)),
            cell(one.to_others as f64, &number::count(one.to_others as f64)),
            cell(one.samples as f64, &number::count(one.samples as f64)),
        );
    }
    *out += "</tbody></table></div>";
    rest(out, found.len().saturating_sub(LISTED_OBJECTS));
    *out += "</div>\n";
}
