//! What is invalid in a plan, and limits that all parts of plans have.

/// Kernel numbers of nodes are below this: `mbind` accepts no longer node mask (a page of 4 KiB, in bits).
pub const OS_NODES: u32 = 1 << 15;

/// An invalid value in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Its place, as in the plan file: `pages[3].os_node`.
    pub place: String,
    /// The value.
    pub found: String,
    /// What is valid.
    pub expected: String,
}

impl std::fmt::Display for Flaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            place,
            found,
            expected,
        } = self;
        write!(f, "{place}: found {found}, expected {expected}")
    }
}

impl std::error::Error for Flaw {}

pub(crate) fn flaw<T>(
    place: impl Into<String>,
    found: impl ToString,
    expected: impl Into<String>,
) -> Result<T, Flaw> {
    Err(Flaw {
        place: place.into(),
        found: found.to_string(),
        expected: expected.into(),
    })
}
