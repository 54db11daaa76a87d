//! No dependency circles between the files of a crate: a file can be read after the files it uses.
//!
//! Reads the sources: paths that begin with `crate`, `super` or `self`, in code outside tests. A path leads to the
//! deepest module with a file of its own. Paths between a module and the modules inside it do not count. The second
//! check compares neighbouring modules, each together with everything inside it: it finds circles that pass through
//! those.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Module = Vec<String>;
type Uses = BTreeMap<Module, BTreeSet<Module>>;

/// Circles that are still there: crate, and the files of one. A circle that loses a file must lose it here too.
const KNOWN: &[(&str, &[&str])] = &[];

/// Circles of neighbouring modules that are still there. They may only shrink.
const KNOWN_ROOMS: &[(&str, &[&str])] = &[
    ("instrument", &["libc", "process", "tsan"]),
    (
        "native",
        &[
            "blocks",
            "cache",
            "crossing",
            "emit",
            "ending",
            "fragment",
            "guest",
            "invalidate",
            "landings",
            "record",
            "signals",
            "state",
            "timestamp",
            "translate",
        ],
    ),
    ("native", &["handover", "loader", "syscalls"]),
    (
        "tasks",
        &[
            "names",
            "objects",
            "observe",
            "placement",
            "plan",
            "scheduler",
            "state",
        ],
    ),
    ("trace", &["cross_process", "engine", "extra", "thread"]),
];

/// The Rust files below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

fn module(source: &Path, file: &Path) -> Module {
    let path = file.strip_prefix(source).unwrap().with_extension("");
    let mut parts: Module = path
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if matches!(
        parts.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        parts.pop();
    }
    parts
}

/// The code of a file without comments and without what follows the head of its tests.
fn code(text: &str) -> String {
    let tests = text
        .find("#[cfg(test)]\nmod tests")
        .or_else(|| text.find("#[cfg(test)]\npub(crate) mod tests"));
    let text = &text[..tests.unwrap_or(text.len())];
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""));
    lines.collect::<Vec<_>>().join("\n")
}

/// The paths in `code` that begin with `crate`, `super` or `self`, groups in braces taken apart one level deep.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let rest = &code[at..];
            let end = rest
                .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
                .unwrap_or(rest.len());
            let (path, group) = (
                rest[..end].trim_end_matches(':'),
                rest[end..].strip_prefix('{'),
            );
            let path: Vec<String> = path.split("::").map(str::to_owned).collect();
            let Some(group) = group.filter(|_| rest[..end].ends_with("::")) else {
                found.push(path);
                continue;
            };
            for name in first_names(group) {
                found.push(path.iter().cloned().chain([name]).collect());
            }
        }
    }
    found
}

/// The first name of each member of a group, which ends at its closing brace.
fn first_names(group: &str) -> Vec<String> {
    let (mut depth, mut names, mut member) = (0, Vec::new(), String::new());
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(std::mem::take(&mut member)),
            _ if depth == 0 => member.push(c),
            _ => {}
        }
    }
    names.push(member);
    let first = |name: &String| name.trim().split("::").next().unwrap_or("").to_owned();
    names
        .iter()
        .map(first)
        .filter(|name| !name.is_empty())
        .collect()
}

/// The module with a file of its own that `path`, in a file of module `from`, leads to.
fn target(path: &[String], from: &Module, modules: &BTreeSet<Module>) -> Option<Module> {
    let mut rest = path.iter().peekable();
    let mut base: Module = match rest.next()?.as_str() {
        "crate" => Vec::new(),
        "self" => from.clone(),
        _ => from[..from.len().saturating_sub(1)].to_vec(),
    };
    while rest.next_if(|part| *part == "super").is_some() {
        base.pop();
    }
    let full: Module = base.iter().cloned().chain(rest.cloned()).collect();
    let deepest = (base.len()..=full.len())
        .rev()
        .map(|end| full[..end].to_vec());
    deepest.into_iter().find(|module| modules.contains(module))
}

/// All modules that can be reached from `start`.
fn reach(start: &Module, uses: &Uses) -> BTreeSet<Module> {
    let (mut open, mut seen) = (vec![start], BTreeSet::new());
    while let Some(module) = open.pop() {
        for next in uses.get(module).into_iter().flatten() {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    seen
}

/// What each module of a crate uses, without paths between a module and those inside it.
fn uses(source: &Path) -> Uses {
    let files: BTreeMap<Module, PathBuf> = sources(source)
        .into_iter()
        .map(|file| (module(source, &file), file))
        .collect();
    let modules: BTreeSet<Module> = files.keys().cloned().collect();
    let mut uses = Uses::new();
    for (module, file) in &files {
        let is_test = module.iter().any(|name| name == "tests");
        let text = if is_test {
            String::new()
        } else {
            fs::read_to_string(file).unwrap()
        };
        let found = paths(&code(&text));
        let targets = found
            .iter()
            .filter_map(|path| target(path, module, &modules));
        let targets =
            targets.filter(|target| !target.starts_with(module) && !module.starts_with(target));
        uses.insert(module.clone(), targets.collect());
    }
    uses
}

/// What neighbouring modules use of each other, by the module that they are in: each counts with everything inside it.
fn rooms(uses: &Uses) -> Vec<Uses> {
    let mut by_parent: BTreeMap<Module, Uses> = BTreeMap::new();
    for (from, targets) in uses {
        for to in targets {
            let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
            let edges = by_parent.entry(from[..common].to_vec()).or_default();
            let room = |module: &Module| module[..=common].to_vec();
            edges.entry(room(from)).or_default().insert(room(to));
        }
    }
    by_parent.into_values().collect()
}

/// Circles: sets of modules each of which leads to all others.
fn circles(uses: &Uses) -> BTreeSet<BTreeSet<String>> {
    let reached: BTreeMap<&Module, BTreeSet<Module>> = uses
        .keys()
        .map(|module| (module, reach(module, uses)))
        .collect();
    let mut found = BTreeSet::new();
    for module in uses.keys() {
        if reached[module].contains(module) {
            let with = uses.keys().filter(|other| {
                reached[module].contains(*other) && reached[other].contains(module)
            });
            found.insert(with.map(|module| module.join("::")).collect());
        }
    }
    found
}

#[test]
fn paths_are_read_as_the_compiler_reads_them() {
    let modules: BTreeSet<Module> = [&[][..], &["a"], &["a", "b"], &["c"]]
        .iter()
        .map(|m| m.iter().map(|s| (*s).to_owned()).collect())
        .collect();
    let of = |text: &str, from: &[&str]| -> Vec<String> {
        let from: Module = from.iter().map(|s| (*s).to_owned()).collect();
        let found = paths(&code(text));
        found
            .iter()
            .filter_map(|path| target(path, &from, &modules))
            .map(|module| module.join("::"))
            .collect()
    };
    assert_eq!(of("use crate::a::b::Thing;", &["c"]), ["a::b"]);
    assert_eq!(of("use crate::{a::{self, b}, c::X};", &["c"]), ["a", "c"]);
    assert_eq!(of("use super::c; // use crate::a::b;", &["a"]), ["c"]);
    assert_eq!(
        of("let x = self::b::f(super::super::c::g());", &["a", "b"]),
        ["c", "a::b"]
    );
    assert_eq!(
        of("#[cfg(test)]\nmod tests { use crate::a; }", &["c"]),
        [""; 0]
    );
    assert_eq!(of("other_crate::a::f()", &["c"]), [""; 0]);
}

/// Circles of all crates.
fn all(
    circles_of: impl Fn(&Uses) -> BTreeSet<BTreeSet<String>>,
) -> BTreeSet<(String, BTreeSet<String>)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(crates).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let circles = circles_of(&uses(&path.join("src")));
        found.extend(circles.into_iter().map(|circle| (name.clone(), circle)));
    }
    found
}

fn listed(known: &[(&str, &[&str])]) -> BTreeSet<(String, BTreeSet<String>)> {
    let circle = |files: &[&str]| files.iter().map(|file| (*file).to_owned()).collect();
    known
        .iter()
        .map(|(name, files)| ((*name).to_owned(), circle(files)))
        .collect()
}

#[test]
fn no_file_uses_what_uses_it() {
    assert_eq!(
        all(circles),
        listed(KNOWN),
        "left: circles found; right: those that are known"
    );
}

#[test]
fn no_folder_uses_what_uses_it() {
    let found = all(|uses| rooms(uses).iter().flat_map(circles).collect());
    assert_eq!(
        found,
        listed(KNOWN_ROOMS),
        "left: circles found; right: those that are known"
    );
}

#[test]
fn a_circle_through_the_inside_of_modules_is_found() {
    let module = |path: &str| -> Module { path.split("::").map(str::to_owned).collect() };
    let uses: Uses = [
        ("a", "b"),
        ("b::inner", "a"),
        ("b", "c"),
        ("c", "d"),
        ("d", "c::inner"),
        ("e", "a"),
    ]
    .map(|(from, to)| (module(from), BTreeSet::from([module(to)])))
    .into();
    assert!(circles(&uses).is_empty());
    let found: Vec<_> = rooms(&uses).iter().flat_map(circles).collect();
    let circle = |names: [&str; 2]| names.map(str::to_owned).into();
    assert_eq!(found, [circle(["a", "b"]), circle(["c", "d"])]);
}
