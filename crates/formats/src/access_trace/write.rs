//! Writes messages to a trace file.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use numaloc_access_trace::message::{Message, SharedPages};

use super::{FRAME_HEAD, MAGIC, MAX_MESSAGE_BYTES};
use crate::error::FormatError;

/// The fastest zstd level that still uses entropy coding.
const LEVEL: i32 = 1;

/// Limit on the bytes that the files of one recording take together.
#[derive(Debug)]
pub struct Limit {
    bytes: u64,
    written: AtomicU64,
}

impl Limit {
    /// A limit of `bytes`.
    #[must_use]
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            bytes,
            written: AtomicU64::new(0),
        })
    }

    /// Bytes written so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }
}

/// Writes the messages of one process image; several threads may append at the same time.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    limit: Arc<Limit>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    /// Why writing has stopped.
    stopped: Option<StopReason>,
    /// Compression contexts that no thread is using now.
    contexts: Vec<Context>,
}

#[derive(Debug)]
enum StopReason {
    Limit,
    Failed(std::io::Error),
}

struct Context(zstd::bulk::Compressor<'static>);

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Context")
    }
}

impl Writer {
    /// Creates the file.
    ///
    /// # Errors
    /// [`FormatError::Io`].
    pub fn create(path: &Path, limit: Arc<Limit>) -> Result<Self, FormatError> {
        let file = File::options()
            .append(true)
            .create_new(true)
            .open(path)
            .map_err(|error| FormatError::io("create", path, error))?;
        Ok(Self {
            path: path.to_owned(),
            limit,
            state: Mutex::new(State {
                file,
                stopped: None,
                contexts: Vec::new(),
            }),
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes one message, with blocks compressed. Returns `false` if nothing more will be written (the limit is
    /// reached or the disk has failed), or if this is no message.
    pub fn append(&self, message: &[u8]) -> bool {
        let context = {
            let mut state = self.state();
            if state.stopped.is_some() {
                return false;
            }
            state.contexts.pop()
        };
        let Some(mut context) = context.or_else(|| {
            let made = zstd::bulk::Compressor::new(LEVEL);
            made.ok().map(Context)
        }) else {
            return false;
        };
        let mut frame = vec![0; FRAME_HEAD];
        let known = compressed(message, &mut context, &mut frame);
        let mut state = self.state();
        state.contexts.push(context);
        known.is_some() && self.write(&mut state, &mut frame)
    }

    fn write(&self, state: &mut State, frame: &mut [u8]) -> bool {
        if state.stopped.is_some() {
            return false;
        }
        let before = self.limit.written.fetch_add(frame.len() as u64, Relaxed);
        if before + frame.len() as u64 > self.limit.bytes {
            self.limit.written.fetch_sub(frame.len() as u64, Relaxed);
            state.stopped = Some(StopReason::Limit);
            let mut last = vec![0; FRAME_HEAD];
            let why = format!("the limit of {} bytes was reached", self.limit.bytes);
            Message::Cut(why).encode(&mut last);
            seal(&mut last);
            let _ = state.file.write_all(&last);
            return false;
        }
        seal(frame);
        if let Err(error) = state.file.write_all(frame) {
            state.stopped = Some(StopReason::Failed(error));
            return false;
        }
        true
    }

    /// The disk's error, if it has failed.
    #[must_use]
    pub fn failure(&self) -> Option<FormatError> {
        match &self.state().stopped {
            Some(StopReason::Failed(error)) => {
                let again = std::io::Error::new(error.kind(), error.to_string());
                Some(FormatError::io("write", &self.path, again))
            }
            _ => None,
        }
    }
}

/// Writes ranges of shared memory behind the first `kept` bytes of a file. Returns the file's bytes.
///
/// # Errors
/// [`FormatError::Io`]; then only these bytes are left.
pub(super) fn append_shared(
    path: &Path,
    kept: u64,
    ranges: &[SharedPages],
) -> Result<u64, FormatError> {
    let mut frames = Vec::new();
    for part in ranges.chunks(SharedPages::MOST) {
        let mut frame = vec![0; FRAME_HEAD];
        Message::Shared(part.to_vec()).encode(&mut frame);
        seal(&mut frame);
        frames.extend(frame);
    }
    let write_error = |error| FormatError::io("write", path, error);
    let mut file = File::options()
        .append(true)
        .open(path)
        .map_err(write_error)?;
    let written = file.set_len(kept).and_then(|()| file.write_all(&frames));
    if let Err(error) = written {
        let _ = file.set_len(kept);
        return Err(write_error(error));
    }
    Ok(kept + frames.len() as u64)
}

/// Appends a message to a frame, with the columns of a block compressed. `None` for an invalid message, or one that
/// readers would refuse.
fn compressed(message: &[u8], context: &mut Context, frame: &mut Vec<u8>) -> Option<()> {
    match Message::decode(message).ok()? {
        Message::Block(block, columns) => {
            let columns = context.0.compress(columns).ok()?;
            Message::Block(block, &columns).encode(frame);
        }
        _ => frame.extend_from_slice(message),
    }
    (frame.len() - FRAME_HEAD <= MAX_MESSAGE_BYTES).then_some(())
}

/// Fills in a frame's header.
fn seal(frame: &mut [u8]) {
    let (head, message) = frame.split_at_mut(FRAME_HEAD);
    head[..4].copy_from_slice(&MAGIC);
    head[4..8].copy_from_slice(&(message.len() as u32).to_le_bytes());
    head[8..].copy_from_slice(&crc32fast::hash(message).to_le_bytes());
}
