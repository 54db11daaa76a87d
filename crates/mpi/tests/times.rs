//! Time in MPI: known waiting is found, by operation and by pair of ranks, under both libraries.

mod support;

use numaloc_model::profile::Thread;
use numaloc_model::{MpiCall, WaitKind};
use numaloc_mpi::merge::{Options, merge, times::Times};
use numaloc_mpi::shims::MpiLibrary::{self, Mpich, OpenMpi};
use support::{Run, trace_ok, words, workload};

fn times_of(run: &Run, most: usize) -> Times {
    let merged = merge(&run.files, &[], Options::default()).unwrap();
    Times::of(&run.files, merged.profile.threads(), most).unwrap()
}

fn traced(library: MpiLibrary, name: &str, arguments: &[&str], keep: &str) -> Run {
    let mut argv = vec![workload(library, name).into()];
    argv.extend(words(arguments));
    trace_ok(library, 2, &argv, &[("NUMALOC_MPI_KEEP", keep.into())])
}

/// The sum over the calls of an operation by a rank.
fn sum(times: &Times, operation: &str, rank: u32, part: impl Fn(&MpiCall) -> u64) -> u64 {
    let calls = times.calls.iter().map(|(call, _)| call);
    let of = calls.filter(|call| call.operation == operation && call.thread.0 == rank);
    of.map(part).sum()
}

#[test]
fn known_waiting_is_found_within_5_percent() {
    for library in [OpenMpi, Mpich] {
        let run = traced(library, "waits", &["150"], "65536");
        let times = times_of(&run, usize::MAX);
        let output = String::from_utf8(run.output.stdout).unwrap();
        let mut pairs = [[0; 3]; 2];
        assert_eq!(output.lines().count(), 11, "{output}");
        for line in output.lines() {
            let [operation, kind, rank, expected] = line
                .split(' ')
                .collect::<Vec<_>>()
                .try_into()
                .expect("four words");
            let kind = WaitKind::ALL
                .into_iter()
                .find(|k| k.name() == kind)
                .unwrap();
            let (rank, expected): (u32, f64) = (rank.parse().unwrap(), expected.parse().unwrap());
            // On a busy host the other rank may have been the late one.
            let expected = expected.max(0.0);
            let found = sum(&times, operation, rank, |call| call.waiting[kind as usize]) as f64;
            // The ranks read the clock right before their calls; on a busy host they may be interrupted there.
            let most = 0.05 * expected + 4e6;
            assert!(
                (found - expected).abs() < most,
                "{library:?}: {line}: found {found}"
            );
            pairs[rank as usize][kind as usize] += expected as u64;
        }
        for (rank, kind) in [
            (1, WaitKind::LateSender),
            (0, WaitKind::LateReceiver),
            (1, WaitKind::Imbalance),
        ] {
            let expected = pairs[rank as usize][kind as usize] as f64;
            let of = |wait: &&_| {
                let wait: &numaloc_model::MpiWait = wait;
                (wait.thread.0, wait.other.0, wait.kind) == (rank, 1 - rank, kind)
            };
            let wait = times.waits.iter().find(of).unwrap();
            let found = wait.nanoseconds as f64;
            // Other collectives of the program wait as well.
            assert!(
                found > 0.95 * expected - 4e7,
                "{library:?}: {wait:?} {expected}"
            );
        }
        let calls = times.calls.iter().map(|(call, _)| call);
        let (partners, matched) = calls.fold((0, 0), |sums, call| {
            (sums.0 + call.partners, sums.1 + call.matched)
        });
        assert_eq!(matched, partners, "{library:?}: every other side is known");
        assert!(times.notes.is_empty(), "{:?}", times.notes);
    }
}

#[test]
fn left_out_messages_are_the_same_ones_on_both_sides() {
    let run = traced(Mpich, "pingpong", &["4000", "1"], "4096");
    let times = times_of(&run, usize::MAX);
    assert!(
        times.notes[0].contains("one message in"),
        "{:?}",
        times.notes
    );
    for rank in [0, 1] {
        // 4,000 of 8 bytes and 81 of 1 MiB; half of the second half are kept.
        assert_eq!(sum(&times, "MPI_Recv", rank, |call| call.calls), 4081);
        let known = sum(&times, "MPI_Recv", rank, |call| call.matched);
        assert!((3700..=4081).contains(&known), "rank {rank}: {known}");
    }
    // The merge's own limit leaves out more, in the same way.
    let fewer = times_of(&run, 2000);
    assert_ne!(fewer.notes, times.notes);
    let known = sum(&fewer, "MPI_Recv", 0, |call| call.matched);
    assert!((3300..=4081).contains(&known), "{known}");
}

#[test]
fn calls_of_fortran_are_timed() {
    for (library, name) in [(OpenMpi, "ring_mpif"), (Mpich, "ring_mpif")] {
        let argv = [workload(library, name).into()];
        let run = trace_ok(library, 2, &argv, &[]);
        let threads = merge(&run.files, &[], Options::default()).unwrap();
        let threads: &[Thread] = threads.profile.threads();
        let times = Times::of(&run.files, threads, usize::MAX).unwrap();
        let timed = times.calls.iter().map(|(call, _)| call);
        let (calls, matched) = timed.fold((0, 0), |sums, call| {
            (sums.0 + call.calls, sums.1 + call.matched)
        });
        assert!(
            calls >= 60 && matched >= 100,
            "{library:?}: {calls} {matched}"
        );
    }
}
