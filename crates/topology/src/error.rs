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

/// Why distances do not fit a machine.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DistanceError {
    /// Not one value per level at which the machine branches.
    #[error("{given} distances given, but the machine branches at {levels} levels")]
    Levels {
        /// Values given.
        given: usize,
        /// Levels of the machine.
        levels: usize,
    },
    /// Not nodes x nodes values.
    #[error("{given} distances given, a machine of {nodes} nodes needs {}", nodes * nodes)]
    Nodes {
        /// Values given.
        given: usize,
        /// Nodes of the machine.
        nodes: usize,
    },
    /// A value that is no distance.
    #[error("distance {value} is not a finite number of at least 0")]
    Value {
        /// The value.
        value: f64,
    },
}

impl DistanceError {
    /// An error for the first of `values` that is no distance.
    pub(crate) fn check(values: &[f64]) -> Result<(), Self> {
        let bad = values.iter().find(|d| !d.is_finite() || **d < 0.0);
        bad.map_or(Ok(()), |&value| Err(Self::Value { value }))
    }
}
