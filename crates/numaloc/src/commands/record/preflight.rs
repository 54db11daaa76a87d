//! Limits under which a recording would fail halfway: said before the program starts.

use numaloc_model::number;
use rustix::process::{Resource, getrlimit};

use super::OWN_FAILURE;
use crate::error::CliError;

/// Smallest limit of file sizes under which a program is recorded: journals and tables are files. Beyond it a recording is
/// cut short at the limit, and says so.
const FILE_BYTES: u64 = 1 << 30;

/// The same where only messages of MPI ranks are recorded. A rank writes 8 MiB before its slices get twice as long
/// (`shims/mpi/rank_file.c`), so this is reached after 32 doublings: from 1 ms, weeks. Beyond a limit the kernel would kill the rank.
const RANK_FILE_BYTES: u64 = 256 << 20;

/// Refuses what cannot work. `reserves`: the tracer lies in the program's address space, most of which it reserves.
pub fn check(reserves: bool) -> Result<(), CliError> {
    limits(reserves, FILE_BYTES)
}

/// [`check`] for the ranks of an MPI program, `memory`: whose accesses are traced too. Ranks have our limits on this host;
/// those of other hosts cannot be seen from here.
pub fn check_ranks(memory: bool) -> Result<(), CliError> {
    limits(memory, if memory { FILE_BYTES } else { RANK_FILE_BYTES })
}

fn limits(reserves: bool, files: u64) -> Result<(), CliError> {
    if reserves && let Some(limit) = getrlimit(Resource::As).current {
        let found = format!(
            "cannot record: the address space is limited to {} (ulimit -v)",
            number::bytes(limit as f64)
        );
        return Err(CliError::tool(found)
            .expected("no such limit: the tracer's tables reserve address space for all memory a program can have, and take little of it")
            .hint("ulimit -S -v unlimited; to limit memory itself, use a control group (systemd-run -p MemoryMax=8G)")
            .status(OWN_FAILURE));
    }
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < files => {
            let found = format!(
                "cannot record: files are limited to {} (ulimit -f)",
                number::bytes(limit as f64)
            );
            Err(CliError::tool(found)
                .expected(format!("at least {}", number::bytes(files as f64)))
                .hint("ulimit -S -f unlimited")
                .status(OWN_FAILURE))
        }
        _ => Ok(()),
    }
}
