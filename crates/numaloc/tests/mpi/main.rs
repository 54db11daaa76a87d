//! MPI programs: messages, hosts, ranks that die, merging.

mod programs;
#[path = "../../../mpi/tests/support/ranks.rs"]
mod ranks;
#[path = "../support/mod.rs"]
mod support;

mod clusters;
mod hosts;
mod killed;
mod merging;
mod messages;
mod passing;
