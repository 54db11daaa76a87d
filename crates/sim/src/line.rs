//! A line of the trace, as caches and directory name it.

/// A line's number, and whether its page is used by one thread only: the directory has nothing to record about such a
/// line if the threads stay on their cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line(u32);

/// The line's page is used by one thread only.
const PRIVATE: u32 = 1 << 31;

impl Line {
    /// `number` is below 2^31.
    #[inline(always)]
    pub(crate) fn new(number: u32, is_private: bool) -> Self {
        debug_assert!(number < PRIVATE);
        Self(number | u32::from(is_private) << 31)
    }

    #[inline(always)]
    pub(crate) fn number(self) -> u32 {
        self.0 & !PRIVATE
    }

    #[inline(always)]
    pub(crate) fn is_private(self) -> bool {
        self.0 & PRIVATE != 0
    }
}
