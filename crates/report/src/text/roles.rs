//! The roles of a program with many threads or several processes.

use numaloc_analysis::roles::{Role, are_worth_listing};

use super::{Detail, Page, clipped, cut_name, fitted, heading};
use crate::heatmap::Style;
use crate::number;

/// Number of roles under the answer.
const FEW: usize = 6;
/// Number of roles where reasons are shown.
const MANY: usize = 16;
/// A program with this many roles, such as a main thread and its workers, needs no table under the answer.
const PLAIN: usize = 2;

/// The roles with the most accesses, if there are more than those of any program.
pub(super) fn largest(page: Page<'_>, detail: Detail, style: Style) -> String {
    match page.found.roles.len() > PLAIN {
        true => table(page, detail, style, FEW),
        false => String::new(),
    }
}

/// The roles.
pub(super) fn all(page: Page<'_>, detail: Detail, style: Style) -> String {
    table(page, detail, style, MANY)
}

fn table(page: Page<'_>, detail: Detail, style: Style, most: usize) -> String {
    if !are_worth_listing(page.profile) {
        return String::new();
    }
    let roles = &page.found.roles;
    let mut out = heading("Roles", detail.width(), style);
    let title = "  threads  processes  accesses  share  remote  role: most used memory";
    out += &clipped(title, detail.width());
    for role in roles.iter().take(most) {
        out += &fitted(line(role, detail), detail);
    }
    if roles.len() > most {
        out += &format!("  and {} more (--json has all)\n", roles.len() - most);
    }
    out
}

fn line(role: &Role, detail: Detail) -> String {
    let percent = |share: f64| format!("{}%", number::fixed(share * 100.0, 0));
    let objects = role.objects.iter().map(|(name, _)| name.as_str());
    let objects = objects.collect::<Vec<_>>().join("; ");
    let name = match objects.is_empty() {
        true => role.group.name.clone(),
        false => format!("{}: {objects}", role.group.name),
    };
    format!(
        "  {:>7} {:>10} {:>9} {:>6} {:>7}  {}",
        role.group.threads.len(),
        role.processes,
        number::count(role.accesses as f64),
        percent(role.share),
        role.remote_share.map_or_else(|| "-".to_owned(), percent),
        cut_name(&name, detail.columns.saturating_sub(46)),
    )
}
