//! Plans by `weighted-interleave`, carried out in a guest.

use super::{build, lab, numaloc};

/// A weighted plan carried out in a guest, judged by the accesses counted there: all pages of the table are accessed
/// equally often.
#[test]
#[ignore = "boots virtual machines: make test-ci-lab"]
fn ci_a_weighted_plan_spreads_pages_by_its_weights() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), "tests/lab/parts.c", "parts", &[]);
    let program = program.to_str().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (machine, profile, plan) = (path("lab.xml"), path("p.numaloc"), path("plan.json"));
    let shape = ["--nodes", "2", "--cpus", "4", "--memory", "256M"];
    let done = |arguments: &[&str]| {
        let output = numaloc(arguments);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {words}");
    };
    done(&[&["lab", "topology"], &shape[..], &["-o", &machine]].concat());
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
    let policies = [
        "--threads",
        "packed",
        "--pages",
        "weighted-interleave",
        "--weights",
        "3,1",
    ];
    done(&[&to_plan[..], &policies].concat());
    let (json, output) = lab(&[&shape[..], &["--plan", &plan]].concat(), &[program]);
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words}");
    let rows = json["all_accesses"].as_array().unwrap();
    let on = |node: usize| {
        rows.iter()
            .map(|row| row[node].as_f64().unwrap())
            .sum::<f64>()
    };
    let share = on(0) / (on(0) + on(1));
    assert!((share - 0.75).abs() < 0.01, "{share}: {json}\n{words}");
}
