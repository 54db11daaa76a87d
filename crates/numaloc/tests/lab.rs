//! The virtual NUMA machine, end to end. Every test boots at least one (5 to 10 s each), so all are
//! ignored here: `make test-ci-lab` runs those named `ci_*`, `make test-lab` all.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

#[path = "lab/faults.rs"]
mod faults;
#[path = "lab/kept.rs"]
mod kept;
#[path = "lab/validated.rs"]
mod validated;
#[path = "lab/weighted.rs"]
mod weighted;

/// Builds a C program of the tests or of `workloads/`; every test has a folder of its own.
fn build(folder: &Path, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join(name);
    let status = Command::new("cc")
        .args(["-O2", "-g", "-std=gnu11", "-pthread"])
        .args(flags)
        .arg(root.join(source))
        .arg("-o")
        .arg(&program)
        .status()
        .expect("cc runs");
    assert!(status.success(), "{source} builds with {flags:?}");
    program
}

fn walk(folder: &Path) -> PathBuf {
    build(folder, "tests/lab/walk.c", "walk", &["-static"])
}

fn numaloc(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_numaloc"))
        .args(arguments)
        .output()
        .expect("numaloc runs")
}

/// `numaloc lab --json` with these options; the JSON object and the whole output.
fn lab(options: &[&str], command: &[&str]) -> (Value, Output) {
    let output = numaloc(&[&["--json", "lab"], options, &["--"], command].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let json = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!(
            "{error}: {text}\n{}",
            String::from_utf8_lossy(&output.stderr)
        )
    });
    (json, output)
}

fn remote_share(json: &Value) -> f64 {
    assert_eq!(json["unknown_accesses"], 0, "{json}");
    json["remote_share"].as_f64().expect("a number")
}

#[test]
#[ignore = "boots virtual machines: make test-ci-lab"]
fn ci_known_answers() {
    let folder = tempfile::tempdir().unwrap();
    let program = walk(folder.path());
    let program = program.to_str().unwrap();
    let share = |numactl| {
        let (json, _) = lab(&["--numactl", numactl], &[program]);
        assert_eq!(json["status"], 0);
        // 8 walks over 131072 lines; the rest of the program is small.
        let total = json["total_accesses"].as_u64().unwrap();
        assert!((1_048_576..1_100_000).contains(&total), "{total}");
        remote_share(&json)
    };
    let own = share("--cpunodebind=3 --membind=3");
    assert!(own < 0.01, "own node: {own}");
    let other = share("--cpunodebind=3 --membind=0");
    assert!(other > 0.99, "other node: {other}");
    let spread = share("--cpunodebind=1 --interleave=all");
    assert!((spread - 0.75).abs() < 0.01, "interleaved over 4: {spread}");
}

#[test]
#[ignore = "boots virtual machines: make test-ci-lab"]
fn ci_threads_on_their_own_pages_are_local_and_status_passes() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), "tests/lab/walk.c", "walk", &["-fopenmp"]);
    let program = program.to_str().unwrap();
    let (json, output) = lab(
        &[
            "--nodes",
            "2",
            "--cpus",
            "4",
            "--memory",
            "256M",
            "--env",
            "OMP_PROC_BIND=true",
        ],
        &[program, "7"],
    );
    assert_eq!(output.status.code(), Some(7));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(
        words.contains("to stdout") && words.contains("to stderr"),
        "{words}"
    );
    let share = remote_share(&json);
    assert!(share < 0.02, "{share}");
    let matrix = json["accesses"].as_array().unwrap();
    assert!(
        matrix.iter().all(|row| row
            .as_array()
            .unwrap()
            .iter()
            .map(|n| n.as_u64().unwrap())
            .sum::<u64>()
            > 2_000_000),
        "both nodes work: {json}"
    );
}

#[test]
#[ignore = "boots virtual machines: make test-lab"]
fn row_pinned_binds_threads_in_order_without_a_plan() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), "tests/lab/walk.c", "walk", &["-fopenmp"]);
    let output = Command::new(env!("CARGO_BIN_EXE_numaloc"))
        .env("OMP_NUM_THREADS", "4")
        .args(["--json", "lab", "compare", "--nodes", "2", "--cpus", "4"])
        .args(["--memory", "256M", "--rows", "pinned", "--"])
        .arg(&program)
        .output()
        .expect("numaloc runs");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = json["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["name"]), (1, &"pinned".into()));
    // Every thread walks over its own memory.
    let share = remote_share(&rows[0]["runs"][0]);
    assert!(share < 0.02, "{share}");
    let said = rows[0]["stderr"].as_str().unwrap();
    assert!(said.contains("threads: 4 of 4 where planned"), "{said}");
}

/// The whole workflow from the command line: the program `parts` recorded, planned by these policies for a guest of
/// this shape, and run there under the plan. What the guest counted, and what was said.
fn carried_out(shape: &[&str], policies: &[&str]) -> (Value, String) {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), "tests/lab/parts.c", "parts", &[]);
    let program = program.to_str().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (machine, profile, plan) = (path("lab.xml"), path("p.numaloc"), path("plan.json"));
    let done = |arguments: &[&str]| {
        let output = numaloc(arguments);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {words}");
    };
    done(&[&["lab", "topology"], shape, &["-o", &machine]].concat());
    done(&["record", "-o", &profile, "--", program]);
    let to_plan = [
        "plan",
        "--anyway",
        &profile,
        "--machine",
        &machine,
        "-o",
        &plan,
    ];
    done(&[&to_plan[..], policies].concat());
    let (json, output) = lab(&[shape, &["--plan", &plan]].concat(), &[program]);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{words}");
    (json, words)
}

/// Judged by the accesses counted in the guest and not by the report of `run`: a plan that was not applied would leave
/// three quarters of the accesses remote.
#[test]
#[ignore = "boots virtual machines: make test-ci-lab"]
fn ci_a_joint_plan_makes_the_accesses_of_every_thread_local() {
    // A PU on each node: no two threads fit on one.
    let shape = ["--nodes", "4", "--cpus", "4", "--memory", "256M"];
    let (json, words) = carried_out(&shape, &["--threads", "joint"]);
    assert_eq!(json["unknown_accesses"], 0, "{json}");
    let share = json["all_remote_share"].as_f64().unwrap();
    assert!(share < 0.05, "{share} remote: {json}\n{words}");
    // Every thread works on its own node.
    let rows = json["all_accesses"].as_array().unwrap();
    for (node, row) in rows.iter().enumerate() {
        let own = row[node].as_u64().unwrap();
        assert!(own >= 2 * 40 * (1 << 15), "node {node}: {json}");
    }
}

/// The later moves of a plan, in a guest with four nodes and judged by the accesses counted there: with one mapping
/// half of the accesses would be remote. The plan is made from a run of another length.
#[test]
#[ignore = "boots virtual machines: make test-ci-lab"]
fn ci_later_moves_of_threads_and_pages_follow_the_program_at_another_length() {
    let folder = tempfile::tempdir().unwrap();
    let source = "../../workloads/two_phase.c";
    let program = build(folder.path(), source, "two_phase", &["-fopenmp"]);
    let program = program.to_str().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (machine, profile, plan) = (path("lab.xml"), path("p.numaloc"), path("plan.json"));
    let done = |command: &mut Command| {
        let output = command.output().expect("numaloc runs");
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{command:?}: {words}");
    };
    let call = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_numaloc"));
        command.args(arguments).env("OMP_NUM_THREADS", "8");
        command
    };
    done(&mut call(&["lab", "topology", "-o", &machine]));
    let record = ["record", "-o", &profile, "--", program, "2048", "400"];
    done(&mut call(&record));
    let planned = ["plan", &profile, "--machine", &machine, "-o", &plan];
    let policies = ["--threads", "numaloc", "--pages", "locality", "--dynamic"];
    done(call(&planned).args(policies));
    let options = ["--env", "OMP_NUM_THREADS=8", "--plan", &plan];
    let (json, output) = lab(&options, &[program, "2048", "600"]);
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words}");
    let share = remote_share(&json);
    assert!(share < 0.1, "{share} remote: {json}\n{words}");
    assert!(
        words.contains("later moves: 1 of 1 made (1 times)"),
        "{words}"
    );
    let line = words.lines().find(|line| line.contains("later moves: "));
    let moved = line.and_then(|line| line.split_once("threads and ")?.1.split(' ').next());
    let moved: u64 = moved.expect("a number of pages").parse().unwrap();
    let migrated = json["kernel_counters"]["pgmigrate_success"]
        .as_u64()
        .unwrap();
    assert!(moved >= 10 && migrated >= moved, "{words}\n{json}");
}

fn online(folder: &Path, lab_options: &[&str], source: &str, command: &[&str]) -> (Value, Output) {
    let name = Path::new(source).file_stem().unwrap().to_str().unwrap();
    let program = build(folder, source, name, &["-fopenmp"]);
    let fixed = ["--env", "OMP_NUM_THREADS=8"];
    let options = [&fixed[..], lab_options].concat();
    lab(&options, &[&[program.to_str().unwrap()], command].concat())
}

/// Without a plan: first touch leaves three quarters of the accesses remote, because the main thread initialises all.
#[test]
#[ignore = "boots virtual machines: make test-lab"]
fn pages_follow_the_threads_that_write_them_without_a_plan() {
    let folder = tempfile::tempdir().unwrap();
    let source = "../../workloads/stencil2d.c";
    // Decisions are made by the clock: a host that is busy may leave the guest no time for one before the program ends.
    // Then it runs longer.
    let mut runs = (0..6).map(|doubled| {
        let steps = (200 << doubled).to_string();
        let (json, output) = online(folder.path(), &["--online"], source, &["512", &steps]);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{words}");
        assert!(words.contains("write faults of tracked pages"), "{words}");
        (json, words)
    });
    let followed = runs.find(|(json, _)| remote_share(json) < 0.45);
    let (json, words) = followed.expect("less than 45 % is remote in one of six runs");
    let migrated = json["kernel_counters"]["pgmigrate_success"]
        .as_u64()
        .unwrap();
    // Two grids of 2 MiB, each page about once.
    assert!((256..2048).contains(&migrated), "{migrated}: {words}");
}

/// The program that checks its system calls, handlers, children and huge pages, while both sources show its pages and
/// they move. It runs until one has moved, for five minutes at most.
#[test]
#[ignore = "boots virtual machines: make test-ci-lab"]
fn ci_a_program_whose_pages_are_watched_and_moved_is_undisturbed() {
    let folder = tempfile::tempdir().unwrap();
    for (balancing, source) in [(&[][..], "write faults"), (&["--autonuma"], "hint faults")] {
        let options = [
            &["--huge-pages", "madvise", "--online=--page-interval 0.2"],
            balancing,
        ]
        .concat();
        let victim = "tests/online/victim.c";
        let (json, output) = online(folder.path(), &options, victim, &["6", "300"]);
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{words}");
        assert!(
            words.contains("right\n") && words.contains(source),
            "{words}"
        );
        let migrated = json["kernel_counters"]["pgmigrate_success"]
            .as_u64()
            .unwrap();
        assert!(migrated > 0, "{words}");
    }
}

/// A few of the kills of `make test-kills`.
#[test]
#[ignore = "boots virtual machines: make test-ci-lab"]
fn ci_programs_survive_kills_of_numaloc_while_their_pages_move() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(root.join("make/kills"))
        .args([env!("CARGO_BIN_EXE_numaloc"), "2"])
        .current_dir(&root)
        .output()
        .expect("the script runs");
    let words = String::from_utf8_lossy(&output.stdout);
    assert!(words.contains("2 kills survived"), "{words}\n{output:?}");
}

/// A profile of tasks that read one data block, in a guest of two nodes, with all replays near or all far: accesses by
/// `[node of the CPU][node of the memory]`.
fn replays(program: &str, design: &str) -> Vec<Vec<u64>> {
    let design = format!("NUMALOC_OCR_DESIGN={design}");
    let (json, output) = lab(
        &[
            "--nodes",
            "2",
            "--cpus",
            "2",
            "--memory",
            "256M",
            "--env",
            "NUMALOC_OCR_PROFILE=/tmp/profile",
            "--env",
            "NUMALOC_OCR_REPLAYS=16",
            "--env",
            &design,
        ],
        &[program],
    );
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words}");
    assert!(words.contains("all tasks read right"), "{words}");
    serde_json::from_value(json["all_accesses"].clone()).unwrap()
}

/// The program begins on the other node: a profile that does not bind its thread stays there, and near and far change
/// sides.
#[test]
#[ignore = "boots virtual machines: make test-ci-lab"]
fn ci_near_replays_of_tasks_are_local_and_far_ones_remote() {
    // 8 replays of the first task, 16 of those that follow, each the better of two runs of 8 passes over 65,536 words.
    const REPLAYED: u64 = 2 * 24 * 8 * (1 << 16);
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("readers");
    let built = numaloc(&[
        "tasks",
        "cc",
        "-O2",
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/readers.c"),
        "-o",
        program.to_str().unwrap(),
    ]);
    assert!(built.status.success(), "{built:?}");
    let program = program.to_str().unwrap();
    let near = replays(program, "near");
    assert!(near[0][0] >= REPLAYED, "{near:?}");
    // The guest's kernel and its other programs access the other node too, some hundred thousand times and more on some
    // runs than on others; the replays of a single task would be 6 million.
    let remote = near[0][1] + near[1][0];
    assert!(
        remote * 8 < REPLAYED,
        "near replays access the other node: {near:?}"
    );
    let far = replays(program, "far");
    assert!(
        (REPLAYED..REPLAYED + REPLAYED / 5).contains(&far[0][1]),
        "far replays access their own node: {far:?}"
    );
    // Tasks that are not replayed are as before.
    let rest = far[0][0].abs_diff(near[0][0] - REPLAYED);
    assert!(rest * 5 < REPLAYED, "{near:?} and {far:?}");
}

/// Records a program, plans threads and pages jointly for the default machine, and runs it there: all threads
/// and at least 99 % of the pages must be where planned, else the status is 3.
fn lands_where_planned(folder: &Path, source: &str, kind: &str, flags: &[&str]) {
    let name = Path::new(source).file_stem().unwrap().to_str().unwrap();
    let what = format!("{name}, {kind}");
    let program = build(folder, source, &format!("{name}-{kind}"), flags);
    let path = |ending: &str| {
        let file = folder.join(format!("{name}-{kind}{ending}"));
        file.to_str().unwrap().to_owned()
    };
    let (program, profile, plan) = (program.to_str().unwrap(), path(".numaloc"), path(".json"));
    let machine = folder.join("lab.xml");
    let machine = machine.to_str().unwrap();
    if !Path::new(machine).exists() {
        assert!(
            numaloc(&["lab", "topology", "-o", machine])
                .status
                .success()
        );
    }
    let done = |output: Output| {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{what}: {words}");
        words
    };
    let omp = [("OMP_NUM_THREADS", "8"), ("OMP_WAIT_POLICY", "passive")];
    // The guest's processor is emulated: the loader's memory depends on what the processor has.
    let record = Command::new(env!("CARGO_BIN_EXE_numaloc"))
        .args([
            "record",
            "--frontend",
            "qemu",
            "-o",
            &profile,
            "--",
            program,
        ])
        .envs(omp)
        .output();
    done(record.expect("numaloc runs"));
    done(numaloc(&[
        "plan",
        "--anyway",
        &profile,
        "--machine",
        machine,
        "--threads",
        "joint",
        "-o",
        &plan,
    ]));
    let run = [
        "lab",
        "--env",
        "OMP_NUM_THREADS=8",
        "--plan",
        &plan,
        "--require",
        "99",
    ];
    let words = done(numaloc(&[&run[..], &["--", program]].concat()));
    let (placed, planned) = placed_of_planned(&words, "threads: ");
    assert!(placed == planned && planned >= 2, "{what}: {words}");
    let (placed, planned) = placed_of_planned(&words, "pages: ");
    assert!(
        planned >= 20 && 100 * placed >= 99 * planned,
        "{what}: {words}"
    );
}

/// `P of N` after `what` in what `numaloc run` reports.
fn placed_of_planned(words: &str, what: &str) -> (u64, u64) {
    let line = words.lines().find_map(|line| line.split_once(what));
    let mut numbers = line
        .expect(what)
        .1
        .split(' ')
        .filter_map(|word| word.parse().ok());
    (numbers.next().expect(what), numbers.next().expect(what))
}

/// OpenMP, POSIX threads, and two processes that share memory.
fn all_kinds_land_where_planned(kind: &str, flag: &str) {
    let folder = tempfile::tempdir().unwrap();
    for (source, openmp) in [
        ("ring", true),
        ("pthread_ring", false),
        ("shared_pair", false),
    ] {
        let source = format!("../../workloads/{source}.c");
        let flags = [&[flag][..], if openmp { &["-fopenmp"] } else { &[] }].concat();
        lands_where_planned(folder.path(), &source, kind, &flags);
    }
}

#[test]
#[ignore = "boots virtual machines: make test-lab"]
fn dynamic_programs_land_where_planned() {
    all_kinds_land_where_planned("dynamic", "-pie");
}

#[test]
#[ignore = "boots virtual machines: make test-lab"]
fn static_position_independent_programs_land_where_planned() {
    all_kinds_land_where_planned("static-pie", "-static-pie");
}

#[test]
#[ignore = "boots virtual machines: make test-lab"]
fn programs_at_fixed_addresses_land_where_planned() {
    all_kinds_land_where_planned("no-pie", "-no-pie");
}

#[test]
#[ignore = "boots virtual machines: make test-lab"]
fn the_guest_randomises_addresses() {
    let output = numaloc(&[
        "lab",
        "--",
        "/bin/cat",
        "/proc/sys/kernel/randomize_va_space",
    ]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2\n", "{output:?}");
}

#[test]
#[ignore = "boots virtual machines: make test-lab"]
fn numactl_itself_is_not_counted() {
    let folder = tempfile::tempdir().unwrap();
    let program = walk(folder.path());
    let program = program.to_str().unwrap();
    let all = |json: &Value| -> u64 {
        let rows = json["all_accesses"].as_array().unwrap();
        rows.iter()
            .flat_map(|row| row.as_array().unwrap())
            .map(|n| n.as_u64().unwrap())
            .sum()
    };
    let bare = all(&lab(&[], &[program]).0);
    let launched = all(&lab(&["--numactl", "--localalloc"], &[program]).0);
    // Interrupted string instructions may be counted again; numactl's own start is 150 000 accesses.
    assert!(bare.abs_diff(launched) < 1000, "{bare} and {launched}");
}

#[test]
#[ignore = "boots virtual machines: make test-lab"]
fn guest_topology_is_the_one_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lab.xml");
    let file = file.to_str().unwrap();
    let made = numaloc(&[
        "--json",
        "lab",
        "topology",
        "--nodes",
        "2",
        "--cpus",
        "4",
        "--distances",
        "10,31,31,10",
        "-o",
        file,
    ]);
    assert!(made.status.success(), "{made:?}");
    let shown = numaloc(&["--json", "topology", "--machine", file]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(
        shown["nodes"][0]["distances"],
        serde_json::json!([10.0, 31.0])
    );
    assert_eq!(shown["nodes"][1]["pus"], serde_json::json!([2, 3]));
}

#[test]
#[ignore = "boots virtual machines: make test-lab"]
fn failures_have_their_status_and_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "no program").unwrap();
    for (arguments, status, words) in [
        (
            vec!["lab", "--", "/no/such"],
            127,
            "cannot run /no/such: No such file",
        ),
        (
            vec!["lab", "--", text.to_str().unwrap()],
            126,
            "it is not executable",
        ),
        (
            vec!["lab", "--cpus", "7", "--", "/bin/true"],
            2,
            "do not divide evenly",
        ),
        (
            vec!["lab", "--timeout", "1", "--", "/bin/sleep", "60"],
            124,
            "within 1 s",
        ),
    ] {
        let output = numaloc(&arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}
