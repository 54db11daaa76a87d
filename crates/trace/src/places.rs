//! Marks: counts how often threads pass the places of the program that every run passes in the same order.
//!
//! All threads of the process count together, as the controller of a native run counts. Memory is bounded: places
//! beyond [`MOST_PLACES`] are not counted.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use numaloc_model::MarkKind;
use numaloc_model::marks::MOST_PLACES;

/// A place and its passes so far.
#[derive(Clone, Copy, Debug)]
struct Place {
    number: u32,
    passes: u64,
}

/// The answer to a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// A place with this number was passed for the first time.
    First(u32),
    /// A place with this number was passed this many times, at least twice.
    Again(u32, u64),
    /// The place is the first that is not counted.
    Crowded,
    /// The place is not counted.
    Uncounted,
}

#[derive(Debug, Default)]
struct Known {
    /// By kind and address of the function (or 0), then by name.
    places: HashMap<(MarkKind, u64), HashMap<String, Place>>,
    count: usize,
    crowded: bool,
}

/// The places of a process.
#[derive(Debug, Default)]
pub struct Places(Mutex<Known>);

impl Places {
    /// Counts a pass of the place of that kind and name; `function` is the address of the region's function, or 0.
    pub fn pass(&self, kind: MarkKind, name: &str, function: u64) -> Passed {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Known {
            places,
            count,
            crowded,
        } = &mut *known;
        let named = places.get_mut(&(kind, function));
        if let Some(place) = named.and_then(|named| named.get_mut(name)) {
            place.passes += 1;
            return Passed::Again(place.number, place.passes);
        }
        if *count == MOST_PLACES {
            return match std::mem::replace(crowded, true) {
                false => Passed::Crowded,
                true => Passed::Uncounted,
            };
        }
        let number = *count as u32;
        *count += 1;
        let place = Place { number, passes: 1 };
        let named = places.entry((kind, function)).or_default();
        named.insert(name.to_owned(), place);
        Passed::First(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_counted_by_kind_name_and_function() {
        let places = Places::default();
        let pass = |name, function| places.pass(MarkKind::Region, name, function);
        assert_eq!(pass("GOMP_parallel", 16), Passed::First(0));
        assert_eq!(pass("GOMP_parallel", 32), Passed::First(1));
        assert_eq!(pass("GOMP_parallel", 16), Passed::Again(0, 2));
        assert_eq!(pass("GOMP_parallel", 16), Passed::Again(0, 3));
        assert_eq!(
            places.pass(MarkKind::User, "GOMP_parallel", 16),
            Passed::First(2)
        );
    }

    #[test]
    fn memory_is_bounded_whatever_the_program_names_its_marks() {
        let places = Places::default();
        let pass = |at: usize| places.pass(MarkKind::User, &format!("step {at}"), 0);
        assert!((0..MOST_PLACES).all(|at| pass(at) == Passed::First(at as u32)));
        assert_eq!(pass(MOST_PLACES), Passed::Crowded);
        assert_eq!(pass(MOST_PLACES), Passed::Uncounted);
        assert_eq!(pass(0), Passed::Again(0, 2));
    }
}
