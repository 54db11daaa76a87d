//! Which thread places a page, and under which memory policy: the kernel's rules for page faults, as a model.
//!
//! [`AddressSpace`] is the table of a process's areas (the kernel's VMAs), changed by the system calls that change
//! memory. What is known of a page is a word ([`State`]) in a table of the caller's ([`Pages`]). An access, a store
//! by the kernel on behalf of a thread, or a call that populates memory is a fault: the model answers which pages it
//! places, by which [`Rule`].
//!
//! | memory | load of an absent page | store to an absent page |
//! |---|---|---|
//! | private, anonymous | maps the zero page, places nothing | places the page; the later store to a zero page does, too |
//! | private, of a file | maps the page cache's page, places nothing | places a copy |
//! | shared | places the page, unless it is in the page cache already | the same |
//! | of huge pages (hugetlb) | places the whole huge page | the same |
//! | a parent's, after a fork | none | places a copy |
//!
//! A store to private anonymous memory that may have transparent huge pages places all of an aligned 2 MiB range if
//! none of it is present and all of it is one area. A load there maps a huge zero page, which the first store splits
//! (Linux before 6.13), so that pages of 4 KiB are placed one by one.
//!
//! Pure: no I/O, no clock, no lock. Not modelled: reclaim and swapping, `khugepaged`, merging of equal pages (KSM),
//! automatic NUMA balancing, a full node, and a parent's copies of pages that a child still maps.

mod area;
mod calls;
mod fault;
mod policy;
mod state;

pub use area::{AddressSpace, Area, Backing, FileId, HugeAdvice, HugePages};
pub use calls::{Advice, Dropped};
pub use fault::{Access, By, Placed, Placer, Rule};
pub use policy::{Mode, Policy};
pub use state::{Pages, State};

/// log2 of the bytes of a page.
pub const PAGE_SHIFT: u32 = 12;
/// Bytes of a page.
pub const PAGE: u64 = 1 << PAGE_SHIFT;
/// Pages of a transparent huge page.
pub const HUGE: u64 = 512;
