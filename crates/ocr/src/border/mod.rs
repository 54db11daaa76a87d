//! The C interface, one function per call, documented in `include/ocr.h`. It checks pointers and converts numbers to
//! types ([`abi`]), finds the worker and reports errors (`call`); `numaloc-tasks` implements the calls. A panic ends
//! the process, because nothing may unwind through C.
#![allow(clippy::missing_safety_doc)] // One contract for all of them: ocr.h.
#![allow(missing_docs)] // Documented once, in ocr.h.

pub mod abi;
pub mod affinities;
pub mod blocks;
mod call;
pub mod events;
mod hint;
mod kinds;
pub mod labels;
pub mod program;
pub mod tasks;
pub mod waits;
