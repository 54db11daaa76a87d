//! `numaloc map` from outside: the stable JSON, the formats, the refusals.

use assert_cmd::Command;
use serde_json::Value;

fn map(arguments: &[&str]) -> std::process::Output {
    let mut command = Command::cargo_bin("numaloc").expect("the binary is built");
    command
        .arg("map")
        .args(arguments)
        .output()
        .expect("it runs")
}

/// A ring of 16 in CSV, rows in order or reversed.
fn ring(reversed: bool) -> tempfile::NamedTempFile {
    let mut rows: Vec<String> = (0..16)
        .map(|i: usize| {
            let cell = |j: usize| {
                if (i + 1) % 16 == j || (j + 1) % 16 == i {
                    "5"
                } else {
                    "0"
                }
            };
            (0..16).map(cell).collect::<Vec<_>>().join(",")
        })
        .collect();
    if reversed {
        rows.reverse();
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), rows.join("\n")).unwrap();
    file
}

#[test]
fn every_policy_answers_in_the_documented_shape() {
    let file = ring(false);
    let path = file.path().to_str().unwrap();
    let output = map(&[
        path,
        "--topology",
        "numa:4 core:4 pu:1",
        "--distances",
        "10,2",
        "--policy",
        "all",
        "--json",
    ]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let policies = answer["policies"].as_array().unwrap();
    assert_eq!(policies.len(), numaloc_mapping::registry().len());
    for policy in policies {
        let name = &policy["policy"];
        let mut pus: Vec<u64> = policy["mapping"]
            .as_array()
            .unwrap_or_else(|| panic!("{name}: {policy}"))
            .iter()
            .map(|pu| pu.as_u64().unwrap())
            .collect();
        // J by hand from the mapping: 5 x distance over the 16 edges.
        let distance = |a: u64, b: u64| if a / 4 == b / 4 { 2.0 } else { 10.0 };
        let edges = || (0..16).map(|i| (pus[i], pus[(i + 1) % 16]));
        let cost: f64 = edges().map(|(a, b)| 5.0 * distance(a, b)).sum();
        let remote: f64 = edges().filter(|(a, b)| a / 4 != b / 4).map(|_| 5.0).sum();
        assert_eq!(policy["cost"].as_f64(), Some(cost), "{name}");
        assert_eq!(policy["remote"].as_f64(), Some(remote), "{name}");
        assert!(policy["lower_bound"].as_f64().unwrap() <= cost, "{name}");
        assert!(policy["seconds"].as_f64().unwrap() >= 0.0, "{name}");
        pus.sort_unstable();
        assert_eq!(pus, (0..16).collect::<Vec<_>>(), "{name}: one task a PU");
        if name == "numaloc" || name == "scotch" || name == "tree-match" {
            assert_eq!(remote, 20.0, "{name} cuts a ring of 16 four times");
        }
    }
}

#[test]
fn reversed_rows_are_turned_round_and_suspected() {
    let (plain, reversed) = (ring(false), ring(true));
    let run = |file: &tempfile::NamedTempFile, extra: &[&str]| {
        let mut arguments = vec![
            file.path().to_str().unwrap(),
            "--topology",
            "numa:4 core:4 pu:1",
        ];
        arguments.extend(["--policy", "deloc", "--json"]);
        arguments.extend(extra);
        let output = map(&arguments);
        let mut answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let policy = answer["policies"][0].take();
        (
            policy["mapping"].clone(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert_eq!(run(&plain, &[]), run(&reversed, &["--reversed"]));
}

#[test]
fn refusals_are_one_clear_line() {
    let file = ring(false);
    let path = file.path().to_str().unwrap();
    let bad = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
    std::fs::write(bad.path(), "0,1\n2,0\n").unwrap();
    let odd = bad.path().to_str().unwrap();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["missing.csv"], 1, "missing.csv"),
        (
            &[odd, "--symmetric"],
            1,
            "is not symmetric: cell (0, 1) is 1, cell (1, 0) is 2",
        ),
        (&[path, "--policy", "scotsh"], 2, "unknown thread policy"),
        (&[path, "--topology", "purpel"], 2, "purpel"),
        (
            &[path, "--topology", "numa:4 core:4 pu:1", "--distances", "1"],
            2,
            "2 levels",
        ),
        (&[path, "--load", odd], 1, "4 numbers"),
        (&[path, "--groups", odd], 1, "line 1"),
        (&[odd, "--format", "npy"], 1, "no NumPy magic"),
        (&[path, "--budget", "soon"], 2, "100ms"),
    ];
    for (arguments, status, says) in cases {
        let output = map(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(*status),
            "{arguments:?}: {error}"
        );
        let first = error.lines().next().unwrap_or("");
        assert!(
            error.contains(says) && first.starts_with("error: "),
            "{arguments:?}: {error}"
        );
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}
