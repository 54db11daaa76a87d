//! Programs run under a plan or placed online, measured and as tasks.

#[path = "../support/mod.rs"]
mod support;

mod compare;
mod moves;
mod online;
mod roles;
mod run;
mod task_plans;
mod task_programs;
mod validate;
mod window;
