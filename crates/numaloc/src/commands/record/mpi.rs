//! `numaloc record --mpi`: the messages of an MPI program, through its own launcher.

use std::path::{Path, PathBuf};

use numaloc_assemble::code::places_in;
use numaloc_files::FolderOutput;
use numaloc_model::Profile;
use numaloc_mpi::hybrid::join;
use numaloc_mpi::merge::MergeError;
use numaloc_mpi::record::{Recording, record};
use numaloc_mpi::shims::{Environment, MpiLibrary, rank_files};
use numaloc_mpi::under::{Emulator, Settings, Under};
use numaloc_mpi::{Merged, Options};
use numaloc_trace::Config;
use numaloc_trace::cross_process::Board;
use numaloc_trace::settings::VARIABLE;

use super::{
    Args, Assembled, OWN_FAILURE, child, conditions, hosts, journals, native, preflight, qemu,
    work_folder,
};
use crate::error::CliError;
use crate::ui::Ui;

/// Subfolder of the work folder that the ranks write to.
const SPOOL: &str = "ranks";

/// Values of `--mpi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Library {
    /// Detect from the program and its launcher.
    Auto,
    /// Open MPI.
    Openmpi,
    /// MPICH, Intel MPI, MVAPICH, Cray MPICH.
    Mpich,
}

/// Whether the ranks' memory accesses are recorded too.
fn memory_traced(args: &Args) -> bool {
    args.frontend != "auto"
}

fn check(args: &Args) -> Result<(), CliError> {
    let refused = |what: &str| Err(CliError::usage(what).status(OWN_FAILURE));
    if args.frontend == "perf" {
        return refused(
            "record --mpi cannot sample ranks: --frontend is perf, expected qemu, native or instrument",
        );
    }
    if !memory_traced(args) && args.trace.wanted() {
        return Err(CliError::usage(
            "record --mpi --trace: messages alone have no accesses to trace",
        )
        .expected("--frontend qemu, native or instrument")
        .status(OWN_FAILURE));
    }
    let plain = args.line_size == 64 && args.page_size == 4096 && args.wait_policy == "passive";
    if !memory_traced(args) && !plain {
        return refused(
            "record --mpi observes messages, not memory accesses: --line-size, --page-size and --wait-policy need --frontend qemu, native or instrument",
        );
    }
    Ok(())
}

/// How the frontend is started in the ranks; journals go to `folder`.
fn under(
    memory: &Args,
    folder: &Path,
    cross_process: Option<&Board>,
    ui: &Ui,
) -> Result<Under, CliError> {
    let settings = Config {
        since_ns: numaloc_trace::time::realtime_ns(),
        host: numaloc_trace::host_name(),
        ..memory.settings(&memory.frontend, folder, cross_process)
    };
    let mut environment: Environment = Vec::new();
    let mut emulator = None;
    if memory.frontend == "qemu" {
        emulator = Some(Emulator {
            file: qemu::emulator()?,
            settings: Settings::Plugin(qemu::plugin_option(settings)?),
        });
    } else if memory.frontend == "native" {
        emulator = Some(Emulator {
            file: native::translator()?,
            settings: Settings::Record(settings.encode()),
        });
    } else {
        environment.push((VARIABLE, settings.encode()));
    }
    if memory.wait_policy == "passive" && std::env::var_os("OMP_WAIT_POLICY").is_none() {
        environment.push(("OMP_WAIT_POLICY", "passive".into()));
        ui.remark("set OMP_WAIT_POLICY=passive for the program (--wait-policy keep leaves it)");
    }
    Ok(Under {
        emulator,
        environment,
    })
}

/// Runs the launcher, merges what the ranks wrote, writes the profile.
pub fn run(args: &Args, library: Library, ui: &Ui) -> Result<u8, CliError> {
    check(args)?;
    let output = args.output.clone().ok_or_else(|| {
        CliError::usage("record --mpi needs -o FOLDER: the command begins with the launcher, which does not name the profile")
            .status(OWN_FAILURE)
    })?;
    let output = args.checked(&output)?;
    preflight::check_ranks(memory_traced(args))?;
    // Next to the output: a file system that the hosts of a cluster are likely to share.
    let work = work_folder(output.path())?;
    conditions::keep(work.path(), false).map_err(|error| {
        let folder = work.path().display();
        CliError::tool(format!("cannot write in {folder}: {error}")).status(OWN_FAILURE)
    })?;
    let cross_process = memory_traced(args)
        .then(|| super::cross_process_table(ui))
        .flatten();
    let memory = memory_traced(args).then(|| Args {
        clock: "wall".to_owned(),
        ..args.clone()
    });
    let under = match &memory {
        Some(memory) => Some(under(memory, work.path(), cross_process.as_ref(), ui)?),
        None => None,
    };
    let recording = recording(args, library, memory.as_ref(), under, work.path());
    let accesses = args.trace.start(work.path())?;
    let recorded = record(&recording, &child::passing_signals, &|words| {
        ui.remark(words);
    });
    if let Some(accesses) = accesses {
        accesses.finish(ui);
    }
    let recorded = recorded.map_err(|error| {
        let shown = CliError::tool(&error).status(error.status());
        match error.hint() {
            Some(hint) => shown.hint(hint),
            None => shown,
        }
    })?;
    let status = u8::try_from(recorded.status & 0xff).unwrap_or(OWN_FAILURE);
    // A program that failed before it started MPI has reported that itself; its status takes precedence.
    if matches!(recorded.merged, Err(MergeError::NoRanks)) && status != 0 {
        ui.remark("no profile: no rank started MPI");
        return Ok(status);
    }
    // From here on a failure must not delete the ranks' files.
    let written = recorded.merged.map_err(unmerged).and_then(|mut merged| {
        let profile = &mut merged.profile;
        profile.set_complete(profile.meta().complete && recorded.running.is_empty());
        profile.set_environment(conditions::environment());
        let threads = memory.as_ref().map(|memory| (memory, work.path()));
        finish(args, with_times(merged)?, threads, &output, ui)
    });
    match written {
        Ok(()) if recorded.running.is_empty() => Ok(status),
        Ok(()) => {
            let pids: Vec<String> = recorded.running.iter().map(u32::to_string).collect();
            ui.remark(format_args!(
                "{} ranks still run without their launcher (processes {}); once they have ended, run numaloc record --salvage {} \
                 -o FOLDER",
                pids.len(),
                pids.join(", "),
                work.keep().display()
            ));
            Ok(status)
        }
        Err(error) => Err(keeping(error, &work.keep(), output.path())),
    }
}

/// The error of files that were not merged.
fn unmerged(error: MergeError) -> CliError {
    let hint = match &error {
        MergeError::Hosts(error) => error.hint(),
        _ => Some("is the program linked against the MPI library that --mpi names?"),
    };
    let shown = CliError::tool(error).status(OWN_FAILURE);
    match hint {
        Some(hint) => shown.hint(hint),
        None => shown,
    }
}

/// What to record: the messages, and with `memory` the accesses under `under`.
fn recording(
    args: &Args,
    library: Library,
    memory: Option<&Args>,
    under: Option<Under>,
    work: &Path,
) -> Recording {
    Recording {
        under,
        merging: args.merging.merging(),
        gathering: args.hosts.gathering(),
        argv: args.command.clone(),
        library: match library {
            Library::Auto => None,
            Library::Openmpi => Some(MpiLibrary::OpenMpi),
            Library::Mpich => Some(MpiLibrary::Mpich),
        },
        spool: work.join(SPOOL),
        slice_ns: match memory {
            // Both tracers' slices are this long, times a power of two.
            Some(memory) => Some(memory.slice_length()),
            None => args
                .slice
                .map(|milliseconds| milliseconds.saturating_mul(1_000_000)),
        },
        options: Options {
            slices: args.slices as usize,
            memory: memory.is_some(),
            ..Options::default()
        },
    }
}

/// The error of a profile that was not written, with how to make it from the ranks' files, which are in `kept`.
fn keeping(mut error: CliError, kept: &Path, output: &Path) -> CliError {
    let salvage = format!(
        "the ranks' files are kept; run numaloc record --salvage {} -o {}",
        kept.display(),
        output.display()
    );
    error.hint = Some(match error.hint {
        Some(hint) => format!("{hint}; {salvage}"),
        None => salvage,
    });
    error
}

/// Joins the messages with the recordings of the ranks' threads, if there are any, and writes the profile.
fn finish(
    args: &Args,
    messages: Profile,
    threads: Option<(&Args, &Path)>,
    output: &FolderOutput,
    ui: &Ui,
) -> Result<(), CliError> {
    let assembled = match threads {
        None => Assembled {
            profile: messages,
            traces: Vec::new(),
        },
        Some((memory, folder)) => {
            let Assembled { profile, traces } = memory.assemble(folder, ui).map_err(|error| {
                error.hint(match args.frontend.as_str() {
                    "instrument" => {
                        "--frontend instrument needs a program built with `numaloc cc -- mpicc ...`"
                    }
                    _ => "--frontend qemu and native need a dynamically linked program",
                })
            })?;
            Assembled {
                profile: join(messages, profile)
                    .map_err(|error| CliError::from(error).status(OWN_FAILURE))?,
                traces,
            }
        }
    };
    args.write_with_traces(ui, &assembled, output)
}

/// The spool folder in an abandoned work folder; `None` if it is not an MPI recording.
pub fn spool_of(left_behind: &Path) -> Option<PathBuf> {
    let holds_rank_files =
        |folder: &PathBuf| rank_files(folder).is_ok_and(|files| !files.is_empty());
    [left_behind.join(SPOOL), left_behind.to_owned()]
        .into_iter()
        .find(holds_rank_files)
}

/// Writes a profile of what the ranks wrote before their recorder was killed.
pub fn salvage(
    args: &Args,
    left_behind: &Path,
    spool: &Path,
    output: &FolderOutput,
    ui: &Ui,
) -> Result<(), CliError> {
    let memory = journals(left_behind);
    let options = Options {
        slices: args.slices as usize,
        memory,
        ..Options::default()
    };
    let merging = args.merging.merging();
    let gathering = hosts::program();
    let mut merged =
        numaloc_mpi::record::salvage(spool, options, merging.as_ref(), gathering.as_ref())
            .map_err(CliError::tool)?;
    merged
        .profile
        .set_environment(conditions::kept(left_behind));
    let threads = memory.then_some((args, left_behind));
    finish(args, with_times(merged)?, threads, output, ui)
}

/// The profile with the time in MPI, whose call sites are named by the files of this host.
fn with_times(merged: Merged) -> Result<Profile, CliError> {
    let times = merged.times;
    times
        .into_profile(merged.profile, &places_in)
        .map_err(|error| CliError::from(error).status(OWN_FAILURE))
}
