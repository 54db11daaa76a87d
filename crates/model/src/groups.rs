//! Groups of concurrent communication (DeLoc II-C): the task pairs that communicate in one cluster of
//! time slices. Clustering (`numaloc-analysis`) computes them for mapping policies.

use crate::ids::ThreadIdx;

/// An unordered pair of threads that communicates within a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupPair {
    /// The lower thread.
    pub a: ThreadIdx,
    /// The higher thread.
    pub b: ThreadIdx,
    /// Amount exchanged within this group's slices, both directions (unit of the matrix).
    pub in_group: f64,
    /// Amount exchanged in the whole run, both directions.
    pub in_run: f64,
}

/// The pairs that communicate in one cluster of slices. A pair may be in several groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskGroup {
    /// By ascending `(a, b)`, each pair once.
    pub pairs: Vec<GroupPair>,
}
