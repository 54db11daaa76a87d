//! Starting programs: which file a command line runs, what belongs to the running program, and what a tool does while
//! its child runs.
//!
//! | module | does |
//! |---|---|
//! | [`emulator`] | what keeps qemu-user from waiting without end in a forked child |
//! | [`program`] | looks a name up on `PATH`, as a shell does |
//! | [`rights`] | finds programs whose file gives them rights |
//! | [`script`] | reads the first line of a script, as Linux does |
//! | [`sibling`](mod@sibling) | finds libraries, plugins and headers that belong to the running program |
//! | [`status`] | exit statuses as a shell reports them |
//! | `signals` | signals passed on to a child, or taken as the wish to end; feature `signals` |
//!
//! Code that runs inside the program under study uses the first four, without the feature: it must link little.

#![forbid(unsafe_code)]

pub mod emulator;
pub mod program;
pub mod rights;
pub mod script;
pub mod sibling;
#[cfg(feature = "signals")]
pub mod signals;
pub mod status;

pub use program::{FindError, find};
pub use script::Interpreter;
pub use sibling::{Part, SiblingError, own_file, sibling};
#[cfg(feature = "signals")]
pub use signals::{Signals, Stop, ask_to_end, passing_signals};
pub use status::{OWN_FAILURE, exit_status, status_of_signal};
