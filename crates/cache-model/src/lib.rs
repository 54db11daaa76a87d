//! A set-associative cache of lines with exact LRU in each set, and a value for each line.
//!
//! The private caches of the recorder's access trace, the last-level caches behind the DRAM ratio, and the private
//! caches of the virtual NUMA machine are this one model; the values are what their coherence needs (a version, a
//! writer). It runs inside the program under study: it allocates when it is made, and never again, and has no
//! dependencies.
//!
//! A line stays in its slot. A set orders its slots in a ring, in which the oldest follows the newest: a fetched line
//! takes the oldest slot, which becomes the newest by moving two marks. Sixteen slots are searched at once by their
//! tags, so a miss (the usual case in the second level) reads no slots: it touches the tags and marks of its set, and
//! one slot.
//!
//! The simulator (`numaloc-sim`) has a cache of its own. It needs RRIP besides LRU, and as it has far more caches than
//! the recorder it keeps 4 bytes of each line, in the order of use, in place of 16 or more; its test
//! `one_cache_model` compares it, request by request, with the model behind the DRAM ratio, which is made of this one.
//!
//! Memory: 12 bytes and the value for each line, rounded up to 8; a byte for each line, rounded up to 16 in each set,
//! and 4 bytes for each set.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod tags;

use std::ops::{Index, IndexMut};

use tags::{TAGS, Tags};

/// Line number of an empty slot: no line may have it.
const NO_LINE: u64 = u64::MAX;

/// A slot and the line in it.
#[derive(Clone, Copy)]
struct Slot<T> {
    number: u64,
    value: T,
    /// Neighbours in the set's ring, by index in the set.
    older: u16,
    newer: u16,
}

/// The ends of a set's LRU order.
#[derive(Clone, Copy)]
struct Ends {
    newest: u16,
    oldest: u16,
}

/// The set of a line.
#[derive(Clone, Copy)]
pub struct Place {
    number: u64,
    set: usize,
    /// Index of the set's first slot.
    first: usize,
}

/// A cache; indexed by a slot, it is the value of the slot's line.
pub struct Cache<T> {
    /// The slots of all sets, one set after the other.
    slots: Vec<Slot<T>>,
    tags: Vec<Tags>,
    ends: Vec<Ends>,
    ways: usize,
    /// Number of `Tags` for each set.
    groups: usize,
    /// Number of sets less one, as a mask; 0 if the number of sets is not a power of two.
    mask: u64,
}

impl<T: Copy + Default> Cache<T> {
    /// An empty cache of at least one set. Associativity is clamped to 65,536 ways.
    #[must_use]
    pub fn new(sets: u64, ways: u64) -> Self {
        let sets = sets.max(1);
        let ways = ways.clamp(1, 1 << 16) as usize;
        let groups = ways.div_ceil(TAGS);
        let ring = (0..ways).map(|way| Slot {
            number: NO_LINE,
            value: T::default(),
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

    /// The set of a line: the remainder of its number by the number of sets.
    #[inline(always)]
    #[must_use]
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
    #[must_use]
    pub fn newest(&self, place: Place) -> Option<usize> {
        let slot = place.first + self.ends[place.set].newest as usize;
        (self.slots[slot].number == place.number).then_some(slot)
    }

    /// The slot of the line, whose age stays as it is.
    #[inline(always)]
    #[must_use]
    pub fn search(&self, place: Place) -> Option<usize> {
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

    /// Puts a line that is not in the cache into the oldest slot of its set, which becomes the newest. Returns the slot
    /// and the evicted line with its value. The slot keeps that value until the caller sets the new one.
    #[inline(always)]
    pub fn insert(&mut self, place: Place) -> (usize, Option<(u64, T)>) {
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
        let evicted = (gone.number != NO_LINE).then_some((gone.number, gone.value));
        (place.first + way, evicted)
    }

    /// Removes a line. Its slot becomes the oldest of its set.
    #[inline(always)]
    pub fn remove(&mut self, number: u64) -> Option<T> {
        let place = self.place(number);
        let slot = self.search(place)?;
        self.bring(place, slot);
        let held = &mut self.slots[slot];
        held.number = NO_LINE;
        self.ends[place.set] = Ends {
            newest: held.older,
            oldest: (slot - place.first) as u16,
        };
        Some(held.value)
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

impl<T> Index<usize> for Cache<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, slot: usize) -> &T {
        &self.slots[slot].value
    }
}

impl<T> IndexMut<usize> for Cache<T> {
    #[inline(always)]
    fn index_mut(&mut self, slot: usize) -> &mut T {
        &mut self.slots[slot].value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Compares a cache with a list of lines for each set, most recent first.
    #[test]
    fn equals_lists_in_the_order_of_use() {
        proptest!(|(
            ways in prop_oneof![Just(1usize), Just(2), 3usize..40],
            sets in 1u64..9,
            steps in proptest::collection::vec((0u64..200, 0u8..8), 1..600),
        )| {
            let mut cache = Cache::new(sets, ways as u64);
            let mut lists: Vec<Vec<u64>> = vec![Vec::new(); sets as usize];
            for (line, step) in steps {
                let list = &mut lists[(line % sets) as usize];
                let at = list.iter().position(|&l| l == line);
                let place = cache.place(line);
                prop_assert_eq!(cache.newest(place).is_some(), at == Some(0));
                if step == 0 {
                    prop_assert_eq!(cache.remove(line), at.map(|_| line));
                    at.map(|at| list.remove(at));
                    continue;
                }
                if step == 1 {
                    prop_assert_eq!(cache.search(place).map(|slot| cache[slot]), at.map(|_| line));
                    continue;
                }
                let found = cache.find(place);
                prop_assert_eq!(found.map(|slot| cache[slot]), at.map(|_| line));
                if let Some(at) = at {
                    list.remove(at);
                } else {
                    let (slot, gone) = cache.insert(place);
                    cache[slot] = line;
                    let oldest = if list.len() == ways { list.pop() } else { None };
                    prop_assert_eq!(gone, oldest.map(|line| (line, line)));
                }
                list.insert(0, line);
            }
        });
    }
}
