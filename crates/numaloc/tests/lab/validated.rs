//! `numaloc validate` in the virtual machine.

use std::path::Path;

use serde_json::Value;

use crate::numaloc;

/// Places are real there, times are not.
#[test]
#[ignore = "boots virtual machines: make test-lab"]
fn a_virtual_machine_is_validated() {
    let numaloc_path = env!("CARGO_BIN_EXE_numaloc");
    let native = Path::new(numaloc_path).with_file_name("numaloc-native");
    let folder = tempfile::tempdir().unwrap();
    let report = format!("--json={}", folder.path().join("lab.json").display());
    let machine = ["--nodes", "2", "--cpus", "4", "--memory", "1G"];
    let file = ["--file", native.to_str().unwrap()];
    let validate = ["--quiet", "--json", "validate", "--quick", "--runs", "2"];
    // More than private caches hold: with less, no plan gains anything.
    let chosen = ["--seconds", "0.02", "--kernels", "triad", "--size", "32M"];
    let variants = ["--variants", "interleave,autonuma,plan", "-o", "v.html"];
    let output = numaloc(
        &[
            &[&report, "lab"][..],
            &machine,
            &file,
            &["--", numaloc_path],
            &validate,
            &chosen,
            &variants,
        ]
        .concat(),
    );
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let mut lines = said.lines();
    let line = lines.find(|line| line.starts_with('{') && line.contains("\"left_out\""));
    let found: Value = serde_json::from_str(line.unwrap_or_else(|| panic!("{said}"))).unwrap();
    assert_eq!(found["complete"], true);
    assert_eq!(found["machine"]["emulated"], true);
    assert_eq!(found["machine"]["nodes"].as_array().unwrap().len(), 2);
    let kernel = &found["kernels"][0];
    let share = |variant: &str| {
        let rows = kernel["variants"].as_array().unwrap();
        let row = rows.iter().find(|row| row["variant"] == variant);
        let row = row.unwrap_or_else(|| panic!("no {variant}: {}", found["left_out"]));
        row["remote_share"].as_f64().unwrap()
    };
    // By construction: half of interleaved pages are remote from anywhere; the plan brings each to its user.
    assert!((share("interleave") - 0.5).abs() < 0.1, "{kernel}");
    assert!(share("plan") < 0.1, "{kernel}");
    assert!((0.0..=1.0).contains(&share("autonuma")), "{kernel}");
    let judged = kernel["judged"].as_array().unwrap().iter();
    let decided =
        judged.filter(|row| ["held", "failed"].contains(&row["outcome"].as_str().unwrap()));
    let topics: Vec<&str> = decided.map(|row| row["topic"].as_str().unwrap()).collect();
    assert!(topics.len() >= 2, "{kernel}");
    assert!(
        topics.iter().all(|topic| *topic == "remote_share"),
        "{kernel}"
    );
}
