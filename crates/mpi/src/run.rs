//! Runs a program through the user's own launcher with every rank placed as planned, and reads back
//! where each rank was.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use numaloc_model::outcome::{Applied, Outcome};

use crate::export::{hydra, rankfile, slurm};
use crate::gather::{GatherError, Gathering, Needed, gather, prepare};
use crate::launcher::Launcher;
use crate::merge::RankSite;
use crate::rank_map::{RankMap, RankPlace};
use crate::record::{Runner, run_to_the_end};
use crate::shims::{self, MpiLibrary, WHERE};

/// Why the program was not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The command line starts with an unknown launcher.
    #[error("cannot place ranks: {program} is not an MPI launcher that numaloc knows")]
    NoLauncher {
        /// First word of the command line.
        program: String,
    },
    /// Hosts, or mentions of one host, need different binding lists, but this launcher supports only one for all.
    #[error(
        "cannot place ranks: the plan gives hosts different PUs, or goes to and fro between them, which {launcher} has no option for"
    )]
    UnequalHosts {
        /// The launcher.
        launcher: &'static str,
    },
    /// Files for the launcher could not be written.
    #[error("cannot write {path}: {source}", path = path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// Hosts that do not share the folder.
    #[error(transparent)]
    Hosts(#[from] GatherError),
    /// The launcher could not be started.
    #[error("cannot run {program}: {source}")]
    Launch {
        /// First word of the command line.
        program: String,
        /// The kernel's error.
        source: std::io::Error,
    },
}

impl RunError {
    /// What the user can do.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoLauncher { .. } => {
                Some("start the program with mpirun, mpiexec or srun after the --")
            }
            Self::UnequalHosts { .. } => Some(
                "numaloc ranks PLAN --for wrapper -o bind.sh writes a script to run before the program",
            ),
            Self::Hosts(error) => error.hint(),
            _ => None,
        }
    }

    /// The exit status by the convention of `env`.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Self::Launch { source, .. } if source.kind() == std::io::ErrorKind::NotFound => 127,
            Self::Launch { .. } => 126,
            _ => 125,
        }
    }
}

/// A command line and the environment it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrapped {
    /// The launcher's command line, with our options inserted after the first word.
    pub argv: Vec<OsString>,
    /// Variables to set in addition to the present environment.
    pub environment: Vec<(&'static str, OsString)>,
}

/// The command line that starts `argv`'s ranks where `map` places them. Files for the launcher, and the
/// library through which ranks report where they are, are written to `folder`, which every host must see.
///
/// # Errors
/// [`RunError`] for an unknown launcher, a plan that it cannot express, or a folder that cannot be written.
pub fn wrap_launcher(
    argv: &[OsString],
    launcher: Launcher,
    map: &RankMap,
    folder: &Path,
) -> Result<Wrapped, RunError> {
    let write = |name: &str, content: &[u8]| {
        let path = folder.join(name);
        let written = std::fs::write(&path, content);
        written
            .map_err(|source| RunError::Io {
                path: path.clone(),
                source,
            })
            .map(|()| path)
    };
    let shim = write(WHERE.0, WHERE.1)?;
    let preload = shims::preloaded(&shim).map_err(|source| RunError::Io {
        path: shim.clone(),
        source,
    })?;
    let mut environment = vec![
        ("LD_PRELOAD", preload),
        ("NUMALOC_WHERE_DIR", folder.as_os_str().to_owned()),
    ];
    let options: Vec<String> = match launcher {
        Launcher::OpenMpi | Launcher::Prrte => {
            let file = write("rankfile", rankfile::rankfile(map).as_bytes())?;
            let mut options = rankfile::options(map, launcher, &file.to_string_lossy());
            // The launcher makes waiting ranks yield their PU only if it counts more ranks than slots, and with a
            // rankfile it does not.
            if map.shares_pus() && std::env::var_os(rankfile::YIELD).is_none() {
                environment.push((rankfile::YIELD, "1".into()));
            }
            for (name, _) in &environment {
                options.extend(["-x".to_owned(), (*name).to_owned()]);
            }
            options
        }
        Launcher::Hydra => hydra::options(map).ok_or(RunError::UnequalHosts {
            launcher: "Hydra (mpiexec)",
        })?,
        Launcher::Intel => hydra::intel_options(map).ok_or(RunError::UnequalHosts {
            launcher: "Intel MPI (mpiexec)",
        })?,
        Launcher::Slurm => {
            if slurm::cpu_bind(map).is_none() {
                return Err(RunError::UnequalHosts {
                    launcher: "Slurm (srun)",
                });
            }
            if map.places.iter().any(|place| place.host != "localhost") {
                let file = write("hosts", slurm::hostfile(map).as_bytes())?;
                environment.push(("SLURM_HOSTFILE", file.into_os_string()));
            }
            slurm::options(map)
        }
        Launcher::None => {
            let program = argv.first().map(|word| word.to_string_lossy().into_owned());
            return Err(RunError::NoLauncher {
                program: program.unwrap_or_default(),
            });
        }
    };
    let mut wrapped = argv.to_vec();
    wrapped.splice(1..1, options.into_iter().map(OsString::from));
    Ok(Wrapped {
        argv: wrapped,
        environment,
    })
}

/// The report of each rank, by rank; `None` for a rank without a report.
///
/// # Errors
/// The kernel's error if the folder cannot be read.
pub fn sites(folder: &Path, ranks: usize) -> std::io::Result<Vec<Option<RankSite>>> {
    let mut sites = vec![None; ranks];
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with("where-") {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        // "RANK HOST PU PU ...": without a newline the line is incomplete.
        let Some(line) = text.strip_suffix('\n') else {
            continue;
        };
        let mut words = line.split(' ');
        let rank: Option<usize> = words.next().and_then(|word| word.parse().ok());
        let host = words.next().unwrap_or_default().to_owned();
        let affinity: Result<Vec<u32>, _> = words.map(str::parse).collect();
        if let (Some(rank), Ok(affinity)) = (rank, affinity)
            && rank < ranks
        {
            sites[rank] = Some(RankSite { host, affinity });
        }
    }
    Ok(sites)
}

/// Whether a rank may run exactly where it is planned and nowhere else.
#[must_use]
pub fn holds(place: &RankPlace, site: &RankSite) -> bool {
    let mut planned: Vec<u32> = place.distinct_pus().iter().map(|pu| pu.os).collect();
    planned.sort_unstable();
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    (place.host == "localhost" || short(&place.host) == short(&site.host))
        && planned == site.affinity
}

/// Compares the plan with the ranks' reports; the first few differences become notes.
#[must_use]
pub fn compare(map: &RankMap, sites: &[Option<RankSite>]) -> (Applied, Vec<String>) {
    const SHOWN: usize = 8;
    let mut applied = Applied {
        planned: map.places.len() as u64,
        ..Applied::default()
    };
    let mut notes = Vec::new();
    for (rank, place) in map.places.iter().enumerate() {
        let planned: Vec<u32> = place.distinct_pus().iter().map(|pu| pu.os).collect();
        let planned = format!("{} P#{}", place.host, crate::export::ranges(&planned));
        match sites.get(rank).and_then(Option::as_ref) {
            Some(site) if holds(place, site) => applied.placed += 1,
            Some(site) => notes.push(format!(
                "rank {rank}: planned {planned}, found {} P#{}",
                site.host,
                crate::export::ranges(&site.affinity)
            )),
            None => {
                applied.not_found += 1;
                notes.push(format!(
                    "rank {rank}: planned {planned}, but the run has no such rank"
                ));
            }
        }
    }
    let hidden = notes.len().saturating_sub(SHOWN);
    notes.truncate(SHOWN);
    if hidden > 0 {
        notes.push(format!("and {hidden} more ranks"));
    }
    (applied, notes)
}

/// Runs `argv` with its ranks where `map` places them. `folder` must not exist yet; it is removed at the end.
/// `gathering`: hosts do not share the folder that it is in, which is `numaloc`'s too.
///
/// # Errors
/// [`RunError`] if the program was not run, or the reports of its ranks not gathered.
pub fn run(
    argv: &[OsString],
    map: &RankMap,
    folder: &Path,
    gathering: Option<&Gathering>,
    run: Runner,
) -> Result<Outcome, RunError> {
    let io = |source| RunError::Io {
        path: folder.to_owned(),
        source,
    };
    std::fs::create_dir_all(folder).map_err(io)?;
    let folder = folder.canonicalize().map_err(io)?;
    let result = run_in(argv, map, &folder, gathering, run);
    for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let ours = name.starts_with("where-") || [WHERE.0, "rankfile", "hosts"].contains(&&*name);
        if ours {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    let _ = std::fs::remove_dir(&folder);
    result
}

fn run_in(
    argv: &[OsString],
    map: &RankMap,
    folder: &Path,
    gathering: Option<&Gathering>,
    run: Runner,
) -> Result<Outcome, RunError> {
    let launcher = Launcher::of_command(argv);
    let wrapped = wrap_launcher(argv, launcher, map, folder)?;
    let parent = folder.parent().unwrap_or(folder);
    if let Some(gathering) = gathering {
        let within = folder.file_name().unwrap_or_default().to_string_lossy();
        let needed = Needed {
            name: format!("{within}/{}", WHERE.0),
            content: WHERE.1,
        };
        prepare(gathering, argv, parent, &[needed])?;
    }
    let begun = std::time::Instant::now();
    let status = run_to_the_end(&wrapped.argv, &wrapped.environment, run).map_err(|source| {
        RunError::Launch {
            program: argv[0].to_string_lossy().into_owned(),
            source,
        }
    })?;
    let wall_s = begun.elapsed().as_secs_f64();
    if let Some(gathering) = gathering {
        let library = MpiLibrary::of_command(argv, launcher).unwrap_or(MpiLibrary::OpenMpi);
        gather(gathering, argv, library, parent)?;
    }
    let sites = sites(folder, map.places.len()).map_err(|source| RunError::Io {
        path: folder.to_owned(),
        source,
    })?;
    let (threads, notes) = compare(map, &sites);
    Ok(Outcome {
        threads,
        pages: Applied::default(),
        notes,
        wall_s,
        status,
        ..Outcome::default()
    })
}
