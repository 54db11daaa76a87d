//! A square of shaded cells in few bytes: one path for each shade.

use std::fmt::Write;

use numaloc_model::CommMatrix;

use super::Drawing;
use super::matrix::shade;

/// Shades told apart.
const SHADES: usize = 24;

/// A matrix in `bins` rows: neighbours are added up.
pub(crate) fn binned(matrix: &CommMatrix, bins: usize) -> Vec<f64> {
    let threads = matrix.threads().max(1);
    let mut sums = vec![0.0; bins * bins];
    for (src, dst, amount) in matrix.cells() {
        sums[src * bins / threads * bins + dst * bins / threads] += amount;
    }
    sums
}

/// Draws `bins x bins` cells, shaded by the square root of their share of the largest.
pub(crate) fn cells(drawing: &mut Drawing, (left, top): (f64, f64), side: f64, sums: &[f64]) {
    let bins = (sums.len() as f64).sqrt() as usize;
    let max = sums.iter().copied().fold(0.0, f64::max);
    let cell = side / bins.max(1) as f64;
    drawing.rect(left, top, side, side, &shade(0.0), "");
    let level = |sum: f64| {
        if sum > 0.0 {
            (((sum / max).sqrt() * SHADES as f64).round() as usize).clamp(1, SHADES)
        } else {
            0
        }
    };
    let mut paths = vec![String::new(); SHADES + 1];
    for (row, line) in sums.chunks(bins.max(1)).enumerate() {
        let mut from = 0;
        while from < line.len() {
            let this = level(line[from]);
            let run = line[from..]
                .iter()
                .take_while(|&&s| level(s) == this)
                .count();
            if this > 0 {
                let _ = write!(
                    paths[this],
                    "M{:.1} {:.1}h{:.1}v{:.1}h-{:.1}z",
                    left + from as f64 * cell,
                    top + row as f64 * cell,
                    run as f64 * cell,
                    cell,
                    run as f64 * cell
                );
            }
            from += run;
        }
    }
    for (level, path) in paths.iter().enumerate().filter(|(_, p)| !p.is_empty()) {
        drawing.path(path, &shade(level as f64 / SHADES as f64));
    }
}
