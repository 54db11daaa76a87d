//! Seconds of ranks: where launchers start them, what the model makes of a recorded run, which mapping is chosen.

use std::borrow::Cow;

use numaloc_model::profile::{Clock, CommRow, Meta, ProfileBuilder, Slice, Thread};
use numaloc_model::{CodePlace, Layer, LogicalPu, Mapping, MpiCall, Profile, SliceIdx, ThreadIdx};
use numaloc_topology::cluster::compose;
use numaloc_topology::links::Links;
use numaloc_topology::{Topology, resolve};

use super::layout::launched;
use super::*;
use crate::{Choice, PlanRequest, Planned, Scope, Unobserved, plan};

const SECOND: u64 = 1_000_000_000;

/// Hosts n0, n1 ... under one switch, with links of 1 GB/s and no latencies.
fn cluster(hosts: usize, machine: &str) -> Topology {
    let host = resolve(machine).unwrap();
    let names = (0..hosts).map(|at| (format!("n{at}"), &host));
    let built = compose("a cluster", &names.collect::<Vec<_>>(), None).unwrap();
    built.with_links(Links {
        overhead_ns: Some(0.0),
        latency_ns: Some(0.0),
        hop_ns: Some(0.0),
        host_bytes_per_s: Some(1e9),
        shared_latency_ns: Some(0.0),
        shared_bytes_per_s: Some(1e12),
        ..Links::default()
    })
}

/// A call of a rank with its bytes and its time in ns.
type Call = (u32, &'static str, u64, u64);

/// Ranks that send these bytes (half of the run, sender, receiver, bytes) in a run of 10 s.
fn profile(command: &str, ranks: u32, cells: &[(u32, u32, u32, u64)], calls: &[Call]) -> Profile {
    let meta = Meta {
        command: command.split(' ').map(str::to_owned).collect(),
        ..Meta::new("mpi", Clock::Wall)
    };
    let mut tables = ProfileBuilder::new(meta, 4096);
    tables.threads = (0..ranks)
        .map(|rank| Thread {
            rank: Some(rank),
            end: 10 * SECOND,
            ..Thread::new(format!("r{rank}"))
        })
        .collect();
    tables.slices = (0..10)
        .map(|at| Slice {
            start: at * SECOND,
            end: (at + 1) * SECOND,
        })
        .collect();
    let in_half = |&(half, src, dst, bytes): &(u32, u32, u32, u64)| {
        (0..5).map(move |at| CommRow {
            slice: SliceIdx(5 * half + at),
            src: ThreadIdx(src),
            dst: ThreadIdx(dst),
            layer: Layer::Message,
            events: 1,
            bytes: bytes / 5 + 1,
        })
    };
    tables.communication = cells.iter().flat_map(in_half).collect();
    tables.mpi_calls = calls
        .iter()
        .map(|&(rank, operation, bytes, nanoseconds)| MpiCall {
            thread: ThreadIdx(rank),
            operation: operation.to_owned(),
            place: CodePlace::default(),
            calls: 1,
            bytes,
            nanoseconds,
            ..MpiCall::default()
        })
        .collect();
    tables.build().unwrap()
}

fn hosts_of(command: &str, machine: &Topology, ranks: usize, per_host: Option<usize>) -> Vec<u32> {
    let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
    let mapping = launched(&words, machine, ranks, per_host).mapping(machine, ranks);
    let size = machine.pus().len() as u32 / machine.hosts().len() as u32;
    mapping.pu.iter().map(|pu| pu.0 / size).collect()
}

#[test]
fn as_it_is_ranks_are_where_their_launcher_starts_them() {
    // Three hosts of 2 cores with 2 PUs each.
    let machine = cluster(3, "core:2 pu:2");
    let hosts = |command, ranks| hosts_of(command, &machine, ranks, None);
    assert_eq!(hosts("mpirun -n 4 ./a", 4), [0, 0, 1, 1]);
    assert_eq!(hosts("mpirun -n 8 ./a", 8), [0, 0, 0, 1, 1, 1, 2, 2]);
    assert_eq!(hosts("mpirun --host n2:1,n0:2 -n 3 ./a", 3), [2, 0, 0]);
    assert_eq!(hosts("mpirun --map-by node -n 4 ./a", 4), [0, 1, 2, 0]);
    assert_eq!(hosts("mpirun --map-by ppr:1:node ./a", 3), [0, 1, 2]);
    assert_eq!(hosts("mpirun -N 3 ./a", 4), [0, 0, 0, 1]);
    // The program's options are its own.
    assert_eq!(hosts("mpirun --oversubscribe ./a -q -N 1", 4), [0, 0, 1, 1]);
    assert_eq!(hosts("mpirun --mca btl -N ./a -N 1", 4), [0, 0, 1, 1]);
    assert_eq!(
        hosts("mpiexec.hydra -hosts n0,n1 -n 4 ./a", 4),
        [0, 1, 0, 1]
    );
    assert_eq!(
        hosts("mpiexec.hydra -hosts n0:2,n1 -n 5 ./a", 5),
        [0, 0, 1, 0, 0]
    );
    // Each node of Slurm gets a rank.
    assert_eq!(hosts("srun -N 3 -n 4 ./a", 4), [0, 0, 1, 2]);
    assert_eq!(hosts("srun -N2 -n4 ./a", 4), [0, 0, 0, 1]);
    assert_eq!(hosts("srun -N 2 --ntasks-per-node=2 ./a", 4), [0, 0, 1, 1]);
    assert_eq!(hosts("srun -N 2 -n 4 -m cyclic ./a", 4), [0, 1, 0, 1]);
    // The user's word counts more.
    assert_eq!(
        hosts_of("srun -N 3 ./a", &machine, 4, Some(3)),
        [0, 0, 0, 1]
    );
    let words = ["mpirun".to_owned()];
    let mapping = launched(&words, &machine, 6, Some(4)).mapping(&machine, 6);
    assert_eq!(
        mapping.pu.iter().map(|pu| pu.0).collect::<Vec<_>>(),
        [0, 2, 1, 3, 4, 6],
        "one rank on a core while there are cores"
    );
}

fn model<'a>(profile: &Profile, machine: &'a Topology) -> RankModel<'a> {
    let subject = Subject::new(Cow::Borrowed(profile), &Scope::default()).unwrap();
    RankModel::of(&subject, machine, &Options::default()).unwrap()
}

fn mapping(pus: &[u32]) -> Mapping {
    Mapping {
        pu: pus.iter().map(|&pu| LogicalPu(pu)).collect(),
    }
}

fn near(found: f64, expected: f64) {
    assert!(
        (found - expected).abs() < 1e-9,
        "{found} instead of {expected}"
    );
}

/// Ranks 0 and 2, and 1 and 3 exchange 2 GB.
fn distant(command: &str, in_mpi: u64) -> Profile {
    let cells = [(0, 2), (1, 3), (2, 0), (3, 1)];
    let cells = cells.map(|(src, dst)| (0, src, dst, 2_000_000_000));
    let calls = [0, 1, 2, 3].map(|rank| (rank, "MPI_Sendrecv", 2_000_000_000, in_mpi));
    profile(command, 4, &cells, &calls)
}

#[test]
fn a_run_recorded_on_its_hosts_takes_what_it_took() {
    let machine = cluster(2, "core:2 pu:1");
    // 5 s of computation; two ranks send 2 GB each over a link of 1 GB/s: 4 s, and 1 s is the rest.
    let there = model(
        &distant("mpirun --host n0:2,n1:2 ./a", 5 * SECOND),
        &machine,
    );
    near(there.worth(there.as_it_is()).seconds, 10.0);
    near(
        there.worth(&mapping(&[0, 2, 1, 3])).seconds,
        6.0 + 2e9 / 1e12,
    );
    // Recorded on one host: messages take no time there, so 5 s are the rest.
    let elsewhere = model(&distant("mpirun -n 4 ./a", 5 * SECOND), &machine);
    near(
        elsewhere.worth(elsewhere.as_it_is()).seconds,
        14.0 - 2e9 / 1e12,
    );
    // Only 2 s in MPI where the model has 4 s: messages take half of what it says.
    let faster = model(
        &distant("mpirun --host n0:2,n1:2 ./a", 2 * SECOND),
        &machine,
    );
    near(faster.worth(faster.as_it_is()).seconds, 10.0);
    near(
        faster.worth(&mapping(&[0, 2, 1, 3])).seconds,
        8.0 + 1e9 / 1e12,
    );
}

#[test]
fn ranks_that_share_a_core_compute_for_longer() {
    let machine = cluster(2, "core:2 pu:2");
    let calls = [(0, "MPI_Barrier", 0, SECOND), (1, "MPI_Barrier", 0, SECOND)];
    let alone = profile("mpirun ./a", 2, &[(0, 0, 1, 0)], &calls);
    let model = model(&alone, &machine);
    near(model.worth(&mapping(&[0, 2])).compute_s, 9.0);
    near(model.worth(&mapping(&[0, 1])).compute_s, 9.0 * SMT_SLOWDOWN);
    near(model.worth(&mapping(&[3, 3])).compute_s, 18.0);
}

#[test]
fn a_part_of_another_pattern_is_a_phase_of_its_own() {
    let machine = cluster(4, "core:1 pu:1");
    // First 0 to 1, then 2 to 3: the links of both are used one after the other.
    let cells = [(0, 0, 1, 3_000_000_000), (1, 2, 3, 2_000_000_000)];
    let model = model(&profile("mpirun ./a", 4, &cells, &[]), &machine);
    let worth = model.worth(model.as_it_is());
    near(worth.seconds, 5.0);
    near(worth.busiest[0].seconds, 3.0);
    assert!(!model.rank([("launcher", model.as_it_is())]).is_whole);
}

#[test]
fn what_saves_lies_between_hidden_and_exposed_messages() {
    let of = |seconds, hidden_s| RankWorth {
        seconds,
        hidden_s,
        ..RankWorth::default()
    };
    let gain = Gain::of(&of(10.0, 8.0), &of(6.0, 7.0), 0.2);
    near(gain.seconds, 4.0);
    near(gain.least, 0.8);
    near(gain.most, 4.8);
    let loss = Gain::of(&of(6.0, 7.0), &of(10.0, 8.0), 0.2);
    near(loss.least, -4.8);
    near(loss.most, -0.8);
}

fn planned(
    profile: &Profile,
    machine: &Topology,
    threads: Option<&str>,
    look: impl FnOnce(&Planned),
) {
    let request = PlanRequest {
        subject: &Subject::new(Cow::Borrowed(profile), &Scope::default()).unwrap(),
        machine,
        choice: &Choice::open(threads, None).unwrap(),
        options: &Options::default(),
    };
    look(&plan(request, &Unobserved).unwrap());
}

#[test]
fn the_fastest_mapping_is_chosen_and_the_launchers_layout_wins_ties() {
    let machine = cluster(2, "core:2 pu:1");
    let saved = distant("mpirun --host n0:2,n1:2 ./a", 5 * SECOND);
    planned(&saved, &machine, None, |planned| {
        let ranking = planned.rank_ranking().unwrap();
        assert!(ranking.saves() && !ranking.loses());
        assert_eq!(ranking.plan().between_hosts, 0.0);
        assert_eq!(planned.assemble().plan.threads.len(), 4);
        assert!(ranking.as_it_is.busiest[0].name.starts_with('n'));
    });
    // The same messages are nothing in a run of which they take 1 %.
    let cells = [(0, 0, 2, 100_000_000), (0, 2, 0, 100_000_000)];
    let calls = [0, 1, 2, 3].map(|rank| (rank, "MPI_Sendrecv", 100_000_000, SECOND / 10));
    let small = profile("mpirun --host n0:2,n1:2 ./a", 4, &cells, &calls);
    // A tenth of a second of ten.
    let of_small = model(&small, &machine);
    let ranking = of_small.rank([("numaloc", &mapping(&[0, 2, 1, 3]))]);
    assert!(ranking.gain().seconds > 0.05 && !ranking.saves());
    planned(&small, &machine, None, |planned| {
        let ranking = planned.rank_ranking().unwrap();
        assert!(!ranking.saves());
        assert_eq!(planned.threads()[0].policy, "launcher");
        assert_eq!(
            planned.threads()[0].mapped.mapping.pu,
            mapping(&[0, 1, 2, 3]).pu
        );
    });
}

#[test]
fn a_mapping_that_loses_is_known_to_lose() {
    let machine = cluster(2, "core:2 pu:1");
    // Neighbours exchange much: one rank on each host in turn parts them.
    let cells = [(0, 0, 1, 2_000_000_000), (0, 2, 3, 2_000_000_000)];
    let calls = [0, 1, 2, 3].map(|rank| (rank, "MPI_Sendrecv", 2_000_000_000, SECOND));
    let near = profile("mpirun --host n0:2,n1:2 ./a", 4, &cells, &calls);
    planned(&near, &machine, Some("scatter"), |planned| {
        let ranking = planned.rank_ranking().unwrap();
        assert!(ranking.loses() && !ranking.saves());
    });
}

#[test]
fn figures_of_links_that_are_only_assumed_have_a_larger_error() {
    let stated = cluster(2, "core:2 pu:1");
    let assumed = stated.clone().with_links(Links::default());
    let run = distant("mpirun --host n0:2,n1:2 ./a", 5 * SECOND);
    let error = |machine: &Topology| {
        let model = model(&run, machine);
        let ranking = model.rank([("launcher", model.as_it_is())]);
        (ranking.error, ranking.assumed)
    };
    assert_eq!(error(&stated), (ERROR, None));
    assert_eq!(error(&assumed), (ASSUMED_ERROR, Some("hdr")));
}

#[test]
fn calls_that_return_when_they_are_done_are_serial_only_both_ways() {
    let serial = |calls: &[Call]| demand::of(&profile("a", 2, &[], calls), Layer::Sent).0;
    let both = serial(&[(0, "MPI_Send", 999, 1), (0, "MPI_Recv", 999, 1)]);
    near(both.serial[0], 1.0);
    near(both.serial[1], 0.0);
    let one = serial(&[
        (0, "MPI_Irecv", 500, 1),
        (0, "MPI_Send", 500, 1),
        (0, "MPI_Wait", 500, 1),
    ]);
    near(one.serial[0], 0.0);
    near(one.non_blocking, 0.5);
}
