//! The Python module `numaloc._numaloc`, the compiled part of the package in `python/`.
//!
//! It converts between Python's types and ours, and calls the crates that the commands call; it decides nothing.
//! Computations run without Python's global lock.
//!
//! | module | converts |
//! |---|---|
//! | [`arrow`] | tables of a profile to Arrow, without copies |
//! | [`profile`] | profiles, matrices, metrics, verdicts |
//! | [`machine`] | machines |
//! | [`policies`] | functions of Python to thread policies |
//! | [`map`] | a matrix and a machine to mappings |
//! | [`plan`] | a profile and a machine to a plan |

#![deny(unsafe_code)]

use pyo3::prelude::*;

mod arrow;
mod error;
mod machine;
mod map;
mod plan;
mod policies;
mod profile;

/// The compiled part of the package `numaloc`.
#[pymodule]
fn _numaloc(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("NumalocError", py.get_type::<error::NumalocError>())?;
    module.add_class::<arrow::Table>()?;
    module.add_class::<machine::Machine>()?;
    module.add_class::<profile::Profile>()?;
    module.add_function(wrap_pyfunction!(machine::described_machines, module)?)?;
    module.add_function(wrap_pyfunction!(machine::isolate_xml, module)?)?;
    module.add_function(wrap_pyfunction!(machine::serve_xml, module)?)?;
    module.add_function(wrap_pyfunction!(map::map, module)?)?;
    module.add_function(wrap_pyfunction!(plan::plan, module)?)?;
    module.add_function(wrap_pyfunction!(policies::policies, module)?)?;
    Ok(())
}
