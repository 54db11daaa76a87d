//! Running services seen from outside: which processes and threads belong to one, what they use, where their memory is,
//! and the profile of a window of time.
//!
//! Nothing is traced, stopped or changed in a service: everything is read from `/proc` and from samples of the kernel's
//! events. Page scanning and write faults clear marks of the kernel for its pages ([`numaloc_sys::references`],
//! [`numaloc_sys::writes`]), which is all that remains if numaloc is killed.
//!
//! | module | does |
//! |---|---|
//! | [`target`] | processes, control groups and units that are observed |
//! | [`tree`] | processes and threads that come and go |
//! | [`process`] | what `/proc` says of a process and its threads |
//! | [`memory`] | mappings, the nodes of their pages, and how much of them was used |
//! | `pagemap` | which pages are there |
//! | `scan` | page scanning |
//! | [`source`] | how accesses are seen, and which way is the best here |
//! | [`window`] | the profile of a window |
//! | [`top`] | figures of threads between two moments |

#![deny(unsafe_code)]

pub mod memory;
mod pagemap;
pub mod process;
mod scan;
pub mod source;
pub mod target;
pub mod top;
pub mod tree;
pub mod window;

pub use target::{Target, TargetError};
pub use tree::Tree;
