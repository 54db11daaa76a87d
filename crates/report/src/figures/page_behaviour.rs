//! Page use over time: migrations and exclusivity of every slice (OPT Fig. 10).

use numaloc_analysis::migrations::Migrations;

use super::{Anchor, Axes, Drawing, Paint, mean_points, slice_axis};
use crate::number;

/// Two charts with one time axis: migrations above, exclusivity below.
#[must_use]
pub fn page_behaviour(found: &Migrations, paint: Paint) -> String {
    let (width, height) = (1080.0, 320.0);
    let mut drawing = Drawing::new(width, height, paint);
    let slices = found.by_slice.len();
    let moves: Vec<Option<f64>> = found.by_slice.iter().map(|&n| Some(n as f64)).collect();
    type Chart<'a> = (&'a str, &'a [Option<f64>], f64, &'a str, fn(f64) -> String);
    let charts: [Chart<'_>; 2] = [
        ("page migrations", &moves, 22.0, paint.ink, number::count),
        (
            "exclusivity",
            &found.exclusivity,
            172.0,
            paint.accent,
            number::percent,
        ),
    ];
    for (name, line, top, colour, show) in charts {
        let points = mean_points(line);
        let max = points.iter().map(|p| p.1).fold(0.0, f64::max);
        let axes = Axes::draw(&mut drawing, (62.0, top, width - 76.0, 108.0), max, show);
        drawing.text(axes.left, top - 8.0, Anchor::Start, paint.muted, 11.0, name);
        if top > 100.0 {
            slice_axis(&mut drawing, &axes, slices);
        }
        for (slice, value) in points {
            let x = axes.left + axes.width * (slice as f64 + 0.5) / slices.max(1) as f64;
            let tip = format!("slice {slice}: {name} {}", show(value));
            drawing.dot(x, axes.y(value), 2.1, colour, &tip);
        }
    }
    let middle = 62.0 + (width - 76.0) / 2.0;
    drawing.label(middle, height - 6.0, "slice");
    drawing.finish("page migrations and exclusivity of every slice")
}
