//! Plans by role: made with few connections, carried out with many that come and go.

use crate::support::{numaloc, ok, root};
use numaloc_model::plan::Plan;
use numaloc_model::roles::{NodePlan, RoleMemory, Seats};
use numaloc_model::{LogicalNode, OsNode};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A server of the tests, compiled, and recorded with two clients.
fn recorded(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    let program = folder.join(name);
    let source = root().join(format!("crates/numaloc/tests/servers/{name}.c"));
    ok(Command::new("gcc")
        .args(["-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(source));
    let profile = folder.join("recorded");
    ok(
        numaloc(&["record", "--quiet", "--frontend", "native", "-o"])
            .arg(&profile)
            .arg("--")
            .arg(&program)
            .args(["2", "1"]),
    );
    (program, profile)
}

/// A plan by role for this machine, with the first and the last PU that this process may use as two nodes: so roles
/// have different places on machines with one node too.
fn plan(profile: &Path, options: &[&str]) -> Plan {
    let file = profile.with_extension("json");
    ok(numaloc(&["plan", "--by-role", "--anyway", "--force", "-o"])
        .arg(&file)
        .arg(profile)
        .args(options));
    let mut plan = numaloc_formats::plan::read(&file).unwrap();
    let pus = numaloc_sys::affinity::get(0).unwrap();
    let machine = numaloc_topology::from_this_machine().unwrap();
    plan.roles.nodes = (0..)
        .zip([pus[0], pus[pus.len() - 1]])
        .map(|(node, pu)| NodePlan {
            node: LogicalNode(node),
            os_node: OsNode(machine.nodes()[0].os.0),
            os_pus: vec![pu],
        })
        .collect();
    let both = [0, 1].map(LogicalNode).to_vec();
    for role in &mut plan.roles.roles {
        role.seats = match &role.seats {
            Seats::Left => Seats::Left,
            Seats::Any(_) => Seats::Any(both[1..].to_vec()),
            Seats::Each(_) => Seats::Each(both.clone()),
        };
    }
    plan
}

/// The lines of the program's output, by number, and the report.
fn run(
    plan: &Plan,
    folder: &Path,
    program: &Path,
    arguments: &[&str],
    options: &[&str],
) -> (BTreeMap<String, usize>, serde_json::Value) {
    let (file, report) = (folder.join("run.json"), folder.join("report.json"));
    numaloc_formats::plan::write(plan, &file, true).unwrap();
    let said = ok(numaloc(&["run"])
        .arg(format!("--json={}", report.display()))
        .args(options)
        .arg("--plan")
        .arg(&file)
        .arg("--")
        .arg(program)
        .args(arguments));
    let mut lines = BTreeMap::new();
    for line in said.lines() {
        *lines.entry(line.to_owned()).or_default() += 1;
    }
    let report = std::fs::read_to_string(report).unwrap();
    (lines, serde_json::from_str(&report).unwrap())
}

/// Members, those in their places, and those there since their birth, by role.
fn counts(report: &serde_json::Value) -> BTreeMap<&str, [u64; 3]> {
    let roles = report["roles"].as_array().unwrap().iter();
    roles
        .map(|role| {
            let counts =
                ["members", "placed", "since_birth"].map(|name| role[name].as_u64().unwrap());
            (role["name"].as_str().unwrap(), counts)
        })
        .collect()
}

/// How often each list of PUs is that of threads of one kind.
fn lists(lines: &BTreeMap<String, usize>, kind: &str) -> Vec<(String, usize)> {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for (line, count) in lines {
        let mut words = line.split(' ');
        if words.next() == Some(kind) {
            *found.entry(words.next().unwrap().to_owned()).or_default() += count;
        }
    }
    found.into_iter().collect()
}

/// The lists of members with one node each: half of them on each PU.
fn halves(plan: &Plan, members: usize) -> Vec<(String, usize)> {
    let mut expected: BTreeMap<String, usize> = BTreeMap::new();
    for node in &plan.roles.nodes {
        *expected.entry(node.os_pus[0].to_string()).or_default() += members / 2;
    }
    expected.into_iter().collect()
}

#[test]
fn processes_that_come_and_go_are_bound_by_their_titles() {
    let folder = tempfile::tempdir().unwrap();
    let (program, profile) = recorded(folder.path(), "forking");
    let options = [
        "--role",
        "fork: client N=each",
        "--role",
        "fork: writer=0",
        "--segment",
        "shared*=interleave",
    ];
    let plan = plan(&profile, &options);
    let names: Vec<&str> = plan.roles.roles.iter().map(|role| &*role.name).collect();
    assert_eq!(names, ["main thread", "fork: writer", "fork: client N"]);
    // Pages on a machine with one node too.
    let (lines, report) = run(
        &plan,
        folder.path(),
        &program,
        &["6", "3", "wait"],
        &["--pages", "always", "--require", "99"],
    );
    let last = plan.roles.nodes[1].os_pus[0].to_string();
    assert_eq!(lists(&lines, "client"), halves(&plan, 18), "{lines:?}");
    assert_eq!(lists(&lines, "writer"), [(last, 1)]);
    let counts = counts(&report);
    assert_eq!(counts["fork: client N"], [18, 18, 18]);
    // The writer was taken for a client until it had its title.
    assert_eq!(counts["fork: writer"][..2], [1, 1]);
    assert_eq!(counts["main thread"], [1, 0, 0]);
    assert_eq!(report["segments"][0]["mappings"], 1, "{report}");
    let policy = lists(&lines, "cache");
    let refused = report["segments"][0]["refused"].as_object().unwrap();
    // Some containers forbid policies, and some kernels have none.
    if refused.is_empty() && !policy.is_empty() {
        assert!(policy[0].0.starts_with("interleave"), "{policy:?}");
        assert_eq!(report["segments"][0]["bytes"], 64 << 12);
    }
    assert_eq!(report["notes"].as_array().unwrap().len(), 0, "{report}");
}

#[test]
fn threads_that_come_and_go_are_bound_by_their_code_and_names() {
    let folder = tempfile::tempdir().unwrap();
    let (program, profile) = recorded(folder.path(), "threaded");
    let mut plan = plan(&profile, &["--role", "serve=each", "--role", "io_N=0"]);
    let names: Vec<&str> = plan.roles.roles.iter().map(|role| &*role.name).collect();
    assert_eq!(names, ["main thread", "flush", "io_N", "serve"]);
    let (lines, report) = run(
        &plan,
        folder.path(),
        &program,
        &["6", "3", "wait"],
        &["--pages", "never"],
    );
    let last = plan.roles.nodes[1].os_pus[0].to_string();
    assert_eq!(lists(&lines, "client"), halves(&plan, 18), "{lines:?}");
    assert_eq!(lists(&lines, "io"), [(last, 2)]);
    let free = numaloc_apply::tally::list_pus(&numaloc_sys::affinity::get(0).unwrap());
    assert_eq!(lists(&lines, "flush"), [(free, 1)]);
    let found = counts(&report);
    assert_eq!(found["serve"], [18, 18, 18]);
    assert_eq!(found["io_N"][..2], [2, 2]);
    // A role that the plan does not know is left alone, and named.
    plan.roles.roles.retain(|role| role.name != "io_N");
    for role in &mut plan.roles.roles {
        role.memory = RoleMemory::Left;
    }
    let (lines, report) = run(
        &plan,
        folder.path(),
        &program,
        &["6", "1"],
        &["--pages", "never"],
    );
    assert_eq!(lists(&lines, "client"), halves(&plan, 6), "{lines:?}");
    let note = "a role that the plan does not know was left alone: io_N (2)";
    assert_eq!(report["notes"], serde_json::json!([note]));
    assert_eq!(report["threads"]["unplanned"], 2);
}

#[test]
fn a_plan_by_role_is_refused_where_it_means_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (_, profile) = recorded(folder.path(), "forking");
    let plan = folder.path().join("plan.json");
    ok(numaloc(&["plan", "--by-role", "-o"])
        .arg(&plan)
        .arg(&profile));
    let refused = |arguments: &[&str], says: &str| {
        let output = numaloc(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(says),
            "{arguments:?}: {said}"
        );
        assert!(said.lines().count() <= 3, "{said}");
    };
    let (file, of) = (plan.to_str().unwrap(), profile.to_str().unwrap());
    refused(&["report", "-o", "-", of, file], "is a plan by role");
    refused(
        &["plan", of, "--by-role", "--role", "nobody=each"],
        "the profile has no role \"nobody\"",
    );
    refused(
        &["plan", of, "--by-role", "--role", "main thread=far"],
        "says nothing",
    );
    refused(
        &["plan", of, "--by-role", "--role", "main thread=99"],
        "no node 99",
    );
    refused(
        &["plan", of, "--by-role", "--threads", "numaloc"],
        "cannot be used with",
    );
    refused(&["plan", of, "--role", "main thread=0"], "--by-role");
}
