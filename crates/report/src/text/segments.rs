//! Memory by the names that people use for it.

use numaloc_analysis::segments::are_worth_listing;

use super::{Detail, Page, clipped, cut_name, fitted, heading, wrapped_to};
use crate::heatmap::Style;
use crate::number;

/// Most segments.
const MOST: usize = 12;
/// Columns before what the program's own settings do.
const INDENT: usize = 4;

/// The segments, if a rule for a program holds; then what the program's own settings do with them.
pub(super) fn all(page: Page<'_>, detail: Detail, style: Style) -> String {
    let segments = &page.found.segments;
    if !are_worth_listing(segments) {
        return String::new();
    }
    let mut out = heading("Memory by segment", detail.width(), style);
    let title = "  accesses  share  remote    pages  processes  segment";
    out += &clipped(title, detail.width());
    let percent = |share: f64| format!("{}%", number::fixed(share * 100.0, 0));
    for segment in segments.iter().take(MOST) {
        let line = format!(
            "  {:>8} {:>6} {:>7} {:>8} {:>10}  {}",
            number::count(segment.accesses as f64),
            percent(segment.share),
            segment.remote_share.map_or_else(|| "-".to_owned(), percent),
            number::count(segment.pages as f64),
            segment.processes,
            cut_name(&segment.name, detail.columns.saturating_sub(47)),
        );
        out += &fitted(line, detail);
    }
    if segments.len() > MOST {
        let rest = segments.len() - MOST;
        out += &format!("  and {rest} more (--json has all)\n");
    }
    let switches = segments.iter().take(MOST);
    for (name, switch) in switches.filter_map(|one| Some((&one.name, one.switch.as_ref()?))) {
        out += &wrapped_to(&format!("{name}: {switch}"), INDENT, detail.width());
    }
    out
}
