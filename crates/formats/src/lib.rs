//! Versioned readers and writers: the only place that knows how numaloc's files look.
//!
//! Every reader treats its file as hostile: sizes are bounded before memory is taken, and an error
//! names the file, the place in it, what was found and what was expected. Every writer writes beside
//! the final name and renames, so that nothing half-written ever stands under it.
//!
//! | module | file |
//! |---|---|
//! | [`profile`] | `NAME.numaloc/`: Parquet tables and `meta.json` |
//! | [`numalize_pages`] | page use in the columns of numalize |
//! | [`plan`] | `plan.json` |
//! | [`matrix`] | communication matrices: CSV, `.npy`, MatrixMarket, edge list |
//! | `columns` | one table as typed columns, to and from Parquet |
//! | `atomic` | write beside, then rename |

#![forbid(unsafe_code)]

pub mod access_trace;
pub mod atomic;
mod columns;
mod error;
pub mod matrix;
pub mod numalize_pages;
pub mod plan;
pub mod profile;

pub use atomic::write_file;
pub use error::FormatError;
