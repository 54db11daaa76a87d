//! The system calls that change where threads run and where memory lies, behind safe functions with typed arguments.
//!
//! This is the only crate that makes them; `crates/numaloc/tests/repository/machine_state.rs` searches all others. It
//! is linked into the task runtime, which runs inside the user's program, so it depends on little.
//!
//! | module | changes |
//! |---|---|
//! | [`affinity`] | the PUs a thread may run on |
//! | [`memory`] | the node preferred for a range of memory, the nodes of pages |
//! | [`inject`] | the same in another process: the calls, as a tracer makes a stopped thread execute them |
//! | [`writes`] | makes the next write to each page of a process a page fault |
//! | [`references`] | clears the kernel's marks of the pages that a process used |
//! | [`weights`] | nothing: reads the weights of weighted interleaving |
//! | [`balancing`] | the kernel's switch of automatic NUMA balancing |
//! | [`scanning`] | how fast automatic NUMA balancing visits pages |
//!
//! Functions that read the same state are next to those that change it. PUs and nodes have the kernel's numbers.
#![deny(unsafe_code)]

pub mod affinity;
pub mod balancing;
pub mod inject;
pub mod memory;
pub mod references;
pub mod scanning;
pub mod weights;
pub mod writes;

use libc::c_long;
use std::io;

/// The result of a system call by the C library's convention: -1 is an error with its number in `errno`.
fn check(result: c_long) -> io::Result<c_long> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
