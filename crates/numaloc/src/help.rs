//! What `-h` shows: commands by the work they do, and of every option the first clause. `--help` shows everything.

use clap::builder::StyledStr;

/// The commands by the work that they do; every command is in one group.
pub const GROUPS: [(&str, &[&str]); 5] = [
    ("Record", &["record", "import", "cc", "doctor"]),
    (
        "Understand",
        &[
            "show", "advise", "report", "diff", "top", "topology", "machines",
        ],
    ),
    ("Place", &["plan", "run", "attach", "map", "ranks", "tasks"]),
    (
        "Prove",
        &["compare", "validate", "simulate", "lab", "check"],
    ),
    ("Share", &["export", "store", "completions"]),
];

/// Characters that the text of an option in `-h` has at least: a shorter clause only introduces the next.
const LEAST: usize = 20;
/// The options that `-h` shows, of commands that have many.
const ESSENTIAL: [(&str, &[&str]); 4] = [
    (
        "record",
        &[
            "output", "force", "open", "frontend", "fast", "sample", "trace", "mpi", "repeat",
            "wait", "salvage", "attach", "unit", "length", "command",
        ],
    ),
    (
        "plan",
        &[
            "profile", "machine", "threads", "pages", "spread", "output", "force", "anyway",
            "choose", "export",
        ],
    ),
    (
        "run",
        &[
            "plan",
            "online",
            "verify",
            "require",
            "enforce",
            "force_machine",
            "force_program",
            "command",
        ],
    ),
    (
        "simulate",
        &[
            "profile",
            "machine",
            "threads",
            "pages",
            "plans",
            "sensitivity",
            "resume",
            "sample",
            "jobs",
        ],
    ),
];
/// Number of examples that `-h` shows.
const EXAMPLES: usize = 3;

/// The command line with short texts for `-h`.
#[must_use]
pub fn with_short_texts(command: clap::Command) -> clap::Command {
    let groups = groups(&command);
    let command = shortened(command);
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    );
    command.help_template(template)
}

/// The list of commands by group.
fn groups(command: &clap::Command) -> String {
    let mut out = String::new();
    let longest = GROUPS.iter().flat_map(|(_, names)| *names);
    let wide = longest.map(|name| name.len()).max().unwrap_or_default() + 2;
    for (title, names) in GROUPS {
        out += &format!("{title}:\n");
        for name in names {
            let about = command
                .find_subcommand(name)
                .and_then(clap::Command::get_about);
            let about = about.map_or_else(String::new, |about| clause(&about.to_string()));
            out += &format!("  {name:<wide$}{about}\n");
        }
        out.push('\n');
    }
    out
}

fn shortened(command: clap::Command) -> clap::Command {
    let essential = ESSENTIAL
        .iter()
        .find(|(name, _)| *name == command.get_name());
    let hidden =
        |arg: &clap::Arg| essential.is_some_and(|(_, kept)| !kept.contains(&arg.get_id().as_str()));
    let mut command = command.mut_args(|arg| {
        let is_hidden = hidden(&arg);
        let arg = arg.hide_short_help(is_hidden);
        let Some(long) = arg.get_help().map(StyledStr::to_string) else {
            return arg;
        };
        let long_help = arg
            .get_long_help()
            .map_or(long.clone(), StyledStr::to_string);
        arg.help(clause(&long)).long_help(long_help)
    });
    if let Some(text) = command.get_after_help().map(StyledStr::to_string) {
        command = command.after_help(examples(&text)).after_long_help(text);
    }
    command.mut_subcommands(shortened)
}

/// The first sentence or clause of a text, with the default at its end.
fn clause(text: &str) -> String {
    let text = text.replace('\n', " ");
    let default = text.rfind(" [default: ").map_or("", |at| &text[at..]);
    let body = &text[..text.len() - default.len()];
    let ends = ["; ", ". ", ": "].into_iter();
    let ends = ends
        .flat_map(|end| body.match_indices(end))
        .map(|(at, _)| at);
    // `With --trace-windows: ...` says when, not what.
    let introduces =
        |at: usize| at < LEAST || (body.starts_with("With ") && body[at..].starts_with(':'));
    let end = ends
        .filter(|&at| !introduces(at) && balanced(&body[..at]))
        .min();
    let short = end.map_or(body, |at| &body[..at]);
    format!("{short}{default}")
}

/// Whether no bracket or quotation is open at the end.
fn balanced(text: &str) -> bool {
    let count = |c| text.matches(c).count();
    count('(') == count(')') && count('`') % 2 == 0 && count('[') == count(']')
}

/// The first examples of a text that begins with them, and where the rest is.
fn examples(text: &str) -> String {
    let mut lines = text.lines();
    let Some(head) = lines.next().filter(|line| *line == "Examples:") else {
        return String::new();
    };
    let mut out = head.to_owned();
    let mut count = 0;
    let mut continued = false;
    for line in lines.take_while(|line| line.starts_with("  ")) {
        count += usize::from(!continued);
        if count > EXAMPLES {
            break;
        }
        continued = line.ends_with('\\');
        out += &format!("\n{line}");
    }
    out + "\n\n--help shows more of everything."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        use clap::CommandFactory;
        let command = crate::Cli::command();
        let mut names: Vec<&str> = command
            .get_subcommands()
            .map(clap::Command::get_name)
            .collect();
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        names.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, names);
    }

    #[test]
    fn a_short_text_is_the_first_clause() {
        let all = "Print only the matrix";
        assert_eq!(clause(all), all);
        let long = "Unit of times and slices: `virtual` counts accesses, joined at synchronisation, and does not depend on \
            what else the machine does";
        assert_eq!(clause(long), "Unit of times and slices");
        let long = "With --trace-windows: memory of each thread whose last requests are kept; more";
        assert_eq!(
            clause(long),
            "With --trace-windows: memory of each thread whose last requests are kept"
        );
        let long = "Observe only this share (5% or 0.05); counts are scaled up, and each matrix cell carries an estimate [default: 1]";
        assert_eq!(
            clause(long),
            "Observe only this share (5% or 0.05) [default: 1]"
        );
    }

    #[test]
    fn essential_options_exist() {
        use clap::CommandFactory;
        let command = crate::Cli::command();
        for (name, kept) in ESSENTIAL {
            let command = command.find_subcommand(name).unwrap();
            let ids: Vec<&str> = command
                .get_arguments()
                .map(|arg| arg.get_id().as_str())
                .collect();
            let missing: Vec<_> = kept.iter().filter(|id| !ids.contains(id)).collect();
            assert!(missing.is_empty(), "{name}: {missing:?} of {ids:?}");
        }
    }

    #[test]
    fn examples_are_the_first_ones() {
        let text = "Examples:\n  a \\\n    b\n  c\n  d\n  e\n\nMore.";
        let short = "Examples:\n  a \\\n    b\n  c\n  d\n\n--help shows more of everything.";
        assert_eq!(examples(text), short);
    }
}
