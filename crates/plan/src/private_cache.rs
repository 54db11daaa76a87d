//! The private cache of a machine's cores.

use numaloc_analysis::beyond_caches::PRIVATE_CACHE;
use numaloc_topology::{ObjectKind, Topology};

/// Size of the smallest second-level cache, or the assumed size.
pub(crate) fn private_cache(machine: &Topology) -> u64 {
    machine
        .objects()
        .iter()
        .filter(|object| object.kind == ObjectKind::Cache(2))
        .filter_map(|object| object.cache_bytes)
        .min()
        .unwrap_or(PRIVATE_CACHE)
}
