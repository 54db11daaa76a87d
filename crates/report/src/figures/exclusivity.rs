//! How exclusive pages are (data mapping Fig. 1, OPT Figs. 6 and 7).

use numaloc_analysis::Characterisation;
use numaloc_analysis::pages::EXCLUSIVITY_BINS;

use super::{Anchor, Axes, Drawing, Paint};
use crate::number;

/// Share of the pages and of the accesses in every 5 % of exclusivity.
#[must_use]
pub fn distribution(c: &Characterisation, paint: Paint) -> String {
    let p = &c.pages;
    let (width, height) = (530.0, 250.0);
    let mut drawing = Drawing::new(width, height, paint);
    // No page can be below 1/N: leave that part out.
    let first = EXCLUSIVITY_BINS / c.assignment.homes.len().clamp(1, EXCLUSIVITY_BINS);
    let first = first.saturating_sub(1).min(EXCLUSIVITY_BINS - 4);
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let most = (first..EXCLUSIVITY_BINS)
        .map(|b| {
            share(p.exclusivity_pages[b], p.pages).max(share(p.exclusivity_accesses[b], p.accesses))
        })
        .fold(0.0, f64::max);
    let axes = Axes::draw(
        &mut drawing,
        (48.0, 30.0, width - 60.0, 164.0),
        most,
        number::whole_percent,
    );
    let step = axes.width / (EXCLUSIVITY_BINS - first) as f64;
    for bin in first..EXCLUSIVITY_BINS {
        let x = axes.left + (bin - first) as f64 * step;
        let range = format!("exclusivity {} to {} %", bin * 5, bin * 5 + 5);
        for (side, colour, value, word) in [
            (
                0.10,
                paint.other,
                share(p.exclusivity_pages[bin], p.pages),
                "pages",
            ),
            (
                0.50,
                paint.accent,
                share(p.exclusivity_accesses[bin], p.accesses),
                "accesses",
            ),
        ] {
            if value > 0.0 {
                let y = axes.y(value).min(axes.bottom() - 1.5);
                let tip = format!("{range}: {} of the {word}", number::percent(value));
                drawing.rounded(
                    x + step * side,
                    y,
                    step * 0.38,
                    axes.bottom() - y,
                    1.5,
                    colour,
                    "none",
                    &tip,
                );
            }
        }
        if (EXCLUSIVITY_BINS - bin).is_multiple_of(2) {
            let label = format!("{}", bin * 5);
            drawing.label(x, axes.bottom() + 16.0, &label);
        }
    }
    let end = axes.left + axes.width;
    drawing.label(end, axes.bottom() + 16.0, "100");
    let middle = axes.left + axes.width / 2.0;
    let label = "page exclusivity, % of accesses from the main node";
    drawing.label(middle, height - 10.0, label);
    legend(
        &mut drawing,
        axes.left,
        &[(paint.other, "pages"), (paint.accent, "accesses")],
    );
    drawing.finish("distribution of page exclusivity")
}

/// `E_app` by page size: the assignment in use between the worst and the best that were found.
#[must_use]
pub fn by_page_size(c: &Characterisation, paint: Paint) -> String {
    let (width, height) = (530.0, 250.0);
    let mut drawing = Drawing::new(width, height, paint);
    let axes = Axes::draw(
        &mut drawing,
        (48.0, 30.0, width - 60.0, 164.0),
        1.0,
        number::whole_percent,
    );
    let step = axes.width / c.exclusivity.len().max(1) as f64;
    for (at, e) in c.exclusivity.iter().enumerate() {
        let x = axes.left + at as f64 * step + step / 2.0;
        let bar = (step * 0.34).min(72.0);
        let y = axes.y(e.most);
        let tip = format!(
            "best assignment found: {}, worst: {}",
            number::percent(e.most),
            number::percent(e.least)
        );
        drawing.rounded(
            x - bar / 2.0,
            y,
            bar,
            (axes.y(e.least) - y).max(2.0),
            2.0,
            paint.other,
            "none",
            &tip,
        );
        let y = axes.y(e.assigned);
        let tip = format!("threads in blocks: {}", number::percent(e.assigned));
        drawing.rounded(
            x - bar / 2.0 - 6.0,
            y - 1.5,
            bar + 12.0,
            3.0,
            1.5,
            paint.accent,
            "none",
            &tip,
        );
        let own = axes.y(e.inherent);
        let tip = format!("a node for every thread: {}", number::percent(e.inherent));
        drawing.dot(x, own, 4.0, paint.ink, &tip);
        drawing.text(
            x + bar / 2.0 + 10.0,
            y + 4.0,
            Anchor::Start,
            paint.ink,
            12.0,
            &number::percent(e.assigned),
        );
        let label = number::page_size(e.page_size);
        drawing.label(x, axes.bottom() + 17.0, &label);
    }
    let floor = axes.y(1.0 / c.assignment.homes.len() as f64);
    drawing.line(axes.left, floor, axes.left + axes.width, floor, paint.muted);
    drawing.text(
        axes.left + 4.0,
        floor + 12.0,
        Anchor::Start,
        paint.muted,
        10.0,
        "1/N: all nodes equally",
    );
    drawing.label(axes.left + axes.width / 2.0, height - 10.0, "page size");
    legend(
        &mut drawing,
        axes.left,
        &[
            (paint.other, "worst to best found"),
            (paint.accent, "threads in blocks"),
            (paint.ink, "a node per thread"),
        ],
    );
    drawing.finish("application exclusivity by page size")
}

pub(crate) fn legend(drawing: &mut Drawing, left: f64, entries: &[(&str, &str)]) {
    let (ink, mut x) = (drawing.paint.muted, left);
    for (colour, word) in entries {
        drawing.rounded(x, 8.0, 11.0, 11.0, 2.0, colour, "none", "");
        drawing.text(x + 16.0, 18.0, Anchor::Start, ink, 11.5, word);
        x += 34.0 + word.chars().count() as f64 * 6.6;
    }
}
