//! `numaloc lab compare`: the same program on the same machine under several placements.

use crate::error::CliError;
use crate::ui::Ui;

/// Compare first-touch, interleave, AutoNUMA and plans
#[derive(clap::Args)]
pub struct Args {}

impl Args {
    /// Not yet.
    pub fn run(&self, _ui: &Ui) -> Result<u8, CliError> {
        Err(CliError::usage("not built yet"))
    }
}
