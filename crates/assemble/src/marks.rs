//! Marks: the places in the program that threads passed, with the names of regions' functions.

use std::collections::HashMap;

use numaloc_journal::Record;
use numaloc_model::{MarkKind, MarkPlace, MarkRow};

use crate::lineage::Lineage;
use crate::{Assembly, file_at};

impl Assembly<'_> {
    /// The recorded passes of all processes.
    pub(super) fn marks(&self) -> Vec<MarkRow> {
        let spaces = 0..self.spaces.len();
        spaces.flat_map(|space| self.marks_of(space)).collect()
    }

    /// The same of the `at`-th process.
    fn marks_of(&self, at: usize) -> Vec<MarkRow> {
        let (space, process) = (&self.spaces[at], Lineage::of(&self.spaces, at));
        // First all places: another thread's pass may have been written before.
        let places = space.records.iter().filter_map(|record| match record {
            Record::MarkPlace {
                place,
                kind,
                name,
                function,
            } => {
                let kind = *MarkKind::ALL.get(usize::from(*kind))?;
                let function = self.function(&process, *function);
                let name = function.unwrap_or_else(|| name.clone());
                Some((*place, MarkPlace { kind, name }))
            }
            _ => None,
        });
        let places: HashMap<u32, MarkPlace> = places.collect();
        let rows = space.records.iter().filter_map(|record| match record {
            Record::Mark {
                thread,
                place,
                occurrence,
                time,
            } => Some(MarkRow {
                place: places.get(place)?.clone(),
                occurrence: *occurrence,
                thread: self.thread(space, *thread)?,
                time: *time,
            }),
            _ => None,
        });
        rows.collect()
    }

    /// The symbol of the function at `address`; `None` if that is 0 or the function has no symbol.
    fn function(&self, process: &Lineage<'_>, address: u64) -> Option<String> {
        let (file, start) = file_at(process, address)?;
        self.elf.symbol(file, address - start)
    }
}
