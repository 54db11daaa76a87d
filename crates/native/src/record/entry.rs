//! What begins at an address of the program's code, as translated code passes it to the engine: pure.

use numaloc_follow::allocators::Allocator;

/// A place in a call of an allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The allocator's first instruction.
    Called(Allocator),
    /// Where such a call returns.
    Returned,
}

const PLACES: [Option<Place>; 6] = [
    None,
    Some(Place::Returned),
    Some(Place::Called(Allocator::Malloc)),
    Some(Place::Called(Allocator::Calloc)),
    Some(Place::Called(Allocator::Second)),
    Some(Place::Called(Allocator::PosixMemalign)),
];
/// Set if a function that is a mark begins here.
const MARK: u16 = 1 << 8;

/// What begins at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Whether a function that is a mark does.
    pub mark: bool,
    /// The place in a call of an allocator.
    pub place: Option<Place>,
}

impl Entry {
    /// As the size of a [`super::descriptor::Descriptor`].
    pub fn encode(self) -> u16 {
        let place = PLACES.iter().position(|&place| place == self.place);
        let mark = if self.mark { MARK } else { 0 };
        place.unwrap_or(0) as u16 | mark
    }

    /// The inverse of [`Entry::encode`].
    #[inline(always)]
    pub fn decode(number: u16) -> Self {
        let place = usize::from(number & !MARK);
        Self {
            mark: number & MARK != 0,
            place: PLACES.get(place).copied().flatten(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, PLACES};

    #[test]
    fn entries_are_decoded_as_they_were_encoded() {
        for place in PLACES {
            for mark in [false, true] {
                let entry = Entry { mark, place };
                assert_eq!(Entry::decode(entry.encode()), entry);
            }
        }
    }
}
