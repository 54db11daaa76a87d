//! `numaloc plan`: from a profile and a machine to a plan.

use std::path::PathBuf;
use std::time::Instant;

use numaloc_analysis::assignment::page_affinity;
use numaloc_analysis::characterise::default_layer;
use numaloc_analysis::load::load_to_level;
use numaloc_analysis::{LoadVector, concurrency_groups};
use numaloc_formats::profile::{Parts, read_parts};
use numaloc_mapping::{Direction, Evaluation, MapInput, Mapped, MappingPolicy, Spread};
use numaloc_model::plan::{Plan, Predicted, Provenance};
use numaloc_model::profile::Amount;
use numaloc_model::{CommError, CommMatrix, Layer, Mapping, Placement, Profile, TaskGroup};
use numaloc_mpi::RankMap;
use numaloc_placement::{Assembled, PlaceInput};
use numaloc_topology::{ObjectKind, Topology, resolve};

use crate::commands::policies::{self, JOINT, ThreadPolicy};
use crate::error::CliError;
use crate::ui::Ui;

mod joint;
mod pinned;
mod progress;
mod shown;

use progress::Progress;

/// Decide where the threads and pages of a recorded program should live
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc plan app.numaloc -o plan.json
  numaloc plan app.numaloc --machine \"numa:4 l3:1 core:8 pu:2\" --threads all
  numaloc plan app.numaloc --machine epyc-7501 --threads deloc --pages mixed -o plan.json
  numaloc plan app.numaloc --threads joint -o plan.json

Without -o, `plan` prints the comparison and writes nothing. `--threads all` and `--pages all` compare
policies; a plan needs one policy of each kind.")]
pub struct Args {
    /// Profile folder written by `numaloc record`
    #[arg(value_name = "PROFILE")]
    profile: PathBuf,
    /// Machine to plan for: `this`, an hwloc XML file, a .toml machine file, a described machine or a
    /// synthetic string
    #[arg(long, value_name = "MACHINE", default_value = "this")]
    machine: String,
    /// Thread policy, `joint` (decides threads and pages together), `shared-pages` (groups threads that
    /// use the same pages), `os` (leaves threads to the operating system), or `all`
    #[arg(long, value_name = "POLICY", default_value = "numaloc")]
    threads: String,
    /// Page policy, `joint` (decides threads and pages together), or `all`
    #[arg(long, value_name = "POLICY", default_value = "locality")]
    pages: String,
    /// Plan file to write; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the plan for another launcher instead: omp-places, gomp, kmp, likwid-pin, hwloc-bind,
    /// taskset or numactl (what the launcher cannot express is reported on stderr)
    #[arg(long, value_name = "TARGET")]
    export: Option<String>,
    /// Replace an existing plan
    #[arg(long)]
    force: bool,
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
    #[arg(long, value_name = "SIZE", value_parser = super::byte_size)]
    page_size: Option<u64>,
    /// `mixed`: pages with a higher exclusivity go to their main user's node
    #[arg(long, value_name = "0..1", default_value_t = 0.90)]
    min_exclusivity: f64,
    /// `joint`: cache lines a thread has outstanding at once: 1 for dependent loads, about 10 for
    /// prefetched streams. The larger the number, the more the load of controllers and links counts
    /// against latency
    #[arg(long, value_name = "LINES", default_value_t = 1.0, value_parser = lines_in_flight)]
    in_flight: f64,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn lines_in_flight(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(lines) if (1.0..=1000.0).contains(&lines) => Ok(lines),
        _ => Err("expected a number from 1 to 1000".to_owned()),
    }
}

/// A thread policy's answer.
struct ThreadAnswer {
    policy: &'static str,
    mapped: Mapped,
    value: Evaluation,
    /// On a cluster: the amount of communication between hosts.
    between_hosts: Option<f64>,
    seconds: f64,
}

/// A page policy's answer under one mapping.
struct PageAnswer {
    policy: &'static str,
    placement: Placement,
    spilled: u64,
    remarks: Vec<String>,
    remote: u64,
    accesses: u64,
    seconds: f64,
}

/// The input of thread mapping.
struct Problem<'a> {
    profile: &'a Profile,
    layer: Layer,
    /// Each thread's load on memory; `None` if no load was recorded.
    load: Option<&'a [f64]>,
    machine: &'a Topology,
    /// Matrix for the policies: the threads of a rank have weights between them that exceed everything recorded, so
    /// that policies keep them on one host if there is room.
    together: bool,
}

impl Problem<'_> {
    /// The matrix as recorded, by which answers are judged.
    fn as_recorded(&self) -> Self {
        Self {
            together: false,
            ..*self
        }
    }
}

fn run(policy: &dyn MappingPolicy, input: &MapInput) -> Result<Mapped, CliError> {
    numaloc_mapping::map(policy, input).map_err(CliError::tool)
}

/// Where threads are assumed to run if they are not bound: spread over all nodes, as the kernel's load
/// balancing does on an otherwise idle machine.
fn left_to_the_system(input: &MapInput) -> Result<Mapped, CliError> {
    let mut mapped = run(&numaloc_mapping::policies::scatter::Scatter, input)?;
    mapped.remarks.push(
        "threads are left to the operating system; pages are placed as if each thread ran where `scatter` puts it"
            .to_owned(),
    );
    Ok(mapped)
}

/// All results of `plan`, for display.
struct Answer {
    machine: Topology,
    layer: Layer,
    /// Unit of the communication that threads are mapped by.
    unit: &'static str,
    /// Each thread's load on memory, which policies balance.
    load: LoadVector,
    threads: Vec<ThreadAnswer>,
    /// Under the first thread policy's mapping; the first is always first-touch, the baseline.
    pages: Vec<PageAnswer>,
    /// Results without a plan: unbound threads, and bound ones.
    unplanned: Option<pinned::Unplanned>,
    written: Option<(PathBuf, Assembled)>,
    /// Whether threads do the same work in another run, as JSON.
    repeatability: serde_json::Value,
}

impl Args {
    /// Maps, places, compares, and writes the plan if asked to.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        // The joint policy starts from the answers of all thread policies and places pages itself.
        let joint = self.threads == JOINT || self.pages == JOINT;
        let thread_policies =
            policies::threads_of_profile(if joint { "all" } else { &self.threads })?;
        let page_policies = if joint {
            Vec::new()
        } else {
            policies::pages(&self.pages, &[])?
        };
        if self.output.is_some() && !joint && (thread_policies.len() > 1 || page_policies.len() > 1)
        {
            return Err(CliError::usage("cannot write a plan for `all` policies")
                .expected("one policy each for --threads and --pages with -o")
                .hint("choose from the comparison: numaloc plan ... --threads all, without -o"));
        }
        let output = self
            .output
            .as_deref()
            .map(|path| ui.output(path, self.force))
            .transpose()?;
        let machine = self.machine()?;
        let parts = Parts {
            page_slices: page_policies.iter().any(|p| p.name() == "next-touch"),
        };
        let profile = read_parts(&self.profile, parts)?;
        let hybrid = profile.is_hybrid();
        let recorded: Vec<String> = profile.threads.iter().map(|t| t.path.clone()).collect();
        for line in [
            numaloc_report::repeatability::sentence(&profile),
            numaloc_report::repeatability::advice(&profile).map(|advice| format!("try: {advice}")),
        ]
        .into_iter()
        .flatten()
        {
            ui.remark(line);
        }
        let repeatability = super::show::repeatability_json(&profile);
        let profile = if hybrid {
            self.united(profile, ui)
        } else if self.exclude_helpers {
            profile.without_helpers()
        } else {
            profile
        };
        let left_out: Vec<String> = recorded
            .into_iter()
            .filter(|path| profile.threads.iter().all(|thread| thread.path != *path))
            .collect();
        let layer = self.layer(&profile)?;
        let load = LoadVector::of(&profile);
        let problem = Problem {
            profile: &profile,
            layer,
            load: load_to_level(&load.by_thread),
            machine: &machine,
            together: one_host_per_rank(&profile, &machine),
        };
        let thread_policies = match joint {
            true => joint::starts(thread_policies, profile.threads.len()),
            false => thread_policies,
        };
        let mut threads = self.map(&thread_policies, &problem, ui)?;
        let decided = if joint {
            Some(self.decide_jointly(&mut threads, &problem, ui)?)
        } else {
            None
        };
        let mut pages = self.place(
            &page_policies,
            &profile,
            &threads[0].mapped.mapping,
            &machine,
        )?;
        pages.extend(decided);
        let written = match &output {
            None => None,
            Some(output) => {
                let assembled = self.assemble(
                    &profile,
                    &machine,
                    &threads[0],
                    &pages[pages.len() - 1],
                    &left_out,
                );
                if hybrid {
                    // All threads of a rank must be on one host.
                    RankMap::from_plan(&assembled.plan, &machine).map_err(CliError::tool)?;
                }
                output.write(numaloc_formats::plan::to_json(&assembled.plan).as_bytes())?;
                Some((output.path().to_owned(), assembled))
            }
        };
        if let Some(name) = &self.export {
            let assembled = match &written {
                Some((_, assembled)) => assembled.clone(),
                None => self.assemble(
                    &profile,
                    &machine,
                    &threads[0],
                    &pages[pages.len() - 1],
                    &left_out,
                ),
            };
            return export(&assembled.plan, name, ui);
        }
        let unplanned = self.unplanned(&problem)?;
        let unit = match Amount::of_layer(layer) {
            Amount::Bytes => "bytes",
            Amount::Events if hybrid && self.layer.is_none() => "cache lines",
            Amount::Events => "events",
        };
        let answer = Answer {
            unplanned,
            machine,
            layer,
            unit,
            load,
            threads,
            pages,
            written,
            repeatability,
        };
        if !output.is_some_and(|output| output.is_stdout()) {
            ui.result(|| shown::text(&answer), || shown::json(&answer));
        }
        Ok(0)
    }

    /// A profile of ranks with threads, with all communication in one layer.
    fn united(&self, profile: Profile, ui: &Ui) -> Profile {
        let mut profile = profile.without_helpers();
        if self.layer.is_none() {
            ui.remark(
                "ranks with threads: messages are counted in cache lines and added to the lines that threads share",
            );
            profile.communication = profile.in_cache_lines();
        }
        profile
    }

    fn machine(&self) -> Result<Topology, CliError> {
        let machine = resolve(&self.machine)?;
        if self.distances.is_empty() {
            return Ok(machine);
        }
        machine
            .with_level_distances(&self.distances)
            .map_err(|why| CliError::usage(format!("cannot use --distances: {why}")))
    }

    fn layer(&self, profile: &Profile) -> Result<Layer, CliError> {
        let wanted = self.layer.unwrap_or_else(|| default_layer(profile));
        if self.layer.is_some() && !profile.has_layer(wanted) {
            let there = profile.layers();
            let names: Vec<_> = there.iter().map(|layer| layer.name()).collect();
            return Err(CliError::tool(format!(
                "cannot map {} by layer {}: it has no such layer",
                self.profile.display(),
                wanted.name()
            ))
            .expected(format!("one of: {}", names.join(", "))));
        }
        Ok(wanted)
    }

    fn map(
        &self,
        chosen: &[ThreadPolicy],
        problem: &Problem,
        ui: &Ui,
    ) -> Result<Vec<ThreadAnswer>, CliError> {
        let progress = Progress::new(ui);
        let together = problem.together;
        let mut answers = self.with_input(problem, |input| {
            chosen
                .iter()
                .map(|policy| {
                    progress.now(policy.name());
                    let start = Instant::now();
                    let mapped = match policy {
                        ThreadPolicy::Listed(policy) => run(*policy, input),
                        ThreadPolicy::SharedPages => self.by_shared_pages(problem),
                        ThreadPolicy::Os => left_to_the_system(input),
                    }?;
                    let seconds = start.elapsed().as_secs_f64();
                    let value = numaloc_mapping::evaluate(input, &mapped.mapping);
                    let between_hosts = numaloc_mapping::between_hosts(input, &mapped.mapping);
                    Ok(ThreadAnswer {
                        policy: policy.name(),
                        mapped,
                        value,
                        between_hosts,
                        seconds,
                    })
                })
                .collect::<Result<Vec<_>, CliError>>()
        })?;
        if together {
            // Mappings are judged by the communication as recorded.
            self.with_input(&problem.as_recorded(), |input| {
                for answer in &mut answers {
                    answer.value = numaloc_mapping::evaluate(input, &answer.mapped.mapping);
                    answer.between_hosts =
                        numaloc_mapping::between_hosts(input, &answer.mapped.mapping);
                }
                Ok(())
            })?;
        }
        Ok(answers)
    }

    /// Calls `ask` with the mapping problem.
    fn with_input<T>(
        &self,
        problem: &Problem,
        ask: impl FnOnce(&MapInput) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let (profile, layer) = (problem.profile, problem.layer);
        let matrix = profile
            .matrix(layer, Amount::of_layer(layer))
            .map_err(|error| {
                CliError::tool(format!("cannot use {}: {error}", self.profile.display()))
            })?;
        let matrix = if problem.together {
            glued(&matrix, profile).map_err(CliError::tool)?
        } else {
            matrix
        };
        let groups: Vec<TaskGroup> = concurrency_groups(profile, layer).groups;
        let direction = if layer.is_directed() {
            Direction::Directed
        } else {
            Direction::Undirected
        };
        let input = MapInput::directed(&matrix, direction, problem.machine)
            .with_load(problem.load)
            .with_groups(&groups)
            .with_spread(self.spread_wanted())
            .with_seed(self.seed);
        ask(&input)
    }

    fn spread_wanted(&self) -> Spread {
        match (self.spread, self.compact) {
            (true, _) => Spread::Spread,
            (_, true) => Spread::Compact,
            _ => Spread::Auto,
        }
    }

    /// The thread mapping of the data mapping paper (section IV, its reference 12): groups threads that use the
    /// same pages, first into pairs, then into pairs of pairs. The weight of two threads is the sum over pages of
    /// the smaller of their access counts.
    fn by_shared_pages(&self, problem: &Problem) -> Result<Mapped, CliError> {
        let profile = problem.profile;
        if profile.pages.pages().is_empty() {
            let path = self.profile.display();
            return Err(CliError::tool(format!(
                "cannot map {path} by shared pages: it has no page usage"
            )));
        }
        let common = page_affinity(&profile.pages, profile.threads.len());
        let input = MapInput::directed(&common, Direction::Undirected, problem.machine)
            .with_spread(self.spread_wanted())
            .with_seed(self.seed);
        run(&numaloc_mapping::policies::choice_map::ChoiceMap, &input)
    }

    fn place(
        &self,
        chosen: &[&'static dyn numaloc_placement::PlacementPolicy],
        profile: &Profile,
        mapping: &Mapping,
        machine: &Topology,
    ) -> Result<Vec<PageAnswer>, CliError> {
        let input = PlaceInput {
            page_slices: &profile.page_slices,
            slow_loads: profile.slow_loads.as_ref(),
            page_size: self.page_size.unwrap_or(profile.pages.page_size()),
            seed: self.seed,
            min_exclusivity: self.min_exclusivity,
            ..PlaceInput::new(&profile.pages, mapping, machine)
        };
        let baseline = numaloc_placement::policy("first-touch").expect("it is registered");
        let mut wanted = vec![baseline];
        wanted.extend(
            chosen
                .iter()
                .filter(|policy| policy.name() != baseline.name()),
        );
        wanted
            .into_iter()
            .map(|policy| {
                let start = Instant::now();
                let placed = numaloc_placement::place(policy, &input).map_err(CliError::usage)?;
                let seconds = start.elapsed().as_secs_f64();
                let (remote, accesses) = numaloc_placement::remote_accesses(
                    profile,
                    machine,
                    mapping,
                    &placed.placement,
                );
                Ok(PageAnswer {
                    policy: policy.name(),
                    placement: placed.placement,
                    spilled: placed.spilled,
                    remarks: placed.diagnostics,
                    remote,
                    accesses,
                    seconds,
                })
            })
            .collect()
    }

    fn assemble(
        &self,
        profile: &Profile,
        machine: &Topology,
        threads: &ThreadAnswer,
        pages: &PageAnswer,
        left_out: &[String],
    ) -> Assembled {
        let parameter = |name: &str, value: String| (name.to_owned(), value);
        let mut parameters = vec![
            parameter("seed", self.seed.to_string()),
            parameter("min_exclusivity", self.min_exclusivity.to_string()),
        ];
        if pages.policy == JOINT {
            parameters.push(parameter("in_flight", self.in_flight.to_string()));
        }
        let provenance = Provenance {
            thread_policy: threads.policy.to_owned(),
            page_policy: pages.policy.to_owned(),
            parameters,
            command: profile.meta.command.clone(),
            tool: concat!("numaloc ", env!("CARGO_PKG_VERSION")).to_owned(),
            environment: (profile.meta.frontend != "import")
                .then(|| profile.meta.conditions.environment.clone()),
            left_out: left_out.to_vec(),
        };
        let predicted = Predicted {
            cost: threads.value.cost,
            remote: threads.value.remote,
            total: threads.value.total,
            node_imbalance: threads.value.node_imbalance,
            remote_accesses: 0,
            accesses: 0,
        };
        let mut assembled = numaloc_placement::assemble(
            profile,
            machine,
            &threads.mapped.mapping,
            &pages.placement,
            provenance,
            predicted,
        );
        if threads.policy == ThreadPolicy::Os.name() {
            // Listed, so that `run` does not report them as threads missing from the plan.
            let left = assembled.plan.threads.drain(..).map(|thread| thread.path);
            assembled.plan.provenance.left_out.extend(left);
        }
        assembled
    }
}

/// Whether ranks with several threads are mapped to several hosts; all threads of a process must be on one host.
fn one_host_per_rank(profile: &Profile, machine: &Topology) -> bool {
    let hosts = machine.objects().iter();
    let hosts = hosts.filter(|object| object.kind == ObjectKind::Host && !object.pus.is_empty());
    let ranks: std::collections::BTreeSet<_> =
        profile.threads.iter().map(|thread| thread.rank).collect();
    hosts.count() > 1
        && profile.threads.iter().all(|thread| thread.rank.is_some())
        && ranks.len() < profile.threads.len()
}

/// The matrix with a dominating weight between each thread of a rank and the next.
fn glued(matrix: &CommMatrix, profile: &Profile) -> Result<CommMatrix, CommError> {
    let above_all = matrix.total().max(1.0);
    let mut last = std::collections::BTreeMap::new();
    let mut pairs = Vec::new();
    for (at, thread) in profile.threads.iter().enumerate() {
        if let Some(rank) = thread.rank
            && let Some(before) = last.insert(rank, at)
        {
            pairs.push((before, at, above_all));
        }
    }
    CommMatrix::from_cells(matrix.threads(), matrix.cells().chain(pairs))
}

/// The plan that was written, if any.
fn plan(answer: &Answer) -> Option<&Plan> {
    answer
        .written
        .as_ref()
        .map(|(_, assembled)| &assembled.plan)
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
