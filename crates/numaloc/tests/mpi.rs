//! MPI through the command line: record under the launcher, show, plan, run under the launcher.

mod support;

use std::process::Command;

use support::{fails, numaloc, ok, root};

fn pairs(library: &str) -> String {
    workload(library, "pairs")
}

fn workload(library: &str, name: &str) -> String {
    let target = format!("target/workloads/mpi/{library}/{name}");
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
    let sampled = "record --mpi --frontend perf -o p.numaloc -- mpirun true";
    let said = fails(&mut numaloc(&sampled.split(' ').collect::<Vec<_>>()), 125);
    assert!(said.contains("expected qemu or instrument"), "{said}");
    let lines = "record --mpi --line-size 128 -o p.numaloc -- mpirun true";
    let said = fails(&mut numaloc(&lines.split(' ').collect::<Vec<_>>()), 125);
    assert!(said.contains("need --frontend"), "{said}");
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

/// What a profile of `hybrid` (workloads/mpi/hybrid.c) with 4 ranks of 3 threads must show. `copied`: the library's copies through
/// shared memory are seen too.
fn check_hybrid(profile: &numaloc_model::Profile, copied: bool) {
    use numaloc_model::Layer;
    use numaloc_model::profile::Amount;
    let labelled = |thread: &&numaloc_model::profile::Thread| {
        let label = thread.label.as_deref().unwrap_or("");
        !label.starts_with("runtime helper")
    };
    let of_rank = |rank| {
        let threads = profile.threads.iter().filter(labelled);
        let threads: Vec<_> = threads.filter(|thread| thread.rank == Some(rank)).collect();
        assert_eq!(threads.len(), 3, "rank {rank}");
        assert_eq!(threads[0].path, format!("r{rank}"));
        threads
            .iter()
            .map(|thread| {
                profile
                    .threads
                    .iter()
                    .position(|other| other.path == thread.path)
                    .unwrap()
            })
            .collect::<Vec<_>>()
    };
    let ranks: Vec<Vec<usize>> = (0..4).map(of_rank).collect();
    let events = profile.matrix(Layer::Message, Amount::Events).unwrap();
    let bytes = profile.matrix(Layer::Message, Amount::Bytes).unwrap();
    let lines = profile.matrix(Layer::WriteRead, Amount::Events).unwrap();
    for (rank, threads) in ranks.iter().enumerate() {
        // 20 messages of 4,096 doubles to the next rank.
        let next = &ranks[(rank + 1) % 4];
        assert_eq!(events.get(threads[0], next[0]), 20.0);
        assert_eq!(bytes.get(threads[0], next[0]), 20.0 * 4096.0 * 8.0);
        assert_eq!(events.get(threads[0], ranks[(rank + 2) % 4][0]), 0.0);
        // Each thread reads the 512 lines of the one before, 20 times: a ring in one direction, to a few lines of the run-time library.
        let mut heard: Vec<Vec<f64>> = Vec::new();
        for &src in threads {
            heard.push(threads.iter().map(|&dst| lines.get(src, dst)).collect());
        }
        for (src, row) in heard.iter().enumerate() {
            let much: Vec<usize> = (0..3).filter(|&dst| row[dst] > 5000.0).collect();
            assert_eq!(much.len(), 1, "{rank} {src}: {heard:?}");
            let most = row[much[0]];
            assert!((10_240.0..10_240.0 * 1.05).contains(&most), "{heard:?}");
        }
        // The library copies each message through shared memory that both ranks have mapped: 512 lines of it, 20 times.
        let copies = lines.get(threads[0], next[0]);
        if copied {
            assert!((10_240.0..10_240.0 * 1.25).contains(&copies), "{copies}");
        }
    }
}

#[test]
fn ranks_and_their_threads_are_one_profile_and_one_plan() {
    let dir = tempfile::tempdir().unwrap();
    let (profile, plan) = (dir.path().join("p.numaloc"), dir.path().join("plan.json"));
    for (library, launcher) in [("mpich", "mpiexec.hydra"), ("openmpi", "mpirun.openmpi")] {
        let program = workload(library, "hybrid");
        let mut record = numaloc(&["record", "--mpi", "--frontend", "qemu", "--force", "-o"]);
        record
            .arg(&profile)
            .args(["--", launcher, "-n", "4", &program]);
        let shown = ok(record
            .env("OMP_NUM_THREADS", "3")
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("OMPI_MCA_rmaps_base_oversubscribe", "1"));
        assert!(shown.contains("hybrid: 4 ranks, ok"), "{shown}");
        let read = numaloc_formats::profile::read(&profile).unwrap();
        assert!(read.meta.complete, "{:?}", read.meta.notes);
        assert_eq!(read.meta.frontend, "mpi+qemu");
        check_hybrid(&read, true);
    }
    // Twelve threads on four nodes: each rank's three stay together, helper threads need no place.
    let machine = "numa:4 core:3 pu:1";
    ok(numaloc(&["plan", "--machine", machine, "-o"])
        .arg(&plan)
        .arg(&profile));
    let plan = numaloc_formats::plan::read(&plan).unwrap();
    assert_eq!(plan.threads.len(), 12);
    for rank in 0..4 {
        let prefix = format!("r{rank}");
        let threads = plan
            .threads
            .iter()
            .filter(|thread| thread.path.starts_with(&prefix));
        let mut nodes: Vec<usize> = threads.map(|thread| thread.pu.index() / 3).collect();
        nodes.dedup();
        assert_eq!(nodes.len(), 1, "rank {rank}: {:?}", plan.threads);
    }
}

#[test]
fn instrumented_ranks_trace_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let (profile, program) = (dir.path().join("p.numaloc"), dir.path().join("hybrid"));
    ok(
        numaloc(&["cc", "--", "mpicc.openmpi", "-O1", "-fopenmp", "-o"])
            .arg(&program)
            .arg(root().join("workloads/mpi/hybrid.c")),
    );
    let mut record = numaloc(&["record", "--mpi", "--frontend", "instrument", "-o"]);
    record
        .arg(&profile)
        .args(["--", "mpirun.openmpi", "-n", "4"]);
    let shown = ok(record
        .arg(&program)
        .env("OMP_NUM_THREADS", "3")
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1"));
    assert!(shown.contains("hybrid: 4 ranks, ok"), "{shown}");
    let read = numaloc_formats::profile::read(&profile).unwrap();
    assert_eq!(read.meta.frontend, "mpi+instrument");
    check_hybrid(&read, false);
}
