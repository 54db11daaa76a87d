//! `numaloc doctor`: what works on this machine, and how to get what does not.

mod facts;
mod parts;
mod probe;

use serde_json::json;

use self::parts::{Part, State};
use crate::error::{CliError, TOOL};
use crate::ui::Ui;

/// Check what works on this machine: each part, its state, what it enables, how to get it
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc doctor
  numaloc doctor --json

Records `true` in a folder for temporary files and removes it again; changes nothing else.
Exit status: 1 if an essential part (limits, one of the native and qemu frontends,
topology) is missing, else 0.")]
pub struct Args {}

impl Args {
    /// Prints the parts.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let list = parts::parts(&probe::facts());
        ui.result(|| text(&list, ui.columns()), || json(&list));
        let broken = |part: &Part| part.essential && part.state == State::Missing;
        Ok(if list.iter().any(broken) { TOOL } else { 0 })
    }
}

/// One line with the recorders that work here and one with those that do not, for `--version`.
pub fn frontends() -> String {
    let list = parts::recorders(&probe::facts());
    let frontends = list.iter().filter_map(|part| {
        let name = part.name.strip_suffix(" frontend")?;
        Some((name, part.state == State::Ok))
    });
    let (works, fails): (Vec<_>, Vec<_>) = frontends.partition(|(_, works)| *works);
    let names = |list: &[(&str, bool)]| {
        let names: Vec<&str> = list.iter().map(|(name, _)| *name).collect();
        names.join(", ")
    };
    let mut text = format!(
        "frontends: {}\n",
        if works.is_empty() {
            "none".to_owned()
        } else {
            names(&works)
        }
    );
    if !fails.is_empty() {
        text += &format!(
            "not available here: {} (numaloc doctor shows why)\n",
            names(&fails)
        );
    }
    text
}

/// Columns of text if the output is no terminal.
const COLUMNS: usize = 100;
/// Column in which findings start.
const INDENT: usize = 9;

fn text(parts: &[Part], columns: usize) -> String {
    let columns = columns.clamp(40, COLUMNS);
    let mut out = String::new();
    for part in parts {
        let head = format!("{:<8} {}: {}", part.state.name(), part.name, part.found);
        out += &wrapped(&head, INDENT, columns);
        if part.state != State::Ok {
            out += &wrapped(
                &format!("{:INDENT$}for: {}", "", part.enables),
                INDENT + 5,
                columns,
            );
        }
        if let Some(fix) = &part.fix {
            out += &wrapped(&format!("{:INDENT$}fix: {fix}", ""), INDENT + 5, columns);
        }
    }
    let count = |state| parts.iter().filter(|part| part.state == state).count();
    out += &format!(
        "{} ok, {} limited, {} missing\n",
        count(State::Ok),
        count(State::Limited),
        count(State::Missing)
    );
    out
}

/// `line` in lines of at most `columns`, the further ones indented. Long words stay whole: they may be paths.
fn wrapped(line: &str, indent: usize, columns: usize) -> String {
    let start = line.len() - line.trim_start().len();
    let mut out = line[..start].to_owned();
    let mut width = start;
    for (at, word) in line[start..].split(' ').enumerate() {
        let length = word.chars().count();
        if at > 0 && width + 1 + length > columns && width > indent {
            out += "\n";
            out += &" ".repeat(indent);
            width = indent;
        } else if at > 0 {
            out.push(' ');
            width += 1;
        }
        out += word;
        width += length;
    }
    out + "\n"
}

fn json(parts: &[Part]) -> serde_json::Value {
    let list = parts.iter().map(|part| {
        json!({
            "part": part.name,
            "state": part.state.name(),
            "found": part.found,
            "enables": part.enables,
            "fix": part.fix,
            "essential": part.essential,
        })
    });
    json!({"version": 1, "parts": list.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wrapped_and_keep_their_indentation() {
        let line = "missing  lab kernel: no kernel in /home/someone/.cache";
        assert_eq!(
            wrapped(line, 9, 40),
            "missing  lab kernel: no kernel in\n         /home/someone/.cache\n"
        );
        assert_eq!(wrapped("         fix: x", 14, 40), "         fix: x\n");
        assert_eq!(wrapped("ok       a:  b", 9, 40), "ok       a:  b\n");
    }

    #[test]
    fn parts_that_work_take_one_line_and_others_say_what_to_do() {
        let part = |state, fix: Option<&str>| Part {
            name: "MPI",
            state,
            found: "x".to_owned(),
            enables: "record --mpi",
            fix: fix.map(str::to_owned),
            essential: false,
        };
        let list = [part(State::Ok, None), part(State::Missing, Some("do y"))];
        assert_eq!(
            text(&list, 80),
            "ok       MPI: x\nmissing  MPI: x\n         for: record --mpi\n         fix: do y\n\
             1 ok, 0 limited, 1 missing\n"
        );
        assert_eq!(json(&list)["parts"][1]["fix"], "do y");
        assert_eq!(json(&list)["parts"][0]["state"], "ok");
    }
}
