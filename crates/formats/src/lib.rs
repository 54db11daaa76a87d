//! Versioned readers and writers of all file formats of numaloc.
//!
//! Every reader treats its file as untrusted: sizes are checked before memory is allocated, and an error
//! names the file, the place in it, what was found and what was expected. Every writer writes through
//! `numaloc-files`, so that a final name never refers to an incomplete file.
//!
//! | module | file |
//! |---|---|
//! | [`profile`] | `NAME.numaloc/`: Parquet tables and `meta.json` |
//! | [`numalize_pages`] | page use in the columns of numalize |
//! | [`plan`] | `plan.json` |
//! | [`matrix`] | communication matrices: CSV, `.npy`, MatrixMarket, edge list |
//! | [`segments`] | rules that name the memory of well-known programs: `segments/*.toml` |
//! | `columns` | tables with typed columns, to and from Parquet |

#![forbid(unsafe_code)]

pub mod access_trace;
mod columns;
mod error;
pub mod matrix;
pub mod numalize_pages;
pub mod plan;
pub mod profile;
pub mod segments;

pub use error::FormatError;
