//! Time that ranks spend in MPI calls, and which ranks they wait for.

use crate::ids::ThreadIdx;
use crate::sites::CodePlace;

/// Why a rank waited in an MPI call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitKind {
    /// A receive, or a wait for one, began before its message was sent.
    LateSender,
    /// A send, or a wait for one, went on until its receive was posted.
    LateReceiver,
    /// A collective was entered before its last rank entered it.
    Imbalance,
}

impl WaitKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::LateSender, Self::LateReceiver, Self::Imbalance];

    /// The name in profile tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LateSender => "late_sender",
            Self::LateReceiver => "late_receiver",
            Self::Imbalance => "imbalance",
        }
    }
}

/// MPI calls of one rank, operation, size of communicator, call site and class of size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MpiCall {
    /// The rank.
    pub thread: ThreadIdx,
    /// The operation, such as `MPI_Send`.
    pub operation: String,
    /// Ranks of the communicator; 0 if the call names none.
    pub ranks: u32,
    /// Where the program calls.
    pub place: CodePlace,
    /// Upper limit of the class: the calls have at most this number of bytes, and more than half of it.
    pub most_bytes: u64,
    /// Number of calls.
    pub calls: u64,
    /// Sum of their bytes.
    pub bytes: u64,
    /// Time in the calls, ns.
    pub nanoseconds: u64,
    /// Part of it in which the calls waited, by [`WaitKind`], ns.
    pub waiting: [u64; 3],
    /// Number of messages and collectives that the calls waited for.
    pub partners: u64,
    /// Number of those whose other side is known.
    pub matched: u64,
}

/// Time for which one rank waited for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpiWait {
    /// The rank that waited.
    pub thread: ThreadIdx,
    /// The rank that it waited for.
    pub other: ThreadIdx,
    /// Why.
    pub kind: WaitKind,
    /// Number of calls that waited.
    pub calls: u64,
    /// Time, ns.
    pub nanoseconds: u64,
}
