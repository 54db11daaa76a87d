//! How the caller follows the work: this crate draws no progress and reads no clock.

/// A piece of work of planning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A thread policy, by name.
    Threads(&'static str),
    /// A page policy, by name.
    Pages(&'static str),
    /// The joint policy, without the thread policies whose answers it starts from.
    Joint,
}

/// Receives what is being done. Pieces of work follow each other: each ends before the next begins.
pub trait Observer {
    /// `work` begins.
    fn begin(&self, _work: Work) {}
    /// `work` has ended with an answer.
    fn end(&self, _work: Work) {}
    /// A step of the current work begins.
    fn step(&self, _what: &str) {}
}

/// An observer for callers that need neither progress nor times.
pub struct Unobserved;

impl Observer for Unobserved {}
