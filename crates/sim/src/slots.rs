//! Idle time in the recent past of a server, in slots of one service each: a bit for each slot, set if it is idle.
//!
//! Requests of one slot each that take the first idle slot since their arrival occupy the same slots in whatever order
//! they come, and the sum of the slots by which they are displaced is the same too: that of a queue in the order of
//! time. With Poisson arrivals its mean is that of M/D/1.

/// Words of 64 slots that are kept. At a controller of 97 GB/s, 5 us: more than clocks differ by.
const WORDS: u64 = 128;

/// Idle slots before the server's last busy interval.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    words: [u64; WORDS as usize],
    /// The last word with idle slots, counted from time 0; words behind it are not valid yet.
    last: u64,
    /// Picoseconds of a slot, and 2^64 divided by them, rounded up.
    length: u64,
    inverse: u64,
}

impl Slots {
    /// No idle slots of `length` picoseconds each.
    pub(crate) fn new(length: u64) -> Self {
        let length = length.max(2);
        Self {
            words: [0; WORDS as usize],
            last: 0,
            length,
            inverse: u64::MAX / length + 1,
        }
    }

    /// The slot boundary next to a time.
    #[inline(always)]
    pub(crate) fn boundary(&self, time: u64) -> u64 {
        let product = u128::from(time + self.length / 2) * u128::from(self.inverse);
        (product >> 64) as u64
    }

    /// Whole slots in a time.
    #[inline(always)]
    pub(crate) fn whole(&self, time: u64) -> u64 {
        ((u128::from(time) * u128::from(self.inverse)) >> 64) as u64
    }

    /// Picoseconds of a slot.
    #[inline(always)]
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// The first slot that is kept.
    #[inline(always)]
    pub(crate) fn oldest(&self) -> u64 {
        (self.last + 1).saturating_sub(WORDS) * 64
    }

    #[inline(always)]
    fn word(&mut self, number: u64) -> &mut u64 {
        &mut self.words[(number % WORDS) as usize]
    }

    /// Marks the slots from `from` to before `to` as idle; all before `from` are marked already.
    #[inline]
    pub(crate) fn idle(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let (first, last) = (from / 64, (to - 1) / 64);
        let behind = u64::MAX << (from % 64);
        let before = u64::MAX >> (63 - (to - 1) % 64);
        let part = |number: u64| {
            let from_first = match number.cmp(&first) {
                std::cmp::Ordering::Less => 0,
                std::cmp::Ordering::Equal => behind,
                std::cmp::Ordering::Greater => u64::MAX,
            };
            from_first & if number == last { before } else { u64::MAX }
        };
        let oldest = (last + 1).saturating_sub(WORDS);
        for number in first.max(oldest)..=self.last.min(last) {
            *self.word(number) |= part(number);
        }
        // Words that are not valid yet have bits of slots that are no longer kept.
        for number in (self.last + 1).max(oldest)..=last {
            *self.word(number) = part(number);
        }
        self.last = self.last.max(last);
    }

    /// The first idle slot from `from` on, which is taken if `takes`.
    #[inline(always)]
    pub(crate) fn first(&mut self, from: u64, takes: bool) -> Option<u64> {
        let number = from / 64;
        if number <= self.last && number + WORDS > self.last {
            let word = &mut self.words[(number % WORDS) as usize];
            let idle = *word & u64::MAX << (from % 64);
            if idle != 0 {
                let first = idle & idle.wrapping_neg();
                *word ^= if takes { first } else { 0 };
                return Some(number * 64 + u64::from(idle.trailing_zeros()));
            }
        }
        self.first_behind(number + 1, takes)
    }

    /// [`Slots::first`] from that word on, or from the first one that is kept.
    #[inline(never)]
    fn first_behind(&mut self, number: u64, takes: bool) -> Option<u64> {
        let oldest = (self.last + 1).saturating_sub(WORDS);
        for number in number.max(oldest)..=self.last {
            let word = self.word(number);
            if *word != 0 {
                let at = word.trailing_zeros();
                *word &= if takes { *word - 1 } else { u64::MAX };
                return Some(number * 64 + u64::from(at));
            }
        }
        None
    }
}
