//! Amount and heterogeneity of every slice, with phases (OPT Fig. 5).

use numaloc_analysis::Characterisation;

use super::{Anchor, Axes, Drawing, Paint};
use crate::number;

/// Points drawn at most; more slices are averaged.
const POINTS: usize = 400;

/// Draws heterogeneity by slice, with a line where a phase starts.
#[must_use]
pub fn behaviour(c: &Characterisation, paint: Paint) -> String {
    let line = &c.timeline.heterogeneity;
    let (width, height) = (1080.0, 190.0);
    let mut drawing = Drawing::new(width, height, paint);
    let slices = line.len();
    let per_point = slices.div_ceil(POINTS).max(1);
    let points: Vec<(usize, f64)> = (0..slices)
        .step_by(per_point)
        .filter_map(|from| {
            let seen: Vec<f64> = line[from..(from + per_point).min(slices)]
                .iter()
                .flatten()
                .copied()
                .collect();
            (!seen.is_empty()).then(|| (from, seen.iter().sum::<f64>() / seen.len() as f64))
        })
        .collect();
    let max = points.iter().map(|p| p.1).fold(0.0, f64::max);
    let axes = Axes::draw(
        &mut drawing,
        (62.0, 14.0, width - 76.0, 132.0),
        max,
        number::count,
    );
    let x = |slice: usize| axes.left + axes.width * (slice as f64 + 0.5) / slices.max(1) as f64;
    let many = c.phases.len() > 24;
    for (at, phase) in c.phases.iter().enumerate().skip(1) {
        let px = axes.left + axes.width * phase.start as f64 / slices.max(1) as f64;
        drawing.line(px, axes.top, px, axes.bottom(), paint.muted);
        if !many {
            let label = format!("phase {}", at + 1);
            drawing.text(
                px + 4.0,
                axes.top + 10.0,
                Anchor::Start,
                paint.muted,
                10.0,
                &label,
            );
        }
    }
    for &(slice, value) in &points {
        let tip = format!("slice {slice}: heterogeneity {}", number::plain(value));
        drawing.dot(x(slice), axes.y(value), 2.1, paint.accent, &tip);
    }
    drawing.text(
        axes.left + axes.width / 2.0,
        height - 10.0,
        Anchor::Middle,
        paint.muted,
        11.0,
        "slice",
    );
    drawing.finish("communication heterogeneity of every slice")
}
