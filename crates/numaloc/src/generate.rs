//! Man pages, made from the declaration of the command line when numaloc is installed.

use std::ffi::OsString;
use std::io;
use std::path::Path;

/// First argument of the hidden command: `generate man FOLDER`.
pub const GENERATE: &str = "generate";

/// Writes what `words` ask for: a man page of every command into a folder.
///
/// # Errors
/// `InvalidInput` for other words; the system's if a file cannot be written.
pub fn run(command: clap::Command, words: &[OsString]) -> io::Result<()> {
    let words: Vec<_> = words.iter().map(|word| word.to_str()).collect();
    match words[..] {
        [Some("man"), Some(folder)] => man(command, Path::new(folder)),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "expected man FOLDER",
        )),
    }
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
        run(example(), &words).unwrap();
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
    fn other_words_are_refused() {
        for words in [&["man"][..], &["completion", "bash"], &["x", "y"], &[]] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let refused = run(example(), &words).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
