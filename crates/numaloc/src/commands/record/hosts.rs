//! Hosts of an MPI run that do not share a folder: what reaches them is `numaloc` again, started by the run's launcher.

use std::ffi::OsString;
use std::process::ExitCode;

use numaloc_mpi::gather::{Gathering, serve};

use crate::error::CliError;

/// First word of the command line of a process that prepares or gathers.
pub const HOST_FOLDER: &str = "host-folder";

/// Whether hosts share the folder.
#[derive(Clone, clap::Args)]
pub struct HostArgs {
    /// With an MPI launcher: the hosts do not share the folder of the output; one is made on each, and
    /// what ranks write there is brought to this host. numaloc must have the same path on every host
    #[arg(long)]
    gather: bool,
}

impl HostArgs {
    /// How files come here, if hosts do not share the folder.
    pub fn gathering(&self) -> Option<Gathering> {
        self.gather.then(program).flatten()
    }

    /// Refuses the option where no launcher reaches other hosts.
    pub fn refuse(&self, command: &str) -> Result<(), CliError> {
        if self.gather {
            let what =
                format!("{command} --gather: only ranks of an MPI launcher run on other hosts");
            return Err(CliError::usage(what));
        }
        Ok(())
    }
}

/// How a process on another host is started; `None` if this program's own file is unknown.
pub fn program() -> Option<Gathering> {
    Some(Gathering {
        program: vec![std::env::current_exe().ok()?.into(), HOST_FOLDER.into()],
    })
}

/// Does the part of a step that falls to this process.
pub fn host_folder(words: &[OsString]) -> ExitCode {
    let program = program().map_or_else(Vec::new, |gathering| gathering.program);
    match serve(words, &program) {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            crate::ui::stderr(&format!("{line}\n"));
            ExitCode::FAILURE
        }
    }
}
