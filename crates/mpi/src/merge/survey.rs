//! The first pass over rank files: which are usable, and their times.

use std::path::{Path, PathBuf};

use super::MergeError;
use crate::rank_file::{Block, Header, RankFile, Tail};

/// A usable file.
pub(super) struct Seen {
    pub path: PathBuf,
    pub header: Header,
    pub first_ns: u64,
    pub last_ns: u64,
}

/// What the first pass found.
pub(super) struct Survey {
    pub seen: Vec<Seen>,
    /// Length of the longest slice of a file, at least 1.
    pub longest_ns: u64,
    /// The error of the first file that is not a rank file.
    pub unusable: Option<MergeError>,
    pub notes: Vec<String>,
    /// Whether every file is complete.
    pub complete: bool,
}

impl Survey {
    /// Of no files.
    pub fn empty() -> Self {
        Self {
            seen: Vec::new(),
            longest_ns: 1,
            unusable: None,
            notes: Vec::new(),
            complete: true,
        }
    }

    pub fn of(files: &[PathBuf]) -> Result<Self, MergeError> {
        let mut survey = Self::empty();
        for path in files {
            match RankFile::open(path) {
                Ok(file) => survey.add(path, file)?,
                // A rank was killed while it began its file; the messages of the others are still used.
                Err(error) => {
                    survey.complete = false;
                    let note = format!("a rank's file is left out: {error}");
                    survey.notes.push(note);
                    survey.unusable = survey.unusable.or(Some(error.into()));
                }
            }
        }
        Ok(survey)
    }

    fn add(&mut self, path: &Path, mut file: RankFile) -> Result<(), MergeError> {
        let (mut first_ns, mut last_ns, mut lost) = (u64::MAX, 0, 0);
        while let Some(block) = file.next_block()? {
            match block {
                Block::Slice {
                    start_ns, end_ns, ..
                } => {
                    first_ns = first_ns.min(start_ns);
                    last_ns = last_ns.max(end_ns);
                    self.longest_ns = self.longest_ns.max(end_ns - start_ns);
                }
                Block::Times {
                    start_ns, end_ns, ..
                } => {
                    first_ns = first_ns.min(start_ns);
                    last_ns = last_ns.max(end_ns.saturating_add(1));
                }
                Block::Events(_) => {}
                Block::End { at_ns, dropped, .. } => {
                    first_ns = first_ns.min(at_ns);
                    last_ns = last_ns.max(at_ns.saturating_add(1));
                    lost = dropped;
                }
            }
        }
        let rank = file.header().rank;
        let problem = match file.tail() {
            _ if lost > 0 => Some(format!("rank {rank}: {lost} messages could not be written")),
            Some(Tail::Cut) => Some(format!("rank {rank} ended without MPI_Finalize or exit")),
            Some(Tail::Damaged { bytes }) => {
                Some(format!("rank {rank}: last {bytes} bytes unusable"))
            }
            _ => None,
        };
        self.complete &= problem.is_none();
        self.notes.extend(problem);
        self.seen.push(Seen {
            path: path.to_owned(),
            header: file.header().clone(),
            first_ns,
            last_ns,
        });
        Ok(())
    }
}
