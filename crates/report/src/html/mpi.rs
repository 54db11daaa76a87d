//! The report's tables of time in MPI: by call site, and who waits for whom.

use std::fmt::Write;

use super::Report;
use super::tables::{LISTED_OBJECTS, SHOWN_OBJECTS, cell, open, rest, row};
use crate::figures::escape;
use crate::mpi::{self, MpiTime};
use crate::number;

/// Both tables; nothing if there are no times.
pub(super) fn tables(out: &mut String, report: &Report<'_>) {
    let Some(time) = MpiTime::of(report.profile) else {
        return;
    };
    let _ = write!(
        out,
        "<section id=\"mpi\">\n<h2 class=\"part\">Time in MPI</h2>\n<p class=\"lead\">{} of the run of {} is in MPI calls, {} \
         waiting for other ranks; {} of what was waited for is known.</p>\n",
        number::percent(time.share(time.all.nanoseconds)),
        number::plural(time.ranks, "rank"),
        number::percent(time.share(time.all.waited())),
        number::percent(time.coverage()),
    );
    sites(out, &time);
    waits(out, report, &time);
    *out += "</section>\n";
}

fn seconds(nanoseconds: u64) -> String {
    cell(nanoseconds as f64, &mpi::seconds(nanoseconds))
}

fn sites(out: &mut String, time: &MpiTime<'_>) {
    *out += "<div class=\"card\" id=\"mpi-sites\"><h3>Calls</h3><p class=\"hint\">Of all ranks together.</p>";
    open(
        out,
        "mpi-sites",
        "<th>operation</th><th>call site</th><th class=\"n\">calls</th><th class=\"n\">bytes</th><th class=\"n\">time</th>\
         <th class=\"n\">late sender</th><th class=\"n\">late receiver</th><th class=\"n\">imbalance</th>",
    );
    for (at, ((operation, place), sums)) in time.sites.iter().take(LISTED_OBJECTS).enumerate() {
        let _ = writeln!(
            out,
            "{}<td>{}</td><td class=\"name\">{}</td>{}{}{}{}{}{}</tr>",
            row(at, SHOWN_OBJECTS),
            escape(operation),
            escape(&mpi::site(place)),
            cell(sums.calls as f64, &number::count(sums.calls as f64)),
            cell(sums.bytes as f64, &number::bytes(sums.bytes as f64)),
            seconds(sums.nanoseconds),
            seconds(sums.waiting[0]),
            seconds(sums.waiting[1]),
            seconds(sums.waiting[2]),
        );
    }
    *out += "</tbody></table></div>";
    rest(out, time.sites.len().saturating_sub(LISTED_OBJECTS));
    *out += "</div>\n";
}

fn waits(out: &mut String, report: &Report<'_>, time: &MpiTime<'_>) {
    if time.waits.is_empty() {
        return;
    }
    *out += "<div class=\"card\" id=\"mpi-waits\"><h3>Who waits for whom</h3><p class=\"hint\">Late sender: a receive began \
             before its message was sent. Late receiver: a send went on until its receive was posted. Imbalance: a collective \
             was entered before its last rank entered it.</p>";
    open(
        out,
        "mpi-waits",
        "<th>rank</th><th>waits for</th><th>why</th><th class=\"n\">calls</th><th class=\"n\">time</th>",
    );
    let name =
        |thread: numaloc_model::ThreadIdx| escape(&report.profile.threads()[thread.index()].path);
    for (at, wait) in time.waits.iter().take(LISTED_OBJECTS).enumerate() {
        let _ = writeln!(
            out,
            "{}<td>{}</td><td>{}</td><td>{}</td>{}{}</tr>",
            row(at, SHOWN_OBJECTS),
            name(wait.thread),
            name(wait.other),
            mpi::words(wait.kind),
            cell(wait.calls as f64, &number::count(wait.calls as f64)),
            seconds(wait.nanoseconds),
        );
    }
    *out += "</tbody></table></div>";
    rest(out, time.waits.len().saturating_sub(LISTED_OBJECTS));
    *out += "</div>\n";
}
