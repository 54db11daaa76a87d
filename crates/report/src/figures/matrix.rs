//! The communication matrix as a still picture (the page itself draws an interactive one).

use numaloc_model::CommMatrix;

use super::{Anchor, Drawing, Paint};
use crate::number;

/// Rows drawn at most; more threads are added up in bins.
const BINS: usize = 64;
/// Colours from nothing to most.
const SCALE: [(f64, f64, f64); 6] = [
    (246.0, 246.0, 243.0),
    (217.0, 234.0, 224.0),
    (140.0, 199.0, 181.0),
    (58.0, 151.0, 160.0),
    (31.0, 95.0, 134.0),
    (27.0, 42.0, 90.0),
];

/// The colour at `along` (0..=1) of the scale.
pub(crate) fn shade(along: f64) -> String {
    let at = along.clamp(0.0, 1.0) * (SCALE.len() - 1) as f64;
    let low = (at as usize).min(SCALE.len() - 2);
    let t = at - low as f64;
    let mix = |a: f64, b: f64| (a + (b - a) * t).round() as u8;
    let (a, b) = (SCALE[low], SCALE[low + 1]);
    format!(
        "#{:02x}{:02x}{:02x}",
        mix(a.0, b.0),
        mix(a.1, b.1),
        mix(a.2, b.2)
    )
}

/// Draws a matrix; cells are shaded by the square root of their amount.
#[must_use]
pub fn matrix(matrix: &CommMatrix, paint: Paint) -> String {
    let threads = matrix.threads();
    let bins = threads.clamp(1, BINS);
    let (side, left, top) = (512.0, 44.0, 26.0);
    let mut drawing = Drawing::new(left + side + 14.0, top + side + 34.0, paint);
    let bin_of = |thread: usize| thread * bins / threads.max(1);
    let mut sums = vec![0.0; bins * bins];
    for (src, dst, amount) in matrix.cells() {
        sums[bin_of(src) * bins + bin_of(dst)] += amount;
    }
    let max = sums.iter().copied().fold(0.0, f64::max);
    let cell = side / bins as f64;
    drawing.rect(left, top, side, side, &shade(0.0), "");
    for (at, &sum) in sums.iter().enumerate().filter(|(_, sum)| **sum > 0.0) {
        let (row, col) = (at / bins, at % bins);
        let tip = format!("{row} to {col}: {}", number::count(sum));
        drawing.rect(
            left + col as f64 * cell,
            top + row as f64 * cell,
            cell,
            cell,
            &shade((sum / max).sqrt()),
            if bins == threads { &tip } else { "" },
        );
    }
    let step = bins.div_ceil(8).max(1);
    for bin in (0..bins).step_by(step) {
        let label = (bin * threads).div_ceil(bins).to_string();
        let middle = (bin as f64 + 0.5) * cell;
        drawing.text(
            left + middle,
            top - 7.0,
            Anchor::Middle,
            paint.muted,
            11.0,
            &label,
        );
        drawing.text(
            left - 7.0,
            top + middle + 4.0,
            Anchor::End,
            paint.muted,
            11.0,
            &label,
        );
    }
    drawing.text(
        left + side / 2.0,
        top + side + 22.0,
        Anchor::Middle,
        paint.muted,
        11.0,
        &format!(
            "rows produce, columns consume; darkest cell {}",
            number::count(max)
        ),
    );
    drawing.finish("communication matrix")
}
