//! Changes: what can be done to a program or to its run.

/// Times that a thread counts for itself before it changes a shared variable once ([`Change::Batch`]), or as many
/// times the iterations that it gets at a time ([`Change::Chunk`]).
pub const BATCH: u64 = 64;

/// How the pages of a part are dealt over memory of different speed: by the page policies of the same kind, of which it
/// gets the pages of this part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Speeds {
    /// Over all nodes, in proportion to the bandwidth that they deliver.
    Weighted,
    /// To the tier that answers first at the load so far.
    Tier,
}

impl Speeds {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Weighted, Self::Tier];

    /// The page policy, as `--pages` takes it.
    #[must_use]
    pub fn policy(self) -> &'static str {
        match self {
            Self::Weighted => "weighted-interleave",
            Self::Tier => "tier",
        }
    }
}

/// A change. Its number says what it is made to: a mapping, a [part](crate::parts::Part), or one of the profile's
/// [contended](numaloc_analysis::contended::contended) memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// Threads are bound as a mapping has it. No change of the source.
    Bind(usize),
    /// Pages are placed before the run by the threads that use them, as `run --plan` does. No change of the source.
    PlacePages,
    /// All pages are dealt over the nodes in turn. No change of the source.
    InterleaveAll,
    /// Each page of the part is initialised by a thread that uses it most afterwards, which so touches it first.
    /// Assumes that the order within the initialisation does not matter; the threads wait for each other before they
    /// use it.
    TouchByUsers(usize),
    /// The pages of the part are dealt over the nodes in turn.
    Interleave(usize),
    /// The pages of the part are dealt over memory of different speed.
    Deal(usize, Speeds),
    /// Each node gets a copy of the part's objects that nobody writes once they have been initialised. Copying costs
    /// one read and one write of each line per node.
    Replicate(usize),
    /// What different threads write in the memory lies on lines of their own. Assumes that no thread uses bytes that
    /// another one writes, as far as the samples say.
    Separate(usize),
    /// Each thread has a copy of the memory, joined at the end. Assumes that the sum is needed at the end only.
    PerThread(usize),
    /// Each thread changes the memory once for [`BATCH`] times. Assumes that its value may be that old.
    Batch(usize),
    /// The run-time library hands out [`BATCH`] times as many iterations of a loop at a time. Assumes that the load
    /// stays even.
    Chunk(usize),
}

/// What a change is made to; two changes of the same thing exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Threads,
    /// All pages.
    Pages,
    Part(usize),
    Lines(usize),
}

impl Change {
    /// The names in JSON of all kinds, in the order of their declaration.
    pub const NAMES: [&'static str; 12] = [
        Self::Bind(0).name(),
        Self::PlacePages.name(),
        Self::InterleaveAll.name(),
        Self::TouchByUsers(0).name(),
        Self::Interleave(0).name(),
        Self::Deal(0, Speeds::Weighted).name(),
        Self::Deal(0, Speeds::Tier).name(),
        Self::Replicate(0).name(),
        Self::Separate(0).name(),
        Self::PerThread(0).name(),
        Self::Batch(0).name(),
        Self::Chunk(0).name(),
    ];

    /// The name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bind(_) => "bind",
            Self::PlacePages => "place_pages",
            Self::InterleaveAll => "interleave_all",
            Self::TouchByUsers(_) => "touch_by_users",
            Self::Interleave(_) => "interleave",
            Self::Deal(_, Speeds::Weighted) => "weighted_interleave",
            Self::Deal(_, Speeds::Tier) => "tier",
            Self::Replicate(_) => "replicate",
            Self::Separate(_) => "separate",
            Self::PerThread(_) => "per_thread",
            Self::Batch(_) => "batch",
            Self::Chunk(_) => "chunk",
        }
    }

    /// Whether the source has to be changed; otherwise numaloc carries it out.
    #[must_use]
    pub fn is_in_source(self) -> bool {
        !matches!(self, Self::Bind(_) | Self::PlacePages | Self::InterleaveAll)
    }

    fn subject(self) -> Subject {
        match self {
            Self::Bind(_) => Subject::Threads,
            Self::PlacePages | Self::InterleaveAll => Subject::Pages,
            Self::TouchByUsers(part)
            | Self::Interleave(part)
            | Self::Deal(part, _)
            | Self::Replicate(part) => Subject::Part(part),
            Self::Separate(lines)
            | Self::PerThread(lines)
            | Self::Batch(lines)
            | Self::Chunk(lines) => Subject::Lines(lines),
        }
    }

    /// The number of the part that it changes.
    #[must_use]
    pub fn part(self) -> Option<usize> {
        match self.subject() {
            Subject::Part(part) => Some(part),
            _ => None,
        }
    }

    /// The number of the contended memory that it changes.
    #[must_use]
    pub fn lines(self) -> Option<usize> {
        match self.subject() {
            Subject::Lines(lines) => Some(lines),
            _ => None,
        }
    }

    /// Whether both cannot be made together.
    #[must_use]
    pub fn excludes(self, other: Self) -> bool {
        match (self.subject(), other.subject()) {
            // Who places all pages leaves none to a part's change.
            (Subject::Pages, Subject::Part(_)) | (Subject::Part(_), Subject::Pages) => true,
            (one, other) => one == other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_changed_in_one_way() {
        assert!(Change::Bind(0).excludes(Change::Bind(1)));
        assert!(Change::TouchByUsers(1).excludes(Change::Replicate(1)));
        assert!(!Change::TouchByUsers(1).excludes(Change::Replicate(2)));
        let dealt = Change::Deal(1, Speeds::Tier);
        assert!(dealt.excludes(Change::Interleave(1)) && Change::PlacePages.excludes(dealt));
        assert!(Change::PlacePages.excludes(Change::Interleave(0)));
        assert!(!Change::PlacePages.excludes(Change::Bind(0)));
        assert!(!Change::Batch(0).excludes(Change::Interleave(0)));
    }
}
