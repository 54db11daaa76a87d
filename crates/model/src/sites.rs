//! Code sites: which functions and lines of the program communicate and access memory, from a sample.

use crate::ids::{ObjectIdx, ThreadIdx};

/// What a sampled instruction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SiteKind {
    /// It read what another thread wrote (layer `write_read`).
    Communication,
    /// It loaded.
    Load,
    /// It stored.
    Store,
}

impl SiteKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Communication, Self::Load, Self::Store];

    /// The name in profile tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Communication => "communication",
            Self::Load => "load",
            Self::Store => "store",
        }
    }
}

/// Parts of the names of functions that order threads: their memory cannot be split or counted apart.
const ORDERING: [&str; 10] = [
    "lock",
    "unlock",
    "trylock",
    "spinlock",
    "mutex",
    "futex",
    "barrier",
    "gomp",
    "kmp",
    "semaphore",
];
/// A place in the program's code, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodePlace {
    /// The function's name in the source, else its symbol, else file and offset; `None` if the place is unknown.
    pub function: Option<String>,
    /// `FILE:LINE` without folders; `None` without debugging information.
    pub source: Option<String>,
}

impl CodePlace {
    /// Whether anything is known.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.function.is_some() || self.source.is_some()
    }

    /// Whether it is code of an OpenMP run-time library, as far as its name says.
    #[must_use]
    pub fn is_openmp_library(&self) -> bool {
        let function = self.function.as_deref().unwrap_or_default();
        let names = ["gomp", "kmp", "libomp.so", "libiomp"];
        let function = function.to_ascii_lowercase();
        names.iter().any(|name| function.contains(name))
    }

    /// Whether it is in a function that orders threads, or in a library of which nothing is known, as of a run-time
    /// system.
    #[must_use]
    pub fn orders_threads(&self) -> bool {
        let function = self.function.as_deref().unwrap_or_default();
        let function = function.to_ascii_lowercase();
        let is_library = self.source.is_none() && function.contains(".so");
        let mut parts = function.split(|c: char| !c.is_ascii_alphanumeric());
        is_library || parts.any(|part| ORDERING.contains(&part))
    }
}

/// Samples with the same threads, object and places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteRow {
    /// What was sampled.
    pub kind: SiteKind,
    /// The thread that loaded or stored.
    pub thread: ThreadIdx,
    /// The thread that wrote what was read; for loads and stores, the page's first toucher. `None` if unknown.
    pub other: Option<ThreadIdx>,
    /// The object that holds the memory.
    pub object: Option<ObjectIdx>,
    /// The variable that fills the page ([`super::Profile::variable_of`]), by its offset in the object; `None` if none
    /// does.
    pub variable: Option<u64>,
    /// The place of the load or store.
    pub here: CodePlace,
    /// Communication only: the place of the other thread's store.
    pub there: CodePlace,
    /// Number of samples.
    pub samples: u64,
    /// Events, or accesses, for which the samples stand.
    pub amount: u64,
}

impl SiteRow {
    /// What distinguishes rows.
    #[must_use]
    pub fn key(&self) -> impl Ord + '_ {
        let Self {
            kind,
            thread,
            other,
            object,
            variable,
            here,
            there,
            ..
        } = self;
        (*kind, *thread, *other, *object, *variable, here, there)
    }
}
