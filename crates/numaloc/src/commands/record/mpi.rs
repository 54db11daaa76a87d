//! `numaloc record --mpi`: the messages of an MPI program, through its own launcher.

use numaloc_mpi::Options;
use numaloc_mpi::merge::MergeError;
use numaloc_mpi::record::{Recording, record};
use numaloc_mpi::shims::MpiLibrary;

use super::{Args, OWN_FAILURE, work_folder};
use crate::error::CliError;
use crate::ui::Ui;

/// What `--mpi` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Library {
    /// Find out from the program and its launcher.
    Auto,
    /// Open MPI.
    Openmpi,
    /// MPICH, Intel MPI, MVAPICH, Cray MPICH.
    Mpich,
}

/// Runs the launcher, merges what the ranks wrote, writes the profile.
pub fn run(args: &Args, library: Library, ui: &Ui) -> Result<u8, CliError> {
    if args.frontend != "auto" {
        return Err(CliError::usage(format!(
            "record --mpi observes messages, not memory accesses: --frontend {} has no effect on ranks",
            args.frontend
        ))
        .hint("leave out --frontend, or record the threads of ranks one by one (docs/mpi.md, Hybrid programs)")
        .status(OWN_FAILURE));
    }
    let output = args.output.clone().ok_or_else(|| {
        CliError::usage("record --mpi needs -o FOLDER: the first word is the launcher's name, not the program's")
            .status(OWN_FAILURE)
    })?;
    if output.exists() && !args.force {
        let taken = CliError::tool(format!("cannot write {}: it exists", output.display()));
        return Err(taken
            .hint("--force replaces it, -o names another folder")
            .status(OWN_FAILURE));
    }
    // Next to the output: a file system that the hosts of a cluster are likely to share.
    let work = work_folder(&output)?;
    let recording = Recording {
        argv: args.command.clone(),
        library: match library {
            Library::Auto => None,
            Library::Openmpi => Some(MpiLibrary::OpenMpi),
            Library::Mpich => Some(MpiLibrary::Mpich),
        },
        spool: work.path().join("ranks"),
        slice_ns: args
            .slice
            .map(|milliseconds| milliseconds.saturating_mul(1_000_000)),
        options: Options {
            slices: args.slices as usize,
            ..Options::default()
        },
    };
    let recorded = record(&recording).map_err(|error| {
        let shown = CliError::tool(&error).status(error.status());
        match error.hint() {
            Some(hint) => shown.hint(hint),
            None => shown,
        }
    })?;
    let status = u8::try_from(recorded.status & 0xff).unwrap_or(OWN_FAILURE);
    match recorded.merged {
        Ok(merged) => {
            args.write(ui, &merged.profile, &output)?;
            Ok(status)
        }
        // A program that failed before it began says so itself; its status matters more than ours.
        Err(MergeError::NoRanks) if status != 0 => {
            ui.remark("no profile: no rank started MPI");
            Ok(status)
        }
        Err(error) => {
            let kept = work.keep();
            Err(CliError::tool(error).status(OWN_FAILURE).hint(format!(
                "what the ranks wrote is kept in {}; is the program linked against the MPI library that --mpi names?",
                kept.display()
            )))
        }
    }
}
