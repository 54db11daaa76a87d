//! A square of shaded cells in few bytes: one path for each shade.

use std::fmt::Write;

use numaloc_model::CommMatrix;

use super::Drawing;

/// Number of shades, not counting the one for zero.
pub(crate) const SHADES: usize = 24;

/// Colours from zero to the maximum, for a light background (and files) and for a dark one.
const SCALES: [[[f64; 3]; 6]; 2] = [
    [
        [246.0, 246.0, 243.0],
        [217.0, 234.0, 224.0],
        [140.0, 199.0, 181.0],
        [58.0, 151.0, 160.0],
        [31.0, 95.0, 134.0],
        [27.0, 42.0, 90.0],
    ],
    [
        [24.0, 30.0, 39.0],
        [26.0, 52.0, 68.0],
        [29.0, 94.0, 110.0],
        [52.0, 146.0, 132.0],
        [156.0, 194.0, 110.0],
        [253.0, 236.0, 150.0],
    ],
];

/// The colour of a shade, `0..=SHADES`.
fn shade(scale: &[[f64; 3]; 6], level: usize) -> String {
    let at = level as f64 / SHADES as f64 * (scale.len() - 1) as f64;
    let low = (at as usize).min(scale.len() - 2);
    let t = at - low as f64;
    let mix = |i: usize| (scale[low][i] + (scale[low + 1][i] - scale[low][i]) * t).round() as u8;
    format!("#{:02x}{:02x}{:02x}", mix(0), mix(1), mix(2))
}

/// CSS declarations `--s0:...` for a page with a light or dark background.
pub(crate) fn shade_variables(dark: bool) -> String {
    (0..=SHADES).fold(String::new(), |mut out, level| {
        let _ = write!(
            out,
            "--s{level}:{};",
            shade(&SCALES[usize::from(dark)], level)
        );
        out
    })
}

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
    // A file has a background and fixed colours; a page follows the reader's light or dark setting.
    let in_page = drawing.paint.ground.is_none();
    let colour = |level: usize| {
        if in_page {
            format!("var(--s{level})")
        } else {
            shade(&SCALES[0], level)
        }
    };
    drawing.rect(left, top, side, side, &colour(0), "");
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
        drawing.path(path, &colour(level));
    }
}
