//! Several runs compared, a bar for each: the overviews of DeLoc Figs. 4-6, OPT Figs. 2, 4 and
//! 6-9, data mapping Figs. 1, 2 and 4.

use super::exclusivity::legend;
use super::{Anchor, Drawing, Paint, SERIES};

/// One chart: a row of bars for each run.
pub struct Bars<'a> {
    /// Text for screen readers.
    pub label: &'a str,
    /// Names of the runs.
    pub runs: &'a [String],
    /// Name and value for each run; `None` where not observed.
    pub series: Vec<(&'a str, Vec<Option<f64>>)>,
    /// Bars of a run in one line, end to end, instead of one below the other.
    pub stacked: bool,
    /// Writes a value.
    pub show: fn(f64) -> String,
}

const ROW: f64 = 15.0;
const NAMES: f64 = 150.0;
const VALUES: f64 = 78.0;

/// Draws a chart.
#[must_use]
pub fn bars(chart: &Bars<'_>, paint: Paint) -> String {
    let series = chart.series.len();
    let lines = if chart.stacked { 1 } else { series };
    let pitch = lines as f64 * ROW + 8.0;
    let head = if series > 1 { 30.0 } else { 6.0 };
    let (width, height) = (530.0, head + chart.runs.len() as f64 * pitch + 6.0);
    let mut drawing = Drawing::new(width, height, paint);
    let room = width - NAMES - VALUES - 8.0;
    let values = |run: usize| chart.series.iter().map(move |(_, v)| v[run]);
    let reach = |run: usize| -> f64 {
        if chart.stacked {
            values(run).flatten().sum()
        } else {
            values(run).flatten().fold(0.0, f64::max)
        }
    };
    let max = (0..chart.runs.len()).map(reach).fold(0.0, f64::max);
    let colour = |at: usize| match (series, at) {
        (1, _) | (_, 1) => paint.accent,
        (_, 0) => paint.other,
        _ => SERIES[at % SERIES.len()],
    };
    for (run, name) in chart.runs.iter().enumerate() {
        let top = head + run as f64 * pitch;
        let shown: String = name.chars().take(22).collect();
        let y = top + lines as f64 * ROW / 2.0 + 4.0;
        drawing.text(NAMES - 8.0, y, Anchor::End, paint.ink, 11.5, &shown);
        let mut x = NAMES;
        for (at, ((word, _), value)) in chart.series.iter().zip(values(run)).enumerate() {
            let y = if chart.stacked {
                top
            } else {
                top + at as f64 * ROW
            };
            let length = value.filter(|_| max > 0.0).map_or(0.0, |v| v / max * room);
            let text = value.map_or_else(|| "not observed".to_owned(), chart.show);
            if length > 0.0 {
                let tip = format!("{name}, {word}: {text}");
                let long = length.max(1.0);
                drawing.rounded(x, y + 1.0, long, ROW - 2.0, 1.5, colour(at), "none", &tip);
            }
            if chart.stacked {
                x += length;
            } else {
                let tone = if value.is_some() {
                    paint.ink
                } else {
                    paint.muted
                };
                drawing.text(
                    NAMES + length + 6.0,
                    y + 11.5,
                    Anchor::Start,
                    tone,
                    11.0,
                    &text,
                );
            }
        }
    }
    if series > 1 {
        let entries: Vec<(&str, &str)> = chart
            .series
            .iter()
            .enumerate()
            .map(|(at, (word, _))| (colour(at), *word))
            .collect();
        legend(&mut drawing, 8.0, &entries);
    }
    drawing.finish(chart.label)
}
