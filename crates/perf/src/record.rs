//! Parses one kernel record into an [`Event`]: the layout that `perf_event_open(2)` describes.
//!
//! The input is untrusted: every read is bounded, and a record that is too short gives `None`. The crates for
//! perf.data also parse samples, but without `weight` and `data_src`, which this frontend needs.

use crate::data_src::DataSource;

/// Types of the records that are used here (`enum perf_event_type`).
pub mod kind {
    #![allow(missing_docs)]
    pub const MMAP: u32 = 1;
    pub const LOST: u32 = 2;
    pub const COMM: u32 = 3;
    pub const EXIT: u32 = 4;
    pub const THROTTLE: u32 = 5;
    pub const FORK: u32 = 7;
    pub const SAMPLE: u32 = 9;
    pub const MMAP2: u32 = 10;
    pub const LOST_SAMPLES: u32 = 13;
    /// Raw trace of a PMU (Arm SPE, Intel PT), written by perf itself.
    pub const AUXTRACE: u32 = 71;
}

/// Bits of `sample_type`.
mod field {
    pub const IP: u64 = 1;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const READ: u64 = 1 << 4;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const ID: u64 = 1 << 6;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const STREAM_ID: u64 = 1 << 9;
    pub const RAW: u64 = 1 << 10;
    pub const BRANCH_STACK: u64 = 1 << 11;
    pub const REGS_USER: u64 = 1 << 12;
    pub const STACK_USER: u64 = 1 << 13;
    pub const WEIGHT: u64 = 1 << 14;
    pub const DATA_SRC: u64 = 1 << 15;
    pub const IDENTIFIER: u64 = 1 << 16;
    pub const TRANSACTION: u64 = 1 << 17;
    pub const REGS_INTR: u64 = 1 << 18;
    pub const PHYS_ADDR: u64 = 1 << 19;
    pub const WEIGHT_STRUCT: u64 = 1 << 24;
}

const MISC_EXEC: u16 = 1 << 13;
/// Of a `LOST_SAMPLES`: the samples were left out by a filter (`perf record --filter`).
const MISC_FILTERED: u16 = 1 << 15;

/// The layout of an event's records, as requested in its `perf_event_attr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// `sample_type`.
    pub sample_type: u64,
    /// `read_format`.
    pub read_format: u64,
    /// `branch_sample_type`.
    pub branch_type: u64,
    /// `sample_regs_user`.
    pub regs_user: u64,
    /// `sample_regs_intr`.
    pub regs_intr: u64,
    /// Whether other records end with the sample's id fields.
    pub sample_id_all: bool,
    /// Byte order.
    pub big_endian: bool,
}

/// One sampled access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Nanoseconds of the recording's clock.
    pub time: u64,
    /// Data address, 0 if the sample has none.
    pub address: u64,
    /// Physical address, 0 where unknown.
    pub physical: u64,
    /// Number of events that this sample stands for, if recorded.
    pub period: Option<u64>,
    /// Latency in core cycles, 0 where unknown.
    pub latency: u64,
    /// What served the access, if recorded.
    pub source: Option<DataSource>,
}

/// A parsed record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An access was sampled.
    Sample(Sample),
    /// Thread `ptid` of process `ppid` created thread `tid` of process `pid`.
    #[allow(missing_docs)]
    Fork {
        pid: u32,
        ppid: u32,
        tid: u32,
        ptid: u32,
        time: u64,
    },
    /// A thread ended.
    #[allow(missing_docs)]
    Exit { tid: u32, time: u64 },
    /// A thread got a name, by `execve` or by its own request.
    #[allow(missing_docs)]
    Name {
        pid: u32,
        tid: u32,
        name: String,
        exec: bool,
        time: u64,
    },
    /// Memory was mapped.
    #[allow(missing_docs)]
    Map {
        pid: u32,
        tid: u32,
        address: u64,
        length: u64,
        offset: u64,
        /// `PROT_*`, unknown in the older record.
        protection: Option<u32>,
        /// `MAP_*`.
        flags: u32,
        file: String,
        time: u64,
    },
    /// The kernel dropped this number of records, as it happened.
    Lost(u64),
    /// An event lost this number of records, at the end: newer versions of perf write this in addition to
    /// [`Self::Lost`].
    LostInAll(u64),
    /// The kernel throttled the event because of too many interrupts.
    Throttled,
    /// A record that is not used.
    Other,
}

impl Event {
    /// Time of the event; 0 if the record has none.
    #[must_use]
    pub fn time(&self) -> u64 {
        match self {
            Self::Sample(sample) => sample.time,
            Self::Fork { time, .. }
            | Self::Exit { time, .. }
            | Self::Name { time, .. }
            | Self::Map { time, .. } => *time,
            Self::Lost(_) | Self::LostInAll(_) | Self::Throttled | Self::Other => 0,
        }
    }
}

/// A reader of bytes in a given byte order.
struct Bytes<'a> {
    rest: &'a [u8],
    big_endian: bool,
}

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(head)
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = self.take(4)?.try_into().expect("four bytes");
        Some(if self.big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }

    fn u64(&mut self) -> Option<u64> {
        let bytes = self.take(8)?.try_into().expect("eight bytes");
        Some(if self.big_endian {
            u64::from_be_bytes(bytes)
        } else {
            u64::from_le_bytes(bytes)
        })
    }

    /// Skips `count` words of eight bytes.
    fn skip_words(&mut self, count: u64) -> Option<()> {
        let length = usize::try_from(count.checked_mul(8)?).ok()?;
        self.take(length).map(|_| ())
    }

    /// Text up to its NUL; invalid UTF-8 is replaced.
    fn text(&self) -> String {
        let end = self.rest.iter().position(|&byte| byte == 0);
        String::from_utf8_lossy(&self.rest[..end.unwrap_or(self.rest.len())]).into_owned()
    }
}

impl Layout {
    fn has(&self, bit: u64) -> bool {
        self.sample_type & bit != 0
    }

    fn bytes<'a>(&self, body: &'a [u8]) -> Bytes<'a> {
        Bytes {
            rest: body,
            big_endian: self.big_endian,
        }
    }

    /// The time at the end of a record other than a sample; 0 if it has none.
    fn trailing_time(&self, body: &[u8]) -> u64 {
        if !self.sample_id_all || !self.has(field::TIME) {
            return 0;
        }
        let behind = field::TIME | field::ID | field::STREAM_ID | field::CPU | field::IDENTIFIER;
        let words = (self.sample_type & behind).count_ones() as usize;
        body.len()
            .checked_sub(words * 8)
            .and_then(|at| self.bytes(&body[at..]).u64())
            .unwrap_or(0)
    }

    /// Parses a record; `None` if it is too short for its type.
    #[must_use]
    pub fn parse(&self, kind: u32, misc: u16, body: &[u8]) -> Option<Event> {
        let mut bytes = self.bytes(body);
        Some(match kind {
            kind::SAMPLE => Event::Sample(self.sample(body)?),
            kind::FORK | kind::EXIT => {
                let (pid, ppid) = (bytes.u32()?, bytes.u32()?);
                let (tid, ptid) = (bytes.u32()?, bytes.u32()?);
                let time = bytes.u64()?;
                if kind == kind::EXIT {
                    Event::Exit { tid, time }
                } else {
                    Event::Fork {
                        pid,
                        ppid,
                        tid,
                        ptid,
                        time,
                    }
                }
            }
            kind::COMM => Event::Name {
                pid: bytes.u32()?,
                tid: bytes.u32()?,
                name: bytes.text(),
                exec: misc & MISC_EXEC != 0,
                time: self.trailing_time(body),
            },
            kind::MMAP | kind::MMAP2 => {
                let (pid, tid) = (bytes.u32()?, bytes.u32()?);
                let (address, length, offset) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
                let (mut protection, mut flags) = (None, 0);
                if kind == kind::MMAP2 {
                    // Device, inode and generation, or a build id: 24 bytes either way.
                    bytes.skip_words(3)?;
                    protection = Some(bytes.u32()?);
                    flags = bytes.u32()?;
                }
                Event::Map {
                    pid,
                    tid,
                    address,
                    length,
                    offset,
                    protection,
                    flags,
                    file: bytes.text(),
                    time: self.trailing_time(body),
                }
            }
            kind::LOST => {
                bytes.u64()?;
                Event::Lost(bytes.u64()?)
            }
            // Samples that the user's filter left out are not lost.
            kind::LOST_SAMPLES if misc & MISC_FILTERED == 0 => Event::LostInAll(bytes.u64()?),
            kind::THROTTLE => Event::Throttled,
            _ => Event::Other,
        })
    }

    /// A sample's fields, in the order in which the kernel writes them.
    fn sample(&self, body: &[u8]) -> Option<Sample> {
        let mut bytes = self.bytes(body);
        let mut sample = Sample::default();
        for bit in [field::IDENTIFIER, field::IP] {
            if self.has(bit) {
                bytes.u64()?;
            }
        }
        if self.has(field::TID) {
            sample.pid = bytes.u32()?;
            sample.tid = bytes.u32()?;
        }
        if self.has(field::TIME) {
            sample.time = bytes.u64()?;
        }
        if self.has(field::ADDR) {
            sample.address = bytes.u64()?;
        }
        for bit in [field::ID, field::STREAM_ID, field::CPU] {
            if self.has(bit) {
                bytes.u64()?;
            }
        }
        if self.has(field::PERIOD) {
            sample.period = Some(bytes.u64()?);
        }
        if self.has(field::READ) {
            self.skip_read(&mut bytes)?;
        }
        if self.has(field::CALLCHAIN) {
            let frames = bytes.u64()?;
            bytes.skip_words(frames)?;
        }
        if self.has(field::RAW) {
            let length = bytes.u32()? as usize;
            bytes.take(length)?;
        }
        if self.has(field::BRANCH_STACK) {
            self.skip_branches(&mut bytes)?;
        }
        if self.has(field::REGS_USER) && bytes.u64()? != 0 {
            bytes.skip_words(self.regs_user.count_ones().into())?;
        }
        if self.has(field::STACK_USER) {
            let length = bytes.u64()?;
            bytes.take(usize::try_from(length).ok()?)?;
            if length != 0 {
                bytes.u64()?;
            }
        }
        if self.has(field::WEIGHT) {
            sample.latency = bytes.u64()?;
        } else if self.has(field::WEIGHT_STRUCT) {
            // The low half is the latency; the other half differs between machines.
            sample.latency = bytes.u64()? & 0xffff_ffff;
        }
        if self.has(field::DATA_SRC) {
            sample.source = Some(DataSource(bytes.u64()?));
        }
        if self.has(field::TRANSACTION) {
            bytes.u64()?;
        }
        if self.has(field::REGS_INTR) && bytes.u64()? != 0 {
            bytes.skip_words(self.regs_intr.count_ones().into())?;
        }
        if self.has(field::PHYS_ADDR) {
            sample.physical = bytes.u64()?;
        }
        Some(sample)
    }

    /// Skips a `struct read_format`: one value or a group of values.
    fn skip_read(&self, bytes: &mut Bytes<'_>) -> Option<()> {
        const TIMES: u64 = 1 | 2;
        const ID_AND_LOST: u64 = 4 | 16;
        const GROUP: u64 = 8;
        let times = (self.read_format & TIMES).count_ones();
        let each = 1 + (self.read_format & ID_AND_LOST).count_ones();
        if self.read_format & GROUP == 0 {
            return bytes.skip_words(u64::from(times + each));
        }
        let values = bytes.u64()?;
        bytes.skip_words(times.into())?;
        bytes.skip_words(values.checked_mul(each.into())?)
    }

    fn skip_branches(&self, bytes: &mut Bytes<'_>) -> Option<()> {
        const HARDWARE_INDEX: u64 = 1 << 17;
        const COUNTERS: u64 = 1 << 19;
        let branches = bytes.u64()?;
        if self.branch_type & HARDWARE_INDEX != 0 {
            bytes.u64()?;
        }
        bytes.skip_words(branches.checked_mul(3)?)?;
        if self.branch_type & COUNTERS != 0 {
            bytes.skip_words(branches)?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_sample_with_everything_in_it_is_read_to_its_physical_address() {
        let layout = Layout {
            sample_type: 0x10f_ffff,
            read_format: 1 | 2 | 4 | 8 | 16,
            branch_type: 1 << 17,
            regs_user: 0b11,
            regs_intr: 0b1,
            sample_id_all: true,
            big_endian: false,
        };
        // WEIGHT and WEIGHT_STRUCT exclude each other; this one has the struct.
        let layout = Layout {
            sample_type: layout.sample_type & !(1 << 14),
            ..layout
        };
        let mut body = words(&[
            99,          // identifier
            0x401000,    // ip
            7 | 8 << 32, // pid, tid
            1_000,       // time
            0x7000_1040, // address
            99,
            1,
            0,    // id, stream, cpu
            1000, // period
            2,
            5,
            5,
            1,
            2,
            3,
            4,
            5,
            6, // read group: two values with id and lost
            1,
            0xabc, // call chain
        ]);
        body.extend(4u32.to_le_bytes());
        body.extend([1, 2, 3, 4]);
        body.extend(words(&[
            1,
            0,
            10,
            20,
            30, // one branch with a hardware index
            1,
            11,
            12, // user registers
            8,
            0x5555,
            8,               // user stack
            (7 << 32) | 310, // weights: latency 310
            0x2_6a08_0142,   // data source
            0,               // transaction
            1,
            13,            // interrupt registers
            0x1_2345_6000, // physical
        ]));
        let event = layout.parse(kind::SAMPLE, 0, &body).unwrap();
        assert_eq!(
            event,
            Event::Sample(Sample {
                pid: 7,
                tid: 8,
                time: 1_000,
                address: 0x7000_1040,
                physical: 0x1_2345_6000,
                period: Some(1000),
                latency: 310,
                source: Some(DataSource(0x2_6a08_0142)),
            })
        );
        // Cut at any length, it is refused, not misread.
        for length in 0..body.len() {
            assert_eq!(layout.parse(kind::SAMPLE, 0, &body[..length]), None);
        }
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        let chain = Layout {
            sample_type: field::CALLCHAIN,
            ..Layout::default()
        };
        assert_eq!(chain.parse(kind::SAMPLE, 0, &words(&[u64::MAX, 1])), None);
        let stack = Layout {
            sample_type: field::STACK_USER,
            ..Layout::default()
        };
        assert_eq!(stack.parse(kind::SAMPLE, 0, &words(&[u64::MAX, 1])), None);
        let group = Layout {
            sample_type: field::READ,
            read_format: 8,
            ..Layout::default()
        };
        assert_eq!(group.parse(kind::SAMPLE, 0, &words(&[u64::MAX, 1])), None);
    }

    #[test]
    fn a_name_carries_its_time_behind_the_text() {
        let layout = Layout {
            sample_type: field::TID | field::TIME,
            sample_id_all: true,
            ..Layout::default()
        };
        let mut body = words(&[5 | 6 << 32]);
        body.extend(b"worker\0\0");
        body.extend(words(&[5 | 6 << 32, 777]));
        assert_eq!(
            layout.parse(kind::COMM, MISC_EXEC, &body),
            Some(Event::Name {
                pid: 5,
                tid: 6,
                name: "worker".to_owned(),
                exec: true,
                time: 777
            })
        );
    }
}
