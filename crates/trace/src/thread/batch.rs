//! Accesses of a thread that are recorded together, and those that are pending.

use super::{ThreadTracer, loops, runs, strings};
use crate::line;

/// What a thread has counted but not recorded yet.
pub(super) struct Batch {
    /// Accesses of a block may be counted together.
    pub possible: bool,
    /// Accesses are pending: a run, string words or prerecorded loads ([`ThreadTracer::flush_pending`]).
    pub pending: bool,
    pub run: runs::Run,
    /// Bytes loaded, and stored, by string instructions in their current word.
    pub strings: [strings::Piece; 2],
    /// Loads from synchronisation lines that were recorded before they were made.
    pub prerecorded: Vec<(u64, u32)>,
    /// Loads are being recorded before they are made.
    pub prerecording: bool,
    /// The loop being recorded: see [`loops`].
    pub predicted: loops::Predicted,
}

impl Batch {
    /// Nothing pending.
    pub fn new(possible: bool) -> Self {
        Self {
            possible,
            pending: false,
            run: runs::Run::none(),
            strings: Default::default(),
            prerecorded: Vec::new(),
            prerecording: false,
            predicted: loops::Predicted::Nothing,
        }
    }
}

impl ThreadTracer {
    /// Records what is pending, before the thread does anything else.
    #[inline(always)]
    pub fn flush_pending(&mut self) {
        if self.batch.pending {
            self.flush_pending_now();
        }
    }

    /// Records what is pending, for frontends whose code counts accesses without [`super::fast::layout::THRESHOLD`].
    /// Loads that are not made yet remain pending: such code may count others before them.
    pub fn flush_made(&mut self) {
        if self.batch.prerecorded.is_empty() {
            self.flush_pending();
        }
    }

    #[inline(never)]
    extern "C" fn flush_pending_now(&mut self) {
        self.batch.pending = false;
        self.reset_threshold();
        self.flush_run();
        self.flush_strings();
        for (address, size) in std::mem::take(&mut self.batch.prerecorded) {
            let word = self.lines.word(address);
            if line::is_cross_process(word.load(std::sync::atomic::Ordering::Relaxed)) {
                self.read_cross_process::<false>(address, size);
            } else {
                self.acquire(address);
                self.line::<false, false>(address, size);
            }
        }
    }

    /// Makes every access flush what is pending first: no access may overtake it.
    #[inline(always)]
    pub(super) fn set_pending(&mut self) {
        self.fast.threshold = u64::MAX;
        self.batch.pending = true;
    }

    /// Notes a load from a synchronisation line that is recorded before it is made.
    #[cold]
    pub(super) fn prerecord(&mut self, address: u64, size: u32) {
        self.batch.prerecorded.push((address, size));
        self.set_pending();
    }

    /// Whether `accesses` may be added now: nothing is pending, and the quantum does not end.
    #[inline(always)]
    pub(super) fn has_room(&self, accesses: u64) -> bool {
        self.batch.possible && !self.batch.pending && self.fast.remaining > accesses + 1
    }
}
