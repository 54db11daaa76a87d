//! Figures as SVG, drawn by hand. Each takes a [`Paint`], so that the same drawing follows the page's
//! light or dark colours inside HTML and has fixed colours as a file of its own.

use std::fmt::Write;

mod behaviour;
mod cells;
mod exclusivity;
mod load;
mod machine;
mod matrix;
mod migrations;
mod nodes;
mod over_time;
mod page_behaviour;
mod phase_matrices;
mod policies;
mod runs;
mod timeline;

pub use behaviour::behaviour;
pub(crate) use cells::shade_variables;
pub use exclusivity::{by_page_size, distribution};
pub use load::load;
pub use machine::{Occupied, machine};
pub use matrix::matrix;
pub use migrations::migrations;
pub use nodes::{NodeSeries, per_node};
pub use over_time::{Line, Panel, over_time};
pub use page_behaviour::page_behaviour;
pub use phase_matrices::{phase_matrices, shown_phases};
pub use policies::{PolicyPages, accuracy, balance};
pub use runs::{Bars, bars};
pub use timeline::timeline;

/// Colours of clusters and nodes, distinguishable on light and dark backgrounds.
pub const SERIES: [&str; 16] = [
    "#2f6db5", "#e07b39", "#2f9e77", "#c2476b", "#7a5cc0", "#b8961f", "#3aa6c4", "#8c6d52",
    "#d65f5f", "#5b8c3e", "#a05fa8", "#4f7f8f", "#c98a9b", "#6b7bd6", "#9aa336", "#7f8790",
];

/// Colours of a drawing.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    /// Text that must be read.
    pub ink: &'static str,
    /// Axis labels and remarks.
    pub muted: &'static str,
    /// Grid lines and frames.
    pub line: &'static str,
    /// Background of boxes within the figure.
    pub box_: &'static str,
    /// The one series that matters.
    pub accent: &'static str,
    /// What it is compared with.
    pub other: &'static str,
    /// Background of a separate file; `None` inside a page.
    pub ground: Option<&'static str>,
}

impl Paint {
    /// Colours that follow the page.
    #[must_use]
    pub fn page() -> Self {
        Self {
            ink: "var(--ink)",
            muted: "var(--muted)",
            line: "var(--line)",
            box_: "var(--box)",
            accent: "var(--accent)",
            other: "var(--other)",
            ground: None,
        }
    }

    /// Fixed colours for a separate file.
    #[must_use]
    pub fn file() -> Self {
        Self {
            ink: "#1b2430",
            muted: "#5c6675",
            line: "#d9dce1",
            box_: "#f3f4f6",
            accent: "#12808a",
            other: "#a9b2bd",
            ground: Some("#ffffff"),
        }
    }
}

/// A figure: its file name, title, one sentence on how to read it, and the drawing.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Name of the file it goes to, without extension.
    pub name: &'static str,
    /// Heading.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// `<svg ...>...</svg>`.
    pub svg: String,
}

/// Text safe inside SVG and HTML, attributes included.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A drawing under construction. Coordinates are in CSS pixels.
pub(crate) struct Drawing {
    body: String,
    width: f64,
    height: f64,
    paint: Paint,
}

/// Where a text is anchored.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Drawing {
    pub(crate) fn new(width: f64, height: f64, paint: Paint) -> Self {
        Self {
            body: String::new(),
            width,
            height,
            paint,
        }
    }

    pub(crate) fn rect(&mut self, x: f64, y: f64, w: f64, h: f64, fill: &str, tip: &str) {
        self.rounded(x, y, w, h, 0.0, fill, "none", tip);
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn rounded(
        &mut self,
        x: f64,
        y: f64,
        w: f64,
        h: f64,
        r: f64,
        fill: &str,
        stroke: &str,
        tip: &str,
    ) {
        let _ = write!(
            self.body,
            r#"<rect x="{x:.2}" y="{y:.2}" width="{w:.2}" height="{h:.2}""#
        );
        if r > 0.0 {
            let _ = write!(self.body, r#" rx="{r}""#);
        }
        let _ = write!(self.body, r#" fill="{fill}""#);
        if stroke != "none" {
            let _ = write!(self.body, r#" stroke="{stroke}""#);
        }
        if tip.is_empty() {
            self.body += "/>";
        } else {
            let _ = write!(self.body, "><title>{}</title></rect>", escape(tip));
        }
    }

    pub(crate) fn line(&mut self, x1: f64, y1: f64, x2: f64, y2: f64, stroke: &str) {
        let _ = write!(
            self.body,
            r#"<line x1="{x1:.2}" y1="{y1:.2}" x2="{x2:.2}" y2="{y2:.2}" stroke="{stroke}"/>"#
        );
    }

    pub(crate) fn dashed(&mut self, x1: f64, y1: f64, x2: f64, y2: f64, stroke: &str) {
        let _ = write!(
            self.body,
            r#"<line x1="{x1:.2}" y1="{y1:.2}" x2="{x2:.2}" y2="{y2:.2}" stroke="{stroke}" stroke-dasharray="3 3"/>"#
        );
    }

    pub(crate) fn polyline(&mut self, points: &[(f64, f64)], stroke: &str, width: f64) {
        let list: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = write!(
            self.body,
            r#"<polyline points="{}" fill="none" stroke="{stroke}" stroke-width="{width}" stroke-linejoin="round"/>"#,
            list.join(" ")
        );
    }

    pub(crate) fn path(&mut self, path: &str, fill: &str) {
        let _ = write!(self.body, r#"<path d="{path}" fill="{fill}"/>"#);
    }

    pub(crate) fn dot(&mut self, x: f64, y: f64, r: f64, fill: &str, tip: &str) {
        let _ = write!(
            self.body,
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="{r}" fill="{fill}"><title>{}</title></circle>"#,
            escape(tip)
        );
    }

    /// What an axis or a mark on it means, around `x`.
    pub(crate) fn label(&mut self, x: f64, y: f64, label: &str) {
        self.text(x, y, Anchor::Middle, self.paint.muted, 11.0, label);
    }

    pub(crate) fn text(
        &mut self,
        x: f64,
        y: f64,
        anchor: Anchor,
        fill: &str,
        size: f64,
        text: &str,
    ) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = write!(
            self.body,
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" font-size="{size}" fill="{fill}">{}</text>"#,
            escape(text)
        );
    }

    pub(crate) fn finish(self, label: &str) -> String {
        let ground = self.paint.ground.map_or_else(String::new, |colour| {
            format!(r#"<rect width="100%" height="100%" fill="{colour}"/>"#)
        });
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w:.0} {h:.0}" width="{w:.0}" height="{h:.0}" role="img" aria-label="{label}" font-family="system-ui, 'DejaVu Sans', sans-serif">{ground}{body}</svg>"#,
            w = self.width,
            h = self.height,
            label = escape(label),
            body = self.body
        )
    }
}

/// Frame of a chart with a value axis on the left: grid lines at round values.
pub(crate) struct Axes {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
    max: f64,
}

impl Axes {
    /// Draws grid and labels for `0..=max`; `show` writes a value.
    pub(crate) fn draw(
        drawing: &mut Drawing,
        (left, top, width, height): (f64, f64, f64, f64),
        max: f64,
        show: impl Fn(f64) -> String,
    ) -> Self {
        let paint = drawing.paint;
        let step = round_step(max / 4.0);
        let max = if max > 0.0 {
            (max / step).ceil() * step
        } else {
            1.0
        };
        let axes = Self {
            left,
            top,
            width,
            height,
            max,
        };
        let lines = (max / step).round().min(12.0) as usize;
        for at in 0..=lines {
            let value = at as f64 * step;
            let y = axes.y(value);
            drawing.line(left, y, left + width, y, paint.line);
            drawing.text(
                left - 7.0,
                y + 3.5,
                Anchor::End,
                paint.muted,
                11.0,
                &show(value),
            );
        }
        axes
    }

    pub(crate) fn y(&self, value: f64) -> f64 {
        self.top + self.height * (1.0 - (value / self.max).clamp(0.0, 1.0))
    }

    pub(crate) fn bottom(&self) -> f64 {
        self.top + self.height
    }
}

/// Maximum number of dots of a line over the slices; with more slices, neighbours are averaged.
const POINTS: usize = 400;

/// Numbers of slices below a chart that is as wide as the run.
pub(crate) fn slice_axis(drawing: &mut Drawing, axes: &Axes, slices: usize) {
    round_ticks(drawing, axes, 15.0, (0.0, slices as f64), 1.0, |at| {
        format!("{at:.0}")
    });
}

/// Labels at round values, at least `least` apart, below a chart whose width goes `from` a value `to` another.
pub(crate) fn round_ticks(
    drawing: &mut Drawing,
    axes: &Axes,
    below: f64,
    (from, to): (f64, f64),
    least: f64,
    show: impl Fn(f64) -> String,
) {
    let span = (to - from).max(f64::MIN_POSITIVE);
    let step = round_step((span / 5.0).max(least));
    let (ink, y) = (drawing.paint.muted, axes.bottom() + below);
    let mut value = (from / step).ceil() * step;
    while value <= to {
        let along = (value - from) / span;
        let anchor = match along {
            ..0.02 => Anchor::Start,
            0.97.. => Anchor::End,
            _ => Anchor::Middle,
        };
        let x = axes.left + axes.width * along;
        drawing.text(x, y, anchor, ink, 11.0, &show(value));
        value += step;
    }
}

/// First slice and mean of every group of slices that has a value.
pub(crate) fn mean_points(line: &[Option<f64>]) -> Vec<(usize, f64)> {
    let step = line.len().div_ceil(POINTS).max(1);
    line.chunks(step)
        .enumerate()
        .filter_map(|(at, chunk)| {
            let count = chunk.iter().flatten().count();
            let sum: f64 = chunk.iter().flatten().sum();
            (count > 0).then(|| (at * step, sum / count as f64))
        })
        .collect()
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn round_step(least: f64) -> f64 {
    if least <= 0.0 || !least.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|&step| step >= least * 0.999)
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        assert_eq!(
            [0.7, 1.0, 3.0, 30.0, 0.0].map(round_step),
            [1.0, 1.0, 5.0, 50.0, 1.0]
        );
    }

    #[test]
    fn text_cannot_leave_its_element() {
        assert_eq!(
            escape("<a href='x'>&\"\u{1b}"),
            "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\u{fffd}"
        );
    }
}
