//! What to do next: the commands that follow from a verdict, ready to be copied.

use numaloc_analysis::Characterisation;
use numaloc_analysis::outlook::Way;
use numaloc_analysis::roles;
use numaloc_analysis::verdict::{BALANCE_RANKS, Likelihood, Measure};
use numaloc_model::conditions::{Conditions, DEAL};
use numaloc_model::profile::Profile;

/// A command and what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The command, ready to be pasted into a shell.
    pub command: String,
    /// Its purpose in a few words.
    pub why: &'static str,
}

/// Placeholder for a program that the reader fills in.
pub const PROGRAM: &str = "PROGRAM";
/// Option of `record` for loops that are dealt by node.
const DEALT: &str = "--deal node ";
/// Placeholder for a machine that the reader fills in.
pub const MACHINE: &str = "MACHINE";

/// Commands for a profile at `path`. `machine` is what the verdict was made for, as `--machine` takes it;
/// `None` where it was this machine, or where only a number of nodes was assumed (`assumed`). With `plans` that
/// exist already, the first is run and all are measured. `has_trace`: changes of the source can be simulated.
#[must_use]
pub fn steps(
    path: &str,
    profile: &Profile,
    c: &Characterisation,
    machine: Option<&str>,
    assumed: bool,
    has_trace: bool,
    plans: &[String],
) -> Vec<Step> {
    let holds = profile
        .meta()
        .conditions
        .repeatability(profile.threads().len())
        .holds();
    let policies = chosen(c, holds);
    let profile_word = quoted(path);
    let program: Vec<String> = profile
        .meta()
        .command
        .iter()
        .map(|word| quoted(word))
        .collect();
    // An imported matrix has no program.
    let known = profile.meta().frontend != "import" && !program.is_empty();
    let program = if known {
        program.join(" ")
    } else {
        PROGRAM.to_owned()
    };
    let conditions = &profile.meta().conditions;
    let run = Command {
        program: &program,
        environment: &environment(conditions),
        options: options(&profile.meta().frontend, conditions.is_dealt()),
        enforce: conditions.binds(),
    };
    let on = match (machine, assumed) {
        (Some(name), _) => format!(" --machine {}", quoted(name)),
        (None, true) => format!(" --machine {MACHINE}"),
        (None, false) => String::new(),
    };
    if let Some(first) = plans.first() {
        let all: Vec<String> = plans
            .iter()
            .map(|plan| format!("--plan {}", quoted(plan)))
            .collect();
        return run.steps(&quoted(first), &all.join(" ")).into();
    }
    let base = path.trim_end_matches('/').trim_end_matches(".numaloc");
    let mut steps = Vec::new();
    let first = c.problems.first().and_then(|problem| problem.change);
    // An access trace shows nothing of waiting in MPI.
    let first = first.filter(|change| *change != BALANCE_RANKS);
    if first.is_some() {
        let traced = quoted(&format!("{base}-traced.numaloc"));
        steps.push(match has_trace {
            true => advice(&profile_word, &on),
            false => run.traced(&traced),
        });
    }
    if conditions.could_be_dealt() && known {
        steps.push(run.dealt(&quoted(&format!("{base}-dealt.numaloc"))));
    }
    let Some(policies) = policies else {
        match c.problems.first() {
            Some(_) => {
                steps.extend(run.again(&profile_word, &quoted(&format!("{base}-changed.numaloc"))))
            }
            None if roles::come_and_go(profile) => steps.push(by_role(&profile_word, &on)),
            None => steps.push(measured(c, holds, &profile_word, &run)),
        }
        return steps;
    };
    let plan = quoted(&format!("{base}.json"));
    let policies = match policies.as_str() {
        "" => policies,
        _ => format!(" {policies}"),
    };
    steps.push(Step {
        command: format!("numaloc plan {profile_word}{on}{policies} -o {plan}"),
        why: purpose(holds, assumed),
    });
    steps.extend(run.steps(&plan, &format!("--plan {plan}")));
    steps
}

/// The options of `plan` for what the plan or the verdicts recommend; `None` if they recommend nothing. `holds`:
/// whether the work of each thread is the same in every run.
fn chosen(c: &Characterisation, holds: bool) -> Option<String> {
    let recommended = |measure| {
        let found = c.verdicts.iter().find(|v| v.measure == measure);
        let found = found.filter(|v| v.likelihood == Likelihood::Likely)?;
        found.recommended.as_ref()
    };
    if c.plan.is_some() {
        let mut problems = c.problems.iter();
        let cured = problems.any(|problem| problem.change.is_none());
        return cured.then(String::new);
    }
    let bind = recommended(Measure::BindThreads).map(|_| bound(c).to_owned());
    let policies = policies(
        recommended(Measure::PagePlacement).is_some(),
        recommended(Measure::CongestionAware).or(recommended(Measure::ThreadMapping)),
    );
    match policies.or(bind) {
        Some(_) if !holds => Some(whoever_works(c.pages.pages > 0).to_owned()),
        as_recommended => as_recommended,
    }
}

/// What a plan for roles is worth: `compare` measures programs that end by themselves, which servers do not. `on`: the
/// option that names the machine.
fn by_role(profile_word: &str, on: &str) -> Step {
    Step {
        command: format!("numaloc plan {profile_word}{on} --by-role"),
        why: "rate places for roles and segments, which --role and --segment ask for",
    }
}

/// What changes of the source are worth, by simulation; `on`: the option that names the machine.
fn advice(profile_word: &str, on: &str) -> Step {
    Step {
        command: format!("numaloc advise {profile_word}{on}"),
        why: "simulate this change and others, with what to write",
    }
}

/// The step where no plan is likely to help: measure with policies that might. `holds`: whether the work of each thread
/// is the same in every run.
fn measured(c: &Characterisation, holds: bool, profile_word: &str, run: &Command<'_>) -> Step {
    // Without page use there is nothing to decide jointly.
    let tried = match (holds, c.pages.pages > 0) {
        (false, true) => "packed --pages interleave",
        (false, false) => "packed",
        (true, true) => "numaloc,joint",
        (true, false) => "numaloc,deloc",
    };
    let open = c
        .verdicts
        .iter()
        .any(|v| v.likelihood == Likelihood::CannotTell);
    let (environment, program) = (run.environment, run.program);
    Step {
        command: format!(
            "{environment}numaloc compare --profile {profile_word} --threads {tried} --runs 10 -- {program}"
        ),
        why: if open {
            "measure what the verdict leaves open"
        } else {
            "no plan is likely to help; this measures whether one does"
        },
    }
}

/// What a plan is for; `holds` as in [`measured`], `assumed`: the reader chooses the machine.
fn purpose(holds: bool, assumed: bool) -> &'static str {
    match (holds, assumed) {
        (true, true) => "decide where threads and pages go; MACHINE: see `numaloc machines`",
        (true, false) => "decide where threads and pages go",
        (false, true) => {
            "a plan that does not depend on which work each thread gets, as this differs from run to run; MACHINE: see `numaloc machines`"
        }
        (false, false) => {
            "a plan that does not depend on which work each thread gets, as this differs from run to run"
        }
    }
}

/// Options of `numaloc plan` for threads bound in their order.
fn bound(c: &Characterisation) -> &'static str {
    match c.layer.is_message() {
        true => "--threads packed --spread --pages first-touch",
        false => "--threads in-order --pages first-touch",
    }
}

/// Options of `numaloc plan` for what is likely to help where there is no model of time; `None` when nothing is.
fn policies(pages: bool, threads: Option<&Way>) -> Option<String> {
    // Pages and threads are decided together; if pages need no placement, the recommended thread policy is best.
    if pages {
        return Some("--threads joint".to_owned());
    }
    let policy = threads.and_then(Way::policy)?;
    Some(format!("--threads {policy} --pages locality"))
}

/// Options of `numaloc plan` if another run may give threads other work, so that no thread has pages or partners of its
/// own: spread threads and pages over all nodes.
fn whoever_works(pages: bool) -> &'static str {
    match pages {
        true => "--threads packed --spread --pages interleave",
        false => "--threads packed --spread --pages first-touch",
    }
}

/// How the program is started again.
struct Command<'a> {
    program: &'a str,
    /// `NAME=VALUE ` for each variable that shaped the recording.
    environment: &'a str,
    /// Options of `record`, each with a blank after it, without which it would be another recording.
    options: String,
    /// Its run-time system binds threads, which would undo the plan.
    enforce: bool,
}

impl Command<'_> {
    /// A recording from which changes of the source can be simulated.
    fn traced(&self, profile: &str) -> Step {
        let (environment, program) = (self.environment, self.program);
        // Of ranks there is no trace for `advise`.
        let deal = Some(self.options.as_str()).filter(|options| *options == DEALT);
        let deal = deal.unwrap_or_default();
        Step {
            command: format!(
                "{environment}numaloc record {deal}--advise -o {profile} -- {program}"
            ),
            why: "record what `numaloc advise` simulates changes of the source with",
        }
    }

    /// A recording from which a plan holds, although loops hand out their work at run time.
    fn dealt(&self, profile: &str) -> Step {
        let (environment, program) = (self.environment, self.program);
        Step {
            command: format!("{environment}numaloc record --deal node -o {profile} -- {program}"),
            why: "deal loops to the same threads in each run, so that a plan by threads holds",
        }
    }

    /// After a change of the program: whether it helped.
    fn again(&self, before: &str, after: &str) -> Vec<Step> {
        let (environment, options, program) = (self.environment, &self.options, self.program);
        vec![
            Step {
                command: format!("{environment}numaloc record {options}-o {after} -- {program}"),
                why: "record the changed program",
            },
            Step {
                command: format!("numaloc diff {before} {after}"),
                why: "see what the change did",
            },
        ]
    }

    fn steps(&self, plan: &str, plans: &str) -> [Step; 2] {
        let Self {
            program,
            environment,
            ..
        } = self;
        let enforce = if self.enforce { " --enforce" } else { "" };
        [
            Step {
                command: format!("{environment}numaloc run --plan {plan}{enforce} -- {program}"),
                why: "run with the plan applied",
            },
            Step {
                command: format!("{environment}numaloc compare {plans} --runs 10 -- {program}"),
                why: "measure the gain",
            },
        ]
    }
}

/// The options without which `record` would observe something else: the launcher of ranks, or other work of threads.
fn options(frontend: &str, is_dealt: bool) -> String {
    match frontend.strip_prefix("mpi") {
        None if is_dealt => DEALT.to_owned(),
        None => String::new(),
        Some("") => "--mpi ".to_owned(),
        Some(of_memory) => format!("--mpi --frontend {} ", of_memory.trim_start_matches('+')),
    }
}

/// The variables that shaped the recording, as a shell takes them before a command.
fn environment(conditions: &Conditions) -> String {
    let assignment = |(name, value): &(String, String)| match value.is_empty() {
        true => format!("{name}= "),
        false => format!("{name}={} ", quoted(value)),
    };
    let set = conditions.environment.iter();
    // Set by an option, or by the plan.
    let set = set.filter(|(name, _)| name != DEAL);
    set.map(assignment).collect()
}

/// A word as a shell takes it.
#[must_use]
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::{environment, options, quoted};
    use numaloc_model::conditions::Conditions;

    #[test]
    fn variables_are_assigned_as_a_shell_reads_them() {
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let conditions = Conditions {
            environment: vec![
                variable("OMP_NUM_THREADS", "4,2"),
                variable("OMP_PLACES", "{0:4},{4:4}"),
                variable("OMP_PROC_BIND", ""),
            ],
            ..Conditions::default()
        };
        let expected = "OMP_NUM_THREADS=4,2 OMP_PLACES='{0:4},{4:4}' OMP_PROC_BIND= ";
        assert_eq!(environment(&conditions), expected);
        assert!(conditions.binds());
    }

    #[test]
    fn a_recording_of_ranks_is_repeated_as_one() {
        assert_eq!(options("mpi", false), "--mpi ");
        assert_eq!(options("mpi+native", false), "--mpi --frontend native ");
        assert_eq!(options("native", false), "");
        assert_eq!(options("native", true), "--deal node ");
    }

    #[test]
    fn words_with_special_characters_are_quoted() {
        assert_eq!(quoted("a/b-1.json"), "a/b-1.json");
        assert_eq!(quoted("it's $5"), "'it'\\''s $5'");
        assert_eq!(quoted(""), "''");
    }
}
