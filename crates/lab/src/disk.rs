//! The disk from which the guest gets its job. Guests that are kept have one of the same size for all jobs.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::LabError;
use crate::image;
use crate::job::Job;
use crate::machine::Machine;

/// Its size in bytes for guests that are kept. What no file fills takes no room on the host.
const SIZE: u64 = 16 << 30;
/// First bytes of an archive, for which the guest waits (`guest/init`).
const MAGIC: &[u8; 6] = b"070701";

/// A file with the archive of a job.
pub(crate) struct Disk {
    path: PathBuf,
    file: File,
}

impl Disk {
    /// Writes the job to `path`. `kept`: for a guest that is kept or continues.
    pub fn make(path: &Path, machine: &Machine, job: &Job, kept: bool) -> Result<Self, LabError> {
        let fail = |error: io::Error| LabError::file("write", path, error);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut seed = [0; 32];
        let random = Path::new("/dev/urandom");
        File::open(random)
            .and_then(|file| io::Read::read_exact(&mut &file, &mut seed))
            .map_err(|error| LabError::file("read", random, error))?;
        image::job(path, machine, job, now.map_or(0, |now| now.as_secs()), seed)?;
        let file = File::options().write(true).open(path).map_err(fail)?;
        if kept {
            if file.metadata().map_err(fail)?.len() > SIZE {
                return Err(LabError::file(
                    "copy",
                    path,
                    "more than 16 GiB for the guest",
                ));
            }
            file.set_len(SIZE).map_err(fail)?;
        }
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    /// Without its first bytes the guest does not see the archive.
    pub fn hide(&self, hidden: bool) -> Result<(), LabError> {
        let bytes = if hidden { &[0; 6] } else { MAGIC };
        let done = self.file.write_all_at(bytes, 0);
        done.map_err(|error| LabError::file("write", &self.path, error))
    }
}
