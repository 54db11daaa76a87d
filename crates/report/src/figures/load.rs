//! Memory accesses over time with their phases (CMLB Fig. 2).

use numaloc_analysis::load::MemoryLoad;

use super::{Axes, Drawing, Paint, slice_axis};
use crate::number;

/// Maximum number of points of the line; with more slices, neighbours are averaged.
const POINTS: usize = 1000;

/// Draws the smoothed accesses by slice; `None` when page use by slice was not recorded.
#[must_use]
pub fn load(found: &MemoryLoad, paint: Paint) -> Option<String> {
    let (line, phases) = (found.smoothed.as_ref()?, &found.phases);
    let (width, height) = (1080.0, 198.0);
    let mut drawing = Drawing::new(width, height, paint);
    let step = line.len().div_ceil(POINTS).max(1);
    let means: Vec<f64> = line
        .chunks(step)
        .map(|chunk| chunk.iter().sum::<f64>() / chunk.len() as f64)
        .collect();
    let max = means.iter().copied().fold(0.0, f64::max);
    let area = (62.0, 14.0, width - 76.0, 132.0);
    let axes = Axes::draw(&mut drawing, area, max, number::count);
    let x = |slice: f64| axes.left + axes.width * slice / line.len().max(1) as f64;
    for phase in phases.iter().skip(1) {
        let border = x(phase.start as f64);
        drawing.line(border, axes.top, border, axes.bottom(), "#c2476b");
    }
    slice_axis(&mut drawing, &axes, line.len());
    let points: Vec<(f64, f64)> = means
        .iter()
        .enumerate()
        .map(|(at, &mean)| (x((at * step) as f64 + step as f64 / 2.0), axes.y(mean)))
        .collect();
    drawing.polyline(&points, paint.accent, 1.6);
    let label = "slice (top 5 % of the values smoothed away; lines part the access phases)";
    let middle = axes.left + axes.width / 2.0;
    drawing.label(middle, height - 6.0, label);
    Some(drawing.finish("memory accesses over time"))
}
