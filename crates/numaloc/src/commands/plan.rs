//! `numaloc plan`: from a profile and a machine to a plan.

use std::borrow::Cow;
use std::path::PathBuf;

use numaloc_analysis::remark::Remark;
use numaloc_analysis::verdict::time;
use numaloc_files::FileOutput;
use numaloc_formats::profile::{Parts, read_parts};
use numaloc_mapping::Spread;
use numaloc_model::plan::{PhasePlan, Plan};
use numaloc_model::{Layer, Profile};
use numaloc_mpi::RankMap;
use numaloc_network::Fabric;
use numaloc_placement::Assembled;
use numaloc_plan::registry::{ALL, Place};
use numaloc_plan::{
    Choice, Dynamic, Options, PlanRequest, Planned, RankRanking, Ranking, Scope, Subject, Unplanned,
};
use numaloc_topology::{Topology, resolve};

use crate::commands::policies;
use crate::error::CliError;
use crate::ui::Ui;

mod by_role;
mod choose;
mod dynamic;
mod progress;
mod shown;
mod shown_choice;
mod shown_ranks;

use progress::{Times, Watch};

/// The page policy that `--weights` is for.
const WEIGHTED: &str = "weighted-interleave";

const EXAMPLES: &str = "\
Examples:
  numaloc plan app.numaloc -o plan.json
  numaloc plan app.numaloc --machine \"numa:4 l3:1 core:8 pu:2\" --threads all
  numaloc plan app.numaloc --machine epyc-7501 --threads deloc --pages mixed -o plan.json
  numaloc plan app.numaloc --threads joint -o plan.json
  numaloc plan app.numaloc --machine cxl-2s --pages weighted-interleave --weights 7,1,7,1
  numaloc plan app.numaloc --machine cxl-2s --pages tier --capacity 4M,1G,4M,1G
  numaloc plan app.numaloc --dynamic -o plan.json
  numaloc plan app.numaloc --machine purple --choose simulated -o plan.json
  numaloc plan ranks.numaloc --machine cluster.toml -o plan.json
  numaloc plan ranks.numaloc --machine cluster.toml --network interconnect=10gbe --ranks-per-host 16
  numaloc plan app.numaloc --by-role -o plan.json
  numaloc plan app.numaloc --machine numa4x4 --by-role --role \"main thread=0\"

--by-role is for servers, whose threads and processes come and go: it names them by what they are
called, by their code and by their creator. --role and --segment decide about some of them.
Without --threads and --pages, the plan is the fastest of many by the model of worth; if none beats
the program as it is by more than the model's error, the plan leaves threads and pages as they are.
For ranks on a cluster, seconds are those of the model of networks, and as it is means the launcher's
layout: consecutive ranks fill one host after the other.
Without -o, `plan` prints the comparison and writes nothing. `--threads all` and `--pages all`
compare policies; a plan needs one policy of each kind, or --choose.";

/// Decide where the threads and pages of a recorded program should live
#[derive(clap::Args)]
#[command(after_help = policies::help(EXAMPLES, Place::Profile))]
pub struct Args {
    /// Profile folder written by `numaloc record`
    #[arg(value_name = "PROFILE")]
    profile: PathBuf,
    /// Machine to plan for: `this`, an hwloc XML file, a .toml machine file, a described machine or a
    /// synthetic string
    #[arg(long, value_name = "MACHINE", default_value = "this")]
    machine: String,
    /// Thread policy, `joint` (decides threads and pages together), `shared-pages` (groups threads that
    /// use the same pages), `os` (leaves threads to the operating system), or `all`; with --choose, several
    /// [default: the best by the model of worth]
    #[arg(long, value_name = "POLICY")]
    threads: Option<String>,
    /// Page policy, `joint` (decides threads and pages together), or `all`; with --choose, several
    /// [default: the best by the model of worth]
    #[arg(long, value_name = "POLICY")]
    pages: Option<String>,
    /// Make a plan by each combination of policies and choose one by its simulated time on --machine. The profile
    /// needs an access trace, the machine hardware figures
    #[arg(long, value_name = "HOW", conflicts_with = "dynamic")]
    choose: Option<How>,
    /// Plan file to write; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the plan for another launcher instead: omp-places, gomp, kmp, likwid-pin, hwloc-bind,
    /// taskset, numactl, systemd, cgroup, docker, kubernetes, jvm, memkind or sysfs-weights (what the
    /// launcher cannot express is reported on stderr)
    #[arg(long, value_name = "TARGET")]
    export: Option<String>,
    /// Replace an existing plan; includes --anyway
    #[arg(long)]
    force: bool,
    /// Write a plan that is slower than the program as it is by the model of worth
    #[arg(long)]
    anyway: bool,
    /// Communication layer to map by, or `sent`: messages and collectives together, in bytes (default:
    /// sent for MPI ranks, write_read for threads; for ranks recorded with their threads all layers
    /// together, in cache lines)
    #[arg(long, value_name = "LAYER", value_parser = super::layer)]
    layer: Option<Layer>,
    /// Distance per branching level of the machine, root first, for example 10,2,1
    #[arg(long, value_name = "D,D,...", value_delimiter = ',')]
    distances: Vec<f64>,
    /// Leave run-time helper threads (label `runtime helper`: collectors, compilers, progress threads)
    /// out of the plan and count their work for their creators. Always on for ranks recorded with their
    /// threads
    #[arg(long)]
    exclude_helpers: bool,
    /// If there are fewer threads than PUs, spread them over the whole machine
    #[arg(long, conflicts_with = "compact")]
    spread: bool,
    /// If there are fewer threads than PUs, fill as few nodes as possible
    #[arg(long)]
    compact: bool,
    /// Bytes per placed page: 4K, 64K, 2M or 1G (default: the profile's page size)
    #[arg(long, value_name = "SIZE", value_parser = crate::size::byte_size)]
    page_size: Option<u64>,
    /// `mixed`: pages with a higher exclusivity go to their main user's node
    #[arg(long, value_name = "0..1", default_value_t = Options::default().min_exclusivity)]
    min_exclusivity: f64,
    /// `weighted-interleave`: weight of each node, in logical order, for example 3,1 (default: by the
    /// bandwidths of the machine)
    #[arg(
        long,
        value_name = "N,N,...",
        value_delimiter = ',',
        requires = "pages"
    )]
    weights: Option<Vec<u32>>,
    /// Memory that pages may take on each node, in logical order, for example 16G,64G (default: all of the
    /// node's memory)
    #[arg(long, value_name = "SIZE,SIZE,...", value_delimiter = ',', value_parser = crate::size::byte_size)]
    capacity: Option<Vec<u64>>,
    /// `joint`: cache lines a thread has outstanding at once: 1 for dependent loads, about 10 for
    /// prefetched streams. The larger the number, the more the load of controllers and links counts
    /// against latency
    #[arg(long, value_name = "LINES", default_value_t = Options::default().in_flight, value_parser = lines_in_flight)]
    in_flight: f64,
    /// Ranks on a cluster: figures of its links that replace those of the cluster file, for example
    /// interconnect=10gbe,latency_ns=30000
    #[arg(long, value_name = "NAME=VALUE,...", value_delimiter = ',')]
    network: Vec<String>,
    /// Ranks on a cluster: how many the launcher starts on a host before it fills the next [default: as the
    /// recorded command says, else the cores of a host]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks_per_host: Option<u32>,
    /// Seed of all random choices
    #[arg(long, default_value_t = Options::default().seed)]
    seed: u64,
    #[command(flatten)]
    later: dynamic::Later,
    #[command(flatten)]
    roles: by_role::Roles,
}

/// Values of `--choose`.
#[derive(Clone, Copy, clap::ValueEnum)]
enum How {
    /// By simulated time; of plans that do not differ from the fastest, the simplest
    Simulated,
}

fn lines_in_flight(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(lines) if (1.0..=1000.0).contains(&lines) => Ok(lines),
        _ => Err("expected a number from 1 to 1000".to_owned()),
    }
}

/// All results of `plan`, for display.
struct Answer<'a> {
    planned: Planned<'a>,
    times: Times,
    /// Results without a plan: unbound threads, and bound ones.
    unplanned: Unplanned,
    /// What the plan and its competitors are worth; `None` if the model does not apply.
    ranking: Option<Ranking>,
    /// The same of ranks on a cluster.
    ranks: Option<RankRanking>,
    /// Advice about memory.
    notes: Vec<Remark>,
    written: Option<(PathBuf, Assembled)>,
    /// The later moves, and the plan's schedule.
    dynamic: Option<(Dynamic, Vec<PhasePlan>)>,
    /// Whether threads do the same work in another run, as JSON.
    repeatability: serde_json::Value,
}

impl Args {
    /// Fails if figures of links are given where no model needs them.
    fn check_network(
        &self,
        ranks: Option<&RankRanking>,
        machine: &Topology,
        subject: &Subject,
    ) -> Result<(), CliError> {
        match ranks.is_some() || self.network.is_empty() {
            true => Ok(()),
            false => Err(no_network(machine, subject)),
        }
    }

    /// Fails if weights are given for policies that have none.
    fn check_weights(&self) -> Result<(), CliError> {
        let mut named = self.pages.iter().flat_map(|names| names.split(','));
        let is_used = named.any(|name| [WEIGHTED, ALL].contains(&name));
        match self.weights.is_none() || is_used {
            true => Ok(()),
            false => Err(CliError::usage("--weights is for another page policy")
                .expected(format!("--pages {WEIGHTED} with --weights"))),
        }
    }

    /// Maps, places, compares, and writes the plan if asked to.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        self.check_weights()?;
        if let Some(How::Simulated) = self.choose {
            return self.choose(ui);
        }
        if self.roles.by_role {
            return self.by_role(ui);
        }
        self.by_policies(ui)
    }

    /// A plan for single threads and pages, or for ranks.
    fn by_policies(&self, ui: &Ui) -> Result<u8, CliError> {
        let choice = self.choice()?;
        let output = self
            .output
            .as_deref()
            .map(|path| ui.output(path, self.force))
            .transpose()?;
        let machine = self.machine()?;
        // The model of worth goes by slices.
        let profile = read_parts(&self.profile, Parts { page_slices: true })?;
        self.remark(&profile, ui);
        let repeatability = numaloc_report::json::repeatability(&profile);
        let failed = |error| policies::failed(&self.profile, error);
        let scope = Scope {
            layer: self.layer,
            exclude_helpers: self.exclude_helpers,
        };
        let subject = Subject::new(Cow::Owned(profile), &scope).map_err(failed)?;
        let options = self.options();
        let request = PlanRequest {
            subject: &subject,
            machine: &machine,
            choice: &choice,
            options: &options,
        };
        let watch = Watch::new(ui);
        let planned = numaloc_plan::plan(request, &watch).map_err(failed)?;
        let times = watch.times();
        let ranking = planned.ranking();
        let ranks = planned.rank_ranking();
        self.check_network(ranks.as_ref(), &machine, &subject)?;
        if output.is_some() || self.export.is_some() {
            self.refuse_a_loss(ranking.as_ref(), ranks.as_ref(), ui)?;
        }
        let dynamic = match self.later.dynamic {
            true => Some(numaloc_plan::dynamic(&planned, &self.later.dynamics()).map_err(failed)?),
            false => None,
        };
        let assemble = || match &dynamic {
            Some(dynamic) => dynamic.assemble(&planned),
            None => planned.assemble(),
        };
        let written = match &output {
            None => None,
            Some(output) => {
                let assembled = assemble();
                write(&planned, &assembled, output)?;
                Some((output.path().to_owned(), assembled))
            }
        };
        if let Some(name) = &self.export {
            let assembled = match written {
                Some((_, assembled)) => assembled,
                None => assemble(),
            };
            return export(&assembled.plan, name, ui);
        }
        let schedule = match (&dynamic, &written) {
            (None, _) => Vec::new(),
            (_, Some((_, assembled))) => assembled.plan.schedule.clone(),
            (Some(_), None) => assemble().plan.schedule,
        };
        let answer = Answer {
            dynamic: dynamic.map(|dynamic| (dynamic, schedule)),
            unplanned: planned.unplanned(),
            notes: numaloc_plan::memory::notes(&planned),
            ranking,
            ranks,
            planned,
            times,
            written,
            repeatability,
        };
        if !output.is_some_and(|output| output.is_stdout()) {
            ui.result(|| shown::text(&answer), || shown::json(&answer));
        }
        Ok(0)
    }

    /// The policies that were named; what is open is chosen by the model of worth. Later moves need policies for
    /// threads and pages.
    fn choice(&self) -> Result<Choice, CliError> {
        let (threads, pages) = (self.threads.as_deref(), self.pages.as_deref());
        let choice = match self.later.dynamic {
            true => Choice::new(threads.unwrap_or("numaloc"), pages.unwrap_or("locality"))?,
            false => Choice::open(threads, pages)?,
        };
        if self.output.is_some() && !choice.is_one_plan() {
            return Err(CliError::usage("cannot write a plan for `all` policies")
                .expected("one policy each for --threads and --pages with -o")
                .hint("choose from the comparison: numaloc plan ... --threads all, without -o"));
        }
        Ok(choice)
    }

    /// Fails if the plan takes longer than the program as it is; says so if it is written anyway.
    fn refuse_a_loss(
        &self,
        ranking: Option<&Ranking>,
        ranks: Option<&RankRanking>,
        ui: &Ui,
    ) -> Result<(), CliError> {
        let of_threads = ranking.filter(|ranking| ranking.loses());
        let of_threads = of_threads.map(|ranking| {
            let [now, then] = [&ranking.as_it_is, ranking.plan()].map(|worth| worth.seconds);
            (now, then, "worth")
        });
        let of_ranks = ranks.filter(|ranking| ranking.loses());
        let of_ranks = of_ranks.map(|ranking| {
            let [now, then] = [&ranking.as_it_is, ranking.plan()].map(|worth| worth.seconds);
            (now, then, "networks")
        });
        let Some((now, then, model)) = of_threads.or(of_ranks) else {
            return Ok(());
        };
        // Later moves are not in the model.
        if self.later.dynamic {
            return Ok(());
        }
        let error = format!(
            "the plan is slower than no plan: {} as it is, {} with it, by the model of {model}",
            time(now),
            time(then),
        );
        if self.anyway || self.force {
            ui.remark(error);
            return Ok(());
        }
        Err(CliError::tool(error)
            .hint("without --threads and --pages, plan takes the best; --anyway writes this one"))
    }

    /// Chooses a plan by simulated times, and writes it if asked to.
    fn choose(&self, ui: &Ui) -> Result<u8, CliError> {
        let output = self
            .output
            .as_deref()
            .map(|path| ui.output(path, self.force))
            .transpose()?;
        let chosen = choose::choose(self, ui)?;
        let plan = &chosen.candidates[chosen.at].assembled.plan;
        if let Some(output) = &output {
            output.write(numaloc_formats::plan::to_json(plan).as_bytes())?;
        }
        if let Some(name) = &self.export {
            return export(plan, name, ui);
        }
        let written = output.as_ref().map(FileOutput::path);
        if !output.as_ref().is_some_and(FileOutput::is_stdout) {
            ui.result(
                || shown_choice::text(&chosen, written),
                || shown_choice::json(&chosen, written),
            );
        }
        Ok(0)
    }

    /// Remarks on the profile: whether another run does the same, and how its layers are united.
    fn remark(&self, profile: &Profile, ui: &Ui) {
        for line in [
            numaloc_report::repeatability::sentence(profile),
            numaloc_report::repeatability::advice(profile).map(|advice| format!("try: {advice}")),
        ]
        .into_iter()
        .flatten()
        {
            ui.remark(line);
        }
        if numaloc_analysis::roles::come_and_go(profile) {
            ui.remark(
                "processes of one role come and go: this plan names them by the order of their creation; --by-role holds for any number",
            );
        }
        if numaloc_analysis::hybrid::is_hybrid(profile) && self.layer.is_none() {
            ui.remark(
                "ranks with threads: messages are counted in cache lines and added to the lines that threads share",
            );
        }
    }

    fn machine(&self) -> Result<Topology, CliError> {
        let mut machine = resolve(&self.machine)?;
        if !self.network.is_empty() {
            let mut links = machine.links().clone();
            for setting in &self.network {
                let set = links.set(setting);
                set.map_err(|why| CliError::usage(format!("cannot use --network: {why}")))?;
            }
            machine = machine.with_links(links);
        }
        if self.distances.is_empty() {
            return Ok(machine);
        }
        machine
            .with_level_distances(&self.distances)
            .map_err(|why| CliError::usage(format!("cannot use --distances: {why}")))
    }

    fn options(&self) -> Options {
        Options {
            spread: match (self.spread, self.compact) {
                (true, _) => Spread::Spread,
                (_, true) => Spread::Compact,
                _ => Spread::Auto,
            },
            page_size: self.page_size,
            min_exclusivity: self.min_exclusivity,
            weights: self.weights.clone(),
            capacity: self.capacity.clone(),
            in_flight: self.in_flight,
            ranks_per_host: self.ranks_per_host.map(|ranks| ranks as usize),
            seed: self.seed,
        }
    }
}

/// Why the figures of `--network` have no use.
fn no_network(machine: &Topology, subject: &Subject) -> CliError {
    let why = match Fabric::of(machine) {
        Err(why) => why.to_string(),
        Ok(_) if subject.is_hybrid() => {
            "ranks recorded with their threads have no model of networks".to_owned()
        }
        Ok(_) => "the profile has no messages of ranks".to_owned(),
    };
    CliError::usage(format!("cannot use --network: {why}"))
}

/// Writes the plan into `output`.
fn write(planned: &Planned, assembled: &Assembled, output: &FileOutput) -> Result<(), CliError> {
    let request = planned.request();
    if request.subject.is_hybrid() {
        // All threads of a rank must be on one host.
        RankMap::from_plan(&assembled.plan, request.machine).map_err(CliError::tool)?;
    }
    output.write(numaloc_formats::plan::to_json(&assembled.plan).as_bytes())?;
    Ok(())
}

/// Prints a plan in the format of another launcher.
fn export(plan: &Plan, name: &str, ui: &Ui) -> Result<u8, CliError> {
    let known = || {
        numaloc_apply::export::TARGETS
            .iter()
            .map(|target| target.name())
    };
    let Some(target) = numaloc_apply::export::target(name) else {
        let names: Vec<&str> = known().collect();
        let error = CliError::usage(format!("unknown export target {name:?}"))
            .expected(format!("one of: {}", names.join(", ")));
        return Err(match crate::error::did_you_mean(name, known()) {
            Some(near) => error.hint(near),
            None => error,
        });
    };
    let exported = numaloc_apply::export::export(plan, target).map_err(CliError::tool)?;
    for warning in &exported.warnings {
        ui.remark(warning);
    }
    ui.result(
        || exported.text.clone(),
        || {
            serde_json::json!({
                "version": 1,
                "target": target.name(),
                "text": exported.text,
                "warnings": exported.warnings,
            })
        },
    );
    Ok(0)
}
