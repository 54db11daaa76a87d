//! Checks that real launchers accept the exports and place ranks as planned.

mod support;

use std::ffi::OsString;

use numaloc_model::LogicalPu;
use numaloc_model::outcome::Outcome;
use numaloc_model::plan::{Plan, ThreadPlan};
use numaloc_mpi::export::{hydra, rankfile, slurm, wrapper};
use numaloc_mpi::run::{run, wrap_launcher};
use numaloc_mpi::{Launcher, RankMap, RankMapError};
use numaloc_topology::cluster::compose;
use numaloc_topology::network::Network;
use numaloc_topology::{Topology, from_this_machine, resolve};

/// A plan that puts thread `path` on `pu`.
fn plan(machine: &Topology, threads: &[(String, u32)]) -> Plan {
    let threads = threads.iter().map(|(path, pu)| ThreadPlan {
        path: path.clone(),
        pu: LogicalPu(*pu),
        os_pu: machine
            .pus()
            .get(*pu as usize)
            .map_or(Default::default(), |pu| pu.os),
    });
    Plan {
        threads: threads.collect(),
        ..Plan::by_hand(machine.name(), &machine.fingerprint())
    }
}

fn ranks(pus: impl IntoIterator<Item = u32>) -> Vec<(String, u32)> {
    pus.into_iter()
        .enumerate()
        .map(|(rank, pu)| (format!("r{rank}"), pu))
        .collect()
}

fn sorted<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort();
    values
}

/// Ranks on this machine's PUs in an order that is no launcher's default: 1, 0, 0, 1, 1, 0, 0, 1, ...
fn scrambled(machine: &Topology, count: u32) -> RankMap {
    let pus = machine.pus().len() as u32;
    let pu = |rank: u32| (rank.div_ceil(2) + 1) % pus;
    RankMap::from_plan(&plan(machine, &ranks((0..count).map(pu))), machine).unwrap()
}

/// Runs a launcher's command line with ranks where `map` says; nothing remains of the run's folder.
fn launched(argv: &[OsString], map: &RankMap) -> Outcome {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("run");
    let run = run(argv, map, &folder, None, &|mut command| command.status());
    assert!(!folder.exists());
    run.expect("launcher runs")
}

fn run_on_this_machine(launcher: &[&str], count: u32) {
    let machine = from_this_machine().unwrap();
    let map = scrambled(&machine, count);
    let mut argv: Vec<OsString> = launcher.iter().map(OsString::from).collect();
    argv.extend(["-n".into(), count.to_string().into(), "true".into()]);
    let outcome = launched(&argv, &map);
    assert_eq!(outcome.status, 0);
    assert_eq!(
        outcome.threads.placed,
        u64::from(count),
        "{:?}",
        outcome.notes
    );
}

#[test]
fn mpirun_puts_4_8_and_16_ranks_where_planned() {
    for count in [4, 8, 16] {
        run_on_this_machine(&["mpirun.openmpi", "--allow-run-as-root"], count);
    }
}

#[test]
fn hydra_puts_4_8_and_16_ranks_where_planned() {
    for count in [4, 8, 16] {
        run_on_this_machine(&["mpiexec.hydra"], count);
    }
}

#[test]
fn the_wrapper_binds_under_any_launcher() {
    // Four ranks with two threads each, by script: each rank prints its mask and its places.
    let machine = from_this_machine().unwrap();
    let pus = machine.pus().len() as u32;
    let threads: Vec<_> = (0..4_u32)
        .flat_map(|r| {
            [
                (format!("r{r}"), r % pus),
                (format!("r{r}/0.1"), (r + 1) % pus),
            ]
        })
        .collect();
    let map = RankMap::from_plan(&plan(&machine, &threads), &machine).unwrap();
    assert!(map.is_hybrid());
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("bind.sh");
    std::fs::write(&script, wrapper::script(&map)).unwrap();
    let show = "echo $PMI_RANK $OMP_PLACES ${OMP_NUM_THREADS-unset} $(grep Cpus_allowed_list /proc/self/status)";
    let output = std::process::Command::new("mpiexec.hydra")
        .args(["-n", "4", "sh"])
        .arg(&script)
        .args(["sh", "-c", show])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for (rank, place) in map.places.iter().enumerate() {
        let cpus = sorted(place.distinct_pus().iter().map(|pu| pu.os).collect());
        let list = if cpus.len() == 2 && cpus[0] + 1 == cpus[1] {
            format!("{}-{}", cpus[0], cpus[1])
        } else {
            cpus.iter()
                .map(u32::to_string)
                .collect::<Vec<_>>()
                .join(",")
        };
        let line = format!(
            "{rank} {} unset Cpus_allowed_list: {list}",
            wrapper::omp_places(place)
        );
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
}

#[test]
fn ranks_that_the_run_does_not_have_are_reported() {
    let machine = from_this_machine().unwrap();
    let map = scrambled(&machine, 4);
    let argv: Vec<OsString> = ["mpiexec.hydra", "-n", "3", "true"]
        .map(OsString::from)
        .to_vec();
    let outcome = launched(&argv, &map);
    assert_eq!((outcome.threads.placed, outcome.threads.not_found), (3, 1));
    assert!(outcome.notes[0].contains("rank 3") && outcome.notes[0].contains("no such rank"));
}

#[test]
fn ranks_that_share_a_pu_yield_it_while_they_wait() {
    let machine = resolve("core:2 pu:1").unwrap();
    let yields = |pus: &[u32]| {
        let map =
            RankMap::from_plan(&plan(&machine, &ranks(pus.iter().copied())), &machine).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let wrapped = wrap_launcher(
            &["mpirun".into(), "true".into()],
            Launcher::OpenMpi,
            &map,
            folder.path(),
        );
        let wrapped = wrapped.unwrap();
        let forwarded = wrapped.argv.contains(&rankfile::YIELD.into());
        let set = wrapped.environment.contains(&(rankfile::YIELD, "1".into()));
        assert_eq!(forwarded, set);
        set
    };
    assert!(yields(&[0, 1, 0, 1, 0, 1, 0, 1]));
    assert!(!yields(&[1, 0]));
}

fn cluster() -> Topology {
    // Two hosts of 2 nodes x 2 cores x 2 threads; PUs of the second begin at 8.
    let host = resolve("numa:2 core:2 pu:2").unwrap();
    let hosts = [("a1".to_owned(), &host), ("b2".to_owned(), &host)];
    let network = Network::Matrix {
        distances: vec![0.0, 100.0, 100.0, 0.0],
    };
    compose("pair", &hosts, Some(&network)).unwrap()
}

#[test]
fn clusters_are_named_host_by_host() {
    let machine = cluster();
    // Ranks alternate between the hosts, same PUs on both: 0, 8, 2, 10.
    let map = RankMap::from_plan(&plan(&machine, &ranks([0, 8, 2, 10])), &machine).unwrap();
    assert!(map.smt);
    assert_eq!(
        rankfile::rankfile(&map),
        "rank 0=a1 slot=0\nrank 1=b2 slot=0\nrank 2=a1 slot=2\nrank 3=b2 slot=2\n"
    );
    assert_eq!(
        rankfile::options(&map, Launcher::OpenMpi, "f"),
        ["--rankfile", "f", "--use-hwthread-cpus"]
    );
    assert_eq!(
        rankfile::options(&map, Launcher::Prrte, "f"),
        ["--map-by", "rankfile:file=f:hwtcpus"]
    );
    assert_eq!(
        hydra::options(&map).unwrap(),
        ["-hosts", "a1:1,b2:1", "-bind-to", "user:0,2"]
    );
    // Intel MPI goes through its hosts once.
    assert_eq!(hydra::intel_options(&map), None);
    assert_eq!(slurm::hostfile(&map), "a1\nb2\na1\nb2\n");
    assert_eq!(
        slurm::options(&map),
        [
            "--ntasks=4",
            "--distribution=arbitrary",
            "--cpu-bind=map_cpu:0,2"
        ]
    );
}

#[test]
fn the_list_of_hydra_begins_again_at_each_mention_of_a_host() {
    let machine = cluster();
    let of = |pus: &[u32]| {
        let map = RankMap::from_plan(&plan(&machine, &ranks(pus.iter().copied())), &machine);
        let map = map.unwrap();
        let joined = |options: Option<Vec<String>>| options.map(|options| options.join(" "));
        (
            joined(hydra::options(&map)),
            joined(hydra::intel_options(&map)),
        )
    };
    let both = |mpich: &str, intel: &str| (Some(mpich.to_owned()), Some(intel.to_owned()));
    // One mention of each host.
    assert_eq!(
        of(&[2, 0, 4, 10, 8]),
        both(
            "-hosts a1:3,b2:2 -bind-to user:2,0,4",
            "-hosts a1:3,b2:2 -genv I_MPI_PIN 1 -genv I_MPI_PIN_PROCESSOR_LIST 2,0,4"
        )
    );
    // Alternately, the last one not whole: the entries of a host follow each other.
    let alternating = of(&[0, 2, 8, 4]);
    assert_eq!(
        alternating,
        (
            Some("-hosts a1:2,b2:1 -bind-to user:0,2,4".to_owned()),
            None
        )
    );
    // To and fro in no order: every mention would begin at PU 0 again.
    assert_eq!(of(&[0, 8, 10, 2, 4, 12]), (None, None));
    // So it is right for ranks that share their PUs.
    assert_eq!(
        of(&[0, 8, 10, 0]).0.unwrap(),
        "-hosts a1:1,b2:2,a1:1 -bind-to user:0,2"
    );
}

#[test]
fn hydra_binds_alternating_ranks_of_hosts() {
    let host = from_this_machine().unwrap();
    if host.pus().len() < 2 {
        return;
    }
    let hosts = [("a1".to_owned(), &host), ("b2".to_owned(), &host)];
    let machine = compose("pair", &hosts, None).unwrap();
    let second = host.pus().len() as u32;
    let pus = [1, second + 1, 0, second];
    let map = RankMap::from_plan(&plan(&machine, &ranks(pus)), &machine).unwrap();
    // Every host is this one.
    let output = std::process::Command::new("mpiexec.hydra")
        .args(["-launcher", "fork"])
        .args(hydra::options(&map).unwrap())
        .args(["-n", "4", "sh", "-c"])
        .arg("echo $PMI_RANK $(grep Cpus_allowed_list /proc/self/status)")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for (rank, place) in map.places.iter().enumerate() {
        let line = format!("{rank} Cpus_allowed_list: {}", place.pus[0].os);
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
}

#[test]
fn hosts_with_different_lists_need_the_wrapper() {
    let machine = cluster();
    let map = RankMap::from_plan(&plan(&machine, &ranks([0, 9, 2, 10])), &machine).unwrap();
    assert_eq!((hydra::options(&map), slurm::cpu_bind(&map)), (None, None));
    assert_eq!(slurm::options(&map).last().unwrap(), "--cpu-bind=none");
    let script = wrapper::script(&map);
    assert!(
        script.contains("\n1) cpus=1 ;;\n") && script.contains("\n3) cpus=2 ;;\n"),
        "{script}"
    );
}

#[test]
fn hybrid_ranks_get_masks_and_places() {
    let machine = cluster();
    // Rank 0: PUs 0, 2 of host a1; rank 1: PUs 4, 6 of host a1 (12 is 0xc... bits 4 and 6 = 0x50).
    let threads: Vec<_> = [("r0", 0), ("r0/0.1", 2), ("r1", 4), ("r1/0.1", 6)]
        .map(|(path, pu)| (path.to_owned(), pu))
        .to_vec();
    let map = RankMap::from_plan(&plan(&machine, &threads), &machine).unwrap();
    assert_eq!(slurm::cpu_bind(&map).unwrap(), "mask_cpu:0x5,0x50");
    assert_eq!(hydra::options(&map).unwrap()[3], "user:0+2,4+6");
    let intel = hydra::intel_options(&map).unwrap();
    assert_eq!(intel[6..], ["I_MPI_PIN_DOMAIN", "[0x5,0x50]"]);
    assert_eq!(
        rankfile::rankfile(&map),
        "rank 0=a1 slot=0,2\nrank 1=a1 slot=4,6\n"
    );
    assert_eq!(wrapper::omp_places(&map.places[1]), "{4},{6}");
}

#[test]
fn plans_without_whole_ranks_are_refused() {
    let machine = cluster();
    let of = |threads: &[(&str, u32)]| {
        let threads: Vec<_> = threads
            .iter()
            .map(|(p, pu)| ((*p).to_owned(), *pu))
            .collect();
        RankMap::from_plan(&plan(&machine, &threads), &machine)
    };
    assert_eq!(
        of(&[("0", 0), ("0.1", 1)]),
        Err(RankMapError::NoRanks { threads: 2 })
    );
    assert_eq!(
        of(&[("r0", 0), ("r2", 1)]),
        Err(RankMapError::Gap {
            ranks: 2,
            last: 2,
            missing: 1
        })
    );
    // PU 8 is on another host.
    assert_eq!(
        of(&[("r0", 0), ("r0.1", 8)]),
        Err(RankMapError::Split {
            rank: 0,
            first: "a1".to_owned(),
            other: "b2".to_owned(),
        })
    );
    assert!(matches!(
        of(&[("r0", 99)]),
        Err(RankMapError::NoSuchPu { rank: 0, .. })
    ));
}
