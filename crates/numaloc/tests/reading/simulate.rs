//! `numaloc simulate` on a recorded program.

use std::path::Path;

use crate::simulated::{recorded, row};
use crate::support::{fails, numaloc, ok};
use serde_json::Value;

#[test]
fn placements_of_one_program_differ_as_they_should() {
    let dir = tempfile::tempdir().unwrap();
    let (profile, machine) = recorded(dir.path());
    let plan = dir.path().join("plan.json");
    ok(numaloc(&[
        "plan",
        "--quiet",
        "--anyway",
        "--threads",
        "scatter",
        "--pages",
        "locality",
        "--machine",
    ])
    .args([&machine, &profile])
    .arg("-o")
    .arg(&plan));
    let simulate = |jobs: &str| {
        ok(
            numaloc(&["simulate", "--json", "--threads", "scatter", "--jobs", jobs])
                .args(["--pages", "first-touch,interleave,locality", "--machine"])
                .args([&machine, &profile])
                .arg("--plan")
                .arg(&plan),
        )
    };
    let one = simulate("1");
    assert_eq!(one, simulate("3"), "as many jobs as you like");
    let found: Value = serde_json::from_str(&one).unwrap();
    let remote = |pages| row(&found, pages)["remote_percent"].as_f64().unwrap();
    let time = |pages| row(&found, pages)["time_ns"].as_f64().unwrap();
    // Two of the four threads are on the other node than the first, which touched half of all pages: a quarter of what
    // is read in eight of nine passes, less what starts the program.
    assert!((18.0..23.0).contains(&remote("first-touch")), "{found}");
    assert!((45.0..55.0).contains(&remote("interleave")), "{found}");
    assert!(remote("locality (plan)") < 10.0, "{found}");
    assert!(time("locality") < time("first-touch"));
    // Three quarters of the pages are on the first node: its controller is busier than with interleaving.
    let lines = |pages, node: usize| {
        row(&found, pages)["nodes"][node]["lines_read"]
            .as_f64()
            .unwrap()
    };
    let share = |pages| lines(pages, 0) / (lines(pages, 0) + lines(pages, 1));
    assert!((0.7..0.8).contains(&share("first-touch")), "{found}");
    assert!((0.45..0.55).contains(&share("interleave")), "{found}");
    // A plan that says the same as the policy gives the same.
    let (by_plan, by_policy) = (time("locality (plan)"), time("locality"));
    assert!(
        (by_plan / by_policy - 1.0).abs() < 0.01,
        "{by_plan} {by_policy}"
    );
    for row in found["rows"].as_array().unwrap() {
        let sum = |values: &Value| {
            values
                .as_array()
                .unwrap()
                .iter()
                .filter_map(Value::as_u64)
                .sum::<u64>()
        };
        let pairs: u64 = row["lines_by_node_pair"]
            .as_array()
            .unwrap()
            .iter()
            .map(sum)
            .sum();
        let at_nodes = row["nodes"].as_array().unwrap().iter();
        let at_nodes: u64 = at_nodes
            .map(|node| {
                node["lines_read"].as_u64().unwrap() + node["lines_written"].as_u64().unwrap()
            })
            .sum();
        assert_eq!(pairs, at_nodes);
        // Each thread reads its part eight times, and no cache holds more than half of it.
        assert!(pairs > 4 * 8 * (1 << 19) / 64);
    }
    let text = ok(numaloc(&["simulate", "--machine"]).args([&machine, &profile]));
    assert!(
        text.contains("queue wait") && text.contains("first-touch"),
        "{text}"
    );
}

#[test]
fn what_cannot_be_simulated_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let (profile, machine) = recorded(dir.path());
    let error = fails(
        numaloc(&["simulate", "--machine", "numa:2 core:2 pu:1"]).arg(&profile),
        2,
    );
    assert!(error.contains("no hardware figures"), "{error}");
    let plan = dir.path().join("plan.json");
    ok(numaloc(&["plan", "--quiet", "--machine", "purple"])
        .arg(&profile)
        .arg("-o")
        .arg(&plan));
    let of_other = numaloc(&["simulate", "--machine"])
        .args([&machine, &profile])
        .arg("--plan")
        .arg(&plan)
        .output()
        .unwrap();
    let error = String::from_utf8(of_other.stderr).unwrap();
    assert_eq!(of_other.status.code(), Some(1), "{error}");
    assert!(error.contains("a plan for purple"), "{error}");
    let error = fails(
        numaloc(&["simulate", "--threads", "best", "--machine"]).args([&machine, &profile]),
        2,
    );
    assert!(error.contains("unknown thread policy"), "{error}");
    // A trace that ends in the middle is reported, and simulated up to its end.
    let untraced = dir.path().join("untraced.numaloc");
    ok(numaloc(&["record", "--quiet", "-o"])
        .arg(&untraced)
        .arg("--")
        .arg(dir.path().join("a program/parts")));
    let error = fails(
        numaloc(&["simulate", "--machine"]).args([&machine, &untraced]),
        1,
    );
    assert!(
        error.contains("no access trace") && error.contains("--trace"),
        "{error}"
    );
}

#[test]
fn threads_and_pages_that_the_system_moves_have_rows() {
    let dir = tempfile::tempdir().unwrap();
    let (profile, machine) = recorded(dir.path());
    let simulate = |more: &[&str]| {
        ok(numaloc(&["simulate", "--machine"])
            .args([&machine, &profile])
            .args(["--threads", "os,scatter", "--scan-period", "0.1"])
            .args(["--pages", "first-touch,next-touch,autonuma"])
            .args(more))
    };
    let text = simulate(&["--draws", "3"]);
    let drawn = "os with autonuma: the median of 3 draws, which take ";
    assert!(text.contains(drawn), "{text}");
    assert_eq!(text.matches("\n  os ").count(), 3 + 3, "{text}");
    let found: Value = serde_json::from_str(&simulate(&["--json", "--draws", "2"])).unwrap();
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 3 + 3);
    let pinned = |pages| {
        let is_wanted = |row: &&Value| row["seed"].is_null() && row["pages"] == pages;
        rows.iter().find(is_wanted).unwrap()
    };
    // The first thread touched half of all pages before it created the others.
    let remote = |pages| pinned(pages)["remote_percent"].as_f64().unwrap();
    assert_eq!(pinned("first-touch")["page_moves"], 0);
    for moving in ["next-touch", "autonuma"] {
        assert!(
            pinned(moving)["page_moves"].as_u64().unwrap() > 100,
            "{found}"
        );
        assert!(remote(moving) < remote("first-touch"), "{found}");
    }
    let unknown = ["simulate", "--pages", "next", "--machine", "purple"];
    let error = fails(numaloc(&unknown).arg(&profile), 2);
    assert!(error.contains("autonuma"), "{error}");
}

/// What differs by more than the presets of the model may change is reported as slower, what does not as no difference.
#[test]
fn huge_pages_are_judged_by_their_page_walks() {
    let dir = tempfile::tempdir().unwrap();
    let (profile, machine) = recorded(dir.path());
    let simulate = |sizes: &str| {
        let mut command = numaloc(&["simulate", "--threads", "scatter", "--pages", "first-touch"]);
        command.args(["--tlb", "16", "--page-size", sizes, "--machine"]);
        command.args([&machine, &profile]);
        command
    };
    let text = ok(&mut simulate("4K,2M"));
    assert!(
        text.contains("pages of 2 MiB") && text.contains("page walks"),
        "{text}"
    );
    let found: Value = serde_json::from_str(&ok(simulate("4K,2M").arg("--json"))).unwrap();
    let walks = |at: usize| found["rows"][at]["page_walks"].as_u64().unwrap();
    assert!(walks(0) > 10 * walks(1) && walks(1) > 0, "{found}");
    assert_eq!(found["rows"][1]["page_bytes"], 2 << 20);
    let error = fails(&mut simulate("3M"), 2);
    assert!(error.contains("power of two from 4K to 1G"), "{error}");
}

#[test]
fn a_comparison_reports_differences_only_beyond_the_uncertainty_of_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let (profile, machine) = recorded(dir.path());
    let simulate = |more: &[&str]| {
        ok(numaloc(&["simulate", "--threads", "scatter", "--machine"])
            .args([&machine, &profile])
            .args([
                "--pages",
                "locality,first-touch,interleave",
                "--sensitivity",
            ])
            .args(more))
    };
    let found: Value = serde_json::from_str(&simulate(&["--json"])).unwrap();
    let compared = &found["sensitivity"][0];
    assert_eq!(compared["best"]["pages"], "locality", "{compared}");
    for row in compared["rows"].as_array().unwrap() {
        let number = |name: &str| row[name].as_f64().unwrap();
        assert!(number("uncertainty") > 0.0, "{row}");
        let differs = number("times_best") - 1.0 > number("uncertainty");
        assert_eq!(row["is_different"], differs, "{row}");
    }
    let text = simulate(&[]);
    assert!(
        text.contains("presets at both ends of their ranges"),
        "{text}"
    );
}

#[test]
fn finished_simulations_are_taken_from_the_file_that_keeps_them() {
    let dir = tempfile::tempdir().unwrap();
    let (profile, machine) = recorded(dir.path());
    let kept = dir.path().join("kept.sims");
    let simulate = |pages: &str| {
        ok(
            numaloc(&["simulate", "--json", "--pages", pages, "--machine"])
                .args([&machine, &profile])
                .args(["--threads", "scatter", "--resume"])
                .arg(&kept),
        )
    };
    let first = simulate("first-touch");
    let stored =
        || -> Value { serde_json::from_str(&std::fs::read_to_string(&kept).unwrap()).unwrap() };
    let mut content = stored();
    assert_eq!(content["results"].as_object().unwrap().len(), 1);
    assert_eq!(
        simulate("first-touch"),
        first,
        "the same bytes from the file"
    );
    // A result in the file is not computed again, others are.
    let results = content["results"].as_object_mut().unwrap();
    results.values_mut().next().unwrap()["time"] = 1_000_000.into();
    std::fs::write(&kept, content.to_string()).unwrap();
    let both: Value = serde_json::from_str(&simulate("first-touch,interleave")).unwrap();
    assert_eq!(row(&both, "first-touch")["time_ns"], 1000.0);
    assert!(row(&both, "interleave")["time_ns"].as_f64().unwrap() > 1e5);
    assert_eq!(stored()["results"].as_object().unwrap().len(), 2);
    // Other files are neither read nor replaced.
    for other in ["{}", "not JSON", ""] {
        std::fs::write(&kept, other).unwrap();
        let error = fails(
            numaloc(&["simulate", "--machine"])
                .args([&machine, &profile])
                .arg("--resume")
                .arg(&kept),
            1,
        );
        assert!(error.contains("cannot continue from"), "{error}");
        assert_eq!(std::fs::read_to_string(&kept).unwrap(), other);
    }
}

/// The figures depend on this machine; that they are there, and that the file is accepted, does not.
#[test]
fn a_measured_machine_can_be_simulated() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.toml");
    let calibrate = || {
        let mut command = numaloc(&["machines", "calibrate", "--json", "--seconds", "0.001"]);
        command.args(["--memory", "1M", "-o"]).arg(&file);
        command
    };
    let first = calibrate().output().unwrap();
    let error = String::from_utf8(first.stderr).unwrap();
    if error.contains("its parts differ") {
        // A machine that no machine file can describe.
        return;
    }
    assert!(first.status.success(), "{error}");
    let found: Value = serde_json::from_slice(&first.stdout).unwrap();
    for figure in ["latency_ns", "bandwidth_bytes_per_s"] {
        assert!(found[figure][0][0].as_f64().unwrap() > 0.0, "{found}");
    }
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("name = \"mine\"") && text.contains("measured by numaloc"),
        "{text}"
    );
    // An existing file is replaced on request only.
    let refused = calibrate().output().unwrap();
    assert!(!refused.status.success());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    let again = calibrate().arg("--force").output().unwrap();
    assert!(again.status.success());
    let (profile, _) = recorded(dir.path());
    let found = ok(
        numaloc(&["simulate", "--json", "--pages", "first-touch", "--machine"])
            .args([&file, &profile]),
    );
    let found: Value = serde_json::from_str(&found).unwrap();
    assert!(row(&found, "first-touch")["time_ns"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_simplest_plan_within_the_uncertainty_of_the_fastest_is_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let (profile, machine) = recorded(dir.path());
    let plan = dir.path().join("chosen.json");
    let choose = |threads: &str, pages: &str, more: &[&str]| {
        ok(numaloc(&["plan", "--choose", "simulated", "--machine"])
            .args([&machine, &profile])
            .args(["--threads", threads, "--pages", pages])
            .args(more))
    };
    let written = ["--json", "-o", plan.to_str().unwrap()];
    let found = choose("scatter,scatter,packed", "interleave,locality", &written);
    let found: Value = serde_json::from_str(&found).unwrap();
    let rows = found["candidates"].as_array().unwrap();
    let number = |row: &Value, name: &str| row[name].as_f64().unwrap();
    assert!(
        (3..=4).contains(&rows.len()),
        "equal plans are there once: {found}"
    );
    assert!(
        rows.is_sorted_by_key(|row| number(row, "time_ns")),
        "{found}"
    );
    assert!(rows[0]["uncertainty"] == 0.0 && rows[0]["is_different"] == false);
    for row in rows.iter().filter(|row| row["uncertainty"].is_number()) {
        let differs = number(row, "times_fastest") - 1.0 > number(row, "uncertainty");
        assert_eq!(row["is_different"], differs, "{row}");
    }
    // By page policy, then by thread policy, in the order of the lists of `--help`.
    let simplest = ["packed", "scatter"].map(|threads| ("interleave", threads));
    let others = ["packed", "scatter"].map(|threads| ("locality", threads));
    let in_order = simplest.into_iter().chain(others);
    let of = |(pages, threads): (&str, &str)| {
        let is_it = |row: &&Value| row["pages"] == pages && row["threads"] == threads;
        rows.iter().find(is_it)
    };
    let expected = in_order
        .filter_map(of)
        .find(|row| row["is_different"] == false);
    assert_eq!(Some(&found["chosen"]), expected, "{found}");
    assert_eq!(
        rows[0]["pages"], "locality",
        "half of the interleaved pages are remote"
    );
    assert!(
        number(&found["without_plan"], "times_fastest") > 1.0,
        "{found}"
    );
    // The plan in the file is the one that was simulated.
    let again = ok(
        numaloc(&["simulate", "--json", "--pages", "first-touch", "--machine"])
            .args([&machine, &profile])
            .arg("--plan")
            .arg(&plan),
    );
    let again: Value = serde_json::from_str(&again).unwrap();
    let name = format!("{} (chosen)", found["chosen"]["pages"].as_str().unwrap());
    let time = &row(&again, &name)["time_ns"];
    assert_eq!(time, &found["chosen"]["time_ns"], "{again}");
    let text = choose("packed", "locality", &[]);
    assert!(
        text.contains("chosen: packed with locality, the fastest"),
        "{text}"
    );
}

#[test]
fn what_cannot_be_chosen_by_simulation_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let (profile, machine) = recorded(dir.path());
    let refused = |machine: &str, more: &[&str], status, expected: &str| {
        let error = fails(
            numaloc(&["plan", "--choose", "simulated", "--machine", machine])
                .arg(&profile)
                .args(more),
            status,
        );
        let first = error.lines().find(|line| line.starts_with("error: "));
        assert!(first.unwrap().contains(expected), "{error}");
    };
    let small = machine.to_str().unwrap();
    refused("numa:2 core:2 pu:1", &[], 2, "no hardware figures");
    refused(
        small,
        &["--threads", "packed,os"],
        2,
        "leave threads to the operating system",
    );
    refused(small, &["--threads", "pakced"], 2, "unknown thread policy");
    refused(
        small,
        &["--threads", "packed", "--pages", "joint"],
        2,
        "no plan to choose from",
    );
    let untraced = dir.path().join("untraced.numaloc");
    ok(numaloc(&["record", "--quiet", "-o"])
        .arg(&untraced)
        .arg("--")
        .arg(dir.path().join("a program/parts")));
    let error = fails(
        numaloc(&["plan", "--choose", "simulated", "--machine", small]).arg(&untraced),
        1,
    );
    assert!(error.contains("no access trace"), "{error}");
}

#[test]
fn a_report_shows_simulated_runs_over_time() {
    let dir = tempfile::tempdir().unwrap();
    let (profile, machine) = recorded(dir.path());
    let simulated = dir.path().join("simulated.json");
    let found = ok(
        numaloc(&["simulate", "--json", "--threads", "scatter,packed"])
            .args(["--pages", "locality,interleave", "--machine"])
            .args([&machine, &profile]),
    );
    std::fs::write(&simulated, &found).unwrap();
    let (page, figures) = (dir.path().join("report.html"), dir.path().join("figures"));
    let report = |option: &str, to: &Path| {
        ok(numaloc(&["report", "--quiet", "--simulation"])
            .args([&simulated, &profile])
            .arg(option)
            .arg(to))
    };
    report("-o", &page);
    report("--svg", &figures);
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split("id=\"simulated\"").nth(1).expect("a section");
    let table = section.split("</table>").next().unwrap();
    assert_eq!(table.matches("<td>small</td>").count(), 4, "{table}");
    let fastest = serde_json::from_str::<Value>(&found).unwrap();
    let times = fastest["rows"].as_array().unwrap().iter();
    let fastest = times
        .map(|row| row["time_ns"].as_f64().unwrap())
        .fold(f64::MAX, f64::min);
    let first = table.split("class=\"n\" data-v=\"").nth(1).unwrap();
    let first: f64 = first.split('"').next().unwrap().parse().unwrap();
    assert!(
        (first * 1e6 / fastest - 1.0).abs() < 1e-9,
        "{first} {fastest}"
    );
    for (name, lines) in [("utilisation", 2), ("queue", 2), ("links", 2)] {
        let figure = figures.join(format!("simulated-{name}.svg"));
        let svg = std::fs::read_to_string(figure).unwrap();
        assert_eq!(svg.matches("<polyline").count(), 4 * lines, "{name}");
        assert!(page.contains(&format!("id=\"simulated-{name}\"")));
    }
    std::fs::write(&simulated, "{\"rows\": [{\"machine\": 3}]}").unwrap();
    let error = fails(
        numaloc(&["report", "--md", "--simulation"]).args([&simulated, &profile]),
        1,
    );
    assert!(
        error.contains("rows[0].nodes is missing, expected a list"),
        "{error}"
    );
}
