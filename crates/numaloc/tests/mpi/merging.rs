//! Rank files merged by an MPI program: the same profile as by one process, and what happens when one is killed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::ranks::Halo;
use numaloc_mpi::shims::MpiLibrary;

/// A folder as a killed `numaloc record --mpi` leaves it, with the files of 24 ranks.
fn left_behind(library: MpiLibrary, halo: Halo) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("left/ranks");
    std::fs::create_dir_all(&spool).unwrap();
    std::fs::write(spool.join(library.shim_name()), library.shim()).unwrap();
    let launcher = match library {
        MpiLibrary::OpenMpi => "mpirun.openmpi\0--allow-run-as-root\0-n\x0024\0./app",
        MpiLibrary::Mpich => "mpiexec.hydra\0-n\x0024\0./app",
    };
    std::fs::write(spool.join("command"), launcher).unwrap();
    for rank in 0..halo.ranks() {
        halo.write(rank, &spool).unwrap();
    }
    dir
}

const SMALL: Halo = Halo {
    grid: [2, 3, 4],
    seconds: 3,
    period_ms: 10,
};

fn salvage(dir: &Path, output: &str, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_numaloc"));
    command
        .args(["record", "--salvage", "left", "-o", output])
        .args(options)
        .current_dir(dir);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            (
                path.file_name().unwrap().into(),
                std::fs::read(&path).unwrap(),
            )
        })
        .collect();
    files.sort();
    files
}

#[test]
fn processes_of_both_libraries_write_the_bytes_that_one_process_writes() {
    // More numbers of processes are in the unit tests of the merge.
    for (library, numbers) in [
        (MpiLibrary::OpenMpi, &["1", "3"][..]),
        (MpiLibrary::Mpich, &["2"]),
    ] {
        let dir = left_behind(library, SMALL);
        let serial = salvage(dir.path(), "serial.numaloc", &[]).output().unwrap();
        assert!(serial.status.success(), "{}", said(&serial));
        let expected = files(&dir.path().join("serial.numaloc"));
        for processes in numbers {
            let output = format!("by{processes}.numaloc");
            let options = ["--merge-above", "8", "--merge-processes", processes];
            let merged = salvage(dir.path(), &output, &options).output().unwrap();
            assert!(merged.status.success(), "{library:?}: {}", said(&merged));
            assert_eq!(files(&dir.path().join(&output)), expected, "{library:?}");
        }
        // Nothing of the merges is left among the rank files.
        assert_eq!(files(&dir.path().join("left/ranks")).len(), 24 + 2);
    }
}

/// Process ids of the merge of `folder`: of its MPI processes or of the programs that they started.
fn merging(folder: &Path, first: &str) -> Vec<String> {
    let folder = folder.canonicalize().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let found = processes.filter_map(|entry| {
        let words = std::fs::read(entry.path().join("cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).into_owned();
        let (mut of, program) = (words.split('\0'), words.split('\0').next()?);
        let ours = of.any(|word| Path::new(word) == folder);
        (ours && program.rsplit('/').next()?.starts_with(first))
            .then(|| entry.file_name().to_string_lossy().into_owned())
    });
    found.collect()
}

#[test]
fn a_killed_process_leaves_one_line_and_files_that_can_be_merged_again() {
    // Long enough to be killed while it is read.
    let halo = Halo {
        seconds: 150,
        ..SMALL
    };
    let dir = left_behind(MpiLibrary::OpenMpi, halo);
    let spool = dir.path().join("left/ranks");
    let before = files(&spool);
    for victim in ["numaloc-merge-openmpi", "numaloc"] {
        let options = ["--merge-above", "8", "--merge-processes", "2"];
        let mut merge = salvage(dir.path(), "killed.numaloc", &options);
        let merge = merge.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let mut killed = false;
        for _ in 0..60_000 {
            let exact = |pid: &&String| {
                let name = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
                name.file_name().is_some_and(|name| name == victim)
            };
            let found = merging(&spool, victim);
            if let Some(pid) = found.iter().rfind(exact) {
                killed = Command::new("kill")
                    .args(["-KILL", pid])
                    .status()
                    .unwrap()
                    .success();
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let ended = merge.wait_with_output().unwrap();
        assert!(killed, "{victim}: {}", said(&ended));
        assert!(!ended.status.success());
        let said = said(&ended);
        let first = said.lines().next().unwrap_or_default();
        assert!(
            first.contains("2 MPI processes did not merge the rank files"),
            "{said}"
        );
        assert!(!dir.path().join("killed.numaloc").exists());
        let after = files(&spool);
        let kept = after.iter().filter(|(name, _)| {
            name.extension().is_some_and(|e| e == "nlmpi") || name == Path::new("command")
        });
        assert_eq!(kept.count(), before.len() - 1);
        assert!(!spool.join("merged").exists());
    }
    let options = ["--merge-above", "8", "--merge-processes", "2"];
    let again = salvage(dir.path(), "again.numaloc", &options)
        .output()
        .unwrap();
    assert!(again.status.success(), "{}", said(&again));
    let serial = salvage(dir.path(), "serial.numaloc", &[]).output().unwrap();
    assert!(serial.status.success());
    let [again, serial] =
        ["again", "serial"].map(|name| dir.path().join(format!("{name}.numaloc")));
    assert_eq!(files(&again), files(&serial));
}
