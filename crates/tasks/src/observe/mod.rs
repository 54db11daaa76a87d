//! What is known about a run in addition to its result: the profile and its replays, statistics, reports of runs that
//! cannot continue or have crashed.

pub(crate) mod crash;
pub(crate) mod outcome;
pub(crate) mod record;
pub mod replay;
pub mod stats;
pub(crate) mod stuck;
