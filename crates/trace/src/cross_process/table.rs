//! The cross-process table: a sparse memory file, mapped by every process of the recording.
//!
//! | from | what |
//! |---|---|
//! | 0 | magic, nonce, number of threads so far, number of objects mapped to be written so far |
//! | [`WRITABLE_AT`] | a bit for each object: whether a process has mapped it to be written |
//! | [`ENDED_AT`] | clocks of processes that have ended, by their numbers |
//! | [`OBJECTS_AT`] | objects: digests of backings; the index of the slot is the object's number |
//! | [`CHUNKS_AT`] | chunks of objects in use; the index of the slot is the chunk's index in what follows |
//! | [`HEADER`] | a word for each line ([`crate::line`]) |
//! | | masks of the bytes written in the line's present tenure ([`crate::sharing`]) |
//! | | clocks of words used for synchronisation |
//! | | reader bits beyond the word, in groups of 64 readers ([`crate::readers`]) |
//!
//! A slot is taken by one compare-and-swap and never released, so a process that is killed leaves nothing half-done
//! and no lock held. Parts that are never touched take no memory.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use numaloc_journal::settings::Place;

use crate::cross_process::Backing;

const MAGIC: u64 = u64::from_le_bytes(*b"NLCOMMN1");
const WRITABLE_AT: usize = 1 << 16;
const ENDED_AT: usize = 1 << 19;
/// Processes whose numbers differ by this many share a clock.
const ENDED: usize = 1 << 16;
const OBJECTS_AT: usize = 1 << 20;
const OBJECTS: usize = 1 << 16;
const CHUNKS_AT: usize = 2 << 20;
/// Chunks that can be in use: 128 GiB of shared memory.
const CHUNKS: usize = 1 << 16;
/// log2 of the size of a chunk in bytes.
const CHUNK_SHIFT: u32 = 21;
const HEADER: usize = 4 << 20;
/// log2 of the bytes that share one synchronisation clock.
const CLOCK_SHIFT: u32 = 2;
/// Groups of 64 readers.
const GROUPS: usize = 66;
/// Size in bytes: enough for any line size.
const FILE_SIZE: i64 = 1 << 45;

/// The recorder's side: keeps the table alive.
#[derive(Debug)]
pub struct Board {
    file: File,
    nonce: u64,
}

impl Board {
    /// Creates an empty table.
    ///
    /// # Errors
    /// The system's error. An error of its own under a limit of file sizes (`ulimit -f`), which applies to memory
    /// files too.
    pub fn create() -> std::io::Result<Self> {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the call fills the structure it is given.
        unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
        if limit.rlim_cur < FILE_SIZE as u64 {
            return Err(std::io::Error::other("file sizes are limited (ulimit -f)"));
        }
        // SAFETY: a constant name; the descriptor is new and ours.
        let file = unsafe {
            let descriptor = libc::memfd_create(c"numaloc-common".as_ptr(), libc::MFD_CLOEXEC);
            if descriptor < 0 {
                return Err(std::io::Error::last_os_error());
            }
            File::from(OwnedFd::from_raw_fd(descriptor))
        };
        file.set_len(FILE_SIZE as u64)?;
        let nonce = crate::time::monotonic_ns() << 20 | u64::from(std::process::id() & 0xf_ffff);
        file.write_all_at(&MAGIC.to_le_bytes(), 0)?;
        file.write_all_at(&nonce.to_le_bytes(), 8)?;
        Ok(Self { file, nonce })
    }

    /// Keeps the table open when the process executes another program, under a number that the program hardly uses.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn inherited(self) -> std::io::Result<Self> {
        let board = self.out_of_the_way();
        board.pass_on(true);
        Ok(board)
    }

    /// The same table under a number that a program hardly uses.
    #[must_use]
    pub fn out_of_the_way(self) -> Self {
        let file = File::from(numaloc_journal::out_of_the_way(self.file.into()));
        Self { file, ..self }
    }

    /// Whether processes that are started inherit the table.
    pub fn pass_on(&self, passed: bool) {
        numaloc_journal::descriptors::pass_on(self.file.as_raw_fd(), passed);
    }

    /// Keeps the table open until the process ends.
    pub(crate) fn keep(self) {
        let _ = self.file.into_raw_fd();
    }

    /// The value for [`crate::Config::cross_process`].
    #[must_use]
    pub fn place(&self) -> Place {
        Place {
            pid: std::process::id(),
            descriptor: self.file.as_raw_fd() as u32,
            nonce: self.nonce,
        }
    }
}

/// The table as mapped by a process.
#[derive(Clone, Copy)]
pub(crate) struct Table {
    base: *mut AtomicU64,
    line_shift: u32,
}

// SAFETY: the table is an array of atomics that is never unmapped; every access goes through them.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

/// Whether a file is the table with this number.
fn is_table(file: &File, nonce: u64) -> bool {
    let mut head = [0; 16];
    let read = file.read_exact_at(&mut head, 0);
    read.is_ok() && head == *[MAGIC.to_le_bytes(), nonce.to_le_bytes()].as_flattened()
}

/// Index of a line in the table.
#[derive(Clone, Copy)]
pub(crate) struct Line {
    index: usize,
}

impl Table {
    /// Maps the table at `place`: by the descriptor that this process has inherited, or else as the other process has
    /// it open, which this one may not see any more.
    pub fn open(place: Place, line_shift: u32) -> std::io::Result<Self> {
        // SAFETY: only read, and not closed; it may be a file of the program, or none.
        let inherited = unsafe { File::from_raw_fd(place.descriptor as RawFd) };
        let inherited = ManuallyDrop::new(inherited);
        if is_table(&inherited, place.nonce) {
            return Self::map(&inherited, line_shift);
        }
        let path = format!("/proc/{}/fd/{}", place.pid, place.descriptor);
        let file = File::options().read(true).write(true).open(path)?;
        match is_table(&file, place.nonce) {
            true => Self::map(&file, line_shift),
            false => Err(std::io::Error::other("it is another file")),
        }
    }

    fn map(file: &File, line_shift: u32) -> std::io::Result<Self> {
        Ok(Self {
            base: crate::reservation::reserve(
                Self::words(line_shift) as u64,
                Some(file.as_raw_fd()),
            )?,
            line_shift,
        })
    }

    /// Number of lines in all chunks.
    #[inline(always)]
    fn lines(line_shift: u32) -> usize {
        CHUNKS << (CHUNK_SHIFT - line_shift)
    }

    #[inline(always)]
    fn words(line_shift: u32) -> usize {
        HEADER / 8
            + (2 + GROUPS) * Self::lines(line_shift)
            + (CHUNKS << (CHUNK_SHIFT - CLOCK_SHIFT))
    }

    fn at(&self, index: usize) -> &'static AtomicU64 {
        self.found(index).expect("an index in the table")
    }

    /// The word with an index, if the table has it.
    #[inline(always)]
    fn found(&self, index: usize) -> Option<&'static AtomicU64> {
        if index >= Self::words(self.line_shift) {
            return None;
        }
        // SAFETY: the index was just checked, and the mapping lives as long as the process.
        Some(unsafe { &*self.base.add(index) })
    }

    /// The slot for `key` among `count` slots from index `first` on, taken if there was none; `None` if all are taken.
    fn slot(&self, first: usize, count: usize, key: u64) -> Option<usize> {
        let start = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 48;
        (0..count).map(|step| (start + step) % count).find(|slot| {
            let word = self.at(first + slot);
            match word.load(Relaxed) {
                0 => match word.compare_exchange(0, key, Relaxed, Relaxed) {
                    Ok(_) => true,
                    Err(found) => found == key,
                },
                found => found == key,
            }
        })
    }

    /// The number of the object with this backing; `None` if the table is full.
    pub fn object(&self, backing: &Backing) -> Option<u32> {
        self.slot(OBJECTS_AT / 8, OBJECTS, backing.digest())
            .map(|slot| slot as u32)
    }

    /// The word with an object's bit, and the bit.
    fn writable(&self, object: u32) -> (&'static AtomicU64, u64) {
        let word = self.at(WRITABLE_AT / 8 + object as usize / 64);
        (word, 1 << (object % 64))
    }

    /// A process maps an object to be written.
    pub fn will_be_written(&self, object: u32) {
        let (word, bit) = self.writable(object);
        if word.fetch_or(bit, Relaxed) & bit == 0 {
            self.at(3).fetch_add(1, Release);
        }
    }

    /// Whether a process has mapped an object to be written.
    pub fn may_be_written(&self, object: u32) -> bool {
        let (word, bit) = self.writable(object);
        word.load(Relaxed) & bit != 0
    }

    /// A number that changes when another object may be written.
    pub fn changes(&self) -> u64 {
        self.at(3).load(Acquire)
    }

    /// The chunk that holds byte `offset` of an object; `None` if the table is full.
    pub fn chunk(&self, object: u32, offset: u64) -> Option<u32> {
        let key = (u64::from(object) << 44) + (offset >> CHUNK_SHIFT) + 1;
        self.slot(CHUNKS_AT / 8, CHUNKS, key)
            .map(|slot| slot as u32)
    }

    /// A number for a new thread.
    pub fn number_thread(&self) -> u64 {
        self.at(2).fetch_add(1, Relaxed)
    }

    /// The line of a chunk that holds byte `offset` of its object.
    #[inline(always)]
    pub fn line(&self, chunk: u32, offset: u64) -> Line {
        let within = offset & ((1 << CHUNK_SHIFT) - 1);
        Line {
            index: ((chunk as usize) << (CHUNK_SHIFT - self.line_shift))
                + (within >> self.line_shift) as usize,
        }
    }

    /// [`Table::word`], if the table has the line. Calls nothing.
    #[inline(always)]
    pub fn found_word(&self, line: Line) -> Option<&'static AtomicU64> {
        self.found(HEADER / 8 + line.index)
    }

    /// [`Table::written`], if the table has the line. Calls nothing.
    #[inline(always)]
    pub fn found_written(&self, line: Line) -> Option<&'static AtomicU64> {
        self.found(HEADER / 8 + Self::lines(self.line_shift) + line.index)
    }

    /// A line's word.
    pub fn word(&self, line: Line) -> &'static AtomicU64 {
        self.found_word(line).expect("a line of the table")
    }

    /// Mask of the bytes written in a line's present tenure.
    pub fn written(&self, line: Line) -> &'static AtomicU64 {
        self.found_written(line).expect("a line of the table")
    }

    /// The clock of the word at byte `offset` of an object.
    pub fn clock(&self, chunk: u32, offset: u64) -> &'static AtomicU64 {
        let within = offset & ((1 << CHUNK_SHIFT) - 1);
        let index =
            ((chunk as usize) << (CHUNK_SHIFT - CLOCK_SHIFT)) + (within >> CLOCK_SHIFT) as usize;
        self.at(HEADER / 8 + 2 * Self::lines(self.line_shift) + index)
    }

    /// The clock of the latest thread of process `pid` that has ended.
    pub fn ended(&self, pid: u32) -> &'static AtomicU64 {
        self.at(ENDED_AT / 8 + pid as usize % ENDED)
    }

    fn readers(&self, line: Line, group: usize) -> &'static AtomicU64 {
        let clocks = CHUNKS << (CHUNK_SHIFT - CLOCK_SHIFT);
        let lines = Self::lines(self.line_shift);
        self.at(HEADER / 8 + (2 + group) * lines + clocks + line.index)
    }

    /// Marks a line as read by a thread without a bit in the word; returns whether it was not marked before. Threads
    /// beyond the groups share bits.
    pub fn mark(&self, line: Line, number: u32) -> bool {
        let word = self.readers(line, number as usize / 64 % GROUPS);
        let bit = 1u64 << (number % 64);
        word.load(Relaxed) & bit == 0 && word.fetch_or(bit, Relaxed) & bit == 0
    }

    /// Clears the readers beyond the word of a line.
    pub fn reset(&self, line: Line) {
        let given = self.at(2).load(Relaxed) as usize;
        for group in 0..given.div_ceil(64).min(GROUPS) {
            let word = self.readers(line, group);
            if word.load(Relaxed) != 0 {
                word.store(0, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_views_of_a_table_agree_and_another_file_is_refused() {
        let board = Board::create().unwrap();
        let [a, b] = [6, 6].map(|shift| Table::open(board.place(), shift).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let backing = |name: &str| {
            let path = folder.path().join(name);
            let file = File::create(path).unwrap();
            Backing::of_file(file.as_raw_fd(), 0).unwrap()
        };
        let (one, two) = (backing("one"), backing("two"));
        let object = a.object(&one).unwrap();
        assert_eq!(b.object(&one), Some(object));
        assert_ne!(b.object(&two), Some(object));
        let chunk = a.chunk(object, 5 << CHUNK_SHIFT).unwrap();
        assert_eq!(b.chunk(object, (5 << CHUNK_SHIFT) + 7), Some(chunk));
        assert_ne!(b.chunk(object, 4 << CHUNK_SHIFT), Some(chunk));
        a.word(a.line(chunk, 64)).store(9, Relaxed);
        assert_eq!(b.word(b.line(chunk, 127)).load(Relaxed), 9);
        assert_eq!(b.word(b.line(chunk, 128)).load(Relaxed), 0);
        assert_eq!((a.number_thread(), b.number_thread()), (0, 1));
        assert!(a.mark(a.line(chunk, 0), 100));
        assert!(!b.mark(b.line(chunk, 0), 100));
        let place = Place {
            nonce: 1,
            ..board.place()
        };
        assert!(Table::open(place, 6).is_err());
        // The last words of each part are mapped.
        let last = a.line(CHUNKS as u32 - 1, (1 << CHUNK_SHIFT) - 1);
        a.readers(last, GROUPS - 1).store(1, Relaxed);
        a.clock(CHUNKS as u32 - 1, (1 << CHUNK_SHIFT) - 1)
            .store(1, Relaxed);
        a.written(last).store(1, Relaxed);
        assert_eq!(a.word(last).load(Relaxed), 0);
    }

    #[test]
    fn tables_of_any_line_size_fit_the_file() {
        for shift in 3..=12 {
            assert!(Table::words(shift) as i64 * 8 <= FILE_SIZE, "{shift}");
        }
    }
}
