//! `numaloc plan` from the outside, on a profile made by hand.

use std::path::Path;

use assert_cmd::Command;
use numaloc_model::pages::PageHead;
use numaloc_model::profile::{Clock, CommRow, Meta, PageSlice, ProfileBuilder, Slice, Thread};
use numaloc_model::{Layer, ObjectIdx, PageNumber, PageUsage, SliceIdx, ThreadAccess, ThreadIdx};
use serde_json::Value;

/// What the threads brought from DRAM.
const DRAM: [u64; 4] = [100, 200, 300, 600];

/// Four threads in a ring. Threads 0 and 2 use one page, 1 and 3 another, each in two slices.
fn profile(folder: &Path) {
    let thread = |at: u32| Thread {
        pid: 1,
        tid: at + 1,
        end: 20,
        accesses: 1000,
        read_bytes: 8000,
        dram_bytes: Some(DRAM[at as usize]),
        ..Thread::new(format!("0.{at}"))
    };
    let comm = |src: u32| CommRow {
        slice: SliceIdx(0),
        src: ThreadIdx(src),
        dst: ThreadIdx((src + 1) % 4),
        layer: Layer::WriteRead,
        events: 10,
        bytes: 80,
    };
    let mut pages = PageUsage::new(4096);
    for page in 0..2 {
        let access = |thread: u32| ThreadAccess {
            thread: ThreadIdx(thread),
            reads: 1000,
            writes: 0,
        };
        let head = PageHead {
            number: PageNumber(u64::from(page)),
            object: None::<ObjectIdx>,
            object_page: 0,
            first_touch: Some(ThreadIdx(3 * page)),
            first_touch_time: 0,
            policy: None,
        };
        pages.push(head, vec![access(page), access(page + 2)]);
    }
    let rows = (0..2u32).flat_map(|slice| (0..4u32).map(move |thread| (slice, thread)));
    let page_slices = rows.map(|(slice, thread)| PageSlice {
        slice: SliceIdx(slice),
        page: PageNumber(u64::from(thread % 2)),
        thread: ThreadIdx(thread),
        accesses: 500,
    });
    let mut tables = ProfileBuilder::new(
        Meta {
            command: vec!["./made".into()],
            dram_source: Some("a test".into()),
            ..Meta::new("test", Clock::Virtual)
        },
        pages.page_size(),
    );
    tables.usage(&pages);
    tables.threads = (0..4).map(thread).collect();
    tables.slices = [(0, 10), (10, 20)]
        .map(|(start, end)| Slice { start, end })
        .into();
    tables.communication = (0..4).map(comm).collect();
    tables.page_slices = page_slices.collect();
    let profile = tables.build().unwrap();
    numaloc_formats::profile::write(&profile, &folder.join("p.numaloc"), false).unwrap();
}

const MACHINE: &str = "numa:2 core:2 pu:1";
/// Each package has a second node, of memory alone, as with CXL or HBM.
const WITH_MEMORY_NODES: &str = "package:2 [numa] [numa] core:2 pu:1";

fn json(folder: &Path, args: &[&str]) -> Value {
    json_for(MACHINE, folder, args)
}

fn json_for(machine: &str, folder: &Path, args: &[&str]) -> Value {
    let mut command = Command::cargo_bin("numaloc").unwrap();
    command.current_dir(folder).args(["--quiet", "--json"]);
    let output = command
        .args(args)
        .args(["--machine", machine])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_load_vector_is_that_of_the_profile_in_every_command() {
    let dir = tempfile::tempdir().unwrap();
    profile(dir.path());
    let plan = json(dir.path(), &["plan", "p.numaloc", "--threads", "all"]);
    assert_eq!(plan["load"]["source"], "bytes from DRAM, by a test");
    assert_eq!(
        plan["load"]["by_thread"],
        serde_json::json!([100.0, 200.0, 300.0, 600.0])
    );
    let rows = plan["policies"].as_array().unwrap();
    let load_std = |policy: &str| {
        let row = rows.iter().find(|row| row["policy"] == policy).unwrap();
        row["load_std"].as_f64().unwrap()
    };
    // Blocks of two: 300 and 900 around 600. Balanced, two on each: 700 and 500.
    assert_eq!(
        (load_std("packed"), load_std("balance-load")),
        (300.0, 100.0)
    );
    // `show`, with threads in blocks, says the same number.
    let shown = json(dir.path(), &["show", "p.numaloc"]);
    assert_eq!(shown["metrics"]["load_deviation"], 300.0);
}

#[test]
fn threads_may_be_mapped_by_shared_pages_or_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    profile(dir.path());
    let plan = json(
        dir.path(),
        &["plan", "p.numaloc", "--threads", "shared-pages"],
    );
    let pu: Vec<u64> = plan["policies"][0]["mapping"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pu| pu.as_u64().unwrap() / 2)
        .collect();
    assert!(pu[0] == pu[2] && pu[1] == pu[3] && pu[0] != pu[1], "{pu:?}");
    let os = ["plan", "p.numaloc", "--threads", "os", "-o", "os.json"];
    let os = json(dir.path(), &os);
    assert_eq!(os["policies"][0]["policy"], "os");
    assert_eq!(os["plan"]["threads"], 0);
    let written = numaloc_formats::plan::read(&dir.path().join("os.json")).unwrap();
    assert!(written.threads.is_empty());
    // Left to the kernel on purpose: `run` does not count them as threads that are not in the plan.
    let left = ["0.0", "0.1", "0.2", "0.3"];
    assert_eq!(written.provenance.left_out, left);
}

#[test]
fn nodes_of_memory_alone_change_no_mean() {
    let dir = tempfile::tempdir().unwrap();
    profile(dir.path());
    let policies = |machine| {
        let plan = ["plan", "p.numaloc", "--threads", "packed", "--spread"];
        let row = json_for(machine, dir.path(), &plan)["policies"][0].clone();
        (row["load_std"].clone(), row["node_imbalance"].clone())
    };
    let metrics = |machine| {
        let shown = json_for(machine, dir.path(), &["show", "p.numaloc"]);
        [
            "load_deviation",
            "load_imbalance",
            "first_touch_access_balance",
        ]
        .map(|metric| shown["metrics"][metric].clone())
    };
    // Loads of 300 and 900 on the nodes with PUs; with the memory nodes, 0 each, the deviation would be 367.
    assert_eq!(policies(MACHINE), (300.0.into(), 1.5.into()));
    assert_eq!(policies(WITH_MEMORY_NODES), policies(MACHINE));
    assert_eq!(metrics(MACHINE), [300.0, 1.5, 1.0].map(Value::from));
    assert_eq!(metrics(WITH_MEMORY_NODES), metrics(MACHINE));
}

#[test]
fn an_unknown_thread_policy_is_answered_with_all_that_plan_has() {
    let dir = tempfile::tempdir().unwrap();
    profile(dir.path());
    let plan = ["plan", "p.numaloc", "--threads", "shared-page"];
    let mut command = Command::cargo_bin("numaloc").unwrap();
    let output = command.current_dir(dir.path()).args(plan).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    for name in ["shared-pages", "os", "joint", "numaloc"] {
        assert!(error.contains(name), "{name}: {error}");
    }
}

#[test]
fn joint_weighs_messages_by_the_lines_they_move() {
    let dir = tempfile::tempdir().unwrap();
    profile(dir.path());
    let path = dir.path().join("p.numaloc");
    let profile = numaloc_formats::profile::read(&path).unwrap();
    let mut tables = profile.into_builder();
    // Threads 0 and 1, 2 and 3 exchange few large messages; 0 and 2, 1 and 3 many empty ones.
    let row = |(src, dst, layer, events, bytes)| CommRow {
        slice: SliceIdx(0),
        src: ThreadIdx(src),
        dst: ThreadIdx(dst),
        layer,
        events,
        bytes,
    };
    tables.communication = [
        (0, 1, Layer::Message, 2, 1 << 26),
        (0, 2, Layer::Collective, 500_000, 0),
        (1, 3, Layer::Collective, 500_000, 0),
        (2, 3, Layer::Message, 2, 1 << 26),
    ]
    .map(row)
    .into();
    let profile = tables.build().unwrap();
    let messages = dir.path().join("messages.numaloc");
    numaloc_formats::profile::write(&profile, &messages, false).unwrap();
    let plan = dir.path().join("plan.json");
    let args = [
        "plan",
        "messages.numaloc",
        "-o",
        "plan.json",
        "--threads",
        "joint",
        "--layer",
        "sent",
    ];
    json(dir.path(), &args);
    let plan = numaloc_formats::plan::read(&plan).unwrap();
    let node = |at: usize| plan.threads[at].pu.0 / 2;
    assert_eq!(
        (node(0) == node(1), node(2) == node(3), node(0) == node(2)),
        (true, true, false)
    );
}

#[test]
fn a_plan_that_loses_is_refused_and_as_it_is_wins_ties() {
    let dir = tempfile::tempdir().unwrap();
    profile(dir.path());
    let path = dir.path().join("p.numaloc");
    // Threads that exchange nothing: nothing is faster than a core for each.
    let recorded = numaloc_formats::profile::read(&path).unwrap();
    let alone = recorded.changed(|tables| tables.communication.clear());
    let alone_path = dir.path().join("alone.numaloc");
    numaloc_formats::profile::write(&alone.unwrap(), &alone_path, false).unwrap();
    let plan = |more: &[&str]| {
        let mut command = Command::cargo_bin("numaloc").unwrap();
        command.current_dir(dir.path()).args([
            "plan",
            "alone.numaloc",
            "--machine",
            "numa:2 core:4 pu:2",
        ]);
        command.args(more).output().unwrap()
    };
    // Siblings first: half of the cores are idle.
    let named = ["--threads", "compact", "--pages", "first-touch"];
    let written = [&named[..], &["-o", "compact.json"]].concat();
    let refused = plan(&written);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{error}");
    let line = error.lines().find(|line| line.starts_with("error: "));
    assert!(line.unwrap().contains("slower than no plan"), "{error}");
    assert!(error.contains("--anyway") && !dir.path().join("compact.json").exists());
    let text = String::from_utf8_lossy(&plan(&named).stdout).into_owned();
    assert!(text.contains("loses"), "{text}");
    let anyway = plan(&[&written[..], &["--anyway"]].concat());
    assert!(anyway.status.success());
    let forced = plan(&[&written[..], &["--force"]].concat());
    let remark = String::from_utf8_lossy(&forced.stderr);
    assert!(
        forced.status.success() && remark.contains("slower than no plan"),
        "{remark}"
    );
    // No plan is better than none: an empty one is written, which leaves the threads out on purpose.
    let best = plan(&["--json", "-o", "best.json"]);
    assert!(best.status.success());
    let shown: Value = serde_json::from_slice(&best.stdout).unwrap();
    assert_eq!(shown["worth"]["left_as_it_is"], true);
    let written = numaloc_formats::plan::read(&dir.path().join("best.json")).unwrap();
    assert!(written.threads.is_empty() && written.pages.is_empty());
    assert_eq!(written.provenance.left_out.len(), 4);
}

#[test]
fn the_model_of_worth_has_the_simulators_constants() {
    use numaloc_plan::worth::figures;
    let simulator = numaloc_sim::Parameters::default();
    let ours = [
        figures::CYCLES_PER_ACCESS,
        figures::WINDOW_ACCESSES,
        figures::OUTSTANDING,
        figures::PREFETCHED,
        numaloc_placement::joint::SMT_SLOWDOWN,
        figures::MESSAGE_BYTES,
    ];
    let theirs = [
        simulator.cycles_per_access,
        simulator.window_accesses as f64,
        simulator.outstanding as f64,
        simulator.prefetched as f64,
        simulator.smt_slowdown,
        simulator.header_bytes as f64,
    ];
    assert_eq!(ours, theirs);
    assert_eq!(simulator.header_bytes, simulator.request_bytes);
}

#[test]
fn memory_of_several_kinds_that_is_too_small_or_not_there_is_one_clear_line() {
    let dir = tempfile::tempdir().unwrap();
    profile(dir.path());
    for (options, expected) in [
        (
            "cxl-2s --pages tier --capacity 4K,0,0,0",
            "tier has to place 2 pages, and all nodes together have room for 1",
        ),
        (
            "cxl-2s --pages tier --capacity 1G",
            "1 node capacities given, the machine has 4 nodes",
        ),
        (
            "skylake-4s --pages tier",
            "tier needs memory of several kinds, and all nodes of the machine have the same",
        ),
        (
            "skylake-4s --pages hbm",
            "hbm needs memory-only nodes with more bandwidth than nodes with PUs, and the machine has none",
        ),
        (
            "numa:2_core:2_pu:1 --pages tier",
            "tier needs bandwidths, and the machine states none",
        ),
        (
            "numa:2_core:2_pu:1 --pages hbm",
            "hbm needs bandwidths, and the machine states none",
        ),
    ] {
        let mut command = Command::cargo_bin("numaloc").unwrap();
        let start = ["plan", "p.numaloc", "--threads", "packed", "--machine"];
        let output = command
            .current_dir(dir.path())
            .args(start)
            .args(options.split(' ').map(|word| word.replace('_', " ")))
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let errors: Vec<&str> = said
            .lines()
            .filter(|line| line.starts_with("error"))
            .collect();
        assert_eq!(errors, [format!("error: {expected}")], "{options}");
        assert_eq!(output.status.code(), Some(2), "{options}");
    }
    // Room for one page on the first socket's memory: the other is on its expander, as the remark says.
    let mut command = Command::cargo_bin("numaloc").unwrap();
    let options =
        "plan p.numaloc --threads packed --machine cxl-2s --pages tier --capacity 4K,1G,0,0";
    let output = command
        .current_dir(dir.path())
        .args(options.split(' '))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains("node 0 50.0 %") && said.contains("node 1 50.0 %"),
        "{said}"
    );
}

#[test]
fn weights_decide_and_bad_ones_are_one_clear_line() {
    let dir = tempfile::tempdir().unwrap();
    profile(dir.path());
    let plan = |machine: &str, options: &[&str]| {
        let mut command = Command::cargo_bin("numaloc").unwrap();
        let start = [
            "plan",
            "p.numaloc",
            "--threads",
            "packed",
            "--machine",
            machine,
        ];
        command.current_dir(dir.path()).args(start).args(options);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), said)
    };
    const WEIGHTED: [&str; 2] = ["--pages", "weighted-interleave"];
    for (weights, expected) in [
        ("1,1,1", "error: 3 weights given, the machine has 2 nodes"),
        (
            "0,0",
            "error: the weights of all nodes with memory are 0, expected one above 0",
        ),
        ("1,-1", "error: invalid value '-1' for '--weights"),
        ("", "error: invalid value '' for '--weights"),
    ] {
        let (status, said) = plan(MACHINE, &[&WEIGHTED[..], &["--weights", weights]].concat());
        assert_eq!(status, 2, "{weights}: {said}");
        let mut errors = said.lines().filter(|line| line.starts_with("error"));
        let error = errors.next().unwrap();
        assert!(
            error.starts_with(expected) && errors.next().is_none(),
            "{said}"
        );
    }
    let (status, said) = plan(MACHINE, &WEIGHTED);
    assert_eq!(status, 2, "{said}");
    let expected = "error: weighted-interleave needs bandwidths, and the machine states none";
    assert!(
        said.contains(expected) && said.contains("--weights"),
        "{said}"
    );
    let (status, said) = plan(MACHINE, &["--pages", "interleave", "--weights", "1,1"]);
    assert_eq!(status, 2, "{said}");
    let (status, said) = plan("cxl-2s", &WEIGHTED);
    assert_eq!(status, 0, "{said}");

    // Both pages go to the node that has all the weight, and the plan names the weights.
    let given = [
        &WEIGHTED[..],
        &["--weights", "0,5", "--anyway", "-o", "w.json"],
    ]
    .concat();
    let (status, said) = plan(MACHINE, &given);
    assert_eq!(status, 0, "{said}");
    let made = std::fs::read_to_string(dir.path().join("w.json")).unwrap();
    assert!(made.contains("\"0,5\""), "{made}");
}
