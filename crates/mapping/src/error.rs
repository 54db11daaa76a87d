//! Errors of mapping policies.

use numaloc_model::LogicalPu;

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
    /// A policy that is not ours failed, or its answer is no mapping.
    #[error("policy {policy}: {why}")]
    Foreign {
        /// The policy.
        policy: &'static str,
        /// What it did, in words.
        why: String,
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

/// Why a mapping does not fit its problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MappingFlaw {
    /// It has another number of tasks.
    #[error("{pus} PUs for {tasks} tasks")]
    Length {
        /// PUs given.
        pus: usize,
        /// Tasks of the problem.
        tasks: usize,
    },
    /// A task is on a PU that the machine does not have.
    #[error("task {task} is on {pu} of a machine of {pus} PUs")]
    Outside {
        /// The task.
        task: usize,
        /// Its PU.
        pu: LogicalPu,
        /// PUs of the machine.
        pus: usize,
    },
    /// A PU has more tasks than an even distribution gives it.
    #[error("{pu} has more than {limit} of {tasks} tasks")]
    Crowded {
        /// The PU.
        pu: LogicalPu,
        /// Most tasks that a PU may have.
        limit: usize,
        /// Tasks of the problem.
        tasks: usize,
    },
}
