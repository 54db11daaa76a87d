//! The origin of a profile and its known limits.

use super::window::Window;
use crate::conditions::Conditions;

/// The unit of times and slice borders in a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clock {
    /// Nanoseconds of wall time since the program started.
    Wall,
    /// Accesses per thread, synchronised between threads where the program synchronises: independent of the host's
    /// scheduler.
    Virtual,
}

impl Clock {
    /// The name in profile tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::Virtual => "virtual",
        }
    }

    /// The unit of a time in this clock.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Wall => "ns",
            Self::Virtual => "accesses",
        }
    }
}

/// The origin of a profile and its known limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Meta {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The frontend that observed it: `qemu`, `native`, `instrument`, `perf`, `mpi`, `import`.
    pub frontend: String,
    /// The clock of every time in the profile.
    pub clock: Clock,
    /// Bytes per cache line of the communication layers.
    pub line_size: u64,
    /// False if the run was interrupted, crashed or hit a limit: see `notes`.
    pub complete: bool,
    /// Notes for the reader: limits hit, detail reduced, sampling, exclusions.
    pub notes: Vec<String>,
    /// Fraction of accesses observed, 1 if exact.
    pub sampled: f64,
    /// The source of the threads' `dram_bytes`, with its parameters; `None` if they were not observed.
    pub dram_source: Option<String>,
    /// What influenced the run apart from the command.
    pub conditions: Conditions,
    /// What was observed, and how, if the program ran already; `None` for a run that was recorded from its start.
    pub window: Option<Window>,
}

impl Meta {
    /// Of a complete and exact recording by `frontend` of a command that is not known, with lines of 64 bytes.
    #[must_use]
    pub fn new(frontend: &str, clock: Clock) -> Self {
        Self {
            command: Vec::new(),
            frontend: frontend.to_owned(),
            clock,
            line_size: 64,
            complete: true,
            notes: Vec::new(),
            sampled: 1.0,
            dram_source: None,
            conditions: Conditions::default(),
            window: None,
        }
    }
}
