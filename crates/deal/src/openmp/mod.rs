//! The entry points of OpenMP's run-time systems that hand out iterations.

mod call;
mod gomp;
mod gomp_entries;
mod kmpc;
mod libomp;
mod schedule;
mod team;
