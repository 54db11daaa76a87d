//! The workloads, compiled against `ocr.h` and the library as a user would, on every scheduler; and the whole way from
//! a profile to a tuned run.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use numaloc_task_plan::{
    AnalyseError, Analysis, Distribution, Options, analyse, read_profile, write_plan,
};
use support::{compile_file, run_any};

fn compile(folder: &Path, workload: &str) -> PathBuf {
    compile_file(folder, &format!("workloads/ocr/{workload}/{workload}.c"))
}

fn run(program: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    let output = Command::new(program)
        .args(arguments)
        .env("NUMALOC_OCR_CHECKED", "1")
        .envs(
            settings
                .iter()
                .map(|(name, value)| (format!("NUMALOC_OCR_{name}"), value)),
        )
        .output()
        .expect("it starts");
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{} {arguments:?} {settings:?}: {}\n{}{}",
        program.display(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

#[test]
fn every_workload_checks_its_result_on_every_scheduler() {
    let folder = tempfile::tempdir().unwrap();
    for (workload, arguments) in [
        ("stencil2d", &["96", "3", "2", "7"][..]),
        ("seismic", &["64", "2", "3", "9"]),
        ("fibonacci", &["12"]),
        ("smith-waterman", &["200", "20"]),
        ("cholesky", &["80", "20"]),
        ("reduction", &["5", "6"]),
        ("sparse", &["600", "7", "9"]),
        ("overhead", &["fork-join", "1000"]),
        ("multigrid", &["64", "5", "4", "3"]),
        ("conjugate-gradient", &["40", "5", "6"]),
        ("molecular-dynamics", &["12", "3", "3"]),
        ("irregular", &["20", "9", "3"]),
        ("fourier", &["8", "4", "2"]),
        ("wavefront", &["8", "5", "3"]),
        ("queens", &["7", "3"]),
    ] {
        let program = compile(folder.path(), workload);
        for settings in [
            &[("SCHEDULER", "numa"), ("WORKERS", "4")][..],
            &[("SCHEDULER", "single"), ("ALLOCATOR", "system")],
            &[("SCHEDULER", "tbb"), ("WORKERS", "3")],
            &[("ALLOCATOR", "tbb"), ("WORKERS", "3")],
            &[
                ("MACHINE", "numa:4 pu:2"),
                ("THREADS", "1"),
                ("STEAL", "node"),
            ],
            &[("MACHINE", "numa:4 pu:2")],
            &[("MACHINE", "numa:4 pu:2"), ("SCHEDULER", "tbb")],
        ] {
            run(&program, arguments, settings);
        }
    }
}

fn profile(program: &Path, arguments: &[&str], folder: &Path, replays: &str) -> Analysis {
    let options = Options::default();
    profile_for("numa:4 pu:2", options, program, arguments, folder, replays)
}

fn profile_for(
    machine: &str,
    options: Options,
    program: &Path,
    arguments: &[&str],
    folder: &Path,
    replays: &str,
) -> Analysis {
    let shown = folder.display().to_string();
    run(
        program,
        arguments,
        &[
            ("PROFILE", &shown),
            ("MACHINE", machine),
            ("REPLAYS", replays),
            // On a busy machine experiments may reach their time limit, which is reported.
            ("BUDGET", "3600"),
        ],
    );
    let machine = numaloc_topology::resolve(machine).unwrap();
    let profile = read_profile(folder).unwrap();
    let analysis = analyse(&profile, &machine, options).unwrap();
    write_plan(&folder.join("plan"), &analysis.plan).unwrap();
    analysis
}

fn field(stats: &Path, name: &str) -> f64 {
    let text = std::fs::read_to_string(stats).unwrap();
    let at = text.find(&format!("\"{name}\":")).expect(name) + name.len() + 3;
    let end = text[at..].find([',', '}']).unwrap();
    text[at..at + end].parse().unwrap()
}

/// Regular and irregular parts, all to all, a front without a loop, tasks whose number depends on the data.
#[test]
fn a_plan_of_another_number_of_parts_is_not_slower_than_none() {
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("stats");
    let stats_name = stats.display().to_string();
    let (four, two) = ("numa:4 pu:4", "numa:2 pu:8");
    for (machine, workload, small, runs) in [
        (four, "stencil2d", "64 8 4 4", ["160 4 4 20", "160 2 1 20"]),
        (four, "irregular", "64 16 4", ["512 4 6", "256 64 4"]),
        (four, "fourier", "16 8 4", ["32 16 4", "32 4 4"]),
        (four, "smith-waterman", "400 25", ["800 25", "800 100"]),
        (four, "cholesky", "160 20", ["240 60", "320 20"]),
        (two, "irregular", "64 64 4", ["512 4 6", "256 64 4"]),
        (two, "smith-waterman", "400 50", ["1600 50", "1600 25"]),
    ] {
        let arguments = |line: &'static str| line.split(' ').collect::<Vec<_>>();
        let program = compile(folder.path(), workload);
        let profiled = folder.path().join(format!("{workload}-profile"));
        let options = Options {
            distribution: Distribution::Best,
            ..Options::default()
        };
        profile_for(
            machine,
            options,
            &program,
            &arguments(small),
            &profiled,
            "0",
        );
        let plan = profiled.join("plan").display().to_string();
        for line in runs {
            let seconds = |plan: Option<&str>| -> f64 {
                let seeds = ["1", "2", "3", "4"];
                let runs = seeds.map(|seed| {
                    let mut settings = vec![
                        ("MACHINE", machine),
                        ("STATS", &*stats_name),
                        ("HINTS", "0"),
                        ("SEED", seed),
                    ];
                    settings.extend(plan.map(|plan| ("PLAN", plan)));
                    let output = run_any(&program, &arguments(line), &settings);
                    assert!(output.status.success(), "{output:?}");
                    field(&stats, "simulated_seconds")
                });
                runs.iter().sum::<f64>() / 4.0
            };
            let (planned, none) = (seconds(Some(&plan)), seconds(None));
            assert!(
                planned < 1.02 * none,
                "{workload} {line} on {machine}: {planned} s, without a plan {none} s"
            );
        }
    }
}

/// A plan of sixteen parts serves other numbers of parts; where it cannot, one line says so, and the run has no plan.
#[test]
fn a_plan_serves_another_number_of_parts_or_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "stencil2d");
    let profiled = folder.path().join("profile");
    profile(&program, &["64", "4", "4", "4"], &profiled, "0");
    let plan = profiled.join("plan").display().to_string();
    let stats = folder.path().join("stats");
    let stats_name = stats.display().to_string();
    let settings = [
        ("MACHINE", "numa:4 pu:2"),
        ("STATS", &*stats_name),
        ("HINTS", "0"),
        ("PLAN", &*plan),
    ];
    for parts in [["2", "1"], ["2", "2"], ["5", "4"], ["8", "4"], ["8", "8"]] {
        let output = run(&program, &["160", parts[0], parts[1], "20"], &settings);
        assert!(output.stderr.is_empty());
        // Of few parts, many borders are between nodes.
        let most = if parts[0] == "2" { 0.25 } else { 0.05 };
        assert!(field(&stats, "remote_share") < most, "{parts:?}");
        assert!(field(&stats, "unplanned") <= 1.0, "{parts:?}");
        // All nodes have their share: as fast as the parts allow.
        let planned = field(&stats, "simulated_seconds");
        run(&program, &["160", parts[0], parts[1], "20"], &settings[..3]);
        assert!(
            planned < 1.02 * field(&stats, "simulated_seconds"),
            "{parts:?}"
        );
    }
    let program = compile(folder.path(), "sparse");
    let profiled = folder.path().join("sparse-profile");
    profile(&program, &["2000", "12", "4"], &profiled, "0");
    let plan = profiled.join("plan").display().to_string();
    let settings = [settings[0], settings[1], settings[2], ("PLAN", &*plan)];
    for workers in [&[][..], &[("THREADS", "1")]] {
        let output = run_any(
            &program,
            &["20000", "48", "4"],
            &[&settings, workers].concat(),
        );
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("data blocks of one kind are 0.8"), "{said}");
        assert!(said.contains("goes on without it"), "{said}");
    }
}

/// Four iterations and sixteen give the same classes; the plan from four covers a thousand, equals the hints (which it
/// never read), and makes less than half of the traffic of the scheduler without placement remote.
#[test]
fn a_plan_from_four_iterations_serves_a_thousand() {
    let folder = tempfile::tempdir().unwrap();
    for (workload, few, more, many) in [
        (
            "stencil2d",
            ["64", "4", "2", "4"],
            ["64", "4", "2", "16"],
            ["128", "4", "2", "1000"],
        ),
        (
            "seismic",
            ["48", "4", "3", "4"],
            ["48", "4", "3", "16"],
            ["96", "4", "3", "1000"],
        ),
    ] {
        let program = compile(folder.path(), workload);
        let short = folder.path().join(format!("{workload}-4"));
        let long = folder.path().join(format!("{workload}-16"));
        let analysis = profile(&program, &few, &short, "8");
        let again = profile(&program, &more, &long, "0");
        let classes = |analysis: &Analysis| {
            let classes = analysis.plan.classes.iter();
            let mut paths: Vec<_> = classes.map(|c| (c.path.clone(), c.slots)).collect();
            paths.sort();
            paths
        };
        assert_eq!(classes(&analysis), classes(&again), "{workload}");
        assert!(analysis.hints_compared > 0);
        assert!(
            analysis.hints_agreeing * 100 >= analysis.hints_compared * 95,
            "{workload}: {} of {}",
            analysis.hints_agreeing,
            analysis.hints_compared
        );
        let stats = folder.path().join("stats");
        let plan = short.join("plan").display().to_string();
        let stats_name = stats.display().to_string();
        let common = [("MACHINE", "numa:4 pu:2"), ("STATS", &*stats_name)];
        let remote = |extra: &[(&str, &str)]| {
            run(&program, &many, &[&common[..], extra].concat());
            field(&stats, "remote_bytes")
        };
        // Both without stealing from other nodes, as in the paper's rows: what counts is where tasks belong.
        let planned = remote(&[("PLAN", &plan), ("HINTS", "0"), ("STEAL", "node")]);
        assert_eq!(field(&stats, "unplanned"), 0.0, "{workload}");
        let hinted = remote(&[("STEAL", "node")]);
        let oblivious = remote(&[("SCHEDULER", "tbb"), ("ALLOCATOR", "system")]);
        assert!(planned <= 1.05 * hinted, "{workload}: {planned} {hinted}");
        assert!(
            2.0 * planned <= oblivious,
            "{workload}: {planned} {oblivious}"
        );
        assert!(
            2.0 * hinted <= oblivious,
            "{workload}: {hinted} {oblivious}"
        );
    }
}

#[test]
fn a_recursion_of_bounded_depth_is_planned_by_depth() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "multigrid");
    let profiled = folder.path().join("profile");
    let analysis = profile(&program, &["64", "8", "3", "3"], &profiled, "0");
    assert!(
        // The rest are the tasks that only create the phases.
        analysis.placed_tasks * 10 > analysis.tasks * 8 && analysis.refused.is_empty(),
        "{} of {}",
        analysis.placed_tasks,
        analysis.tasks
    );
    // More cycles and points, but the same depth.
    let stats = folder.path().join("stats");
    let plan = profiled.join("plan").display().to_string();
    let stats_name = stats.display().to_string();
    run(
        &program,
        &["256", "8", "3", "9"],
        &[
            ("PLAN", &plan),
            ("MACHINE", "numa:4 pu:2"),
            ("STATS", &stats_name),
        ],
    );
    assert_eq!(field(&stats, "unplanned"), 0.0);
    assert!(field(&stats, "remote_share") < 0.05);
}

#[test]
fn the_plan_of_another_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "wavefront");
    let profiled = folder.path().join("profile");
    profile(&program, &["8", "8", "3"], &profiled, "0");
    let plan = profiled.join("plan").display().to_string();
    let other = compile(folder.path(), "stencil2d");
    let settings = [("PLAN", plan.as_str()), ("MACHINE", "numa:4 pu:2")];
    let output = run_any(&other, &["64", "4", "2", "4"], &settings);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("is of another program"), "{stderr}");
}

#[test]
fn experiments_end_with_their_budget_and_the_profile_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "stencil2d");
    let shown = folder.path().join("profile").display().to_string();
    let settings = [("PROFILE", shown.as_str()), ("BUDGET", "0")];
    let output = run_any(&program, &["64", "4", "2", "4"], &settings);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(
        stderr.contains("the time limit of 0 s for experiments is reached"),
        "{stderr}"
    );
    let profile = read_profile(Path::new(&shown)).unwrap();
    assert!(profile.replays.is_empty() && profile.tasks.len() > 50);
}

#[test]
fn a_recursion_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "fibonacci");
    let shown = folder.path().join("profile").display().to_string();
    run(&program, &["10"], &[("PROFILE", &shown), ("REPLAYS", "0")]);
    let profile = read_profile(Path::new(&shown)).unwrap();
    let machine = numaloc_topology::resolve("numa:4 pu:2").unwrap();
    let error = analyse(&profile, &machine, Options::default()).unwrap_err();
    assert!(matches!(error, AnalyseError::Recursion { .. }), "{error}");
}

#[test]
fn bad_files_and_settings_get_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "reduction");
    for (settings, words) in [
        (&[("SCHEDULER", "fast")][..], "numa, tbb or single"),
        (&[("WORKERS", "0")], "1 to 4096"),
        (&[("MACHINE", "purpel")], "purpel"),
        (&[("PLAN", "/nonexistent")], "cannot read"),
    ] {
        let output = Command::new(&program)
            .envs(
                settings
                    .iter()
                    .map(|(n, v)| (format!("NUMALOC_OCR_{n}"), v)),
            )
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{stderr}");
        assert!(
            stderr.contains(words) && stderr.lines().count() == 1,
            "{stderr}"
        );
    }
}

/// In the model, a byte of a block costs a core of this machine at least 4/50 ns.
#[test]
fn a_simulated_task_is_ready_when_its_last_dependence_ends() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile_file(folder.path(), "crates/ocr/tests/c/join.c");
    let stats = folder.path().join("stats");
    let stats_name = stats.display().to_string();
    for largest in ["0", "1", "2"] {
        let settings = [
            ("MACHINE", "numa:4 pu:4"),
            ("STEAL", "node"),
            ("STATS", &*stats_name),
        ];
        run(&program, &[largest], &settings);
        let seconds = field(&stats, "simulated_seconds");
        let both = 2.0 * f64::from(1 << 20) * 4.0 / 50e9;
        assert!(seconds > both, "task {largest} is large: {seconds} s");
    }
}

#[test]
fn a_profiling_run_shows_its_progress() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "stencil2d");
    let profile = folder.path().join("profile").display().to_string();
    let shown = |progress| {
        let settings = [
            ("PROFILE", &*profile),
            ("MACHINE", "numa:4 pu:2"),
            ("PROGRESS", progress),
        ];
        let output = run_any(&program, &["64", "2", "2", "2"], &settings);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let line = shown("1");
    assert!(
        line.contains(" tasks created, ") && line.contains(" of at most 30 s of experiments"),
        "{line}"
    );
    assert!(!shown("0").contains("experiments"));
}
