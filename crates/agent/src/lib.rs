//! The agent: a library that `numaloc run` preloads into a program whose plan has later moves. It counts the marks that
//! the program passes, and stops at those where threads and pages are to move.
//!
//! The entry points of run-time libraries are replaced by functions that count and continue in the real ones
//! (`entries`). Counts and the passes to stop at are in the [`Board`], which the controller reads and writes from
//! outside the process. At a pass to stop at, the agent executes the breakpoint in [`numaloc_marks_reached`]: the
//! controller, which traces the program, moves what is to move, sets the next pass, and lets the thread continue. The
//! controller sets passes only in processes that it traces.
//!
//! The program must not notice: no memory is allocated, no lock is taken, no file is opened or written, no signal
//! handler or environment variable is left behind. The variable that preloads this library is removed before the
//! program begins, so programs that it starts get the environment that the user set.

#![deny(unsafe_op_in_unsafe_fn)]

mod board;
mod entries;
mod environment;

pub use board::{Board, numaloc_marks_board, numaloc_marks_reached};
