//! Communication over time, coloured by cluster (DeLoc Fig. 3).

use numaloc_analysis::Characterisation;
use numaloc_model::SliceIdx;
use numaloc_model::profile::Profile;

use super::{Axes, Drawing, Paint, SERIES, round_ticks};
use crate::number;

/// Maximum number of bars; a bar stands for one slice or several neighbours.
const BARS: usize = 320;

/// Draws the amount by slice: events of memory, bytes of messages.
#[must_use]
pub fn timeline(profile: &Profile, c: &Characterisation, paint: Paint) -> String {
    let amounts = c.timeline.weighed(c.layer);
    let shown = number::amount(c.layer);
    let (width, height) = (1080.0, 230.0);
    let mut drawing = Drawing::new(width, height, paint);
    let slices = amounts.len();
    let per_bar = slices.div_ceil(BARS).max(1);
    let bars: Vec<(usize, usize, u64)> = (0..slices)
        .step_by(per_bar)
        .map(|from| {
            let to = (from + per_bar).min(slices);
            (from, to, amounts[from..to].iter().sum())
        })
        .collect();
    let max = bars.iter().map(|bar| bar.2).max().unwrap_or(0) as f64;
    let axes = Axes::draw(&mut drawing, (62.0, 14.0, width - 76.0, 168.0), max, shown);
    let step = axes.width / bars.len().max(1) as f64;
    for (at, &(from, to, sum)) in bars.iter().enumerate() {
        if sum == 0 {
            continue;
        }
        // The cluster of the bar's first communicating slice.
        let cluster = (from..to)
            .filter(|&s| amounts[s] > 0)
            .find_map(|s| c.concurrency.cluster_of(SliceIdx::from_index(s)));
        let colour = cluster.map_or(paint.other, |k| SERIES[k.index() % SERIES.len()]);
        let y = axes.y(sum as f64).min(axes.bottom() - 1.0);
        let what = if to - from == 1 {
            format!("slice {from}")
        } else {
            format!("slices {from} to {}", to - 1)
        };
        let tip = format!(
            "{what}: {}{}",
            number::weighed(c.layer, sum as f64),
            cluster.map_or_else(String::new, |k| format!(", cluster {}", k.0 + 1))
        );
        let gap = if step > 3.0 { 0.8 } else { 0.0 };
        drawing.rect(
            axes.left + at as f64 * step,
            y,
            (step - gap).max(0.6),
            axes.bottom() - y,
            colour,
            &tip,
        );
    }
    let unit = profile.meta().clock.unit();
    if let (Some(first), Some(last)) = (profile.slices().first(), profile.slices().last()) {
        let run = (first.start as f64, last.end as f64);
        round_ticks(&mut drawing, &axes, 17.0, run, 0.0, |time| {
            format!("{} {unit}", number::count(time))
        });
    }
    let clock = format!("time ({} clock)", profile.meta().clock.name());
    drawing.label(axes.left + axes.width / 2.0, height - 8.0, &clock);
    drawing.finish("communication events over time, coloured by cluster")
}
