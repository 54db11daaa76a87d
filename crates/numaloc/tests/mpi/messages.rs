//! MPI through the command line: record under the launcher, show, plan, run under the launcher.

use std::process::Command;

use crate::programs::workload;
use crate::support::{chosen, fails, numaloc, ok, root};

fn pairs(library: &str) -> String {
    workload(library, "pairs")
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
    let recorded = numaloc(&["record", "--mpi", "-o"])
        .arg(&profile)
        .args(launch)
        .output()
        .unwrap();
    let shown = String::from_utf8(recorded.stdout).unwrap();
    assert!(
        recorded.status.success() && shown.contains("pairs: 8 ranks, ok"),
        "{shown}"
    );
    // The answer and the command that follows.
    let said = String::from_utf8(recorded.stderr).unwrap();
    let last = said.lines().last().unwrap();
    assert!(
        said.contains("\nSure     ") && last.starts_with("Next     numaloc "),
        "{said}"
    );
    assert!(last.contains("p.numaloc"), "{said}");
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
        said.contains("cannot determine which MPI library") && said.contains("--mpi openmpi"),
        "{said}"
    );
    let said = fails(
        &mut numaloc(&["record", "--mpi", "--", "mpirun", "true"]),
        125,
    );
    assert!(said.contains("-o FOLDER"), "{said}");
    let sampled = "record --mpi --frontend perf -o p.numaloc -- mpirun true";
    let said = fails(&mut numaloc(&sampled.split(' ').collect::<Vec<_>>()), 125);
    assert!(
        said.contains("expected qemu, native or instrument"),
        "{said}"
    );
    let lines = "record --mpi --line-size 128 -o p.numaloc -- mpirun true";
    let said = fails(&mut numaloc(&lines.split(' ').collect::<Vec<_>>()), 125);
    assert!(said.contains("need --frontend"), "{said}");
    // Limits that would end the ranks' files, or leave a tracer no address space: before the launcher starts.
    let own = env!("CARGO_BIN_EXE_numaloc");
    for (limit, more, says) in [
        ("-f 8", "", "at least 256 MiB"),
        ("-f 500000", "--frontend qemu", "at least 1.00 GiB"),
        ("-v 20000000", "--frontend qemu", "(ulimit -v)"),
    ] {
        let ran = dir.path().join("ran");
        let record = format!("{own} record --mpi=openmpi {more} -o limited.numaloc");
        let script = format!(
            "ulimit {limit}; exec {record} -- mpirun.openmpi touch {}",
            ran.display()
        );
        let mut shell = Command::new("sh");
        let said = fails(shell.args(["-c", &script]).current_dir(dir.path()), 125);
        assert!(said.contains(says), "{said}");
        assert!(!ran.exists(), "{said}");
    }
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

/// What a profile of `hybrid` (workloads/mpi/hybrid.c) with 4 ranks of 3 threads must show. `copied`: the library's
/// copies through shared memory are seen too.
fn check_hybrid(profile: &numaloc_model::Profile, copied: bool) {
    use numaloc_model::Layer;
    use numaloc_model::profile::Amount;
    let labelled = |thread: &&numaloc_model::profile::Thread| !thread.role.is_helper();
    let of_rank = |rank| {
        let threads = profile.threads().iter().filter(labelled);
        let threads: Vec<_> = threads.filter(|thread| thread.rank == Some(rank)).collect();
        assert_eq!(threads.len(), 3, "rank {rank}");
        assert_eq!(threads[0].path, format!("r{rank}"));
        threads
            .iter()
            .map(|thread| {
                profile
                    .threads()
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
        // Each thread reads the 512 lines of the one before, 20 times: a ring in one direction, to a few lines of the
        // run-time library.
        let mut received: Vec<Vec<f64>> = Vec::new();
        for &src in threads {
            received.push(threads.iter().map(|&dst| lines.get(src, dst)).collect());
        }
        for (src, row) in received.iter().enumerate() {
            let much: Vec<usize> = (0..3).filter(|&dst| row[dst] > 5000.0).collect();
            assert_eq!(much.len(), 1, "{rank} {src}: {received:?}");
            let most = row[much[0]];
            assert!((10_240.0..10_240.0 * 1.05).contains(&most), "{received:?}");
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
    let mpich = ("mpich", "mpiexec.hydra");
    let openmpi = ("openmpi", "mpirun.openmpi");
    let cases = [
        ("native", mpich),
        ("native", openmpi),
        ("qemu", openmpi),
        ("qemu", mpich),
    ];
    for (frontend, (library, launcher)) in chosen(cases, &[0, 2]) {
        let program = workload(library, "hybrid");
        let mut record = numaloc(&["record", "--mpi", "--frontend", frontend, "--force", "-o"]);
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
        assert!(read.meta().complete, "{:?}", read.meta().notes);
        assert_eq!(read.meta().frontend, format!("mpi+{frontend}"));
        check_hybrid(&read, true);
    }
    check_hybrid_on_a_cluster(dir.path(), &profile);
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

/// `hybrid` with 4 ranks of 3 threads and small caches: each thread writes 512 lines 20 times, which neither its second
/// level (256 lines) nor the last-level cache (1,024 lines for 12 threads with 512 lines each) holds from one time to
/// the next.
#[test]
fn ranks_bring_bytes_from_dram_by_the_cache_model() {
    let dir = tempfile::tempdir().unwrap();
    let profile = dir.path().join("p.numaloc");
    let cases = [("mpich", "mpiexec.hydra"), ("openmpi", "mpirun.openmpi")];
    for (library, launcher) in chosen(cases, &[0]) {
        let program = workload(library, "hybrid");
        let mut record = numaloc(&["record", "--mpi", "--frontend", "qemu", "--force"]);
        record
            .args([
                "--trace",
                "--trace-l1",
                "8K/8",
                "--trace-l2",
                "16K/8",
                "--llc",
                "64K/16",
            ])
            .arg("-o")
            .arg(&profile)
            .args(["--", launcher, "-n", "4", &program]);
        ok(record
            .env("OMP_NUM_THREADS", "3")
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("OMPI_MCA_rmaps_base_oversubscribe", "1"));
        let read = numaloc_formats::profile::read(&profile).unwrap();
        let source = read.meta().dram_source.as_deref().unwrap_or("none");
        assert!(
            source.starts_with("cache model"),
            "{source}: {:?}",
            read.meta().notes
        );
        let written = 20.0 * 512.0 * 64.0;
        // The second and third thread of each rank do nothing else; the first also starts the library.
        let workers = read.threads().iter().filter(|thread| {
            let label = thread.role.label().unwrap_or_default();
            label.starts_with("libgomp")
        });
        let mut counted = 0;
        for thread in workers {
            let bytes = thread.dram_bytes.unwrap() as f64;
            // What it writes, and of what it reads that the other thread no longer holds.
            assert!(
                (0.9 * written..2.2 * written).contains(&bytes),
                "{library}, {}: {bytes} bytes, {written} written",
                thread.path
            );
            counted += 1;
        }
        assert_eq!(counted, 8);
        // Loads that missed: pages and threads of the profile.
        assert!(!read.slow_loads().unwrap().rows.is_empty());
        let json = |args: &[&str]| -> serde_json::Value {
            serde_json::from_str(&ok(numaloc(args).arg(&profile))).unwrap()
        };
        let ratio = json(&["show", "--json"])["metrics"]["dram_ratio"].as_f64();
        assert!(ratio.unwrap() > 0.0);
        // A last-level cache that holds everything: each line comes from DRAM once.
        let model = |args: &[&str]| {
            json(&[&["show", "--json", "--trace"], args].concat())["cache_model"]["total"]["dram_reads"]
                .as_u64()
                .unwrap()
        };
        let (small, large) = (model(&["--llc", "64K/16"]), model(&["--llc", "64M/16"]));
        assert!(large * 2 < small, "{large} lines of {small}");
        let said = fails(
            numaloc(&["simulate", "--machine", "skylake-4s"]).arg(&profile),
            1,
        );
        assert!(said.contains("messages between ranks"), "{said}");
    }
    let said = fails(
        &mut numaloc(&[
            "record",
            "--mpi",
            "--trace",
            "-o",
            "x.numaloc",
            "--",
            "mpirun",
            "true",
        ]),
        125,
    );
    assert!(
        said.contains("--frontend qemu, native or instrument"),
        "{said}"
    );
}

/// A plan of ranks with threads for two hosts with room for more than half of the threads each: no rank is split.
fn check_hybrid_on_a_cluster(dir: &std::path::Path, profile: &std::path::Path) {
    std::fs::write(dir.join("hosts"), "n1\nn2\n").unwrap();
    ok(numaloc(&[
        "topology",
        "--hostfile",
        "hosts",
        "--host",
        "core:8 pu:1",
        "-o",
        "two.toml",
    ])
    .current_dir(dir));
    ok(
        numaloc(&["plan", "--machine", "two.toml", "-o", "cluster.json"])
            .arg(profile)
            .current_dir(dir),
    );
    let plan = numaloc_formats::plan::read(&dir.join("cluster.json")).unwrap();
    for rank in 0..4 {
        let of_rank = plan.threads.iter().filter(|thread| {
            let rest = thread.path.strip_prefix(&format!("r{rank}"));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        let mut hosts: Vec<usize> = of_rank.map(|thread| thread.pu.index() / 8).collect();
        hosts.dedup();
        assert_eq!(hosts.len(), 1, "rank {rank}: {:?}", plan.threads);
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
    assert_eq!(read.meta().frontend, "mpi+instrument");
    check_hybrid(&read, false);
}

#[test]
fn messages_and_collectives_are_mapped_together_in_bytes() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("hosts"), "n1\nn2\n").unwrap();
    ok(numaloc(&[
        "topology",
        "--hostfile",
        "hosts",
        "--host",
        "core:2 pu:1",
        "-o",
        "two.toml",
    ])
    .current_dir(dir.path()));
    for (library, launcher) in [("openmpi", "mpirun.openmpi"), ("mpich", "mpiexec.hydra")] {
        let record = |program: &str| {
            ok(numaloc(&[
                "record",
                "--mpi",
                "--force",
                "-o",
                "p.numaloc",
                "--",
                launcher,
                "-n",
                "4",
            ])
            .arg(workload(library, program))
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
            .current_dir(dir.path()));
        };
        let planned = |layer: &[&str]| -> serde_json::Value {
            let mut plan = numaloc(&["--json", "plan", "p.numaloc", "--machine", "two.toml"]);
            let text = ok(plan.args(layer).current_dir(dir.path()));
            serde_json::from_str(&text).unwrap()
        };
        // halo_module on 4 ranks: 3 neighbouring pairs exchange 40000 bytes each way, and an Allreduce of 8 bytes by
        // recursive doubling has each rank send 8 bytes twice.
        record("halo_module");
        for (layer, name, total) in [
            (&[][..], "sent", 240_064.0),
            (&["--layer", "message"], "message", 240_000.0),
            (&["--layer", "collective"], "collective", 64.0),
        ] {
            let plan = planned(layer);
            assert_eq!(
                (plan["layer"].as_str(), plan["unit"].as_str()),
                (Some(name), Some("bytes"))
            );
            assert_eq!(plan["policies"][0]["total"], total, "{library} {name}");
        }
        // In a line of four on two hosts one pair in three is cut, and of the doubling 16 bytes each way at least.
        let plan = planned(&[]);
        assert_eq!(
            plan["policies"][0]["between_hosts"], 80_032.0,
            "{library}: {plan}"
        );
        let mut table = numaloc(&["plan", "p.numaloc", "--machine", "two.toml"]);
        let table = ok(table.current_dir(dir.path()));
        assert!(
            table.contains("in bytes") && table.contains("between hosts"),
            "{table}"
        );
        // NPB IS's pattern: nothing but collectives. It is mapped and judged by them.
        record("bucket_sort");
        let plan = planned(&[]);
        assert_eq!(plan["layer"], "collective", "{library}");
        let total = plan["policies"][0]["total"].as_f64().unwrap();
        assert!(
            (1_920_000.0..1_921_000.0).contains(&total),
            "{library}: {total}"
        );
        let shown =
            ok(numaloc(&["show", "p.numaloc", "--nodes", "2", "--all"]).current_dir(dir.path()));
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!shown.contains("of all bytes accessed"), "{shown}");
        assert!(shown.contains("Communication: collective"), "{shown}");
    }
}

#[test]
fn a_plan_of_another_machine_is_refused_for_threads_and_for_ranks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plan.json");
    let plan = numaloc_model::plan::Plan::by_hand("elsewhere", "0123456789abcdef");
    numaloc_formats::plan::write(&plan, &path, false).unwrap();
    let refused = |command: &[&str]| {
        let mut run = numaloc(&["run", "--plan"]);
        let said = fails(run.arg(&path).arg("--").args(command), 125);
        said.lines().next().unwrap_or_default().to_owned()
    };
    let threads = refused(&["true"]);
    let begins = "error: the plan was made for elsewhere [0123456789abcdef], the machine is";
    assert!(threads.starts_with(begins), "{threads}");
    assert_eq!(refused(&["mpirun", "-n", "1", "true"]), threads);
    // A rank map of it is refused too, in every form, and nothing is written.
    let map = dir.path().join("map");
    for form in [
        "table",
        "openmpi",
        "prrte",
        "hydra",
        "slurm",
        "slurm-hosts",
        "wrapper",
    ] {
        let mut ranks = numaloc(&["ranks", "--for", form, "-o"]);
        let said = fails(ranks.arg(&map).arg(&path), 1);
        let begins = format!(
            "error: plan {} was made for elsewhere [0123456789abcdef], --machine is ",
            path.display()
        );
        assert!(said.starts_with(&begins), "{form}: {said}");
        assert!(said.contains("name the plan's machine with --machine"));
        assert!(!map.exists(), "{form}");
    }
}

#[test]
fn one_list_serves_hosts_that_differ_by_a_symmetry() {
    use numaloc_model::plan::{Plan, ThreadPlan};
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("hosts"), "n1\nn2\n").unwrap();
    let host = [
        "--hostfile",
        "hosts",
        "--host",
        "numa:2 core:2 pu:1",
        "-o",
        "two.toml",
    ];
    ok(numaloc(&["topology"]).args(host).current_dir(dir.path()));
    let cluster = dir.path().join("two.toml");
    let machine = numaloc_topology::resolve(cluster.to_str().unwrap()).unwrap();
    let ranks = |form: &str, pus: [u32; 8]| {
        let threads = pus.iter().enumerate().map(|(rank, &pu)| ThreadPlan {
            path: format!("r{rank}"),
            pu: numaloc_model::LogicalPu(pu),
            os_pu: machine.pus()[pu as usize].os,
        });
        let plan = Plan {
            threads: threads.collect(),
            ..Plan::by_hand(machine.name(), &machine.fingerprint())
        };
        let path = dir.path().join("plan.json");
        numaloc_formats::plan::write(&plan, &path, true).unwrap();
        let mut command = numaloc(&["ranks", "--for", form, "--machine", "two.toml", "plan.json"]);
        command.current_dir(dir.path());
        command
    };
    // Both hosts are full; the second has its nodes the other way round.
    let full = [0, 1, 2, 3, 6, 7, 4, 5];
    assert!(ok(&mut ranks("hydra", full)).contains("-bind-to user:0,1,2,3"));
    assert!(ok(&mut ranks("slurm", full)).contains("map_cpu:0,1,2,3"));
    // Neighbours on a node of the first host are on different nodes of the second: no symmetry maps one to the other.
    for form in ["hydra", "slurm"] {
        let said = fails(&mut ranks(form, [0, 1, 2, 3, 4, 6, 5, 7]), 1);
        assert!(said.contains("n2") && said.contains("wrapper"), "{said}");
    }
}

#[test]
fn ranks_that_share_a_pu_see_that_they_should_yield() {
    use numaloc_model::plan::{Plan, ThreadPlan};
    let dir = tempfile::tempdir().unwrap();
    let machine = numaloc_topology::from_this_machine().unwrap();
    let path = dir.path().join("plan.json");
    let threads = (0..3).map(|rank| ThreadPlan {
        path: format!("r{rank}"),
        pu: numaloc_model::LogicalPu(0),
        os_pu: machine.pus()[0].os,
    });
    let plan = Plan {
        threads: threads.collect(),
        ..Plan::by_hand(machine.name(), &machine.fingerprint())
    };
    numaloc_formats::plan::write(&plan, &path, false).unwrap();
    let yields = |more: &[(&str, &str)]| {
        let mut run = numaloc(&["run", "--plan"]);
        run.arg(&path)
            .args(["--", "mpirun.openmpi", "--allow-run-as-root", "-n", "3"])
            .args(["sh", "-c", "echo yields=$OMPI_MCA_mpi_yield_when_idle"])
            .envs(more.iter().copied())
            .current_dir(dir.path());
        let output = run.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(yields(&[]), "yields=1\n".repeat(3));
    // The user's setting takes precedence.
    let never = [("OMPI_MCA_mpi_yield_when_idle", "0")];
    assert_eq!(yields(&never), "yields=0\n".repeat(3));
}
