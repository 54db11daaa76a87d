//! Versioned readers and writers: the only place that knows how numaloc's files look.
//!
//! Every reader treats its file as hostile: sizes are bounded before memory is taken, and an error
//! names the file, the place in it, what was found and what was expected. Every writer writes through
//! `numaloc-files`, so that nothing half-written ever stands under a final name.
//!
//! | module | file |
//! |---|---|
//! | [`profile`] | `NAME.numaloc/`: Parquet tables and `meta.json` |
//! | [`numalize_pages`] | page use in the columns of numalize |
//! | [`plan`] | `plan.json` |
//! | [`matrix`] | communication matrices: CSV, `.npy`, MatrixMarket, edge list |
//! | `columns` | one table as typed columns, to and from Parquet |

#![forbid(unsafe_code)]

pub mod access_trace;
mod columns;
mod error;
pub mod matrix;
pub mod numalize_pages;
pub mod plan;
pub mod profile;

pub use error::FormatError;
