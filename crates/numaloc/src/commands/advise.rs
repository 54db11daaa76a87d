//! `numaloc advise`: which line of the program to change, and what that is worth.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use numaloc_analysis::Characterisation;
use numaloc_analysis::contended::{ContendedMemory, contended};
use numaloc_analysis::verdict::{TRANSFER_S, uses_openmp};
use numaloc_formats::access_trace::AccessTrace;
use numaloc_formats::profile::traces;
use numaloc_model::{Mapping, Profile};
use numaloc_plan::candidates::Simulated;
use numaloc_plan::changes::in_words;
use numaloc_plan::pages::{self, by_speed};
use numaloc_plan::registry::{self, Place};
use numaloc_plan::{Options, Scope, Subject, ThreadPolicy};
use numaloc_sim::Parameters;
use numaloc_topology::{Topology, resolve};
use numaloc_whatif::candidates::candidates;
use numaloc_whatif::change::{Change, Speeds};
use numaloc_whatif::facts::Facts;
use numaloc_whatif::parts::{Part, parts};
use numaloc_whatif::search::{Found, WORTHWHILE, search};
use serde_json::json;

use crate::access_trace::{open, tally};
use crate::commands::policies;
use crate::error::CliError;
use crate::setting::{Resolved, SettingArgs};
use crate::simulation::loading::{Traces, each_event};
use crate::simulation::running::Runner;
use crate::simulation::saved::Saved;
use crate::simulation::{self, Target};
use crate::ui::Ui;

mod annotated;
mod modelled;
mod rating;
mod shown;

use rating::{Named, Ratings, Run, Time};

const EXAMPLES: &str = "\
Examples:
  numaloc record --advise -o app.numaloc -- ./app
  numaloc advise app.numaloc --machine purple
  numaloc advise app.numaloc --machine purple --only touch_by_users,replicate
  numaloc advise app.numaloc --machine purple --sarif > advice.sarif

Each change is tried on the recorded run: its trace is rewritten as if the change had been made, and
simulated. The best change is kept and the others are tried again together with it, up to five.
Nothing is proposed that the simulation does not rate faster. A profile without an access trace is
rated by a model, which knows fewer changes and is less sure.";

/// Largest number of records of a trace that the answer of `show` simulates.
const MOST_RECORDS: u64 = 1 << 20;
/// Most bytes of a record, generously.
const MOST_BYTES: u64 = 64;
/// Share by which a predicted ratio of two times may be off: `make table-changes`.
const ERROR: f64 = 0.10;

/// Thread policies that binding is tried with.
const BINDINGS: [&str; 3] = ["scatter", "compact", "numaloc"];

/// Say which lines of the program to change, what to write there, and how many seconds each change saves
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Profile folder written by `numaloc record --advise`
    #[arg(value_name = "PROFILE")]
    profile: PathBuf,
    /// Machine with hardware figures: a described machine, or a .toml machine file; without an access
    /// trace any machine
    #[arg(long, value_name = "MACHINE", default_value = "this")]
    machine: String,
    /// Number of simulations that run in parallel [default: one for each PU of this machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Try only changes of these kinds, separated by commas; needs an access trace
    #[arg(long, value_name = "KIND", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(Change::NAMES))]
    only: Vec<String>,
    /// Print Markdown instead, for a comment of a pull request
    #[arg(long, conflicts_with = "sarif")]
    md: bool,
    /// Print a SARIF 2.1.0 log instead, for annotations at the lines of the source; also with --json
    #[arg(long)]
    sarif: bool,
}

/// All that is shown.
struct Answer {
    profile: Profile,
    path: PathBuf,
    machine: String,
    parts: Vec<Part>,
    memory: Vec<ContendedMemory>,
    /// Names of the thread policies behind [`Change::Bind`].
    bindings: Vec<&'static str>,
    found: Found,
    /// The run as it is, and with the best set.
    times: [Time; 2],
    /// Of the ratio of the two, as a share of the run as it is.
    uncertainty: f64,
    bound: f64,
    has_openmp: bool,
    has_sites: bool,
    basis: Basis,
}

/// What the times come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Basis {
    /// Simulations of the access trace.
    Trace,
    /// The model of worth, because the profile lacks this.
    Model(&'static str),
}

impl Args {
    /// Rates changes, by the trace if the profile has a whole one, and shows the best.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let profile = SettingArgs::read(&self.profile, true)?;
        let answer = match whole(&self.profile)? {
            Ok(traces) => self.simulated(profile, &traces, ui)?,
            Err(lacks) if !self.only.is_empty() => {
                let path = self.profile.display();
                return Err(CliError::usage(format!(
                    "cannot try single changes of {path}: it has {lacks}"
                ))
                .hint("numaloc record --advise records what is needed; or advise without --only"));
            }
            Err(lacks) => modelled::answer(self, profile, lacks)?,
        };
        match (self.md, self.sarif) {
            (true, _) => ui.result(
                || annotated::markdown(&answer),
                || json!({"version": 1, "markdown": annotated::markdown(&answer)}),
            ),
            (_, true) => ui.result(
                || format!("{:#}\n", annotated::sarif(&answer)),
                || annotated::sarif(&answer),
            ),
            _ => ui.result(|| shown::text(&answer), || shown::json(&answer)),
        }
        Ok(0)
    }

    fn simulated(
        &self,
        profile: Profile,
        traces: &[AccessTrace],
        ui: &Ui,
    ) -> Result<Answer, CliError> {
        let target = self.target()?;
        self.check_speeds(&profile, &target.topology)?;
        let of = Traced {
            path: &self.profile,
            profile: &profile,
            traces,
            target: &target,
            jobs: self.jobs,
        };
        let rated = of.rated(ui, |ratings| {
            let is_tried = |change: Change| {
                self.only.is_empty() || self.only.iter().any(|name| name == change.name())
            };
            let (found, times) = searched(ratings, is_tried)?;
            let best = found.sets.last().map_or(&[][..], |set| &set.changes);
            let uncertainty = match best.is_empty() {
                true => 0.0,
                false => ratings.uncertainty(&[], best)?,
            };
            let bound = ratings.bound(best)?;
            Ok((found, times, uncertainty, bound))
        })?;
        let (found, times, uncertainty, bound) = rated.found;
        Ok(Answer {
            times: [times[0], times[times.len() - 1]],
            uncertainty,
            bound,
            bindings: rated.bindings,
            path: self.profile.clone(),
            machine: target.machine.name.clone(),
            has_openmp: uses_openmp(&profile),
            has_sites: !profile.sites().is_empty(),
            found,
            parts: rated.parts,
            memory: rated.memory,
            profile,
            basis: Basis::Trace,
        })
    }

    /// Refuses kinds of changes that need memory of different speed, if the machine has none.
    fn check_speeds(&self, profile: &Profile, machine: &Topology) -> Result<(), CliError> {
        for speeds in Speeds::ALL {
            let name = Change::Deal(0, speeds).name();
            if !self.only.iter().any(|only| only == name) {
                continue;
            }
            let policies = registry::pages(speeds.policy(), Place::Simulation)?;
            let mapping = mapped(&self.profile, profile, machine, ThreadPolicy::Os)?;
            let options = Options::default();
            pages::place(policies[0], profile, &mapping, machine, &options)
                .map_err(|why| CliError::usage(format!("cannot try {name}: {why}")))?;
        }
        Ok(())
    }

    fn path(&self) -> &Path {
        &self.profile
    }

    fn target(&self) -> Result<Target, CliError> {
        let topology = resolve(&self.machine)?;
        let target = Target::new(&self.machine, topology, Parameters::default());
        target.map_err(|error| {
            error.hint("--machine NAME, one of those that `numaloc machines` lists; or `numaloc machines calibrate`")
        })
    }
}

/// The whole access traces of a profile, or what it lacks for simulations of changes, in words.
fn whole(path: &Path) -> Result<Result<Vec<AccessTrace>, &'static str>, CliError> {
    if !traces::are_in(path) {
        return Ok(Err("no access trace"));
    }
    let traces = open(path)?;
    let has_windows = traces.iter().any(|trace| trace.head.windows.is_some());
    Ok(match has_windows {
        true => Err("an access trace of windows only"),
        false => Ok(traces),
    })
}

/// A run with an access trace, on a machine.
struct Traced<'a> {
    path: &'a Path,
    profile: &'a Profile,
    traces: &'a [AccessTrace],
    target: &'a Target,
    jobs: Option<u16>,
}

/// What was found by ratings, and what these were of.
struct Rated<T> {
    found: T,
    parts: Vec<Part>,
    memory: Vec<ContendedMemory>,
    bindings: Vec<&'static str>,
}

impl Traced<'_> {
    /// Loads the trace for `rate`.
    fn rated<T>(
        &self,
        ui: &Ui,
        rate: impl FnOnce(&mut Ratings<'_>) -> Result<T, CliError>,
    ) -> Result<Rated<T>, CliError> {
        let (profile, traces, target) = (self.profile, self.traces, self.target);
        let targets = std::slice::from_ref(target);
        let filter = simulation::filtered(self.path, traces, profile, targets, ui)?;
        let unbound = mapped(self.path, profile, &target.topology, ThreadPolicy::Os)?;
        let mappings = bindings(self.path, profile, target)?;
        let recorded = Traces::load(traces, profile, targets, Vec::new(), ui)?;
        let memory = contended(profile);
        // Pages hold whole lines, otherwise the trace would not have been loaded.
        let line_shift = traces[0].head.line_shift;
        let mut facts = Facts::new(profile.pages().page_size() >> line_shift)
            .with_memory(profile.named_pages())
            .with_contended(&memory);
        each_event(traces, profile, Some(ui), |thread, event| {
            facts.add(thread, &event);
        })?;
        let parts = parts(profile, &facts);
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let (transfer_s, bound_transfer_s) = transfers(profile, target, &mappings);
        let saved = Saved::open(None)?;
        let mut ratings = Ratings {
            of: Run {
                profile,
                traces,
                target,
                facts: &facts,
                parts: &parts,
                memory: &memory,
                mappings: &mappings,
                unbound: &unbound,
                transfer_s,
                bound_transfer_s: &bound_transfer_s,
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
        let found = rate(&mut ratings)?;
        let bindings = mappings.iter().map(|(name, _)| *name).collect();
        Ok(Rated {
            found,
            parts,
            memory,
            bindings,
        })
    }
}

/// Characterises the profile at `path` as `setting` says; what changes of the program are worth is simulated if it has
/// a short access trace.
pub fn characterise(
    setting: &SettingArgs,
    path: &Path,
    profile: &Profile,
    ui: &Ui,
) -> Result<(Characterisation, Resolved), CliError> {
    let reference = setting.reference(profile)?;
    let simulated = match &reference.machine {
        Some(machine) => first_answer(path, profile, machine, ui)?,
        None => None,
    };
    setting.characterised(profile, reference, simulated)
}

/// The changes that `advise` finds, for the answer of `show` and the report; `None` if the trace is too long for that
/// or not whole, or if the machine has no hardware figures.
fn first_answer(
    path: &Path,
    profile: &Profile,
    topology: &Topology,
    ui: &Ui,
) -> Result<Option<Simulated>, CliError> {
    let has_ranks = profile.threads().iter().any(|thread| thread.rank.is_some());
    // Opening traces reads them.
    let is_long = traces::bytes_in(path) > MOST_RECORDS * MOST_BYTES;
    if is_long || topology.hardware().is_none() || has_ranks {
        return Ok(None);
    }
    let Ok(traces) = whole(path)? else {
        return Ok(None);
    };
    if tally(&traces).records > MOST_RECORDS {
        return Ok(None);
    }
    let Ok(target) = Target::new(topology.name(), topology.clone(), Parameters::default()) else {
        return Ok(None);
    };
    let of = Traced {
        path,
        profile,
        traces: &traces,
        target: &target,
        jobs: None,
    };
    let rated = of.rated(ui, |ratings| {
        let (found, _) = searched(ratings, |_| true)?;
        let best = found.sets.last().map_or(&[][..], |set| &set.changes);
        let bound = ratings.bound(best)?;
        Ok((found, bound))
    })?;
    let (found, bound_s) = rated.found;
    Ok(Some(Simulated {
        changes: in_words(
            profile,
            &rated.parts,
            &rated.memory,
            &found,
            (topology.nodes_with_pus().len(), ERROR),
        ),
        bound_s,
    }))
}

/// A thread policy's mapping.
fn mapped(
    path: &Path,
    profile: &Profile,
    topology: &Topology,
    policy: ThreadPolicy,
) -> Result<Mapping, CliError> {
    let failed = |error| policies::failed(path, error);
    let subject = Subject::new(Cow::Borrowed(profile), &Scope::default()).map_err(failed)?;
    let mapped = numaloc_plan::threads::map(policy, &subject, topology, &Options::default());
    mapped.map(|mapped| mapped.mapping).map_err(failed)
}

/// The mappings that threads can be bound by.
fn bindings(path: &Path, profile: &Profile, target: &Target) -> Result<Vec<Named>, CliError> {
    let mut mappings: Vec<Named> = Vec::new();
    for name in BINDINGS {
        for policy in registry::threads(name, Place::Simulation)? {
            let mapping = mapped(path, profile, &target.topology, policy)?;
            if mappings.iter().all(|(_, other)| other.pu != mapping.pu) {
                mappings.push((policy.name(), mapping));
            }
        }
    }
    Ok(mappings)
}

/// The best changes of those that are tried, and the times of the run as it is and under each set that led to them.
fn searched(
    ratings: &mut Ratings<'_>,
    is_tried: impl Fn(Change) -> bool,
) -> Result<(Found, Vec<Time>), CliError> {
    let as_it_is = ratings.times(&[Vec::new()])?.remove(0);
    let (most_s, run_s) = (ratings.of.transfer_s[2], as_it_is.simulated[0]);
    let matters = |one: &ContendedMemory| one.cost_s(most_s, run_s) > WORTHWHILE * run_s;
    let (parts, memory) = (ratings.of.parts, ratings.of.memory);
    ratings.leave_out(memory.iter().filter(|one| matters(one)).collect())?;
    let (bindings, nodes) = (ratings.of.mappings.len(), ratings.of.target.machine.nodes);
    let of = &ratings.of;
    let speeds = by_speed(of.profile, of.unbound, &of.target.topology);
    let speeds: Vec<Speeds> = speeds.into_iter().map(|(speeds, _)| speeds).collect();
    let mut changes = candidates(parts, memory, matters, bindings, (nodes, &speeds));
    changes.retain(|&change| is_tried(change));
    let mut found = search(&changes, |sets| ratings.seconds(sets))?;
    let mut sets = vec![Vec::new()];
    sets.extend(found.sets.iter().map(|set| set.changes.clone()));
    let times = ratings.times(&sets)?;
    for (set, time) in found.sets.iter_mut().zip(&times[1..]) {
        set.seconds = time.seconds();
    }
    Ok((found, times))
}

/// Seconds of a transfer of a line on the machine, least, usual, most: of threads that are not bound, and under each of
/// these mappings.
fn transfers(profile: &Profile, target: &Target, mappings: &[Named]) -> ([f64; 3], Vec<[f64; 3]>) {
    let layer = profile.layers().first().copied();
    let model =
        layer.and_then(|layer| numaloc_plan::worth::Model::of(profile, layer, &target.topology));
    match model {
        None => (TRANSFER_S, vec![TRANSFER_S; mappings.len()]),
        Some(model) => {
            let under = |(_, mapping): &Named| model.transfer_under_s(mapping);
            (model.transfer_s(), mappings.iter().map(under).collect())
        }
    }
}
