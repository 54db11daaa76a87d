//! The exception of the module, and the errors of our crates as exceptions.

use std::fmt::Display;

use pyo3::PyErr;
use pyo3::exceptions::PyException;

pyo3::create_exception!(
    numaloc,
    NumalocError,
    PyException,
    "What numaloc tried, on what, and what it found."
);

/// The exception of an error.
pub(crate) fn failed(error: impl Display) -> PyErr {
    NumalocError::new_err(error.to_string())
}
