//! The constants of planned dynamics.

/// How the phases of a run are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detector {
    /// By communication partners ([`numaloc_analysis::pattern_phases`]).
    #[default]
    Pattern,
    /// By heterogeneity (OPT eq. 4, [`numaloc_analysis::phases`]). Does not see a change between two patterns of equal
    /// heterogeneity.
    Heterogeneity,
    /// By load on memory (CMLB Algorithm 1, [`numaloc_analysis::load::access_phases`]).
    Load,
    /// By clusters of concurrent communication (DeLoc II-C, [`numaloc_analysis::concurrency_groups`]).
    Clusters,
}

impl Detector {
    /// Every detector, with the name that users choose it by.
    pub const ALL: [(&'static str, Self); 4] = [
        ("pattern", Self::Pattern),
        ("heterogeneity", Self::Heterogeneity),
        ("load", Self::Load),
        ("clusters", Self::Clusters),
    ];

    /// The name that users choose it by.
    #[must_use]
    pub fn name(self) -> &'static str {
        let named = Self::ALL.iter().find(|(_, detector)| *detector == self);
        named.map_or("", |(name, _)| name)
    }

    /// The detector of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        let named = Self::ALL.iter().find(|(known, _)| *known == name);
        named.map(|&(_, detector)| detector)
    }
}

/// The constants of planned dynamics: OPT's (sections 4.1.3, 6.2.2 and 6.3), and what a move costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dynamics {
    /// How phases are found.
    pub detector: Detector,
    /// Slices per window of the detectors by pattern and heterogeneity; `None`: the detector's own rule.
    pub window: Option<usize>,
    /// `diff_min` of the detector by heterogeneity.
    pub least_difference: f64,
    /// `H_min`: threads move only if the heterogeneity of the phase's communication is higher.
    pub least_heterogeneity: f64,
    /// `A_min`: threads move only if the events per cell and second of the phase (`C_A` / its length) are more.
    pub least_events_per_s: f64,
    /// `t_min` between moves of threads, in seconds.
    pub thread_interval_s: f64,
    /// `t_min` between moves of pages, in seconds.
    pub page_interval_s: f64,
    /// Accesses that a thread makes in a second: turns a virtual clock into seconds. Not used with a wall clock.
    pub accesses_per_s: f64,
    /// Cost of moving a thread in seconds: a context switch, and filling a private cache again.
    pub thread_move_s: f64,
    /// Cost of moving a page in seconds, without copying its bytes: unmapping it, and invalidating the address
    /// translations of other PUs (shoot-down).
    pub page_move_s: f64,
}

impl Default for Dynamics {
    /// OPT's constants. 10^9 accesses a second; 0.4 ms for a thread (256 KiB in lines of 64 bytes at 90 ns each) and
    /// 2 us for a page are estimates for a server of the 2010s.
    fn default() -> Self {
        Self {
            detector: Detector::default(),
            window: None,
            least_difference: 0.2,
            least_heterogeneity: 100.0,
            least_events_per_s: 150.0,
            thread_interval_s: 1.0,
            page_interval_s: 10.0,
            accesses_per_s: 1e9,
            thread_move_s: 400e-6,
            page_move_s: 2e-6,
        }
    }
}
