//! Thread policies on a profile: how each is run, and how its answer is rated.

use numaloc_analysis::assignment::page_affinity;
use numaloc_mapping::policies::choice_map::ChoiceMap;
use numaloc_mapping::policies::scatter::Scatter;
use numaloc_mapping::{Direction, Evaluation, MapInput, Mapped, Spread};
use numaloc_model::{Mapping, Profile};
use numaloc_topology::Topology;

use crate::communication::Communication;
use crate::error::PlanError;
use crate::observer::{Observer, Work};
use crate::options::Options;
use crate::ranks::layout::launched;
use crate::registry::{JOINT, ThreadPolicy};
use crate::subject::Subject;
use crate::together::{glued, one_host_per_rank};

/// A thread policy's answer, rated by the communication as recorded.
#[derive(Clone, Debug)]
pub struct ThreadAnswer {
    /// The policy's name.
    pub policy: &'static str,
    /// Its mapping.
    pub mapped: Mapped,
    /// Cost and load of the mapping.
    pub value: Evaluation,
    /// On a cluster: the amount of communication between hosts.
    pub between_hosts: Option<f64>,
}

impl ThreadAnswer {
    /// Rates a mapping.
    pub(crate) fn rated(policy: &'static str, mapped: Mapped, input: &MapInput) -> Self {
        Self {
            policy,
            value: numaloc_mapping::evaluate(input, &mapped.mapping),
            between_hosts: numaloc_mapping::between_hosts(input, &mapped.mapping),
            mapped,
        }
    }

    /// The work that the answer took.
    #[must_use]
    pub fn work(&self) -> Work {
        match self.policy {
            JOINT => Work::Joint,
            policy => Work::Threads(policy),
        }
    }
}

/// Runs thread policies, in order. On a cluster, ranks with several threads are kept on one host each.
///
/// # Errors
/// [`PlanError`] of the first policy that fails.
pub(crate) fn map_all(
    policies: &[ThreadPolicy],
    subject: &Subject,
    machine: &Topology,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Vec<ThreadAnswer>, PlanError> {
    let recorded = subject.communication();
    let glued = one_host_per_rank(subject.profile(), machine)
        .then(|| glued(recorded.matrix(), subject.profile()))
        .transpose()?
        .map(|matrix| recorded.with_matrix(matrix));
    let given = problem(glued.as_ref().unwrap_or(recorded), machine, options);
    let rated = match glued {
        Some(_) => problem(recorded, machine, options),
        None => given.clone(),
    };
    policies
        .iter()
        .map(|&policy| {
            let work = Work::Threads(policy.name());
            observer.begin(work);
            let mapped = run(policy, &given, subject.profile(), options)?;
            observer.end(work);
            Ok(ThreadAnswer::rated(policy.name(), mapped, &rated))
        })
        .collect()
}

/// Runs a thread policy on a profile whose threads may be on any host.
///
/// # Errors
/// [`PlanError::NoPageUse`] if `shared-pages` has no pages to go by; [`PlanError::Map`] if a policy fails.
pub fn map(
    policy: ThreadPolicy,
    subject: &Subject,
    machine: &Topology,
    options: &Options,
) -> Result<Mapped, PlanError> {
    let input = problem(subject.communication(), machine, options);
    run(policy, &input, subject.profile(), options)
}

/// The mapping problem with the options of its user.
pub(crate) fn problem<'a>(
    communication: &'a Communication,
    machine: &'a Topology,
    options: &Options,
) -> MapInput<'a> {
    communication
        .input(machine)
        .with_spread(options.spread)
        .with_seed(options.seed)
}

/// Runs a policy on a mapping problem.
pub(crate) fn run(
    policy: ThreadPolicy,
    input: &MapInput,
    profile: &Profile,
    options: &Options,
) -> Result<Mapped, PlanError> {
    match policy {
        ThreadPolicy::Listed(policy) => Ok(numaloc_mapping::map(policy, input)?),
        ThreadPolicy::SharedPages => by_shared_pages(profile, input.topology(), options),
        ThreadPolicy::Os => left_to_the_system(input),
        ThreadPolicy::InOrder => Ok(Mapped::plain(
            Mapping::blocks(input.tasks(), input.topology().pus().len()).pu,
        )),
        ThreadPolicy::Launcher => {
            let (machine, ranks) = (input.topology(), input.tasks());
            let command = &profile.meta().command;
            let launched = launched(command, machine, ranks, options.ranks_per_host);
            Ok(Mapped::plain(launched.mapping(machine, ranks).pu))
        }
        ThreadPolicy::OnePerCore => {
            // Even seats level the load already.
            let spread = input.clone().with_spread(Spread::Spread).with_load(None);
            let numaloc = numaloc_mapping::by_name("numaloc").expect("our own policy");
            Ok(numaloc_mapping::map(numaloc, &spread)?)
        }
    }
}

/// The thread mapping of the data mapping paper (section IV, its reference 12): groups threads that use the same
/// pages, first into pairs, then into pairs of pairs. The weight of two threads is the sum over pages of the smaller
/// of their access counts.
fn by_shared_pages(
    profile: &Profile,
    machine: &Topology,
    options: &Options,
) -> Result<Mapped, PlanError> {
    if profile.pages().pages().is_empty() {
        return Err(PlanError::NoPageUse);
    }
    let common = page_affinity(profile.pages(), profile.threads().len());
    let input = MapInput::directed(&common, Direction::Undirected, machine)
        .with_spread(options.spread)
        .with_seed(options.seed);
    Ok(numaloc_mapping::map(&ChoiceMap, &input)?)
}

/// Where threads are assumed to run if they are not bound: spread over all nodes, as the kernel's load balancing does
/// on an otherwise idle machine.
pub(crate) fn left_to_the_system(input: &MapInput) -> Result<Mapped, PlanError> {
    let mut mapped = numaloc_mapping::map(&Scatter, input)?;
    mapped.remarks.push(
        "threads are left to the operating system; pages are placed as if each thread ran where `scatter` puts it"
            .to_owned(),
    );
    Ok(mapped)
}
