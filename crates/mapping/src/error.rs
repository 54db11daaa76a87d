//! Errors of mapping policies.

/// Why there is no mapping.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The load vector does not fit the matrix.
    #[error("the load vector has {found} values, the matrix has {tasks} tasks")]
    LoadLength {
        /// Values given.
        found: usize,
        /// Tasks of the matrix.
        tasks: usize,
    },
    /// A load is negative, infinite or not a number.
    #[error("the load of task {task} is {found}, expected a finite number of at least 0")]
    NotALoad {
        /// The task.
        task: usize,
        /// Its load.
        found: f64,
    },
    /// A concurrency group names a task the matrix does not have.
    #[error("concurrency group {group} names task {task}, the matrix has {tasks} tasks")]
    GroupTask {
        /// The group.
        group: usize,
        /// The task it names.
        task: usize,
        /// Tasks of the matrix.
        tasks: usize,
    },
    /// A call of a library that the policy uses failed.
    #[error("policy {policy}: {library} failed in {call}")]
    Library {
        /// The policy.
        policy: &'static str,
        /// The library.
        library: &'static str,
        /// The function called.
        call: &'static str,
    },
    /// The policy cannot handle a problem of this size.
    #[error("policy {policy} takes at most {limit} tasks, the matrix has {tasks}")]
    TooLarge {
        /// The policy.
        policy: &'static str,
        /// Its limit.
        limit: usize,
        /// Tasks of the matrix.
        tasks: usize,
    },
}
