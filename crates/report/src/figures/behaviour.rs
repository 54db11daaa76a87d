//! Amount and heterogeneity of every slice, with phases (OPT Fig. 5).

use numaloc_analysis::Characterisation;

use super::{Anchor, Axes, Drawing, Paint, mean_points, slice_axis};
use crate::number;

/// Two charts with one time axis: amount above, heterogeneity below. Full lines separate the phases of
/// the heterogeneity, dashed lines those of the pattern.
#[must_use]
pub fn behaviour(c: &Characterisation, paint: Paint) -> String {
    let (width, height) = (1080.0, 320.0);
    let mut drawing = Drawing::new(width, height, paint);
    let slices = c.timeline.heterogeneity.len();
    let threads = c.events.threads().max(1) as f64;
    let both = if c.layer.is_directed() { 2.0 } else { 1.0 };
    let amount: Vec<Option<f64>> = c
        .timeline
        .events
        .iter()
        .map(|&events| Some(events as f64 * both / (threads * threads)))
        .collect();
    let x = |along: f64| 62.0 + (width - 76.0) * along / slices.max(1) as f64;
    let charts: [(&str, &[Option<f64>], f64, &str); 2] = [
        ("amount, events per cell", &amount, 22.0, paint.ink),
        (
            "heterogeneity",
            &c.timeline.heterogeneity,
            172.0,
            paint.accent,
        ),
    ];
    for (name, line, top, colour) in charts {
        let points = mean_points(line);
        let max = points.iter().map(|p| p.1).fold(0.0, f64::max);
        let axes = Axes::draw(
            &mut drawing,
            (62.0, top, width - 76.0, 108.0),
            max,
            number::count,
        );
        drawing.text(axes.left, top - 8.0, Anchor::Start, paint.muted, 11.0, name);
        for phase in c.pattern_phases.iter().skip(1) {
            let border = x(phase.start as f64);
            drawing.dashed(border, axes.top, border, axes.bottom(), paint.muted);
        }
        let mut free = 0.0;
        for (at, phase) in c.phases.iter().enumerate().skip(1) {
            let border = x(phase.start as f64);
            drawing.line(border, axes.top, border, axes.bottom(), paint.muted);
            if top > 100.0 && border >= free {
                free = border + 52.0;
                let label = format!("phase {}", at + 1);
                let (x, y) = (border + 4.0, axes.top + 10.0);
                drawing.text(x, y, Anchor::Start, paint.muted, 10.0, &label);
            }
        }
        if top > 100.0 {
            slice_axis(&mut drawing, &axes, slices);
        }
        for (slice, value) in points {
            let tip = format!("slice {slice}: {name} {}", number::plain(value));
            drawing.dot(x(slice as f64 + 0.5), axes.y(value), 2.1, colour, &tip);
        }
    }
    let middle = x(slices as f64 / 2.0);
    let label = "slice (full lines: phases of the heterogeneity; dashed: of the pattern)";
    drawing.label(middle, height - 6.0, label);
    drawing.finish("communication amount and heterogeneity of every slice")
}
