//! Ranks with several threads on several hosts: all threads of a process must be on one host.

use std::collections::{BTreeMap, BTreeSet};

use numaloc_model::{CommError, CommMatrix, Profile};
use numaloc_topology::{ObjectKind, Topology};

/// Whether ranks with several threads are mapped to several hosts.
pub(crate) fn one_host_per_rank(profile: &Profile, machine: &Topology) -> bool {
    let hosts = machine.objects().iter();
    let hosts = hosts.filter(|object| object.kind == ObjectKind::Host && !object.pus.is_empty());
    let ranks: BTreeSet<_> = profile.threads().iter().map(|thread| thread.rank).collect();
    hosts.count() > 1
        && profile.threads().iter().all(|thread| thread.rank.is_some())
        && ranks.len() < profile.threads().len()
}

/// The matrix with a weight between each thread of a rank and the next that exceeds everything recorded, so that
/// policies keep the threads of a rank on one host if there is room.
pub(crate) fn glued(matrix: &CommMatrix, profile: &Profile) -> Result<CommMatrix, CommError> {
    let above_all = matrix.total().max(1.0);
    let mut last = BTreeMap::new();
    let mut pairs = Vec::new();
    for (at, thread) in profile.threads().iter().enumerate() {
        if let Some(rank) = thread.rank
            && let Some(before) = last.insert(rank, at)
        {
            pairs.push((before, at, above_all));
        }
    }
    CommMatrix::from_cells(matrix.threads(), matrix.cells().chain(pairs))
}
