//! Errors of reading a topology.

/// Why a topology could not be read. Each message states what was attempted, on what, and what was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// hwloc could not read this machine.
    #[error("cannot read this machine's topology with hwloc: {why}")]
    Live {
        /// hwloc's error.
        why: String,
    },
    /// An XML file that hwloc refuses.
    #[error("cannot read {path} as hwloc XML: {why}")]
    Xml {
        /// The file.
        path: String,
        /// hwloc's or the kernel's error.
        why: String,
    },
    /// Neither a file, nor a described machine, nor a synthetic string.
    #[error("cannot understand machine {spec:?}: {why}")]
    Spec {
        /// The specification as given.
        spec: String,
        /// What is wrong with it.
        why: String,
    },
    /// An invalid machine file.
    #[error("cannot read machine description {path}: {why}")]
    Description {
        /// File or built-in name.
        path: String,
        /// The parser's error, with line and column.
        why: String,
    },
    /// A machine without PUs.
    #[error("machine {name:?} has no processing units")]
    Empty {
        /// Its name.
        name: String,
    },
}
