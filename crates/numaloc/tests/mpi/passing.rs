//! Options of launchers that keep the tracer from the ranks, and programs of another library than the launcher's.

use crate::programs::workload;
use crate::support::{fails, numaloc};

#[test]
fn what_keeps_the_tracer_from_the_ranks_is_said_before_the_program_starts() {
    let dir = tempfile::tempdir().unwrap();
    let record = |library: &str| {
        let mut command = numaloc(&["record", library, "-o", "p.numaloc", "--force", "--"]);
        command.current_dir(dir.path());
        command
    };
    let said = fails(
        record("--mpi=mpich").args(["srun", "--export=NONE", "touch", "ran"]),
        125,
    );
    assert!(
        said.contains("srun --export=NONE keeps the tracer's variables from the ranks"),
        "{said}"
    );
    assert!(!dir.path().join("ran").exists());
    let mpirun = "mpirun.openmpi --allow-run-as-root -n 1";
    // The user's own library and the tracer's are both loaded; the status is the program's.
    let output = record("--mpi")
        .args(mpirun.split(' '))
        .args([
            "-x",
            "LD_PRELOAD=libm.so.6",
            &workload("openmpi", "pairs"),
            "no",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let profile = dir.path().join("p.numaloc");
    assert!(profile.is_dir(), "{said}");
    // A program of another library than the launcher's: each process is a program of one rank.
    let output = record("--mpi")
        .args(mpirun.split(' '))
        .args([&workload("mpich", "pairs"), "no"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("pairs is linked against MPICH, but mpirun.openmpi is Open MPI's"),
        "{said}"
    );
}
