//! Matrices of other tools, and allocations of Slurm, become input for plans of ranks.

use crate::support::{numaloc, ok};

#[test]
fn the_bytes_between_ranks_of_another_tool_become_a_rankfile() {
    let dir = tempfile::tempdir().unwrap();
    let in_folder = |arguments: &[&str]| ok(numaloc(arguments).current_dir(dir.path()));
    // Ranks 0 and 3, and ranks 1 and 2 communicate.
    std::fs::write(
        dir.path().join("bytes.csv"),
        "0,1,0,9000\n0,0,8000,0\n0,8000,0,0\n9000,0,0,0\n",
    )
    .unwrap();
    let cluster = "name = \"two\"\ndescription = \"two hosts\"\n[cluster]\nhosts = [{ names = \"a,b\", machine = \"core:2 pu:1\" }]\n";
    std::fs::write(dir.path().join("two.toml"), cluster).unwrap();
    in_folder(&[
        "import",
        "bytes.csv",
        "--layer",
        "message",
        "-o",
        "m.numaloc",
    ]);
    in_folder(&[
        "plan",
        "m.numaloc",
        "--machine",
        "two.toml",
        "--threads",
        "numaloc",
        "-o",
        "p.json",
    ]);
    let ranks = in_folder(&["--json", "ranks", "p.json", "--machine", "two.toml"]);
    let ranks: serde_json::Value = serde_json::from_str(&ranks).unwrap();
    let host = |rank: usize| ranks["ranks"][rank]["host"].as_str().unwrap().to_owned();
    assert_eq!((host(0), host(1)), (host(3), host(2)));
    assert_ne!(host(0), host(1));
    let profile = numaloc_formats::profile::read(&dir.path().join("m.numaloc")).unwrap();
    let bytes = profile.matrix(
        numaloc_model::Layer::Message,
        numaloc_model::profile::Amount::Bytes,
    );
    assert_eq!(bytes.unwrap().get(0, 3), 9000.0);
}

#[test]
fn an_allocation_becomes_a_cluster_with_its_switches() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = dir.path().join("cluster.toml");
    let scontrol = dir.path().join("scontrol");
    let text = "#!/bin/sh\ncat <<'END'\nSwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-8]\n\
                SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[9-16]\n\
                SwitchName=root Level=1 LinkSpeed=1 Nodes=n[1-16] Switches=s[0-1]\nEND\n";
    std::fs::write(&scontrol, text).unwrap();
    std::fs::set_permissions(
        &scontrol,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let path = format!(
        "{}:{}",
        dir.path().display(),
        std::env::var("PATH").unwrap()
    );
    ok(
        numaloc(&["topology", "--from-slurm", "--host", "core:1 pu:1", "-o"])
            .arg(&cluster)
            .env("PATH", path)
            .env("SLURM_JOB_NODELIST", "n[8-11]"),
    );
    let machine = numaloc_topology::resolve(cluster.to_str().unwrap()).unwrap();
    let far = |a, b| machine.distance(numaloc_model::LogicalPu(a), numaloc_model::LogicalPu(b));
    assert_eq!([far(0, 1), far(1, 2), far(1, 3)], [150.0, 100.0, 100.0]);
}

#[test]
fn a_plan_for_ranks_that_loses_is_not_written_and_the_launchers_layout_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let in_folder = |arguments: &[&str]| numaloc(arguments).current_dir(dir.path()).output();
    // Neighbours exchange much: where mpirun starts them, they are on one host.
    std::fs::write(
        dir.path().join("bytes.csv"),
        "0,9000000,0,0\n9000000,0,0,0\n0,0,0,9000000\n0,0,9000000,0\n",
    )
    .unwrap();
    let cluster = "name = \"two\"\ndescription = \"two hosts\"\n[cluster]\nhosts = [{ names = \"a,b\", machine = \"core:2 pu:1\" }]\n\
                   [cluster.links]\ninterconnect = \"10gbe\"\n";
    std::fs::write(dir.path().join("two.toml"), cluster).unwrap();
    ok(numaloc(&[
        "import",
        "bytes.csv",
        "--layer",
        "message",
        "-o",
        "m.numaloc",
    ])
    .current_dir(dir.path()));
    let plan = |more: &[&str]| {
        let all = [&["plan", "m.numaloc", "--machine", "two.toml"], more].concat();
        let done = in_folder(&all).unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (done.status.code(), text(done.stdout), text(done.stderr))
    };
    let (code, _, error) = plan(&["--threads", "scatter", "-o", "p.json"]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("by the model of networks"), "{error}");
    assert!(!dir.path().join("p.json").exists());
    let (code, _, error) = plan(&["--threads", "scatter", "--anyway", "-o", "p.json"]);
    assert_eq!(code, Some(0), "{error}");
    let (code, shown, error) = plan(&["-o", "best.json"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(shown.contains("launcher: as it is"), "{shown}");
    // Three ranks on the first host: the fourth is apart from its neighbour as it is.
    let (_, shown, _) = plan(&["--ranks-per-host", "3", "--network", "host_bytes_per_s=1e8"]);
    assert!(shown.contains("a, out: 90.0 ms"), "{shown}");
    assert!(shown.contains("saves"), "{shown}");
    let (code, _, error) = plan(&["--network", "latency=5"]);
    assert_eq!(code, Some(2), "{error}");
    assert_eq!(
        error.lines().next().unwrap(),
        "error: cannot use --network: cannot read \"latency=5\", expected interconnect=NAME or one of overhead_ns, \
         latency_ns, hop_ns, host_bytes_per_s, shared_latency_ns, shared_bytes_per_s with a number"
    );
}
