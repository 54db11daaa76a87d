//! Runs a program in a virtual NUMA machine: a stock Debian kernel in QEMU with any number of memory nodes. Every
//! data access of the program is counted by (vCPU's node, memory's node).
//!
//! [`run`] is the entry point: [`Machine`] is the layout, [`Job`] the program, [`Outcome`] the result. The
//! guest is assembled for each layout: the kernel from Debian's package ([`Kernel`]) and an initial file system with
//! our agent; the job is a disk with the program and its libraries. On request a guest is kept as it is before it gets
//! its job, and continued by the next run. Nothing is installed; what stays is in the cache folder.
//!
//! Placement, migration, policies and counters are those of
//! a real kernel on a real (if emulated) multi-node machine. Time is not: instructions are emulated, and the
//! memory of all nodes is equally fast. Judge by accesses, never by seconds.

#![forbid(unsafe_code)]

mod boot;
mod counts;
mod disk;
mod error;
mod image;
mod job;
mod kept;
mod kernel;
mod libraries;
mod machine;
mod outcome;
mod patience;
mod protocol;
mod qemu;
mod watch;

pub use boot::{Sinks, run};
pub use counts::{Counts, Slice};
pub use error::LabError;
pub use job::{GuestFile, HugePages, Job, PrivateCache};
pub use kernel::{Kernel, cache_folder};
pub use machine::Machine;
pub use outcome::{Matrix, Outcome, balance};
pub use protocol::{Ended, Transcript};
