//! Commands that read a profile, plan or machine and write an answer.

#[path = "../support/mod.rs"]
mod support;

mod check;
mod completions;
mod import_perf;
mod install;
mod interface;
mod map;
mod mistaken;
mod outputs;
mod plan;
mod report;
mod segments;
mod simulate;
mod simulated;
