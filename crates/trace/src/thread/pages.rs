//! The pages that a thread accesses: counts since they were last written, and first touches.

use super::ThreadTracer;
use crate::pages::PageCounters;

/// A thread's page counts of the present span.
pub(super) struct Pages {
    pub counters: PageCounters,
    /// Pages touched first by this thread, and when.
    pub first_touched: Vec<(u64, u64)>,
    /// Number of the thread's memory policy, 0 for first touch.
    pub policy: u16,
    pub span_start: u64,
    pub span_length: u64,
}

impl Pages {
    pub fn new(counters: PageCounters) -> Self {
        Self {
            counters,
            first_touched: Vec::new(),
            policy: 0,
            span_start: 0,
            span_length: 1,
        }
    }

    /// Begins the span of `length` that contains `now`.
    pub fn begin_span(&mut self, now: u64, length: u64) {
        self.span_length = length;
        self.span_start = now / length * length;
    }

    /// Whether the span has ended by `now`.
    pub fn is_over(&self, now: u64) -> bool {
        now >= self.span_start + self.span_length
    }
}

impl ThreadTracer {
    /// Replaces the counters, which have counted nothing yet.
    pub fn set_counters(&mut self, counters: PageCounters) {
        self.fast.pages = counters.words();
        self.pages.counters = counters;
    }

    /// Discards counts from now on.
    pub(super) fn discard_pages(&mut self) {
        self.pages.counters.discard(&self.engine.tables.touched);
        self.fast.pages = self.pages.counters.words();
    }

    /// [`PageCounters::set_apart`].
    pub(crate) fn set_apart(&mut self, address: u64) {
        self.pages.counters.set_apart(address);
    }

    /// Records the first access to a page in a span, which may be the first of any thread.
    #[cold]
    #[inline(never)]
    pub(super) fn touch<const WRITE: bool>(&mut self, address: u64) {
        self.engine.mark_if_cross_process(address);
        self.settle::<WRITE>(address);
    }

    /// Asks who places the page unless the access is no fault.
    #[inline(always)]
    pub(super) fn settle<const WRITE: bool>(&mut self, address: u64) {
        if !self.engine.is_settled::<WRITE>(address) && self.is_within_reach(address) {
            self.fault(address, WRITE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::PAGE_SHIFT;
    use crate::shadow::Shadow;

    #[test]
    fn a_span_begins_at_a_multiple_of_its_length() {
        let table = Shadow::reserve(PAGE_SHIFT).unwrap();
        let mut pages = Pages::new(PageCounters::discarding(&table));
        pages.begin_span(2500, 1000);
        assert_eq!(pages.span_start, 2000);
        assert!(!pages.is_over(2999) && pages.is_over(3000));
        pages.begin_span(3000, 4000);
        assert_eq!(pages.span_start, 0);
        assert!(!pages.is_over(3999));
    }
}
