//! The records that describe a process's memory and code: its own, and those of the processes it was forked from, up to
//! the fork.

use std::collections::HashMap;

use crate::load::Space;
use numaloc_journal::Record;

/// The records of a process, or what another process that was forked from it inherits of them.
pub(crate) struct Chapter<'a> {
    records: &'a [Record],
    /// Path of the process's first thread.
    pub(crate) first: &'a str,
    path_of: Box<dyn Fn(u32) -> &'a str + 'a>,
    /// Memory events from this number on came after the fork.
    until: u64,
}

impl<'a> Chapter<'a> {
    /// Files, memory events and call stacks, in the order in which they were written.
    pub(crate) fn records(&self) -> impl Iterator<Item = &'a Record> + Clone + use<'a> {
        let until = self.until;
        self.records.iter().filter(move |record| match record {
            Record::Image { .. } | Record::Site { .. } => true,
            record => sequence(record).is_some_and(|at| at < until),
        })
    }

    /// The memory events, in their order.
    pub(crate) fn events(&self) -> Vec<&'a Record> {
        let mut events: Vec<&Record> = self
            .records()
            .filter(|record| sequence(record).is_some())
            .collect();
        events.sort_by_key(|record| sequence(record));
        events
    }

    /// The path of a thread of this process, by its number in the journal.
    pub(crate) fn path_of(&self, thread: u32) -> &'a str {
        (self.path_of)(thread)
    }
}

/// A process and those that it was forked from, the oldest first.
pub struct Lineage<'a>(Vec<Chapter<'a>>);

impl<'a> Lineage<'a> {
    /// A process that was not forked from another one of the recording.
    ///
    /// `first` is the path of its first thread; `path_of` maps a journal's thread number to a path.
    #[must_use]
    pub fn alone(
        records: &'a [Record],
        first: &'a str,
        path_of: impl Fn(u32) -> &'a str + 'a,
    ) -> Self {
        Self(vec![Chapter {
            records,
            first,
            path_of: Box::new(path_of),
            until: u64::MAX,
        }])
    }

    /// The same for a process that was forked from this one before the memory event of number `until`.
    #[must_use]
    pub fn forked(mut self, until: u64, child: Self) -> Self {
        for chapter in &mut self.0 {
            chapter.until = chapter.until.min(until);
        }
        self.0.extend(child.0);
        self
    }

    /// The lineage of the `at`-th of the processes, which are in the order of paths.
    pub(crate) fn of(spaces: &'a [Space], at: usize) -> Self {
        let space = &spaces[at];
        let path_of = |number: u32| space.threads.get(&number).map_or("0", |t| t.0.as_str());
        let own = Self::alone(&space.records, &space.first, path_of);
        match space.inherits {
            Some((parent, until)) => Self::of(spaces, parent).forked(until, own),
            None => own,
        }
    }

    pub(crate) fn chapters(&self) -> &[Chapter<'a>] {
        &self.0
    }

    /// Path of the process's first thread.
    pub(crate) fn first(&self) -> &'a str {
        self.0.last().map_or("0", |own| own.first)
    }

    /// Files, memory events and call stacks: those inherited, then the process's own.
    pub(crate) fn records(&self) -> impl Iterator<Item = &'a Record> + Clone {
        self.0.iter().flat_map(Chapter::records)
    }

    /// All records of the process itself.
    pub(crate) fn own(&self) -> &'a [Record] {
        self.0.last().map_or(&[], |own| own.records)
    }
}

/// Finds the processes that others, which are in the order of paths, were forked from.
pub(crate) fn link(spaces: &mut [Space]) {
    let mut known: HashMap<(String, u32), usize> = HashMap::new();
    for (at, space) in spaces.iter_mut().enumerate() {
        // A creator's path comes before those of what it creates.
        space.inherits = space.forked.take().and_then(|forked| {
            let parent = known.get(&(forked.parent, forked.image))?;
            Some((*parent, forked.sequence))
        });
        known.insert((space.first.clone(), space.image), at);
    }
}

/// The number of a memory event in their order.
fn sequence(record: &Record) -> Option<u64> {
    match record {
        Record::Map { sequence, .. }
        | Record::Backing { sequence, .. }
        | Record::Unmap { sequence, .. }
        | Record::Break { sequence, .. }
        | Record::Stack { sequence, .. }
        | Record::Block { sequence, .. }
        | Record::MemoryName { sequence, .. } => Some(*sequence),
        _ => None,
    }
}
