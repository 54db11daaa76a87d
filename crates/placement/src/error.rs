//! Errors of page policies.

use numaloc_model::ThreadIdx;

/// Why there is no placement. Each message has the value found and the value expected.
#[derive(Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum PlaceError {
    /// The mapping lacks a thread that touches pages.
    #[error("{thread} touches pages, but the mapping has only {mapped} threads")]
    UnmappedThread {
        /// The thread.
        thread: ThreadIdx,
        /// Threads of the mapping.
        mapped: usize,
    },
    /// The mapping names a PU the machine does not have.
    #[error("{thread} is mapped to PU {pu}, but the machine has only {pus} PUs")]
    NoSuchPu {
        /// The thread.
        thread: ThreadIdx,
        /// Logical index.
        pu: u32,
        /// PUs of the machine.
        pus: usize,
    },
    /// A page size that is no multiple of the recorded one.
    #[error("page size {page_size} is not a multiple of the profile's {recorded} bytes")]
    PageSize {
        /// The page size requested.
        page_size: u64,
        /// The profile's page size.
        recorded: u64,
    },
    /// The number of capacities differs from the number of nodes.
    #[error("{given} node capacities given, the machine has {nodes} nodes")]
    Capacity {
        /// Found.
        given: usize,
        /// Expected.
        nodes: usize,
    },
    /// The minimum exclusivity is not a share.
    #[error("minimum exclusivity {given} is not within 0..=1")]
    MinExclusivity {
        /// Found.
        given: f64,
    },
    /// The number of weights differs from the number of nodes.
    #[error("{given} weights given, the machine has {nodes} nodes")]
    Weights {
        /// Found.
        given: usize,
        /// Expected.
        nodes: usize,
    },
    /// No node with memory has a weight.
    #[error("the weights of all nodes with memory are 0, expected one above 0")]
    ZeroWeights,
    /// The machine states no bandwidths, and no weights are given.
    #[error("{policy} needs bandwidths, and the machine states none")]
    NoBandwidth {
        /// Name of the policy.
        policy: &'static str,
    },
    /// All memory of the machine is of one kind.
    #[error("{policy} needs memory of several kinds, and all nodes of the machine have the same")]
    OneKind {
        /// Name of the policy.
        policy: &'static str,
    },
    /// No node without PUs has more bandwidth than those with PUs.
    #[error(
        "{policy} needs memory-only nodes with more bandwidth than nodes with PUs, and the machine has none"
    )]
    NoHighBandwidth {
        /// Name of the policy.
        policy: &'static str,
    },
    /// The pages do not fit on all nodes together.
    #[error("{policy} has to place {pages} pages, and all nodes together have room for {room}")]
    TooSmall {
        /// Name of the policy.
        policy: &'static str,
        /// Pages of the placement's page size, at least.
        pages: u64,
        /// Pages that fit.
        room: u64,
    },
    /// No candidates for the joint policy, or a candidate that does not fit the others.
    #[error("{why}")]
    Candidates {
        /// The reason.
        why: String,
    },
}
