//! Runs thread and page policies on a profile, so that the verdicts of the analysis can judge their answers.
//!
//! The analysis computes figures and knows no policies: it receives their answers as data.

use std::borrow::Cow;

use numaloc_analysis::characterise::default_layer;
use numaloc_analysis::outlook::{Candidate, Candidates, OfRanks, Recommended, SourceChange, Times};
use numaloc_analysis::remark::{About, Remark};
use numaloc_analysis::verdict::time;
use numaloc_analysis::{Characterisation, NodeAssignment};
use numaloc_model::{Layer, Mapping, Placement, Profile};
use numaloc_placement::PlaceInput;
use numaloc_topology::Topology;

use crate::best_ranks;
use crate::communication::Communication;
use crate::memory;
use crate::observer::Unobserved;
use crate::options::Options;
use crate::plan::PlanRequest;
use crate::registry::{BASELINE, Choice, Open, ThreadPolicy};
use crate::subject::{Scope, Subject};
use crate::worth::{ERROR, Model, TIE, Worth};

/// Thread policies to run, in order of preference: of equally good ones the first is recommended.
const THREADS: [&str; 4] = ["numaloc", "deloc", "balance-load", "numaloc-spread"];
/// Page policies to run.
const PAGES: [&str; 3] = ["locality", "mixed", "interleave"];
/// Maximum number of threads for which each policy is judged by itself and changes of the program are searched, so that
/// `show` stays fast. Beyond it the analysis groups threads by communication itself, and only the plan recommends.
const MOST_THREADS: usize = 256;

/// Maximum number of ranks for which a mapping to hosts is searched here, for the same reason.
const MOST_RANKS: usize = 4096;

/// Every thread on the first PU of its node; `None` where a node has none.
#[must_use]
pub fn on_nodes(machine: &Topology, assignment: &NodeAssignment) -> Option<Mapping> {
    let pu = assignment
        .of_thread
        .iter()
        .map(|node| machine.nodes()[node.index()].pus.first().copied())
        .collect::<Option<_>>()?;
    Some(Mapping { pu })
}

/// What simulations of the run's access trace say of changes of the program.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// The best set, in the order in which it was found.
    pub changes: Vec<SourceChange>,
    /// Seconds without any other node's memory, queue or line.
    pub bound_s: f64,
}

/// Runs the policies, and without `simulated` the search for changes of the program. A policy that fails for this
/// machine is left out.
#[must_use]
pub fn ask(
    profile: &Profile,
    found: &Characterisation,
    machine: &Topology,
    simulated: Option<Simulated>,
) -> Candidates {
    let (mappings, mapped): (Vec<_>, Vec<Mapping>) =
        self::mappings(profile, found, machine).into_iter().unzip();
    let placements = placements(profile, found, machine);
    let is_simulated = simulated.is_some();
    let changes = match simulated {
        Some(found) => Some((found.changes, found.bound_s)),
        None => changes(profile, found, machine),
    };
    let (changes, bound_s) = changes.unzip();
    let changes = changes.unwrap_or_default();
    let plan = recommended(profile, found, machine);
    Candidates {
        memory: remarks(profile, found, machine, (plan.as_ref(), &changes)),
        plan,
        changes,
        is_simulated,
        bound_s,
        times: times(profile, found, machine, &mapped, &placements),
        mappings,
        placements,
    }
}

/// The plan that `numaloc plan` makes, by the same search, if the model of worth applies.
fn recommended(
    profile: &Profile,
    found: &Characterisation,
    machine: &Topology,
) -> Option<Recommended> {
    if machine.hosts().len() > 1 {
        return recommended_ranks(profile, found.layer, machine);
    }
    Model::of(profile, found.layer, machine)?;
    if found.assignment.homes.len() < 2 {
        return None;
    }
    let (choice, options) = (Choice::Best(Open::default()), Options::default());
    let own_layer = found.layer == default_layer(profile);
    let scope = Scope {
        layer: (!own_layer).then_some(found.layer),
        exclude_helpers: false,
    };
    let subject = Subject::new(Cow::Borrowed(profile), &scope).ok()?;
    let request = PlanRequest {
        subject: &subject,
        machine,
        choice: &choice,
        options: &options,
    };
    let ranking = crate::plan::plan(request, &Unobserved).ok()?.ranking()?;
    let (as_it_is, plan) = (&ranking.as_it_is, ranking.plan());
    let remote = |worth: &Worth| worth.remote_lines / worth.lines.max(1.0);
    let chosen = &ranking.candidates[ranking.chosen];
    Some(Recommended {
        threads: chosen.threads.to_owned(),
        pages: chosen.pages.to_owned(),
        as_it_is: as_it_is.seconds,
        with_plan: plan.seconds,
        error: ranking.error(),
        remote: [remote(as_it_is), remote(plan)],
        mostly: as_it_is.gain_by(plan),
        of_ranks: None,
    })
}

/// The mapping of ranks that `numaloc plan` makes, by the same search, if the model of networks applies.
fn recommended_ranks(profile: &Profile, layer: Layer, machine: &Topology) -> Option<Recommended> {
    if profile.threads().len() > MOST_RANKS {
        return None;
    }
    let own_layer = layer == default_layer(profile);
    let scope = Scope {
        layer: (!own_layer).then_some(layer),
        exclude_helpers: false,
    };
    let subject = Subject::new(Cow::Borrowed(profile), &scope).ok()?;
    let options = Options::default();
    let open = Open::default();
    let found = best_ranks::best(&open, &subject, machine, &options, &Unobserved).ok()??;
    let ranking = found.ranking;
    let (as_it_is, plan, gain) = (&ranking.as_it_is, ranking.plan(), ranking.gain());
    let link = as_it_is.busiest.first().map_or_else(String::new, |busy| {
        format!(
            "; the busiest link ({}) carries them for {}",
            busy.name,
            time(busy.seconds)
        )
    });
    Some(Recommended {
        threads: ranking.candidates[ranking.chosen].policy.to_owned(),
        pages: BASELINE.name().to_owned(),
        as_it_is: as_it_is.seconds,
        with_plan: plan.seconds,
        error: ranking.error,
        remote: [as_it_is.between_hosts, plan.between_hosts],
        mostly: "messages between hosts",
        of_ranks: Some(OfRanks {
            what: format!(
                "{:.0} % of the bytes of messages go between hosts{link}",
                100.0 * as_it_is.between_hosts
            ),
            between: [gain.least, gain.most],
            saves: ranking.saves(),
        }),
    })
}

/// Changes of the source that save time, and the seconds below which no placement gets, if the model of worth applies.
fn changes(
    profile: &Profile,
    found: &Characterisation,
    machine: &Topology,
) -> Option<(Vec<SourceChange>, f64)> {
    let model = Model::of(profile, found.layer, machine)?;
    if found.assignment.homes.len() < 2 || profile.threads().len() > MOST_THREADS {
        return None;
    }
    let communication = Communication::found(found);
    let os = crate::threads::left_to_the_system(&communication.input(machine)).ok()?;
    let found = crate::changes::changes(&model, &os.mapping, &[]);
    Some((found.in_words(profile), found.bound_s))
}

/// Remarks about memory that neither the plan nor one of the changes makes up for, if the model of worth applies.
fn remarks(
    profile: &Profile,
    found: &Characterisation,
    machine: &Topology,
    (plan, changes): (Option<&Recommended>, &[SourceChange]),
) -> Vec<Remark> {
    let Some(model) = Model::of(profile, found.layer, machine) else {
        return Vec::new();
    };
    if found.assignment.homes.len() < 2 || profile.threads().len() > MOST_THREADS {
        return Vec::new();
    }
    let communication = Communication::found(found);
    let Ok(os) = crate::threads::left_to_the_system(&communication.input(machine)) else {
        return Vec::new();
    };
    let mut remarks = memory::remarks(&model, &os.mapping, &Options::default());
    if let Some(plan) = plan {
        memory::keep_better(&mut remarks, plan.as_it_is, plan.with_plan);
    }
    let is_changed = |subject: &About| {
        let mut memory = changes.iter().flat_map(|change| &change.memory);
        memory.any(|of| of.object == subject.object)
    };
    remarks.retain(|remark| !remark.subject.as_ref().is_some_and(is_changed));
    remarks
}

/// How long each way takes, if the model of worth applies.
fn times(
    profile: &Profile,
    found: &Characterisation,
    machine: &Topology,
    mapped: &[Mapping],
    placements: &[Candidate<Placement>],
) -> Option<Times> {
    let model = Model::of(profile, found.layer, machine)?;
    let communication = Communication::found(found);
    let os = crate::threads::left_to_the_system(&communication.input(machine)).ok()?;
    let untouched = Placement {
        node: vec![None; profile.pages().pages().len()],
    };
    let first_touch = |mapping: &Mapping| model.seated(mapping).worth(&untouched).seconds;
    let in_order = Mapping::blocks(profile.threads().len(), machine.pus().len());
    let bound = model.seated(&in_order);
    let placed = placements.iter();
    Some(Times {
        error: ERROR,
        tie: TIE,
        as_it_is: model.unbound(&os.mapping).worth(&untouched).seconds,
        apart: model
            .unbound(&os.mapping)
            .without_contention()
            .worth(&untouched)
            .seconds,
        bound: bound.worth(&untouched).seconds,
        mapped: mapped.iter().map(first_touch).collect(),
        placed: placed.map(|way| bound.worth(&way.answer).seconds).collect(),
        transfer_s: model.transfer_s(),
    })
}

/// Nodes of the threads by each policy, and their PUs.
fn mappings(
    profile: &Profile,
    found: &Characterisation,
    machine: &Topology,
) -> Vec<(Candidate<NodeAssignment>, Mapping)> {
    let threads = found.events.threads();
    if threads == 0 || threads > MOST_THREADS || found.events.stored_cells() == 0 {
        return Vec::new();
    }
    // The same input as that of a plan.
    let communication = Communication::found(found);
    let input = communication.input(machine);
    THREADS
        .iter()
        .filter_map(|name| ThreadPolicy::named(name))
        .filter_map(|policy| {
            let mapped = crate::threads::run(policy, &input, profile, &Options::default()).ok()?;
            let pus = mapped.mapping.pu.iter();
            let candidate = Candidate {
                policy: policy.name().to_owned(),
                answer: NodeAssignment {
                    nodes: machine.nodes().len(),
                    homes: machine.nodes_with_pus(),
                    of_thread: pus.map(|&pu| machine.node_of(pu)).collect(),
                },
            };
            Some((candidate, mapped.mapping))
        })
        .collect()
}

fn placements(
    profile: &Profile,
    found: &Characterisation,
    machine: &Topology,
) -> Vec<Candidate<Placement>> {
    let Some(mapping) = on_nodes(machine, &found.assignment) else {
        return Vec::new();
    };
    if found.pages.pages == 0 || found.assignment.homes.len() < 2 {
        return Vec::new();
    }
    let input = PlaceInput::new(profile.pages(), &mapping, machine);
    PAGES
        .iter()
        .filter_map(|name| numaloc_placement::policy(name))
        .filter_map(|policy| {
            let placed = numaloc_placement::place(policy, &input).ok()?;
            Some(Candidate {
                policy: policy.name().to_owned(),
                answer: placed.placement,
            })
        })
        .collect()
}
