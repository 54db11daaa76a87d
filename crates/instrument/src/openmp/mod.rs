//! OpenMP: the entry points of libgomp and libomp, and the virtual time of teams and tasks.

pub mod doacross;
pub mod gomp;
pub mod gomp_tasks;
mod ident;
pub mod kmpc;
pub mod kmpc_tasks;
pub mod sharing;
pub mod tasks;
pub mod team;
mod variadic;
