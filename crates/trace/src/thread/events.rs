//! A thread's events that are not yet known to be true or false sharing ([`crate::sharing`]).

use std::ops::RangeInclusive;

use super::ThreadTracer;
use crate::line::{self, FAST_SHIFT};
use crate::pages::PAGE_SHIFT;
use crate::sharing::{self, False, MARKS, PLACE_SHIFT, Sharing};

/// Lines of a page.
const LINES: usize = 1 << (PAGE_SHIFT - FAST_SHIFT);
// The marks of a page's lines follow each other: see `Events::hold_any_in_page`.
const _: () = assert!(MARKS.is_multiple_of(LINES) && PLACE_SHIFT as u32 >= PAGE_SHIFT - FAST_SHIFT);

/// A thread's undecided events and counts of lines, and what its reads need to know of them.
pub(super) struct Events {
    /// Created at the thread's first event.
    sharing: Option<Box<Sharing>>,
    /// Whether an event is undecided on a line with this mark.
    marks: [bool; MARKS],
}

impl Events {
    /// Offset of the marks.
    pub const MARKS: usize = std::mem::offset_of!(Self, marks);

    /// No events.
    pub fn new() -> Self {
        Self {
            sharing: None,
            marks: [false; MARKS],
        }
    }

    /// Whether an event is undecided on a line with the mark of that at `address`, nearly always this one.
    #[inline(always)]
    pub fn holds(&self, address: u64) -> bool {
        self.marks[sharing::place::<MARKS>(address >> FAST_SHIFT)]
    }

    /// [`Events::holds`] for any line of the page at `address`, if lines have the usual size.
    #[inline(always)]
    pub fn hold_any_in_page(&self, address: u64) -> bool {
        // Their numbers differ in their last bits only, and so do the marks' places.
        let line = address >> PAGE_SHIFT << (PAGE_SHIFT - FAST_SHIFT);
        let first = sharing::place::<MARKS>(line) & !(LINES - 1);
        any(&self.marks[first..first + LINES])
    }

    /// Whether an event on one of these lines is undecided.
    fn are_undecided(&self, lines: &RangeInclusive<u64>) -> bool {
        let sharing = self.sharing.as_ref();
        sharing.is_some_and(|sharing| sharing.holds_undecided_of(lines))
    }

    /// Whether an event on `line` is undecided.
    #[inline(always)]
    pub fn is_undecided(&self, line: u64) -> bool {
        let sharing = self.sharing.as_ref();
        sharing.is_some_and(|sharing| sharing.is_undecided(line))
    }

    /// Whether any event is undecided.
    #[inline(always)]
    fn any_undecided(&self) -> bool {
        let sharing = self.sharing.as_ref();
        sharing.is_some_and(|sharing| sharing.any_undecided())
    }

    /// Counts an event of true sharing on `line` and returns true, if that is all it changes.
    #[inline(always)]
    pub fn count_true(&mut self, line: u64) -> bool {
        match &mut self.sharing {
            Some(sharing) => sharing.count_true(line),
            None => false,
        }
    }

    /// [`Sharing::counts`].
    #[inline(always)]
    pub fn counts(&self, line: u64, overlaps: bool) -> Option<u32> {
        let sharing = self.sharing.as_ref()?;
        sharing.counts(line, overlaps)
    }

    /// [`Sharing::count_here`].
    #[inline(always)]
    pub fn count(&mut self, line: u64, writer: u32, size: u32, overlaps: bool) -> Option<False> {
        let sharing = self.sharing.as_mut()?;
        let found = sharing.count_here(line, writer, size, overlaps);
        let mark = sharing::place::<MARKS>(line);
        self.marks[mark] = sharing.is_marked(mark);
        found
    }

    /// Decides the event on `line` as true sharing; returns whether there was one.
    fn resolve_true_sharing(&mut self, line: u64) -> bool {
        let undecided = self.is_undecided(line);
        if let Some(sharing) = self.sharing.as_mut().filter(|_| undecided) {
            sharing.resolve_true_sharing(line);
            self.update(line);
        }
        undecided
    }

    /// Counts an event on `line`; returns the event of false sharing that it evicts, if any.
    fn event(
        &mut self,
        line: u64,
        writer: u32,
        size: u32,
        overlaps: Option<bool>,
        hand_over: impl FnOnce(&mut Sharing),
    ) -> Option<False> {
        let sharing = self.sharing.get_or_insert_with(|| Box::new(Sharing::new()));
        let found = sharing.event(line, writer, size, overlaps);
        if sharing.crowded() {
            hand_over(sharing);
        }
        if let Some(found) = &found {
            self.update(found.line);
        }
        self.update(line);
        found
    }

    /// Updates the mark of `line`.
    fn update(&mut self, line: u64) {
        let mark = sharing::place::<MARKS>(line);
        let sharing = self.sharing.as_ref();
        self.marks[mark] = sharing.is_some_and(|sharing| sharing.is_marked(mark));
    }

    /// Takes everything at the end of the thread.
    pub fn take(&mut self) -> Option<Box<Sharing>> {
        self.sharing.take()
    }
}

/// Whether any of some marks is set; all are tested, which takes fewer instructions.
#[inline(always)]
fn any(marks: &[bool]) -> bool {
    marks.iter().fold(false, |any, &one| any | one)
}

/// The bits in which a line's word must equal that of the thread's own for a fast read, of a thread with this reader
/// bit. `undecided`: an event of the thread is.
#[inline(always)]
pub(super) fn read_mask(bit: u64, undecided: bool) -> u64 {
    // A thread without a bit of its own reads fast only where it wrote last itself.
    let base = if bit == 0 { !line::TRACKED } else { bit };
    base | if undecided { line::TRACKED } else { 0 }
}

impl ThreadTracer {
    /// Updates the test for fast reads: reads of tracked lines matter only while one of this thread's events is
    /// undecided.
    #[inline(always)]
    pub(super) fn update_read_mask(&mut self) {
        self.fast.read_mask = read_mask(self.bit, self.events.any_undecided());
    }

    /// The test for fast reads of the lines of the page at `address`, which have the usual size.
    #[inline(always)]
    pub(super) fn read_mask_in_page(&self, address: u64) -> u64 {
        self.read_mask_unless(|| self.events.hold_any_in_page(address))
    }

    /// The test for fast reads of lines, which have the usual size, between two addresses.
    pub(super) fn read_mask_between(&self, addresses: [u64; 2]) -> u64 {
        let [one, other] = addresses.map(|address| address >> FAST_SHIFT);
        let lines = one.min(other)..=one.max(other);
        self.read_mask_unless(|| self.events.are_undecided(&lines))
    }

    /// The test for fast reads of lines, which is the stricter one only if an event on them may be `undecided`.
    #[inline(always)]
    fn read_mask_unless(&self, undecided: impl FnOnce() -> bool) -> u64 {
        match self.fast.read_mask & line::TRACKED != 0 && !undecided() {
            true => read_mask(self.bit, false),
            false => self.fast.read_mask,
        }
    }

    /// Decides the pending event on the line at `address` as true sharing: this thread has used bytes written in the
    /// present tenure.
    pub(crate) fn resolve_true_sharing(&mut self, address: u64) {
        let line = address >> self.lines.shift();
        if self.events.resolve_true_sharing(line) {
            self.update_read_mask();
        }
    }

    /// Classifies an event as true or false sharing, or leaves it undecided.
    pub(crate) fn classify(
        &mut self,
        writer: u32,
        address: u64,
        size: u32,
        overlaps: Option<bool>,
    ) {
        let line = address >> self.lines.shift();
        // The usual case: true sharing, and no undecided event in its slot.
        if overlaps == Some(true) && self.events.count_true(line) {
            return;
        }
        let engine = self.engine;
        let hand_over =
            |sharing: &mut Sharing| sharing.hand_over(&mut engine.shared_lines(), false);
        let found = self.events.event(line, writer, size, overlaps, hand_over);
        self.update_read_mask();
        if let Some(found) = found {
            self.record_false_sharing(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_held_from_an_undecided_event_to_its_decision() {
        let mut events = Events::new();
        let line = 77u64;
        assert!(!events.count_true(line), "no table yet");
        assert_eq!(events.event(line, 3, 8, Some(false), |_| ()), None);
        assert!(events.is_undecided(line) && events.any_undecided());
        assert!(events.holds(line << FAST_SHIFT) && !events.holds((line + 1) << FAST_SHIFT));
        let page = line << FAST_SHIFT >> PAGE_SHIFT;
        let held: Vec<u64> = (0..64)
            .filter(|&page| events.hold_any_in_page(page << PAGE_SHIFT))
            .collect();
        assert!(held.contains(&page) && !held.contains(&(page + 1)));
        // The marks of a page's lines are those of one in 64.
        let marks = |page: u64| (0..64).any(|n| events.holds(page << PAGE_SHIFT | n << FAST_SHIFT));
        assert!((0..64).all(|page| marks(page) == held.contains(&page)));
        assert!(events.are_undecided(&(0..=77)) && events.are_undecided(&(77..=300)));
        assert!(!events.are_undecided(&(0..=76)) && !events.are_undecided(&(78..=1000)));
        assert!(events.resolve_true_sharing(line));
        assert!(!events.resolve_true_sharing(line));
        assert!(!events.any_undecided() && !events.holds(line << FAST_SHIFT));
    }

    #[test]
    fn an_event_evicts_the_undecided_one_of_its_slot_as_false_sharing() {
        let mut events = Events::new();
        events.event(77, 3, 8, Some(false), |_| ());
        let found = events.event(77, 4, 4, Some(true), |_| ());
        assert_eq!(
            found,
            Some(False {
                line: 77,
                writer: 3,
                size: 8
            })
        );
        assert!(!events.any_undecided() && events.count_true(77));
        assert!(events.take().is_some() && events.take().is_none());
    }
}
