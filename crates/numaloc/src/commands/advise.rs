//! `numaloc advise`: which line of the program to change, and what that is worth.

use std::borrow::Cow;
use std::path::PathBuf;

use numaloc_analysis::contended::{ContendedMemory, contended};
use numaloc_analysis::verdict::{TRANSFER_S, uses_openmp};
use numaloc_model::{Mapping, Profile};
use numaloc_plan::registry::{self, Place};
use numaloc_plan::{Options, Scope, Subject, ThreadPolicy};
use numaloc_sim::Parameters;
use numaloc_topology::resolve;
use numaloc_whatif::candidates::candidates;
use numaloc_whatif::facts::Facts;
use numaloc_whatif::parts::{Part, parts};
use numaloc_whatif::search::{Found, WORTHWHILE, search};

use crate::commands::policies;
use crate::error::CliError;
use crate::setting::SettingArgs;
use crate::simulation::loading::{Traces, each_event};
use crate::simulation::running::Runner;
use crate::simulation::saved::Saved;
use crate::simulation::{self, Target};
use crate::ui::Ui;

mod rating;
mod shown;

use rating::{Named, Ratings, Run, Time};

const EXAMPLES: &str = "\
Examples:
  numaloc record --trace -o app.numaloc -- ./app
  numaloc advise app.numaloc --machine purple

Each change is tried on the recorded run: its trace is rewritten as if the change had been made, and
simulated. The best change is kept and the others are tried again together with it, up to five.
Nothing is proposed that the simulation does not rate faster.";

/// Thread policies that binding is tried with.
const BINDINGS: [&str; 2] = ["scatter", "numaloc"];

/// Say which lines of the program to change, what to write there, and how many seconds each change saves
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Profile folder written by `numaloc record --trace`
    #[arg(value_name = "PROFILE")]
    profile: PathBuf,
    /// Machine with hardware figures: a described machine, or a .toml machine file
    #[arg(long, value_name = "MACHINE", default_value = "this")]
    machine: String,
    /// Number of simulations that run in parallel [default: one for each PU of this machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
}

/// All that is shown.
struct Answer {
    profile: Profile,
    path: PathBuf,
    machine: String,
    parts: Vec<Part>,
    memory: Vec<ContendedMemory>,
    /// Names of the thread policies behind [`Change::Bind`](numaloc_whatif::change::Change::Bind).
    bindings: Vec<&'static str>,
    found: Found,
    /// The run as it is, and with the best set.
    times: [Time; 2],
    /// Of the ratio of the two, as a share of the run as it is.
    uncertainty: f64,
    bound: f64,
    has_openmp: bool,
    has_sites: bool,
}

impl Args {
    /// Loads the trace, rates changes, and shows the best.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let target = self.target()?;
        let profile = SettingArgs::read(&self.profile, false)?;
        let targets = [target];
        let (traces, filter) = simulation::recorded(&self.profile, &profile, &targets, ui)?;
        let [target] = targets;
        let head = &traces[0].head;
        if head.windows.is_some() {
            return Err(CliError::tool(
                "the access trace has the requests of windows only, changes of the program need all",
            )
            .hint("numaloc record --trace keeps all"));
        }
        let (unbound, mappings) = self.mappings(&profile, &target)?;
        let recorded = Traces::load(
            &traces,
            &profile,
            std::slice::from_ref(&target),
            Vec::new(),
            ui,
        )?;
        // Pages hold whole lines, otherwise the trace would not have been loaded.
        let mut facts = Facts::new(profile.pages().page_size() >> head.line_shift);
        each_event(&traces, &profile, Some(ui), |thread, event| {
            facts.add(thread, &event);
        })?;
        let parts = parts(&profile, &facts);
        let memory = contended(&profile);
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let saved = Saved::open(None)?;
        let mut ratings = Ratings {
            of: Run {
                profile: &profile,
                traces: &traces,
                target: &target,
                facts: &facts,
                parts: &parts,
                memory: &memory,
                mappings: &mappings,
                unbound: &unbound,
                transfer_s: transfer_s(&profile, &target),
            },
            contended: Vec::new(),
            recorded,
            filter_bytes: filter.bytes,
            runner: Runner {
                workers: self.jobs.map_or(processors, usize::from),
                saved: &saved,
                ui,
            },
        };
        let (found, times) = searched(&mut ratings)?;
        let best = found.sets.last().map_or(&[][..], |set| &set.changes);
        let uncertainty = match best.is_empty() {
            true => 0.0,
            false => ratings.uncertainty(&[], best)?,
        };
        let answer = Answer {
            times: [times[0], times[times.len() - 1]],
            uncertainty,
            bound: ratings.bound(best)?,
            bindings: mappings.iter().map(|(name, _)| *name).collect(),
            path: self.profile.clone(),
            machine: target.machine.name.clone(),
            has_openmp: uses_openmp(&profile),
            has_sites: !profile.sites().is_empty(),
            found,
            parts,
            memory,
            profile,
        };
        ui.result(|| shown::text(&answer), || shown::json(&answer));
        Ok(0)
    }

    fn target(&self) -> Result<Target, CliError> {
        let topology = resolve(&self.machine)?;
        let target = Target::new(&self.machine, topology, Parameters::default());
        target.map_err(|error| {
            error.hint("--machine NAME, one of those that `numaloc machines` lists; or `numaloc machines calibrate`")
        })
    }

    /// Where the operating system is assumed to put threads, and the mappings that threads can be bound by.
    fn mappings(
        &self,
        profile: &Profile,
        target: &Target,
    ) -> Result<(Mapping, Vec<Named>), CliError> {
        let failed = |error| policies::failed(&self.profile, error);
        let subject = Subject::new(Cow::Borrowed(profile), &Scope::default()).map_err(failed)?;
        let options = Options::default();
        let map = |policy: ThreadPolicy| {
            let mapped = numaloc_plan::threads::map(policy, &subject, &target.topology, &options);
            mapped.map(|mapped| mapped.mapping).map_err(failed)
        };
        let unbound = map(ThreadPolicy::Os)?;
        let mut mappings: Vec<Named> = Vec::new();
        for name in BINDINGS {
            for policy in registry::threads(name, Place::Simulation)? {
                let mapping = map(policy)?;
                if mappings.iter().all(|(_, other)| other.pu != mapping.pu) {
                    mappings.push((policy.name(), mapping));
                }
            }
        }
        Ok((unbound, mappings))
    }
}

/// The best changes, and the times of the run as it is and under each set that led to them.
fn searched(ratings: &mut Ratings<'_>) -> Result<(Found, Vec<Time>), CliError> {
    let as_it_is = ratings.times(&[Vec::new()])?.remove(0);
    let (most_s, run_s) = (ratings.of.transfer_s[2], as_it_is.simulated[0]);
    let matters = |one: &ContendedMemory| one.cost_s(most_s, run_s) > WORTHWHILE * run_s;
    let (parts, memory) = (ratings.of.parts, ratings.of.memory);
    ratings.leave_out(memory.iter().filter(|one| matters(one)).collect())?;
    let (bindings, nodes) = (ratings.of.mappings.len(), ratings.of.target.machine.nodes);
    let changes = candidates(parts, memory, matters, bindings, nodes);
    let mut found = search(&changes, |sets| ratings.seconds(sets))?;
    let mut sets = vec![Vec::new()];
    sets.extend(found.sets.iter().map(|set| set.changes.clone()));
    let times = ratings.times(&sets)?;
    for (set, time) in found.sets.iter_mut().zip(&times[1..]) {
        set.seconds = time.seconds();
    }
    Ok((found, times))
}

/// Seconds of a transfer of a line on the machine: least, usual, most.
fn transfer_s(profile: &Profile, target: &Target) -> [f64; 3] {
    let layer = profile.layers().first().copied();
    let model =
        layer.and_then(|layer| numaloc_plan::worth::Model::of(profile, layer, &target.topology));
    model.map_or(TRANSFER_S, |model| model.transfer_s())
}
