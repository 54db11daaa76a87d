//! Checks for limits under which a recording would fail halfway, before the program starts.

use numaloc_model::number;
use rustix::process::{Resource, getrlimit};

use super::OWN_FAILURE;
use crate::error::CliError;

/// Smallest file-size limit under which a program is recorded: journals and tables are files. Under a larger limit a
/// recording that reaches it is cut short and says so.
const FILE_BYTES: u64 = 1 << 30;

/// The same if only messages of MPI ranks are recorded. A rank writes 8 MiB before its slices get twice as long
/// (`shims/mpi/rank_file.c`), so the limit is reached after 32 doublings: weeks, starting at 1 ms. The kernel kills a
/// rank that exceeds a limit.
const RANK_FILE_BYTES: u64 = 256 << 20;

/// Rejects limits that make a recording fail. `reserves`: the tracer runs in the program's address space and reserves
/// most of it.
pub fn check(reserves: bool) -> Result<(), CliError> {
    limits(reserves, FILE_BYTES)
}

/// [`check`] for the ranks of an MPI program; `memory`: whether their accesses are recorded too. Ranks on this host
/// have our limits; those of other hosts are unknown.
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
            .expected("no such limit: the tracer reserves address space for all memory a program can have, but uses little of it")
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
