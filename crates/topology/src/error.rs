//! Why there is no topology.

/// Why there is no topology. Each says what was tried, on what, what was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// hwloc could not see this machine.
    #[error("cannot read this machine's topology with hwloc: {why}")]
    Live {
        /// hwloc's words.
        why: String,
    },
    /// An XML file hwloc refuses.
    #[error("cannot read {path} as hwloc XML: {why}")]
    Xml {
        /// The file.
        path: String,
        /// hwloc's or the kernel's words.
        why: String,
    },
    /// Neither a file, nor a described machine, nor a synthetic string.
    #[error("cannot understand machine {spec:?}: {why}")]
    Spec {
        /// What was given.
        spec: String,
        /// What is wrong with it.
        why: String,
    },
    /// A machine file that does not parse.
    #[error("cannot read machine description {path}: {why}")]
    Description {
        /// File or built-in name.
        path: String,
        /// The parser's words, with line and column.
        why: String,
    },
    /// A machine without PUs.
    #[error("machine {name:?} has no processing units")]
    Empty {
        /// Its name.
        name: String,
    },
}
