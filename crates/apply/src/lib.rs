//! Applies a plan: binds threads to PUs and places pages on NUMA nodes.
//!
//! [`mod@run`] starts a program natively and follows it; [`export`] writes a plan in the notation of other
//! launchers, which place threads but no pages.
//!
//! | module | does |
//! |---|---|
//! | [`index`] | the plan, indexed by thread path and object identity (pure) |
//! | [`controller`] | decides what to pin, bind, move and check, through an actuator (pure) |
//! | [`roster`] | who has which role of a plan by role, and where members go (pure) |
//! | [`spread`] | which pages of a plan by weights the kernel distributes itself (pure) |
//! | `weights` | the weights of a plan, as the kernel has them (pure) |
//! | [`moves`] | the later moves of a plan, and what became of them (pure) |
//! | [`tally`] | counts what became of every planned thread and page (pure) |
//! | [`online`] | follows a running program and moves what an advisor says, without a plan |
//! | `agent` | the library that counts marks in the program |
//! | `image` | loaded ELF files, their sections and system-call instructions |
//! | `launch`, `supervise`, `tracee` | start the program, follow it with ptrace, inject system calls into it |
//! | `scratch` | code injected into the program's address space to avoid ptrace stops |
//! | `gate` | a breakpoint that a program which blocks SIGTRAP does not notice |
//! | [`permitted`] | whether this machine lets us follow programs and place pages |
//! | `program` | whether a command runs the program of a plan (pure) |
//! | `ptrace` | the system calls of a tracer, each wrapped once |
#![deny(unsafe_code)]

mod agent;
pub mod controller;
pub mod export;
#[allow(missing_docs)]
mod gate;
mod image;
pub mod index;
#[allow(missing_docs)]
mod launch;
pub mod moves;
pub mod online;
pub mod permitted;
pub mod preload;
mod program;
#[allow(missing_docs)]
mod ptrace;
pub mod roster;
mod run;
mod scratch;
pub mod spread;
mod supervise;
pub mod tally;
mod tracee;
mod weights;

pub use agent::LIBRARY;
pub use run::{LaunchError, Options, PageMode, check_machine, run};
