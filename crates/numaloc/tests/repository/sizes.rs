//! Files and functions stay small enough to be read at one sitting: 600 lines a file, 80 lines of code a function.
//!
//! A longer file says why in its head; a longer function is a table, and listed here.

use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a Rust file without a reason in its head.
const LINES: usize = 600;
/// How a head states the reason.
const REASON: &str = "//! Long because ";

/// Lines of code of a function: its body without comments and empty lines, as clippy's `too_many_lines` counts.
const CODE_LINES: usize = 80;

/// Functions that are tables written as code: crate and name.
const TABLES: &[(&str, &str)] = &[("qemu", "always_accesses"), ("report", "figures")];

/// The Rust files below `folder`, without what is built.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                found.extend(sources(&path));
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Whether a file is longer than it says it has to be.
fn is_too_long(text: &str) -> bool {
    let mut head = text.lines().take_while(|line| line.starts_with("//!"));
    text.lines().count() > LINES && !head.any(|line| line.starts_with(REASON))
}

/// Name and lines of code of each function of a file as rustfmt writes it: the body ends where a brace is as far to
/// the right as the head.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let (indent, head) = line.split_at(line.len() - line.trim_start().len());
        let Some(name) = name_of(head) else { continue };
        let is_body =
            |line: &&str| line.ends_with('{') || line.ends_with('}') || line.ends_with(';');
        let Some(body) = lines[at..].iter().position(is_body) else {
            continue;
        };
        if !lines[at + body].ends_with('{') {
            continue;
        }
        let end = format!("{indent}}}");
        let inside = lines[at + body + 1..]
            .iter()
            .take_while(|line| **line != end);
        let code = inside
            .map(|line| line.trim())
            .filter(|line| !line.is_empty() && !line.starts_with("//"));
        found.push((name.to_owned(), code.count()));
    }
    found
}

/// The name of the function that a line declares.
fn name_of(head: &str) -> Option<&str> {
    let mut words = head.split_whitespace();
    let before = |word: &str| {
        let is_modifier = ["const", "async", "unsafe", "extern"].contains(&word);
        is_modifier || word.starts_with("pub") || word.starts_with('"')
    };
    let first = words.find(|word| !before(word))?;
    let name = words.next().filter(|_| first == "fn")?;
    name.split(['(', '<']).next()
}

#[test]
fn a_long_file_needs_a_reason_in_its_head() {
    let lines = "fn f() {}\n".repeat(LINES);
    assert!(!is_too_long(&lines));
    let long = format!("//! Functions.\n{lines}");
    assert!(is_too_long(&long));
    assert!(!is_too_long(&format!(
        "//! Functions.\n//!\n{REASON}of this.\n{lines}"
    )));
    assert!(is_too_long(&format!(
        "//! Functions.\n{lines}{REASON}of this.\n"
    )));
}

#[test]
fn files_have_at_most_600_lines_or_a_reason() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let crates = crates.canonicalize().unwrap();
    let all = sources(&crates);
    assert!(all.len() > 300, "only {} files", all.len());
    let long: Vec<_> = all
        .iter()
        .filter(|path| is_too_long(&fs::read_to_string(path).unwrap()))
        .collect();
    assert!(long.is_empty(), "over {LINES} lines: {long:?}");
}

#[test]
fn the_lines_of_a_function_are_those_of_its_body() {
    let text = "impl A {\n    pub fn f<T>(\n        a: T,\n    ) -> T {\n        // Why.\n\n        if a {\n            1\n        }\n    }\n}\n\
                extern \"C\" fn g();\nfn h() {}\nunsafe fn i() {\n    1\n}\n";
    let found = functions(text);
    assert_eq!(found, [("f".to_owned(), 3), ("i".to_owned(), 1)]);
}

#[test]
fn functions_have_at_most_80_lines_of_code_or_are_tables() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let crates = crates.canonicalize().unwrap();
    let mut long = Vec::new();
    let mut short = TABLES.to_vec();
    for path in sources(&crates) {
        let file = path.strip_prefix(&crates).unwrap();
        let parts: Vec<_> = file.iter().map(|part| part.to_string_lossy()).collect();
        if parts[1] != "src" || file.ends_with("tests.rs") {
            continue;
        }
        for (name, lines) in functions(&fs::read_to_string(&path).unwrap()) {
            if lines <= CODE_LINES {
                continue;
            }
            let function = (&*parts[0], &*name);
            short.retain(|table| *table != function);
            if !TABLES.contains(&function) {
                long.push(format!("{}: {name}, {lines} lines", file.display()));
            }
        }
    }
    assert!(long.is_empty(), "over {CODE_LINES} lines: {long:#?}");
    assert!(short.is_empty(), "listed, but not long: {short:?}");
}
