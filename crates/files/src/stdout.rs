//! Writes to standard output and reports failures.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::AsFd;

use crate::closed;

/// Writes all of `content` to standard output. A closed pipe is no failure: its reader did not want more.
/// If a regular file takes only a part of it, that part is removed, because it could pass for a complete result.
///
/// # Errors
/// The system's, such as a full disk; or standard output was closed when the process started.
pub fn write(content: &[u8]) -> io::Result<()> {
    if closed::stdout_was_closed() {
        return Err(rustix::io::Errno::BADF.into());
    }
    io::stdout().flush()?;
    // Bypasses the library's line buffer, which would write the rest when the process ends.
    let mut file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let end = end_of_regular(&mut file)?;
    match file.write_all(content) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => {
            if let Some(end) = end {
                let _ = file.set_len(end);
                let _ = file.seek(io::SeekFrom::Start(end));
            }
            Err(error)
        }
        Ok(()) => Ok(()),
    }
}

/// Length of a regular file that is appended to; `None` if other content could be affected.
fn end_of_regular(file: &mut File) -> io::Result<Option<u64>> {
    let about = file.metadata()?;
    if !about.is_file() {
        return Ok(None);
    }
    let appends = rustix::fs::fcntl_getfl(&*file)?.contains(rustix::fs::OFlags::APPEND);
    let grows = appends || file.stream_position()? == about.len();
    Ok(grows.then_some(about.len()))
}
