//! Page policies on a profile: their input, and how their answers are rated.

use numaloc_model::{Mapping, Placement, Profile};
use numaloc_placement::{PlaceError, PlaceInput, Placed, PlacementPolicy};
use numaloc_topology::Topology;
use numaloc_whatif::change::Speeds;

use crate::accesses::BeyondCaches;
use crate::error::PlanError;
use crate::observer::{Observer, Work};
use crate::options::Options;
use crate::registry::{BASELINE, JOINT};

/// A page policy's answer under one mapping.
#[derive(Clone, Debug)]
pub struct PageAnswer {
    /// The policy's name.
    pub policy: &'static str,
    /// Node of each page of the profile.
    pub placement: Placement,
    /// Pages that did not fit on the node the policy chose.
    pub spilled: u64,
    /// Remarks for the user, a sentence each.
    pub remarks: Vec<String>,
    /// Accesses beyond private caches to pages on another node than the accessing thread's.
    pub remote: u64,
    /// All accesses beyond private caches.
    pub accesses: u64,
}

impl PageAnswer {
    /// Rates a placement under a mapping.
    pub(crate) fn rated(
        policy: &'static str,
        placed: Placed,
        mapping: &Mapping,
        beyond: &BeyondCaches,
    ) -> Self {
        let (remote, accesses) = beyond.remote(mapping, &placed.placement);
        Self {
            policy,
            placement: placed.placement,
            spilled: placed.spilled,
            remarks: placed.diagnostics,
            remote,
            accesses,
        }
    }

    /// The work that the answer took.
    #[must_use]
    pub fn work(&self) -> Work {
        match self.policy {
            JOINT => Work::Joint,
            policy => Work::Pages(policy),
        }
    }
}

/// The input of page policies for a profile with its threads at `mapping`.
pub(crate) fn problem<'a>(
    profile: &'a Profile,
    mapping: &'a Mapping,
    machine: &'a Topology,
    options: &'a Options,
) -> PlaceInput<'a> {
    PlaceInput {
        page_slices: profile.page_slices(),
        slow_loads: profile.slow_loads(),
        page_size: options.page_size.unwrap_or(profile.pages().page_size()),
        seed: options.seed,
        min_exclusivity: options.min_exclusivity,
        weights: options.weights.as_deref(),
        capacity_bytes: options.capacity.as_deref(),
        ..PlaceInput::new(profile.pages(), mapping, machine)
    }
}

/// Largest ratio of two nodes' pages at which weights are even ones: dealing evenly is as good and simpler.
const EVEN: f64 = 1.1;

/// How the pages of objects can be dealt over memory of different speed, for a profile with its threads at `mapping`,
/// and where that puts all pages: none on machines without bandwidths or whose nodes are equally fast.
#[must_use]
pub fn by_speed(
    profile: &Profile,
    mapping: &Mapping,
    machine: &Topology,
) -> Vec<(Speeds, Placement)> {
    let options = Options::default();
    let placed = |speeds: Speeds| {
        let policy = numaloc_placement::policy(speeds.policy())?;
        let placed = place(policy, profile, mapping, machine, &options).ok()?;
        Some((speeds, placed.placement))
    };
    let differs = |(speeds, placement): &(Speeds, Placement)| {
        let mut pages = vec![0_u32; machine.nodes().len()];
        for node in placement.node.iter().flatten() {
            pages[node.index()] += 1;
        }
        let homes = machine.nodes_with_pus();
        let most = pages.iter().max().copied().unwrap_or(0);
        let least = homes.iter().map(|home| pages[home.index()]).min();
        let is_even =
            homes.len() == pages.len() && f64::from(most) <= EVEN * f64::from(least.unwrap_or(0));
        *speeds == Speeds::Tier || !is_even
    };
    Speeds::ALL
        .into_iter()
        .filter_map(placed)
        .filter(differs)
        .collect()
}

/// Runs a page policy on a profile with its threads at `mapping`.
///
/// # Errors
/// [`PlaceError`] if mapping or options do not fit pages and machine.
pub fn place(
    policy: &dyn PlacementPolicy,
    profile: &Profile,
    mapping: &Mapping,
    machine: &Topology,
    options: &Options,
) -> Result<Placed, PlaceError> {
    let beyond;
    let mut input = problem(profile, mapping, machine, options);
    if policy.counts_lines() {
        beyond = BeyondCaches::of(profile, machine);
        input.beyond = Some(beyond.usage());
    }
    numaloc_placement::place(policy, &input)
}

/// Runs the baseline first touch, then page policies in order. Of several, one that this machine does not have what it
/// needs for is left out.
pub(crate) fn place_all(
    policies: &[&'static dyn PlacementPolicy],
    beyond: &BeyondCaches,
    mapping: &Mapping,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Vec<PageAnswer>, PlanError> {
    let baseline: &'static dyn PlacementPolicy = BASELINE;
    let others = policies.iter().copied();
    let is_only = policies.len() == 1;
    let others = others.filter(|policy| {
        let fits = is_only || fits(*policy, beyond, mapping, options);
        policy.name() != baseline.name() && fits
    });
    std::iter::once(baseline)
        .chain(others)
        .map(|policy| place_one(policy, beyond, mapping, options, observer))
        .collect()
}

/// Whether machine and options have what a policy needs.
pub(crate) fn fits(
    policy: &dyn PlacementPolicy,
    beyond: &BeyondCaches,
    mapping: &Mapping,
    options: &Options,
) -> bool {
    let input = problem(beyond.profile, mapping, beyond.machine, options);
    policy.check(&input).is_ok()
}

/// Runs one page policy.
pub(crate) fn place_one(
    policy: &dyn PlacementPolicy,
    beyond: &BeyondCaches,
    mapping: &Mapping,
    options: &Options,
    observer: &dyn Observer,
) -> Result<PageAnswer, PlanError> {
    let mut input = problem(beyond.profile, mapping, beyond.machine, options);
    if policy.counts_lines() {
        input.beyond = Some(beyond.usage());
    }
    let work = Work::Pages(policy.name());
    observer.begin(work);
    let placed = numaloc_placement::place(policy, &input)?;
    observer.end(work);
    Ok(PageAnswer::rated(policy.name(), placed, mapping, beyond))
}

#[cfg(test)]
mod tests {
    use numaloc_topology::resolve;

    use super::*;
    use crate::worth::tests::{Use, table};

    #[test]
    fn pages_are_dealt_by_speed_where_memory_differs_in_speed() {
        let pages = 400;
        let uses = |slice: u32| (0..pages).map(move |page| (slice, page, page % 64, 512));
        let uses: Vec<Use> = (0..3).flat_map(uses).collect();
        let profile = table(64, &uses, false);
        let known = |machine: &str| -> Vec<Speeds> {
            let machine = resolve(machine).unwrap();
            let mapping = Mapping::blocks(64, machine.pus().len());
            let found = by_speed(&profile, &mapping, &machine);
            found.into_iter().map(|(speeds, _)| speeds).collect()
        };
        assert_eq!(known("cxl-2s"), Speeds::ALL);
        // Four equal sockets, and a machine that states no bandwidths.
        assert_eq!(known("skylake-4s"), []);
        assert_eq!(known("numa:2 core:32 pu:1"), []);
    }
}
