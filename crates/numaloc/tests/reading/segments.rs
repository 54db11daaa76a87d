//! Memory has the names that people use for it: built-in rules, those of a file, and those of the user's folder.

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use numaloc_model::pages::{PageHead, ThreadAccess};
use numaloc_model::profile::{Clock, Meta, Object, ObjectKind, ProfileBuilder, Slice, Thread};
use numaloc_model::{ObjectIdx, PageNumber, ThreadIdx};
use serde_json::Value;

/// A server with two backends, as PostgreSQL's objects are recorded: kind, name, bytes, thread.
const OBJECTS: [(ObjectKind, &str, u64, u32); 5] = [
    (ObjectKind::Static, "postgres:.data", 4096, 0),
    (ObjectKind::Shared, "[anon]", 64 << 20, 0),
    (ObjectKind::Shared, "PostgreSQL.17", 1 << 20, 0),
    (ObjectKind::Heap, "[heap]", 0, 1),
    (ObjectKind::Mapping, "[anon]", 1 << 20, 2),
];

/// A page of each object, which all threads use.
fn server(folder: &Path) {
    let mut tables = ProfileBuilder::new(Meta::new("test", Clock::Virtual), 4096);
    tables.threads = ["0", "0/1", "0/2"].map(Thread::new).to_vec();
    tables.slices = vec![Slice { start: 0, end: 100 }];
    for (at, (kind, name, size, thread)) in (0u32..).zip(OBJECTS) {
        let base = u64::from(at + 1) << 32;
        tables.objects.push(Object {
            kind,
            name: name.to_owned(),
            size,
            order: 0,
            thread: Some(ThreadIdx(thread)),
            base,
            variables: Vec::new(),
        });
        let head = PageHead {
            number: PageNumber(base >> 12),
            object: Some(ObjectIdx(at)),
            object_page: 0,
            first_touch: Some(ThreadIdx(0)),
            first_touch_time: 0,
            policy: None,
        };
        let reads = 1_000_000 >> at;
        let users = (0..3).map(|thread| ThreadAccess {
            thread: ThreadIdx(thread),
            reads,
            writes: 1,
        });
        tables.page(head, users);
    }
    let profile = tables.build().unwrap();
    numaloc_formats::profile::write(&profile, &folder.join("server.numaloc"), false).unwrap();
}

fn numaloc(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::cargo_bin("numaloc").unwrap();
    let command = command.current_dir(folder).args(args);
    let output = command.env("XDG_CONFIG_HOME", folder.join("config"));
    output.output().unwrap()
}

fn shown(folder: &Path, args: &[&str]) -> String {
    let args = [args, &["server.numaloc", "--nodes", "3"]].concat();
    let output = numaloc(folder, &args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The names of the segments, and whether they are general.
fn segments(folder: &Path, args: &[&str]) -> Vec<(String, bool)> {
    let page = shown(folder, &[&["show", "--json"], args].concat());
    let page: Value = serde_json::from_str(&page).unwrap();
    let segments = page["segments"].as_array().unwrap().iter();
    let name = |one: &Value| one["name"].as_str().unwrap().to_owned();
    let named = segments.map(|one| (name(one), one["is_general"] == true));
    named.collect()
}

#[test]
fn well_known_memory_is_named_and_keeps_its_identity() {
    let dir = tempfile::tempdir().unwrap();
    server(dir.path());
    let expected = [
        ("variables of programs and libraries", true),
        ("PostgreSQL shared_buffers", false),
        ("PostgreSQL dynamic shared memory", false),
        ("heap (brk)", true),
        ("other anonymous memory", true),
    ];
    let expected = expected.map(|(name, is_general)| (name.to_owned(), is_general));
    assert_eq!(segments(dir.path(), &[]), expected);
    let page = shown(dir.path(), &["show", "--why"]);
    for text in [
        "Memory by segment",
        // Of a role.
        "process of main thread: postgres:.data; PostgreSQL shared_buffers",
        "PostgreSQL shared_buffers: shared_buffers and huge_pages in",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let report = shown(dir.path(), &["report", "-o", "-"]);
    assert!(report.contains("Memory by segment (5)"), "no table");
    // A plan names memory by its identity.
    let args = [
        "plan",
        "server.numaloc",
        "--machine",
        "numa:3 core:1 pu:1",
        "--pages",
        "interleave",
        "-o",
        "-",
    ];
    let plan = numaloc(dir.path(), &args);
    let plan = String::from_utf8(plan.stdout).unwrap();
    assert!(
        plan.contains("\"[anon]\"") && !plan.contains("shared_buffers"),
        "{plan}"
    );
}

#[test]
fn users_have_rules_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    server(dir.path());
    let rule = |name: &str, memory: &str| {
        format!("version = 1\n[[segment]]\nname = \"{name}\"\nmemory = [\"{memory}\"]\n")
    };
    let folder = dir.path().join("config/numaloc/segments");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("a.toml"), rule("queue", "PostgreSQL.*")).unwrap();
    std::fs::write(dir.path().join("mine.toml"), rule("pool", "[anon]")).unwrap();
    let names = |args: &[&str]| -> Vec<String> {
        let found = segments(dir.path(), args).into_iter();
        found
            .map(|(name, _)| name)
            .filter(|name| !name.contains(' '))
            .collect()
    };
    assert_eq!(names(&[]), ["queue"]);
    // Both anonymous mappings.
    assert_eq!(names(&["--segments", "mine.toml"]), ["pool", "queue"]);

    std::fs::write(
        dir.path().join("bad.toml"),
        "version = 1\n[[segment]]\nnome = 3\n",
    )
    .unwrap();
    for (file, expected) in [
        (
            "bad.toml",
            "error: segment rules bad.toml, line 3: unknown field `nome`",
        ),
        (
            "none.toml",
            "error: cannot read segment rules none.toml: No such file or directory",
        ),
    ] {
        let output = numaloc(dir.path(), &["show", "server.numaloc", "--segments", file]);
        assert_eq!(output.status.code(), Some(1), "{file}");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(
            errors.starts_with(expected) && errors.lines().count() == 1,
            "{errors}"
        );
    }
}
