//! Puts the threads and pages of a program where a plan says: the only crate that changes machine state.
//!
//! [`mod@run`] starts a program natively and follows it; [`export`] writes a plan in the words of other
//! launchers, which place threads but no pages.
//!
//! | module | does |
//! |---|---|
//! | [`book`] | the plan, looked up by thread path and object identity (pure) |
//! | [`desk`] | decides what to pin, bind, move and check, through an actuator (pure) |
//! | [`tally`] | counts what became of every planned thread and page (pure) |
//! | `image` | loaded ELF files, their sections and system-call instructions |
//! | `launch`, `supervise`, `tracee` | start the program, follow it with ptrace, make calls in its name |
//! | `scratch` | code of ours in the program's address space, which saves stops |
//! | `sys` | system calls, each wrapped once |
#![deny(unsafe_code)]

pub mod book;
pub mod desk;
pub mod export;
mod image;
#[allow(missing_docs)]
mod launch;
mod run;
mod scratch;
mod supervise;
#[allow(missing_docs)]
mod sys;
pub mod tally;
mod tracee;

pub use run::{LaunchError, Options, PageMode, check_machine, run};
