//! One level of a private cache: sets of lines with exact LRU, without moving lines about.
//!
//! A line stays in the slot it came to. Its set orders its slots by a ring, in which the oldest comes after the newest: a line that is
//! fetched takes the oldest slot and makes it the newest by moving two marks on. Sixteen slots are searched at once by their tags,
//! so a line that is not there (what most searches of the second level find) costs no look at the slots: a miss touches
//! the tags and the marks of its set, and one slot.

use numaloc_access_trace::message::CacheSize;

use super::tags::{TAGS, Tags};

/// What a level knows of a line: its version in the directory when it was fetched or written, above a bit that says whether it was written.
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

/// A line, and where it is.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub number: u64,
    pub state: State,
    /// Its slot in the next level.
    pub below: u32,
    /// Its neighbours in the ring of the set, by their numbers in the set.
    older: u16,
    newer: u16,
}

/// The number of no line.
const NOBODY: u64 = u64::MAX;

/// The ends of a set's order.
#[derive(Clone, Copy)]
struct Ends {
    newest: u16,
    oldest: u16,
}

/// Where a line belongs.
#[derive(Clone, Copy)]
pub(super) struct Place {
    number: u64,
    set: usize,
    /// Its first slot.
    first: usize,
}

/// One level.
pub(super) struct Level {
    /// Of all sets, one after the other.
    pub slots: Vec<Slot>,
    tags: Vec<Tags>,
    ends: Vec<Ends>,
    ways: usize,
    /// Tags for each set.
    groups: usize,
    /// Sets less one, which is a mask, or 0 with another number of sets.
    mask: u64,
}

impl Level {
    /// Empty. More than 65,536 ways are as many.
    pub fn new(size: CacheSize, line: u64) -> Self {
        let sets = size.sets(line).max(1);
        let ways = size.ways.clamp(1, 1 << 16) as usize;
        let groups = ways.div_ceil(TAGS);
        let ring = (0..ways).map(|way| Slot {
            number: NOBODY,
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

    /// The line's slot if it is the newest of its set.
    #[inline(always)]
    pub fn newest(&self, place: Place) -> Option<usize> {
        let slot = place.first + self.ends[place.set].newest as usize;
        (self.slots[slot].number == place.number).then_some(slot)
    }

    /// The line's slot.
    #[inline(always)]
    fn search(&self, place: Place) -> Option<usize> {
        let mut group = 0;
        loop {
            let mut equal = self.tags[place.set * self.groups + group].find(place.number);
            while equal != 0 {
                // After the last way it is a slot of the next set, where this line cannot be.
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

    /// The line's slot, which is the newest of its set from now on.
    #[inline(always)]
    pub fn find(&mut self, place: Place) -> Option<usize> {
        let slot = self.search(place)?;
        self.renew(place, slot);
        Some(slot)
    }

    /// Puts a line that is not there into the oldest slot of its set, which is the newest from now on. The slot, and what was in it;
    /// that line's state is there until the caller says the new one's.
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
        (place.first + way, (gone.number != NOBODY).then_some(gone))
    }

    /// Takes a line out. Its slot is the oldest of its set from now on.
    #[inline(always)]
    pub fn remove(&mut self, number: u64) -> Option<State> {
        let place = self.place(number);
        let slot = self.search(place)?;
        self.bring(place, slot);
        let held = &mut self.slots[slot];
        held.number = NOBODY;
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

    /// Moves a slot between the newest and the oldest of its set, if it is neither.
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

    /// A level against a list of lines for each set, the most recent first.
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
