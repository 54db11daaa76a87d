//! Command lines that name a program in the place of a command: `numaloc ./app ARGS` records it.
//!
//! A command always takes precedence over a program of the same name, and a mistyped command is no program unless
//! `PATH` has one of that name.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use numaloc_launch::find;
use numaloc_report::next::quoted;

use crate::error::CliError;

/// The command that is meant.
const RECORD: &str = "record";
/// The file that makes a folder a profile.
const OF_A_PROFILE: &str = "meta.json";

/// A command line as it is to be parsed.
pub struct Line {
    /// The words after the name of the tool.
    pub words: Vec<OsString>,
    /// What was assumed, in a clause.
    pub remark: Option<String>,
}

/// Puts `record` in front of a line that begins with a program, after options of `record`.
///
/// # Errors
/// Usage: the word is a profile, or a program of this folder without `./`.
pub fn completed(words: &[OsString], cli: &clap::Command) -> Result<Line, CliError> {
    let as_it_is = || Line {
        words: words.to_owned(),
        remark: None,
    };
    let recorded = |remark: Option<String>| Line {
        words: std::iter::once(RECORD.into())
            .chain(words.iter().cloned())
            .collect(),
        remark,
    };
    let Some(at) = first_word(words, cli) else {
        return Ok(as_it_is());
    };
    let word = &words[at];
    if word == "--" {
        return Ok(recorded(None));
    }
    let is_command = |name: &str| name == "help" || cli.find_subcommand(name).is_some();
    if word.to_str().is_some_and(is_command) {
        return Ok(as_it_is());
    }
    let shown = quoted(&word.to_string_lossy());
    if Path::new(word).join(OF_A_PROFILE).is_file() {
        return Err(
            CliError::usage(format!("{shown} is a profile, not a command"))
                .hint(format!("numaloc show {shown}")),
        );
    }
    if word.as_bytes().contains(&b'/') {
        return Ok(recorded(Some(format!("recording {shown}"))));
    }
    if let Ok(program) = find(word) {
        let program = program.display();
        let remark = format!("{shown} is no command of numaloc: recording the program {program}");
        return Ok(recorded(Some(remark)));
    }
    let here = OsString::from_iter([OsStr::new("./"), word]);
    match find(&here) {
        Ok(_) => Err(CliError::usage(format!(
            "{shown} is neither a command nor a program on PATH"
        ))
        .hint(format!(
            "numaloc ./{shown} records the program in this folder"
        ))),
        Err(_) => Ok(as_it_is()),
    }
}

/// Index of the first word that is no option of `record` and no value of one, or of `--`; `None` if an option is
/// unknown.
fn first_word(words: &[OsString], cli: &clap::Command) -> Option<usize> {
    let record = cli.find_subcommand(RECORD)?;
    let known: Vec<&clap::Arg> = cli.get_arguments().chain(record.get_arguments()).collect();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let text = word.to_string_lossy();
        if text == "--" || !text.starts_with('-') || text == "-" {
            return Some(at);
        }
        at += 1 + usize::from(takes_the_next(&text, &known)?);
    }
    None
}

/// Whether the value of an option is the next word; `None` for an unknown option.
fn takes_the_next(option: &str, known: &[&clap::Arg]) -> Option<bool> {
    let takes = |arg: &clap::Arg| arg.get_action().takes_values() && !arg.is_require_equals_set();
    if let Some(long) = option.strip_prefix("--") {
        let (name, value) = long.split_once('=').unzip();
        let name = name.unwrap_or(long);
        let arg = known.iter().find(|arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(name) || aliases.contains(&name)
        })?;
        return Some(takes(arg) && value.is_none());
    }
    let mut letters = option.chars().skip(1);
    while let Some(letter) = letters.next() {
        let arg = known.iter().find(|arg| arg.get_short() == Some(letter))?;
        if takes(arg) {
            return Some(letters.next().is_none());
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use clap::{Arg, ArgAction, Command};

    use super::*;

    fn cli() -> Command {
        let quiet = Arg::new("quiet").short('q').long("quiet");
        let json = Arg::new("json").long("json").require_equals(true);
        let output = Arg::new("output").short('o').long("output");
        let force = Arg::new("force").long("force");
        let record = Command::new("record")
            .arg(output)
            .arg(force.action(ArgAction::SetTrue));
        let command = Command::new("numaloc").arg(quiet.action(ArgAction::SetTrue).global(true));
        let command = command.arg(json.num_args(0..=1).global(true));
        command.subcommand(record).subcommand(Command::new("show"))
    }

    /// The completed line, or the error's message.
    fn line(text: &str) -> String {
        let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
        match completed(&words, &cli()) {
            Ok(line) => line.words.join(OsStr::new(" ")).into_string().unwrap(),
            Err(error) => error.message,
        }
    }

    #[test]
    fn a_program_is_recorded() {
        for program in [
            "./app 5",
            "/usr/bin/env x",
            "sh -c x",
            "-- show x",
            "./show",
        ] {
            assert_eq!(line(program), format!("record {program}"));
        }
        for options in [
            "-q",
            "--json",
            "--json=x",
            "-qo x",
            "-ox",
            "--output=x",
            "--force -o show",
        ] {
            let program = format!("{options} ./app -o y");
            assert_eq!(line(&program), format!("record {program}"));
        }
    }

    #[test]
    fn a_command_is_no_program() {
        for command in [
            "show ./app",
            "help ./app",
            "-q show ./app",
            "--help ./app",
            "--unknown ./app",
            "shwo ./app",
            "-o ./app",
            "--force",
        ] {
            assert_eq!(line(command), command);
        }
    }

    #[test]
    fn a_profile_is_shown_not_run() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(OF_A_PROFILE), "{}").unwrap();
        let path = folder.path().display().to_string();
        assert_eq!(line(&path), format!("{path} is a profile, not a command"));
    }
}
