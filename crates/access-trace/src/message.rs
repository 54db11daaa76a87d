//! Messages of a traced process to the recorder: its identity, its threads, and their records in blocks.

use crate::numbers::{put, take};
use crate::windows::Windows;
use crate::{BLOCK_RECORDS, VERSION};

/// Size of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// Size in bytes.
    pub bytes: u64,
    /// Lines per set.
    pub ways: u64,
}

impl CacheSize {
    /// Number of sets for lines of `line` bytes.
    #[must_use]
    pub fn sets(self, line: u64) -> u64 {
        self.bytes / line / self.ways.max(1)
    }
}

/// Size and ways, such as `32K/8`.
impl std::fmt::Display for CacheSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (amount, unit) = [(1u64 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")]
            .into_iter()
            .find(|(unit, _)| self.bytes >= *unit && self.bytes.is_multiple_of(*unit))
            .map_or((self.bytes, ""), |(unit, name)| (self.bytes / unit, name));
        write!(f, "{amount}{unit}/{}", self.ways)
    }
}

/// First message of a process image: its identity, and the caches that filter its accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Process id.
    pub pid: u32,
    /// Number of the process image: 0, and one more after each `execve`.
    pub image: u32,
    /// log2 of the line size in bytes.
    pub line_shift: u32,
    /// First-level cache of each thread.
    pub l1: CacheSize,
    /// Second-level cache of each thread, which includes the first.
    pub l2: CacheSize,
    /// Stable path of the first thread.
    pub path: String,
    /// The windows, if requests outside them are left out.
    pub windows: Option<Windows>,
    /// Whether loads are marked whose address comes from another load: see [`crate::Record::after`].
    pub marks_loads: bool,
}

/// In a head of version 3: windows follow.
const HAS_WINDOWS: u64 = 1;

/// A thread begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Number in this process image.
    pub number: u32,
    /// Its clock at the start, in accesses.
    pub clock: u64,
    /// Stable path.
    pub path: String,
}

/// Consecutive records of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Number of the thread.
    pub thread: u32,
    /// Number of the first record among all of the thread, from 0.
    pub first: u64,
    /// Number of records.
    pub count: u32,
    /// The thread's clock before the first record.
    pub clock: u64,
    /// Accesses since the previous block.
    pub accesses: u64,
    /// Hits in the first-level cache; an access to two lines counts twice.
    pub l1_hits: u64,
    /// Hits in the second-level cache.
    pub l2_hits: u64,
    /// Misses of lines that another thread had written since they were fetched.
    pub coherence_misses: u64,
}

/// Pages of 4 KiB of memory that processes share, which an earlier process image has mapped too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedPages {
    /// First page, counted from address 0 of this process image.
    pub first: u64,
    /// Number of pages; at least one.
    pub pages: u64,
    /// What the first page is, as the profile numbers pages: with the offset of its process image.
    pub known_as: u64,
}

impl SharedPages {
    /// log2 of the bytes of a page.
    pub const SHIFT: u32 = 12;
    /// Largest number of ranges of a message, so that it is shorter than a reader accepts.
    pub const MOST: usize = 1 << 14;

    /// Whether all addresses fit into 64 bits.
    fn is_valid(self) -> bool {
        let fits = |first: u64| {
            first
                .checked_add(self.pages)
                .is_some_and(|end| end <= 1 << (64 - Self::SHIFT))
        };
        self.pages > 0 && fits(self.first) && fits(self.known_as)
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// The process begins.
    Head(Head),
    /// A thread begins.
    Thread(Thread),
    /// A block and its columns.
    Block(Block, &'a [u8]),
    /// The trace ended before the process: the reason.
    Cut(String),
    /// The process ended.
    End,
    /// Written by the recorder when all processes have ended: what other process images have mapped too. Each range
    /// begins behind the one before, also behind that of a message before.
    Shared(Vec<SharedPages>),
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

impl Message<'_> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let numbers = |out: &mut Vec<u8>, values: &[u64]| {
            for &value in values {
                put(out, value);
            }
        };
        match self {
            Self::Head(head) => {
                out.push(1);
                numbers(
                    out,
                    &[
                        match (head.marks_loads, head.windows) {
                            (true, _) => VERSION,
                            (false, Some(_)) => 2,
                            (false, None) => 1,
                        },
                        head.pid.into(),
                        head.image.into(),
                        head.line_shift.into(),
                        head.l1.bytes,
                        head.l1.ways,
                        head.l2.bytes,
                        head.l2.ways,
                    ],
                );
                put_text(out, &head.path);
                if head.marks_loads {
                    put(
                        out,
                        if head.windows.is_some() {
                            HAS_WINDOWS
                        } else {
                            0
                        },
                    );
                }
                if let Some(windows) = head.windows {
                    let values = [windows.share_ppm, windows.warm_lines];
                    numbers(out, &values.map(u64::from));
                }
            }
            Self::Thread(thread) => {
                out.push(2);
                numbers(out, &[thread.number.into(), thread.clock]);
                put_text(out, &thread.path);
            }
            Self::Block(block, columns) => {
                out.push(3);
                numbers(
                    out,
                    &[
                        block.thread.into(),
                        block.first,
                        block.count.into(),
                        block.clock,
                        block.accesses,
                        block.l1_hits,
                        block.l2_hits,
                        block.coherence_misses,
                    ],
                );
                out.extend_from_slice(columns);
            }
            Self::Cut(why) => {
                out.push(4);
                put_text(out, why);
            }
            Self::End => out.push(5),
            Self::Shared(ranges) => {
                out.push(6);
                for range in ranges {
                    numbers(out, &[range.first, range.pages, range.known_as]);
                }
            }
        }
    }
}

/// Why a message cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Written by another version.
    Version(u64),
    /// Not written by [`Message::encode`].
    Damaged,
}

impl<'a> Message<'a> {
    /// Decodes a message; the columns of a block are not read.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Unreadable> {
        let (&kind, mut rest) = bytes.split_first().ok_or(Unreadable::Damaged)?;
        let rest = &mut rest;
        let mut version = VERSION;
        if kind == 1 {
            version = take(rest).ok_or(Unreadable::Damaged)?;
            if !(1..=VERSION).contains(&version) {
                return Err(Unreadable::Version(version));
            }
        }
        let message = match kind {
            1 => head(rest, version).map(Self::Head),
            2 => thread(rest).map(Self::Thread),
            3 => block(rest).map(|block| Self::Block(block, rest)),
            4 => text(rest).map(Self::Cut),
            5 => Some(Self::End),
            6 => shared(rest).map(Self::Shared),
            _ => None,
        };
        message.ok_or(Unreadable::Damaged)
    }
}

fn small(rest: &mut &[u8]) -> Option<u32> {
    take(rest)?.try_into().ok()
}

fn text(rest: &mut &[u8]) -> Option<String> {
    let length = usize::try_from(take(rest)?).ok()?;
    let (text, after) = rest.split_at_checked(length)?;
    *rest = after;
    String::from_utf8(text.to_vec()).ok()
}

fn cache(rest: &mut &[u8]) -> Option<CacheSize> {
    let (bytes, ways) = (take(rest)?, take(rest)?);
    (ways > 0).then_some(CacheSize { bytes, ways })
}

fn windows(rest: &mut &[u8]) -> Option<Windows> {
    let found = Windows {
        share_ppm: small(rest)?,
        warm_lines: small(rest)?,
    };
    found.is_valid().then_some(found)
}

fn head(rest: &mut &[u8], version: u64) -> Option<Head> {
    let mut head = Head {
        pid: small(rest)?,
        image: small(rest)?,
        line_shift: small(rest).filter(|shift| (3..20).contains(shift))?,
        l1: cache(rest)?,
        l2: cache(rest)?,
        path: text(rest)?,
        windows: None,
        marks_loads: version > 2,
    };
    let has_windows = match version {
        1 => false,
        2 => true,
        _ => match take(rest)? {
            0 => false,
            HAS_WINDOWS => true,
            _ => return None,
        },
    };
    if has_windows {
        head.windows = Some(windows(rest)?);
    }
    Some(head)
}

fn thread(rest: &mut &[u8]) -> Option<Thread> {
    Some(Thread {
        number: small(rest)?,
        clock: take(rest)?,
        path: text(rest)?,
    })
}

fn block(rest: &mut &[u8]) -> Option<Block> {
    Some(Block {
        thread: small(rest)?,
        first: take(rest)?,
        count: small(rest).filter(|&count| count as usize <= BLOCK_RECORDS)?,
        clock: take(rest)?,
        accesses: take(rest)?,
        l1_hits: take(rest)?,
        l2_hits: take(rest)?,
        coherence_misses: take(rest)?,
    })
}

fn shared(rest: &mut &[u8]) -> Option<Vec<SharedPages>> {
    let mut ranges = Vec::new();
    let mut behind = 0;
    while !rest.is_empty() {
        let range = SharedPages {
            first: take(rest)?,
            pages: take(rest)?,
            known_as: take(rest)?,
        };
        if !range.is_valid() || range.first < behind {
            return None;
        }
        behind = range.first + range.pages;
        ranges.push(range);
    }
    Some(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn messages() -> Vec<Message<'static>> {
        vec![
            Message::Head(Head {
                pid: 7,
                image: 1,
                line_shift: 6,
                l1: CacheSize {
                    bytes: 32 << 10,
                    ways: 8,
                },
                l2: CacheSize {
                    bytes: 1 << 20,
                    ways: 16,
                },
                path: "0/1".into(),
                windows: None,
                marks_loads: false,
            }),
            Message::Head(Head {
                pid: 7,
                image: 0,
                line_shift: 6,
                l1: CacheSize { bytes: 64, ways: 1 },
                l2: CacheSize { bytes: 64, ways: 1 },
                path: "0".into(),
                windows: Some(Windows {
                    share_ppm: 10_000,
                    warm_lines: 1 << 15,
                }),
                marks_loads: false,
            }),
            Message::Thread(Thread {
                number: 3,
                clock: u64::MAX,
                path: "0.3".into(),
            }),
            Message::Block(
                Block {
                    thread: 3,
                    first: 1 << 40,
                    count: 2,
                    clock: 9,
                    accesses: 70,
                    l1_hits: 60,
                    ..Block::default()
                },
                &[1, 2, 3],
            ),
            Message::Cut("full".into()),
            Message::End,
            Message::Shared(vec![
                SharedPages {
                    first: 3,
                    pages: 2,
                    known_as: 9,
                },
                SharedPages {
                    first: 5,
                    pages: 1 << 30,
                    known_as: 1 << 40,
                },
            ]),
        ]
    }

    fn bytes_of(message: &Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        bytes
    }

    #[test]
    fn messages_come_back() {
        for message in messages() {
            assert_eq!(Message::decode(&bytes_of(&message)), Ok(message));
        }
    }

    #[test]
    fn a_head_with_marked_loads_is_of_version_3() {
        for message in &messages()[..2] {
            let Message::Head(head) = message else {
                panic!("{message:?}")
            };
            let marked = Message::Head(Head {
                marks_loads: true,
                ..head.clone()
            });
            let bytes = bytes_of(&marked);
            assert_eq!(bytes[1], 3);
            assert_eq!(Message::decode(&bytes), Ok(marked));
            assert_eq!(
                Message::decode(&bytes[..bytes.len() - 1]),
                Err(Unreadable::Damaged)
            );
        }
    }

    #[test]
    fn an_error_names_the_other_version() {
        let mut bytes = bytes_of(&messages()[0]);
        bytes[1] = 9;
        assert_eq!(Message::decode(&bytes), Err(Unreadable::Version(9)));
    }

    #[test]
    fn a_head_without_windows_is_of_version_1_and_impossible_windows_are_refused() {
        let [plain, windowed] = [0, 1].map(|which| bytes_of(&messages()[which]));
        assert_eq!((plain[1], windowed[1]), (1, 2));
        // No share.
        let at = windowed.len() - 5;
        let mut none = windowed.clone();
        none.splice(at..at + 2, [0]);
        assert_eq!(Message::decode(&none), Err(Unreadable::Damaged));
        assert_eq!(Message::decode(&windowed[..at]), Err(Unreadable::Damaged));
    }

    #[test]
    fn ranges_that_overlap_or_leave_the_address_space_are_refused() {
        let range = |first, pages, known_as| SharedPages {
            first,
            pages,
            known_as,
        };
        for ranges in [
            vec![range(3, 2, 0), range(4, 1, 10)],
            vec![range(3, 2, 0), range(1, 1, 10)],
            vec![range(3, 0, 0)],
            vec![range((1 << 52) - 1, 2, 0)],
            vec![range(0, u64::MAX, 0)],
            vec![range(0, 2, (1 << 52) - 1)],
        ] {
            let bytes = bytes_of(&Message::Shared(ranges.clone()));
            assert_eq!(
                Message::decode(&bytes),
                Err(Unreadable::Damaged),
                "{ranges:?}"
            );
        }
    }

    #[test]
    fn sizes_are_shown_as_they_are_given() {
        let shown = |bytes, ways| CacheSize { bytes, ways }.to_string();
        assert_eq!(shown(32 << 10, 8), "32K/8");
        assert_eq!(shown(3 << 19, 12), "1536K/12");
        assert_eq!(shown(1 << 20, 16), "1M/16");
        assert_eq!(shown(100, 1), "100/1");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(which in 0usize..7, at: proptest::sample::Index, byte: u8, cut: proptest::sample::Index) {
            let mut bytes = bytes_of(&messages()[which]);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let cut = cut.index(bytes.len() + 1);
            let _ = Message::decode(&bytes[..cut]);
        }
    }
}
