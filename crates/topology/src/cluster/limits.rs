//! Limits of descriptions of clusters.

/// Largest nodes x nodes table: 4,096 nodes are 128 MiB.
pub(super) const TABLE_LIMIT: usize = 4096;
/// Largest distance, latency in ns or bandwidth in bytes per second: far above all networks, and far below the point
/// where sums of products with amounts of communication lose precision.
pub(super) const MAX_FIGURE: f64 = 1e15;
