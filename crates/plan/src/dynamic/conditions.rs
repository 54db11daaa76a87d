//! OPT's conditions for moving threads (2015, section 6.2.2), and for moving pages (section 6.3).

use std::fmt;

use super::options::Dynamics;

/// What OPT's conditions are about, at the beginning of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Situation {
    /// Whether the phase is another one than before.
    pub phase_changed: bool,
    /// `C_H` of the phase's communication, 0..=2500.
    pub heterogeneity: f64,
    /// `C_A` of the phase divided by its length: events per cell and second.
    pub events_per_s: f64,
    /// Seconds since the last move; `None` before the first.
    pub since_move_s: Option<f64>,
    /// Whether the phase's mapping differs from the present one.
    pub mapping_differs: bool,
}

/// The first condition for a move that does not hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unmet {
    /// The phase has not changed.
    SamePhase,
    /// The heterogeneity is not above `H_min`.
    Uniform {
        /// `C_H` of the phase.
        found: f64,
        /// `H_min`.
        least: f64,
    },
    /// The last move was less than `t_min` ago.
    TooSoon {
        /// Seconds since then.
        found: f64,
        /// `t_min` in seconds.
        least: f64,
    },
    /// Communication is not above `A_min`.
    TooLittle {
        /// Events per cell and second.
        found: f64,
        /// `A_min`.
        least: f64,
    },
    /// The phase's mapping is the present one.
    SameMapping,
    /// The phase is too short for the gain to exceed the cost of the move. Not one of OPT's conditions.
    NotWorthIt {
        /// Predicted gain of the best move in seconds.
        gain_s: f64,
        /// Its predicted cost in seconds.
        cost_s: f64,
    },
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SamePhase => write!(f, "the phase has not changed"),
            Self::Uniform { found, least } => {
                write!(f, "heterogeneity {found:.1} is not above {least}")
            }
            Self::TooSoon { found, least } => {
                write!(
                    f,
                    "{found:.3} s since the last move, at least {least} s expected"
                )
            }
            Self::TooLittle { found, least } => {
                write!(
                    f,
                    "{found:.1} events per cell and second are not above {least}"
                )
            }
            Self::SameMapping => write!(f, "the best mapping is the present one"),
            Self::NotWorthIt { gain_s, cost_s } => write!(
                f,
                "the best move gains {:.3} ms and costs {:.3} ms",
                gain_s * 1e3,
                cost_s * 1e3
            ),
        }
    }
}

impl Dynamics {
    /// The first of OPT's five conditions, in the paper's order, that forbids to move threads; `None` if all hold.
    #[must_use]
    pub fn forbids_threads(&self, at: &Situation) -> Option<Unmet> {
        if !at.phase_changed {
            return Some(Unmet::SamePhase);
        }
        if at.heterogeneity <= self.least_heterogeneity {
            return Some(Unmet::Uniform {
                found: at.heterogeneity,
                least: self.least_heterogeneity,
            });
        }
        if let Some(found) = at.since_move_s.filter(|&s| s < self.thread_interval_s) {
            let least = self.thread_interval_s;
            return Some(Unmet::TooSoon { found, least });
        }
        if at.events_per_s <= self.least_events_per_s {
            return Some(Unmet::TooLittle {
                found: at.events_per_s,
                least: self.least_events_per_s,
            });
        }
        (!at.mapping_differs).then_some(Unmet::SameMapping)
    }

    /// Whether pages may move, this many seconds after they last did.
    #[must_use]
    pub fn allows_pages(&self, since_move_s: Option<f64>) -> bool {
        since_move_s.is_none_or(|seconds| seconds >= self.page_interval_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fulfilled() -> Situation {
        Situation {
            phase_changed: true,
            heterogeneity: 100.1,
            events_per_s: 150.1,
            since_move_s: Some(1.0),
            mapping_differs: true,
        }
    }

    #[test]
    fn threads_move_only_if_all_five_conditions_hold() {
        let dynamics = Dynamics::default();
        assert_eq!(dynamics.forbids_threads(&fulfilled()), None);
        let first = Situation {
            since_move_s: None,
            ..fulfilled()
        };
        assert_eq!(dynamics.forbids_threads(&first), None);
        let at = fulfilled();
        // The limits are the paper's: higher than H_min and A_min, at least t_min.
        for (at, unmet) in [
            (
                Situation {
                    phase_changed: false,
                    ..at
                },
                Unmet::SamePhase,
            ),
            (
                Situation {
                    heterogeneity: 100.0,
                    ..at
                },
                Unmet::Uniform {
                    found: 100.0,
                    least: 100.0,
                },
            ),
            (
                Situation {
                    since_move_s: Some(0.999),
                    ..at
                },
                Unmet::TooSoon {
                    found: 0.999,
                    least: 1.0,
                },
            ),
            (
                Situation {
                    events_per_s: 150.0,
                    ..at
                },
                Unmet::TooLittle {
                    found: 150.0,
                    least: 150.0,
                },
            ),
            (
                Situation {
                    mapping_differs: false,
                    ..at
                },
                Unmet::SameMapping,
            ),
        ] {
            assert_eq!(dynamics.forbids_threads(&at), Some(unmet));
        }
    }

    #[test]
    fn pages_move_at_most_every_ten_seconds() {
        let dynamics = Dynamics::default();
        let allowed = [None, Some(9.999), Some(10.0)].map(|since| dynamics.allows_pages(since));
        assert_eq!(allowed, [true, false, true]);
    }

    #[test]
    fn every_constant_can_be_changed() {
        let none = Dynamics {
            least_heterogeneity: -1.0,
            least_events_per_s: -1.0,
            thread_interval_s: 0.0,
            page_interval_s: 0.0,
            ..Dynamics::default()
        };
        let at = Situation {
            heterogeneity: 0.0,
            events_per_s: 0.0,
            since_move_s: Some(0.0),
            ..fulfilled()
        };
        assert_eq!(none.forbids_threads(&at), None);
        assert!(none.allows_pages(Some(0.0)));
    }
}
