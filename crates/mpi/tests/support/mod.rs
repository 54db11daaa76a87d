//! Builds the MPI workloads, runs them under the tracer, and sums the ranks' counts.
#![allow(dead_code)] // each test file uses its part

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

use numaloc_mpi::rank_file::{Block, Kind, RankFile, Tail};
use numaloc_mpi::shims::{self, MpiLibrary};

/// (kind, rank that counted, peer) -> (events, bytes).
pub type Counts = BTreeMap<(Kind, u32, u32), (u64, u64)>;

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("workspace")
}

/// Serialises MPI runs: each has more ranks than the test machine has cores.
static ONE_RUN: Mutex<()> = Mutex::new(());

/// Path of a workload, which is built if necessary.
pub fn workload(library: MpiLibrary, name: &str) -> PathBuf {
    static ONE_BUILD: Mutex<()> = Mutex::new(());
    let _guard = ONE_BUILD
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let target = format!("target/workloads/mpi/{}/{name}", library.name());
    let output = Command::new("make")
        .args(["-s", &target])
        .current_dir(root())
        .env_remove("MAKEFLAGS")
        .output()
        .expect("make runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    root().join(target)
}

pub fn launcher(library: MpiLibrary, ranks: u32) -> Command {
    let mut command = match library {
        MpiLibrary::OpenMpi => Command::new("mpirun.openmpi"),
        MpiLibrary::Mpich => Command::new("mpiexec.hydra"),
    };
    command
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command.args(["-n", &ranks.to_string()]);
    command
}

/// Results of a traced run.
pub struct Run {
    pub output: Output,
    pub files: Vec<PathBuf>,
    pub counts: Counts,
    pub tails: Vec<Tail>,
    pub folder: tempfile::TempDir,
}

/// Runs `argv` on `ranks` ranks under the tracer.
pub fn trace(library: MpiLibrary, ranks: u32, argv: &[OsString], more: &[(&str, OsString)]) -> Run {
    let folder = tempfile::tempdir().expect("a folder");
    let zero = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970")
        .as_nanos() as u64;
    let environment = shims::install(library, folder.path(), zero).expect("shim installs");
    let guard = ONE_RUN
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let output = launcher(library, ranks)
        .args(argv)
        .current_dir(folder.path())
        .envs(environment)
        .envs(more.iter().map(|(name, value)| (name, value)))
        .output()
        .expect("launcher runs");
    drop(guard);
    let files = shims::rank_files(folder.path()).expect("folder lists");
    let mut counts = Counts::new();
    let mut tails = Vec::new();
    for path in &files {
        let mut file = RankFile::open(path).expect("rank file opens");
        let rank = file.header().rank;
        let mut sums = [(0, 0); Kind::ALL.len()];
        let mut last = None;
        while let Some(block) = file.next_block().expect("blocks read") {
            match block {
                Block::Slice {
                    start_ns,
                    end_ns,
                    entries,
                } => {
                    assert!(start_ns % file.header().slice_ns == 0 && end_ns > start_ns);
                    for e in entries {
                        let cell = counts.entry((e.kind, rank, e.peer)).or_default();
                        *cell = (cell.0 + e.events, cell.1 + e.bytes);
                        let sum = &mut sums[e.kind as usize];
                        *sum = (sum.0 + e.events, sum.1 + e.bytes);
                    }
                }
                Block::Events(_) | Block::Times { .. } => {}
                Block::End {
                    totals, dropped, ..
                } => {
                    assert_eq!(dropped, 0);
                    last = Some(totals);
                }
            }
        }
        tails.push(file.tail().expect("read to the end"));
        if let Some(totals) = last {
            assert_eq!(
                totals, sums,
                "rank {rank}: END totals differ from the blocks"
            );
        }
    }
    Run {
        output,
        files,
        counts,
        tails,
        folder,
    }
}

/// Runs and requires that program and tracer both end well.
pub fn trace_ok(
    library: MpiLibrary,
    ranks: u32,
    argv: &[OsString],
    more: &[(&str, OsString)],
) -> Run {
    let run = trace(library, ranks, argv, more);
    assert!(
        run.output.status.success(),
        "{argv:?}: {}{}",
        String::from_utf8_lossy(&run.output.stdout),
        String::from_utf8_lossy(&run.output.stderr)
    );
    assert_eq!(run.files.len(), ranks as usize, "{argv:?}");
    assert!(
        run.tails.iter().all(|tail| *tail == Tail::Closed),
        "{:?}",
        run.tails
    );
    run
}

/// The cells of one kind.
pub fn of_kind(counts: &Counts, kind: Kind) -> BTreeMap<(u32, u32), (u64, u64)> {
    let cells = counts.iter().filter(|((k, ..), _)| *k == kind);
    cells
        .map(|(&(_, rank, peer), &amount)| ((rank, peer), amount))
        .collect()
}

pub fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}
