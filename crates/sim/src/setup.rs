//! Where threads and pages are in a simulation, and whether that fits trace and machine.

use numaloc_model::LogicalPu;

use crate::machine::Machine;
use crate::pages::Pages;
use crate::schedule::Threads;
use crate::trace::Trace;

/// Placement of threads and pages.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// PU of each thread.
    pub threads: Threads<'a>,
    /// Node of each page.
    pub pages: &'a Pages,
}

/// Why a setup does not fit trace and machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// The mapping has another number of threads than the trace.
    #[error("the mapping has {found} threads, the trace {expected}")]
    Threads {
        /// Of the mapping.
        found: usize,
        /// Of the trace.
        expected: usize,
    },
    /// The mapping names a PU that does not exist.
    #[error("thread {thread} is mapped to {pu}, the machine has {pus} PUs")]
    Pu {
        /// Index.
        thread: usize,
        /// Its PU.
        pu: LogicalPu,
        /// Of the machine.
        pus: usize,
    },
    /// The placement names a node that does not exist, or is for another trace.
    #[error("the placement does not fit the machine or the trace: {0}")]
    Pages(String),
    /// The trace has windows only.
    #[error("the trace has the requests of windows only, and {0} needs all")]
    Windows(&'static str),
    /// Line sizes differ.
    #[error("the trace has lines of {trace} bytes, the machine of {machine}")]
    LineBytes {
        /// Of the trace.
        trace: u64,
        /// Of the machine.
        machine: u64,
    },
}

impl Setup<'_> {
    pub(crate) fn check(&self, machine: &Machine, trace: &Trace) -> Result<(), SetupError> {
        if trace.line_bytes() != machine.line_bytes {
            return Err(SetupError::LineBytes {
                trace: trace.line_bytes(),
                machine: machine.line_bytes,
            });
        }
        if let Threads::Pinned(pus) = self.threads {
            check_pinned(pus, machine, trace)?;
        }
        let wrong = |what: String| Err(SetupError::Pages(what));
        let node = match self.pages {
            Pages::Node(node) => Some(*node),
            Pages::Placed(homes) if homes.len() != trace.pages().len() => {
                return wrong(format!(
                    "{} pages, expected {}",
                    homes.len(),
                    trace.pages().len()
                ));
            }
            Pages::Placed(homes) => homes.iter().flatten().max().copied(),
            Pages::FirstTouch | Pages::Interleave | Pages::NextTouch | Pages::AutoNuma => None,
        };
        match node {
            Some(node) if node.index() >= machine.nodes => {
                wrong(format!("{node}, the machine has {} nodes", machine.nodes))
            }
            _ => Ok(()),
        }
    }
}

impl Setup<'_> {
    /// Whether the setup can be simulated from a trace with windows.
    pub(crate) fn check_windowed(
        &self,
        has_schedule: bool,
        is_sampled: bool,
    ) -> Result<(), SetupError> {
        let needs_all = match (self.threads, self.pages) {
            (Threads::Os { .. }, _) => Some("thread policy os"),
            (_, Pages::AutoNuma) => Some("page policy autonuma"),
            (_, Pages::NextTouch) => Some("page policy next-touch"),
            _ if has_schedule => Some("a plan's schedule"),
            _ if is_sampled => Some("a sample"),
            _ => None,
        };
        needs_all.map_or(Ok(()), |what| Err(SetupError::Windows(what)))
    }
}

fn check_pinned(pus: &[LogicalPu], machine: &Machine, trace: &Trace) -> Result<(), SetupError> {
    if pus.len() != trace.threads() {
        return Err(SetupError::Threads {
            found: pus.len(),
            expected: trace.threads(),
        });
    }
    match pus.iter().position(|pu| pu.index() >= machine.pus.len()) {
        Some(thread) => Err(SetupError::Pu {
            thread,
            pu: pus[thread],
            pus: machine.pus.len(),
        }),
        None => Ok(()),
    }
}
