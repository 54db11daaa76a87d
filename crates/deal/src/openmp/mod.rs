//! The entry points of OpenMP's run-time systems that hand out iterations.

mod call;
mod gomp;
mod kmpc;
mod schedule;
mod team;
