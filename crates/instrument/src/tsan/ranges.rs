//! Ranges of bytes that are read or written word by word.

use std::ffi::c_void;

use numaloc_trace::block::REGISTERS;
use numaloc_trace::thread::{Loop, WORD, When};

use crate::current;

/// Size in bytes from which a range is recorded as a loop over its words.
const LONG: u64 = 128;

/// Records accesses to `size` bytes from `address`, word by word.
pub(crate) fn range<const WRITE: bool>(address: *const c_void, size: usize) {
    current::with(|tracer| {
        let (mut at, end) = (address as u64, (address as u64).saturating_add(size as u64));
        while at < end {
            let words = (end - at) / WORD;
            if at % WORD == 0 && words * WORD >= LONG {
                let mut registers = [0; REGISTERS];
                registers[0] = at;
                tracer.recorded_loop(Loop::over_words(WRITE), &registers, words, When::Before);
                at += words * WORD;
                continue;
            }
            // Up to the next word boundary, so that no piece crosses a line or page.
            let piece = (WORD - at % WORD).min(end - at);
            tracer.access::<WRITE, false>(at, piece as u32);
            at += piece;
        }
    });
}
