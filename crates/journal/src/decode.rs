//! Decodes records from bytes that may be damaged.

use super::Record;
use crate::SPACE_SHIFT;

/// Reads LEB128 numbers and strings from a payload; `None` at its end or for an impossible value.
pub(super) struct Decoder<'a>(pub(super) &'a [u8]);

impl Decoder<'_> {
    fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    /// Reads a page number as its difference from `last`; `None` above what a process can have ([`SPACE_SHIFT`]).
    fn page(&mut self, last: &mut u64) -> Option<u64> {
        let next = last.checked_add(self.number()?);
        *last = next.filter(|page| page >> SPACE_SHIFT == 0)?;
        Some(*last)
    }

    /// Reads a share in millionths, which is not 0.
    fn share(&mut self) -> Option<u32> {
        self.small().filter(|share| (1..=1_000_000).contains(share))
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = usize::try_from(self.number()?).ok()?;
        // An item takes at least one byte: a count beyond the payload is damage, not a reason to allocate.
        if count > self.0.len() {
            return None;
        }
        (0..count).map(|_| item(self)).collect()
    }

    /// Decodes the next record; `None` for anything that no writer produces.
    pub(super) fn record(&mut self) -> Option<Record> {
        Some(match self.number()? {
            1 => Record::Process {
                version: self.number()?,
                pid: self.small()?,
                path: self.text()?,
                image: self.small()?,
                frontend: self.text()?,
                virtual_clock: self.number()? != 0,
                line_shift: self.small().filter(|&shift| shift < 20)?,
                time_share_ppm: self.share()?,
                line_share_ppm: self.share()?,
                program: self.text()?,
            },
            2 => Record::ThreadStart {
                thread: self.small()?,
                path: self.text()?,
                tid: self.small()?,
                time: self.number()?,
                routine: self.number()?,
            },
            3 => Record::ThreadTotals {
                thread: self.small()?,
                time: self.number()?,
                accesses: self.number()?,
                seen: self.number()?,
                read_bytes: self.number()?,
                write_bytes: self.number()?,
            },
            4 => Record::Comm {
                thread: self.small()?,
                layer: u8::try_from(self.number()?).ok()?,
                start: self.number()?,
                length: self.number().filter(|&length| length > 0)?,
                cells: self.list(|from| Some((from.small()?, from.number()?, from.number()?)))?,
            },
            5 => Record::Pages {
                thread: self.small()?,
                start: self.number()?,
                length: self.number().filter(|&length| length > 0)?,
                cells: {
                    let mut last = 0u64;
                    self.list(|from| Some((from.page(&mut last)?, from.number()?, from.number()?)))?
                },
            },
            6 => Record::FirstTouch {
                thread: self.small()?,
                cells: self.list(|from| Some((from.page(&mut 0)?, from.number()?)))?,
            },
            7 => Record::Map {
                sequence: self.number()?,
                thread: self.small()?,
                address: self.number()?,
                length: self.number()?,
                protection: self.number()?,
                flags: self.number()?,
                file: self.text()?,
                offset: self.number()?,
                moved_from: self.number()?,
            },
            8 => Record::Unmap {
                sequence: self.number()?,
                address: self.number()?,
                length: self.number()?,
            },
            9 => Record::Break {
                sequence: self.number()?,
                address: self.number()?,
            },
            10 => Record::Stack {
                sequence: self.number()?,
                path: self.text()?,
                pointer: self.number()?,
            },
            11 => Record::Image {
                file: self.text()?,
                start: self.number()?,
                end: self.number()?,
            },
            12 => Record::Note(self.text()?),
            13 => Record::End,
            14 => Record::Lines {
                thread: self.small()?,
                start: self.number()?,
                length: self.number().filter(|&length| length > 0)?,
                lines: {
                    let mut last = 0u64;
                    self.list(|from| {
                        last = last.wrapping_add(from.number()?);
                        Some(last)
                    })?
                },
            },
            15 => Record::SharedLines(
                self.list(|from| Some((from.number()?, from.number()?, from.number()?)))?,
            ),
            17 => Record::Reduced(self.text()?),
            16 => Record::Groups {
                thread: self.small()?,
                layer: u8::try_from(self.number()?).ok()?,
                src: self.small()?,
                counts: self.list(Decoder::number)?,
            },
            18 => Record::Backing {
                sequence: self.number()?,
                address: self.number()?,
                length: self.number()?,
                object: self.small()?,
                offset: self.number()?,
            },
            19 => Record::CrossProcessNumber {
                thread: self.small()?,
                number: self.small()?,
            },
            32 => Record::ThreadName {
                thread: self.small()?,
                name: self.text()?,
            },
            33 => Record::Sharing(self.text()?),
            30 => Record::Site {
                site: self.small()?,
                frames: self.list(Decoder::number)?,
            },
            31 => Record::Block {
                sequence: self.number()?,
                thread: self.small()?,
                address: self.number()?,
                length: self.number()?,
                site: self.small()?,
            },
            _ => return None,
        })
    }
}
