//! Reads the numbers and strings that records consist of, from bytes that may be damaged.

use crate::SPACE_SHIFT;

/// Reads LEB128 numbers and strings from a payload; `None` at its end or for an impossible value.
pub(crate) struct Decoder<'a>(pub(crate) &'a [u8]);

impl Decoder<'_> {
    pub(crate) fn number(&mut self) -> Option<u64> {
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

    /// Reads a page number as its difference from `last`; `None` above what a process can have ([`SPACE_SHIFT`]).
    pub(crate) fn page(&mut self, last: &mut u64) -> Option<u64> {
        let next = last.checked_add(self.number()?);
        *last = next.filter(|page| page >> SPACE_SHIFT == 0)?;
        Some(*last)
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    pub(crate) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let count = usize::try_from(self.number()?).ok()?;
        // An item takes at least one byte: a count beyond the payload is damage, not a reason to allocate.
        if count > self.0.len() {
            return None;
        }
        let mut items: Vec<T> = (0..count).map(|_| item(self)).collect::<Option<_>>()?;
        // Collected one by one: a list keeps up to twice its size.
        items.shrink_to_fit();
        Some(items)
    }
}
