//! The final choice: no other policy's answer may be better in all criteria at once.
//!
//! A mapping dominates another if its J, its remote communication and its load deviation are all at most the other's
//! and one of them is less (equal: within 1e-9). The answers of all other policies that are cheap compared with our own
//! search are computed too, and the choice among them and our own mappings follows a rule by which no dominated one can
//! win:
//!
//! - without a load vector the least J, then the least remote communication, then the least deviation of
//!   the nodes' communication;
//! - with one, the least sum of lost locality and remaining imbalance ([`Worth::price`]) among those that lose no more
//!   than is tolerated of J and of remote communication.
//!
//! Extra time: the sum of the other policies' times, at most about that of our own search.

use std::cmp::Ordering;

use numaloc_model::Mapping;

use super::super::{
    balance::{Balance, Load},
    choice_map::ChoiceMap,
    cmlb::Cmlb,
    compact::Compact,
    deloc::DeLoc,
    eager_map::EagerMap,
    mpipp::Mpipp,
    packed::Packed,
    random::Random,
    scatter::Scatter,
    scotch::Scotch,
    scotch::Strategy,
    tree_match::TreeMatch,
};
use crate::evaluate::{cost, deviation, node_loads, remote};
use crate::input::MapInput;
use crate::policy::MappingPolicy;

/// O(tasks) and O(pairs): always computed. The order of creation is the first.
static LINEAR: &[&dyn MappingPolicy] = &[
    &Packed,
    &Compact,
    &Scatter,
    &Random,
    &Balance { by: Load::Memory },
];

/// Up to [`MODERATE_TASKS`] tasks.
static MODERATE: &[&dyn MappingPolicy] = &[
    &TreeMatch,
    &EagerMap,
    &ChoiceMap,
    &DeLoc::PRINTED,
    &DeLoc::BY_RUN,
    &DeLoc::JOINING,
    &Cmlb,
];
const MODERATE_TASKS: usize = 2048;

/// Also beyond that if tasks have few partners; the time is not worthwhile for even larger problems.
static SCOTCH: &[&dyn MappingPolicy] = &[&Scotch {
    strategy: Strategy::Recursive,
}];
const SCOTCH_TASKS: usize = 8192;
const SCOTCH_PARTNERS: usize = 32;

/// Up to [`SLOW_TASKS`] tasks: as slow as our own search at that size, and slower beyond.
static SLOW: &[&dyn MappingPolicy] = &[&Mpipp { starts: 4 }];
const SLOW_TASKS: usize = 32;

/// Relative difference below which two sums count as equal.
const EQUAL: f64 = 1e-9;

/// The criteria for a mapping.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Worth {
    /// J.
    pub cost: f64,
    /// Communication between NUMA nodes.
    pub remote: f64,
    /// Standard deviation of the nodes' loads over their mean.
    pub unlevel: f64,
}

impl Worth {
    pub(super) fn of(input: &MapInput, mapping: &Mapping) -> Self {
        let loads = node_loads(input, mapping);
        let mean = loads.iter().sum::<f64>() / loads.len().max(1) as f64;
        Self {
            cost: cost(input, mapping),
            remote: remote(input, mapping),
            unlevel: match mean > 0.0 {
                true => deviation(&loads) / mean,
                false => 0.0,
            },
        }
    }

    /// Share of J and of remote communication that is lost relative to `than`, the larger of the two.
    pub(super) fn lost(&self, than: &Self) -> f64 {
        let share = |ours: f64, theirs: f64| match compare(ours, theirs) {
            Ordering::Greater if theirs > 0.0 => ours / theirs - 1.0,
            Ordering::Greater => f64::INFINITY,
            _ => 0.0,
        };
        f64::max(share(self.cost, than.cost), share(self.remote, than.remote))
    }

    /// The objective of levelling: a per cent of locality is worth a per cent of the mean load.
    fn price(&self, than: &Self) -> f64 {
        let share = |ours: f64, theirs: f64| match theirs > 0.0 {
            true => ours / theirs,
            false => 1.0,
        };
        0.5 * (share(self.cost, than.cost) + share(self.remote, than.remote)) + self.unlevel
    }

    /// By J, then remote communication, then deviation.
    fn by_locality(&self, other: &Self) -> Ordering {
        compare(self.cost, other.cost)
            .then(compare(self.remote, other.remote))
            .then(compare_shares(self.unlevel, other.unlevel))
    }

    fn dominates(&self, other: &Self) -> bool {
        let sides = [
            compare(self.cost, other.cost),
            compare(self.remote, other.remote),
            compare_shares(self.unlevel, other.unlevel),
        ];
        !sides.contains(&Ordering::Greater) && sides.contains(&Ordering::Less)
    }
}

/// Sums in another order differ in the last digits and count as equal.
fn compare(a: f64, b: f64) -> Ordering {
    match (a - b).abs() <= EQUAL * f64::max(a.abs(), b.abs()) {
        true => Ordering::Equal,
        false => a.total_cmp(&b),
    }
}

/// The same for numbers whose unit is 1.
fn compare_shares(a: f64, b: f64) -> Ordering {
    match (a - b).abs() <= EQUAL {
        true => Ordering::Equal,
        false => a.total_cmp(&b),
    }
}

/// A mapping to choose from.
#[derive(Clone)]
pub(super) struct Candidate {
    /// Which policy found it.
    pub policy: &'static str,
    pub mapping: Mapping,
    pub worth: Worth,
}

impl Candidate {
    pub(super) fn new(policy: &'static str, input: &MapInput, mapping: Mapping) -> Self {
        Self {
            policy,
            worth: Worth::of(input, &mapping),
            mapping,
        }
    }
}

/// The answers of the other policies that are cheap for this many tasks, without those that fail.
pub(super) fn others(input: &MapInput) -> Vec<Candidate> {
    let tasks = input.tasks();
    let of = |policies: &'static [&'static dyn MappingPolicy], limit: usize| match tasks <= limit {
        true => policies,
        false => &[],
    };
    let sparse = input.graph().stored_cells() <= SCOTCH_PARTNERS * tasks;
    let scotch_tasks = if sparse { SCOTCH_TASKS } else { MODERATE_TASKS };
    let all = [
        of(LINEAR, usize::MAX),
        of(MODERATE, MODERATE_TASKS),
        of(SCOTCH, scotch_tasks),
        of(SLOW, SLOW_TASKS),
    ];
    all.into_iter()
        .flatten()
        .filter_map(|policy| {
            let mapped = policy.map(input).ok()?;
            Some(Candidate::new(policy.name(), input, mapped.mapping))
        })
        .collect()
}

/// Index of the best by locality; ties: the first.
pub(super) fn most_local(candidates: &[Candidate]) -> Option<usize> {
    (0..candidates.len()).min_by(|&a, &b| candidates[a].worth.by_locality(&candidates[b].worth))
}

/// Index of the best by levelling price relative to `local`, with a loss of at most `give`; ties: the first.
pub(super) fn most_level(candidates: &[Candidate], local: &Worth, give: f64) -> Option<usize> {
    let within = |&at: &usize| candidates[at].worth.lost(local) <= give + EQUAL;
    let chosen = (0..candidates.len()).filter(within).min_by(|&a, &b| {
        let price = |at: usize| candidates[at].worth.price(local);
        compare_shares(price(a), price(b))
    })?;
    Some(undominated(candidates, chosen))
}

/// `chosen`, or a mapping that dominates it (possible if prices are equal within rounding).
fn undominated(candidates: &[Candidate], mut chosen: usize) -> usize {
    for _ in 0..candidates.len() {
        let better = |at: &usize| candidates[*at].worth.dominates(&candidates[chosen].worth);
        match (0..candidates.len()).find(better) {
            Some(at) => chosen = at,
            None => break,
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(cost: f64, remote: f64, unlevel: f64) -> Candidate {
        Candidate {
            policy: "test",
            mapping: Mapping { pu: Vec::new() },
            worth: Worth {
                cost,
                remote,
                unlevel,
            },
        }
    }

    #[test]
    fn locality_decides_by_cost_then_remote_then_load() {
        let all = [
            candidate(10.0, 5.0, 0.3),
            candidate(10.0 + 1e-10, 4.0, 0.3),
            candidate(10.0, 4.0, 0.2),
            candidate(11.0, 0.0, 0.0),
        ];
        assert_eq!(most_local(&all), Some(2));
        assert_eq!(most_local(&[]), None);
    }

    #[test]
    fn levelling_loses_no_more_than_it_gains() {
        let local = candidate(100.0, 50.0, 0.10);
        // 3 % of J and 1 % of remote communication for 9 points of the load: 2 against 9.
        let level = candidate(103.0, 50.5, 0.01);
        // 4 % and 4 % for 2 points: not worth it.
        let bad = candidate(104.0, 52.0, 0.08);
        // More level, but beyond the limit of 4 %: in J, or in remote communication.
        let far = [candidate(105.0, 50.0, 0.0), candidate(100.0, 53.0, 0.0)];
        let [x, y] = far;
        let all = [local.clone(), bad, level, x, y];
        assert_eq!(most_level(&all, &local.worth, 0.04), Some(2));
        assert_eq!(most_level(&all[..2], &local.worth, 0.04), Some(0));
        assert_eq!(most_level(&all, &local.worth, 0.0), Some(0));
    }

    #[test]
    fn dominated_mappings_never_win() {
        // Equal prices: the first would win, the second is better in everything.
        let all = [
            candidate(100.0, 50.0, 0.1),
            candidate(100.0, 50.0 * (1.0 - 1.5e-9), 0.1),
        ];
        let local = all[0].worth;
        assert_eq!(most_level(&all, &local, 0.04), Some(1));
    }

    #[test]
    fn without_communication_only_loads_count() {
        // No communication: only loads count.
        let all = [candidate(0.0, 0.0, 0.4), candidate(0.0, 0.0, 0.0)];
        assert_eq!(most_level(&all, &all[0].worth, 0.04), Some(1));
    }
}
