//! Standard output, whose failures are reported.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::AsFd;

use crate::closed;

/// Writes all of `content` to standard output. A reader who closed the pipe has seen enough, which is no failure.
/// If a regular file takes only a part of it, that part is taken back: half a result reads like a whole one.
///
/// # Errors
/// The system's, such as a full disk; a standard output that was closed when the process started.
pub fn write(content: &[u8]) -> io::Result<()> {
    if closed::stdout_was_closed() {
        return Err(rustix::io::Errno::BADF.into());
    }
    io::stdout().flush()?;
    // Past the library's line buffer, which would write the rest when the process ends.
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

/// Length of a regular file that is about to grow; nothing where other content could be hit.
fn end_of_regular(file: &mut File) -> io::Result<Option<u64>> {
    let about = file.metadata()?;
    if !about.is_file() {
        return Ok(None);
    }
    let appends = rustix::fs::fcntl_getfl(&*file)?.contains(rustix::fs::OFlags::APPEND);
    let grows = appends || file.stream_position()? == about.len();
    Ok(grows.then_some(about.len()))
}
