//! How the rank files of an MPI recording are merged: here, or by an MPI program whose processes are `numaloc` again.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use numaloc_mpi::Options;
use numaloc_mpi::merge::{Merging, run_share};

/// First word of the command line of a process of the merge.
pub const MERGE_SHARE: &str = "merge-rank-files";

/// Most processes by default: beyond that, a file system is usually the limit.
const MOST_PROCESSES: usize = 16;

/// How rank files are merged.
#[derive(Clone, clap::Args)]
pub struct MergingArgs {
    /// With --mpi or --salvage: merge the files of more ranks than this by an MPI program, started by the
    /// same launcher on the same hosts; fewer are merged by this process
    #[arg(long, value_name = "RANKS", default_value_t = 1024)]
    merge_above: u32,
    /// Processes of that MPI program [default: one for each PU of this machine, at most 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    merge_processes: Option<u32>,
}

impl MergingArgs {
    /// When and how an MPI program merges; `None` if this program's own file is unknown.
    pub fn merging(&self) -> Option<Merging> {
        let here = std::thread::available_parallelism().map_or(1, usize::from);
        Some(Merging {
            above: self.merge_above as usize,
            processes: self
                .merge_processes
                .unwrap_or(here.min(MOST_PROCESSES) as u32),
            program: vec![std::env::current_exe().ok()?.into(), MERGE_SHARE.into()],
        })
    }
}

/// Does the part of a merge that falls to this process: FOLDER SLICES ROWS.
pub fn merge_share(words: &[OsString]) -> ExitCode {
    let number = |word: &OsString| word.to_str().and_then(|word| word.parse().ok());
    let [folder, slices, rows] = words else {
        crate::ui::stderr("numaloc: merge-rank-files is run by record --mpi only\n");
        return ExitCode::from(2);
    };
    let (Some(slices), Some(rows)) = (number(slices), number(rows)) else {
        return ExitCode::from(2);
    };
    let options = Options {
        slices,
        rows,
        memory: false,
    };
    let output = std::io::BufWriter::new(std::io::stdout().lock());
    let input = std::io::stdin().lock();
    match run_share(Path::new(folder), options, input, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            crate::ui::stderr(&format!("{error}\n"));
            ExitCode::FAILURE
        }
    }
}
