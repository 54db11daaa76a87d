//! The argument that libomp's entry points begin with.

use std::ffi::c_void;

/// Source location of a construct, from the compiler.
pub(crate) type Ident = *mut c_void;
