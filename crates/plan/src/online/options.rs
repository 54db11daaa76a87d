//! The constants of online placement.

use numaloc_model::{Access, Served};

use super::detect::Detector;
use crate::dynamic::Dynamics;

/// How many accesses to memory there are for those that are observed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amounts {
    /// Each observed one stands for this many: the period of sampling.
    PerSample(f64),
    /// Observations say who accesses what, not how often: each active thread is assumed to make this many per second.
    PerThreadSecond(f64),
}

/// Cycles from which on a load is slow, if it is not known what served it: more than a cache of the own package takes.
pub const SLOW_CYCLES: u64 = 150;

/// Which of the observed accesses count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Evidence {
    /// All.
    #[default]
    All,
    /// Those that the cache of another package served: the baseline `azimi` (Azimi et al. 2009; OPT section 7.6).
    CacheToCache,
    /// Loads that took long: the baseline `marathe` (Marathe and Mueller 2006; OPT section 7.6).
    SlowLoads,
}

impl Evidence {
    /// Whether an access counts.
    #[must_use]
    pub fn counts(self, access: &Access) -> bool {
        match self {
            Self::All => true,
            Self::CacheToCache => access.served == Some(Served::OtherCache),
            Self::SlowLoads => access.store == Some(false) && is_slow(access),
        }
    }
}

fn is_slow(access: &Access) -> bool {
    match (access.served, access.cycles) {
        (Some(served), _) => served != Served::OwnCache,
        (None, cycles) => cycles.is_some_and(|cycles| cycles >= SLOW_CYCLES),
    }
}

/// The constants of online placement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// OPT's conditions, and what a move costs: those of planned moves.
    pub dynamics: Dynamics,
    /// How a new phase is recognised.
    pub detector: Detector,
    /// Length of the windows by which phases are recognised, in seconds.
    pub window_s: f64,
    /// Windows that are compared with as many before them.
    pub windows: usize,
    /// Time after which an observation counts half, in seconds.
    pub half_life_s: f64,
    /// How many accesses to memory there are.
    pub amounts: Amounts,
    /// The accesses from which communication is estimated.
    pub communication_by: Evidence,
    /// The accesses from which the use of pages is estimated.
    pub pages_by: Evidence,
    /// Bytes of a private cache, if only writes are seen. A thread that writes less waits for none of its own memory,
    /// and whoever else reads it is not seen: its pages stay.
    pub writes_only_beyond: Option<u64>,
    /// Least time between two decisions, in seconds.
    pub decision_s: f64,
    /// Observed accesses from which on the first decision is made.
    pub least_samples: u64,
}

impl Default for Constants {
    /// Windows of 250 ms, four against four: a phase is recognised after one second, OPT's least time between moves. A
    /// million accesses of a thread in a second: one in a thousand cycles, little for a program that placement matters
    /// to.
    fn default() -> Self {
        Self {
            dynamics: Dynamics::default(),
            detector: Detector::default(),
            window_s: 0.25,
            windows: 4,
            half_life_s: 2.0,
            amounts: Amounts::PerThreadSecond(1e6),
            communication_by: Evidence::All,
            pages_by: Evidence::All,
            writes_only_beyond: None,
            decision_s: 0.5,
            least_samples: 64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baselines_count_the_accesses_that_their_authors_did() {
        let access = |store, served, cycles| Access {
            address: 64,
            store,
            served,
            cycles,
        };
        let transfer = access(Some(false), Some(Served::OtherCache), Some(300));
        let from_memory = access(Some(false), Some(Served::Memory), Some(200));
        let near = access(Some(false), Some(Served::OwnCache), Some(200));
        let store = access(Some(true), Some(Served::Memory), None);
        let slow = access(Some(false), None, Some(SLOW_CYCLES));
        let fast = access(Some(false), None, Some(SLOW_CYCLES - 1));
        let fault = Access::to(64);
        let all = [transfer, from_memory, near, store, slow, fast, fault];
        let counted = |by: Evidence| all.map(|access| by.counts(&access));
        assert_eq!(counted(Evidence::All), [true; 7]);
        let transfers = [true, false, false, false, false, false, false];
        assert_eq!(counted(Evidence::CacheToCache), transfers);
        let slow = [true, true, false, false, true, false, false];
        assert_eq!(counted(Evidence::SlowLoads), slow);
    }
}
