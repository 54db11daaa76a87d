//! One level of a private cache: sets of lines with exact LRU, without moving lines between slots.
//!
//! A line stays in its slot. A set orders its slots in a ring, in which the oldest follows the newest: a fetched line
//! takes the oldest slot, which becomes the newest by moving two marks. Sixteen slots are searched at once by their
//! tags, so a miss (the usual case in the second level) reads no slots: it touches the tags and marks of its set, and
//! one slot.

use numaloc_access_trace::message::CacheSize;

use super::tags::{TAGS, Tags};

/// State of a cached line: its version in the directory when it was fetched or written, and a low bit that is set if
/// it is dirty.
#[derive(Clone, Copy, Default)]
pub(super) struct State(u64);

impl State {
    #[inline(always)]
    pub fn new(version: u64, dirty: bool) -> Self {
        Self(version << 1 | u64::from(dirty))
    }

    #[inline(always)]
    pub fn version(self) -> u64 {
        self.0 >> 1
    }

    #[inline(always)]
    pub fn is_dirty(self) -> bool {
        self.0 & 1 != 0
    }
}

/// A slot and the line in it.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub number: u64,
    pub state: State,
    /// Index of its slot in the next level.
    pub below: u32,
    /// Neighbours in the set's ring, by index in the set.
    older: u16,
    newer: u16,
}

/// Line number of an empty slot.
const NO_LINE: u64 = u64::MAX;

/// The ends of a set's LRU order.
#[derive(Clone, Copy)]
struct Ends {
    newest: u16,
    oldest: u16,
}

/// The set of a line.
#[derive(Clone, Copy)]
pub(super) struct Place {
    number: u64,
    set: usize,
    /// Index of the set's first slot.
    first: usize,
}

/// One level of a cache.
pub(super) struct Level {
    /// The slots of all sets, one set after the other.
    pub slots: Vec<Slot>,
    tags: Vec<Tags>,
    ends: Vec<Ends>,
    ways: usize,
    /// Number of `Tags` for each set.
    groups: usize,
    /// Number of sets less one, as a mask; 0 if the number of sets is not a power of two.
    mask: u64,
}

impl Level {
    /// An empty level. Associativity is clamped to 65,536 ways.
    pub fn new(size: CacheSize, line: u64) -> Self {
        let sets = size.sets(line).max(1);
        let ways = size.ways.clamp(1, 1 << 16) as usize;
        let groups = ways.div_ceil(TAGS);
        let ring = (0..ways).map(|way| Slot {
            number: NO_LINE,
            state: State::default(),
            below: 0,
            older: ((way + ways - 1) % ways) as u16,
            newer: ((way + 1) % ways) as u16,
        });
        let ends = Ends {
            newest: (ways - 1) as u16,
            oldest: 0,
        };
        Self {
            slots: ring.cycle().take(sets as usize * ways).collect(),
            tags: vec![Tags::EMPTY; sets as usize * groups],
            ends: vec![ends; sets as usize],
            ways,
            groups,
            mask: if sets.is_power_of_two() { sets - 1 } else { 0 },
        }
    }

    #[inline(always)]
    pub fn place(&self, number: u64) -> Place {
        let set = if self.mask != 0 {
            (number & self.mask) as usize
        } else {
            (number % self.ends.len() as u64) as usize
        };
        Place {
            number,
            set,
            first: set * self.ways,
        }
    }

    /// The slot of the line if it is the newest of its set.
    #[inline(always)]
    pub fn newest(&self, place: Place) -> Option<usize> {
        let slot = place.first + self.ends[place.set].newest as usize;
        (self.slots[slot].number == place.number).then_some(slot)
    }

    /// The slot of the line.
    #[inline(always)]
    fn search(&self, place: Place) -> Option<usize> {
        let mut group = 0;
        loop {
            let mut equal = self.tags[place.set * self.groups + group].find(place.number);
            while equal != 0 {
                // A slot after the last way belongs to the next set, where this line cannot be.
                let slot = place.first + group * TAGS + equal.trailing_zeros() as usize;
                if self
                    .slots
                    .get(slot)
                    .is_some_and(|held| held.number == place.number)
                {
                    return Some(slot);
                }
                equal &= equal - 1;
            }
            group += 1;
            if group == self.groups {
                return None;
            }
        }
    }

    /// The slot of the line, which becomes the newest of its set.
    #[inline(always)]
    pub fn find(&mut self, place: Place) -> Option<usize> {
        let slot = self.search(place)?;
        self.renew(place, slot);
        Some(slot)
    }

    /// Puts a line that is not in the level into the oldest slot of its set, which becomes the newest. Returns the
    /// slot and its previous content. The slot keeps the previous state until the caller sets the new one.
    #[inline(always)]
    pub fn insert(&mut self, place: Place) -> (usize, Option<Slot>) {
        let ends = &mut self.ends[place.set];
        let way = ends.oldest as usize;
        let slot = &mut self.slots[place.first + way];
        let gone = *slot;
        *ends = Ends {
            newest: ends.oldest,
            oldest: gone.newer,
        };
        slot.number = place.number;
        self.tags[place.set * self.groups + way / TAGS].set(way % TAGS, place.number);
        (place.first + way, (gone.number != NO_LINE).then_some(gone))
    }

    /// Removes a line. Its slot becomes the oldest of its set.
    #[inline(always)]
    pub fn remove(&mut self, number: u64) -> Option<State> {
        let place = self.place(number);
        let slot = self.search(place)?;
        self.bring(place, slot);
        let held = &mut self.slots[slot];
        held.number = NO_LINE;
        self.ends[place.set] = Ends {
            newest: held.older,
            oldest: (slot - place.first) as u16,
        };
        Some(held.state)
    }

    /// Makes a slot the newest of its set.
    #[inline(always)]
    pub fn renew(&mut self, place: Place, slot: usize) {
        self.bring(place, slot);
        self.ends[place.set] = Ends {
            newest: (slot - place.first) as u16,
            oldest: self.slots[slot].newer,
        };
    }

    /// Moves a slot between the newest and the oldest of its set, unless it is one of them.
    #[inline(always)]
    fn bring(&mut self, place: Place, slot: usize) {
        let way = (slot - place.first) as u16;
        let Ends { newest, oldest } = self.ends[place.set];
        if way == newest || way == oldest {
            return;
        }
        let set = &mut self.slots[place.first..place.first + self.ways];
        let Slot { older, newer, .. } = set[way as usize];
        set[older as usize].newer = newer;
        set[newer as usize].older = older;
        set[newest as usize].newer = way;
        set[oldest as usize].older = way;
        (set[way as usize].older, set[way as usize].newer) = (newest, oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A level against a list of lines for each set, most recent first.
    #[test]
    fn equals_lists_in_the_order_of_use() {
        proptest!(|(
            ways in prop_oneof![Just(1usize), Just(2), 3usize..40],
            sets in 1u64..9,
            steps in proptest::collection::vec((0u64..200, 0u8..8), 1..600),
        )| {
            let size = CacheSize { bytes: 64 * sets * ways as u64, ways: ways as u64 };
            let mut level = Level::new(size, 64);
            let mut lists: Vec<Vec<u64>> = vec![Vec::new(); sets as usize];
            for (line, step) in steps {
                let list = &mut lists[(line % sets) as usize];
                let at = list.iter().position(|&l| l == line);
                let place = level.place(line);
                prop_assert_eq!(level.newest(place).is_some(), at == Some(0));
                if step == 0 {
                    prop_assert_eq!(level.remove(line).map(State::version), at.map(|_| line));
                    at.map(|at| list.remove(at));
                    continue;
                }
                let found = level.find(place);
                prop_assert_eq!(found.map(|slot| level.slots[slot].number), at.map(|_| line));
                if let Some(at) = at {
                    list.remove(at);
                } else {
                    let (slot, gone) = level.insert(place);
                    level.slots[slot].state = State::new(line, false);
                    let oldest = if list.len() == ways { list.pop() } else { None };
                    prop_assert_eq!(gone.map(|gone| gone.number), oldest);
                }
                list.insert(0, line);
            }
        });
    }
}
