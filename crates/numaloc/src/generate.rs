//! Man pages and shell completions, made from the declaration of the command line when numaloc is installed.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use clap_complete::Shell;

/// First argument of the hidden command: `generate man FOLDER` or `generate completion SHELL`.
pub const GENERATE: &str = "generate";

/// Writes what `words` ask for: a man page of every command into a folder, or a completion script to `output`.
///
/// # Errors
/// `InvalidInput` for other words; the system's if a file cannot be written.
pub fn run(command: clap::Command, words: &[OsString], output: &mut dyn Write) -> io::Result<()> {
    let words: Vec<_> = words.iter().map(|word| word.to_str()).collect();
    match words[..] {
        [Some("man"), Some(folder)] => man(command, Path::new(folder)),
        [Some("completion"), Some(shell)] => {
            let shell = shell.parse::<Shell>().map_err(invalid)?;
            let mut command = command;
            clap_complete::generate(shell, &mut command, "numaloc", output);
            Ok(())
        }
        _ => Err(invalid(
            "expected man FOLDER, or completion bash, fish or zsh",
        )),
    }
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// `numaloc.1`, and `numaloc-COMMAND.1` for every command and its subcommands.
fn man(command: clap::Command, folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    // Pages of `help` would only say that there is help.
    let command = command.disable_help_subcommand(true);
    clap_mangen::generate_to(command, folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> clap::Command {
        let below = clap::Command::new("inner").about("does something");
        let command = clap::Command::new("numaloc").subcommand(
            clap::Command::new("outer")
                .about("has a subcommand")
                .subcommand(below),
        );
        command.version("1")
    }

    #[test]
    fn every_command_has_a_man_page() {
        let folder = tempfile::tempdir().unwrap();
        let words = ["man".into(), folder.path().into()];
        run(example(), &words, &mut io::sink()).unwrap();
        let mut names: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(
            names,
            ["numaloc-outer-inner.1", "numaloc-outer.1", "numaloc.1"]
        );
    }

    #[test]
    fn completions_name_the_commands() {
        for shell in ["bash", "zsh", "fish"] {
            let mut script = Vec::new();
            let words = ["completion".into(), shell.into()];
            run(example(), &words, &mut script).unwrap();
            assert!(
                String::from_utf8(script).unwrap().contains("outer"),
                "{shell}"
            );
        }
    }

    #[test]
    fn other_words_are_refused() {
        for words in [&["man"][..], &["completion", "tcsh2"], &["x", "y"], &[]] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let refused = run(example(), &words, &mut io::sink()).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
