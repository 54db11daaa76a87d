//! The journal: records that a traced process writes for the recorder, readable up to the last complete frame.
//!
//! One file for each process image, append only. A frame is one `write(2)` of
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | magic `NLJ1` |
//! | 4..8 | length of the payload, little endian |
//! | 8..12 | CRC-32 of the payload |
//! | 12.. | records, each a kind byte and LEB128 numbers |
//!
//! The file is opened with `O_APPEND`, so frames of several threads do not mix and no lock is needed. After the first
//! failed write (disk full) nothing more is written: the journal stays a prefix of the run. A reader stops at the
//! first frame that is incomplete or fails its checksum.
//!
//! | module | content |
//! |---|---|
//! | `record` | the table of records |
//! | `table` | the macro that makes enum, bytes, visitor and layout from that table |
//! | `field` | the ways in which fields are written |
//! | `encode`, `decode` | numbers and strings to bytes and back |
//! | [`descriptors`] | our descriptors in the program's table, and its limits |
//! | [`station`] | where processes get their journals |
//! | [`settings`] | what the recorder sets, encoded and decoded |
//! | [`bursts`] | the schedule of sampling in time, computed by both sides |
//!
//! This module writes and reads frames.

pub mod bursts;
mod checksum;
mod decode;
pub mod descriptors;
mod encode;
mod field;
mod record;
pub mod settings;
pub mod station;
mod table;

use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use checksum::crc32;
use decode::Decoder;
use descriptors::Lifted;
pub use descriptors::out_of_the_way;
pub use encode::Visitor;
pub use field::{AccessKind, AccessSample, SiteCount};
pub use numaloc_model::SiteKind;
pub use record::{CROSS_PROCESS_NUMBER, LAYOUT, Record, VERSION};
pub use table::{FieldLayout, RecordLayout};

/// Pages of the k-th process image after the first are numbered from `k << SPACE_SHIFT` (in 4 KiB pages): processes
/// use the same addresses for different memory.
pub const SPACE_SHIFT: u32 = numaloc_model::profile::image::PAGE_SHIFT;
/// Number of parts of a sample of lines, from which its error is estimated: counts in [`Record::Groups`].
pub const GROUPS: usize = 16;
/// Magic at the beginning of a frame.
const MAGIC: [u8; 4] = *b"NLJ1";
/// Longest payload, in bytes, that a reader accepts.
const MAX_PAYLOAD: usize = 1 << 28;

/// The writing end of a journal.
///
/// The descriptor is in the traced program's table, and some programs close descriptors they never opened. So it has a
/// high number, and before each frame we check that it is still our file: writing to a file of the program's would be
/// worse than losing the trace.
pub struct Journal {
    file: ManuallyDrop<File>,
    identity: (u64, u64),
    failed: AtomicBool,
}

impl Journal {
    /// Creates the journal.
    ///
    /// # Errors
    /// The system's error.
    pub fn create(path: &Path) -> std::io::Result<Self> {
        Self::of(File::options().append(true).create_new(true).open(path)?)
    }

    /// The journal in an empty file, opened for appending.
    ///
    /// # Errors
    /// The system's error.
    pub fn of(file: File) -> std::io::Result<Self> {
        let file = File::from(out_of_the_way(file.into()));
        let data = file.metadata()?;
        Ok(Self {
            file: ManuallyDrop::new(file),
            identity: (data.dev(), data.ino()),
            failed: AtomicBool::new(false),
        })
    }

    /// The limit of the size of files is set aside, if necessary, while the result lives. `None` if the file is not
    /// ours any more, or may not grow by `bytes` bytes.
    fn room(&self, bytes: usize) -> Option<Lifted> {
        let length = self.file.metadata().ok()?.len();
        let ours = self.is_ours();
        ours.then(|| Lifted::for_file(length.saturating_add(bytes as u64)))?
    }

    /// Writes `payload` as one frame and empties it; does nothing after a failure.
    ///
    /// `payload` must have been started with [`Journal::begin`].
    pub fn append(&self, payload: &mut Vec<u8>) {
        if payload.len() > FRAME_HEAD && !self.failed.load(Ordering::Relaxed) {
            let body = &payload[FRAME_HEAD..];
            let (length, crc) = (body.len() as u32, crc32(body));
            payload[..4].copy_from_slice(&MAGIC);
            payload[4..8].copy_from_slice(&length.to_le_bytes());
            payload[8..12].copy_from_slice(&crc.to_le_bytes());
            // A single write: a second one could land behind another thread's frame.
            let written = loop {
                let Some(_lifted) = self.room(payload.len()) else {
                    break Err(std::io::ErrorKind::NotFound.into());
                };
                match (&*self.file).write(payload) {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    other => break other,
                }
            };
            if written.is_err() || written.is_ok_and(|count| count < payload.len()) {
                self.failed.store(true, Ordering::Relaxed);
            }
        }
        Self::begin(payload);
    }

    /// Clears `payload` and reserves room for the frame's head.
    pub fn begin(payload: &mut Vec<u8>) {
        payload.clear();
        payload.resize(FRAME_HEAD, 0);
    }

    /// Stops writing.
    pub fn stop(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Stops writing and closes the file, in a child that has a journal of its own.
    pub fn close(&self) {
        let failed = self.failed.swap(true, Ordering::Relaxed);
        if !failed && self.is_ours() {
            descriptors::close(self.file.as_raw_fd());
        }
    }

    /// Whether the descriptor is still that of our file.
    fn is_ours(&self) -> bool {
        let data = self.file.metadata();
        data.is_ok_and(|data| (data.dev(), data.ino()) == self.identity)
    }

    /// Whether a write has failed.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

/// The name of this host.
#[must_use]
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_end().to_owned()
}

/// Bytes of a frame's head.
const FRAME_HEAD: usize = 12;

/// Calls `visit` with each record of a journal; returns whether the file ends at the end of a frame.
pub fn replay(mut bytes: &[u8], mut visit: impl FnMut(Record)) -> bool {
    while let Some((head, rest)) = bytes.split_at_checked(FRAME_HEAD) {
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        let length = word(4) as usize;
        let payload = match rest.get(..length) {
            Some(payload)
                if head[..4] == MAGIC && length <= MAX_PAYLOAD && crc32(payload) == word(8) =>
            {
                payload
            }
            _ => return false,
        };
        let mut decoder = Decoder(payload);
        while !decoder.0.is_empty() {
            match Record::decode(&mut decoder) {
                Some(record) => visit(record),
                None => return false,
            }
        }
        bytes = &rest[length..];
    }
    bytes.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<Record> {
        vec![
            Record::Process {
                version: VERSION,
                pid: 7,
                path: "0".into(),
                image: 0,
                frontend: "qemu".into(),
                virtual_clock: true,
                line_shift: 6,
                time_share_ppm: 50_000,
                line_share_ppm: 1_000_000,
                program: "/bin/true".into(),
            },
            Record::Comm {
                thread: 1,
                layer: 0,
                start: 65536,
                length: 65536,
                cells: vec![(0, 3, 24), (70000, u64::MAX, 1)],
            },
            Record::Pages {
                thread: 1,
                start: 0,
                length: 1,
                cells: vec![(5, 1, 2), (9, 0, u64::MAX)],
            },
            Record::SharedLines(vec![(1 << 40, 9, 3), (0, 1, 0)]),
            Record::Groups {
                thread: 2,
                layer: 6,
                src: 1,
                counts: vec![0, 7, u64::MAX],
            },
            Record::Backing {
                sequence: 3,
                address: 0x7000_0000,
                length: 1 << 30,
                object: 65535,
                offset: 1 << 40,
            },
            Record::CrossProcessNumber {
                thread: 1,
                number: 70000,
            },
            Record::ThreadName {
                thread: 1,
                name: "GC Thread#0".into(),
            },
            Record::Sharing("GOMP_task".into()),
            Record::Site {
                site: 3,
                frames: vec![u64::MAX, 5],
            },
            Record::Block {
                sequence: 9,
                thread: 1,
                address: 1 << 46,
                length: 40,
                site: 3,
            },
            Record::End,
        ]
    }

    fn written(records: &[Record]) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let journal = Journal::create(&path).unwrap();
        let mut payload = Vec::new();
        Journal::begin(&mut payload);
        for record in records {
            record.encode(&mut payload);
            journal.append(&mut payload);
        }
        std::fs::read(path).unwrap()
    }

    #[test]
    fn written_records_are_read_back() {
        let mut seen = Vec::new();
        assert!(replay(&written(&sample()), |record| seen.push(record)));
        assert_eq!(seen, sample());
    }

    #[test]
    fn every_cut_and_every_flipped_byte_leaves_a_prefix() {
        let bytes = written(&sample());
        for cut in 0..bytes.len() {
            let mut seen = Vec::new();
            replay(&bytes[..cut], |record| seen.push(record));
            assert!(sample().starts_with(&seen), "cut at {cut}");
            let mut damaged = bytes.clone();
            damaged[cut] ^= 0x10;
            let mut seen = Vec::new();
            assert!(
                !replay(&damaged, |record| seen.push(record)),
                "byte {cut} flipped"
            );
            assert!(sample().starts_with(&seen), "byte {cut} flipped");
        }
    }
    #[test]
    fn a_page_that_no_process_can_have_ends_the_journal() {
        // Its number would be that of another process's page in the profile.
        for page in [1 << SPACE_SHIFT, u64::MAX] {
            let pages = Record::Pages {
                thread: 1,
                start: 0,
                length: 1,
                cells: vec![(page, 1, 1)],
            };
            let touch = Record::FirstTouch {
                thread: 1,
                cells: vec![(page, 1)],
            };
            for record in [pages, touch] {
                let mut seen = Vec::new();
                let bytes = written(&[Record::End, record]);
                assert!(!replay(&bytes, |record| seen.push(record)));
                assert_eq!(seen, [Record::End]);
            }
        }
    }
}
