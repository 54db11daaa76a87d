//! A NUMA simulator: predicts the time of a recorded program on another machine, or with another placement of threads
//! and pages.
//!
//! From one access trace ([`Trace`]) and any number of triples (machine, threads, pages) it computes an [`Outcome`]
//! each. The trace holds each thread's requests to the memory system below its private caches, and the points where
//! threads wait for each other; the simulator adds the shared caches, their coherence, memory controllers and links
//! with finite bandwidth, and the resulting order in time.
//!
//! | part | file | model |
//! |---|---|---|
//! | machine | [`machine`] | cores, shared caches, controllers, links with routes; from a topology with hardware figures |
//! | trace | [`trace`], `event` | events packed into 8 bytes, lines and synchronisation words numbered densely |
//! | page policy | [`pages`] | which node a page is on, and when it moves |
//! | thread policy | [`schedule`] | threads pinned to PUs, or placed by the operating system |
//! | synchronisation | `words` | when releases happened, and who waits for them |
//! | contended lines | `trace/contended`, `run/visit` | visits of threads in place of recorded requests; a line is at one core at a time |
//! | cores | `window`, `arrivals`, `streams` | misses that overlap: a window of accesses, a number of outstanding lines, loads whose address comes from another load, recognised streams |
//! | address translation | `translation` | if asked for: a TLB for each core, page walks through private caches, last-level cache and memory |
//! | write-backs | `write_backs` | a buffer of written lines for each core; a full one delays the core |
//! | caches | `cache`, `tags`, `directory`, `memory` | set-associative LRU, a directory with one owner or several sharers for each line (MESI) |
//! | setups | `setup` | whether positions of threads and pages fit trace and machine |
//! | schedules | [`moves`] | threads and pages that a plan moves while the program runs |
//! | samples | [`sampling`] | simulates windows in detail, and caches only between them |
//! | traces with windows | `windows`, `run/windowed` | simulates the windows, and replays the time of what is between them |
//! | controllers, links | `server`, `slots`, `routes` | one request at a time, first come first served; requests with earlier times than others use idle slots |
//! | time | `run` | a clock for each PU; the PU with the earliest clock runs, at most a quantum ahead of the others |
//!
//! Pure: no I/O, no clock of the host, no threads; the same input gives the same result. Times are picoseconds (`u64`).
//!
//! Not modelled: instruction fetches, DRAM banks and refresh, branch prediction, the interconnect inside a
//! socket. Hits in private caches are not in the trace, so a thread's work between misses advances its clock by a
//! constant time per access ([`Parameters::cycles_per_access`]).

#![deny(unsafe_code)]

mod arrivals;
mod cache;
mod clocks;
mod dense;
mod directory;
mod event;
mod line;
pub mod machine;
mod memory;
pub mod moves;
pub mod outcome;
pub mod pages;
mod parameters;
mod placers;
mod prefetch;
mod routes;
mod run;
pub mod schedule;
mod server;
mod setup;
mod slots;
mod streams;
mod tags;
mod timeline;
pub mod trace;
mod translation;
mod window;
mod windows;
mod words;
mod write_backs;

pub use machine::{Machine, MachineError, Parameters};
pub use moves::Moves;
pub use outcome::Outcome;
pub use pages::Pages;
pub use run::sampling::{self, Sample};
pub use run::{Extras, simulate, simulate_with};
pub use schedule::Threads;
pub use server::Server;
pub use setup::{Setup, SetupError};
pub use trace::{Trace, TraceBuilder, TraceError};

/// Changes whenever the same input may give another outcome, so that stored outcomes are not taken for current ones.
pub const MODEL_VERSION: u32 = 12;

/// Picoseconds in a nanosecond.
pub const NS: u64 = 1000;
