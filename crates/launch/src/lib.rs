//! Which file a command line runs, found as a shell and Linux find it.
//!
//! [`program`] looks a name up on `PATH`, [`script`] reads the first line of a script.

#![forbid(unsafe_code)]

pub mod program;
pub mod script;

pub use program::{FindError, find};
pub use script::Interpreter;
