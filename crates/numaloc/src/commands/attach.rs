//! `numaloc attach`: places threads and pages of a program that runs already.

use numaloc_apply::online::{AttachError, attach};

use super::online::{self, Flags};
use crate::error::CliError;
use crate::ui::Ui;

/// Exit status for our own failures.
const OURS: u8 = 125;

/// Place threads and pages of a running program by what it does, until it ends or Ctrl-C
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  numaloc attach 4711
  numaloc attach 4711 --page-interval 2 --json

Threads are bound and pages moved from outside: the program is not stopped, and nothing in its memory
changes. When numaloc ends, even by `kill -9`, its threads get their own affinity back; pages stay where
they are. Processes that it starts are left alone.
Exit status: 0 when it has ended or after Ctrl-C; 1 if there is no such process or it is another user's;
125 when numaloc itself fails.")]
pub struct Args {
    /// Process id
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: i32,
    #[command(flatten)]
    online: Flags,
}

impl Args {
    /// Follows the process.
    pub fn run(&self, ui: &Ui) -> Result<u8, CliError> {
        let setup = self.online.setup()?;
        if setup.counts_marks() {
            return Err(
                CliError::usage("cannot count the marks of a program that runs already")
                    .hint("numaloc run --online --thread-policy autopin -- ./app"),
            );
        }
        if let Err(why) = &setup.source {
            return Err(
                CliError::tool(format!("cannot attach to process {}: {why}", self.pid))
                    .status(OURS),
            );
        }
        let followed = self.online.follow(&setup, |following, advisor| {
            following.map(|following| attach(self.pid, following, advisor))
        })?;
        let report = match followed {
            Ok(Ok(report)) => report,
            Ok(Err(error @ AttachError::Follow { .. })) => {
                return Err(CliError::tool(error).status(OURS));
            }
            Ok(Err(error)) => return Err(CliError::tool(error)),
            Err(why) => return Err(CliError::tool(why).status(OURS)),
        };
        for line in report.lines() {
            ui.remark(line);
        }
        ui.result(String::new, || online::json(&report, None));
        Ok(0)
    }
}
