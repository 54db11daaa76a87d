//! The tracer against Open MPI: counts equal the library's own monitoring dump, cell by cell, and the
//! workloads' patterns match their headers.

mod support;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use numaloc_model::Layer;
use numaloc_mpi::rank_file::{Kind, Tail};
use numaloc_mpi::shims::MpiLibrary::OpenMpi;
use numaloc_mpi::{Options, merge, monitoring_dump};
use support::{Counts, launcher, of_kind, trace, trace_ok, words, workload};

fn with_dump(folder: &Path) -> [(&'static str, OsString); 2] {
    [
        ("OMPI_MCA_pml_monitoring_enable_output", "3".into()),
        (
            "OMPI_MCA_pml_monitoring_filename",
            folder.join("dump").into(),
        ),
    ]
}

fn dump(folder: &Path, ranks: u32) -> Counts {
    let mut counts = Counts::new();
    for rank in 0..ranks {
        let path = folder.join(format!("dump.{rank}.prof"));
        let text = std::fs::read_to_string(&path).expect("Open MPI wrote its dump");
        for line in monitoring_dump::parse(&text).expect("dump parses") {
            counts.insert((line.kind, line.rank, line.peer), (line.events, line.bytes));
        }
    }
    counts
}

/// One-sided calls are counted through the profiling interface, so the library's counts of them come from a separate
/// run.
fn one_sided(counts: &Counts) -> Counts {
    let moved = counts
        .iter()
        .filter(|((kind, ..), (_, bytes))| matches!(kind, Kind::Put | Kind::Get) && *bytes > 0);
    moved.map(|(&cell, &amount)| (cell, amount)).collect()
}

fn messages(counts: &Counts) -> Counts {
    let seen = counts
        .iter()
        .filter(|((kind, ..), _)| matches!(kind, Kind::PointToPoint | Kind::Collective));
    seen.map(|(&cell, &amount)| (cell, amount)).collect()
}

fn traced_equals_dump(ranks: u32, argv: &[OsString]) -> Counts {
    let dumps = tempfile::tempdir().expect("a folder");
    let run = trace_ok(OpenMpi, ranks, argv, &with_dump(dumps.path()));
    let dumped = dump(dumps.path(), ranks);
    assert!(!dumped.is_empty());
    // The dump lists `Started` as point-to-point messages and has no `Persistent` ones.
    let mut as_dumped = Counts::new();
    for (&(kind, rank, peer), amount) in &run.counts {
        let kind = match kind {
            Kind::Persistent => continue,
            Kind::Started => Kind::PointToPoint,
            other => other,
        };
        let cell = as_dumped.entry((kind, rank, peer)).or_insert((0, 0));
        *cell = (cell.0 + amount.0, cell.1 + amount.1);
    }
    assert_eq!(messages(&as_dumped), messages(&dumped), "{argv:?}");
    let one_sided_calls = one_sided(&run.counts);
    if !one_sided_calls.is_empty() {
        let output = launcher(OpenMpi, ranks)
            .args(argv)
            .env("OMPI_MCA_pml_monitoring_enable", "2")
            .envs(with_dump(dumps.path()))
            .output()
            .expect("launcher runs");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(
            one_sided_calls,
            one_sided(&dump(dumps.path(), ranks)),
            "{argv:?}"
        );
    }
    run.counts
}

#[test]
fn every_workload_equals_the_dump() {
    let cases: [(&str, u32, &[&str]); 19] = [
        ("halo2d", 12, &[]),
        ("ring", 5, &[]),
        ("transpose", 8, &[]),
        ("tree", 7, &[]),
        ("ep", 8, &[]),
        ("bucket_sort", 6, &[]),
        ("pairs", 8, &[]),
        ("kinds", 4, &[]),
        ("kinds4", 3, &[]),
        ("neighbours", 3, &[]),
        ("ineighbours", 3, &[]),
        ("pingpong", 2, &["500", "2"]),
        ("hybrid", 4, &[]),
        ("ring_mpif", 4, &[]),
        ("halo_module", 4, &[]),
        ("transpose_f08", 4, &[]),
        ("split_f08", 4, &[]),
        ("waits", 2, &["10"]),
        ("steps", 4, &["5", "1000", "100", "all"]),
    ];
    for (name, ranks, arguments) in cases {
        let mut argv = vec![workload(OpenMpi, name).into()];
        argv.extend(words(arguments));
        traced_equals_dump(ranks, &argv);
    }
    // All workloads are tested, except the one that crashes Open MPI's own monitoring, and those that need MPI 4.
    let mut sources: Vec<String> = std::fs::read_dir(support::root().join("workloads/mpi"))
        .expect("folder lists")
        .map(|entry| entry.expect("entry").file_name())
        .filter_map(|name| {
            let name = name.to_string_lossy().into_owned();
            let (stem, ending) = name.split_once('.')?;
            ["c", "f", "f90"].contains(&ending).then(|| stem.to_owned())
        })
        .collect();
    sources.retain(|name| !["spawn", "sessions", "persistent"].contains(&name.as_str()));
    sources.sort();
    let mut tested = cases.map(|(name, ..)| name);
    tested.sort_unstable();
    assert_eq!(sources, tested);
}

#[test]
fn pingpong_sends_both_ways() {
    // 2 repeats of 500 messages of 8 bytes and of 500 / 50 + 1 = 11 of 1 MiB, each way.
    let each = (2 * 511, 2 * (500 * 8 + 11 * (1 << 20)));
    let expect = BTreeMap::from([((0, 1), each), ((1, 0), each)]);
    assert_eq!(point_to_point("pingpong", 2, &["500", "2"]), expect);
}

fn point_to_point(name: &str, ranks: u32, arguments: &[&str]) -> BTreeMap<(u32, u32), (u64, u64)> {
    let mut argv = vec![workload(OpenMpi, name).into()];
    argv.extend(words(arguments));
    of_kind(
        &trace_ok(OpenMpi, ranks, &argv, &[]).counts,
        Kind::PointToPoint,
    )
}

#[test]
fn ring_is_a_ring() {
    // 50 iterations of 1000 doubles: 50 messages, 50 * 1000 * 8 = 400000 bytes to the next rank only.
    let expect = (0..4).map(|r| ((r, (r + 1) % 4), (50, 400_000))).collect();
    assert_eq!(point_to_point("ring", 4, &[]), expect);
}

#[test]
fn halo_has_four_neighbours() {
    // 12 ranks: 3 rows x 4 columns, periodic. 7 iterations of 100 doubles: 7 messages, 7 * 800 = 5600
    // bytes to each neighbour; all four differ, because no side is shorter than 3.
    let mut expect = BTreeMap::new();
    for r in 0..12 {
        let (row, col) = (r / 4, r % 4);
        for peer in [
            (row + 1) % 3 * 4 + col,
            (row + 2) % 3 * 4 + col,
            row * 4 + (col + 1) % 4,
            row * 4 + (col + 3) % 4,
        ] {
            expect.insert((r, peer), (7, 5600));
        }
    }
    assert_eq!(point_to_point("halo2d", 12, &["100", "7"]), expect);
}

#[test]
fn tree_goes_up_and_down() {
    // 7 ranks: children 1, 2 of 0; 3, 4 of 1; 5, 6 of 2. 50 messages of 100 doubles = 40000 bytes each way.
    let mut expect = BTreeMap::new();
    for child in 1..7 {
        let parent = (child - 1) / 2;
        expect.insert((child, parent), (50, 40_000));
        expect.insert((parent, child), (50, 40_000));
    }
    assert_eq!(point_to_point("tree", 7, &[]), expect);
}

#[test]
fn pairs_have_two_partners() {
    // 8 ranks: r ^ 1, then 7 - r; 50 messages of 1000 doubles = 400000 bytes with each. The two partners
    // differ for every rank, because r ^ 1 = 7 - r has no solution (bits 1 and 2 would have to be their own
    // complement).
    let expect = (0..8)
        .flat_map(|r| [((r, r ^ 1), (50, 400_000)), ((r, 7 - r), (50, 400_000))])
        .collect();
    assert_eq!(point_to_point("pairs", 8, &[]), expect);
}

#[test]
fn transpose_is_one_message_per_pair_and_iteration() {
    // 10 iterations of 1000 doubles: every ordered pair 10 messages of 8000 bytes, inside the collective.
    // MPI_Init and MPI_Finalize add barriers of 0 bytes, so the bytes are exact and the number of events is a bound.
    let run = trace_ok(OpenMpi, 8, &[workload(OpenMpi, "transpose").into()], &[]);
    assert_eq!(of_kind(&run.counts, Kind::PointToPoint), BTreeMap::new());
    let cells = of_kind(&run.counts, Kind::Collective);
    for src in 0..8 {
        for dst in (0..8).filter(|&dst| dst != src) {
            let (events, bytes) = cells[&(src, dst)];
            assert_eq!(bytes, 80_000, "{src} to {dst}");
            assert!((10..=20).contains(&events), "{src} to {dst}: {events}");
        }
    }
}

#[test]
fn ep_is_silent_but_for_its_sum() {
    // One Allreduce of 8 bytes on 8 ranks, by recursive doubling: r exchanges 8 bytes with r^1, r^2, r^4.
    let run = trace_ok(OpenMpi, 8, &[workload(OpenMpi, "ep").into()], &[]);
    let cells = of_kind(&run.counts, Kind::Collective);
    let bytes: BTreeMap<_, _> = cells.into_iter().filter(|(_, (_, b))| *b > 0).collect();
    let expect: Vec<_> = (0..8)
        .flat_map(|r| [(r, r ^ 1), (r, r ^ 2), (r, r ^ 4)])
        .collect();
    assert!(
        bytes
            .values()
            .all(|(events, bytes)| *bytes == 8 && *events >= 1),
        "{bytes:?}"
    );
    assert_eq!(bytes.len(), expect.len());
    assert!(expect.iter().all(|pair| bytes.contains_key(pair)));
}

#[test]
fn bucket_sort_moves_every_key() {
    // 4 ranks, 16000 keys: 4000 keys of 4 bytes per pair and iteration; 10 iterations: 160000 bytes in
    // Alltoallv, and 10 counts of 4 bytes. Counts of 4 bytes are bundled (Bruck), so they may pass through
    // a third rank: between 160000 and 160000 + 10 * 4 * 2 bytes (a pair carries at most two bundled
    // blocks of the four).
    let run = trace_ok(OpenMpi, 4, &[workload(OpenMpi, "bucket_sort").into()], &[]);
    let mut sums = of_kind(&run.counts, Kind::Collective);
    for (pair, (_, bytes)) in of_kind(&run.counts, Kind::Started) {
        sums.entry(pair).or_default().1 += bytes;
    }
    assert_eq!(of_kind(&run.counts, Kind::PointToPoint), BTreeMap::new());
    for src in 0..4 {
        for dst in (0..4).filter(|&dst| dst != src) {
            let bytes = sums[&(src, dst)].1;
            assert!(
                (160_000..=160_080).contains(&bytes),
                "{src} to {dst}: {bytes}"
            );
        }
    }
}

#[test]
fn every_way_to_send_counts_in_world_ranks() {
    // See workloads/mpi/kinds.c: 6 messages of 10+20+30+40+50+60 = 210 bytes and 2 persistent ones of 70
    // to world rank w-1; put of 80 and accumulate of 96 bytes there; a get of 100 bytes from w-2.
    let run = trace_ok(OpenMpi, 4, &[workload(OpenMpi, "kinds").into()], &[]);
    let to = |step: u32, amount| {
        (0..4)
            .map(|w| ((w, (w + step) % 4), amount))
            .collect::<BTreeMap<_, _>>()
    };
    assert_eq!(of_kind(&run.counts, Kind::PointToPoint), to(3, (6, 210)));
    assert_eq!(of_kind(&run.counts, Kind::Persistent), to(3, (2, 140)));
    let nonzero = |kind| {
        let cells = of_kind(&run.counts, kind);
        cells
            .into_iter()
            .filter(|(_, (_, bytes))| *bytes > 0)
            .collect::<BTreeMap<_, _>>()
    };
    assert_eq!(nonzero(Kind::Put), to(3, (2, 176)));
    assert_eq!(nonzero(Kind::Get), to(2, (1, 100)));
}

#[test]
fn fortran_programs_are_traced_through_all_three_bindings() {
    let ring = (0..4).map(|r| ((r, (r + 1) % 4), (30, 120_000))).collect();
    assert_eq!(point_to_point("ring_mpif", 4, &[]), ring);
    let halo = (0..3)
        .flat_map(|r| [((r, r + 1), (25, 40_000)), ((r + 1, r), (25, 40_000))])
        .collect();
    assert_eq!(point_to_point("halo_module", 4, &[]), halo);
    let token = (0..4).map(|r| ((r, (r + 1) % 4), (1, 512))).collect();
    assert_eq!(point_to_point("transpose_f08", 4, &[]), token);
}

#[test]
fn hpcc_equals_the_dump() {
    let folder = tempfile::tempdir().expect("a folder");
    // hpcc reads hpccinf.txt in its working folder: a problem small enough for a test.
    let input = folder.path().join("hpccinf.txt");
    std::fs::write(&input, include_str!("../../../fixtures/mpi/hpccinf.txt")).expect("input");
    // All ranks share the folder: each copies to a name of its own, and renaming is atomic.
    let script = format!(
        "cp {} $$ && mv -f $$ hpccinf.txt && exec hpcc",
        input.display()
    );
    traced_equals_dump(4, &words(&["sh", "-c", &script]));
}

#[test]
fn lammps_equals_the_dump() {
    let input = support::root().join("fixtures/mpi/lammps-melt.in");
    let argv = [
        "env".into(),
        "OMP_NUM_THREADS=1".into(),
        "lmp".into(),
        "-in".into(),
        input.into(),
    ];
    let counts = traced_equals_dump(4, &argv);
    // 4 ranks in 1 x 2 x 2 boxes: each has two neighbours and exchanges nothing with the rank across.
    let pairs: Vec<_> = of_kind(&counts, Kind::PointToPoint).into_keys().collect();
    assert_eq!(
        pairs,
        [
            (0, 1),
            (0, 2),
            (1, 0),
            (1, 3),
            (2, 0),
            (2, 3),
            (3, 1),
            (3, 2)
        ]
    );
}

#[test]
fn a_rank_that_aborts_loses_only_its_last_slice() {
    // pairs with an odd number of ranks aborts in rank 0 right after MPI_Init.
    let run = trace(OpenMpi, 3, &[workload(OpenMpi, "pairs").into()], &[]);
    assert!(!run.output.status.success());
    assert!(!run.files.is_empty());
    assert!(
        run.tails
            .iter()
            .all(|tail| !matches!(tail, Tail::Damaged { .. })),
        "{:?}",
        run.tails
    );
}

/// Counts of `neighbours` on 3 ranks without the setup messages of the library: bytes between neighbours.
fn neighbours_bytes(counts: &Counts, kind: Kind) -> BTreeMap<(u32, u32), u64> {
    let cells = of_kind(counts, kind).into_iter();
    cells.map(|(pair, (_, bytes))| (pair, bytes)).collect()
}

#[test]
fn programs_that_open_mpis_own_monitoring_crashes_run_and_are_counted() {
    // Neighbourhood collectives on graphs: 5 iterations of 100 doubles, 4 messages to the next rank, 1 to the
    // previous one; messages that create the graphs are additional.
    let neighbours = [workload(OpenMpi, "neighbours").into_os_string()];
    let bytes = neighbours_bytes(
        &trace_ok(OpenMpi, 3, &neighbours, &[]).counts,
        Kind::Collective,
    );
    for r in 0..3 {
        let (next, previous) = (bytes[&(r, (r + 1) % 3)], bytes[&(r, (r + 2) % 3)]);
        assert!((16_000..16_200).contains(&next), "{r}: {next}");
        assert!((4_000..4_200).contains(&previous), "{r}: {previous}");
    }
    // The same, nonblocking: 5 iterations, 5 blocks of 800 bytes and one of 400 to the next rank, 5 of 800 to the
    // previous one.
    let bytes = neighbours_bytes(
        &trace_ok(OpenMpi, 3, &[workload(OpenMpi, "ineighbours").into()], &[]).counts,
        Kind::Collective,
    );
    for r in 0..3 {
        let (next, previous) = (bytes[&(r, (r + 1) % 3)], bytes[&(r, (r + 2) % 3)]);
        assert!((22_000..22_200).contains(&next), "{r}: {next}");
        assert!((20_000..20_200).contains(&previous), "{r}: {previous}");
    }
    // Spawned processes that were disconnected: their files exist too, in worlds of their own.
    let ring: BTreeMap<_, _> = (0..2).map(|r| ((r, 1 - r), (1, 4))).collect();
    for layer in ["monitoring", "ob1"] {
        let more: &[(&str, OsString)] = &[("OMPI_MCA_pml", layer.into())];
        let more = if layer == "ob1" { more } else { &[] };
        let run = trace(OpenMpi, 2, &[workload(OpenMpi, "spawn").into()], more);
        assert!(run.output.status.success(), "{layer}: {:?}", run.output);
        assert_eq!(run.files.len(), 2 + 2 * 2, "{layer}");
        let merged = merge(&run.files, &["spawn".to_owned()], Options::default()).expect("merges");
        assert!(merged.profile.meta().complete, "{layer}");
        let notes = merged.profile.meta().notes.join("\n");
        assert!(notes.contains("4 processes of 2 other worlds"), "{notes}");
        assert!(notes.contains("MPI_Comm_spawn"), "{notes}");
        let sent = merged.profile.communication().iter();
        let sent = sent.filter(|row| row.layer == Layer::Message);
        let sent: BTreeMap<_, _> = sent
            .map(|row| ((row.src.0, row.dst.0), (row.events, row.bytes)))
            .collect();
        assert_eq!(sent, ring, "{layer}");
    }
}

/// The library's own counters cost more than ours and are skipped unless the user requests a dump.
#[test]
fn a_dump_that_a_parameter_file_asks_for_is_complete() {
    let folder = tempfile::tempdir().expect("a folder");
    let parameters = folder.path().join("mca-params.conf");
    let dump_at = folder.path().join("dump");
    let lines = format!(
        "pml_monitoring_enable_output = 3\npml_monitoring_filename = {}\n",
        dump_at.display()
    );
    std::fs::write(&parameters, lines).expect("parameters");
    let more = [("OMPI_MCA_mca_param_files", parameters.into_os_string())];
    let run = trace_ok(OpenMpi, 2, &[workload(OpenMpi, "pairs").into()], &more);
    assert!(!messages(&run.counts).is_empty());
    assert_eq!(messages(&run.counts), messages(&dump(folder.path(), 2)));
}

#[test]
fn a_message_layer_that_is_not_monitored_is_recorded_by_the_profiling_interface() {
    // Chosen on the command line or in the environment, the library's monitoring does not interfere, and all messages
    // count.
    let to = |step: u32, amount| {
        (0..4)
            .map(|w| ((w, (w + step) % 4), amount))
            .collect::<BTreeMap<_, _>>()
    };
    let mut argv = words(&["--mca", "pml", "ob1"]);
    argv.push(workload(OpenMpi, "kinds").into());
    let counts = trace_ok(OpenMpi, 4, &argv, &[]).counts;
    assert_eq!(of_kind(&counts, Kind::PointToPoint), to(3, (6, 210)));
    assert_eq!(of_kind(&counts, Kind::Persistent), to(3, (2, 140)));
    assert_eq!(of_kind(&counts, Kind::Put), to(3, (2, 176)));
    assert_eq!(of_kind(&counts, Kind::Get), to(2, (1, 100)));
    let ob1 = [("OMPI_MCA_pml", OsString::from("ob1"))];
    let of = |name: &str, ranks| {
        trace_ok(OpenMpi, ranks, &[workload(OpenMpi, name).into()], &ob1).counts
    };
    let bytes = neighbours_bytes(&of("neighbours", 3), Kind::Modelled);
    let expect = (0..3).flat_map(|r| [((r, (r + 1) % 3), 16_000), ((r, (r + 2) % 3), 4_000)]);
    assert_eq!(bytes, expect.collect());
    let bytes = neighbours_bytes(&of("ineighbours", 3), Kind::Modelled);
    let expect = (0..3).flat_map(|r| [((r, (r + 1) % 3), 22_000), ((r, (r + 2) % 3), 20_000)]);
    assert_eq!(bytes, expect.collect());
    // Fortran's bindings call the C functions by their alternative names, once each.
    let ring = (0..4).map(|r| ((r, (r + 1) % 4), (30, 120_000))).collect();
    assert_eq!(of_kind(&of("ring_mpif", 4), Kind::PointToPoint), ring);
    let token = (0..4).map(|r| ((r, (r + 1) % 4), (1, 512))).collect();
    assert_eq!(of_kind(&of("transpose_f08", 4), Kind::PointToPoint), token);
    // Keys of bucket_sort (NPB IS): 160000 bytes per pair in MPI_Alltoallv, counts of 4 bytes ten times.
    let keys = of_kind(&of("bucket_sort", 4), Kind::Modelled);
    assert!(
        keys.len() == 12 && keys.values().all(|(_, bytes)| *bytes == 160_040),
        "{keys:?}"
    );
}

/// Sends 5 times 100 bytes to the next rank, twice more by a persistent request, and puts 100 bytes there.
const MPI4PY: &str = "
from mpi4py import MPI
world = MPI.COMM_WORLD
to, source = (world.rank + 1) % world.size, (world.rank - 1) % world.size
data, into = bytearray(100), bytearray(100)
for _ in range(5):
    receive = world.Irecv(into, source=source)
    world.Send(data, dest=to)
    receive.Wait()
send = world.Send_init(data, dest=to)
for _ in range(2):
    receive = world.Irecv(into, source=source)
    send.Start()
    send.Wait()
    receive.Wait()
send.Free()
window = MPI.Win.Allocate(128, comm=world)
window.Fence()
window.Put([data, MPI.BYTE], to)
window.Fence()
window.Free()
";

#[test]
fn python_programs_count_in_both_message_layers() {
    const PYTHON: &str = "/usr/bin/python3";
    let has = std::process::Command::new(PYTHON)
        .args(["-c", "import mpi4py"])
        .output();
    if !has.is_ok_and(|output| output.status.success()) {
        let ci = std::env::var("CI").is_ok_and(|value| value == "true");
        assert!(
            !ci,
            "skipped, which CI=true does not allow: needs python3-mpi4py"
        );
        return;
    }
    let next = |amount| {
        (0..3)
            .map(|r| ((r, (r + 1) % 3), amount))
            .collect::<BTreeMap<_, _>>()
    };
    let ob1 = [("OMPI_MCA_pml", OsString::from("ob1"))];
    for more in [&[][..], &ob1[..]] {
        let counts = trace_ok(OpenMpi, 3, &words(&[PYTHON, "-c", MPI4PY]), more).counts;
        assert_eq!(
            of_kind(&counts, Kind::PointToPoint),
            next((5, 500)),
            "{more:?}"
        );
        assert_eq!(
            of_kind(&counts, Kind::Persistent),
            next((2, 200)),
            "{more:?}"
        );
        assert_eq!(of_kind(&counts, Kind::Put), next((1, 100)), "{more:?}");
    }
}
