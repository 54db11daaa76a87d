//! `joint`: chooses threads and pages together.
//!
//! Thread policies use communication; page policies use page usage under a given mapping; the best of each need not fit
//! the other. The joint policy rates every given mapping combined with every page policy on one [objective] (remote
//! traffic by distance, busiest controller, busiest link), and improves the best of them alternately: it exchanges
//! threads with the pages fixed, then moves pages with the threads fixed, until neither helps. It returns the best
//! solution by the objective, so it is never worse than any of the combinations it started from.
//!
//! Deterministic. Time: (mappings x page policies) evaluations, then at most [`ROUNDS`] rounds of O(pages x
//! nodes x hops) and at most [`THREAD_WORK`] for thread exchanges. Memory: O(threads x nodes + pages x nodes),
//! 8 bytes per pair of PUs up to 2,048 of them, and, where threads have many partners, per thread and PU up to 64 MiB.

use numaloc_model::{CommMatrix, LogicalNode, Mapping, Placement};

use crate::capacity::{Spill, fit_to_capacity, hottest_first};
use crate::error::PlaceError;
use crate::input::PlaceInput;
use crate::place::{Placed, check};
use crate::policies::POLICIES;
use crate::unplanned::kernels_choice;
use crate::view::View;

mod busy;
mod norm;
pub mod objective;
mod search;
mod waits;

pub use busy::SMT_SLOWDOWN;
pub use objective::{Cost, Objective, Weights};
use search::Search;

/// Rounds of improving threads, then pages.
pub const ROUNDS: usize = 8;
/// Partners of threads visited while exchanges are tried, per combination that is improved; bounds the time for
/// thousands of threads.
pub const THREAD_WORK: u64 = 400_000_000;
/// Number of combinations that are improved, best first.
const STARTS: usize = 2;

/// A thread policy's answer as a starting point of the joint policy.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// Its answer.
    pub mapping: &'a Mapping,
}

/// A combination of a thread and a page policy, and its cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Combination {
    /// Thread policy.
    pub threads: String,
    /// Page policy.
    pub pages: String,
    /// Its value of the objective.
    pub cost: Cost,
}

/// The joint answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Joint {
    /// Threads.
    pub mapping: Mapping,
    /// Pages.
    pub placed: Placed,
    /// Cost of both.
    pub cost: Cost,
    /// All combinations rated, cheapest first.
    pub combinations: Vec<Combination>,
}

/// Chooses threads and pages together. `input.mapping` is ignored in favour of `candidates`; `comm` is in cache lines
/// transferred.
///
/// `progress` is called with a description of each step.
///
/// # Errors
/// [`PlaceError`] if there is no candidate, or one does not fit profile and machine.
pub fn joint(
    input: &PlaceInput,
    comm: &CommMatrix,
    candidates: &[Candidate],
    weights: Weights,
    progress: &dyn Fn(&str),
) -> Result<Joint, PlaceError> {
    let objective = Objective::new(input.topology, comm, weights);
    let mut starts: Vec<Start<'_>> = Vec::new();
    for candidate in candidates {
        if candidate.mapping.pu.len() < comm.threads() {
            return Err(PlaceError::Candidates {
                why: format!(
                    "the mapping of {} has {} threads, the communication matrix {}",
                    candidate.policy,
                    candidate.mapping.pu.len(),
                    comm.threads()
                ),
            });
        }
        progress(&format!("page policies under {}", candidate.policy));
        rate(input, &objective, candidate, &mut starts)?;
    }
    let Some((first, mapping, nodes)) = starts.first() else {
        return Err(PlaceError::Candidates {
            why: "the joint policy needs at least one thread policy's mapping".to_owned(),
        });
    };
    let mut best = (first.cost, mapping.pu.clone(), nodes.clone());
    for (_, mapping, nodes) in starts.iter().take(STARTS) {
        let under = PlaceInput {
            mapping,
            ..input.clone()
        };
        improve(
            progress,
            &View::new(&under),
            &objective,
            &under.capacities(),
            mapping,
            nodes,
            &mut best,
        );
    }
    let (cost, pu, nodes) = best;
    let mapping = Mapping { pu };
    let placed = placed(input, &mapping, &nodes, first, cost);
    Ok(Joint {
        mapping,
        placed,
        cost,
        combinations: starts.into_iter().map(|start| start.0).collect(),
    })
}

/// A combination that may be improved: its thread policy's mapping, and its page policy's placement by merged page.
type Start<'a> = (Combination, &'a Mapping, Vec<Option<LogicalNode>>);

/// Rates every page policy under `candidate` and adds the combinations to `starts`, which stay cheapest first.
fn rate<'a>(
    input: &PlaceInput,
    objective: &Objective,
    candidate: &Candidate<'a>,
    starts: &mut Vec<Start<'a>>,
) -> Result<(), PlaceError> {
    let under = PlaceInput {
        mapping: candidate.mapping,
        ..input.clone()
    };
    check(&under)?;
    let view = View::new(&under);
    let capacity = under.capacities();
    let seated = objective.seated(view.usage(), &candidate.mapping.pu);
    for policy in POLICIES
        .iter()
        .filter(|policy| !policy.counts_lines() && policy.check(&under).is_ok())
    {
        // First touch by the kernel also spills to other nodes.
        let preferred = with_first_touch(policy.preferred_nodes(&view), &view);
        let (nodes, _) = fit_to_capacity(&preferred, &view, &capacity);
        let cost = seated.cost(&nodes);
        let combination = Combination {
            threads: candidate.policy.to_owned(),
            pages: policy.name().to_owned(),
            cost,
        };
        starts.push((combination, candidate.mapping, nodes));
        // Only the cheapest are improved, so the placements of the others need not be kept.
        starts.sort_by(|a, b| a.0.cost.total().total_cmp(&b.0.cost.total()));
        if let Some(rest) = starts.get_mut(STARTS..) {
            rest.iter_mut().for_each(|start| start.2 = Vec::new());
        }
    }
    Ok(())
}

/// The placement `nodes` (by merged page) under `mapping`, page by page; `first` is the combination that it improves,
/// `cost` its own cost.
fn placed(
    input: &PlaceInput,
    mapping: &Mapping,
    nodes: &[Option<LogicalNode>],
    first: &Combination,
    cost: Cost,
) -> Placed {
    let under = PlaceInput {
        mapping,
        ..input.clone()
    };
    let view = View::new(&under);
    // The placement fits already: this only counts spilled pages.
    let (nodes, spill): (_, Spill) = fit_to_capacity(nodes, &view, &under.capacities());
    let placement = Placement {
        node: (0..input.pages.pages().len())
            .map(|page| nodes[view.merged(page)])
            .collect(),
    };
    Placed {
        placement,
        spilled: spill.pages(),
        diagnostics: vec![format!(
            "started from {} + {} ({:.6} s), now {:.6} s: latency {:.6}, controller {:.6}, link {:.6}",
            first.threads,
            first.pages,
            first.cost.total(),
            cost.total(),
            cost.latency_s,
            cost.controller_s,
            cost.link_s
        )],
    }
}

fn improve(
    progress: &dyn Fn(&str),
    view: &View,
    objective: &Objective,
    capacity: &[u64],
    mapping: &Mapping,
    nodes: &[Option<LogicalNode>],
    best: &mut (
        Cost,
        Vec<numaloc_model::LogicalPu>,
        Vec<Option<LogicalNode>>,
    ),
) {
    let order = hottest_first(view);
    let mut search = Search::new(objective, view.usage(), capacity, &mapping.pu, nodes);
    let mut work = THREAD_WORK;
    for round in 1..=ROUNDS {
        progress(&format!("joint, round {round} of at most {ROUNDS}"));
        let pages = search.improve_pages(&order, view.candidates());
        let threads = search.improve_threads(&mut work);
        let cost = objective.cost(view.usage(), search.pu(), search.node());
        if cost.total() < best.0.total() {
            *best = (cost, search.pu().to_vec(), search.node().to_vec());
        }
        if !pages && !threads {
            break;
        }
    }
}

/// Fills in pages that a policy leaves to the kernel, at their first toucher's node.
fn with_first_touch(mut nodes: Vec<Option<LogicalNode>>, view: &View) -> Vec<Option<LogicalNode>> {
    for (node, page) in nodes.iter_mut().zip(view.usage().pages()) {
        let toucher = page.first_touch.map(|thread| view.node_of(thread));
        *node = node.or_else(|| kernels_choice(view.topology(), page, toucher));
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{machine, mapping, usage};
    use numaloc_model::LogicalPu;
    use proptest::prelude::*;

    #[test]
    fn threads_follow_their_pages_and_pages_their_threads() {
        // Two nodes with two PUs each. Threads 0 and 2 share pages 0 and 1, threads 1 and 3 pages 2 and
        // 3, and they communicate accordingly. The only mapping offered is 0,1 | 2,3: every page policy
        // leaves half of all accesses remote. Exchanging threads 1 and 2 makes all local, one page
        // pair on each node: no remote traffic and equal controllers is the optimum.
        let topology = numaloc_topology::resolve("numa:2 core:2 pu:1").unwrap();
        let comm = CommMatrix::from_cells(4, [(0, 2, 50.0), (1, 3, 50.0)]).unwrap();
        let pages = usage(&[
            &[(0, 500), (2, 500)],
            &[(2, 500), (0, 500)],
            &[(1, 500), (3, 500)],
            &[(3, 500), (1, 500)],
        ]);
        let offered = mapping(&[0, 1, 2, 3]);
        let input = PlaceInput::new(&pages, &offered, &topology);
        let candidates = [Candidate {
            policy: "packed",
            mapping: &offered,
        }];
        let weights = Weights::of(&topology);
        let answer = joint(&input, &comm, &candidates, weights, &|_| ()).unwrap();
        let home = |t: usize| topology.node_of(answer.mapping.pu[t]);
        assert_eq!((home(0), home(1)), (home(2), home(3)));
        assert_ne!(home(0), home(1));
        let nodes: Vec<_> = answer
            .placed
            .placement
            .node
            .iter()
            .map(|n| n.unwrap())
            .collect();
        assert_eq!(nodes, [home(0), home(0), home(1), home(1)]);
        assert!(answer.cost.total() < answer.combinations[0].cost.total());
        assert_eq!(answer.cost.link_s, 0.0);
    }

    #[test]
    fn pages_move_away_from_an_overloaded_node() {
        // One thread per node, all pages used by node 0's thread alone: locality puts all 8 pages on node
        // 0. With a controller that is slow against the latency, spreading them is cheaper.
        let topology = machine(4);
        let comm = CommMatrix::empty(4);
        let row: &[(u32, u64)] = &[(0, 1000)];
        let pages = usage(&[row; 8]);
        let offered = mapping(&[0, 1, 2, 3]);
        let input = PlaceInput::new(&pages, &offered, &topology);
        let candidates = [Candidate {
            policy: "packed",
            mapping: &offered,
        }];
        let weights = Weights {
            controller_bytes_per_s: 1e6,
            link_bytes_per_s: 1e9,
            ..Weights::default()
        };
        let answer = joint(&input, &comm, &candidates, weights, &|_| ()).unwrap();
        let mut load = [0; 4];
        for node in answer.placed.placement.node.iter().flatten() {
            load[node.index()] += 1;
        }
        assert_eq!(load, [2, 2, 2, 2]);
    }

    #[test]
    fn streams_spread_a_hot_array_and_dependent_loads_do_not() {
        // Two nodes; 100 pages with 600 accesses by thread 0 and 400 by thread 1, so P = 1 / (0.36 + 0.16) = 1.92.
        // Seconds per access: all pages on node 0: latency (0.6 x 1 + 0.4 x 2) / P = 0.73, controller 1 / 20 = 0.05.
        // Half on each: latency (1.4 + 0.6 x 2 + 0.4 x 1) / 2 / P = 0.78, controller 0.025. Links are free. One line
        // in flight: 0.78 against 0.81. Ten: 0.12 against 0.10.
        let topology = machine(2);
        let comm = CommMatrix::empty(2);
        let row: &[(u32, u64)] = &[(0, 600), (1, 400)];
        let pages = usage(&[row; 100]);
        let offered = mapping(&[0, 1]);
        let input = PlaceInput::new(&pages, &offered, &topology);
        let candidates = [Candidate {
            policy: "packed",
            mapping: &offered,
        }];
        let on_fuller = |in_flight| {
            let weights = Weights {
                memory_share: 1.0,
                line_bytes: 1.0,
                local_latency_s: 1.0,
                in_flight,
                controller_bytes_per_s: 20.0,
                link_bytes_per_s: 1e9,
            };
            let answer = joint(&input, &comm, &candidates, weights, &|_| ()).unwrap();
            let nodes = answer.placed.placement.node.iter().flatten();
            let first = nodes.filter(|node| node.index() == 0).count();
            first.max(100 - first)
        };
        assert_eq!(on_fuller(1.0), 100);
        assert_eq!(on_fuller(10.0), 50);
    }

    #[test]
    fn a_missing_mapping_is_refused() {
        let (topology, none) = (machine(2), mapping(&[]));
        let pages = usage(&[]);
        let input = PlaceInput::new(&pages, &none, &topology);
        let error = joint(
            &input,
            &CommMatrix::empty(0),
            &[],
            Weights::default(),
            &|_| (),
        )
        .unwrap_err();
        assert!(error.to_string().contains("at least one"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn never_worse_than_any_combination(
            cells in prop::collection::vec((0_usize..6, 0_usize..6, 1_u32..100), 0..20),
            table in prop::collection::vec(prop::collection::vec((0_u32..6, 1_u64..2000), 1..4), 1..40),
            shuffle in 0_u32..6,
            room in 3_u64..40,
        ) {
            let topology = numaloc_topology::resolve("numa:3 core:2 pu:1").unwrap();
            let cells = cells.into_iter().filter(|(a, b, _)| a != b).map(|(a, b, w)| (a, b, f64::from(w)));
            let comm = CommMatrix::from_cells(6, cells).unwrap();
            let rows: Vec<&[(u32, u64)]> = table.iter().map(|row| &row[..]).collect();
            let pages = usage(&rows);
            let packed = mapping(&[0, 1, 2, 3, 4, 5]);
            let other = Mapping { pu: (0..6).map(|t| LogicalPu((t * 5 + shuffle) % 6)).collect() };
            let capacity = [room, 40, 40];
            let mut input = PlaceInput::new(&pages, &packed, &topology);
            input.capacity = Some(&capacity);
            let candidates = [
                Candidate { policy: "packed", mapping: &packed },
                Candidate { policy: "other", mapping: &other },
            ];
            let answer = joint(&input, &comm, &candidates, Weights::default(), &|_| ()).unwrap();
            // Rated from scratch, against every combination placed through the public interface.
            let objective = Objective::new(&topology, &comm, Weights::default());
            let own = objective.cost(&pages, &answer.mapping.pu, &answer.placed.placement.node).total();
            for candidate in candidates {
                let under = PlaceInput { mapping: candidate.mapping, ..input.clone() };
                for policy in POLICIES.iter().filter(|policy| policy.check(&under).is_ok()) {
                    let placed = crate::place(*policy, &under).unwrap();
                    let nodes = placed.expected(&under);
                    let on_first = nodes.iter().filter(|n| **n == Some(LogicalNode(0))).count();
                    if on_first as u64 > room {
                        // First touch ignoring capacity is infeasible here.
                        continue;
                    }
                    let cost = objective.cost(&pages, &candidate.mapping.pu, &nodes);
                    prop_assert!(own <= cost.total() * (1.0 + 1e-12), "{} {}", candidate.policy, policy.name());
                }
            }
            // One thread per PU, and no node above its capacity.
            let mut pus: Vec<_> = answer.mapping.pu.clone();
            pus.sort();
            pus.dedup();
            prop_assert_eq!(pus.len(), 6);
            let on_first = answer.placed.placement.node.iter().filter(|n| **n == Some(LogicalNode(0))).count();
            prop_assert!(on_first as u64 <= room);
        }
    }
}
