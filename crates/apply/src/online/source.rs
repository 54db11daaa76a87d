//! The ways to see which thread of a running program accesses which page.
//!
//! | source | sees | costs the program |
//! |---|---|---|
//! | `pmu` | samples of loads and stores (PEBS, IBS) | an interrupt per sample |
//! | `hint-faults` | the first access of each page after the kernel's NUMA balancing revoked access to it | nothing more than the balancing itself |
//! | `soft-dirty` | the first write to each page after its right to write was revoked ([`numaloc_sys::writes`]) | a page fault per page and round |
//! | `page-faults` | pages that appear | nothing; never chosen by itself |
//!
//! All but the first are page faults, which a software event of the kernel shows with thread and address on every
//! machine. In each, the kernel itself revokes and restores access: system calls on such pages work, no signal handler
//! is called, and nothing remains if numaloc is killed.

use std::io;
use std::path::Path;
use std::time::Duration;

use numaloc_perf::events::{self, MemoryEvent};
use numaloc_perf::live::thread::ThreadSampler;
use numaloc_sys::{balancing, writes};

/// A way to see accesses; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// Samples of the PMU.
    Pmu,
    /// Hint faults of the kernel's NUMA balancing.
    HintFaults,
    /// Write faults that numaloc causes.
    SoftDirty,
    /// Page faults that happen anyway.
    PageFaults,
}

impl SourceKind {
    /// Every way, with the name that users choose it by.
    pub const ALL: [(&'static str, Self); 4] = [
        ("pmu", Self::Pmu),
        ("hint-faults", Self::HintFaults),
        ("soft-dirty", Self::SoftDirty),
        ("page-faults", Self::PageFaults),
    ];

    fn name(self) -> &'static str {
        let named = Self::ALL.iter().find(|(_, kind)| *kind == self);
        named.map_or("", |(name, _)| name)
    }
}

/// Events of the PMU between two samples.
const PERIOD: u64 = 10_007;
/// Time that a page fault takes from the thread, for the budget.
const FAULT: Duration = Duration::from_nanos(1500);
/// Bounds of the time between two rounds of write faults.
const ROUNDS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// A source that works here.
#[derive(Clone, Debug)]
pub struct Source {
    kind: SourceKind,
    events: Vec<MemoryEvent>,
    /// What it is, and why it was chosen.
    pub why: String,
}

impl Source {
    /// Accesses to memory that one seen stands for; `None` where that is not known: a page fault says that a page is
    /// used, not how often.
    #[must_use]
    pub fn accesses_per_sample(&self) -> Option<f64> {
        (self.kind == SourceKind::Pmu).then_some(PERIOD as f64)
    }

    /// Seconds after which an access seen counts half. The kernel's balancing visits a page once in one to sixty
    /// seconds; all other sources see every active page in each second.
    #[must_use]
    pub fn half_life_s(&self) -> f64 {
        match self.kind {
            SourceKind::HintFaults => 10.0,
            _ => 2.0,
        }
    }

    /// Samples thread `tid` from now on.
    ///
    /// # Errors
    /// As of [`ThreadSampler::open`].
    pub(super) fn open(&self, tid: i32) -> io::Result<Vec<ThreadSampler>> {
        let period = if self.kind == SourceKind::Pmu {
            PERIOD
        } else {
            1
        };
        let events = self.events.iter();
        events
            .map(|event| ThreadSampler::open(event, tid, period))
            .collect()
    }

    /// Whether accesses are seen only after [`Self::provoke`].
    pub(super) fn must_be_provoked(&self) -> bool {
        self.kind == SourceKind::SoftDirty
    }

    /// Makes the next write to each page of process `pid` visible. Returns the time until that may be done again, so
    /// that this and `faults` page faults since the last time take a share `budget` of one thread's time.
    pub(super) fn provoke(&self, pid: i32, faults: u64, budget: f64) -> io::Result<Duration> {
        let begun = std::time::Instant::now();
        writes::watch(pid)?;
        Ok(pause(begun.elapsed(), faults, budget))
    }
}

/// Time between two rounds that cost this much.
fn pause(took: Duration, faults: u64, budget: f64) -> Duration {
    let cost_s = took.as_secs_f64() + faults as f64 * FAULT.as_secs_f64();
    let (least, most) = ROUNDS;
    Duration::try_from_secs_f64(cost_s / budget).map_or(most, |pause| pause.clamp(least, most))
}

/// The best source of this machine, which has `nodes`, or the one that the user chose.
///
/// # Errors
/// Why there is none: one line, which says what would help.
pub fn choose(chosen: Option<SourceKind>, nodes: usize) -> Result<Source, String> {
    let order = [
        SourceKind::Pmu,
        SourceKind::HintFaults,
        SourceKind::SoftDirty,
    ];
    let candidates: &[SourceKind] = match &chosen {
        Some(kind) => std::slice::from_ref(kind),
        None => &order,
    };
    let mut missing = Vec::new();
    for &kind in candidates {
        match try_kind(kind, nodes) {
            Ok((events, what)) => {
                let why = match (chosen, missing.is_empty()) {
                    (Some(_), _) => format!("{what} (--source {})", kind.name()),
                    (None, true) => format!("{what}, the best source there is"),
                    (None, false) => format!("{what}, because {}", missing.join(" and ")),
                };
                return Ok(Source { kind, events, why });
            }
            Err(why) => missing.push(why),
        }
    }
    Err(format!("no accesses can be seen: {}", missing.join("; ")))
}

/// The events of a source and what it is, or why it does not work here.
fn try_kind(kind: SourceKind, nodes: usize) -> Result<(Vec<MemoryEvent>, String), String> {
    let faults = || vec![MemoryEvent::page_faults()];
    let (events, what) = match kind {
        SourceKind::Pmu => {
            let found = events::discover(Path::new(events::SYSFS));
            let found = found.map_err(|_| "no PMU samples addresses here".to_owned())?;
            (found, "samples of the PMU")
        }
        SourceKind::HintFaults if balancing::is_on() != Some(true) => {
            return Err("the kernel's NUMA balancing is off (kernel.numa_balancing)".to_owned());
        }
        SourceKind::HintFaults if nodes < 2 => {
            return Err("the kernel balances only machines with several nodes".to_owned());
        }
        SourceKind::HintFaults => (faults(), "hint faults of the kernel's NUMA balancing"),
        SourceKind::SoftDirty if !writes::is_supported() => {
            return Err("the kernel does not track writes (CONFIG_MEM_SOFT_DIRTY)".to_owned());
        }
        SourceKind::SoftDirty => (faults(), "write faults of tracked pages"),
        SourceKind::PageFaults => (faults(), "page faults that happen anyway"),
    };
    let own = std::process::id() as i32;
    for event in &events {
        ThreadSampler::open(event, own, 1_000_003).map_err(|error| {
            format!(
                "{} cannot be sampled ({error}): see kernel.perf_event_paranoid",
                event.name
            )
        })?;
    }
    Ok((events, what.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_keep_to_the_budget() {
        let ms = Duration::from_millis;
        // 1 ms and 1,000 faults of 1.5 us are 2 % of 125 ms.
        assert_eq!(pause(ms(1), 1000, 0.02), ms(125));
        assert_eq!(pause(Duration::ZERO, 0, 0.02), ROUNDS.0);
        assert_eq!(pause(ms(1), 1_000_000, 0.02), ROUNDS.1);
        assert_eq!(pause(ms(1), 1, 0.0), ROUNDS.1);
    }

    #[test]
    fn a_source_that_is_missing_is_named_with_what_would_help() {
        let without = choose(Some(SourceKind::HintFaults), 1).unwrap_err();
        assert!(without.contains("NUMA balancing is off") || without.contains("several nodes"));
        if let Ok(source) = choose(None, 4) {
            assert!(!source.why.is_empty() && source.kind != SourceKind::PageFaults);
        }
        if let Ok(source) = choose(Some(SourceKind::PageFaults), 1) {
            assert!(
                source.why.ends_with("(--source page-faults)"),
                "{}",
                source.why
            );
        }
    }
}
