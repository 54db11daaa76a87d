//! The caches before an access trace.

use numaloc_access_trace::message::CacheSize;
use numaloc_access_trace::windows::Windows;

/// The caches that filter each thread's accesses in an access trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// First level.
    pub l1: CacheSize,
    /// Second level, which includes the first.
    pub l2: CacheSize,
    /// The windows outside which requests are left out.
    pub windows: Option<Windows>,
    /// Whether the frontend marks loads whose address comes from another load; set by it, not passed on.
    pub marks_loads: bool,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            l1: CacheSize {
                bytes: 32 << 10,
                ways: 8,
            },
            l2: CacheSize {
                bytes: 1 << 20,
                ways: 16,
            },
            windows: None,
            marks_loads: false,
        }
    }
}
