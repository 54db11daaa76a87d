//! Marks: points in the program that every run passes in the same order, at whatever speed.
//!
//! A mark is a place in the program and how often it was passed. A recorder counts passes as a controller of a native
//! run can count them: all threads of the process together, from 1. A place that is passed often is not recorded each
//! time ([`is_recorded`]).

use crate::ids::ThreadIdx;

/// What a program does at a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MarkKind {
    /// A thread begins a parallel region. Its name is the region's function; where that is not known, the entry point
    /// of the run-time library.
    Region,
    /// A thread arrives at a barrier. Its name is the entry point.
    Barrier,
    /// A thread creates a thread. Its name is the entry point.
    Thread,
    /// The program calls `numaloc_mark`. Its name is the argument.
    User,
}

impl MarkKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Region, Self::Barrier, Self::Thread, Self::User];

    /// The name in profile tables and plans.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Region => "region",
            Self::Barrier => "barrier",
            Self::Thread => "thread",
            Self::User => "user",
        }
    }

    /// The kind with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What a program does that calls the function `symbol`; `None` if that is no mark.
    #[must_use]
    pub fn of_symbol(symbol: &str) -> Option<Self> {
        Self::entry_point(symbol).map(|(_, kind)| kind)
    }

    /// The entry of [`ENTRY_POINTS`] for the function `symbol`.
    #[must_use]
    pub fn entry_point(symbol: &str) -> Option<(&'static str, Self)> {
        ENTRY_POINTS
            .iter()
            .find(|(name, _)| *name == symbol)
            .copied()
    }
}

/// The functions whose calls are marks: entry points of libgomp, of libomp, of POSIX threads, and the program's own.
pub const ENTRY_POINTS: [(&str, MarkKind); 24] = [
    ("GOMP_parallel", MarkKind::Region),
    ("GOMP_parallel_sections", MarkKind::Region),
    ("GOMP_parallel_reductions", MarkKind::Region),
    ("GOMP_parallel_loop_static", MarkKind::Region),
    ("GOMP_parallel_loop_dynamic", MarkKind::Region),
    ("GOMP_parallel_loop_guided", MarkKind::Region),
    ("GOMP_parallel_loop_nonmonotonic_dynamic", MarkKind::Region),
    ("GOMP_parallel_loop_nonmonotonic_guided", MarkKind::Region),
    ("GOMP_parallel_loop_runtime", MarkKind::Region),
    ("GOMP_parallel_loop_nonmonotonic_runtime", MarkKind::Region),
    (
        "GOMP_parallel_loop_maybe_nonmonotonic_runtime",
        MarkKind::Region,
    ),
    ("__kmpc_fork_call", MarkKind::Region),
    ("__kmpc_fork_call_if", MarkKind::Region),
    ("__kmpc_fork_teams", MarkKind::Region),
    ("GOMP_barrier", MarkKind::Barrier),
    ("GOMP_barrier_cancel", MarkKind::Barrier),
    ("GOMP_loop_end", MarkKind::Barrier),
    ("GOMP_loop_end_cancel", MarkKind::Barrier),
    ("GOMP_sections_end", MarkKind::Barrier),
    ("GOMP_sections_end_cancel", MarkKind::Barrier),
    ("__kmpc_barrier", MarkKind::Barrier),
    ("pthread_barrier_wait", MarkKind::Barrier),
    ("pthread_create", MarkKind::Thread),
    ("numaloc_mark", MarkKind::User),
];

/// The symbols of [`ENTRY_POINTS`], in their order.
pub fn entry_points() -> impl Iterator<Item = &'static str> {
    ENTRY_POINTS.iter().map(|&(name, _)| name)
}

/// The name of a region whose function has none, by its entry point: those of libgomp share one, because some of them
/// are one function with several symbols.
#[must_use]
pub fn region_entry(symbol: &'static str) -> &'static str {
    if symbol.starts_with(GOMP_PARALLEL) {
        GOMP_PARALLEL
    } else {
        symbol
    }
}

const GOMP_PARALLEL: &str = "GOMP_parallel";

/// Longest name of a user mark in bytes; longer ones are cut.
pub const NAME_BYTES: usize = 63;

/// Whether `symbol` is the function that a compiler made of a parallel region: `NAME._omp_fn.N` by gcc,
/// `NAME.omp_outlined` with or without a number by clang.
#[must_use]
pub fn is_region_function(symbol: &str) -> bool {
    symbol.contains("._omp_fn.") || symbol.contains(".omp_outlined")
}

/// Passes of a place that are recorded one by one.
pub const RECORDED_SINGLY: u64 = 1024;

/// Whether the `occurrence`-th pass of a place (from 1) is recorded: each of the first [`RECORDED_SINGLY`], then each
/// second up to twice as many, each fourth up to four times as many, and so on. Of 10^7 passes 7,778 are recorded, and
/// none is farther from a recorded one than a 512th of its number.
#[must_use]
pub fn is_recorded(occurrence: u64) -> bool {
    let period = occurrence.div_ceil(RECORDED_SINGLY).next_power_of_two();
    occurrence.is_multiple_of(period)
}

/// Most places of a process that are recorded; later ones are not.
pub const MOST_PLACES: usize = 512;

/// A place in the program, the same in every run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MarkPlace {
    /// What the program does there.
    pub kind: MarkKind,
    /// Its name, see [`MarkKind`].
    pub name: String,
}

/// A recorded pass of a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkRow {
    /// The place.
    pub place: MarkPlace,
    /// The how-many-eth pass by any thread of the process image, from 1.
    pub occurrence: u64,
    /// The thread that passed it.
    pub thread: ThreadIdx,
    /// Its time then, in the profile's clock.
    pub time: u64,
}

/// The layout of the memory by which the agent in a native run and its controller communicate: counts of passes, each
/// with the pass at which the controller is called (0 for none). All values are words of 8 bytes, little endian.
///
/// | part | content |
/// |---|---|
/// | head | `MAGIC`, numbers of functions and names in use, a word that is not used |
/// | entry points | a count for each of `ENTRY_POINTS`; those of a region whose function has no name count as `region_entry` |
/// | regions | `SLOTS` addresses of functions, each with a count |
/// | user marks | `SLOTS` names of 64 bytes, each with a count |
pub mod board {
    use super::{ENTRY_POINTS, NAME_BYTES};

    /// The first word.
    pub const MAGIC: u64 = 0x3130_6b72_616d_6c6e;
    /// Functions and names that can be awaited.
    pub const SLOTS: usize = 16;
    /// Offset of the number of functions.
    pub const REGIONS: u64 = 8;
    /// Offset of the number of names.
    pub const USERS: u64 = 16;
    /// Offset of a count's target from its passes.
    pub const TARGET: u64 = 8;

    const ENTRIES: u64 = 32;
    const COUNT: u64 = 16;
    const REGION: u64 = ENTRIES + ENTRY_POINTS.len() as u64 * COUNT;
    const REGION_BYTES: u64 = 8 + COUNT;
    const USER: u64 = REGION + SLOTS as u64 * REGION_BYTES;
    const USER_BYTES: u64 = NAME_BYTES as u64 + 1 + COUNT;
    /// Size of the whole.
    pub const BYTES: u64 = USER + SLOTS as u64 * USER_BYTES;

    /// Offset of the address of the function in slot `at`.
    #[must_use]
    pub fn function(at: usize) -> u64 {
        REGION + at as u64 * REGION_BYTES
    }

    /// Offset of the name in slot `at`.
    #[must_use]
    pub fn name(at: usize) -> u64 {
        USER + at as u64 * USER_BYTES
    }

    /// Offset of the passes of a place: entry points come first, then the slots of regions, then those of user marks.
    #[must_use]
    pub fn passes(place: usize) -> u64 {
        let entries = ENTRY_POINTS.len();
        if place < entries {
            ENTRIES + place as u64 * COUNT
        } else if place < entries + SLOTS {
            function(place - entries) + 8
        } else {
            name(place - entries - SLOTS) + NAME_BYTES as u64 + 1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_million_passes_are_recorded_in_few_rows_at_small_distances() {
        let (mut rows, mut last) = (0, 0);
        for occurrence in 1..=10_000_000u64 {
            if is_recorded(occurrence) {
                rows += 1;
                assert!(occurrence - last <= (occurrence / 512).max(1));
                last = occurrence;
            }
        }
        assert_eq!(rows, 7778);
    }

    #[test]
    fn entry_points_and_kinds_are_found_by_their_names() {
        for (name, kind) in ENTRY_POINTS {
            assert_eq!(MarkKind::of_symbol(name), Some(kind));
        }
        assert_eq!(MarkKind::of_symbol("GOMP_parallel_"), None);
        for kind in MarkKind::ALL {
            assert_eq!(MarkKind::from_name(kind.name()), Some(kind));
        }
    }

    #[test]
    fn functions_of_regions_are_recognised_by_their_names() {
        for name in [
            "main._omp_fn.0",
            "solve._omp_fn.12.constprop.0",
            ".omp_outlined.",
            "main.omp_outlined",
        ] {
            assert!(is_region_function(name), "{name}");
        }
        assert!(!is_region_function("main") && !is_region_function("omp_outlined"));
    }
}
