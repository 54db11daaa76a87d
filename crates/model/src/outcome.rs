//! The observed result of a run under a plan.

/// Counts of one kind of placement action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Requested by the plan.
    pub planned: u64,
    /// Found where planned when read back.
    pub placed: u64,
    /// In the plan, but the run had no such thread or page.
    pub not_found: u64,
    /// In the run, but neither in the plan nor left out of it on purpose.
    pub unplanned: u64,
    /// Refused by the kernel, by errno name, ascending.
    pub refused: Vec<(String, u64)>,
}

impl Applied {
    /// Share (0..=1) that is where planned, of all that was planned or appeared; 1 if there was nothing.
    #[must_use]
    pub fn share_of_all(&self) -> f64 {
        match self.planned + self.unplanned {
            0 => 1.0,
            all => self.placed as f64 / all as f64,
        }
    }

    /// Share (0..=1) of the planned that is where planned; 1 if nothing was planned.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.planned == 0 {
            1.0
        } else {
            self.placed as f64 / self.planned as f64
        }
    }
}

/// The result of running a program under a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Threads pinned to their PUs.
    pub threads: Applied,
    /// Pages placed on their nodes.
    pub pages: Applied,
    /// Mismatches and their reasons, one line each.
    pub notes: Vec<String>,
    /// Wall time of the program in seconds.
    pub wall_s: f64,
    /// Exit status as in a shell (128 + signal if killed).
    pub status: i32,
}
