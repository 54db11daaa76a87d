//! The tags of a cache's set, several in each word of 64 bits, so that a whole word is compared or moved at once.
//!
//! Lanes are counted from the low end of the first word; a tag is a lane's bits except the highest, which marks a line
//! that differs from memory. In sets with least-recently-used order, the first lane is the most recent. Lanes behind a
//! set's last way are always empty.

/// Size of a lane.
pub(crate) trait Lanes {
    /// Bits of a lane.
    const BITS: u32;

    /// Lanes of a word.
    const LANES: usize = (64 / Self::BITS) as usize;
    /// All bits of the first lane.
    const LANE: u64 = (1 << Self::BITS) - 1;
    /// The mark of a line that differs from memory; also, all bits of a tag are below.
    const DIRTY: u64 = 1 << (Self::BITS - 1);
    /// The tag of an empty lane.
    const EMPTY: u64 = Self::DIRTY - 1;
    /// The lowest bit of each lane.
    const UNIT: u64 = u64::MAX / Self::LANE;
    /// The mark in each lane.
    const MARKS: u64 = Self::UNIT << (Self::BITS - 1);

    /// Position of the first lane with that tag, marked or not.
    #[inline(always)]
    fn find(set: &[u64], tag: u64) -> Option<usize> {
        let pattern = Self::UNIT * tag;
        for (at, &word) in set.iter().enumerate() {
            let differs = (word ^ pattern) & !Self::MARKS;
            // A lane that differs carries into its mark.
            let equal = !(differs + !Self::MARKS) & Self::MARKS;
            if equal != 0 {
                return Some(at * Self::LANES + (equal.trailing_zeros() / Self::BITS) as usize);
            }
        }
        None
    }

    /// The lane at a position.
    #[inline(always)]
    fn get(set: &[u64], at: usize) -> u64 {
        set[at / Self::LANES] >> shift::<Self>(at) & Self::LANE
    }

    /// Replaces the lane at a position.
    #[inline(always)]
    fn set(set: &mut [u64], at: usize, lane: u64) {
        let word = &mut set[at / Self::LANES];
        *word = *word & !(Self::LANE << shift::<Self>(at)) | lane << shift::<Self>(at);
    }

    /// Moves the lanes before `at` back by one, over the one there, and puts `lane` in front.
    #[inline(always)]
    fn put_first(set: &mut [u64], at: usize, lane: u64) {
        let (last, within) = (at / Self::LANES, shift::<Self>(at));
        let carry = shift_words::<Self>(&mut set[..last], lane);
        let word = &mut set[last];
        let before = *word & ((1 << within) - 1);
        let behind = *word >> within >> Self::BITS << within << Self::BITS;
        *word = behind | before << Self::BITS | carry;
    }

    /// Puts a lane in front of the others of a set of `ways`; returns the last one.
    #[inline(always)]
    fn shift_in(set: &mut [u64], ways: usize, lane: u64) -> u64 {
        let carry = shift_words::<Self>(set, lane);
        let within = shift::<Self>(ways);
        match set.last_mut() {
            // The lane behind the last way is in the last word.
            Some(word) if within != 0 => {
                let last = *word >> within & Self::LANE;
                *word |= Self::LANE << within;
                last
            }
            _ => carry,
        }
    }

    /// Removes the lane at a position: those behind it move forward by one.
    fn take(set: &mut [u64], at: usize) {
        for at in at..set.len() * Self::LANES - 1 {
            let next = Self::get(set, at + 1);
            Self::set(set, at, next);
        }
        let last = set.len() * Self::LANES - 1;
        Self::set(set, last, Self::LANE);
    }
}

/// Bits before a position in its word.
#[inline(always)]
fn shift<L: Lanes + ?Sized>(at: usize) -> u32 {
    (at % L::LANES) as u32 * L::BITS
}

/// Moves all lanes back by one and puts one in front; returns the last.
#[inline(always)]
fn shift_words<L: Lanes + ?Sized>(set: &mut [u64], lane: u64) -> u64 {
    let mut carry = lane;
    for word in set {
        let last = *word >> (64 - L::BITS);
        *word = *word << L::BITS | carry;
        carry = last;
    }
    carry
}

/// Tags of 15 bits.
pub(crate) struct Narrow;
/// Tags of 31 bits.
pub(crate) struct Wide;

impl Lanes for Narrow {
    const BITS: u32 = 16;
}

impl Lanes for Wide {
    const BITS: u32 = 32;
}
