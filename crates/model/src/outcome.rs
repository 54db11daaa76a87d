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

/// What became of a role of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleOutcome {
    /// Its name in the plan.
    pub name: String,
    /// Whether the plan leaves it to the kernel.
    pub is_left: bool,
    /// Threads that were of this role when they ended.
    pub members: u64,
    /// Those that their name or code shows; the others were taken for what their creator usually makes.
    pub by_name: u64,
    /// Those that ended on their planned PUs.
    pub placed: u64,
    /// Those of them that were there before their first instruction, and stayed.
    pub since_birth: u64,
    /// Those that ended on other PUs.
    pub elsewhere: u64,
    /// Those whose PUs the kernel refused.
    pub refused: u64,
}

/// What became of named memory of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentOutcome {
    /// Its name in the plan.
    pub name: String,
    /// Number of mappings.
    pub mappings: u64,
    /// Bytes whose policy the kernel accepted.
    pub bytes: u64,
    /// Mappings that it refused, by errno name.
    pub refused: Vec<(String, u64)>,
}

/// The result of running a program under a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Threads pinned to their PUs.
    pub threads: Applied,
    /// Pages placed on their nodes.
    pub pages: Applied,
    /// Roles, in plans by role.
    pub roles: Vec<RoleOutcome>,
    /// Named memory, in plans by role.
    pub segments: Vec<SegmentOutcome>,
    /// Mismatches and their reasons, one line each.
    pub notes: Vec<String>,
    /// Wall time of the program in seconds.
    pub wall_s: f64,
    /// Exit status as in a shell (128 + signal if killed).
    pub status: i32,
}
