//! `show`, `report`, `diff`, `export` and `import` from the outside.

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use numaloc_model::pages::{PageHead, ThreadAccess};
use numaloc_model::profile::{Clock, CommRow, Meta, ProfileBuilder, Slice, Thread};
use numaloc_model::{Layer, PageNumber, SliceIdx, ThreadIdx};

/// Four threads in a ring, each a hundred events to the next, over ten slices.
fn ring(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("ring.numaloc");
    let rows = (0..10u32).flat_map(|slice| {
        (0..4u32).map(move |src| CommRow {
            slice: SliceIdx(slice),
            src: ThreadIdx(src),
            dst: ThreadIdx((src + 1) % 4),
            layer: Layer::WriteRead,
            events: 10,
            bytes: 80,
        })
    });
    let mut tables = ProfileBuilder::new(
        Meta {
            command: vec!["./ring".into(), "<script>alert(1)</script>\u{1b}[2J".into()],
            notes: vec!["made by a test".into()],
            ..Meta::new("test", Clock::Virtual)
        },
        4096,
    );
    tables.threads = (0..4)
        .map(|at| Thread {
            pid: 1,
            tid: at + 1,
            end: 100,
            accesses: 1000,
            read_bytes: 4000,
            write_bytes: 4000,
            ..Thread::new(format!("0.{at}"))
        })
        .collect();
    tables.slices = (0..10)
        .map(|at| Slice {
            start: at * 10,
            end: at * 10 + 10,
        })
        .collect();
    tables.communication = rows.collect();
    let profile = tables.build().unwrap();
    numaloc_formats::profile::write(&profile, &path, false).unwrap();
    path
}

fn numaloc(folder: &Path, args: &[&str]) -> Output {
    Command::cargo_bin("numaloc")
        .unwrap()
        .current_dir(folder)
        .env("SOURCE_DATE_EPOCH", "1000000000")
        .args(args)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn the_answer_leads_whether_there_is_a_problem_or_not() {
    let dir = tempfile::tempdir().unwrap();
    ring(dir.path());
    let lead = |nodes: &str| {
        let page = numaloc(dir.path(), &["show", "ring.numaloc", "--nodes", nodes]);
        stdout(&page).lines().next().unwrap().to_owned()
    };
    // On one node there is nothing to place; without page use more cannot be said of four.
    assert_eq!(lead("1"), "Answer   nothing to change");
    assert_eq!(lead("4"), "Answer   no problem was found");
    stdout(&numaloc(
        dir.path(),
        &["report", "ring.numaloc", "--nodes", "1"],
    ));
    let page = std::fs::read_to_string(dir.path().join("ring.html")).unwrap();
    let (_, headline) = page.split_once("<section class=\"card headline\"").unwrap();
    let (headline, _) = headline.split_once("</section>").unwrap();
    let title = headline.split("<h2>").nth(1).unwrap();
    assert!(
        !title.starts_with("none") && title.starts_with('N'),
        "{headline}"
    );
    // Its words and texts stand in two columns.
    assert!(headline.contains("<dl><dt>Sure</dt><dd>"), "{headline}");
    assert!(page.contains(".headline dl{display:grid"));
}

#[test]
fn show_prints_the_matrix_for_scripts_and_a_page_of_80_columns() {
    let dir = tempfile::tempdir().unwrap();
    ring(dir.path());
    let csv = stdout(&numaloc(
        dir.path(),
        &["show", "ring.numaloc", "--matrix", "csv"],
    ));
    assert_eq!(csv, "0,100,0,0\n0,0,100,0\n0,0,0,100\n100,0,0,0\n");
    let page = stdout(&numaloc(dir.path(), &["show", "ring.numaloc"]));
    // The answer leads, a line each, and details only on request.
    let lead: Vec<&str> = page.lines().take_while(|line| !line.is_empty()).collect();
    assert!((2..=5).contains(&lead.len()), "{page}");
    assert!(
        lead[0].starts_with("Answer   ") && lead[lead.len() - 1].starts_with("Sure "),
        "{page}"
    );
    assert!(
        page.contains("\nRun next\n") && !page.contains("Verdict"),
        "{page}"
    );
    let why = stdout(&numaloc(dir.path(), &["show", "ring.numaloc", "--why"]));
    assert!(
        why.contains("\nVerdict\n") && !why.contains("\nThreads\n"),
        "{why}"
    );
    let page = stdout(&numaloc(dir.path(), &["show", "ring.numaloc", "--all"]));
    assert!(
        page.starts_with("Answer   ") && page.contains("\nThreads\n"),
        "{page}"
    );
    for line in page.lines().skip(lead.len()) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    // Not a terminal: no colour. A hostile name moves no cursor.
    assert!(!page.contains('\u{1b}') && page.contains("thread mapping"));
    let json: serde_json::Value = serde_json::from_str(&stdout(&numaloc(
        dir.path(),
        &["show", "ring.numaloc", "--json"],
    )))
    .unwrap();
    // 40 rows of 80 bytes of 32,000 accessed: CommR 0.1. C_H: symmetric ring of 4, rows (0,100,0,100).
    assert_eq!(json["metrics"]["communication_ratio"], 0.1);
    assert_eq!(json["metrics"]["communication_heterogeneity"], 2500.0);
    assert_eq!(
        json["metrics"]["application_exclusivity"],
        serde_json::Value::Null
    );
    assert!(json["nodes"].as_u64().is_some());
    // On one node nothing is remote: sums of nothing, which are -0 in Rust.
    for form in [&[][..], &["--json"]] {
        let args = [&["show", "ring.numaloc", "--nodes", "1"], form].concat();
        let text = stdout(&numaloc(dir.path(), &args));
        assert!(!text.contains("-0"), "{text}");
    }
    // On two nodes grouping helps: the sentence to act on, and a command for the program as it was called.
    let json: serde_json::Value = serde_json::from_str(&stdout(&numaloc(
        dir.path(),
        &["show", "ring.numaloc", "--json", "--nodes", "2"],
    )))
    .unwrap();
    let verdict = &json["verdicts"][0];
    let action = verdict["action"].as_str().unwrap();
    assert!(verdict["reason"].as_str().unwrap().ends_with(action));
    let next = json["next"][1].as_str().unwrap();
    assert!(
        next.starts_with("numaloc run --plan ring.json -- ./ring '<script>"),
        "{next}"
    );
}

#[test]
fn show_and_plan_separate_binding_from_mapping_and_placement() {
    let dir = tempfile::tempdir().unwrap();
    ring(dir.path());
    let show = |nodes: &str| -> serde_json::Value {
        let args = ["show", "ring.numaloc", "--json", "--nodes", nodes];
        serde_json::from_str(&stdout(&numaloc(dir.path(), &args))).unwrap()
    };
    let verdict = |shown: &serde_json::Value, measure: &str| {
        let list = shown["verdicts"].as_array().unwrap();
        let found = list.iter().find(|verdict| verdict["measure"] == measure);
        found.expect("there is one of each").clone()
    };
    // A ring of four on two nodes: in order half of it is between nodes, by chance two thirds.
    let two = show("2");
    assert_eq!(verdict(&two, "bind_threads")["verdict"], "likely to help");
    assert_eq!(two["ways"][0]["way"], "unbound");
    assert_eq!(two["ways"][1]["way"], "pinned");
    assert_eq!(two["ways"][1]["remote_communication"], 0.5);
    let plan = two["next"][0].as_str().unwrap();
    assert!(
        plan.contains("--threads in-order --pages first-touch"),
        "{plan}"
    );
    // On four nodes every thread has its own node: there is nothing to group, and a ring is not uniform.
    let mapping = verdict(&show("4"), "thread_mapping");
    let reason = mapping["reason"].as_str().unwrap();
    assert!(
        reason.contains("a node of its own") && !reason.contains("uniform"),
        "{reason}"
    );
    let page = stdout(&numaloc(
        dir.path(),
        &["show", "ring.numaloc", "--nodes", "2", "--why"],
    ));
    assert!(page.contains("threads bound in order"), "{page}");
    // Page use for two threads: thread 0 touched both pages, thread 1 has 8 of 9 accesses to one.
    let pages = "page.address,alloc.thread,alloc.location,firsttouch.thread,firsttouch.location,structure.name,T0,T1\n\
                 10,,,0,,grid,1,0\n11,,,0,,grid,1,8\n";
    std::fs::write(dir.path().join("p.csv"), pages).unwrap();
    std::fs::write(dir.path().join("m.csv"), "0,1\n1,0\n").unwrap();
    let import = ["import", "m.csv", "--pages", "p.csv", "-o", "p.numaloc"];
    stdout(&numaloc(dir.path(), &import));
    let plan = ["plan", "p.numaloc", "--machine", "numa:2 core:1 pu:1"];
    let text = stdout(&numaloc(dir.path(), &plan));
    let row = |name: &str| {
        let line = text.lines().find(|line| line.trim().starts_with(name));
        line.expect("the row is there").to_owned()
    };
    assert!(row("unbound").contains("50.0 %"), "{text}");
    assert!(row("pinned").contains("80.0 %"), "{text}");
    let json = stdout(&numaloc(dir.path(), &[&plan[..], &["--json"]].concat()));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["unplanned"]["pinned"]["remote_accesses"], 8);
    assert_eq!(json["unplanned"]["unbound"]["remote_share"], 0.5);
}

#[test]
fn where_threads_change_their_work_reports_say_so_and_propose_no_thread_plan() {
    let dir = tempfile::tempdir().unwrap();
    let path = ring(dir.path());
    let next = || {
        let args = ["show", "ring.numaloc", "--json", "--nodes", "2"];
        let json: serde_json::Value =
            serde_json::from_str(&stdout(&numaloc(dir.path(), &args))).unwrap();
        json["next"][0].as_str().unwrap().to_owned()
    };
    let report = |form: &[&str]| {
        let args = ["report", "ring.numaloc", "--force"];
        stdout(&numaloc(dir.path(), &[&args[..], form].concat()))
    };
    let says = "a thread plan will not hold";
    // Partners two threads apart: their order is not the best mapping, a thread plan is proposed.
    let mut tables = numaloc_formats::profile::read(&path)
        .unwrap()
        .into_builder();
    for row in &mut tables.communication {
        row.dst = ThreadIdx((row.src.0 + 2) % 4);
    }
    let profile = tables.build().unwrap();
    numaloc_formats::profile::write(&profile, &path, true).unwrap();
    assert!(next().contains("--pages locality"), "{}", next());
    assert!(!report(&["--md"]).contains(says));
    let loops = numaloc_model::conditions::WorkSharing::DynamicLoop;
    let sharing = vec![(loops, "<GOMP_loop_dynamic_start>".to_owned())];
    let changed = profile.changed(|tables| tables.meta.conditions.sharing = sharing);
    let profile = changed.unwrap();
    numaloc_formats::profile::write(&profile, &path, true).unwrap();
    // No pages were recorded: threads over all nodes.
    assert!(
        next().contains("--threads packed --spread --pages first-touch"),
        "{}",
        next()
    );
    let markdown = report(&["--md"]);
    assert!(
        markdown.contains(says) && markdown.contains("schedule(static)"),
        "{markdown}"
    );
    report(&["-o", "r.html"]);
    let page = std::fs::read_to_string(dir.path().join("r.html")).unwrap();
    assert!(page.contains(says) && page.contains("schedule(static)"));
    assert!(!page.contains("<GOMP_loop"));
    // With pages the model applies: `plan` tries only what serves whichever thread gets which work.
    let mut tables = profile.into_builder();
    for at in 0..8 {
        let head = PageHead {
            number: PageNumber(at),
            object: None,
            object_page: at,
            first_touch: Some(ThreadIdx(0)),
            first_touch_time: 0,
            policy: None,
        };
        let thread = ThreadIdx(at as u32 % 4);
        tables.page(
            head,
            [ThreadAccess {
                thread,
                reads: 500,
                writes: 0,
            }],
        );
    }
    let profile = tables.build().unwrap();
    numaloc_formats::profile::write(&profile, &path, true).unwrap();
    assert!(!next().contains("--threads"), "{}", next());
}

#[test]
fn report_is_one_escaped_file_that_repeats_and_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    ring(dir.path());
    stdout(&numaloc(
        dir.path(),
        &["report", "ring.numaloc", "-o", "a.html"],
    ));
    stdout(&numaloc(
        dir.path(),
        &["report", "ring.numaloc", "-o", "b.html"],
    ));
    let page = std::fs::read_to_string(dir.path().join("a.html")).unwrap();
    assert_eq!(
        page,
        std::fs::read_to_string(dir.path().join("b.html")).unwrap()
    );
    assert!(!page.contains("<script>alert") && page.contains("&lt;script&gt;alert"));
    assert!(page.contains("2001-09-09") && !page.contains("http://localhost"));
    let again = numaloc(dir.path(), &["report", "ring.numaloc", "-o", "a.html"]);
    let error = String::from_utf8_lossy(&again.stderr);
    assert_eq!(again.status.code(), Some(1));
    assert!(
        error.contains("it exists") && error.contains("--force"),
        "{error}"
    );
    let figures = stdout(&numaloc(
        dir.path(),
        &["report", "ring.numaloc", "--svg", "figures"],
    ));
    assert!(figures.contains("timeline.svg"));
    stdout(&numaloc(
        dir.path(),
        &["report", "ring.numaloc", "--png", "figures"],
    ));
    let png = std::fs::read(dir.path().join("figures/timeline.png")).unwrap();
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.len() > 2000);
    // The second spelling is the old one, which is kept as a hidden alias.
    for (option, folder) in [("--compare-with", "two"), ("--beside", "old")] {
        let compared = ["report", "ring.numaloc", option, "ring.numaloc"];
        let compared = stdout(&numaloc(
            dir.path(),
            &[&compared[..], &["--svg", folder]].concat(),
        ));
        assert!(compared.contains("runs-load.svg"), "{compared}");
        let load = std::fs::read_to_string(dir.path().join(folder).join("runs-load.svg")).unwrap();
        // 40 rows of 80 bytes, for each of the two.
        assert_eq!(load.matches(">3.12 KiB<").count(), 2, "{load}");
    }
    let markdown = stdout(&numaloc(dir.path(), &["report", "ring.numaloc", "--md"]));
    assert!(markdown.contains("| heterogeneity"), "{markdown}");
}

#[test]
fn a_matrix_survives_export_and_import() {
    let dir = tempfile::tempdir().unwrap();
    ring(dir.path());
    for (format, file) in [
        ("csv", "m.csv"),
        ("npy", "m.npy"),
        ("mtx", "m.mtx"),
        ("edges", "m.edges"),
    ] {
        let back = format!("{format}.numaloc");
        stdout(&numaloc(
            dir.path(),
            &["export", "ring.numaloc", "-o", file],
        ));
        stdout(&numaloc(dir.path(), &["import", file, "-o", &back]));
        let csv = stdout(&numaloc(dir.path(), &["show", &back, "--matrix", "csv"]));
        assert_eq!(
            csv, "0,100,0,0\n0,0,100,0\n0,0,0,100\n100,0,0,0\n",
            "{format}"
        );
    }
    // No ending, or one that --format overrules.
    for args in [&["-o", "matrix"][..], &["-o", "m.dat", "--format", "csv"]] {
        stdout(&numaloc(
            dir.path(),
            &[&["export", "ring.numaloc"], args].concat(),
        ));
        let csv = std::fs::read_to_string(dir.path().join(args[1])).unwrap();
        assert_eq!(csv, "0,100,0,0\n0,0,100,0\n0,0,0,100\n100,0,0,0\n");
    }
    // EagerMap: without direction, last thread first.
    stdout(&numaloc(
        dir.path(),
        &[
            "export",
            "ring.numaloc",
            "--format",
            "eagermap",
            "-o",
            "e.csv",
        ],
    ));
    let text = std::fs::read_to_string(dir.path().join("e.csv")).unwrap();
    assert_eq!(text, "100,0,100,0\n0,100,0,100\n100,0,100,0\n0,100,0,100\n");
    stdout(&numaloc(
        dir.path(),
        &["import", "e.csv", "--format", "eagermap", "-o", "e.numaloc"],
    ));
    let csv = stdout(&numaloc(
        dir.path(),
        &["show", "e.numaloc", "--matrix", "csv"],
    ));
    assert_eq!(csv, "0,100,0,100\n100,0,100,0\n0,100,0,100\n100,0,100,0\n");
    // A matrix does not know its program, and has no course in time to draw.
    let json = stdout(&numaloc(dir.path(), &["show", "e.numaloc", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["next"][0].as_str().unwrap().ends_with("-- PROGRAM"));
    let figures = ["report", "e.numaloc", "--svg", "drawn"];
    let figures = stdout(&numaloc(dir.path(), &figures));
    assert!(
        figures.contains("matrix.svg") && !figures.contains("timeline"),
        "{figures}"
    );
    // A plan can be made of it.
    stdout(&numaloc(
        dir.path(),
        &["plan", "e.numaloc", "--machine", "numa:2 core:2 pu:1"],
    ));
}

#[test]
fn pages_come_in_and_go_out_in_the_columns_of_numalize() {
    let dir = tempfile::tempdir().unwrap();
    let pages = "page.address,alloc.thread,alloc.location,firsttouch.thread,firsttouch.location,structure.name,T0,T1\n\
                 10,,,0,,grid,1,0\n11,,,0,,grid,1,8\n";
    std::fs::write(dir.path().join("p.csv"), pages).unwrap();
    std::fs::write(dir.path().join("m.csv"), "0,1\n1,0\n").unwrap();
    stdout(&numaloc(
        dir.path(),
        &["import", "m.csv", "--pages", "p.csv", "-o", "p.numaloc"],
    ));
    stdout(&numaloc(
        dir.path(),
        &["export", "p.numaloc", "--pages", "-o", "q.csv"],
    ));
    assert_eq!(
        std::fs::read_to_string(dir.path().join("q.csv")).unwrap(),
        pages
    );
    let json = stdout(&numaloc(
        dir.path(),
        &["show", "p.numaloc", "--nodes", "2", "--json"],
    ));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    // Page 10: all from T0. Page 11: 8 of 9 from T1. E_app = (1 + 8) / 10; first touch: (1 + 1) / 10.
    assert_eq!(json["metrics"]["application_exclusivity"], 0.9);
    assert_eq!(json["metrics"]["first_touch_local_share"], 0.2);
    let diff = stdout(&numaloc(
        dir.path(),
        &["diff", "p.numaloc", "p.numaloc", "--nodes", "2", "--json"],
    ));
    let json: serde_json::Value = serde_json::from_str(&diff).unwrap();
    let grid = &json["objects"][0];
    assert_eq!(
        (&grid["object"], &grid["a"]["pages"], &grid["b"]["accesses"]),
        (&"grid".into(), &2.into(), &10.into())
    );
    let text = stdout(&numaloc(
        dir.path(),
        &["diff", "p.numaloc", "p.numaloc", "--nodes", "2"],
    ));
    assert!(
        text.contains("By node") && text.contains("  grid\n"),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn diff_of_a_run_with_itself_is_one() {
    let dir = tempfile::tempdir().unwrap();
    ring(dir.path());
    let args = ["diff", "ring.numaloc", "ring.numaloc", "--json"];
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&numaloc(dir.path(), &args))).unwrap();
    assert!((json["matrix_correlation"].as_f64().unwrap() - 1.0).abs() < 1e-12);
    assert_eq!(json["metrics_a"], json["metrics_b"]);
    let text = stdout(&numaloc(dir.path(), &args[..3]));
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn diff_writes_a_page_that_needs_no_network() {
    let dir = tempfile::tempdir().unwrap();
    ring(dir.path());
    let args = [
        "diff",
        "ring.numaloc",
        "ring.numaloc",
        "--nodes",
        "2",
        "--report",
        "d.html",
    ];
    assert_eq!(stdout(&numaloc(dir.path(), &args)), "d.html\n");
    let page = std::fs::read_to_string(dir.path().join("d.html")).unwrap();
    for part in [
        "id=\"matrix-a\"",
        "id=\"matrix-b\"",
        "<b>1.0000</b> correlation",
        "data-name=\"metrics\"",
        "runs-exclusivity",
        "default-src 'none'",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("src=\"http") && !page.contains("href=\"http"));
    // A second page does not replace it unless asked.
    assert_eq!(numaloc(dir.path(), &args).status.code(), Some(1));
    let forced = [&args[..], &["--force"]].concat();
    assert!(numaloc(dir.path(), &forced).status.success());
}

#[test]
fn bad_input_is_one_clear_line() {
    let dir = tempfile::tempdir().unwrap();
    ring(dir.path());
    std::fs::create_dir(dir.path().join("empty.numaloc")).unwrap();
    std::fs::write(dir.path().join("bad.csv"), "0,1\n-1,0\n").unwrap();
    for (args, status, words) in [
        (&["show", "missing.numaloc"][..], 1, "missing.numaloc"),
        (&["show", "empty.numaloc"], 1, "meta.json"),
        (
            &["show", "ring.numaloc", "--layer", "write_red"],
            2,
            "--layer write_read",
        ),
        (
            &["show", "ring.numaloc", "--layer", "message"],
            2,
            "write_read",
        ),
        (
            &["show", "ring.numaloc", "--matrix", "csv", "--cluster", "99"],
            2,
            "cluster 99",
        ),
        (
            &["report", "ring.numaloc", "missing.json"],
            1,
            "missing.json",
        ),
        (&["import", "bad.csv", "-o", "x.numaloc"], 1, "line 2"),
        (
            &["import", "bad.csv", "-o", "x.numaloc", "--format", "xml"],
            2,
            "eagermap",
        ),
        (&["export", "ring.numaloc", "-o", "bad.csv"], 1, "--force"),
        (
            &["export", "ring.numaloc", "-o", "x.parquet"],
            2,
            "ending .parquet\n  expected: .csv, .npy, .mtx, .mm, .edges, .edgelist, .el, or no ending for CSV\n  try: --format",
        ),
        (
            &["export", "ring.numaloc", "--pages", "-o", "x.npy"],
            2,
            "ending .npy\n  expected: .csv, or no ending for CSV\n",
        ),
    ] {
        let output = numaloc(dir.path(), args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{args:?}: {error}");
        assert!(error.contains(words), "{args:?}: {error}");
        assert_eq!(error.matches("error:").count(), 1, "{error}");
    }
    for name in ["x.numaloc", "x.parquet", "x.npy"] {
        assert!(!dir.path().join(name).exists(), "{name}");
    }
}
