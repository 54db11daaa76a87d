//! Parameters of planning that do not depend on the profile.

use numaloc_mapping::Spread;

/// Parameters of policies.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Which PUs stay empty when there are fewer threads than PUs.
    pub spread: Spread,
    /// Bytes per placed page; `None`: the profile's page size.
    pub page_size: Option<u64>,
    /// For `mixed`: a page above this exclusivity (0..=1, strictly) goes to its main user.
    pub min_exclusivity: f64,
    /// For `weighted-interleave`: weight of each logical node; `None`: by the machine's bandwidths.
    pub weights: Option<Vec<u32>>,
    /// Bytes of pages that each logical node takes; `None`: as much as its memory holds.
    pub capacity: Option<Vec<u64>>,
    /// For `joint`: cache lines a thread has outstanding at once.
    pub in_flight: f64,
    /// Ranks that the launcher starts on each host of a cluster; `None`: as the recorded command says.
    pub ranks_per_host: Option<usize>,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Default for Options {
    /// The defaults of `numaloc plan`.
    fn default() -> Self {
        Self {
            spread: Spread::Auto,
            page_size: None,
            min_exclusivity: 0.90,
            weights: None,
            capacity: None,
            in_flight: 1.0,
            ranks_per_host: None,
            seed: 1,
        }
    }
}
