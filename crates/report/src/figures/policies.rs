//! What page policies do: balance (data mapping Figs. 2, 3 and Table I) and accuracy (OPT Fig. 8).

use numaloc_analysis::PageMetrics;

use super::exclusivity::legend;
use super::{Axes, Drawing, Paint};
use crate::number;

/// A page policy's outcome for the threads of the setting.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyPages {
    /// Name of the policy.
    pub name: String,
    /// The pages where it puts them.
    pub pages: PageMetrics,
}

type Value = fn(&PageMetrics) -> Option<f64>;

/// `B_pages` and `B_acc` under every policy.
#[must_use]
pub fn balance(policies: &[PolicyPages], paint: Paint) -> String {
    let values: [(&str, Value); 2] = [
        ("balance of pages", |p| p.page_balance),
        ("balance of accesses", |p| p.access_balance),
    ];
    grouped(
        policies,
        values,
        "balance of pages and accesses under page policies",
        paint,
    )
}

/// `Acc_page` and `Acc_app` under every policy.
#[must_use]
pub fn accuracy(policies: &[PolicyPages], paint: Paint) -> String {
    let values: [(&str, Value); 2] = [
        ("right pages", |p| p.page_accuracy),
        ("accesses to right pages", |p| p.access_accuracy),
    ];
    grouped(policies, values, "accuracy of page policies", paint)
}

fn grouped(
    policies: &[PolicyPages],
    values: [(&str, Value); 2],
    label: &str,
    paint: Paint,
) -> String {
    let (width, height) = (530.0, 250.0);
    let mut drawing = Drawing::new(width, height, paint);
    let area = (48.0, 30.0, width - 60.0, 184.0);
    let axes = Axes::draw(&mut drawing, area, 1.0, number::whole_percent);
    let colours = [paint.other, paint.accent];
    let group = axes.width / policies.len().max(1) as f64;
    let bar = (group * 0.36).min(40.0);
    for (at, policy) in policies.iter().enumerate() {
        let middle = axes.left + (at as f64 + 0.5) * group;
        for (side, ((word, value), colour)) in values.iter().zip(colours).enumerate() {
            let Some(value) = value(&policy.pages) else {
                continue;
            };
            let y = axes.y(value).min(axes.bottom() - 1.5);
            let tip = format!("{}, {word}: {}", policy.name, number::percent(value));
            let x = middle + (side as f64 - 1.0) * bar + 1.0;
            let tall = axes.bottom() - y;
            drawing.rounded(x, y, bar - 2.0, tall, 1.5, colour, "none", &tip);
        }
        let y = axes.bottom() + 17.0;
        drawing.label(middle, y, &policy.name);
    }
    let entries = [(colours[0], values[0].0), (colours[1], values[1].0)];
    legend(&mut drawing, axes.left, &entries);
    drawing.finish(label)
}
