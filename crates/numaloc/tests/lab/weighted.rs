//! Plans by `weighted-interleave`, carried out in a guest.

use std::path::Path;

use super::{build, carried_out, numaloc};

const SHAPE: [&str; 6] = ["--nodes", "2", "--cpus", "4", "--memory", "256M"];

/// Judged by the accesses counted in the guest: all pages of the table are accessed equally often.
#[test]
#[ignore = "boots virtual machines: make test-ci-lab"]
fn ci_a_weighted_plan_spreads_pages_by_its_weights() {
    let policies = "--threads packed --pages weighted-interleave --weights 3,1";
    let policies: Vec<&str> = policies.split(' ').collect();
    let (json, words) = carried_out(&SHAPE, &policies);
    let rows = json["all_accesses"].as_array().unwrap();
    let on = |node: usize| {
        rows.iter()
            .map(|row| row[node].as_f64().unwrap())
            .sum::<f64>()
    };
    let share = on(0) / (on(0) + on(1));
    assert!((share - 0.75).abs() < 0.01, "{share}: {json}\n{words}");
}

/// A kernel with the policy, by the name of its package; that of other tests may be older.
const NEWER: &str = "linux-image-6.12-cloud-amd64";

/// The program `spread`, a plan for it with weights 3:1, and the folder of both.
struct Planned {
    folder: tempfile::TempDir,
    program: String,
    plan: String,
}

impl Planned {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = build(folder.path(), "tests/lab/spread.c", "spread", &[]);
        let program = program.to_str().unwrap().to_owned();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (machine, profile, plan) = (path("lab.xml"), path("p.numaloc"), path("plan.json"));
        let done = |arguments: &[&str]| {
            let output = numaloc(arguments);
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(0), "{arguments:?}: {words}");
        };
        done(&[&["lab", "topology"], &SHAPE[..], &["-o", &machine]].concat());
        done(&["record", "-o", &profile, "--", &program]);
        let policies = "--threads packed --pages weighted-interleave --weights 3,1 -o";
        let policies: Vec<&str> = policies.split(' ').collect();
        let subject = ["plan", "--anyway", &profile, "--machine", &machine];
        done(&[&subject[..], &policies, &[&plan]].concat());
        Self {
            folder,
            program,
            plan,
        }
    }

    /// Runs in a guest: what the program and numaloc printed, if the guest has its kernel.
    fn run(&self, options: &[&str], command: &[&str]) -> Option<String> {
        let output = numaloc(&[&["lab"], &SHAPE[..], options, &["--"], command].concat());
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        if words.contains("apt finds no package") || words.contains("apt-get: exit") {
            eprintln!("not tested: {words}");
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{words}");
            return None;
        }
        assert_eq!(output.status.code(), Some(0), "{words}");
        Some(String::from_utf8_lossy(&output.stdout).into_owned() + &words)
    }
}

/// Pages of both objects on each node are as planned within 1 %, and one line names the way.
fn spread_by(words: &str, way: &str) {
    for (object, pages) in [("mapped", 6144.0), ("table", 2000.0)] {
        let line = words.lines().find_map(|line| line.strip_prefix(object));
        let line = line.unwrap_or_else(|| panic!("{object}: {words}"));
        let on: Vec<f64> = line.split_whitespace().flat_map(str::parse).collect();
        for (on, share) in on.iter().zip([0.75, 0.25]) {
            let planned = share * pages;
            assert!((on - planned).abs() <= 0.01 * planned, "{object}: {words}");
        }
        assert_eq!(on.iter().sum::<f64>(), pages, "{words}");
    }
    let said: Vec<&str> = words
        .lines()
        .filter(|line| line.contains("weighted-interleave"))
        .collect();
    assert_eq!(said.len(), 1, "{words}");
    assert!(said[0].contains(way), "{words}");
}

#[test]
#[ignore = "boots virtual machines, and downloads a kernel: make test-lab"]
fn a_weighted_plan_has_the_same_counts_by_the_kernels_policy_and_page_by_page() {
    let planned = Planned::new();
    let (plan, program) = (planned.plan.as_str(), planned.program.as_str());
    let newer = ["--kernel", NEWER];
    let weights = ["--weights", "3,1"];
    let run = |options: &[&[&str]]| planned.run(&options.concat(), &[program]);
    let Some(with) = run(&[&newer, &weights, &["--plan", plan]]) else {
        return;
    };
    spread_by(
        &with,
        "by the kernel's policy: the system's weights are the plan's (3:1)",
    );
    // A common factor is no difference, and other weights are not the plan's.
    let doubled = run(&[&newer, &["--weights", "6,2"], &["--plan", plan]]).unwrap();
    spread_by(&doubled, "by the kernel's policy");
    let even = run(&[&newer, &["--plan", plan]]).unwrap();
    spread_by(
        &even,
        "page by page: the system's weights are 1:1, the plan's 3:1",
    );
    // The kernel of other tests is an older one, or as new.
    let old = run(&[&["--plan", plan]]).unwrap();
    let release = old.lines().find_map(|line| line.strip_prefix("release "));
    let version = release.unwrap().splitn(3, ['.', '-']).take(2);
    let version: Vec<u32> = version.flat_map(str::parse).collect();
    if version < vec![6, 9] {
        spread_by(&old, "page by page: this kernel has no such policy");
    }
    // A kernel that has weights, and refuses the call.
    let refuse = build(
        planned.folder.path(),
        "tests/lab/refuse.c",
        "refuse",
        &["-static"],
    );
    let (refuse, own) = (refuse.to_str().unwrap(), env!("CARGO_BIN_EXE_numaloc"));
    assert!(Path::new(own).is_absolute());
    let files = ["--file", own, "--file", plan, "--file", program];
    let command = [
        refuse,
        own,
        "run",
        "--plan",
        plan,
        "--force-machine",
        "--",
        program,
    ];
    let options = [&newer[..], &weights, &files].concat();
    let refused = planned.run(&options, &command).unwrap();
    spread_by(
        &refused,
        "page by page: the kernel refuses its policy (EINVAL)",
    );
}
