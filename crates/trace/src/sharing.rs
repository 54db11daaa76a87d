//! Distinguishes true from false sharing by the bytes used.
//!
//! The *tenure* of a line in one writer's hands lasts until another thread takes it, or its writer writes again after
//! others have read it. An event of layer `write_read` is *false sharing* when its reader uses, until the tenure ends,
//! none of the bytes written in it (as in Dubois et al., ISCA'93, for a cache without capacity misses). The first
//! event on a line marks it as tracked ([`crate::line::TRACKED`]). From the next tenure on every write sets bits in a
//! mask of the bytes written in the tenure, one bit for each 64th of the line. A line written entirely is marked in its
//! word ([`crate::line::FULL`]) and needs no mask; so is a line in the tenure in which it became tracked, whose earlier
//! writes are unknown. An event is classified by reads:
//!
//! * the read that makes the event overlaps the mask: true;
//! * it does not: the event stays undecided, in one of the thread's [`UNDECIDED_SLOTS`] slots. A later read in the same
//!   tenure that overlaps makes it true; the line's next event, or eviction by another line's event, makes it false.
//!
//! Lines that no two threads share cost nothing, and a thread without undecided events reads at full speed. The events
//! of the tenure in which a line became tracked are not classified: they count as true. Counts of lines are kept in a
//! small table of each thread: exact for lines with false sharing; a line with true events only may lose its slot, and
//! its count, to another.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::compiler_fence;

/// Slots for undecided events, by line.
const UNDECIDED_SLOTS: usize = 256;
/// Marks by which reads see whether an event on their line may be undecided: more than slots, so that few lines without
/// such an event have the mark of one that has.
pub(crate) const MARKS: usize = 4096;
// Lines with the same mark have the same slot, which holds one of them.
const _: () = assert!(MARKS.is_multiple_of(UNDECIDED_SLOTS));
/// Slots for lines that a thread counts.
const LINES: usize = 1024;
/// Most lines that a process keeps.
const KEPT: usize = 1 << 16;
/// Most lines written to the journal.
pub(crate) const LISTED: usize = 4096;

/// The mask bits of the bytes `address..address + size`, up to the end of their line.
#[inline(always)]
pub(crate) fn bytes(address: u64, size: u32, line_shift: u32) -> u64 {
    let within = address & ((1 << line_shift) - 1);
    let end = (within + u64::from(size)).min(1 << line_shift);
    let (first, end) = if line_shift <= 6 {
        (within, end)
    } else {
        let grain = line_shift - 6;
        (within >> grain, ((end - 1) >> grain) + 1)
    };
    (u64::MAX >> (64 - (end - first))) << first
}

#[derive(Clone, Copy, Default)]
struct Undecided {
    /// Line number + 1, 0 for none.
    line: u64,
    writer: u32,
    size: u32,
}

impl Undecided {
    /// The same, or none.
    #[inline(always)]
    fn when(self, condition: bool) -> Self {
        match condition {
            true => self,
            false => Self::default(),
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Counted {
    line: u64,
    events: u64,
    false_events: u64,
    /// Hits of this line minus those of other lines in its slot.
    credit: u32,
}

/// An event classified as false sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct False {
    /// Line number.
    pub line: u64,
    /// Writer id.
    pub writer: u32,
    /// Bytes used by the event's read.
    pub size: u32,
}

/// One thread's undecided events and counts of lines.
pub(crate) struct Sharing {
    undecided: Box<[Undecided; UNDECIDED_SLOTS]>,
    /// A bit for each slot that holds an event.
    held: [u64; UNDECIDED_SLOTS / 64],
    lines: Box<[Counted; LINES]>,
    spilled: Vec<(u64, u64, u64)>,
}

impl Sharing {
    pub fn new() -> Self {
        Self {
            undecided: Box::new([Undecided::default(); UNDECIDED_SLOTS]),
            held: [0; UNDECIDED_SLOTS / 64],
            lines: Box::new([Counted::default(); LINES]),
            spilled: Vec::new(),
        }
    }

    /// Counts an event on `line`. `overlaps` is whether its read used bytes that were written, `None` if unknown.
    /// Returns the event that it evicts, which is false sharing.
    pub fn event(
        &mut self,
        line: u64,
        writer: u32,
        size: u32,
        overlaps: Option<bool>,
    ) -> Option<False> {
        self.count(line, 1, 0);
        let place = place::<UNDECIDED_SLOTS>(line);
        let event = Undecided {
            line: line + 1,
            writer,
            size,
        };
        let clears = overlaps == Some(false) || self.undecided[place].line == line + 1;
        let before = match clears {
            true => self.hold(place, event.when(overlaps == Some(false))),
            false => Undecided::default(),
        };
        self.found(before)
    }

    /// Counts an event of true sharing on `line` and returns true, if no slot is evicted or cleared by it.
    #[inline(always)]
    pub fn count_true(&mut self, line: u64) -> bool {
        let plain = self.counts_true(line);
        let slot = &mut self.lines[place::<LINES>(line)];
        if plain {
            slot.events += 1;
            slot.credit = slot.credit.saturating_add(1).min(64);
        }
        plain
    }

    /// Whether [`Sharing::count_true`] would count an event on `line`.
    #[inline(always)]
    fn counts_true(&self, line: u64) -> bool {
        let slot = &self.lines[place::<LINES>(line)];
        slot.line == line && self.undecided[place::<UNDECIDED_SLOTS>(line)].line == 0
    }

    /// Whether [`Sharing::count_here`] can count an event on `line`: no other line's counts or event make room for it.
    /// The writer of the event of the same line that it decides, 0 for none.
    #[inline(always)]
    pub fn counts(&self, line: u64, overlaps: bool) -> Option<u32> {
        let slot = &self.lines[place::<LINES>(line)];
        let before = &self.undecided[place::<UNDECIDED_SLOTS>(line)];
        let same = before.line == line + 1;
        let here = slot.line == line && (overlaps || same || before.line == 0);
        here.then_some(if same { before.writer } else { 0 })
    }

    /// [`Sharing::event`], without calling anything, where [`Sharing::counts`].
    #[inline(always)]
    pub fn count_here(
        &mut self,
        line: u64,
        writer: u32,
        size: u32,
        overlaps: bool,
    ) -> Option<False> {
        let place = place::<UNDECIDED_SLOTS>(line);
        let before = self.undecided[place];
        let same = before.line == line + 1;
        if same || !overlaps {
            let event = Undecided {
                line: line + 1,
                writer,
                size,
            };
            self.hold(place, event.when(!overlaps));
        }
        let slot = &mut self.lines[self::place::<LINES>(line)];
        slot.events += 1;
        // Two neighbouring sums would become one of a vector register, which belongs to the program.
        compiler_fence(SeqCst);
        slot.false_events += u64::from(same);
        slot.credit = slot.credit.saturating_add(1 + u32::from(same)).min(64);
        same.then_some(False {
            line,
            writer: before.writer,
            size: before.size,
        })
    }

    /// Puts an event, or none, into a slot; returns the one that it held.
    #[inline(always)]
    fn hold(&mut self, place: usize, event: Undecided) -> Undecided {
        let (word, bit) = (&mut self.held[place / 64], 1 << (place % 64));
        match event.line {
            0 => *word &= !bit,
            _ => *word |= bit,
        }
        std::mem::replace(&mut self.undecided[place], event)
    }

    /// Whether an event on `line` is undecided.
    #[inline(always)]
    pub fn is_undecided(&self, line: u64) -> bool {
        self.undecided[place::<UNDECIDED_SLOTS>(line)].line == line + 1
    }

    /// Whether an event on one of these lines is undecided.
    pub fn holds_undecided_of(&self, lines: &RangeInclusive<u64>) -> bool {
        self.slots_held().any(|place| {
            let line = self.undecided[place].line - 1;
            lines.contains(&line)
        })
    }

    /// The slots that hold events.
    fn slots_held(&self) -> impl Iterator<Item = usize> {
        let words = self.held.iter().enumerate().filter(|(_, bits)| **bits != 0);
        words.flat_map(|(word, &bits)| {
            (0..64)
                .filter(move |bit| bits >> bit & 1 != 0)
                .map(move |bit| 64 * word + bit)
        })
    }

    /// Whether an event is undecided on a line with this mark.
    #[inline(always)]
    pub fn is_marked(&self, mark: usize) -> bool {
        let line = self.undecided[mark % UNDECIDED_SLOTS].line;
        line != 0 && place::<MARKS>(line - 1) == mark
    }

    /// Whether any event is undecided, so that every read of a tracked line must be checked.
    #[inline(always)]
    pub fn any_undecided(&self) -> bool {
        self.held.iter().any(|&bits| bits != 0)
    }

    /// Decides the event on `line` as true sharing.
    pub fn resolve_true_sharing(&mut self, line: u64) {
        self.hold(place::<UNDECIDED_SLOTS>(line), Undecided::default());
    }

    /// Decides all undecided events as false sharing: no more reads will come.
    pub fn conclude(&mut self) -> Vec<False> {
        let held: Vec<usize> = self.slots_held().collect();
        held.into_iter()
            .filter_map(|place| {
                let event = self.hold(place, Undecided::default());
                self.found(event)
            })
            .collect()
    }

    fn found(&mut self, slot: Undecided) -> Option<False> {
        let line = slot.line.checked_sub(1)?;
        self.count(line, 0, 1);
        Some(False {
            line,
            writer: slot.writer,
            size: slot.size,
        })
    }

    fn count(&mut self, line: u64, events: u64, false_events: u64) {
        let slot = &mut self.lines[place::<LINES>(line)];
        if slot.line != line && slot.events + slot.false_events > 0 {
            if false_events == 0 && slot.credit > 0 {
                slot.credit -= 1;
                if slot.false_events == 0 {
                    return;
                }
                // Neither count may be lost: the new line's goes to the process's list.
                self.spilled.push((line, events, false_events));
                return;
            }
            if slot.false_events > 0 || slot.events >= 16 {
                self.spilled
                    .push((slot.line, slot.events, slot.false_events));
            }
            *slot = Counted::default();
        }
        slot.line = line;
        slot.events += events;
        slot.false_events += false_events;
        slot.credit = slot.credit.saturating_add(1).min(64);
    }

    /// Whether counts should be handed to the process.
    pub fn crowded(&self) -> bool {
        self.spilled.len() >= 256
    }

    /// Hands over the counts of evicted lines, or (`all`) of all lines.
    pub fn hand_over(&mut self, lines: &mut Lines, all: bool) {
        for (line, events, false_events) in self.spilled.drain(..) {
            lines.add(line, events, false_events);
        }
        if all {
            for slot in self.lines.iter_mut() {
                if slot.events + slot.false_events > 0 {
                    lines.add(slot.line, slot.events, slot.false_events);
                }
                *slot = Counted::default();
            }
        }
    }
}

#[inline(always)]
pub(crate) fn place<const SIZE: usize>(line: u64) -> usize {
    (line ^ line >> PLACE_SHIFT) as usize % SIZE
}

/// Number of bits by which the number of a line is shifted for its place.
pub const PLACE_SHIFT: u8 = 10;
/// Bits of the place of a line's mark.
pub const MARK_MASK: i32 = MARKS as i32 - 1;

/// A process's lines, with events and false events.
#[derive(Default)]
pub(crate) struct Lines(HashMap<u64, (u64, u64)>);

impl Lines {
    fn add(&mut self, line: u64, events: u64, false_events: u64) {
        let sum = self.0.entry(line).or_default();
        sum.0 += events;
        sum.1 += false_events;
        if self.0.len() >= KEPT {
            let kept = self.first(KEPT / 2);
            self.0 = kept.into_iter().map(|(l, e, f)| (l, (e, f))).collect();
        }
    }

    /// The lines with most false events, then most events.
    pub fn first(&self, count: usize) -> Vec<(u64, u64, u64)> {
        let mut list: Vec<_> = self
            .0
            .iter()
            .map(|(&line, &(events, false_events))| (line, events.max(false_events), false_events))
            .collect();
        list.sort_unstable_by_key(|&(line, events, false_events)| {
            (
                std::cmp::Reverse(false_events),
                std::cmp::Reverse(events),
                line,
            )
        });
        list.truncate(count);
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_have_a_bit_for_each_byte_or_each_64th() {
        assert_eq!(bytes(0x1008, 8, 6), 0xff00);
        assert_eq!(bytes(0x1000, 64, 6), u64::MAX);
        assert_eq!(bytes(0x103c, 8, 6), 0xf << 60, "clipped at the line's end");
        assert_eq!(bytes(0x1002, 1, 3), 4);
        // 256-byte lines: one bit for 4 bytes.
        assert_eq!(bytes(0x1006, 4, 8), 0b110);
    }

    #[test]
    fn events_are_decided_by_the_next_event_or_at_the_end() {
        let mut sharing = Sharing::new();
        let mut lines = Lines::default();
        // The first event is not classified. Then: disjoint and never used, false; disjoint but used later, true;
        // disjoint at the end, false.
        assert_eq!(sharing.event(7, 1, 8, None), None);
        assert_eq!(sharing.event(7, 1, 8, Some(false)), None);
        assert_eq!(
            sharing.event(7, 2, 4, Some(false)),
            Some(False {
                line: 7,
                writer: 1,
                size: 8
            })
        );
        assert!(sharing.is_undecided(7) && !sharing.is_undecided(8));
        sharing.resolve_true_sharing(7);
        assert_eq!(sharing.event(7, 3, 2, Some(false)), None);
        assert_eq!(
            sharing.conclude(),
            [False {
                line: 7,
                writer: 3,
                size: 2
            }]
        );
        sharing.hand_over(&mut lines, true);
        assert_eq!(lines.first(9), [(7, 4, 2)]);
    }

    #[test]
    fn false_lines_survive_any_number_of_others() {
        let mut sharing = Sharing::new();
        let mut lines = Lines::default();
        for round in 0..50u64 {
            for line in 0..3000u64 {
                let far = line + (round << 20);
                sharing.event(far, 1, 8, Some(true));
            }
            for line in [5, 5 + 1024, 9] {
                sharing.event(line, 1, 8, Some(false));
            }
            if sharing.crowded() {
                sharing.hand_over(&mut lines, false);
            }
        }
        sharing.conclude();
        sharing.hand_over(&mut lines, true);
        let first = lines.first(3);
        assert!(first.iter().all(|line| line.2 == 50), "{first:?}");
    }
}
