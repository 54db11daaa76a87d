//! A real Slurm on this machine: a controller and two nodes, started and stopped by the test. It reads
//! the exports, and ranks are on the planned nodes and PUs.

mod support;

use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use numaloc_mpi::export::slurm;
use numaloc_mpi::rank_map::{HostPu, RankPlace};
use numaloc_mpi::record::{Recording, record};
use numaloc_mpi::run::run;
use numaloc_mpi::shims::MpiLibrary::Mpich;
use numaloc_mpi::under::{Emulator, Settings, Under};
use numaloc_mpi::{Launcher, Options, RankMap};
use support::workload;

/// Daemons that are stopped at the end of the test.
struct Slurm {
    folder: tempfile::TempDir,
    daemons: Vec<Child>,
}

/// First of three consecutive free ports: below those that the kernel assigns to outgoing
/// connections, and never the same twice in this process.
fn free_ports() -> u16 {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let ours = std::process::id() as u16 % 4_000 * 3;
    for _ in 0..4_000 {
        let first = 20_000 + (ours + TAKEN.fetch_add(3, Ordering::Relaxed)) % 12_000;
        if (first..first + 3).all(|port| TcpListener::bind(("0.0.0.0", port)).is_ok()) {
            return first;
        }
    }
    panic!("three neighbouring ports of 20000 to 32000 are free");
}

impl Slurm {
    /// Starts the daemons; tries other ports if another process took one of these.
    fn start() -> Self {
        for _ in 0..5 {
            if let Some(slurm) = Self::start_at(free_ports()) {
                return slurm;
            }
        }
        panic!("Slurm's daemons stay up; their logs are above");
    }

    /// Starts the daemons on these ports; `None` if one of them ended on its own.
    fn start_at(port: u16) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let here = folder.path().display();
        for name in ["state", "spool.n1", "spool.n2"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let pus = std::thread::available_parallelism().map_or(1, usize::from);
        let user = Command::new("id").arg("-un").output().expect("id runs");
        let user = String::from_utf8_lossy(&user.stdout).trim().to_owned();
        // Both nodes are this machine; processes of one user need no munge daemon.
        let conf = format!(
            "ClusterName=numaloctest\nSlurmctldHost=localhost\nSlurmctldPort={port}\n\
             SlurmUser={user}\nSlurmdUser={user}\nAuthType=auth/none\nCredType=cred/none\n\
             MpiDefault=pmi2\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/affinity\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nReturnToService=2\n\
             StateSaveLocation={here}/state\nSlurmdSpoolDir={here}/spool.%n\n\
             SlurmctldPidFile={here}/ctld.pid\nSlurmdPidFile={here}/d.%n.pid\n\
             SlurmctldLogFile={here}/ctld.log\nSlurmdLogFile={here}/d.%n.log\n\
             NodeName=n[1-2] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{}-{}] CPUs={pus}\n\
             PartitionName=all Nodes=ALL Default=YES State=UP\n",
            port + 1,
            port + 2,
        );
        std::fs::write(folder.path().join("slurm.conf"), conf).expect("configuration");
        let mut slurm = Self {
            folder,
            daemons: Vec::new(),
        };
        for words in [
            &["/usr/sbin/slurmctld", "-D"][..],
            &["/usr/sbin/slurmd", "-D", "-N", "n1"],
            &["/usr/sbin/slurmd", "-D", "-N", "n2"],
        ] {
            let mut daemon = slurm.command(words[0]);
            daemon.args(&words[1..]).stdin(Stdio::null());
            daemon.stdout(Stdio::null()).stderr(Stdio::null());
            let daemon = daemon.spawn();
            slurm
                .daemons
                .push(daemon.expect("slurm-wlm is installed (make packages)"));
        }
        let begun = Instant::now();
        loop {
            let idle = slurm
                .command("sinfo")
                .args(["-h", "-t", "idle", "-o", "%D"])
                .output();
            let idle = idle.expect("sinfo runs");
            if String::from_utf8_lossy(&idle.stdout).trim() == "2" {
                return Some(slurm);
            }
            let ended = |daemon: &mut Child| !matches!(daemon.try_wait(), Ok(None));
            if slurm.daemons.iter_mut().any(ended) {
                eprintln!("a daemon ended: {}", slurm.logs());
                return None;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(300),
                "both nodes come up: {}",
                slurm.logs()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.folder.path().join("slurm.conf"));
        command
    }

    fn logs(&self) -> String {
        let logs = ["ctld.log", "d.n1.log", "d.n2.log"].map(|name| self.folder.path().join(name));
        logs.map(|path| std::fs::read_to_string(path).unwrap_or_default())
            .join("\n")
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            // A daemon that is asked to end also ends its steps.
            let id = daemon.id().to_string();
            let _ = Command::new("kill").args(["-TERM", &id]).status();
            let _ = daemon.wait();
        }
    }
}

/// Ranks alternately on n2 and n1, the second pair on another PU if this machine has two.
fn map() -> RankMap {
    let pus = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let place = |rank: u32| RankPlace {
        host: ["n2", "n1"][rank as usize % 2].to_owned(),
        pus: vec![HostPu {
            logical: rank / 2 % pus,
            os: rank / 2 % pus,
            core: rank / 2 % pus,
        }],
    };
    RankMap {
        places: (0..4.min(2 * pus)).map(place).collect(),
        smt: false,
    }
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn slurm_reads_the_export_and_ranks_are_where_planned() {
    let slurm = Slurm::start();
    let map = map();
    let hosts = slurm.folder.path().join("hosts");
    let mut file = std::fs::File::create(&hosts).expect("host file");
    file.write_all(slurm::hostfile(&map).as_bytes())
        .expect("host file");
    let srun = |more: &[&str]| {
        let mut command = slurm.command("srun");
        command.env("SLURM_HOSTFILE", &hosts);
        let output = command.args(slurm::options(&map)).args(more).output();
        output.expect("srun runs")
    };

    let check = srun(&["--test-only", "true"]);
    assert!(
        check.status.success(),
        "{}\n{}",
        text_of(&check),
        slurm.logs()
    );

    let line = "echo $SLURM_PROCID $SLURMD_NODENAME $(taskset -cp $$ | sed 's/.*: //')";
    let output = srun(&["sh", "-c", line]);
    let mut lines: Vec<String> = text_of(&output).lines().map(str::to_owned).collect();
    lines.sort();
    let planned = map
        .places
        .iter()
        .enumerate()
        .map(|(rank, place)| format!("{rank} {} {}", place.host, place.pus[0].os));
    assert_eq!(lines, planned.collect::<Vec<_>>(), "{}", slurm.logs());

    // `numaloc run` does the same and reads back the ranks' places. srun finds this Slurm by a word of the command
    // line, because tests in one process share their environment.
    let wrapper = slurm.folder.path().join("srun");
    script(&wrapper, slurm.folder.path());
    let argv = [wrapper.into(), workload(Mpich, "pairs").into()];
    assert_eq!(Launcher::of_command(&argv), Launcher::Slurm);
    let outcome = run(
        &argv,
        &map,
        &slurm.folder.path().join("run"),
        None,
        &|mut command| command.status(),
    )
    .expect("srun runs");
    assert_eq!(outcome.status, 0, "{}", slurm.logs());
    assert_eq!(
        outcome.threads.placed,
        map.places.len() as u64,
        "{:?}",
        outcome.notes
    );
}

/// Writes the script in a separate process: a child started meanwhile by another test's thread would inherit a file
/// that this process has open, and the kernel executes no file that is open for writing.
fn script(path: &Path, folder: &Path) {
    let text = format!(
        "#!/bin/sh\nSLURM_CONF={}/slurm.conf exec /usr/bin/srun \"$@\"\n",
        folder.display()
    );
    let written = Command::new("sh")
        .args(["-c", "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\""])
        .args([path.as_os_str(), text.as_ref()])
        .status();
    assert!(written.expect("sh runs").success());
}

#[test]
fn ranks_that_srun_starts_run_under_the_emulator() {
    let plugin = std::env::current_exe().expect("this test");
    let plugin = plugin
        .ancestors()
        .map(|folder| folder.join("libnumaloc_qemu.so"));
    let plugin = plugin
        .into_iter()
        .find(|file| file.is_file())
        .expect("the plugin is built (cargo build --workspace)");
    let slurm = Slurm::start();
    let journals = slurm.folder.path().join("journals");
    std::fs::create_dir(&journals).expect("a folder");
    let wrapper = slurm.folder.path().join("srun");
    script(&wrapper, slurm.folder.path());
    let argv = ["-n", "2", "--overcommit"].map(Into::into);
    let argv = [
        vec![wrapper.into()],
        argv.to_vec(),
        vec![workload(Mpich, "pairs").into()],
    ]
    .concat();
    let recording = Recording {
        argv,
        library: Some(Mpich),
        spool: slurm.folder.path().join("ranks"),
        slice_ns: None,
        options: Options::default(),
        under: Some(Under {
            emulator: Some(Emulator {
                file: "/usr/bin/qemu-x86_64".into(),
                settings: Settings::Plugin(
                    format!("{},folder={}", plugin.display(), journals.display()).into(),
                ),
            }),
            environment: Vec::new(),
        }),
        merging: None,
        gathering: None,
    };
    let recorded = record(&recording, &|mut command| command.status(), &|_| ());
    let recorded = recorded.expect("srun runs");
    assert_eq!(recorded.status, 0, "{}", slurm.logs());
    let merged = recorded.merged.expect("both ranks wrote their messages");
    assert_eq!(merged.profile.threads().len(), 2);
    // Path of the first thread, in the first record of each journal.
    let mut ranks: Vec<bool> = Vec::new();
    for entry in std::fs::read_dir(&journals).expect("journals") {
        let path = entry.expect("journal").path();
        if path.extension().is_some_and(|e| e == "journal") {
            let bytes = std::fs::read(path).expect("journal");
            let has = |text: &[u8]| bytes[..64].windows(2).any(|part| part == text);
            assert!(has(b"r0") || has(b"r1"));
            ranks.push(has(b"r1"));
        }
    }
    ranks.sort_unstable();
    assert_eq!(ranks, [false, true]);
}
