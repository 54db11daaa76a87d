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
    /// Hydra: MPICH, Intel MPI, MVAPICH.
    Hydra,
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
            "mpiexec.hydra" => Self::Hydra,
            _ if name.starts_with("mpirun") || name.starts_with("mpiexec") || name == "orterun" => {
                let output = Command::new(program)
                    .arg("--version")
                    // As root, Open MPI refuses even this query; nothing else is run.
                    .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
                    .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
                    .stdin(Stdio::null())
                    .stderr(Stdio::null())
                    .output();
                output.map_or(Self::None, |o| {
                    Self::of_version(&String::from_utf8_lossy(&o.stdout))
                })
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
        if text.contains("HYDRA") || text.contains("Intel(R) MPI") {
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
    use Launcher::{Hydra, OpenMpi, Prrte, Slurm};
    &[
        (&[OpenMpi, Prrte], "allow-run-as-root", 0),
        (&[OpenMpi, Prrte], "oversubscribe", 0),
        (&[OpenMpi, Prrte, Hydra], "hostfile", 1),
        (&[OpenMpi, Prrte, Hydra], "machinefile", 1),
        (&[OpenMpi, Prrte], "default-hostfile", 1),
        (&[OpenMpi, Prrte, Hydra], "host", 1),
        (&[OpenMpi, Prrte], "H", 1),
        (&[OpenMpi, Prrte], "mca", 2),
        (&[OpenMpi, Prrte], "gmca", 2),
        (&[Prrte], "prtemca", 2),
        (&[Hydra], "f", 1),
        (&[Hydra], "hosts", 1),
        (&[Hydra], "launcher", 1),
        (&[Hydra], "launcher-exec", 1),
        (&[Hydra], "bootstrap", 1),
        (&[Hydra], "bootstrap-exec", 1),
        (&[Hydra], "iface", 1),
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
                Launcher::Hydra,
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
        assert_eq!(of("mpiexec.hydra"), Launcher::Hydra);
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
}
