//! Names of threads and objects that are stable across runs of a program: implements the rules of `docs/identity.md`.
//!
//! The recorder names the threads and objects of the recorded run, the placer those of another run, and a plan works
//! only if both give equal names. So both use this crate:
//!
//! * [`path`]: the path of a thread and its creator;
//! * [`object`]: the object that a mapping, a stack, the heap or a loaded file is;
//! * [`order`]: the number that distinguishes objects that are equal in everything else;
//! * [`ranges`]: the object at an address, while mappings come and go;
//! * [`role`]: what threads and processes of one role are called;
//! * [`routine`]: what a thread runs.
//!
//! Pure: no address and no kernel id is part of a name, only the program's own order of calls and the contents of its
//! files.

pub mod object;
pub mod order;
pub mod path;
pub mod ranges;
pub mod role;
pub mod routine;

pub use object::{MapCall, NewObject};
pub use order::Orders;
pub use path::{Creator, Step, ThreadPath};
