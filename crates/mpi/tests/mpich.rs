//! The tracer against MPICH: the workloads' patterns match their headers, from C and from
//! all three Fortran bindings; collectives are modelled by the standard algorithms.

mod support;

use std::collections::BTreeMap;
use std::process::Command;

use numaloc_mpi::rank_file::Kind;
use numaloc_mpi::shims::MpiLibrary::Mpich;
use support::{of_kind, root, trace_ok, words, workload};

type Cells = BTreeMap<(u32, u32), (u64, u64)>;

fn traced(name: &str, ranks: u32, arguments: &[&str]) -> support::Counts {
    let mut argv = vec![workload(Mpich, name).into()];
    argv.extend(words(arguments));
    trace_ok(Mpich, ranks, &argv, &[]).counts
}

#[test]
fn point_to_point_patterns_are_exact() {
    // The same sums as in open_mpi.rs, from the headers of the workloads.
    let ring: Cells = (0..4).map(|r| ((r, (r + 1) % 4), (50, 400_000))).collect();
    assert_eq!(of_kind(&traced("ring", 4, &[]), Kind::PointToPoint), ring);
    // 4 ranks: 2 rows x 2 columns. The neighbours above and below are the same rank, and so are left and right: 2
    // messages each per iteration. 7 iterations of 100 doubles: 14 messages, 11200 bytes.
    let halo: Cells = (0..4)
        .flat_map(|r| [((r, r ^ 1), (14, 11_200)), ((r, r ^ 2), (14, 11_200))])
        .collect();
    assert_eq!(
        of_kind(&traced("halo2d", 4, &["100", "7"]), Kind::PointToPoint),
        halo
    );
    let pairs: Cells = (0..8)
        .flat_map(|r| [((r, r ^ 1), (50, 400_000)), ((r, 7 - r), (50, 400_000))])
        .collect();
    assert_eq!(of_kind(&traced("pairs", 8, &[]), Kind::PointToPoint), pairs);
    let tree: Cells = (1..7)
        .flat_map(|c| {
            [
                ((c, (c - 1) / 2), (50, 40_000)),
                (((c - 1) / 2, c), (50, 40_000)),
            ]
        })
        .collect();
    assert_eq!(of_kind(&traced("tree", 7, &[]), Kind::PointToPoint), tree);
}

#[test]
fn every_way_to_send_counts_in_world_ranks() {
    // See workloads/mpi/kinds.c.
    let counts = traced("kinds", 4, &[]);
    let to = |step: u32, amount| {
        (0..4)
            .map(|w| ((w, (w + step) % 4), amount))
            .collect::<Cells>()
    };
    assert_eq!(of_kind(&counts, Kind::PointToPoint), to(3, (6, 210)));
    assert_eq!(of_kind(&counts, Kind::Persistent), to(3, (2, 140)));
    assert_eq!(of_kind(&counts, Kind::Put), to(3, (2, 176)));
    assert_eq!(of_kind(&counts, Kind::Get), to(2, (1, 100)));
}

#[test]
fn ways_to_send_of_mpi_4_and_of_graphs_count() {
    // See workloads/mpi/kinds4.c and neighbours.c.
    let counts = traced("kinds4", 3, &[]);
    let next = |amount| {
        (0..3)
            .map(|r| ((r, (r + 1) % 3), amount))
            .collect::<Cells>()
    };
    assert_eq!(of_kind(&counts, Kind::PointToPoint), next((2, 30)));
    assert_eq!(of_kind(&counts, Kind::Persistent), next((2, 60)));
    let counts = traced("neighbours", 3, &[]);
    let expect = (0..3).flat_map(|r| {
        [
            ((r, (r + 1) % 3), (20, 16_000)),
            ((r, (r + 2) % 3), (5, 4_000)),
        ]
    });
    assert_eq!(of_kind(&counts, Kind::Modelled), expect.collect());
    let counts = traced("ineighbours", 3, &[]);
    let expect = (0..3).flat_map(|r| {
        [
            ((r, (r + 1) % 3), (25, 22_000)),
            ((r, (r + 2) % 3), (25, 20_000)),
        ]
    });
    assert_eq!(of_kind(&counts, Kind::Modelled), expect.collect());
}

#[test]
fn a_program_that_uses_sessions_instead_of_mpi_init_is_recorded() {
    let ring: Cells = (0..3).map(|r| ((r, (r + 1) % 3), (20, 8000))).collect();
    assert_eq!(
        of_kind(&traced("sessions", 3, &[]), Kind::PointToPoint),
        ring
    );
}

#[test]
fn each_start_of_a_persistent_collective_counts() {
    let all = (0..3).flat_map(|r| {
        (0..3)
            .filter(move |&peer| peer != r)
            .map(move |peer| (r, peer))
    });
    let all: Cells = all.map(|pair| (pair, (5, 2000))).collect();
    assert_eq!(of_kind(&traced("persistent", 3, &[]), Kind::Modelled), all);
}

#[test]
fn fortran_programs_are_traced_through_all_three_bindings() {
    let ring: Cells = (0..4).map(|r| ((r, (r + 1) % 4), (30, 120_000))).collect();
    assert_eq!(
        of_kind(&traced("ring_mpif", 4, &[]), Kind::PointToPoint),
        ring
    );
    let halo: Cells = (0..3)
        .flat_map(|r| [((r, r + 1), (25, 40_000)), ((r + 1, r), (25, 40_000))])
        .collect();
    let counts = traced("halo_module", 4, &[]);
    assert_eq!(of_kind(&counts, Kind::PointToPoint), halo);
    // Allreduce of 8 bytes on 4 ranks, recursive doubling: partners r^1 and r^2.
    let sum: Cells = (0..4)
        .flat_map(|r| [((r, r ^ 1), (1, 8)), ((r, r ^ 2), (1, 8))])
        .collect();
    assert_eq!(of_kind(&counts, Kind::Modelled), sum);
    let counts = traced("transpose_f08", 4, &[]);
    let token: Cells = (0..4).map(|r| ((r, (r + 1) % 4), (1, 512))).collect();
    assert_eq!(of_kind(&counts, Kind::PointToPoint), token);
    // 5 times 1000 doubles to every other rank.
    let all: Cells = (0..4)
        .flat_map(|s| {
            (0..4)
                .filter(move |&d| d != s)
                .map(move |d| ((s, d), (5, 40_000)))
        })
        .collect();
    assert_eq!(of_kind(&counts, Kind::Modelled), all);
}

#[test]
fn the_mpi_f08_bindings_that_call_pmpi_names_are_counted() {
    // See workloads/mpi/split_f08.f90.
    let counts = traced("split_f08", 4, &[]);
    let sent: Cells = (0..4)
        .flat_map(|r| [((r, (r + 1) % 4), (5, 200)), ((r, (r + 3) % 4), (5, 200))])
        .collect();
    assert_eq!(of_kind(&counts, Kind::PointToPoint), sent);
    let started: Cells = (0..4).map(|r| ((r, (r + 1) % 4), (3, 60))).collect();
    assert_eq!(of_kind(&counts, Kind::Persistent), started);
    // The barrier: every rank has two partners.
    let modelled = of_kind(&counts, Kind::Modelled);
    let barrier: Cells = (0..4)
        .flat_map(|r| [((r, (r + 1) % 4), (1, 0)), ((r, (r + 2) % 4), (1, 0))])
        .collect();
    assert_eq!(modelled, barrier);
}

#[test]
fn bucket_sort_and_transpose_model_one_message_per_pair() {
    // bucket_sort, 4 ranks: Alltoall of one int (4 ranks: no bundling below 8) and Alltoallv of 4000 keys,
    // 10 times: 20 messages, 10 * (4 + 16000) = 160040 bytes.
    let every = |n: u32, amount| {
        (0..n)
            .flat_map(|s| {
                (0..n)
                    .filter(move |&d| d != s)
                    .map(move |d| ((s, d), amount))
            })
            .collect::<Cells>()
    };
    let counts = traced("bucket_sort", 4, &[]);
    assert_eq!(of_kind(&counts, Kind::Modelled), every(4, (20, 160_040)));
    let counts = traced("transpose", 6, &[]);
    assert_eq!(of_kind(&counts, Kind::Modelled), every(6, (10, 80_000)));
}

/// Messages of a modelled collective, computed by the C source in a small program.
fn model(
    driver: &std::path::Path,
    what: &str,
    size: u32,
    root: u32,
    bytes: u64,
) -> Vec<(u32, u32, u64)> {
    let output = Command::new(driver)
        .args([
            what,
            &size.to_string(),
            &root.to_string(),
            &bytes.to_string(),
        ])
        .output()
        .expect("driver runs");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| {
        let f: Vec<u64> = line.split(' ').map(|w| w.parse().unwrap()).collect();
        (f[0] as u32, f[1] as u32, f[2])
    });
    lines.collect()
}

/// Invariants of each collective with any algorithm: every rank receives all its data.
#[test]
fn modelled_collectives_move_what_they_must() {
    let folder = tempfile::tempdir().unwrap();
    let driver = folder.path().join("driver");
    let shims = root().join("shims/mpi");
    let status = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Werror", "-I"])
        .arg(&shims)
        .arg("-o")
        .arg(&driver)
        .arg(shims.join("collective_model_driver.c"))
        .arg(shims.join("collective_model.c"))
        .status()
        .unwrap();
    assert!(status.success());
    for size in [1_u32, 2, 3, 4, 5, 7, 8, 9, 12, 16] {
        for (root, bytes) in [(0, 64), (size - 1, 100_000), (size / 2, 7000)] {
            let case = format!("{size} ranks, root {root}, {bytes} bytes");
            let n = u64::from(size);
            let flows = |what: &str| {
                let messages = model(&driver, what, size, root, bytes);
                let mut sums = vec![(0_u64, 0_u64); size as usize]; // in, out
                for &(src, dst, amount) in &messages {
                    assert!(src != dst && dst < size, "{what}, {case}");
                    sums[src as usize].1 += amount;
                    sums[dst as usize].0 += amount;
                }
                (messages, sums)
            };
            let (messages, _) = flows("barrier");
            let rounds = (n as f64).log2().ceil() as usize;
            assert_eq!(messages.len(), size as usize * rounds, "{case}");
            for (what, others_pay) in [("gather", true), ("scatter", false)] {
                let (_, sums) = flows(what);
                for (r, &(into, out)) in sums.iter().enumerate() {
                    let (more, less) = if others_pay { (out, into) } else { (into, out) };
                    if r as u32 == root {
                        assert_eq!((less, more), ((n - 1) * bytes, 0), "{what}, {case}");
                    } else {
                        assert_eq!(more, less + bytes, "{what}, {case}, rank {r}");
                    }
                }
            }
            for what in ["bcast", "allreduce", "reduce"] {
                let (_, sums) = flows(what);
                for (r, &(into, out)) in sums.iter().enumerate() {
                    let is_root = r as u32 == root;
                    if what == "bcast" && !is_root || what == "allreduce" && size > 1 {
                        // Rabenseifner's halves: (n-1)/n of the data comes in twice.
                        assert!(
                            into >= bytes - bytes / n - n,
                            "{what}, {case}, rank {r}: {into}"
                        );
                    }
                    if what == "reduce" && !is_root {
                        assert!(out > 0, "{what}, {case}, rank {r}");
                    }
                }
                if what == "reduce" && size > 1 {
                    assert!(
                        sums[root as usize].0 >= bytes - bytes / n - n,
                        "{what}, {case}"
                    );
                }
            }
            let (messages, sums) = flows("allgather");
            assert!(
                sums.iter().all(|s| s.0 == (n - 1) * bytes),
                "{case}: {messages:?}"
            );
            let (_, sums) = flows("alltoall");
            assert!(
                sums.iter().all(|s| s.0 == s.1 && s.0 >= (n - 1) * bytes),
                "{case}"
            );
        }
    }
}

#[test]
fn prototypes_are_those_of_mpi_h() {
    // The shim declares each binary interface itself; the real headers must agree with every declaration.
    for (compiler, defines) in [
        ("mpicc.mpich", &[][..]),
        ("mpicc.openmpi", &["-DNUMALOC_FOR_OPEN_MPI"]),
    ] {
        let include = Command::new(compiler)
            .arg("-show")
            .output()
            .expect("the compiler's wrapper runs");
        let include = String::from_utf8(include.stdout).unwrap();
        let flags = include
            .split_whitespace()
            .filter(|word| word.starts_with("-I"));
        let output = Command::new("cc")
            .args(["-std=gnu11", "-Wall", "-Werror", "-fsyntax-only"])
            .arg("-DNUMALOC_CHECK_AGAINST_MPI_H")
            .args(defines)
            .args(flags)
            .args(["profiling.c", "merge_node.c"].map(|file| root().join("shims/mpi").join(file)))
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{compiler}: {message}");
    }
}
