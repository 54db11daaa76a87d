//! MPI recordings of which the recorder, the launcher or a rank is killed: what was recorded is kept.

use std::path::PathBuf;
use std::process::Command;

use crate::programs::workload;
use crate::support::{chosen, numaloc, ok, root};

/// A recording of a ring of two ranks that goes on until it is ended, and what of it is killed.
struct Endless {
    recorder: std::process::Child,
    dir: tempfile::TempDir,
}

impl Endless {
    /// Begun, and both ranks have written messages.
    fn begin(library: &str, launcher: &str) -> Self {
        Self::begin_with(&[], launcher, &workload(library, "ring"))
    }

    /// The same with more options of `record`, and the ring built otherwise.
    fn begin_with(options: &[&str], launcher: &str, program: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Where the tests run in a shell's background, SIGINT is ignored.
        let recorder = Command::new("env")
            .args(["--default-signal=INT", env!("CARGO_BIN_EXE_numaloc")])
            .args(["record", "--mpi", "-o", "p.numaloc"])
            .args(options)
            .args(["--", launcher, "-n", "2"])
            .args([program, "10", "1000000000"])
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
            .current_dir(dir.path())
            .stdout(std::process::Stdio::null())
            .stderr(std::fs::File::create(dir.path().join("said")).unwrap())
            .spawn()
            .unwrap();
        let endless = Self { recorder, dir };
        endless.wait_for("both ranks write messages", || {
            let files = endless.rank_files();
            let written = files
                .iter()
                .filter(|file| file.metadata().is_ok_and(|m| m.len() > 2000));
            written.count() == 2
        });
        endless
    }

    fn wait_for(&self, what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..15_000 {
            if is_so() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("waited five minutes until {what}: {}", self.said());
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("said")).unwrap_or_default()
    }

    fn left_behind(&self) -> Option<PathBuf> {
        let entries = std::fs::read_dir(self.dir.path()).unwrap();
        let mut folders = entries.map(|entry| entry.unwrap().path());
        folders.find(|path| path.to_string_lossy().contains(".recording-"))
    }

    fn rank_files(&self) -> Vec<PathBuf> {
        let folder = self.left_behind().map(|folder| folder.join("ranks"));
        let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
        let files = entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        files
            .filter(|file| file.extension().is_some_and(|e| e == "nlmpi"))
            .collect()
    }

    /// The process ids of the ranks, from the names of their files, and of their launcher.
    fn ranks(&self) -> Vec<i32> {
        let pid = |file: &PathBuf| {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            name.split('-').nth(2).unwrap().parse().unwrap()
        };
        self.rank_files().iter().map(pid).collect()
    }

    fn launcher(&self) -> i32 {
        let recorder = self.recorder.id();
        let children = format!("/proc/{recorder}/task/{recorder}/children");
        let children = std::fs::read_to_string(children).unwrap();
        children.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Kills the recorder, which the program survives, ends the launcher, and makes a profile of what the ranks wrote.
    fn salvaged_without_recorder(mut self, case: &str) -> numaloc_model::Profile {
        let (ranks, above) = (self.ranks(), self.launcher());
        self.recorder.kill().unwrap();
        self.recorder.wait().unwrap();
        let left = self.left_behind().unwrap();
        let goes_on = |pid: &i32| PathBuf::from(format!("/proc/{pid}/fd")).exists();
        assert!(ranks.iter().all(goes_on), "{case}");
        kill(above, rustix::process::Signal::TERM);
        self.wait_for("the ranks end", || {
            let ended = |pid| std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            ranks.iter().all(|pid| ended(pid).is_empty())
        });
        let salvage = |case: &str| {
            ok(
                numaloc(&["record", "--force", "-o", "p.numaloc", "--salvage"])
                    .arg(&left)
                    .current_dir(self.dir.path()),
            );
            assert!(left.exists(), "--salvage leaves what it read");
            self.check_profile(case)
        };
        let profile = salvage(&format!("{case}: recorder killed"));
        // A rank that was killed while it began its file costs nothing but itself.
        std::fs::write(left.join("ranks/rank-9-1-0.nlmpi"), b"").unwrap();
        salvage(&format!("{case}: a rank killed while it began"));
        profile
    }

    /// The profile, which must be marked as cut short and hold messages both ways.
    fn check_profile(&self, case: &str) -> numaloc_model::Profile {
        let profile = numaloc_formats::profile::read(&self.dir.path().join("p.numaloc"))
            .unwrap_or_else(|error| panic!("{case}: {error}: {}", self.said()));
        assert!(
            !profile.meta().complete,
            "{case}: {:?}",
            profile.meta().notes
        );
        let layer = numaloc_model::Layer::Message;
        let sent = profile
            .matrix(layer, numaloc_model::profile::Amount::Events)
            .unwrap();
        let first = |rank: &str| {
            profile
                .threads()
                .iter()
                .position(|it| it.path == rank)
                .unwrap()
        };
        let (a, b) = (first("r0"), first("r1"));
        assert!(sent.get(a, b) > 0.0 && sent.get(b, a) > 0.0, "{case}");
        let word = |word: &str| profile.meta().command.iter().any(|it| it.contains(word));
        assert!(
            word("ring") && word("-n"),
            "{case}: {:?}",
            profile.meta().command
        );
        profile
    }
}

fn kill(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn whatever_is_killed_the_recording_is_kept() {
    use rustix::process::Signal;
    for (library, launcher) in [("openmpi", "mpirun.openmpi"), ("mpich", "mpiexec.hydra")] {
        // The recorder is asked to end: it passes the request on, and writes what there is.
        for signal in [Signal::TERM, Signal::INT] {
            let mut run = Endless::begin(library, launcher);
            kill(run.recorder.id() as i32, signal);
            let status = run.recorder.wait().unwrap();
            // The launcher's own status. Hydra's is 0 or the signal's number, by whether it or its ranks end first.
            assert!(
                status.code().is_some() && (library == "mpich" || !status.success()),
                "{library}: {status}"
            );
            run.check_profile(&format!("{library}: {signal:?}"));
            assert_eq!(run.left_behind(), None);
        }
        // The launcher, or a rank, is killed: the same.
        for of in ["launcher", "rank"] {
            let mut run = Endless::begin(library, launcher);
            let pid = if of == "launcher" {
                run.launcher()
            } else {
                run.ranks()[0]
            };
            kill(pid, Signal::KILL);
            let status = run.recorder.wait().unwrap();
            assert!(!status.success(), "{library}: {of}");
            run.check_profile(&format!("{library}: {of} killed"));
        }
        // The recorder is killed: the program goes on, and what its ranks wrote becomes a profile afterwards.
        Endless::begin(library, launcher).salvaged_without_recorder(library);
    }
}

/// The ring as its own tracer or the emulator sees it: options of `record`, and the program.
fn with_memory(
    frontend: &'static str,
    library: &str,
    dir: &tempfile::TempDir,
) -> ([&'static str; 2], String) {
    let options = ["--frontend", frontend];
    if frontend == "qemu" {
        return (options, workload(library, "ring"));
    }
    let program = dir.path().join("ring").to_string_lossy().into_owned();
    ok(numaloc(&["cc", "--"])
        .args([&format!("mpicc.{library}"), "-O1", "-o", &program])
        .arg(root().join("workloads/mpi/ring.c")));
    (options, program)
}

#[test]
fn ranks_with_traced_memory_that_are_cut_short_after_their_recorder_are_not_called_complete() {
    let dir = tempfile::tempdir().unwrap();
    let (openmpi, mpich) = (("openmpi", "mpirun.openmpi"), ("mpich", "mpiexec.hydra"));
    let cases = [
        ("instrument", openmpi),
        ("qemu", mpich),
        ("instrument", mpich),
        ("qemu", openmpi),
    ];
    for (frontend, (library, launcher)) in chosen(cases, &[0, 1]) {
        let (options, program) = with_memory(frontend, library, &dir);
        let run = Endless::begin_with(&options, launcher, &program);
        let profile = run.salvaged_without_recorder(&format!("{library}, {frontend}"));
        assert_eq!(profile.meta().frontend, format!("mpi+{frontend}"));
    }
}
