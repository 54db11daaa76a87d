//! An event of a trace, packed into 8 bytes.

use crate::line::Line;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Step {
    Read,
    Write,
    Own,
    WriteBack,
    /// The acquire with that number.
    Acquire,
    /// A release of the word with that number.
    Release,
    /// Creates the thread with that index.
    Create,
    /// Only accesses; their number is the value.
    Work,
}

impl Step {
    /// Whether the event's value is a line.
    #[inline(always)]
    pub(crate) fn has_line(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::Own | Self::WriteBack)
    }
}

/// How a core uses a contended line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Visit {
    /// It loads.
    Load = 1,
    /// It stores, perhaps after a load.
    Store,
    /// It changes the line by an atomic instruction.
    Atomic,
    /// It takes a lock.
    Lock,
}

impl Visit {
    /// Whether the core waits until the line is there, and for all it has asked for before.
    pub(crate) fn waits(self) -> bool {
        matches!(self, Self::Atomic | Self::Lock)
    }
}

const VISITS: [Visit; 4] = [Visit::Load, Visit::Store, Visit::Atomic, Visit::Lock];

const STEPS: [Step; 8] = [
    Step::Read,
    Step::Write,
    Step::Own,
    Step::WriteBack,
    Step::Acquire,
    Step::Release,
    Step::Create,
    Step::Work,
];

pub(crate) const WORK_BITS: u32 = 21;
/// Where the work begins, and the distance of a dependent load.
const WORK: u32 = 11;
const AFTER: u32 = 5;
/// Largest distance.
pub(crate) const MOST_AFTER: usize = (1 << (WORK - AFTER)) - 1;
/// Flag of a load that continues a stream.
pub(crate) const STREAMED: u64 = 1 << 3;
/// Flag of a line on a page that one thread uses.
pub(crate) const PRIVATE: u64 = 1 << 4;
/// An event: step in the low 3 bits, two flags, the distance of a dependent load in 6 (of an [`Step::Own`] that is a
/// visit its kind), accesses since the event before in the next 21, value in the high 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packed(pub(crate) u64);

impl Packed {
    pub(crate) fn new(step: Step, work: u64, value: u32) -> Self {
        debug_assert!(work < 1 << WORK_BITS);
        Self(u64::from(value) << 32 | work << WORK | step as u64)
    }

    /// The event with another value.
    pub(crate) fn with_value(self, value: u32) -> Self {
        Self(u64::from(value) << 32 | self.0 & u64::from(u32::MAX))
    }

    /// A load whose address comes from the fetch that many back; from none if that is too far.
    pub(crate) fn after(self, fetches: u8) -> Self {
        match usize::from(fetches) <= MOST_AFTER {
            true => Self(self.0 | u64::from(fetches) << AFTER),
            false => self,
        }
    }

    /// Number of fetches back to the one that a load's address comes from; 0 for none.
    #[inline(always)]
    pub(crate) fn waits_for(self) -> usize {
        (self.0 >> AFTER) as usize & MOST_AFTER
    }

    /// A visit to a contended line.
    pub(crate) fn of_visit(visit: Visit, work: u64, line: u32) -> Self {
        Self(Self::new(Step::Own, work, line).0 | (visit as u64) << AFTER)
    }

    /// The visit, if it is one.
    #[inline(always)]
    pub(crate) fn visit(self) -> Option<Visit> {
        match (self.step(), self.waits_for()) {
            (Step::Own, kind @ 1..) => VISITS.get(kind - 1).copied(),
            _ => None,
        }
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(crate) fn step(self) -> Step {
        STEPS[(self.0 & 7) as usize]
    }

    #[inline(always)]
    pub(crate) fn work(self) -> u64 {
        self.0 >> WORK & ((1 << WORK_BITS) - 1)
    }

    /// Accesses since the event before, those of [`Step::Work`] included.
    #[inline(always)]
    pub(crate) fn accesses(self) -> u64 {
        match self.step() {
            Step::Work => self.work() + u64::from(self.value()),
            _ => self.work(),
        }
    }

    #[inline(always)]
    pub(crate) fn value(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Whether a load continues a stream of its thread.
    #[inline(always)]
    pub(crate) fn is_streamed(self) -> bool {
        self.0 & STREAMED != 0
    }

    /// The line of an event that has one; a private one only if `knows_private`.
    #[inline(always)]
    pub(crate) fn line(self, knows_private: bool) -> Line {
        Line::new(self.value(), knows_private & (self.0 & PRIVATE != 0))
    }
}
