//! Every command has its page, its examples, and its place in the table of contents.

use std::path::Path;
use std::process::Command;

use numaloc_plan::registry::{Kind, Place, entries};

fn help(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_numaloc"))
        .args(args)
        .arg("--help")
        .output()
        .expect("it runs");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn commands() -> Vec<String> {
    let text = help(&[]);
    // Groups of commands stand between the usage and the options.
    let list = text.split("\nRecord:").nth(1).expect("a list of commands");
    list.lines()
        .take_while(|line| !line.starts_with("Options:"))
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .map(|line| line.split_whitespace().next().expect("a name").to_owned())
        .filter(|name| name != "help")
        .collect()
}

#[test]
fn every_command_is_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let contents = std::fs::read_to_string(root.join("docs/SUMMARY.md")).expect("it is there");
    let commands = commands();
    assert!(commands.len() >= 5, "found only {commands:?}");
    for name in commands {
        // `machines` shares the page of `topology`.
        let page = match &name[..] {
            "machines" => "commands/topology.md".to_owned(),
            other => format!("commands/{other}.md"),
        };
        assert!(
            root.join("docs").join(&page).is_file(),
            "docs/{page} is missing"
        );
        assert!(
            contents.contains(&page),
            "docs/SUMMARY.md does not list {page}"
        );
        assert!(
            name == "machines" || help(&[&name]).contains("Examples:"),
            "`numaloc {name} --help` shows no examples"
        );
    }
}

#[test]
fn pages_say_what_replaces_an_output_and_what_goes_to_standard_output() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands");
    let commands = commands();
    let mut with_output: Vec<Vec<&str>> = commands.iter().map(|name| vec![&name[..]]).collect();
    with_output.extend([
        vec!["lab", "topology"],
        vec!["tasks", "profile"],
        vec!["tasks", "analyse"],
        vec!["tasks", "run"],
    ]);
    let mut replace = 0;
    for command in with_output {
        let help = help(&command);
        let Ok(page) = std::fs::read_to_string(root.join(format!("{}.md", command[0]))) else {
            assert_eq!(command, ["machines"]);
            continue;
        };
        if help.contains("--force ") || help.contains("--force\n") {
            replace += 1;
            assert!(page.contains("`--force`"), "{command:?}");
        }
    }
    assert!(replace >= 10, "{replace}");
    for name in [
        "export", "topology", "ranks", "plan", "report", "lab", "tasks",
    ] {
        let page = std::fs::read_to_string(root.join(format!("{name}.md"))).expect("a page");
        assert!(page.contains("`-o -`") || page.contains("(`-`: "), "{name}");
    }
}

#[test]
fn every_link_of_the_documentation_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![root.join("docs")];
    let mut broken = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "md") {
                let text = std::fs::read_to_string(&path).expect("UTF-8");
                for link in text
                    .split("](")
                    .skip(1)
                    .filter_map(|rest| rest.split(')').next())
                {
                    let target = link.split('#').next().unwrap_or_default();
                    if !target.is_empty()
                        && !target.contains("://")
                        && !path.parent().expect("a folder").join(target).exists()
                    {
                        broken.push(format!("{}: {link}", path.display()));
                    }
                }
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn help_of_commands_with_policies_has_a_line_for_each() {
    for (command, place) in [
        ("map", Place::Matrix),
        ("plan", Place::Profile),
        ("simulate", Place::Simulation),
    ] {
        let help = help(&[command]);
        for kind in [Kind::Threads, Kind::Pages] {
            for entry in entries(kind, place) {
                let start = format!("{:<12} {} ({}", entry.name, entry.summary, entry.source);
                let mut lines = help.lines().map(str::trim_start);
                assert!(
                    lines.any(|line| line.starts_with(&start) && line.ends_with(')')),
                    "{command}: {start}"
                );
            }
        }
    }
}

#[test]
fn the_demo_installs_and_builds_only_what_it_uses() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let made = Command::new("make")
        .args(["--dry-run", "demo"])
        .current_dir(&root)
        .output()
        .expect("make runs");
    let steps = String::from_utf8(made.stdout).expect("UTF-8");
    let installs = steps
        .lines()
        .filter(|step| step.contains("install-packages"));
    assert_eq!(
        installs.collect::<Vec<_>>(),
        ["make/install-packages make/demo.packages"]
    );
    let builds: Vec<&str> = steps
        .lines()
        .filter(|step| step.contains(" build "))
        .collect();
    assert!(
        builds.len() == 1 && builds[0].contains("--bin numaloc "),
        "{builds:?}"
    );
}

/// The names in the first column of the first table of a page.
fn first_column(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(page);
    let text = std::fs::read_to_string(path).expect("a page");
    let lines = text.lines().skip_while(|line| !line.starts_with("| `"));
    lines
        .take_while(|line| line.starts_with("| `"))
        .map(|line| line.split('`').nth(1).expect("a name").to_owned())
        .collect()
}

#[test]
fn pages_on_policies_list_those_there_are() {
    let listed = |kind, place| -> Vec<String> {
        let entries = entries(kind, place).into_iter();
        entries.map(|entry| entry.name.to_owned()).collect()
    };
    let threads = listed(Kind::Threads, Place::Matrix);
    assert_eq!(first_column("policies-threads.md"), threads);
    let pages = listed(Kind::Pages, Place::Profile);
    assert_eq!(first_column("policies-pages.md"), pages);
}

/// The text of all our Rust sources, without the line breaks inside of string literals.
fn sources(folder: &Path, all: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            let text = std::fs::read_to_string(&path).expect("UTF-8");
            let mut parts = text.split("\\\n");
            all.push_str(parts.next().unwrap_or_default());
            for part in parts {
                all.push_str(part.trim_start());
            }
        }
    }
}

#[test]
fn troubleshooting_quotes_messages_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/troubleshooting.md")).expect("a page");
    let mut all = String::new();
    for entry in std::fs::read_dir(root.join("crates")).expect("a folder") {
        let source = entry.expect("an entry").path().join("src");
        sources(&source, &mut all);
    }
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let messages: Vec<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    assert!(messages.len() >= 20, "{}", messages.len());
    for message in messages {
        for part in message
            .split("...")
            .map(|part| part.trim_matches([' ', '(']))
        {
            assert!(all.contains(part), "{message}: no source has {part:?}");
        }
    }
}
