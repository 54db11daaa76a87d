//! Communication matrices of the phases of the pattern: the small matrices of OPT Fig. 5.

use numaloc_analysis::Characterisation;
use numaloc_model::profile::{Amount, Profile};

use super::cells::{binned, cells};
use super::{Anchor, Drawing, Paint};
use crate::number;

/// Maximum number of matrices: those with most communication are drawn, in time order.
pub const SHOWN: usize = 8;
/// Maximum number of rows of a matrix.
const BINS: usize = 32;

/// The pattern phases that are worth a matrix, as indexes into `pattern_phases`.
#[must_use]
pub fn shown_phases(c: &Characterisation) -> Vec<usize> {
    let amounts = c.timeline.weighed(c.layer);
    let amount = |at: usize| -> u64 { amounts[c.pattern_phases[at].clone()].iter().sum() };
    let mut all: Vec<usize> = (0..c.pattern_phases.len())
        .filter(|&at| amount(at) > 0)
        .collect();
    all.sort_by_key(|&at| (std::cmp::Reverse(amount(at)), at));
    all.truncate(SHOWN);
    all.sort_unstable();
    all
}

/// Draws the matrices; `None` if the pattern never changes.
#[must_use]
pub fn phase_matrices(profile: &Profile, c: &Characterisation, paint: Paint) -> Option<String> {
    let shown = shown_phases(c);
    if shown.len() < 2 {
        return None;
    }
    let (width, gap) = (1080.0, 18.0);
    let columns = shown.len().clamp(4, 4);
    let side = (width - gap * (columns as f64 + 1.0)) / columns as f64;
    let rows = shown.len().div_ceil(columns);
    let pitch = side + 52.0;
    let mut drawing = Drawing::new(width, rows as f64 * pitch + 4.0, paint);
    for (place, &at) in shown.iter().enumerate() {
        let slices = &c.pattern_phases[at];
        let range = slices.start as u32..slices.end as u32;
        let matrix = profile
            .matrix_of_slices(c.layer, Amount::of_layer(c.layer), range)
            .ok()?;
        let left = gap + (place % columns) as f64 * (side + gap);
        let top = (place / columns) as f64 * pitch + 40.0;
        let title = format!(
            "phase {}: slices {} to {}",
            at + 1,
            slices.start,
            slices.end - 1
        );
        drawing.text(left, top - 22.0, Anchor::Start, paint.ink, 12.0, &title);
        let sum: u64 = c.timeline.weighed(c.layer)[slices.clone()].iter().sum();
        let amount = number::weighed(c.layer, sum as f64);
        drawing.text(left, top - 7.0, Anchor::Start, paint.muted, 11.0, &amount);
        let bins = matrix.threads().clamp(1, BINS);
        cells(&mut drawing, (left, top), side, &binned(&matrix, bins));
    }
    Some(drawing.finish("communication matrix of every phase of the pattern"))
}
