//! Online placement: follows a running program, shows an [`Advisor`] which thread accesses which page, and carries out
//! what it advises.
//!
//! The program is not traced, and nothing is changed in its memory: accesses are seen as samples of the PMU or as page
//! faults ([`source`]), threads are bound and pages moved by system calls from outside. Whatever becomes of numaloc,
//! the program goes on; a [`keeper`] gives its threads their own affinity back if numaloc is killed.
//!
//! | module | does |
//! |---|---|
//! | [`source`] | the ways to see accesses, and which is the best here |
//! | `follow` | the loop: threads that come and go, samples, advice |
//! | `others` | the processes that the followed one has created, which are counted only |
//! | `progress` | how far the program is, by its marks |
//! | `threads` | what `/proc` says of threads |
//! | `keeper` | a process that undoes what remains if numaloc is killed |
//! | `virtual_pmu` | samples that the virtual machine of `numaloc lab` delivers |
//! | [`start`] | `numaloc run --online` and `numaloc attach` |

mod follow;
mod keeper;
mod others;
mod progress;
pub mod source;
pub mod start;
mod threads;
mod virtual_pmu;

use std::collections::BTreeMap;

use numaloc_model::Access;

use crate::ptrace::errno_name;

pub use follow::Following;
pub use source::{Source, SourceKind, choose};
pub use start::{AttachError, attach, run_online};

/// Where the program is: PUs and nodes by the kernel's numbers.
#[derive(Clone, Debug, Default)]
pub struct Present {
    /// The PU on which each thread runs, by the thread's number.
    pub threads: BTreeMap<usize, u32>,
    /// The nodes of pages that exist, by address.
    pub pages: Vec<(u64, u32)>,
}

/// What moves: PUs and nodes by the kernel's numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Advice {
    /// Threads by number, and the PU to which each is bound.
    pub threads: Vec<(usize, u32)>,
    /// Pages by address, and their new nodes.
    pub pages: Vec<(u64, u32)>,
    /// Predicted gain and cost in seconds, if anything is predicted.
    pub predicted: Option<(f64, f64)>,
}

/// Moves that were made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moved {
    /// When they began, in seconds since numaloc followed the program.
    pub at_s: f64,
    /// Threads that were bound.
    pub threads: u64,
    /// Pages that moved.
    pub pages: u64,
    /// Predicted gain and cost in seconds.
    pub predicted: Option<(f64, f64)>,
}

/// Decides what moves. Threads have numbers that are reused after they have ended; times are in seconds.
pub trait Advisor {
    /// A thread accessed memory. Times may be a little out of order between threads.
    fn observe(&mut self, thread: usize, access: &Access, time_s: f64);
    /// The program has passed this many marks; called only if [`Following::marks`].
    fn passed(&mut self, _marks: u64) {}
    /// A thread has ended.
    fn ended(&mut self, thread: usize);
    /// The pages (addresses) whose nodes a decision needs; `None` if there is nothing to decide now.
    fn due(&mut self, now_s: f64) -> Option<Vec<u64>>;
    /// Decides.
    ///
    /// # Errors
    /// Why there is no advice, and will be none.
    fn decide(&mut self, now_s: f64, present: &Present) -> Result<Option<Advice>, String>;
    /// What is to be reported of the decisions at the end, a sentence each.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Where accesses were seen, and why there; `None`: nowhere, so nothing was done.
    pub source: Option<String>,
    /// Samples that the advisor got.
    pub samples: u64,
    /// Samples that the kernel dropped.
    pub lost: u64,
    /// Threads that could not be sampled, by errno.
    pub not_sampled: BTreeMap<i32, u64>,
    /// Decisions made.
    pub decisions: u64,
    /// The moves.
    pub moves: Vec<Moved>,
    /// Time that decisions took, in seconds of one PU.
    pub deciding_s: f64,
    /// Times that a thread was bound.
    pub threads: u64,
    /// Pages that moved.
    pub pages: u64,
    /// Refused threads by errno.
    pub refused_threads: BTreeMap<i32, u64>,
    /// Refused pages by errno.
    pub refused_pages: BTreeMap<i32, u64>,
    /// Remarks, among them the failure after which the program ran on by itself.
    pub notes: Vec<String>,
}

/// Moves that are reported one by one.
const SHOWN: usize = 12;

impl Report {
    /// When the last moves began.
    #[must_use]
    pub fn last_move_s(&self) -> Option<f64> {
        self.moves.last().map(|moved| moved.at_s)
    }

    /// What was done, a sentence each.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let Some(source) = &self.source else {
            return self.notes.clone();
        };
        let mut lines = vec![
            format!("accesses seen by {source}"),
            format!(
                "{} samples ({} lost), {} decisions, {} of them with moves: {} threads bound, {} pages moved",
                self.samples,
                self.lost,
                self.decisions,
                self.moves.len(),
                self.threads,
                self.pages
            ),
        ];
        for moved in self.moves.iter().take(SHOWN) {
            let Moved {
                at_s,
                threads,
                pages,
                predicted,
            } = moved;
            let predicted = predicted.map_or(String::new(), |(gain_s, cost_s)| {
                format!("; predicted gain {gain_s:.4} s, cost {cost_s:.4} s")
            });
            lines.push(format!(
                "after {at_s:.1} s: {threads} threads bound, {pages} pages moved{predicted}"
            ));
        }
        if let Some(last_s) = self.last_move_s() {
            lines.push(format!(
                "last move after {last_s:.1} s; decisions took {:.3} s",
                self.deciding_s
            ));
        }
        for (refused, what) in [
            (&self.not_sampled, "threads could not be sampled"),
            (&self.refused_threads, "threads could not be bound"),
            (&self.refused_pages, "pages could not be moved"),
        ] {
            for (errno, count) in refused {
                lines.push(format!("{count} {what}: {}", errno_name(*errno)));
            }
        }
        lines.extend(self.notes.iter().cloned());
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_its_source_and_counts_refusals() {
        let report = Report {
            source: Some("page faults".to_owned()),
            samples: 10,
            pages: 3,
            refused_pages: BTreeMap::from([(libc::ENOMEM, 2)]),
            notes: vec!["x".to_owned()],
            ..Report::default()
        };
        let lines = report.lines();
        assert_eq!(lines.len(), 4);
        assert!(lines[1].contains("10 samples") && lines[1].contains("3 pages moved"));
        assert!(
            lines[2].starts_with("2 pages could not be moved: "),
            "{lines:?}"
        );
        let without = Report {
            notes: vec!["no source".to_owned()],
            ..Report::default()
        };
        assert_eq!(without.lines(), ["no source"]);
    }
}
