//! What a thread is for, and the text that files have for it.

use std::borrow::Cow;

/// Text of a thread that serves a run-time system, alone or before what it serves in parentheses.
const HELPER: &str = "runtime helper";
/// Text of an MPI rank without threads of its own.
const RANK: &str = "MPI rank";

/// What a thread is for.
///
/// Files store it as text in the column `label`; [`Self::from_label`] and [`Self::label`] convert, without loss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ThreadRole {
    /// Nothing is known.
    #[default]
    Unknown,
    /// It runs the program: its start routine, its own name, or that of its process or library.
    Application(String),
    /// It serves a run-time system, not the program: collectors, compilers, progress threads. It mostly sleeps, so
    /// plans may leave it out.
    Helper {
        /// Its library or its own name.
        of: Option<String>,
    },
    /// An MPI rank of which only the messages were recorded.
    Rank,
}

impl ThreadRole {
    /// A thread that serves the run-time system `of`: a library, or the thread's own name.
    #[must_use]
    pub fn helper(of: impl Into<String>) -> Self {
        Self::Helper {
            of: Some(of.into()),
        }
    }

    /// Whether the thread serves a run-time system.
    #[must_use]
    pub fn is_helper(&self) -> bool {
        matches!(self, Self::Helper { .. })
    }

    /// The role with that text in a file.
    #[must_use]
    pub fn from_label(label: Option<String>) -> Self {
        let Some(label) = label else {
            return Self::Unknown;
        };
        if label == RANK {
            return Self::Rank;
        }
        let Some(rest) = label.strip_prefix(HELPER) else {
            return Self::Application(label);
        };
        let of = rest
            .strip_prefix(" (")
            .and_then(|rest| rest.strip_suffix(')'));
        match of {
            Some(of) => Self::helper(of),
            None if rest.is_empty() => Self::Helper { of: None },
            None => Self::Application(label),
        }
    }

    /// The text in files and for readers; `None` if nothing is known.
    #[must_use]
    pub fn label(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Unknown => None,
            Self::Application(name) => Some(Cow::Borrowed(name)),
            Self::Helper { of: None } => Some(Cow::Borrowed(HELPER)),
            Self::Helper { of: Some(of) } => Some(Cow::Owned(format!("{HELPER} ({of})"))),
            Self::Rank => Some(Cow::Borrowed(RANK)),
        }
    }

    /// The name in it, if it has one.
    pub(super) fn name_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Application(name) | Self::Helper { of: Some(name) } => Some(name),
            Self::Unknown | Self::Helper { of: None } | Self::Rank => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn labels_of_files_are_roles() {
        let role = |label: &str| ThreadRole::from_label(Some(label.to_owned()));
        assert_eq!(ThreadRole::from_label(None), ThreadRole::Unknown);
        assert_eq!(role("MPI rank"), ThreadRole::Rank);
        assert_eq!(role("runtime helper"), ThreadRole::Helper { of: None });
        assert_eq!(role("runtime helper (C2)"), ThreadRole::helper("C2"));
        assert_eq!(role("work"), ThreadRole::Application("work".to_owned()));
        assert!(!role("runtime helpers").is_helper());
    }

    proptest! {
        #[test]
        fn every_label_is_written_as_it_was_read(
            label in proptest::option::of("(runtime helper)?( \\()?[a-zMPI )(]{0,12}|MPI rank"),
        ) {
            let role = ThreadRole::from_label(label.clone());
            prop_assert_eq!(role.label().map(Cow::into_owned), label);
        }
    }
}
