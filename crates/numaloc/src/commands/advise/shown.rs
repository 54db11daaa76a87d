//! Output of `advise`.

use numaloc_analysis::contended::ContendedMemory;
use numaloc_analysis::objects::named_label;
use numaloc_analysis::sites::place_label;
use numaloc_analysis::verdict::time;
use numaloc_model::{CodePlace, Named, number};
use numaloc_plan::worth::ERROR;
use numaloc_report::next::quoted;
use numaloc_whatif::change::Change;
use numaloc_whatif::parts::Part;
use numaloc_whatif::places::{Use, uses};
use numaloc_whatif::search::{Step, WORTHWHILE};
use numaloc_whatif::words::{Language, assumption, headline, sketch};
use serde_json::{Value, json};

use super::{Answer, Basis};

/// Most objects of a part that are named.
const NAMED: usize = 3;
/// Most places that use a part.
const PLACES: usize = 3;
/// Most changes in the list of those tried alone.
const ALONE: usize = 8;
/// What the model cannot tell, in words.
const NOT_JUDGED: &str =
    "huge pages (numaloc simulate --page-size rates them), other algorithms and data structures";

/// The changes of the best set, in the order in which they were found.
pub(super) fn steps(answer: &Answer) -> Vec<Step> {
    answer.found.steps(answer.times[0].seconds())
}

impl Answer {
    /// Seconds that the best set saves, and how much more or less that may be.
    fn saves(&self) -> (f64, f64) {
        let [before, after] = self.times;
        let as_it_is = before.seconds();
        let draws = (before.simulated[2] - before.simulated[1]) / 2.0;
        let lines = |at: usize| before.waiting[at] - after.waiting[at];
        let lines = (lines(2) - lines(0)).abs() / 2.0;
        let model = self.uncertainty * before.simulated[0];
        (as_it_is - after.seconds(), draws + lines + model)
    }

    /// Smallest share of the run that a set of changes must save.
    fn least(&self) -> f64 {
        match self.basis {
            Basis::Trace => WORTHWHILE,
            Basis::Model(_) => ERROR,
        }
    }

    /// Share of what no placement could exceed that the best set reaches, if there is anything to gain.
    fn reach(&self) -> Option<f64> {
        let possible = self.times[0].seconds() - self.bound;
        (possible > 0.0).then(|| (self.saves().0 / possible).clamp(0.0, 1.0))
    }

    pub(super) fn part(&self, change: Change) -> Option<&Part> {
        change.part().map(|at| &self.parts[at])
    }

    pub(super) fn lines(&self, change: Change) -> Option<&ContendedMemory> {
        change.lines().map(|at| &self.memory[at])
    }

    /// What a change is made to.
    pub(super) fn subject(&self, change: Change) -> String {
        if let Change::Bind(at) = change {
            return self.bindings[at].to_owned();
        }
        if let Some(part) = self.part(change) {
            return self.names(match change {
                Change::Replicate(_) => &part.constant,
                _ => &part.memory,
            });
        }
        match self.lines(change) {
            Some(memory) if memory.hands_out => {
                format!(
                    "the loop that {} counts",
                    memory.memory.label(&self.profile)
                )
            }
            Some(memory) => memory.memory.label(&self.profile),
            None => "all pages".to_owned(),
        }
    }

    fn names(&self, memory: &[Named]) -> String {
        let label = |of: &Named| named_label(&self.profile, *of);
        let mut names: Vec<String> = memory.iter().map(label).collect();
        names.dedup();
        if names.len() > NAMED {
            let others = names.len() - NAMED;
            names.truncate(NAMED);
            names.push(number::plural(others, "other"));
        }
        names.join(", ")
    }

    /// The place that a sketch is for.
    fn place(&self, change: Change) -> Option<&CodePlace> {
        let of_part = self.part(change).and_then(|part| part.beginnings.first());
        let of_lines = || self.lines(change).map(|memory| &memory.places[0]);
        of_part.or_else(of_lines)
    }

    pub(super) fn language(&self, change: Change) -> Language {
        let language = |place: &CodePlace| Language::of(place.source.as_deref(), self.has_openmp);
        let used = || {
            let part = self.part(change)?;
            let used = uses(&self.profile, &part.memory, &part.beginnings);
            used.first().map(|found| language(&found.place))
        };
        Language::of_change(self.place(change).map(language), used).unwrap_or(Language::Other)
    }

    /// What numaloc does without a change of the source: commands.
    fn commands(&self, change: Change) -> Vec<String> {
        let command: Vec<String> = self
            .profile
            .meta()
            .command
            .iter()
            .map(|word| quoted(word))
            .collect();
        let command = match command.is_empty() {
            true => "./app".to_owned(),
            false => command.join(" "),
        };
        let profile = quoted(&self.path.display().to_string());
        let machine = match self.machine.as_str() {
            "this" => String::new(),
            name => format!(" --machine {}", quoted(name)),
        };
        let plan = |policies: &str| {
            vec![
                format!("numaloc plan {profile}{machine} {policies} -o plan.json"),
                format!("numaloc run --plan plan.json -- {command}"),
            ]
        };
        match change {
            Change::Bind(at) => plan(&format!(
                "--threads {} --pages first-touch",
                self.bindings[at]
            )),
            Change::PlacePages => plan("--pages locality"),
            Change::InterleaveAll => vec![format!("numactl --interleave=all {command}")],
            _ => Vec::new(),
        }
    }
}

/// The answer in a few lines, then each change, then what was tried.
pub(super) fn text(answer: &Answer) -> String {
    let steps = steps(answer);
    let as_it_is = answer.times[0].seconds();
    let (saved, more_or_less) = answer.saves();
    let mut out = match steps.len() {
        0 => format!(
            "Answer   nothing to change: no change saves more than {} of {} on {}\n",
            number::whole_percent(answer.least()),
            time(as_it_is),
            answer.machine
        ),
        count => format!(
            "Answer   {} take{} the run from {} to {} on {}, {} less (+- {})\n",
            number::plural(count, "change"),
            if count == 1 { "s" } else { "" },
            time(as_it_is),
            time(as_it_is - saved),
            answer.machine,
            time(saved),
            time(more_or_less),
        ),
    };
    out += &format!(
        "Bound    {} without any other node's memory, queue or line{}\n",
        time(answer.bound),
        match answer.reach().filter(|_| !steps.is_empty()) {
            Some(reach) => format!(
                "; this is {} of what is possible",
                number::whole_percent(reach)
            ),
            None => String::new(),
        }
    );
    out += &sure(answer);
    let waiting = answer.times[0].waiting;
    if waiting[1] > 0.0 {
        out += &format!(
            "; {} ({} to {}) of it waiting for contended lines, estimated from samples",
            time(waiting[1]),
            time(waiting[0]),
            time(waiting[2])
        );
    }
    out.push('\n');
    for (step, count) in steps.iter().zip(1..) {
        out += &step_text(answer, step, count);
    }
    out += &alone_text(answer);
    if !answer.has_sites {
        out += "\nLines of the source are not known: the profile has no code sites (record without --fast).\n";
    }
    out + &format!("\nNot judged: {NOT_JUDGED}.\n")
}

/// What the times are based on.
fn sure(answer: &Answer) -> String {
    match answer.basis {
        Basis::Trace => {
            let draws = answer.times[0].simulated;
            format!(
                "Sure     simulated from the access trace; as it is {} to {} as the operating system places threads",
                time(draws[1]),
                time(draws[2]),
            )
        }
        Basis::Model(lacks) => format!(
            "Sure     modelled, +- {}: the profile has {lacks} (numaloc record --advise keeps one to simulate); plans: numaloc plan",
            number::whole_percent(ERROR)
        ),
    }
}

fn step_text(answer: &Answer, step: &Step, count: usize) -> String {
    let change = step.change;
    let mut out = format!(
        "\n{count}. {}: {} -> {}\n",
        headline(change),
        time(step.before),
        time(step.after)
    );
    out += &format!("   what     {}\n", answer.subject(change));
    if let Some(part) = answer.part(change) {
        out += &format!(
            "   begins   in {}, by thread {}\n",
            places_label(&part.beginnings),
            answer.profile.threads()[part.first.index()].path
        );
        out += &uses_text(&uses(&answer.profile, &part.memory, &part.beginnings));
    }
    if let Some(memory) = answer.lines(change) {
        for (place, what) in memory.places.iter().zip(["stored", "loaded"]) {
            if place.is_known() {
                out += &format!(
                    "   {what}   in {}, {} threads\n",
                    place_label(place),
                    memory.threads
                );
            }
        }
    }
    let lines = match change.is_in_source() {
        true => sketch(change, answer.language(change)),
        false => answer.commands(change),
    };
    for (line, at) in lines.iter().zip(0..) {
        let title = match (at, change.is_in_source()) {
            (0, true) => "write",
            (0, false) => "run",
            _ => "",
        };
        out += &format!("   {title:<9}{line}\n");
    }
    if step.needs_next {
        out += &format!("   with     change {}: alone it saves nothing\n", count + 1);
    }
    out + &format!("   assumes  {}\n", assumption(change))
}

/// `main (app.c:7), app.c:8` for lines of one function.
fn places_label(places: &[CodePlace]) -> String {
    let Some((first, others)) = places.split_first() else {
        return "unknown code".to_owned();
    };
    let others = others.iter().filter_map(|place| place.source.as_deref());
    let labels = std::iter::once(place_label(first)).chain(others.map(str::to_owned));
    labels.collect::<Vec<_>>().join(", ")
}

fn uses_text(uses: &[Use]) -> String {
    let all: u64 = uses.iter().map(|found| found.accesses).sum();
    let mut out = String::new();
    for found in uses.iter().take(PLACES) {
        out += &format!(
            "   {}   in {}, {}, {} of its use\n",
            if found.stores { "stored" } else { "loaded" },
            place_label(&found.place),
            number::plural(found.threads, "thread"),
            number::whole_percent(found.accesses as f64 / all.max(1) as f64),
        );
    }
    out
}

fn alone_text(answer: &Answer) -> String {
    if answer.found.alone.is_empty() {
        return String::new();
    }
    let mut out = "\nEach change alone\n       time      saves  change\n".to_owned();
    for rated in answer.found.alone.iter().take(ALONE) {
        let change = rated.changes[0];
        let saves = answer.found.as_it_is - rated.seconds;
        let saves = match saves.abs() < WORTHWHILE * answer.found.as_it_is {
            true => "nothing".to_owned(),
            false if saves < 0.0 => format!("-{}", time(-saves)),
            false => time(saves),
        };
        out += &format!(
            "  {:>9}  {saves:>9}  {}: {}\n",
            time(rated.seconds),
            headline(change),
            answer.subject(change)
        );
    }
    if answer.found.alone.len() > ALONE {
        let more = answer.found.alone.len() - ALONE;
        out += &format!("  and {more} slower ones; --json has all\n");
    }
    out
}

fn place_json(place: &CodePlace) -> Value {
    json!({ "function": place.function, "source": place.source })
}

fn change_json(
    answer: &Answer,
    change: Change,
    (before, after): (f64, f64),
    needs_next: bool,
) -> Value {
    let part = answer.part(change);
    let used = part.map_or_else(Vec::new, |part| {
        uses(&answer.profile, &part.memory, &part.beginnings)
    });
    let used = used.iter().map(|found| {
        json!({
            "place": place_json(&found.place),
            "stores": found.stores,
            "accesses": found.accesses,
            "threads": found.threads,
        })
    });
    json!({
        "change": change.name(),
        "what": headline(change),
        "subject": answer.subject(change),
        "in_source": change.is_in_source(),
        "before_s": before,
        "after_s": after,
        "saves_s": before - after,
        "needs_next": needs_next,
        "places": part.map_or_else(
            || answer.place(change).into_iter().map(place_json).collect::<Vec<_>>(),
            |part| part.beginnings.iter().map(place_json).collect(),
        ),
        "first_thread": part.map(|part| &answer.profile.threads()[part.first.index()].path),
        "uses": used.collect::<Vec<_>>(),
        "write": sketch(change, answer.language(change)),
        "commands": answer.commands(change),
        "assumes": assumption(change),
    })
}

/// For scripts.
pub(super) fn json(answer: &Answer) -> Value {
    let as_it_is = answer.found.as_it_is;
    let (saves, plus_minus) = answer.saves();
    let steps = steps(answer);
    let steps = steps.iter().map(|step| {
        change_json(
            answer,
            step.change,
            (step.before, step.after),
            step.needs_next,
        )
    });
    let alone = answer.found.alone.iter();
    let alone =
        alone.map(|rated| change_json(answer, rated.changes[0], (as_it_is, rated.seconds), false));
    json!({
        "version": 1,
        "machine": answer.machine,
        "basis": match answer.basis {
            Basis::Trace => "access_trace",
            Basis::Model(_) => "model",
        },
        "as_it_is_s": answer.times[0].seconds(),
        "waiting_for_lines_s": answer.times[0].waiting,
        "best_s": answer.times[1].seconds(),
        "as_it_is_remote_percent": answer.times[0].remote,
        "best_remote_percent": answer.times[1].remote,
        "saves_s": saves,
        "plus_minus_s": plus_minus,
        "bound_s": answer.bound,
        "reach": answer.reach(),
        "changes": steps.collect::<Vec<_>>(),
        "alone": alone.collect::<Vec<_>>(),
        "not_judged": NOT_JUDGED,
    })
}
