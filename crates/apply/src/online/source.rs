//! The ways to see which thread of a running program accesses which page.
//!
//! | source | sees | costs the program |
//! |---|---|---|
//! | `pmu` | samples of loads and stores (PEBS, IBS) | an interrupt per sample |
//! | `lab` | samples of accesses below the private caches, from the virtual machine of `numaloc lab --samples` | nothing |
//! | `hint-faults` | the first access of each page after the kernel's NUMA balancing revoked access to it | nothing more than the balancing itself |
//! | `fast-hint-faults` | the same, with the kernel's scanning of the whole machine made faster ([`numaloc_sys::scanning`]); never chosen by itself | a page fault per page and scan |
//! | `soft-dirty` | the first write to each page after its right to write was revoked ([`numaloc_sys::writes`]) | a page fault per page and round |
//! | `page-faults` | pages that appear | nothing; never chosen by itself |
//!
//! All but the first two are page faults, which a software event of the kernel shows with thread and address on every
//! machine. In each, the kernel itself revokes and restores access: system calls on such pages work, no signal handler
//! is called, and nothing remains if numaloc is killed.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use numaloc_perf::events::{self, MemoryEvent};
use numaloc_perf::live::machine::FaultSampler;
use numaloc_perf::live::thread::ThreadSampler;
use numaloc_sys::scanning::Scanning;
use numaloc_sys::{balancing, writes};

use super::virtual_pmu::{self, VirtualPmu};

/// A way to see accesses; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// Samples of the PMU.
    Pmu,
    /// Samples of the virtual machine.
    Lab,
    /// Hint faults of the kernel's NUMA balancing.
    HintFaults,
    /// Hint faults, with faster scanning.
    FastHintFaults,
    /// Write faults that numaloc causes.
    SoftDirty,
    /// Page faults that happen anyway.
    PageFaults,
}

impl SourceKind {
    /// Every way, with the name that users choose it by.
    pub const ALL: [(&'static str, Self); 6] = [
        ("pmu", Self::Pmu),
        ("lab", Self::Lab),
        ("hint-faults", Self::HintFaults),
        ("fast-hint-faults", Self::FastHintFaults),
        ("soft-dirty", Self::SoftDirty),
        ("page-faults", Self::PageFaults),
    ];

    fn name(self) -> &'static str {
        let named = Self::ALL.iter().find(|(_, kind)| *kind == self);
        named.map_or("", |(name, _)| name)
    }

    /// Whether it shows writes only.
    #[must_use]
    pub fn shows_no_reads(self) -> bool {
        self == Self::SoftDirty
    }

    /// Whether it shows what served an access and how long that took.
    #[must_use]
    pub fn shows_what_served(self) -> bool {
        matches!(self, Self::Pmu | Self::Lab)
    }
}

/// Events of the PMU between two samples.
const PERIOD: u64 = 10_007;
/// Time that a page fault takes from the thread, for the budget.
const FAULT: Duration = Duration::from_nanos(1500);
/// Bounds of the time between two rounds of write faults.
const ROUNDS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Bounds of the kernel's scan period, in milliseconds: it goes not below the first.
const SCANS_MS: (f64, f64) = (100.0, 60_000.0);
/// Time between two settings of the scan period.
const RATE: Duration = Duration::from_secs(1);

/// The kernel's scanning, kept to a budget.
#[derive(Debug)]
struct Rate {
    scanning: Scanning,
    /// The period in milliseconds, and since when.
    now: Mutex<(f64, Option<Instant>)>,
}

impl Rate {
    /// Sets the period by the faults since the last time.
    fn adapt(&self, faults: u64, budget: f64) -> io::Result<()> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let (period_ms, since) = *now;
        let period_ms = since.map_or(SCANS_MS.0, |since| {
            next_period_ms(period_ms, faults, since.elapsed(), budget)
        });
        *now = (period_ms, Some(Instant::now()));
        self.scanning.set(period_ms.round() as u64)
    }
}

/// The scan period at which faults take a share `budget` of one thread's time, if they come in proportion to scans.
fn next_period_ms(period_ms: f64, faults: u64, within: Duration, budget: f64) -> f64 {
    let share = faults as f64 * FAULT.as_secs_f64() / within.as_secs_f64();
    (period_ms * share / budget).clamp(SCANS_MS.0, SCANS_MS.1)
}

/// A source that works here.
#[derive(Clone, Debug)]
pub struct Source {
    kind: SourceKind,
    events: Vec<MemoryEvent>,
    rate: Option<Arc<Rate>>,
    /// What it is, and why it was chosen.
    pub why: String,
}

impl Source {
    /// Sees nothing, for advisors that look at nothing but progress.
    #[must_use]
    pub fn nothing() -> Self {
        Self {
            kind: SourceKind::PageFaults,
            events: Vec::new(),
            rate: None,
            why: "nobody, because the policy looks at the program's marks only".to_owned(),
        }
    }

    /// What kind of source it is.
    #[must_use]
    pub fn kind(&self) -> SourceKind {
        self.kind
    }

    /// Accesses to memory that one seen stands for; `None` where that is not known: a page fault says that a page is
    /// used, not how often.
    #[must_use]
    pub fn accesses_per_sample(&self) -> Option<f64> {
        (self.kind == SourceKind::Pmu).then_some(PERIOD as f64)
    }

    /// The virtual machine's samples, if it is this source. `node_of`: the node of each CPU.
    pub(super) fn virtual_pmu(
        &self,
        node_of: BTreeMap<u32, u32>,
    ) -> io::Result<Option<VirtualPmu>> {
        let is_this = self.kind == SourceKind::Lab;
        is_this.then(|| VirtualPmu::open(node_of)).transpose()
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

    /// Samples the page faults of all threads from now on, if that is what this source sees and the kernel lets this
    /// user. Otherwise threads are sampled one by one.
    pub(super) fn faults(&self) -> Option<FaultSampler> {
        let faults = self.events.iter().any(|event| event.faults);
        faults.then(|| FaultSampler::open().ok())?
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
        matches!(
            self.kind,
            SourceKind::SoftDirty | SourceKind::FastHintFaults
        )
    }

    /// Makes the next write to each page of process `pid` visible, or the next access. Returns the time until that may
    /// be done again, so that this and `faults` page faults since the last time take a share `budget` of one thread's
    /// time.
    pub(super) fn provoke(&self, pid: i32, faults: u64, budget: f64) -> io::Result<Duration> {
        if let Some(rate) = &self.rate {
            rate.adapt(faults, budget)?;
            return Ok(RATE);
        }
        let begun = Instant::now();
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

/// The best source of this machine, which has `nodes`, or the one that the user chose. `served`: it must show what
/// served an access.
///
/// # Errors
/// Why there is none: one line, which says what would help.
pub fn choose(chosen: Option<SourceKind>, nodes: usize, served: bool) -> Result<Source, String> {
    let mut order = vec![
        SourceKind::Pmu,
        SourceKind::HintFaults,
        SourceKind::SoftDirty,
    ];
    if virtual_pmu::device().is_some() {
        order.insert(1, SourceKind::Lab);
    }
    order.retain(|kind| !served || kind.shows_what_served());
    let candidates: &[SourceKind] = match &chosen {
        Some(kind) if served && !kind.shows_what_served() => {
            return Err(format!(
                "{} does not show what served an access",
                kind.name()
            ));
        }
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
                let rate = match kind {
                    SourceKind::FastHintFaults => Some(fast()?),
                    _ => None,
                };
                return Ok(Source {
                    kind,
                    events,
                    rate,
                    why,
                });
            }
            Err(why) => missing.push(why),
        }
    }
    Err(format!("no accesses can be seen: {}", missing.join("; ")))
}

/// Control of the kernel's scanning.
fn fast() -> Result<Arc<Rate>, String> {
    let scanning = Scanning::take().map_err(|error| {
        format!("the kernel's scanning cannot be made faster ({error}): it takes root and debugfs")
    })?;
    Ok(Arc::new(Rate {
        scanning,
        now: Mutex::new((SCANS_MS.0, None)),
    }))
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
        SourceKind::Lab if virtual_pmu::device().is_none() => {
            return Err("this is no virtual machine of numaloc lab --samples".to_owned());
        }
        SourceKind::Lab => (Vec::new(), "samples of the virtual machine"),
        SourceKind::HintFaults | SourceKind::FastHintFaults if balancing::is_on() != Some(true) => {
            return Err("the kernel's NUMA balancing is off (kernel.numa_balancing)".to_owned());
        }
        SourceKind::HintFaults | SourceKind::FastHintFaults if nodes < 2 => {
            return Err("the kernel balances only machines with several nodes".to_owned());
        }
        SourceKind::HintFaults => (faults(), "hint faults of the kernel's NUMA balancing"),
        SourceKind::FastHintFaults => (
            faults(),
            "hint faults of the kernel's NUMA balancing, whose scanning is made faster on the whole machine",
        ),
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
    fn scans_keep_to_the_budget() {
        let within = Duration::from_secs(1);
        // 40,000 faults of 1.5 us in a second are 6 %: three times the budget.
        let period = |now, faults| next_period_ms(now, faults, within, 0.02).round();
        assert_eq!(period(100.0, 40_000), 300.0);
        assert_eq!(period(300.0, 13_333), 300.0);
        assert_eq!(period(300.0, 100), SCANS_MS.0);
        assert_eq!(period(30_000.0, 40_000), SCANS_MS.1);
    }

    #[test]
    fn a_source_that_is_missing_is_named_with_what_would_help() {
        let without = choose(Some(SourceKind::HintFaults), 1, false).unwrap_err();
        assert!(without.contains("NUMA balancing is off") || without.contains("several nodes"));
        if let Ok(source) = choose(None, 4, false) {
            assert!(!source.why.is_empty() && source.kind != SourceKind::PageFaults);
        }
        let faults = choose(Some(SourceKind::SoftDirty), 4, true).unwrap_err();
        assert!(faults.contains("what served"), "{faults}");
        if let Ok(source) = choose(None, 4, true) {
            assert!(source.kind.shows_what_served());
        }
        if let Ok(source) = choose(Some(SourceKind::PageFaults), 1, false) {
            assert!(
                source.why.ends_with("(--source page-faults)"),
                "{}",
                source.why
            );
        }
    }
}
