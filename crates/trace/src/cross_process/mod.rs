//! Memory shared by processes: one table of lines for all processes of a recording.
//!
//! A process's own tables ([`crate::shadow`]) are indexed by address and know its own threads only. Lines of memory
//! that other processes may map too (`MAP_SHARED`, System V segments) are in a table mapped by all processes of the
//! recording. It is indexed by what lies behind the mapping ([`Backing`]) and the offset in it, and its thread numbers
//! are unique in the recording. So a read of what another process wrote is an event like any other, with the same
//! rules.
//!
//! The process's own word of such a line is only a mark ([`crate::line::CROSS_PROCESS`]). It matches no writer and no
//! reader, so every access fails the usual tests of the fast path, and memory that is not shared pays nothing. Words
//! are marked when a thread first touches the page, not when it is mapped: a mapping may be much larger than the part
//! in use.
//!
//! The table is a memory file of the recorder, opened by the others as `/proc/PID/fd/FD`: no disk can fill up under
//! the program's stores, and it disappears with the recorder. On another host the processes make one of their own
//! ([`host`]). Where no table is available, as when the recorder has gone, each process counts on its own, with a note.

mod backing;
mod host;
mod mapped;
mod mappings;
mod table;
mod thread;

pub use backing::Backing;
pub(crate) use host::{Found, find};
pub(crate) use mappings::{Mapped, Mappings};
pub use numaloc_journal::settings::Place;
pub use table::Board;
pub(crate) use table::Table;
pub(crate) use thread::Part;
