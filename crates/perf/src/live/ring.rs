//! Splits a kernel ring buffer into records. Pure, so that tests can read hand-written buffers with the same
//! code.

/// Bytes of a record's header: type (u32), misc (u16), size of the whole record (u16).
const HEADER: usize = 8;

/// A record as the kernel wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// `enum perf_event_type`.
    pub kind: u32,
    /// `PERF_RECORD_MISC_*`.
    pub misc: u16,
    /// What follows the header.
    pub body: &'a [u8],
}

/// Result of reading a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// The position to write to `data_tail`.
    pub tail: u64,
    /// Bytes skipped because they are no record; a kernel never leaves any.
    pub broken: u64,
}

/// Passes all records between the positions `tail` and `head` of a buffer of `size` bytes (a power of two) to `take`.
/// Positions grow without bound; a byte's offset is its position modulo `size`. `copy` copies bytes from an offset on
/// and is never asked to run over the buffer's end; `scratch` is the buffer in which a record is assembled.
///
/// The size of a record is a multiple of 8 bytes. If it is not, the rest up to `head` is skipped: without a valid
/// header the next record cannot be found.
pub fn drain(
    size: u64,
    tail: u64,
    head: u64,
    scratch: &mut Vec<u8>,
    copy: impl Fn(usize, &mut [u8]),
    mut take: impl FnMut(RawRecord<'_>),
) -> Drained {
    let available = head.wrapping_sub(tail);
    let passed_over = |at: u64| Drained {
        tail: head,
        broken: head.wrapping_sub(at),
    };
    // A head before the tail also gives a large difference.
    if available > size {
        return Drained {
            tail: head,
            broken: available.min(size),
        };
    }
    let around = |at: u64, to: &mut [u8]| {
        let start = (at % size) as usize;
        let first = to.len().min(size as usize - start);
        let (before, behind) = to.split_at_mut(first);
        copy(start, before);
        if !behind.is_empty() {
            copy(0, behind);
        }
    };
    let mut at = tail;
    while at != head {
        let remaining = head.wrapping_sub(at);
        if remaining < HEADER as u64 {
            return passed_over(at);
        }
        let mut header = [0; HEADER];
        around(at, &mut header);
        let [a, b, c, d, e, f, g, h] = header;
        let length = u16::from_ne_bytes([g, h]);
        if usize::from(length) < HEADER || length % 8 != 0 || u64::from(length) > remaining {
            return passed_over(at);
        }
        scratch.resize(usize::from(length) - HEADER, 0);
        around(at.wrapping_add(HEADER as u64), scratch);
        take(RawRecord {
            kind: u32::from_ne_bytes([a, b, c, d]),
            misc: u16::from_ne_bytes([e, f]),
            body: scratch,
        });
        at = at.wrapping_add(length.into());
    }
    Drained {
        tail: head,
        broken: 0,
    }
}
