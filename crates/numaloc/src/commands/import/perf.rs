//! `numaloc import` of perf.data files.

use std::path::Path;
use std::time::Duration;

use numaloc_model::Profile;
use numaloc_perf::{Options, PerfError};

use crate::commands::map::duration;
use crate::error::CliError;
use crate::size::byte_size;

/// Options of perf.data files.
#[derive(clap::Args)]
#[command(next_help_heading = "perf.data")]
pub struct PerfArgs {
    /// Import only the process of this name or id and the processes it started (for system-wide
    /// recordings)
    #[arg(long, value_name = "PROCESS")]
    process: Option<String>,
    /// Bytes per page of the page tables
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = power_of_two)]
    pub page_size: u64,
    /// Bytes per line of the communication matrix; 4K finds threads that share pages
    #[arg(long, value_name = "SIZE", default_value = "64", value_parser = power_of_two)]
    line_size: u64,
    /// Two threads communicate if their samples of a line are at most this far apart in time
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = duration)]
    window: Duration,
    /// Length of a time slice
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = duration)]
    slice: Duration,
    /// Maximum number of slices; neighbours are merged when there would be more
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    max_slices: u32,
}

impl PerfArgs {
    /// The profile of a perf.data file.
    pub fn import(&self, file: &Path) -> Result<Profile, CliError> {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let options = Options {
            page_size: self.page_size,
            line_size: self.line_size,
            window_ns: nanoseconds(self.window),
            slice_ns: nanoseconds(self.slice),
            max_slices: self.max_slices,
            process: self.process.clone(),
        };
        numaloc_perf::import(file, &options).map_err(CliError::from)
    }
}

/// A size that is a power of two, up to the largest page there is.
fn power_of_two(given: &str) -> Result<u64, String> {
    let size = byte_size(given).map_err(|error| error.to_string())?;
    if size.is_power_of_two() && (16..=1 << 30).contains(&size) {
        Ok(size)
    } else {
        Err("expected a power of two from 16 to 1G, such as 64, 4K or 2M".to_owned())
    }
}

impl From<PerfError> for CliError {
    fn from(error: PerfError) -> Self {
        let hint = error.hint();
        Self {
            hint: hint.map(str::to_owned),
            ..Self::tool(error)
        }
    }
}
