//! Lines of memory that processes share, where an access changes nothing in the cross-process table but bytes written.

use std::sync::atomic::Ordering::Relaxed;

use super::super::{LINE, ThreadTracer};
use crate::line;
use crate::memory::Detail;

impl ThreadTracer {
    /// Whether a load of `size` bytes from a line that processes share is no event and decides none:
    /// [`ThreadTracer::read_cross_process`].
    #[inline(always)]
    pub(super) fn is_quiet_across(&self, address: u64, size: u32) -> bool {
        let Some((word, written, mine)) = self.found_across(address) else {
            return false;
        };
        let word = word.load(Relaxed);
        if word & (line::SYNC | line::EXTENDED) != 0 || self.engine.config.consecutive {
            return false;
        }
        let writer = line::writer(word);
        let used = || word & line::FULL != 0 || written.load(Relaxed) & bytes(address, size) != 0;
        writer == 0
            || writer == line::writer(mine)
            || word & mine & line::ALL_READERS != 0 && (word & line::TRACKED == 0 || !used())
    }

    /// Records a store to a line that processes share, which this thread has written last:
    /// [`ThreadTracer::write_cross_process`].
    #[inline(always)]
    pub(super) fn light_rewrite_across(&mut self, address: u64, size: u32) -> bool {
        let Some((word, written, mine)) = self.found_across(address) else {
            return false;
        };
        let word = word.load(Relaxed);
        let tracked = word & line::TRACKED;
        if word != mine | tracked || self.engine.config.consecutive {
            return false;
        }
        if tracked != 0 && self.engine.budget.keeps(Detail::FalseSharing) {
            let before = written.load(Relaxed);
            written.store(before | bytes(address, size), Relaxed);
        }
        true
    }
}

/// Mask bits of the bytes of a line of the usual size.
#[inline(always)]
fn bytes(address: u64, size: u32) -> u64 {
    (u64::MAX >> (LINE - u64::from(size))) << (address & (LINE - 1))
}
