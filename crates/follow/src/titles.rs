//! The names that a program gives to its threads, processes and memory.
//!
//! | what | how it is seen |
//! |---|---|
//! | a thread's own name | `prctl(PR_SET_NAME)` |
//! | another thread's name | a file `comm` in `/proc` is opened, and written to |
//! | a process's title | the text where its arguments were, at its end |
//! | anonymous memory | `prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME)`, also where the kernel knows no such names |

use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use numaloc_journal::Record;
use numaloc_trace::Engine;

use crate::memory;

const PR_SET_VMA: u64 = 0x5356_4d41;
const PR_SET_VMA_ANON_NAME: u64 = 0;
/// Bytes of a thread's name.
const NAME_BYTES: usize = 15;
/// Bytes of a title or of a name of memory that are kept.
const TITLE_BYTES: usize = 256;

/// Files `comm` that are open: descriptor plus 1 in the upper half, thread id in the lower; 0 if free. The C library
/// has one open for the length of a call. Without a lock: a fork may happen at any moment.
static OPEN: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

/// Address of the process's first argument, and its text at the start.
static FIRST_ARGUMENT: OnceLock<(u64, Vec<u8>)> = OnceLock::new();

/// The program's arguments begin at `address`. Called once, before its first instruction.
pub fn arguments_at(address: u64) {
    if let Some(text) = memory::text(address) {
        let _ = FIRST_ARGUMENT.set((address, text.as_bytes().to_vec()));
    }
}

/// Records the title by which the process has replaced its arguments, if it has. Called at its end.
pub fn record_title(engine: &Engine) {
    let Some((address, before)) = FIRST_ARGUMENT.get() else {
        return;
    };
    let now = memory::text(*address);
    if let Some(now) = now.filter(|now| !now.is_empty() && now.as_bytes() != before) {
        engine.write(&Record::Title(text(now.as_bytes(), TITLE_BYTES)));
    }
}

/// The record of memory that `prctl` with these arguments names; `None` for other calls.
pub(crate) fn named_memory(engine: &Engine, arguments: &[u64; 6]) -> Option<Record> {
    let [PR_SET_VMA, PR_SET_VMA_ANON_NAME, address, length, name, _] = *arguments else {
        return None;
    };
    let name = memory::text(name)?;
    Some(Record::MemoryName {
        sequence: engine.sequence(),
        address,
        length,
        name: text(name.as_bytes(), TITLE_BYTES),
    })
}

/// A thread's name, a string at `address`.
pub(crate) fn thread_name(address: u64) -> Option<String> {
    Some(text(memory::text(address)?.as_bytes(), NAME_BYTES))
}

/// The file at `path` was opened as `descriptor`.
pub(crate) fn opened(path: u64, descriptor: i64) {
    let Some(path) = memory::text(path) else {
        return;
    };
    if let Some(tid) = thread_of(path.as_bytes()) {
        let entry = (descriptor as u64 + 1) << 32 | u64::from(tid);
        let free = OPEN.iter().find(|slot| slot.load(Ordering::Relaxed) == 0);
        free.unwrap_or(&OPEN[0]).store(entry, Ordering::Relaxed);
    }
}

/// The descriptor was closed.
pub(crate) fn closed(descriptor: u64) {
    if let Some(slot) = slot(descriptor) {
        slot.store(0, Ordering::Relaxed);
    }
}

/// The record of a name that a write of `length` bytes at `address` has given to a thread.
pub(crate) fn written(descriptor: u64, address: u64, length: u64) -> Option<Record> {
    let tid = slot(descriptor)?.load(Ordering::Relaxed) as u32;
    let mut bytes = vec![0; (length as usize).min(NAME_BYTES)];
    memory::read(address, &mut bytes)?;
    let end = bytes.iter().position(|byte| matches!(byte, 0 | b'\n'));
    bytes.truncate(end.unwrap_or(bytes.len()));
    Some(Record::TaskName {
        tid,
        name: text(&bytes, NAME_BYTES),
    })
}

fn slot(descriptor: u64) -> Option<&'static AtomicU64> {
    OPEN.iter()
        .find(|slot| slot.load(Ordering::Relaxed) >> 32 == (descriptor & 0x7fff_ffff) + 1)
}

/// The thread of this process whose name is in the file at `path`.
fn thread_of(path: &[u8]) -> Option<u32> {
    let path = std::str::from_utf8(path).ok()?;
    let path = path.strip_prefix("/proc/")?.strip_suffix("/comm")?;
    let own = std::process::id();
    let (process, thread) = match path.split_once("/task/") {
        Some((process, thread)) => (process, Some(thread)),
        None => (path, None),
    };
    match (process, thread) {
        ("thread-self", None) => {
            let link = std::fs::read_link("/proc/thread-self").ok()?;
            link.file_name()?.to_str()?.parse().ok()
        }
        ("self", None) => Some(own),
        (process, thread) if process == "self" || process.parse() == Ok(own) => {
            thread.map_or(Some(own), |thread| thread.parse().ok())
        }
        _ => None,
    }
}

/// The first `most` bytes, without a part of a character at the end.
fn text(bytes: &[u8], most: usize) -> String {
    let mut text = String::from_utf8_lossy(bytes).trim_end().to_owned();
    text.truncate(text.floor_char_boundary(most));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_names_are_recognised() {
        let own = std::process::id();
        assert_eq!(thread_of(b"/proc/self/task/77/comm"), Some(77));
        assert_eq!(
            thread_of(format!("/proc/{own}/task/8/comm").as_bytes()),
            Some(8)
        );
        assert_eq!(thread_of(b"/proc/self/comm"), Some(own));
        for other in [
            "/proc/1/comm",
            "/proc/self/stat",
            "/tmp/comm",
            "/proc/self/task/x/comm",
        ] {
            assert_eq!(thread_of(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_name_is_written_to_the_thread_whose_file_is_open() {
        let (path, name) = (c"/proc/self/task/77/comm", b"io_thd_1\0");
        let at = name.as_ptr() as u64;
        assert_eq!(written(5, at, 9), None);
        opened(path.as_ptr() as u64, 5);
        let record = Record::TaskName {
            tid: 77,
            name: "io_thd_1".into(),
        };
        assert_eq!(written(5, at, 9), Some(record));
        closed(5);
        assert_eq!(written(5, at, 9), None);
    }
}
