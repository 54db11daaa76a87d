//! Mistaken command lines and their answers, in `mistaken.txt`: an answer is one line that says what is wrong, and says
//! what to do where that is known. `make mistaken` writes the file again. What holds for every answer, and for every
//! help text, is tested too.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::{fails, numaloc, ok, root};

/// Writes the file again instead of comparing.
const UPDATE: &str = "NUMALOC_UPDATE";
/// Lines that the file has at least.
const LEAST: usize = 100;
/// Lines of the longest `-h`.
const SHORT_HELP: usize = 60;

fn file() -> PathBuf {
    root().join("crates/numaloc/tests/reading/mistaken.txt")
}

/// A folder with the files that the lines name.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("m.csv"), "0,5,1,0\n5,0,2,1\n1,2,0,9\n0,1,9,0\n").unwrap();
    std::fs::write(at.join("bad.csv"), "0,5\n1,x\n").unwrap();
    std::fs::write(at.join("notes.txt"), "a text\n").unwrap();
    std::fs::write(at.join("bad.json"), "{\n").unwrap();
    std::fs::copy("/bin/true", at.join("app")).unwrap();
    ok(numaloc(&["import", "m.csv", "-o", "app.numaloc"]).current_dir(at));
    let machine = "numa:2 core:2 pu:1";
    ok(numaloc(&[
        "plan",
        "app.numaloc",
        "--machine",
        machine,
        "-o",
        "plan.json",
    ])
    .current_dir(at));
    folder
}

/// What the shell shows for a line, with its exit status.
fn answer(folder: &Path, line: &str) -> String {
    let tool = assert_cmd::cargo::cargo_bin("numaloc");
    let script = format!("numaloc() {{ '{}' \"$@\"; }}\n{line}", tool.display());
    let mut command = std::process::Command::new("bash");
    command.args(["-c", &script]).current_dir(folder);
    command
        .stdin(std::process::Stdio::null())
        .env("COLUMNS", "100");
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
    let done = command.output().unwrap();
    let said = [done.stdout, done.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    let status = done.status.code().unwrap_or(-1);
    said.replace(&folder.display().to_string(), "FOLDER") + &format!("[{status}]\n")
}

fn lines(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| line.strip_prefix("$ "))
        .collect()
}

/// What is wrong with a text for people.
fn faults(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in [
        "(os error",
        "-0.0 %",
        "\u{fffd}",
        " 1 threads",
        " 1 pages",
        " 1 nodes",
        "  try: try",
    ] {
        if text.contains(part) {
            found.push(format!("it has {part:?}"));
        }
    }
    for line in text.lines() {
        // Code may have a word twice.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let words: Vec<&str> = prose.split(' ').filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let is_word = pair[0].len() > 2 && pair[0].bytes().all(|b| b.is_ascii_lowercase());
            if is_word && pair[0] == pair[1] {
                found.push(format!("{} twice in {line:?}", pair[0]));
            }
        }
    }
    found
}

#[test]
fn mistaken_command_lines_have_the_answers_of_the_file() {
    let known = std::fs::read_to_string(file()).unwrap();
    let folder = folder();
    let mut now = String::new();
    for line in lines(&known) {
        now += &format!("$ {line}\n{}\n", answer(folder.path(), line));
    }
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(file(), &now).unwrap();
        return;
    }
    let (known, now): (Vec<&str>, Vec<&str>) =
        (known.split("\n$ ").collect(), now.split("\n$ ").collect());
    let differ = known.iter().zip(&now).filter(|(a, b)| a != b);
    let differ: Vec<String> = differ.map(|(a, b)| format!("was: {a}\nis:  {b}")).collect();
    assert!(
        differ.is_empty(),
        "{}\nmake mistaken updates the file",
        differ.join("\n")
    );
}

#[test]
fn every_answer_is_an_error_of_a_few_lines() {
    let text = std::fs::read_to_string(file()).unwrap();
    let distinct: BTreeSet<&str> = lines(&text).into_iter().collect();
    assert!(distinct.len() >= LEAST, "{} lines", distinct.len());
    assert_eq!(faults(&text), [] as [String; 0]);
    for entry in text.split("\n$ ") {
        let answer: Vec<&str> = entry
            .lines()
            .skip(1)
            .filter(|line| !line.is_empty())
            .collect();
        let (status, said) = answer.split_last().unwrap();
        assert_ne!(*status, "[0]", "{entry}");
        assert!(
            said.first().is_some_and(|line| line.starts_with("error: ")),
            "{entry}"
        );
        let rest = &said[1..];
        let form = |line: &&str| line.starts_with("  expected: ") || line.starts_with("  try: ");
        assert!(rest.len() <= 2 && rest.iter().all(form), "{entry}");
    }
}

#[test]
fn faults_are_found() {
    for text in [
        "No such file (os error 2)",
        "-0.0 % more",
        "the the end",
        "has 1 threads",
        "a\u{fffd}b",
    ] {
        assert_eq!(faults(text).len(), 1, "{text}");
    }
    assert_eq!(faults("no faults: 11 threads, --x x"), [] as [String; 0]);
}

/// Every command with its subcommands, by what their help lists.
fn commands(words: &[String], found: &mut Vec<Vec<String>>) {
    let help = help(words, "--help");
    let list = match words {
        [] => "\nRecord:\n",
        _ => "\nCommands:\n",
    };
    found.push(words.to_vec());
    let list = help.split_once(list).map_or("", |(_, list)| list);
    let list = list.split("\nOptions:\n").next().unwrap_or_default();
    for line in list
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
    {
        let name = line.split_whitespace().next().unwrap();
        if name != "help" && name.bytes().all(|b| b.is_ascii_lowercase()) {
            commands(&[words, &[name.to_owned()]].concat(), found);
        }
    }
}

fn help(words: &[String], option: &str) -> String {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    ok(numaloc(&words).arg(option).env("COLUMNS", "100"))
}

#[test]
fn help_texts_are_without_faults_and_h_is_short() {
    let mut all = Vec::new();
    commands(&[], &mut all);
    assert!(all.len() > 25, "{all:?}");
    for words in all {
        let (short, long) = (help(&words, "-h"), help(&words, "--help"));
        for text in [&short, &long] {
            assert_eq!(faults(text), [] as [String; 0], "{words:?}");
            let wide: Vec<&str> = text
                .lines()
                .filter(|line| line.chars().count() > 120)
                .collect();
            assert!(wide.is_empty(), "{words:?}: {wide:#?}");
        }
        let count = short.lines().count();
        assert!(
            count <= SHORT_HELP,
            "{words:?} -h has {count} lines:\n{short}"
        );
        assert!(count <= long.lines().count(), "{words:?}");
    }
}

#[test]
fn commands_are_in_groups() {
    let help = help(&[], "-h");
    let at = |title: &str| {
        help.find(title)
            .unwrap_or_else(|| panic!("no {title}:\n{help}"))
    };
    let titles = [
        "\nRecord:\n",
        "\nUnderstand:\n  show ",
        "\nPlace:\n",
        "\nProve:\n",
        "\nShare:\n",
    ];
    let places: Vec<usize> = titles.into_iter().map(at).collect();
    assert!(places.is_sorted(), "{help}");
    let said = fails(&mut numaloc(&["shwo"]), 2);
    assert!(said.ends_with("  try: show\n"), "{said}");
}
