//! Identifies the launcher of a command line.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Stdio};

/// A program that starts ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// Open MPI up to 4.x (`orterun`).
    OpenMpi,
    /// PRRTE: Open MPI from 5 on, `prterun`, `prun`.
    Prrte,
    /// Hydra: MPICH, MVAPICH.
    Hydra,
    /// Intel MPI's Hydra, which binds by other options.
    Intel,
    /// Slurm's `srun`.
    Slurm,
    /// No known launcher: a program by itself, or a script that starts a launcher internally.
    None,
}

impl Launcher {
    /// The launcher that `argv` runs. Commands whose name several launchers share (`mpirun`, `mpiexec`) are
    /// run to query their version.
    #[must_use]
    pub fn of_command(argv: &[OsString]) -> Self {
        let Some(program) = argv.first() else {
            return Self::None;
        };
        let name = Path::new(program)
            .file_name()
            .and_then(OsStr::to_str)
            .unwrap_or("");
        match name {
            "srun" => Self::Slurm,
            "prun" | "prterun" => Self::Prrte,
            _ if name.starts_with("mpirun") || name.starts_with("mpiexec") || name == "orterun" => {
                let output = Command::new(program)
                    .arg("--version")
                    // As root, Open MPI refuses even this query; nothing else is run.
                    .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
                    .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
                    .stdin(Stdio::null())
                    .stderr(Stdio::null())
                    .output();
                let found = output.map_or(Self::None, |o| {
                    Self::of_version(&String::from_utf8_lossy(&o.stdout))
                });
                match found {
                    Self::None if name == "mpiexec.hydra" => Self::Hydra,
                    found => found,
                }
            }
            _ => Self::None,
        }
    }

    /// The launcher that prints this version text.
    #[must_use]
    pub fn of_version(text: &str) -> Self {
        let first = text
            .lines()
            .find(|line| !line.trim().is_empty())
            .unwrap_or("");
        if text.contains("Intel(R) MPI") {
            return Self::Intel;
        }
        if text.contains("HYDRA") {
            return Self::Hydra;
        }
        if text.contains("PRRTE") || text.contains("prterun") {
            return Self::Prrte;
        }
        // "mpirun (Open MPI) 4.1.4"; from 5 on mpirun is PRRTE's prterun under another name.
        // Called by another name, it prints "(OpenRTE)".
        match first
            .split_once("(Open MPI)")
            .or_else(|| first.split_once("(OpenRTE)"))
        {
            Some((_, version)) => {
                let major = version
                    .trim()
                    .split('.')
                    .next()
                    .and_then(|m| m.parse::<u32>().ok());
                if major.is_some_and(|major| major >= 5) {
                    Self::Prrte
                } else {
                    Self::OpenMpi
                }
            }
            None => Self::None,
        }
    }
}

/// Options of launchers that say where ranks run and as whom, and their numbers of values. A second program on the
/// same hosts needs them too.
const HOST_OPTIONS: &[(&[Launcher], &str, usize)] = {
    use Launcher::{Hydra, Intel, OpenMpi, Prrte, Slurm};
    &[
        (&[OpenMpi, Prrte], "allow-run-as-root", 0),
        (&[OpenMpi, Prrte], "oversubscribe", 0),
        (&[OpenMpi, Prrte, Hydra, Intel], "hostfile", 1),
        (&[OpenMpi, Prrte, Hydra, Intel], "machinefile", 1),
        (&[OpenMpi, Prrte], "default-hostfile", 1),
        (&[OpenMpi, Prrte, Hydra, Intel], "host", 1),
        (&[OpenMpi, Prrte], "H", 1),
        (&[OpenMpi, Prrte], "mca", 2),
        (&[OpenMpi, Prrte], "gmca", 2),
        (&[Prrte], "prtemca", 2),
        (&[Hydra, Intel], "f", 1),
        (&[Hydra, Intel], "hosts", 1),
        (&[Hydra, Intel], "launcher", 1),
        (&[Hydra, Intel], "launcher-exec", 1),
        (&[Hydra, Intel], "bootstrap", 1),
        (&[Hydra, Intel], "bootstrap-exec", 1),
        (&[Hydra, Intel], "iface", 1),
        (&[Slurm], "mpi", 1),
        (&[Slurm], "overcommit", 0),
        (&[Slurm], "overlap", 0),
        (&[Slurm], "nodelist", 1),
        (&[Slurm], "w", 1),
        (&[Slurm], "partition", 1),
        (&[Slurm], "p", 1),
    ]
};

/// The options of `argv` that say where ranks run, without their number and the program.
#[must_use]
pub fn host_options(argv: &[OsString], launcher: Launcher) -> Vec<OsString> {
    let mut options = Vec::new();
    let mut words = argv.iter().skip(1);
    while let Some(word) = words.next() {
        let Some(name) = word.to_str().and_then(|word| word.strip_prefix('-')) else {
            continue;
        };
        let name = name.strip_prefix('-').unwrap_or(name);
        let (name, inside) = match name.split_once('=') {
            Some((name, _)) => (name, 1),
            None => (name, 0),
        };
        let known = HOST_OPTIONS
            .iter()
            .find(|(launchers, known, _)| *known == name && launchers.contains(&launcher));
        if let Some((.., values)) = known {
            options.push(word.clone());
            options.extend(words.by_ref().take(values.saturating_sub(inside)).cloned());
        }
    }
    options
}

/// The options that start a second program on the hosts of `argv`, at least one process on each. For Slurm outside an
/// allocation and for Hydra the number of hosts must be on the command line; without it there is one.
#[must_use]
pub fn one_on_each_host(argv: &[OsString], launcher: Launcher) -> Vec<OsString> {
    let mut options = host_options(argv, launcher);
    let more = match launcher {
        Launcher::OpenMpi | Launcher::Prrte => vec!["--map-by".to_owned(), "ppr:1:node".to_owned()],
        Launcher::Hydra | Launcher::Intel => {
            let hosts = hydra_hosts(argv).unwrap_or(1).to_string();
            vec!["-ppn".to_owned(), "1".to_owned(), "-n".to_owned(), hosts]
        }
        Launcher::Slurm => {
            let nodes = value_of(argv, &["N", "nodes"]).map(|nodes| format!("--nodes={nodes}"));
            let one = "--ntasks-per-node=1".to_owned();
            nodes.into_iter().chain([one]).collect()
        }
        Launcher::None => Vec::new(),
    };
    options.extend(more.into_iter().map(OsString::from));
    options
}

/// Number of hosts that Hydra gets: those of a list, the lines of a file, or the nodes of Slurm's allocation.
fn hydra_hosts(argv: &[OsString]) -> Option<usize> {
    if let Some(list) = value_of(argv, &["hosts", "host"]) {
        return Some(list.split(',').filter(|host| !host.is_empty()).count());
    }
    if let Some(file) = value_of(argv, &["f", "hostfile", "machinefile"]) {
        let text = std::fs::read_to_string(file).ok()?;
        let named = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with('#');
        return Some(text.lines().filter(named).count());
    }
    std::env::var("SLURM_JOB_NUM_NODES").ok()?.parse().ok()
}

/// The value of the first option with one of these names: `-N 2`, `-N2`, `--nodes 2`, `--nodes=2`.
fn value_of(argv: &[OsString], names: &[&str]) -> Option<String> {
    let words: Vec<&str> = argv.iter().filter_map(|word| word.to_str()).collect();
    words.iter().enumerate().find_map(|(at, word)| {
        let name = word.strip_prefix('-')?;
        let name = name.strip_prefix('-').unwrap_or(name);
        names.iter().find_map(|known| {
            let rest = name.strip_prefix(known)?;
            match rest.strip_prefix('=') {
                Some(value) => Some(value.to_owned()),
                None if rest.is_empty() => words.get(at + 1).map(|value| (*value).to_owned()),
                None if known.len() == 1 && rest.as_bytes()[0].is_ascii_digit() => {
                    Some(rest.to_owned())
                }
                None => None,
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_distinguish_launchers() {
        let cases = [
            ("mpirun (Open MPI) 4.1.4\n\nReport bugs", Launcher::OpenMpi),
            ("mpirun.openmpi (OpenRTE) 4.1.4\n", Launcher::OpenMpi),
            ("mpirun (Open MPI) 5.0.3\n", Launcher::Prrte),
            ("prterun (PRRTE) 3.0.1", Launcher::Prrte),
            ("HYDRA build details:\n    Version: 4.0.2", Launcher::Hydra),
            (
                "Intel(R) MPI Library for Linux* OS, Version 2021.9",
                Launcher::Intel,
            ),
            ("something else 1.0", Launcher::None),
        ];
        for (text, launcher) in cases {
            assert_eq!(Launcher::of_version(text), launcher, "{text}");
        }
    }

    #[test]
    fn commands_with_unique_names_are_not_run() {
        let of = |name: &str| Launcher::of_command(&[OsString::from(name)]);
        assert_eq!(of("/no/such/srun"), Launcher::Slurm);
        assert_eq!(of("/no/such/mpiexec.hydra"), Launcher::Hydra);
        assert_eq!(of("./app"), Launcher::None);
    }

    #[test]
    fn options_that_say_where_ranks_run_are_found() {
        let of = |line: &str, launcher| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let options = host_options(&words, launcher);
            options.join(OsStr::new(" ")).into_string().unwrap()
        };
        assert_eq!(
            of(
                "mpirun --allow-run-as-root -n 64 --mca btl ^openib --hostfile h -x A ./app -v",
                Launcher::OpenMpi
            ),
            "--allow-run-as-root --mca btl ^openib --hostfile h"
        );
        assert_eq!(
            of("mpiexec -hosts=a,b -n 4 -ppn 2 ./app", Launcher::Hydra),
            "-hosts=a,b"
        );
        assert_eq!(
            of("srun --mpi=pmix -N 2 -n 64 ./app", Launcher::Slurm),
            "--mpi=pmix"
        );
    }
    #[test]
    fn a_second_program_runs_on_every_host() {
        let of = |line: &str, launcher| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let options = one_on_each_host(&words, launcher);
            options.join(OsStr::new(" ")).into_string().unwrap()
        };
        assert_eq!(
            of("mpirun --host a:2,b:2 -n 4 ./app", Launcher::OpenMpi),
            "--host a:2,b:2 --map-by ppr:1:node"
        );
        assert_eq!(
            of("mpiexec -hosts a,b,c -ppn 8 -n 24 ./app", Launcher::Hydra),
            "-hosts a,b,c -ppn 1 -n 3"
        );
        for line in [
            "srun -N 2 -n 64 ./app",
            "srun --nodes=2 ./app",
            "srun -N2 ./app -N 7",
        ] {
            assert_eq!(of(line, Launcher::Slurm), "--nodes=2 --ntasks-per-node=1");
        }
        assert_eq!(
            of("srun -n 4 ./app", Launcher::Slurm),
            "--ntasks-per-node=1"
        );
    }
}
