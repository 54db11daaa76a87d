//! The block "Time in MPI".

use numaloc_model::profile::Profile;

use super::{Detail, Page, clipped, fitted, heading, wrapped_to};
use crate::heatmap::Style;
use crate::mpi::{self, MpiTime, Sums};
use crate::number;

/// Number of operations and of pairs under the answer.
const FEW: usize = 3;
/// Number of operations, sites and pairs where reasons are shown.
const MANY: usize = 12;

/// The operations with the most time, under the answer.
pub(super) fn longest(page: Page<'_>, detail: Detail, style: Style) -> String {
    block(page.profile, detail, style, FEW)
}

/// Operations, call sites and pairs.
pub(super) fn all(page: Page<'_>, detail: Detail, style: Style) -> String {
    block(page.profile, detail, style, MANY)
}

fn block(profile: &Profile, detail: Detail, style: Style, most: usize) -> String {
    let Some(time) = MpiTime::of(profile) else {
        return String::new();
    };
    let width = detail.width();
    let mut out = heading("Time in MPI", width, style);
    out += &wrapped_to(&sentence(&time), 2, width);
    out += &clipped(
        "      time  share  waiting    calls      bytes  operation",
        width,
    );
    for (name, sums) in time.operations.iter().take(most) {
        out += &fitted(line(&time, sums, name), detail);
    }
    out += &rest(time.operations.len(), most);
    if most > FEW {
        out += &clipped(
            "      time  share  waiting    calls      bytes  call site",
            width,
        );
        for ((name, place), sums) in time.sites.iter().take(most) {
            let text = format!("{name} in {}", mpi::site(place));
            out += &fitted(line(&time, sums, &text), detail);
        }
        out += &rest(time.sites.len(), most);
    }
    if !time.waits.is_empty() {
        out += &clipped("      time  share    calls  who waits for whom", width);
    }
    for wait in time.waits.iter().take(most) {
        let name = |thread: numaloc_model::ThreadIdx| &profile.threads()[thread.index()].path;
        let line = format!(
            "  {:>8} {:>6} {:>8}  {} for {}: {}",
            mpi::seconds(wait.nanoseconds),
            number::whole_percent(time.share(wait.nanoseconds)),
            number::count(wait.calls as f64),
            name(wait.thread),
            name(wait.other),
            mpi::words(wait.kind),
        );
        out += &fitted(line, detail);
    }
    out + &rest(time.waits.len(), most)
}

fn sentence(time: &MpiTime<'_>) -> String {
    let [sender, receiver, imbalance] = time.all.waiting.map(mpi::seconds);
    let coverage = match time.coverage() {
        share if share > 0.995 => String::new(),
        share => format!(
            " (known for {} of what was waited for)",
            number::whole_percent(share)
        ),
    };
    format!(
        "{} of the run of {} is in MPI calls, {} waiting: {sender} late sender, {receiver} late receiver, {imbalance} \
         imbalance{coverage}",
        number::percent(time.share(time.all.nanoseconds)),
        number::plural(time.ranks, "rank"),
        number::percent(time.share(time.all.waited())),
    )
}

fn line(time: &MpiTime<'_>, sums: &Sums, name: &str) -> String {
    format!(
        "  {:>8} {:>6} {:>8} {:>8} {:>10}  {name}",
        mpi::seconds(sums.nanoseconds),
        number::whole_percent(time.share(sums.nanoseconds)),
        number::whole_percent(time.share(sums.waited())),
        number::count(sums.calls as f64),
        number::bytes(sums.bytes as f64),
    )
}

fn rest(count: usize, most: usize) -> String {
    match count.saturating_sub(most) {
        0 => String::new(),
        rest => format!("  and {rest} more (--json has all)\n"),
    }
}
