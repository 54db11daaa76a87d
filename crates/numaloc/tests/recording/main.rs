//! `numaloc record` with its frontends: what is recorded, and that the program does not notice.

#[path = "../support/mod.rs"]
mod support;

mod access_trace;
mod advise;
mod answered;
mod conditions;
mod contended;
mod dealt;
mod dependent_loads;
mod exactness;
mod fidelity;
mod first_touch;
mod forked;
mod frontends;
mod full_disk;
mod grouping;
mod identity;
mod instrument;
mod loops;
mod main_job;
mod marks;
mod named;
mod native;
mod openmp;
mod placed;
mod record;
mod record_perf;
mod rights;
mod shared_memory;
mod sites;
mod tracing;
mod undisturbed;
mod written;
