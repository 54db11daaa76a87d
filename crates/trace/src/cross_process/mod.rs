//! Memory that processes share: one table of lines for all processes of a recording.
//!
//! A process's own tables ([`crate::shadow`]) are found by address, and know its threads only. Lines of memory that other
//! processes may map too (`MAP_SHARED`, System V segments) are in a table that all processes of the recording have mapped,
//! found by what lies behind the mapping ([`Backing`]) and the place in it; there, threads have numbers that are unique in the
//! recording. So a read of what another process wrote is an event like any other, with the same rules.
//!
//! The process's own word of such a line only says so ([`crate::line::CROSS_PROCESS`]): it is nobody's line and read by nobody, so every
//! access leaves the fast path by the tests that are there anyway, and memory that is not shared pays nothing. Words are marked
//! when a thread touches the page for the first time, not when it is mapped: a mapping may be much larger than what is used of it.
//!
//! The table is a memory file of the recorder's, opened by the others as `/proc/PID/fd/FD`: no disk can fill up under the program's
//! stores, and it is gone with the recorder. On another host it is not there; then, as when the recorder has gone, each process
//! counts by itself and says so.

mod backing;
mod mappings;
mod table;
mod thread;

pub use backing::Backing;
pub(crate) use mappings::{Mapped, Mappings};
pub(crate) use table::Table;
pub use table::{Board, Place};
pub(crate) use thread::Part;
