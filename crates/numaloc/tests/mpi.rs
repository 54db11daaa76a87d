//! MPI through the command line: record under the launcher, show, plan, run under the launcher.

mod support;

use std::process::Command;

use support::{fails, numaloc, ok, root};

fn pairs(library: &str) -> String {
    let target = format!("target/workloads/mpi/{library}/pairs");
    let made = Command::new("make")
        .args(["-s", &target])
        .current_dir(root())
        .output()
        .expect("make");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    root().join(target).to_string_lossy().into_owned()
}

#[test]
fn record_show_plan_and_run_through_mpirun() {
    let dir = tempfile::tempdir().unwrap();
    let (profile, plan) = (dir.path().join("p.numaloc"), dir.path().join("plan.json"));
    let program = pairs("openmpi");
    let launch = [
        "--",
        "mpirun.openmpi",
        "--allow-run-as-root",
        "--oversubscribe",
        "-n",
        "8",
        &program,
    ];
    let shown = ok(numaloc(&["record", "--mpi", "-o"])
        .arg(&profile)
        .args(launch));
    assert!(shown.contains("pairs: 8 ranks, ok"), "{shown}");
    // 50 messages to r^1 and to 7-r (workloads/mpi/pairs.c).
    let csv = ok(numaloc(&["show", "--matrix", "csv", "--layer", "message"]).arg(&profile));
    let first = csv.lines().next().unwrap();
    assert_eq!(first, "0,50,0,0,0,0,0,50");

    ok(numaloc(&["plan", "--machine", "this", "-o"])
        .arg(&plan)
        .arg(&profile));
    let rankfile = ok(numaloc(&["ranks", "--for", "openmpi"]).arg(&plan));
    assert_eq!(rankfile.lines().count(), 8);
    assert!(rankfile.starts_with("rank 0=localhost slot="), "{rankfile}");
    let launch = [
        "--",
        "mpirun.openmpi",
        "--allow-run-as-root",
        "-n",
        "8",
        &program,
    ];
    let report = ok(numaloc(&["--json", "run", "--require", "100", "--plan"])
        .arg(&plan)
        .args(launch)
        .current_dir(dir.path()));
    let json = report.lines().last().expect("a line of JSON");
    let json: serde_json::Value = serde_json::from_str(json).expect("JSON");
    assert_eq!(json["threads"]["placed"], 8, "{json}");
}

#[test]
fn failures_say_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let profile = dir.path().join("p.numaloc");
    let said = fails(
        numaloc(&["record", "--mpi", "-o"])
            .arg(&profile)
            .args(["--", "true"]),
        125,
    );
    assert!(
        said.contains("cannot tell which MPI library") && said.contains("--mpi openmpi"),
        "{said}"
    );
    let said = fails(
        &mut numaloc(&["record", "--mpi", "--", "mpirun", "true"]),
        125,
    );
    assert!(said.contains("-o FOLDER"), "{said}");
    let qemu = [
        "record",
        "--mpi",
        "--frontend",
        "qemu",
        "--",
        "mpirun",
        "true",
    ];
    let said = fails(&mut numaloc(&qemu), 125);
    assert!(said.contains("observes messages, not memory"), "{said}");
    // The program's status passes through: mpirun gives 7 for a program that ends with 7.
    let launch = "-- mpirun.openmpi --allow-run-as-root -n 1 sh -c";
    let output = numaloc(&["record", "--mpi", "-o"])
        .arg(&profile)
        .args(launch.split(' '))
        .arg("exit 7")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert!(!profile.exists());
}

#[test]
fn a_host_file_becomes_a_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let (hosts, cluster) = (dir.path().join("hosts"), dir.path().join("cluster.toml"));
    std::fs::write(&hosts, "n[1-3] slots=8\nn4:8\n").unwrap();
    let host = "numa:2 core:4 pu:1";
    ok(numaloc(&["topology", "--host", host, "--hostfile"])
        .arg(&hosts)
        .arg("-o")
        .arg(&cluster));
    let shown = ok(numaloc(&["--json", "topology", "--machine"]).arg(&cluster));
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["hosts"].as_array().unwrap().len(), 4);
    assert_eq!(shown["pus"].as_array().unwrap().len(), 32);
    let mut none = numaloc(&["topology", "--from-slurm", "--host", host]);
    let said = fails(
        none.env_remove("SLURM_JOB_NODELIST")
            .env_remove("SLURM_NODELIST"),
        1,
    );
    assert!(said.contains("SLURM_JOB_NODELIST"), "{said}");
}
