//! `--deal`: recordings in which loops are dealt by node.

use std::ffi::OsString;

use numaloc_apply::preload;

use super::OWN_FAILURE;
use crate::error::CliError;

/// How loops are dealt.
#[derive(Clone, clap::Args)]
pub struct DealingArgs {
    /// Deal the iterations of OpenMP loops with a dynamic or guided schedule by rank of thread, so that each run gives
    /// a thread the same ones and a plan holds; `numaloc run` of such a plan deals them too, and threads that have
    /// finished take from others, of their own node first
    #[arg(long, value_name = "BY", value_parser = ["node"], conflicts_with_all = ["mpi", "salvage", "fast"])]
    deal: Option<String>,
}

impl DealingArgs {
    /// Whether loops are dealt.
    pub fn is_asked(&self) -> bool {
        self.deal.is_some()
    }

    /// Refuses a frontend that samples: there is no recording of each thread's own work to be made.
    pub fn check(&self, frontend: &str) -> Result<(), CliError> {
        if self.is_asked() && frontend == "perf" {
            return Err(CliError::usage("--deal with hardware samples")
                .expected("--frontend qemu, native or instrument"));
        }
        Ok(())
    }

    /// The variables with which the program's loops are dealt.
    pub fn variables(&self, command: &[OsString]) -> Result<Vec<(OsString, OsString)>, CliError> {
        if !self.is_asked() {
            return Ok(Vec::new());
        }
        let variables = preload::dealing(command, preload::RECORDING);
        variables.map(Vec::from).map_err(|why| {
            CliError::tool(format!("cannot deal the program's loops: {why}")).status(OWN_FAILURE)
        })
    }
}
