//! The command line of a program behind a command's own options: `--` between them may be left out if no word of the
//! program could be an option of the command.

use std::ffi::{OsStr, OsString};
use std::sync::OnceLock;

use crate::error::CliError;

/// The words of the command line that was parsed, where it is not the one that was typed.
static COMPLETED: OnceLock<Vec<OsString>> = OnceLock::new();

/// What was assumed of the command line.
static REMARK: OnceLock<String> = OnceLock::new();

/// Sets the words that [`check`] looks at: the name of the tool, then what follows; and what was assumed of them.
pub fn set_words(words: Vec<OsString>, remark: Option<String>) {
    let _ = COMPLETED.set(words);
    if let Some(remark) = remark {
        let _ = REMARK.set(remark);
    }
}

/// What was assumed of the command line, for the command that it led to.
pub fn remark() -> Option<&'static str> {
    REMARK.get().map(String::as_str)
}

/// Rejects a program without `--` in front of it if one of its arguments is also an option of the command `A`.
///
/// `command`: the program and its arguments as clap found them, at the end of the command line.
///
/// # Errors
/// Usage, with the command line that is unambiguous as the hint.
pub fn check<A: clap::Args>(command: &[OsString]) -> Result<(), CliError> {
    let typed;
    let words = match COMPLETED.get() {
        Some(words) => words,
        None => {
            typed = std::env::args_os().collect::<Vec<_>>();
            &typed
        }
    };
    let options = options::<A>();
    let Some(word) = ambiguous(words, command, &options) else {
        return Ok(());
    };
    let own = words.len() - command.len();
    let shown = |words: &[OsString]| {
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    };
    let word = word.to_string_lossy();
    Err(CliError::usage(format!(
        "{word} follows the program {} and is an option of numaloc too",
        command[0].display()
    ))
    .expected("-- between numaloc's options and the program")
    .hint(format!(
        "numaloc {} -- {} to pass {word} to the program; else put it before the program",
        shown(&words[1..own]),
        shown(command)
    )))
}

/// Names of the options of `A` and of those that all commands have.
fn options<A: clap::Args>() -> Vec<String> {
    let command = A::augment_args(clap::Command::new("numaloc"));
    let short = command.get_arguments().filter_map(clap::Arg::get_short);
    let long = command.get_arguments().filter_map(clap::Arg::get_long);
    let own = short.map(|name| format!("-{name}"));
    let own = own.chain(long.map(|name| format!("--{name}")));
    let global = ["--json", "--quiet", "-q", "--help", "-h"].map(str::to_owned);
    own.chain(global).collect()
}

/// The first of the program's arguments that is in `options`, if no `--` precedes the program.
fn ambiguous<'a>(
    words: &[OsString],
    command: &'a [OsString],
    options: &[String],
) -> Option<&'a OsStr> {
    let before = words.len().checked_sub(command.len() + 1)?;
    if words[before] == "--" {
        return None;
    }
    let mut arguments = command.iter().skip(1).take_while(|word| *word != "--");
    let is_option = |word: &&OsString| {
        let text = word.to_string_lossy();
        let name = text.split('=').next().unwrap_or_default();
        options.iter().any(|option| option == name)
    };
    arguments.find(is_option).map(OsString::as_os_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str, program: usize) -> Option<String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let command = words[words.len() - program..].to_vec();
        let options = ["-o", "--force"].map(str::to_owned);
        let word = ambiguous(&words, &command, &options)?;
        Some(word.to_string_lossy().into_owned())
    }

    #[test]
    fn only_own_options_behind_a_program_without_dashes_are_ambiguous() {
        assert_eq!(found("numaloc record -o x ./app 5 -n 3", 4), None);
        assert_eq!(found("numaloc record ./app -o y", 3), Some("-o".to_owned()));
        assert_eq!(
            found("numaloc record ./app --force=1", 2),
            Some("--force=1".to_owned())
        );
        assert_eq!(found("numaloc record -- ./app -o y", 3), None);
        assert_eq!(found("numaloc record ./app -- -o y", 4), None);
    }
}
