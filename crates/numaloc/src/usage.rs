//! Mistakes of the command line in the form of all our errors: what is wrong, what was expected, what to do.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};

use crate::error::{CliError, did_you_mean};

/// What the parser says of a command line of `command`, in our form. `None` if it is no error: help or the version.
/// `words`: the command line.
#[must_use]
pub fn explained(
    answer: &clap::Error,
    command: &clap::Command,
    words: &[OsString],
) -> Option<CliError> {
    if !answer.use_stderr() {
        return None;
    }
    let (path, meant) = path(command, words);
    let said = Said::of(&answer.render().to_string());
    let given = |kind| match answer.get(kind) {
        Some(ContextValue::String(given)) => Some(given.as_str()),
        _ => None,
    };
    // The parser's own tips miss letters that are exchanged, and our lists of values.
    let near = if let Some(given) = given(ContextKind::InvalidSubcommand) {
        let names = meant.get_subcommands().map(clap::Command::get_name);
        did_you_mean(given, names).map(str::to_owned)
    } else if let Some(given) = given(ContextKind::InvalidArg).filter(|_| said.is_unknown()) {
        let options = meant.get_arguments().chain(command.get_arguments());
        let names: Vec<String> = options
            .filter_map(clap::Arg::get_long)
            .map(|name| format!("--{name}"))
            .collect();
        did_you_mean(given, names.iter().map(String::as_str)).map(str::to_owned)
    } else {
        let values = said.values.iter().map(String::as_str);
        let given = given(ContextKind::InvalidValue).filter(|given| !given.is_empty());
        given.and_then(|given| did_you_mean(given, values).map(str::to_owned))
    };
    let tip = near.or(said.tip);
    let error = CliError::usage(said.message);
    let error = match said.expected {
        Some(expected) => error.expected(expected),
        None => error,
    };
    Some(error.hint(tip.unwrap_or_else(|| format!("{path} --help"))))
}

/// The command that a command line names, with its name in full.
fn path<'a>(command: &'a clap::Command, words: &[OsString]) -> (String, &'a clap::Command) {
    let (mut path, mut meant) = ("numaloc".to_owned(), command);
    for word in words.iter().take_while(|word| *word != "--") {
        let name = word.to_str().filter(|name| *name != "help");
        let below = name.and_then(|name| meant.find_subcommand(name));
        if let Some(below) = below {
            path += &format!(" {}", below.get_name());
            meant = below;
        }
    }
    (path, meant)
}

/// What the parser's text says.
struct Said {
    message: String,
    expected: Option<String>,
    /// The values that are possible, where they are few.
    values: Vec<String>,
    tip: Option<String>,
}

impl Said {
    /// The text consists of paragraphs: the error, tips, the usage, and where there is help.
    fn of(text: &str) -> Self {
        let mut paragraphs = text.split("\n\n");
        let mut said = Self::message(paragraphs.next().unwrap_or_default());
        for paragraph in paragraphs.map(str::trim) {
            if let Some(usage) = paragraph.strip_prefix("Usage: ") {
                let line = usage.lines().next().unwrap_or_default().trim_end();
                said.expected.get_or_insert_with(|| line.to_owned());
            } else if said.tip.is_none() {
                let tips = paragraph
                    .lines()
                    .filter_map(|line| line.trim().strip_prefix("tip: "));
                said.tip = tips.filter_map(names_of_tip).next();
            }
        }
        said
    }

    /// The paragraph of the error.
    fn message(paragraph: &str) -> Self {
        let mut said = Self {
            message: String::new(),
            expected: None,
            values: Vec::new(),
            tip: None,
        };
        for line in paragraph.lines().map(str::trim) {
            let line = line.strip_prefix("error: ").unwrap_or(line);
            match line.strip_prefix("[possible values: ") {
                Some(list) => said.expected = Some(list.trim_end_matches(']').to_owned()),
                None if said.message.is_empty() => line.clone_into(&mut said.message),
                None if said.message.ends_with(':') => said.message += &format!(" {line}"),
                None => said.message += &format!(", {line}"),
            }
        }
        let plain = [
            (
                "the following required arguments were not provided:",
                "missing:",
            ),
            ("unrecognized subcommand", "there is no command"),
            ("unexpected argument", UNKNOWN),
            ("' found", "'"),
        ];
        for (long, short) in plain {
            said.message = said.message.replace(long, short);
        }
        if let Some((message, why)) = said.message.rsplit_once("': ")
            && let Some(expected) = expected(why)
        {
            said.expected = Some(expected);
            said.message = format!("{message}'");
        }
        let list = said.expected.as_deref().unwrap_or_default();
        let list = list.strip_prefix("one of: ").unwrap_or(list);
        said.values = list.split(", ").map(str::to_owned).collect();
        said
    }

    fn is_unknown(&self) -> bool {
        self.message.starts_with(UNKNOWN)
    }
}

/// How the message on an unknown option begins.
const UNKNOWN: &str = "unknown argument";

/// What was expected of a value, by why it was refused.
fn expected(why: &str) -> Option<String> {
    if let Some(expected) = why.strip_prefix("expected ") {
        return Some(expected.to_owned());
    }
    if why.contains("invalid digit") || why.contains("empty string") {
        return Some("a whole number".to_owned());
    }
    if why.contains("invalid float") {
        return Some("a number".to_owned());
    }
    let (_, range) = why.split_once(" is not in ")?;
    let (from, to) = range.split_once("..")?;
    Some(match (to.strip_prefix('='), to.parse::<u64>()) {
        // The greatest number of its kind is no limit.
        (Some("4294967295" | "18446744073709551615"), _) | (None, Err(_)) => {
            format!("at least {from}")
        }
        (Some(last), _) => format!("{from} to {last}"),
        (None, Ok(end)) => format!("{from} to {}", end.saturating_sub(1)),
    })
}

/// The names in `a similar value exists: 'x'`; `None` for other tips.
fn names_of_tip(text: &str) -> Option<String> {
    let parts = text
        .split_once(" exist: ")
        .or_else(|| text.split_once(" exists: "));
    parts.map(|(_, names)| names.replace('\'', ""))
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command, value_parser};

    use super::*;

    fn said(words: &[&str]) -> String {
        let format = Arg::new("format")
            .long("format")
            .value_parser(["csv", "npy"]);
        let nodes = Arg::new("nodes").long("nodes");
        let show = Command::new("show").arg(Arg::new("profile").required(true));
        let show = show
            .arg(format)
            .arg(nodes.value_parser(value_parser!(u32).range(1..=9)));
        let mut command = Command::new("numaloc")
            .subcommand(show)
            .subcommand_required(true);
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let all = std::iter::once("numaloc".into()).chain(words.iter().cloned());
        let error = command.try_get_matches_from_mut(all).unwrap_err();
        let said = explained(&error, &command, &words);
        said.map_or_else(String::new, |error| error.text())
    }

    #[test]
    fn mistakes_have_the_form_of_our_errors() {
        let near =
            "error: there is no command 'shwo'\n  expected: numaloc <COMMAND>\n  try: show\n";
        assert_eq!(said(&["shwo"]), near);
        assert_eq!(said(&["help", "shwo"]), near);
        let missing = "error: missing: <profile>\n  expected: numaloc show <profile>\n  try: numaloc show --help\n";
        assert_eq!(said(&["show"]), missing);
        let value = said(&["show", "x", "--format", "cvs"]);
        assert!(
            value.ends_with("\n  expected: csv, npy\n  try: csv\n"),
            "{value}"
        );
        let unknown = said(&["show", "x", "--fromat"]);
        assert!(
            unknown.starts_with("error: unknown argument '--fromat'\n  expected: numaloc show")
        );
        assert!(unknown.ends_with("\n  try: --format\n"), "{unknown}");
        assert_eq!(said(&["--help"]), "");
    }

    #[test]
    fn what_a_value_should_have_been_is_said() {
        let nodes = |given| said(&["show", "x", "--nodes", given]);
        let refused = |given: &str, expected: &str| {
            format!(
                "error: invalid value '{given}' for '--nodes <nodes>'\n  expected: {expected}\n  try: numaloc show --help\n"
            )
        };
        assert_eq!(nodes("0"), refused("0", "1 to 9"));
        assert_eq!(nodes("four"), refused("four", "a whole number"));
        assert_eq!(expected("7 is not in 8..100").as_deref(), Some("8 to 99"));
        assert_eq!(
            expected("1 is not in 2..=4294967295").as_deref(),
            Some("at least 2")
        );
        assert_eq!(expected("nonsense"), None);
    }
}
