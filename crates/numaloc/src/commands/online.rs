//! Online placement at the command line: the options of `run --online` and `attach`, and the advisor that joins what is
//! seen of the program to what decides.

use std::collections::BTreeMap;

use numaloc_apply::online::Following;
use numaloc_apply::online::{Advice, Advisor, Moved, Present, Report, Source, SourceKind, choose};
use numaloc_model::{Access, LogicalNode, LogicalPu};
use numaloc_plan::online::autopin::{self, Autopin};
use numaloc_plan::online::policies::{self, AZIMI, Chosen, MARATHE};
use numaloc_plan::online::{self, Amounts, Constants, Detector, Evidence, Online};
use numaloc_plan::{Choice, Dynamics, Options};
use numaloc_topology::Topology;
use serde_json::{Value, json};

use crate::error::CliError;

/// Bytes of a private cache: a core's second level, of the servers of the 2010s.
const PRIVATE_CACHE: u64 = 256 << 10;

/// Options of online placement.
#[derive(clap::Args)]
#[command(next_help_heading = "Online placement")]
pub(super) struct Flags {
    /// Thread policy (see `numaloc plan --help`); autopin: tries mappings and keeps the one under which
    /// the program passes most marks (only with run); azimi: by cache-to-cache transfers only (pmu, lab)
    #[arg(long, value_name = "POLICY", default_value = "numaloc")]
    thread_policy: String,
    /// Page policy (see `numaloc plan --help`); marathe: by slow loads only (pmu, lab)
    #[arg(long, value_name = "POLICY", default_value = "locality")]
    page_policy: String,
    /// How accesses are seen: pmu, lab, hint-faults, fast-hint-faults, soft-dirty or page-faults [default:
    /// the first of pmu, lab, hint-faults and soft-dirty that works]
    #[arg(long, value_name = "SOURCE", value_parser = source)]
    source: Option<SourceKind>,
    /// Percent of a thread's time that page faults may take which numaloc causes
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = budget)]
    budget: f64,
    /// How a new phase is recognised: pattern (who communicates with whom), heterogeneity (OPT) or load
    /// (CMLB)
    #[arg(long, value_name = "HOW", default_value = "pattern", value_parser = detector)]
    phases_by: Detector,
    /// Move threads only if the communication's heterogeneity is higher (OPT)
    #[arg(long, value_name = "0..2500", default_value_t = Dynamics::default().least_heterogeneity)]
    h_min: f64,
    /// Move threads only if there are more communication events per pair and second (OPT) [default: 150 for
    /// samples of the PMU; page faults do not show amounts]
    #[arg(long, value_name = "EVENTS")]
    a_min: Option<f64>,
    /// Accesses of a thread to memory in a second, for sources that do not show amounts
    #[arg(long, value_name = "ACCESSES", default_value_t = 1e6, value_parser = seconds)]
    access_rate: f64,
    /// Least time between moves of threads
    #[arg(long, value_name = "SECONDS", default_value_t = Dynamics::default().thread_interval_s, value_parser = seconds)]
    thread_interval: f64,
    /// Least time between moves of pages
    #[arg(long, value_name = "SECONDS", default_value_t = Dynamics::default().page_interval_s, value_parser = seconds)]
    page_interval: f64,
}

fn source(name: &str) -> Result<SourceKind, String> {
    named(&SourceKind::ALL, name)
}

fn detector(name: &str) -> Result<Detector, String> {
    named(&Detector::ALL, name)
}

fn named<T: Copy>(all: &[(&'static str, T)], name: &str) -> Result<T, String> {
    let found = all.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        format!("expected one of {}", names.join(", "))
    })
}

fn budget(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent),
        _ => Err("expected a percentage above 0, at most 100".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=1e9).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 0".to_owned()),
    }
}

/// What online placement needs of this machine and the user.
pub(super) struct Setup {
    machine: Topology,
    /// `None`: mappings are tried.
    choice: Option<Choice>,
    /// The source, or why there is none.
    pub source: Result<Source, String>,
    /// The node of each PU, by the kernel's numbers.
    nodes: BTreeMap<u32, u32>,
}

impl Setup {
    /// Whether the program must be started with what counts its marks.
    pub fn counts_marks(&self) -> bool {
        self.choice.is_none()
    }
}

impl Flags {
    /// Finds the machine, the policies and the source.
    pub fn setup(&self) -> Result<Setup, CliError> {
        if self.thread_policy == autopin::NAME {
            return Ok(Setup {
                machine: numaloc_topology::from_this_machine()?,
                choice: None,
                source: Ok(Source::nothing()),
                nodes: BTreeMap::new(),
            });
        }
        // A baseline maps as the default policy does, by other accesses.
        let threads = match self.thread_policy.as_str() {
            AZIMI => "numaloc",
            other => other,
        };
        let choice = Choice::new(threads, &self.page_policy)?;
        if !choice.is_one_plan() {
            return Err(CliError::usage("cannot place by `all` policies")
                .expected("one policy each for --thread-policy and --page-policy"));
        }
        let machine = numaloc_topology::from_this_machine()?;
        // Refused before the program starts.
        Chosen::new(&choice, &machine, Options::default()).map_err(CliError::usage)?;
        let by = self.evidence();
        let baseline = match (by.0 == Evidence::All, by.1 == Evidence::All) {
            (false, _) => Some(AZIMI),
            (true, false) => Some(MARATHE),
            (true, true) => None,
        };
        let source = choose(self.source, machine.nodes().len(), baseline.is_some());
        if let (Some(name), Err(why)) = (baseline, &source) {
            return Err(CliError::tool(format!(
                "cannot place by {name}, which goes by what served each access: {why}"
            ))
            .hint("another policy; in a virtual machine, numaloc lab --samples"));
        }
        let node_of = |at: usize| {
            let node = machine.node_of(LogicalPu(at as u32));
            machine.nodes()[node.index()].os.0
        };
        let pus = machine.pus().iter().enumerate();
        let nodes = pus.map(|(at, pu)| (pu.os.0, node_of(at))).collect();
        Ok(Setup {
            machine,
            choice: Some(choice),
            source,
            nodes,
        })
    }

    /// The accesses by which communication and the use of pages are estimated.
    fn evidence(&self) -> (Evidence, Evidence) {
        policies::evidence(&self.thread_policy, &self.page_policy)
    }

    /// Calls `follow` with how the program is to be followed, or why it cannot be, and the advisor.
    pub fn follow<T>(
        &self,
        setup: &Setup,
        follow: impl FnOnce(Result<Following, String>, &mut dyn Advisor) -> T,
    ) -> Result<T, CliError> {
        let machine = &setup.machine;
        let Some(choice) = &setup.choice else {
            return Ok(self.try_mappings(setup, follow));
        };
        let chosen = Chosen::new(choice, machine, Options::default());
        let policies = chosen.map_err(CliError::usage)?;
        let source = setup.source.as_ref().ok();
        let period = source.and_then(Source::accesses_per_sample);
        let usual = period.map_or(0.0, |_| Dynamics::default().least_events_per_s);
        let (communication_by, pages_by) = self.evidence();
        let writes_only = source.is_some_and(|source| source.kind().shows_no_reads());
        let constants = Constants {
            communication_by,
            pages_by,
            dynamics: Dynamics {
                least_heterogeneity: self.h_min,
                least_events_per_s: self.a_min.unwrap_or(usual),
                thread_interval_s: self.thread_interval,
                page_interval_s: self.page_interval,
                ..Dynamics::default()
            },
            detector: self.phases_by,
            amounts: period.map_or(
                Amounts::PerThreadSecond(self.access_rate),
                Amounts::PerSample,
            ),
            writes_only_beyond: writes_only.then_some(PRIVATE_CACHE),
            half_life_s: source.map_or(Constants::default().half_life_s, Source::half_life_s),
            ..Constants::default()
        };
        let mut advisor = OfEstimates {
            online: Online::new(&policies, machine, constants),
            machine,
            pus: pus(machine),
            nodes: machine
                .nodes()
                .iter()
                .zip(0..)
                .map(|(node, at)| (node.os.0, LogicalNode(at)))
                .collect(),
        };
        let following = match &setup.source {
            Ok(source) => Ok(Following {
                source,
                budget: self.budget / 100.0,
                pages: machine.nodes().len() > 1,
                marks: false,
                nodes: &setup.nodes,
            }),
            Err(why) => Err(why.clone()),
        };
        Ok(follow(following, &mut advisor))
    }

    fn try_mappings<T>(
        &self,
        setup: &Setup,
        follow: impl FnOnce(Result<Following, String>, &mut dyn Advisor) -> T,
    ) -> T {
        let mut advisor = OfTrials {
            autopin: Autopin::new(&setup.machine, Options::default().seed),
            machine: &setup.machine,
            passes: 0,
        };
        let following = setup.source.as_ref().map(|source| Following {
            source,
            budget: self.budget / 100.0,
            pages: false,
            marks: true,
            nodes: &setup.nodes,
        });
        follow(following.map_err(String::clone), &mut advisor)
    }
}

/// Logical PUs by the kernel's numbers.
fn pus(machine: &Topology) -> BTreeMap<u32, LogicalPu> {
    let pus = machine.pus().iter().zip(0..);
    pus.map(|(pu, at)| (pu.os.0, LogicalPu(at))).collect()
}

/// Advises by what mappings that were tried have brought.
struct OfTrials<'a> {
    autopin: Autopin<'a>,
    machine: &'a Topology,
    passes: u64,
}

impl Advisor for OfTrials<'_> {
    fn observe(&mut self, _: usize, _: &Access, _: f64) {}

    fn passed(&mut self, marks: u64) {
        self.passes = marks;
    }

    fn ended(&mut self, _: usize) {}

    fn due(&mut self, now_s: f64) -> Option<Vec<u64>> {
        let due = self.autopin.is_due(now_s, self.passes);
        due.then(Vec::new)
    }

    fn decide(&mut self, now_s: f64, present: &Present) -> Result<Option<Advice>, String> {
        let threads: Vec<usize> = present.threads.keys().copied().collect();
        let step = self.autopin.step(now_s, &threads, self.passes);
        let step = step.map_err(|error| error.to_string())?;
        let pus = self.machine.pus();
        Ok(step.map(|step| Advice {
            threads: step
                .into_iter()
                .map(|(thread, pu)| (thread, pus[pu.index()].os.0))
                .collect(),
            pages: Vec::new(),
            predicted: None,
        }))
    }
}

/// Advises by estimates of what was observed; translates the kernel's numbers.
struct OfEstimates<'a> {
    online: Online<'a>,
    machine: &'a Topology,
    pus: BTreeMap<u32, LogicalPu>,
    nodes: BTreeMap<u32, LogicalNode>,
}

impl Advisor for OfEstimates<'_> {
    fn observe(&mut self, thread: usize, access: &Access, time_s: f64) {
        self.online.observe(thread, access, time_s);
    }

    fn ended(&mut self, thread: usize) {
        self.online.ended(thread);
    }

    fn due(&mut self, now_s: f64) -> Option<Vec<u64>> {
        self.online.advance(now_s);
        self.online.due(now_s)
    }

    fn decide(&mut self, now_s: f64, present: &Present) -> Result<Option<Advice>, String> {
        let threads = present.threads.iter();
        let pages = present.pages.iter();
        let present = online::Present {
            threads: threads
                .filter_map(|(&thread, pu)| Some((thread, *self.pus.get(pu)?)))
                .collect(),
            pages: pages
                .filter_map(|(page, node)| Some((page / 4096, *self.nodes.get(node)?)))
                .collect(),
        };
        let decision = self
            .online
            .decide(now_s, &present)
            .map_err(|error| error.to_string())?;
        Ok(decision.map(|decision| {
            let (threads, pages) = (decision.threads.iter(), decision.pages.iter());
            let (pus, nodes) = (self.machine.pus(), self.machine.nodes());
            Advice {
                threads: threads
                    .map(|&(thread, pu)| (thread, pus[pu.index()].os.0))
                    .collect(),
                pages: pages
                    .map(|&(page, node)| (page, nodes[node.index()].os.0))
                    .collect(),
                predicted: Some((decision.gain_s, decision.cost_s)),
            }
        }))
    }

    fn remarks(&self) -> Vec<String> {
        let phases = self.online.phases();
        let stayed = self.online.stayed();
        let stayed = stayed.map(|why| format!("threads stayed at the last decision: {why}"));
        let phases = (phases > 0).then(|| format!("{phases} times a new phase was recognised"));
        phases.into_iter().chain(stayed).collect()
    }
}

fn of_moves(moved: &Moved) -> Value {
    json!({
        "at_s": moved.at_s,
        "threads_bound": moved.threads,
        "pages_moved": moved.pages,
        "predicted_gain_s": moved.predicted.map(|(gain_s, _)| gain_s),
        "predicted_cost_s": moved.predicted.map(|(_, cost_s)| cost_s),
    })
}

/// A report as JSON; `status` is that of the program, if it was started.
pub(super) fn json(report: &Report, status: Option<i32>) -> Value {
    let by_errno = |refused: &BTreeMap<i32, u64>| refused.values().sum::<u64>();
    json!({
        "version": 1,
        "source": report.source,
        "samples": report.samples,
        "lost": report.lost,
        "decisions": report.decisions,
        "decisions_with_moves": report.moves.len(),
        "deciding_s": report.deciding_s,
        "last_move_s": report.last_move_s(),
        "moves": report.moves.iter().map(of_moves).collect::<Vec<_>>(),
        "threads_bound": report.threads,
        "pages_moved": report.pages,
        "threads_refused": by_errno(&report.refused_threads),
        "pages_refused": by_errno(&report.refused_pages),
        "notes": report.notes,
        "status": status,
    })
}
