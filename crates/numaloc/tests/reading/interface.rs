//! The command line as people and scripts use it: JSON objects are as their schemas in docs/formats/json describe them,
//! the page of `show` fits narrow terminals, and a program needs no `--` where nothing is ambiguous.

use crate::support;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{numaloc, ok, root, workload};

/// Checks `value` against `schema`; every deviation is added to `wrong` with its path. Knows the keywords that our
/// schemas use and panics at others, so that no keyword is ignored.
fn check(value: &Value, schema: &Value, path: &str, wrong: &mut Vec<String>) {
    let mut fail = |why: String| wrong.push(format!("{path}: {why}"));
    let number = |keyword: &Value| keyword.as_f64().expect("a number");
    for (keyword, expected) in schema.as_object().expect("a schema is an object") {
        let holds = match keyword.as_str() {
            "$schema"
            | "title"
            | "description"
            | "properties"
            | "items"
            | "additionalProperties" => true,
            "type" => match expected {
                Value::Array(names) => names.iter().any(|name| has_type(value, name)),
                name => has_type(value, name),
            },
            "const" => value == expected,
            "enum" => expected.as_array().expect("a list").contains(value),
            "minimum" => value.as_f64().is_none_or(|value| value >= number(expected)),
            "maximum" => value.as_f64().is_none_or(|value| value <= number(expected)),
            "pattern" => {
                assert_eq!(
                    expected, "^[0-9a-f]{16}$",
                    "the one pattern that this test knows"
                );
                let text = value.as_str().unwrap_or_default();
                text.len() == 16
                    && text
                        .bytes()
                        .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
            }
            "required" => expected.as_array().expect("a list").iter().all(|name| {
                let name = name.as_str().expect("a name");
                value
                    .as_object()
                    .is_none_or(|object| object.contains_key(name))
            }),
            other => panic!("{path}: the test does not know the keyword {other}"),
        };
        if !holds {
            fail(format!("{value} is not: {keyword} {expected}"));
        }
    }
    if let Value::Object(fields) = value {
        for (name, field) in fields {
            let below = format!("{path}.{name}");
            match (&schema["properties"][name], &schema["additionalProperties"]) {
                (Value::Null, Value::Bool(true)) => {}
                (Value::Null, rest @ Value::Object(_)) => check(field, rest, &below, wrong),
                (Value::Null, _) => wrong.push(format!("{below}: not described")),
                (described, _) => check(field, described, &below, wrong),
            }
        }
    }
    if let (Value::Array(items), schema @ Value::Object(_)) = (value, &schema["items"]) {
        for (at, item) in items.iter().enumerate() {
            check(item, schema, &format!("{path}[{at}]"), wrong);
        }
    }
}

fn has_type(value: &Value, name: &Value) -> bool {
    match name.as_str().expect("a name") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        other => panic!("unknown type {other}"),
    }
}

fn schema(name: &str) -> Value {
    let path = root().join(format!("docs/formats/json/{name}.schema.json"));
    let text = std::fs::read_to_string(path).expect("a schema");
    serde_json::from_str(&text).expect("JSON")
}

/// The deviations of `text` from the schema of a command.
fn deviations(name: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let value = serde_json::from_str(text).expect("JSON");
    check(&value, &schema(name), name, &mut wrong);
    wrong
}

fn none(name: &str, text: &str) {
    assert_eq!(deviations(name, text), [] as [String; 0]);
}

/// Runs `numaloc` in `folder` and returns its standard output.
fn run(folder: &Path, args: &[&str]) -> String {
    ok(numaloc(args)
        .current_dir(folder)
        .env("OMP_NUM_THREADS", "2"))
}

#[test]
fn outputs_of_commands_are_as_their_schemas_describe_them() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let program = workload("ring");
    let program = program.to_str().unwrap();
    // The object goes to a file, the program's output to standard output.
    let printed = run(
        here,
        &["record", "--json=record.json", "-o", "p.numaloc", program],
    );
    assert!(printed.starts_with("ring: 2 threads"), "{printed}");
    let file = |name: &str| std::fs::read_to_string(here.join(name)).unwrap();
    none("record", &file("record.json"));
    let repeated = run(
        here,
        &[
            "record",
            "--json",
            "--repeat",
            "2",
            "-o",
            "r.numaloc",
            "--",
            "true",
        ],
    );
    none("record", &repeated);
    none(
        "export",
        &run(here, &["--json", "export", "p.numaloc", "-o", "p.csv"]),
    );
    for machine in ["this", "epyc-7501", "cxl-2s"] {
        none(
            "topology",
            &run(here, &["topology", "--json", "--machine", machine]),
        );
    }
    none("machines", &run(here, &["machines", "--json"]));
    run(
        here,
        &[
            "record",
            "-q",
            "--trace",
            "-o",
            "t.numaloc",
            "--",
            program,
            "512",
            "4",
        ],
    );
    let simulate = ["simulate", "--json", "t.numaloc", "--machine", "purple"];
    let few = [
        "--threads",
        "os,scatter",
        "--pages",
        "first-touch",
        "--draws",
        "2",
    ];
    none("simulate", &run(here, &[&simulate[..], &few].concat()));
    let sampled = [
        "--threads",
        "scatter",
        "--pages",
        "locality",
        "--sample",
        "50%",
        "--sensitivity",
    ];
    none("simulate", &run(here, &[&simulate[..], &sampled].concat()));
    none(
        "advise",
        &run(
            here,
            &["advise", "--json", "t.numaloc", "--machine", "purple"],
        ),
    );
    run(
        here,
        &[
            "plan",
            "p.numaloc",
            "--anyway",
            "--threads",
            "numaloc",
            "-o",
            "plan.json",
        ],
    );
    let printed = run(
        here,
        &["run", "--json=run.json", "--plan", "plan.json", program],
    );
    assert!(printed.starts_with("ring: 2 threads"), "{printed}");
    none("run", &file("run.json"));
    let compare = [
        "compare",
        "--json",
        "--plan",
        "plan.json",
        "--runs",
        "2",
        program,
    ];
    none("compare", &run(here, &compare));
    let validate = [
        "validate",
        "--json",
        "--quick",
        "--seconds",
        "0.02",
        "--kernels",
        "triad",
        "--variants",
        "pinned,plan,online",
        "-o",
        "v.html",
    ];
    none("validate", &run(here, &validate));
    let own = std::process::id().to_string();
    none(
        "top",
        &run(here, &["top", "--json", "--interval", "50ms", &own]),
    );
    let window = [
        "record",
        "--json",
        "--attach",
        &own,
        "--for",
        "300ms",
        "-o",
        "w.numaloc",
    ];
    none("record", &run(here, &window));
    let doctor = numaloc(&["doctor", "--json"]).output().unwrap();
    none("doctor", &String::from_utf8(doctor.stdout).unwrap());
}

#[test]
fn a_wrong_type_a_missing_field_and_an_unknown_field_are_found() {
    let good = r#"{"version": 1, "file": "x.csv", "size_bytes": 4}"#;
    none("export", good);
    for bad in [
        r#"{"version": 2, "file": "x.csv", "size_bytes": 4}"#,
        r#"{"version": 1, "file": 3, "size_bytes": 4}"#,
        r#"{"version": 1, "file": "x.csv", "size_bytes": -4}"#,
        r#"{"version": 1, "file": "x.csv"}"#,
        r#"{"version": 1, "file": "x.csv", "size_bytes": 4, "more": 1}"#,
        r"[]",
    ] {
        assert_eq!(deviations("export", bad).len(), 1, "{bad}");
    }
}

#[test]
fn every_schema_is_listed_and_every_field_has_a_description() {
    fn described(schema: &Value, path: &str) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            assert!(field["description"].is_string(), "{path}");
            described(field, &path);
        }
        if schema["items"].is_object() {
            described(&schema["items"], path);
        }
    }
    let page = std::fs::read_to_string(root().join("docs/formats/json.md")).unwrap();
    let mut count = 0;
    for entry in std::fs::read_dir(root().join("docs/formats/json")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(page.contains(&format!("(json/{name})")), "{name}");
        described(&schema(name.trim_end_matches(".schema.json")), &name);
        count += 1;
    }
    assert!(count >= 11, "{count}");
}

#[test]
fn a_json_file_that_cannot_be_written_is_reported_before_the_program_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = numaloc(&[
        "record",
        "--json=no/such/folder/x.json",
        "--",
        "touch",
        "ran",
    ]);
    let message = support::fails(command.current_dir(folder.path()), 125);
    assert!(message.contains("no/such/folder/x.json"), "{message}");
    assert!(!folder.path().join("ran").exists());
}

#[test]
fn a_program_needs_no_dashes_unless_its_options_are_ours_too() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let run = |args: &[&str]| {
        let mut command: Command = numaloc(args);
        command.current_dir(here);
        command
    };
    ok(&mut run(&[
        "record",
        "-o",
        "a.numaloc",
        "sort",
        "--version",
    ]));
    assert!(here.join("a.numaloc/meta.json").is_file());
    let message = support::fails(&mut run(&["record", "sort", "-o", "b", "/dev/null"]), 2);
    assert!(message.contains("-o follows the program sort"), "{message}");
    assert!(
        message.contains("numaloc record -- sort -o b /dev/null"),
        "{message}"
    );
    assert!(!here.join("b").exists());
    ok(&mut run(&["record", "--", "sort", "-o", "b", "/dev/null"]));
    assert!(here.join("b").is_file() && here.join("sort.numaloc").is_dir());
}

#[test]
fn the_page_of_show_fits_terminals_that_are_narrower_than_80_columns() {
    let folder = tempfile::tempdir().unwrap();
    let program = workload("ring");
    run(
        folder.path(),
        &[
            "record",
            "--quiet",
            "-o",
            "p.numaloc",
            program.to_str().unwrap(),
        ],
    );
    for columns in [48, 60, 79] {
        // `script` gives the program a terminal.
        let line = format!(
            "stty cols {columns}; {} show --all p.numaloc",
            env!("CARGO_BIN_EXE_numaloc")
        );
        let page = ok(Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .current_dir(folder.path())
            .env("NO_COLOR", "1"));
        assert!(
            page.contains("Verdict") && page.contains("Run next"),
            "{page}"
        );
        let mut inside_commands = false;
        for line in page.lines().map(|line| line.trim_end_matches('\r')) {
            // Commands are not cut: the program's path is one long word.
            inside_commands |= line == "Run next";
            inside_commands &= !line.is_empty();
            let width = line.chars().count();
            assert!(
                inside_commands || width <= columns,
                "{width} > {columns}: {line}"
            );
        }
    }
}

#[test]
fn one_thread_is_not_threads_and_few_accesses_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let output = numaloc(&["record", "-o", "p.numaloc", "--", "true"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(" 1 thread, "), "{said}");
    assert!(!said.contains(" 0.0 M"), "{said}");
    let page = run(folder.path(), &["show", "p.numaloc", "--all"]);
    assert!(page.contains("\n1 thread, "), "{page}");
    std::fs::write(
        folder.path().join("bad.mtx"),
        "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 x 3\n",
    )
    .unwrap();
    let mut import = numaloc(&["import", "bad.mtx", "-o", "m.numaloc"]);
    let message = support::fails(import.current_dir(folder.path()), 1);
    assert!(message.contains(": found \"x\", expected "), "{message}");
}

#[test]
fn a_machine_is_drawn_as_boxes() {
    let shown = ok(&mut numaloc(&[
        "topology",
        "--picture",
        "--machine",
        "numa4x4",
    ]));
    let widths: Vec<usize> = shown.lines().map(|line| line.chars().count()).collect();
    assert!(
        widths.len() > 4 && widths.iter().all(|width| *width == widths[0]),
        "{shown}"
    );
    assert_eq!(shown.matches("node L#").count(), 4, "{shown}");
    assert_eq!(shown.matches("Core L#").count(), 16, "{shown}");
}
