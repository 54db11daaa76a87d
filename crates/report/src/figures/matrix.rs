//! The communication matrix as a static picture (the page itself draws an interactive one).

use numaloc_model::CommMatrix;

use super::cells::{binned, cells};
use super::{Anchor, Drawing, Paint};

/// Maximum number of rows; with more threads, neighbours are added up in bins.
const BINS: usize = 64;
/// Draws a matrix of events or bytes (`show` writes an amount); cells are shaded by the square root.
#[must_use]
pub fn matrix(matrix: &CommMatrix, show: fn(f64) -> String, paint: Paint) -> String {
    let threads = matrix.threads();
    let bins = threads.clamp(1, BINS);
    let (side, left, top) = (512.0, 44.0, 26.0);
    let mut drawing = Drawing::new(left + side + 14.0, top + side + 34.0, paint);
    let sums = binned(matrix, bins);
    let max = sums.iter().copied().fold(0.0, f64::max);
    let cell = side / bins as f64;
    cells(&mut drawing, (left, top), side, &sums);
    let step = bins.div_ceil(8).max(1);
    for bin in (0..bins).step_by(step) {
        let label = (bin * threads).div_ceil(bins).to_string();
        let middle = (bin as f64 + 0.5) * cell;
        drawing.label(left + middle, top - 7.0, &label);
        drawing.text(
            left - 7.0,
            top + middle + 4.0,
            Anchor::End,
            paint.muted,
            11.0,
            &label,
        );
    }
    drawing.label(
        left + side / 2.0,
        top + side + 22.0,
        &format!("rows produce, columns consume; darkest cell {}", show(max)),
    );
    drawing.finish("communication matrix")
}
