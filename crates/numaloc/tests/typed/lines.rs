//! The command lines that documentation and help texts show, with the output shown below them.

use std::path::Path;
use std::process::Command;

/// A command line as a user would type it.
pub struct Line {
    /// Page of the documentation, or the command whose help shows it.
    pub page: String,
    pub command: String,
    /// Output that the page shows; empty if it shows none.
    pub shown: Vec<String>,
}

/// All lines of README.md, the documentation and the help texts, page by page in their order.
pub fn all(root: &Path) -> Vec<Line> {
    let mut pages = vec![root.join("README.md")];
    markdown_files(&root.join("docs"), &mut pages);
    pages.sort();
    let mut lines = Vec::new();
    for path in pages {
        let text = std::fs::read_to_string(&path).expect("UTF-8");
        let page = path.strip_prefix(root).expect("below the root");
        of_page(&page.display().to_string(), &text, &mut lines);
    }
    of_help(&[], &mut lines);
    lines
}

fn markdown_files(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            markdown_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// Fenced blocks without a language are command lines: all of them, or those after `$ ` with their output.
fn of_page(page: &str, text: &str, lines: &mut Vec<Line>) {
    let mut blocks = text.split("\n```");
    blocks.next();
    // Every second piece is between two fences.
    for block in blocks.step_by(2) {
        let Some(block) = block.strip_prefix('\n') else {
            continue;
        };
        let has_output = block.lines().any(|line| line.starts_with("$ "));
        for line in block.lines().filter(|line| !line.is_empty()) {
            match line.strip_prefix("$ ") {
                None if has_output => {
                    let last = lines.last_mut().expect("a command above its output");
                    last.shown.push(line.to_owned());
                }
                typed => lines.push(Line {
                    page: page.to_owned(),
                    command: without_remark(typed.unwrap_or(line)),
                    shown: Vec::new(),
                }),
            }
        }
    }
}

/// The examples of `numaloc COMMAND --help`, and of its subcommands.
fn of_help(command: &[&str], lines: &mut Vec<Line>) {
    let output = Command::new(env!("CARGO_BIN_EXE_numaloc"))
        .args(command)
        .arg("--help")
        .output()
        .expect("it runs");
    let help = String::from_utf8(output.stdout).expect("UTF-8");
    let section = |title: &str| {
        let rest = help.split_once(&format!("\n{title}:\n"));
        rest.map_or("", |(_, rest)| rest)
    };
    // A line that ends with a backslash continues on the next.
    let mut parts = section("Examples").split(" \\\n");
    let first = parts.next().expect("a first part").to_owned();
    let examples = parts.fold(first, |all, part| all + " " + part.trim_start());
    for line in examples.lines() {
        // The section ends at the next text that is not indented.
        if !line.is_empty() && !line.starts_with("  ") {
            break;
        }
        if !line.is_empty() {
            lines.push(Line {
                page: format!("numaloc {}", command.join(" ")),
                command: without_remark(line.trim_start()),
                shown: Vec::new(),
            });
        }
    }
    // Those of the tool itself are in groups, each after a title, before the options.
    let list = match command {
        [] => section("Record"),
        _ => section("Commands"),
    };
    let names = list
        .lines()
        .take_while(|line| *line != "Options:")
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|&name| name != "help" && name.bytes().all(|b| b.is_ascii_lowercase()));
    for name in names {
        of_help(&[command, &[name]].concat(), lines);
    }
}

/// A line without the remark after it, which two blanks separate.
fn without_remark(line: &str) -> String {
    line.split("  ").next().expect("a first part").to_owned()
}
