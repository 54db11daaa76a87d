//! Controllers and links of simulated runs over their time: a panel for each run, a line for each controller or link.

use super::{Anchor, Axes, Drawing, Paint, SERIES, round_ticks};
use crate::number;

/// A line: its name, nanoseconds between its points, and their values.
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Nanoseconds of an interval.
    pub interval_ns: f64,
    /// Value of each interval.
    pub values: Vec<f64>,
}

/// The lines of a run.
pub struct Panel {
    /// Heading.
    pub title: String,
    /// Duration in nanoseconds.
    pub time_ns: f64,
    /// At most as many as there are colours are drawn.
    pub lines: Vec<Line>,
}

const PANEL: f64 = 150.0;
const CHART: f64 = 88.0;
const WIDTH: f64 = 1080.0;

/// Draws panels below each other with common scales; `show` writes a value.
#[must_use]
pub fn over_time(label: &str, panels: &[Panel], show: fn(f64) -> String, paint: Paint) -> String {
    let mut drawing = Drawing::new(WIDTH, panels.len() as f64 * PANEL + 8.0, paint);
    let values = panels.iter().flat_map(|panel| &panel.lines);
    let max = values.flat_map(|line| &line.values);
    let max = max.copied().fold(0.0, f64::max);
    let longest = panels.iter().map(|panel| panel.time_ns).fold(1.0, f64::max);
    for (at, panel) in panels.iter().enumerate() {
        let top = at as f64 * PANEL + 34.0;
        drawing.text(
            62.0,
            top - 20.0,
            Anchor::Start,
            paint.ink,
            12.0,
            &panel.title,
        );
        let axes = Axes::draw(&mut drawing, (62.0, top, WIDTH - 76.0, CHART), max, show);
        round_ticks(&mut drawing, &axes, 15.0, (0.0, longest), 0.0, |ns| {
            format!("{} ms", number::count(ns / 1e6))
        });
        let mut legend = 62.0;
        for (line, colour) in panel.lines.iter().zip(SERIES) {
            drawing.rect(legend, top - 14.0, 9.0, 9.0, colour, "");
            drawing.text(
                legend + 13.0,
                top - 6.0,
                Anchor::Start,
                paint.muted,
                10.0,
                &line.name,
            );
            legend += 26.0 + 5.6 * line.name.len() as f64;
            let points: Vec<(f64, f64)> = line
                .values
                .iter()
                .enumerate()
                .map(|(at, &value)| {
                    // The last interval may reach beyond the end.
                    let middle = ((at as f64 + 0.5) * line.interval_ns).min(panel.time_ns);
                    (
                        axes.left + axes.width * (middle / longest).min(1.0),
                        axes.y(value),
                    )
                })
                .collect();
            drawing.polyline(&points, colour, 1.4);
        }
    }
    drawing.finish(label)
}
