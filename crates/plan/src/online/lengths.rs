//! For how long the present phase is expected to go on, by the phases so far.

use std::collections::VecDeque;

/// The longest time for which a phase is expected to go on, in seconds.
pub const HORIZON_S: f64 = 60.0;
/// Phases from which on their length is taken for the usual one.
const LEAST: usize = 2;
/// Phases that are remembered.
const MOST: usize = 8;

/// The lengths of the last phases, in seconds.
#[derive(Clone, Debug, Default)]
pub struct Lengths(VecDeque<f64>);

impl Lengths {
    /// A phase has ended.
    pub fn note(&mut self, length_s: f64) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(length_s);
    }

    /// Seconds for which a phase that has lasted `so_far_s` is expected to go on: up to the median length of the last
    /// ones. A longer one, and one before lengths are known, is expected to last as long again: a move is then made
    /// when it would have won back its cost already. At most [`HORIZON_S`].
    #[must_use]
    pub fn remaining_s(&self, so_far_s: f64) -> f64 {
        let mut known: Vec<f64> = self.0.iter().copied().collect();
        known.sort_by(f64::total_cmp);
        let usual_s = (known.len() >= LEAST).then(|| known[known.len() / 2]);
        let remaining_s = match usual_s {
            Some(usual_s) if so_far_s < usual_s => usual_s - so_far_s,
            _ => so_far_s,
        };
        remaining_s.clamp(0.0, HORIZON_S)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_ends_where_the_last_ones_did_or_else_lasts_as_long_again() {
        let mut lengths = Lengths::default();
        assert_eq!(
            [0.5, 7.0, 600.0].map(|s| lengths.remaining_s(s)),
            [0.5, 7.0, 60.0]
        );
        lengths.note(10.0);
        assert_eq!(lengths.remaining_s(9.0), 9.0, "one phase is no rule");
        lengths.note(11.0);
        lengths.note(10.0);
        assert_eq!(
            [1.0, 9.5, 12.0].map(|s| lengths.remaining_s(s)),
            [9.0, 0.5, 12.0]
        );
        // Only the last ones count.
        (0..MOST).for_each(|_| lengths.note(2.0));
        assert_eq!(lengths.remaining_s(0.5), 1.5);
    }
}
