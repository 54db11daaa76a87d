//! The options of `plan --dynamic`, and how its schedule is shown.

use numaloc_model::number;
use numaloc_model::plan::{PhasePlan, Trigger};
use numaloc_plan::{Detector, Dynamic, Dynamics};
use serde_json::{Value, json};

/// Options of a plan with later moves.
#[derive(clap::Args)]
#[command(next_help_heading = "Later moves")]
pub(super) struct Later {
    /// Plan moves of threads and pages for the phases of the run, where they gain more than they cost
    #[arg(long)]
    pub dynamic: bool,
    /// How phases are found: pattern (who communicates with whom), heterogeneity (OPT), load (CMLB) or
    /// clusters (DeLoc)
    #[arg(long, value_name = "HOW", default_value = "pattern", value_parser = detector, requires = "dynamic")]
    phases_by: Detector,
    /// Slices per window of the phase detection [default: 50, an eighth of a short run]
    #[arg(long, value_name = "SLICES", requires = "dynamic")]
    phase_window: Option<usize>,
    /// Move threads only if the communication's heterogeneity is higher (OPT)
    #[arg(long, value_name = "0..2500", default_value_t = Dynamics::default().least_heterogeneity, requires = "dynamic")]
    h_min: f64,
    /// Move threads only if there are more communication events per pair and second (OPT)
    #[arg(long, value_name = "EVENTS", default_value_t = Dynamics::default().least_events_per_s, requires = "dynamic")]
    a_min: f64,
    /// Least time between moves of threads
    #[arg(long, value_name = "SECONDS", default_value_t = Dynamics::default().thread_interval_s, value_parser = seconds, requires = "dynamic")]
    thread_interval: f64,
    /// Least time between moves of pages
    #[arg(long, value_name = "SECONDS", default_value_t = Dynamics::default().page_interval_s, value_parser = seconds, requires = "dynamic")]
    page_interval: f64,
    /// Accesses of a thread in a second, for profiles whose clock counts accesses
    #[arg(long, value_name = "ACCESSES", default_value_t = Dynamics::default().accesses_per_s, value_parser = rate, requires = "dynamic")]
    access_rate: f64,
    /// Time that moving a thread costs
    #[arg(long, value_name = "SECONDS", default_value_t = Dynamics::default().thread_move_s, value_parser = seconds, requires = "dynamic")]
    thread_move: f64,
    /// Time that moving a page costs in addition to copying it
    #[arg(long, value_name = "SECONDS", default_value_t = Dynamics::default().page_move_s, value_parser = seconds, requires = "dynamic")]
    page_move: f64,
}

fn detector(name: &str) -> Result<Detector, String> {
    let names: Vec<&str> = Detector::ALL.iter().map(|(name, _)| *name).collect();
    Detector::by_name(name).ok_or_else(|| format!("expected one of {}", names.join(", ")))
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=1e9).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 0".to_owned()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (1.0..=1e15).contains(&rate) => Ok(rate),
        _ => Err("expected a number of at least 1".to_owned()),
    }
}

impl Later {
    /// The constants of the schedule.
    pub fn dynamics(&self) -> Dynamics {
        Dynamics {
            detector: self.phases_by,
            window: self.phase_window,
            least_heterogeneity: self.h_min,
            least_events_per_s: self.a_min,
            thread_interval_s: self.thread_interval,
            page_interval_s: self.page_interval,
            accesses_per_s: self.access_rate,
            thread_move_s: self.thread_move,
            page_move_s: self.page_move,
            ..Dynamics::default()
        }
    }
}

fn milliseconds(seconds: f64) -> String {
    number::fixed(seconds * 1e3, 3) + " ms"
}

fn mark(trigger: &Trigger) -> String {
    let Trigger {
        place,
        occurrence,
        every,
    } = trigger;
    let every = every.map_or_else(String::new, |every| format!(", then every {every}"));
    format!(
        "{} {}, pass {occurrence}{every}",
        place.kind.name(),
        place.name
    )
}

/// The phases, and what moves between them; `schedule` is that of the assembled plan.
pub(super) fn text(dynamic: &Dynamic, schedule: &[PhasePlan]) -> String {
    let moved = dynamic.moved();
    let of = &dynamic.schedule;
    let mut out = format!(
        "\nlater moves, phases by {}: {} phases, {} of them begin with moves\n",
        dynamic.dynamics.detector.name(),
        dynamic.phases.len(),
        moved.phases
    );
    out += &format!(
        "  time for memory and communication: {} with one mapping, {} with moves\n",
        milliseconds(of.static_s),
        milliseconds(of.dynamic_s)
    );
    for step in &of.steps {
        let phase = &dynamic.phases[step.phase];
        out += &format!(
            "  phase {} from {}: ",
            step.phase + 1,
            milliseconds(phase.start_s)
        );
        let moves = !step.threads.is_empty() || !step.pages.is_empty();
        out += &match step.unmet {
            _ if moves => format!(
                "{} and {} move; gains {}, costs {}",
                number::plural(step.threads.len(), "thread"),
                number::plural(step.pages.len(), "page"),
                milliseconds(step.gain_s),
                milliseconds(step.cost_s)
            ),
            Some(unmet) => format!("nothing moves: {unmet}"),
            None => "nothing moves".to_owned(),
        };
        out.push('\n');
    }
    for phase in schedule {
        out += &match &phase.trigger {
            Some(trigger) => format!("  move at {}\n", mark(trigger)),
            None => format!(
                "  move at {} % of the run: no mark is near, so `run` cannot carry it out\n",
                number::fixed(phase.at * 100.0, 1)
            ),
        };
    }
    out
}

/// The same as JSON; times in seconds.
pub(super) fn json(dynamic: &Dynamic, schedule: &[PhasePlan]) -> Value {
    let steps = dynamic.schedule.steps.iter().map(|step| {
        json!({
            "phase": step.phase,
            "start_s": dynamic.phases[step.phase].start_s,
            "threads": step.threads.len(),
            "pages": step.pages.len(),
            "gain_s": step.gain_s,
            "cost_s": step.cost_s,
            "threads_stay_because": step.unmet.map(|unmet| unmet.to_string()),
        })
    });
    let marks = schedule
        .iter()
        .map(|phase| phase.trigger.as_ref().map(mark));
    json!({
        "phases_by": dynamic.dynamics.detector.name(),
        "phases": dynamic.phases.len(),
        "static_s": dynamic.schedule.static_s,
        "dynamic_s": dynamic.schedule.dynamic_s,
        "steps": steps.collect::<Vec<_>>(),
        "marks": marks.collect::<Vec<_>>(),
    })
}
