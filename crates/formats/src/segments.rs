//! Rules that name segments (`segments/*.toml`, `docs/formats/segments.md`): read, checked, and those that are built
//! in.

use std::ops::Range;
use std::path::{Path, PathBuf};

use numaloc_model::profile::ObjectKind;
use numaloc_model::segments::{Pattern, SegmentRule, bytes};
use serde::Deserialize;

/// Largest file of rules that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Most rules of a file.
const MAX_RULES: usize = 1000;
/// Most files of a folder.
const MAX_FILES: usize = 100;
/// Most characters of a segment's name.
const MAX_NAME: usize = 80;
/// Most characters of a pattern, and of the sentence about a switch.
const MAX_TEXT: usize = 400;
/// The version of the format.
const VERSION: u32 = 1;

/// The built-in rules, in the order in which they are tried.
const BUILT_IN: &[(&str, &str)] = &[
    (
        "databases",
        include_str!("../../../segments/databases.toml"),
    ),
    ("hotspot", include_str!("../../../segments/hotspot.toml")),
    ("python", include_str!("../../../segments/python.toml")),
    ("v8", include_str!("../../../segments/v8.toml")),
    (
        "inference",
        include_str!("../../../segments/inference.toml"),
    ),
    (
        "allocators",
        include_str!("../../../segments/allocators.toml"),
    ),
    ("general", include_str!("../../../segments/general.toml")),
];

/// Why rules cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentsError {
    /// The file or folder cannot be read.
    #[error("cannot read segment rules {path}: {why}")]
    Read {
        /// The file or folder.
        path: String,
        /// The system's error.
        why: String,
    },
    /// The file is not a file of rules.
    #[error("segment rules {path}{place}: {found}")]
    Rules {
        /// The file.
        path: String,
        /// The line or the rule: `, line 3`; empty if it is the file as a whole.
        place: String,
        /// What was found, and what was expected.
        found: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    #[serde(default)]
    segment: Vec<toml::Spanned<Row>>,
}

/// A rule as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    #[serde(default)]
    loaded: Vec<String>,
    #[serde(default)]
    kinds: Vec<String>,
    #[serde(default)]
    memory: Vec<String>,
    #[serde(default)]
    parts: Vec<String>,
    at_least: Option<String>,
    at_most: Option<String>,
    below: Option<String>,
    #[serde(default)]
    options: Vec<String>,
    #[serde(default)]
    largest: bool,
    #[serde(default)]
    general: bool,
    switch: Option<String>,
}

/// The built-in rules.
///
/// # Panics
/// Never: a test reads each.
#[must_use]
pub fn built_in() -> Vec<SegmentRule> {
    let files = BUILT_IN.iter();
    let rules = files.map(|(name, text)| rules(text, name).expect("built-in rules are valid"));
    rules.flatten().collect()
}

/// The rules of a file, or of the files `*.toml` of a folder by name.
///
/// # Errors
/// [`SegmentsError`] says what was found in which file.
pub fn read(path: &Path) -> Result<Vec<SegmentRule>, SegmentsError> {
    if path.is_dir() {
        let mut rules = Vec::new();
        for file in files_of(path)? {
            rules.extend(read_file(&file)?);
        }
        return Ok(rules);
    }
    read_file(path)
}

fn unread(path: &Path, why: impl ToString) -> SegmentsError {
    SegmentsError::Read {
        path: path.display().to_string(),
        why: why.to_string(),
    }
}

fn files_of(folder: &Path) -> Result<Vec<PathBuf>, SegmentsError> {
    let fail = |error| unread(folder, error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.extension().is_some_and(|ext| ext == "toml") {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            let why = format!("more than {MAX_FILES} .toml files");
            return Err(unread(folder, why));
        }
    }
    files.sort();
    Ok(files)
}

fn read_file(path: &Path) -> Result<Vec<SegmentRule>, SegmentsError> {
    let text = numaloc_files::input::read_text(path, MAX_BYTES);
    let text = text.map_err(|error| unread(path, error))?;
    rules(&text, &path.display().to_string())
}

/// The rules in `text`, the content of `path`.
fn rules(text: &str, path: &str) -> Result<Vec<SegmentRule>, SegmentsError> {
    let wrong = |span: Option<Range<usize>>, found: String| SegmentsError::Rules {
        path: path.to_owned(),
        place: span.map_or_else(String::new, |span| {
            let before = text.as_bytes().iter().take(span.start);
            format!(
                ", line {}",
                before.filter(|&&byte| byte == b'\n').count() + 1
            )
        }),
        found,
    };
    let file: File = toml::from_str(text).map_err(|error| {
        let message = error.message().replace(char::is_control, " ");
        wrong(error.span(), message)
    })?;
    if file.version != VERSION {
        let found = format!("version {}, expected {VERSION}", file.version);
        return Err(wrong(None, found));
    }
    if file.segment.len() > MAX_RULES {
        let found = format!("{} rules, expected at most {MAX_RULES}", file.segment.len());
        return Err(wrong(None, found));
    }
    let rows = file.segment.into_iter();
    rows.map(|row| {
        let span = row.span();
        rule(row.into_inner()).map_err(|found| wrong(Some(span), found))
    })
    .collect()
}

/// The rule of a row; an error says what was found and expected.
fn rule(row: Row) -> Result<SegmentRule, String> {
    let text = |field: &str, text: String, most: usize| {
        let length = text.chars().count();
        if length == 0 || length > most || text.contains(char::is_control) {
            let found = format!("{field} has {length} characters");
            return Err(format!("{found}, expected 1 to {most} printable ones"));
        }
        Ok(text)
    };
    let patterns = |field: &str, given: Vec<String>| {
        let given = given.into_iter().map(|one| text(field, one, MAX_TEXT));
        given
            .map(|one| one.map(Pattern::new))
            .collect::<Result<Vec<_>, _>>()
    };
    let size = |field: &str, given: Option<String>, otherwise: u64| match given {
        None => Ok(otherwise),
        Some(given) => bytes(&given).ok_or_else(|| {
            let given: String = given.chars().take(MAX_NAME).collect();
            format!("{field} is {given:?}, expected a size such as 4096, 64K, 2M or 1G")
        }),
    };
    let kind = |name: &String| {
        ObjectKind::from_name(name).ok_or_else(|| {
            let name: String = name.chars().take(MAX_NAME).collect();
            let known = ObjectKind::ALL.map(ObjectKind::name).join(", ");
            format!("kinds has {name:?}, expected {known}")
        })
    };
    let options = row.options.into_iter();
    let options = options.map(|one| text("options", one, MAX_NAME));
    let found = SegmentRule {
        name: text("name", row.name, MAX_NAME)?,
        loaded: patterns("loaded", row.loaded)?,
        kinds: row.kinds.iter().map(kind).collect::<Result<_, _>>()?,
        memory: patterns("memory", row.memory)?,
        parts: patterns("parts", row.parts)?,
        at_least: size("at_least", row.at_least, 0)?,
        at_most: size("at_most", row.at_most, u64::MAX)?,
        below: size("below", row.below, u64::MAX)?,
        options: options.collect::<Result<_, _>>()?,
        is_largest: row.largest,
        is_general: row.general,
        switch: row
            .switch
            .map(|one| text("switch", one, MAX_TEXT))
            .transpose()?,
    };
    if found.at_least > found.at_most {
        return Err("at_least is more than at_most".to_owned());
    }
    if found.is_largest && !found.parts.is_empty() {
        return Err("largest and parts, expected one of them: parts have no largest".to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_rule_is_valid_and_says_what_it_names() {
        let all = built_in();
        assert!(all.len() > 20, "{}", all.len());
        for rule in &all {
            // Only general rules hold for memory of any program.
            let is_of_program = !rule.loaded.is_empty() || !rule.memory.is_empty();
            assert!(
                is_of_program || !rule.parts.is_empty() || rule.is_general,
                "{rule:?}"
            );
        }
        // Whatever an object is, it belongs to a segment.
        let last = all.iter().rev().take_while(|rule| rule.is_general);
        assert!(last.count() >= 5);
    }

    #[test]
    fn a_rule_has_all_its_conditions() {
        let text = r#"
version = 1
[[segment]]
name = "pool"
loaded = ["mariadbd", "mysqld*"]
kinds = ["mapping", "shared"]
memory = ["[anon]"]
at_least = "64M"
at_most = "2G"
below = "4096"
options = ["--pool="]
largest = true
switch = "innodb_numa_interleave=1 interleaves it."
"#;
        let found = rules(text, "pool.toml").unwrap();
        let expected = SegmentRule {
            loaded: ["mariadbd", "mysqld*"].map(Pattern::new).to_vec(),
            kinds: vec![ObjectKind::Mapping, ObjectKind::Shared],
            memory: vec![Pattern::new("[anon]")],
            at_least: 64 << 20,
            at_most: 2 << 30,
            below: 4096,
            options: vec!["--pool=".to_owned()],
            is_largest: true,
            switch: Some("innodb_numa_interleave=1 interleaves it.".to_owned()),
            ..SegmentRule::named("pool")
        };
        assert_eq!(found, [expected]);
    }

    #[test]
    fn what_is_no_file_of_rules_is_refused_in_one_line() {
        let segment = |line: &str| format!("version = 1\n[[segment]]\nname = \"a\"\n{line}\n");
        let many = "version = 1\n".to_owned() + &"[[segment]]\nname = \"a\"\n".repeat(1001);
        for (text, expected) in [
            (String::new(), "missing field `version`"),
            ("version = 2\n".to_owned(), "version 2, expected 1"),
            ("version = 1\nsegment = 3\n".to_owned(), "line 2"),
            (
                "version = 1\n[[segment]]\n".to_owned(),
                "missing field `name`",
            ),
            (segment("nonsense = 1"), "line 4: unknown field `nonsense`"),
            (
                segment("kinds = [\"page\"]"),
                "kinds has \"page\", expected static, heap",
            ),
            (
                segment("at_least = \"2 MB\""),
                "at_least is \"2 MB\", expected a size",
            ),
            (segment("at_most = \"99999999999G\""), "at_most is"),
            (
                segment("at_least = \"2M\"\nat_most = \"1M\""),
                "at_least is more than at_most",
            ),
            (
                segment("largest = true\nparts = [\"x\"]"),
                "parts have no largest",
            ),
            (segment("memory = [\"\"]"), "memory has 0 characters"),
            (
                segment("switch = \"\\u001b[2J\""),
                "expected 1 to 400 printable ones",
            ),
            (
                format!("version = 1\n[[segment]]\nname = \"{}\"", "x".repeat(81)),
                "name has 81",
            ),
            ("version = 1\n\u{7}".to_owned(), "line 2"),
            (many, "1001 rules, expected at most 1000"),
        ] {
            let error = rules(&text, "rules.toml").unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
            assert!(error.starts_with("segment rules rules.toml"), "{error}");
            assert!(!error.contains(char::is_control), "{error:?}");
        }
    }

    #[test]
    fn a_folder_has_the_rules_of_its_files_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        for (file, name) in [("b.toml", "second"), ("a.toml", "first"), ("c.txt", "none")] {
            let text = format!("version = 1\n[[segment]]\nname = \"{name}\"\n");
            std::fs::write(folder.path().join(file), text).unwrap();
        }
        let found = read(folder.path()).unwrap();
        let names: Vec<&str> = found.iter().map(|rule| &*rule.name).collect();
        assert_eq!(names, ["first", "second"]);
        let missing = read(&folder.path().join("d.toml")).unwrap_err();
        assert!(
            missing
                .to_string()
                .starts_with("cannot read segment rules ")
        );
    }
}
