//! Code sites: the sampled instructions of all processes, by function, line and object.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use numaloc_identity::object::base_name;
use numaloc_journal::{Record, SiteCount, SiteKind};
use numaloc_model::ids::{ObjectIdx, ThreadIdx};
use numaloc_model::profile::Variable;
use numaloc_model::{CodePlace, SiteRow};

use crate::lineage::Lineage;
use crate::load::Space;
use crate::objects::Memory;
use crate::sites::Code;
use crate::{Assembly, file_at};

/// log2 of the bytes of a page in a journal.
const PAGE_SHIFT: u32 = 12;
/// Bytes of such a page.
const PAGE: u64 = 1 << PAGE_SHIFT;

/// The instructions in the samples of a process.
pub(crate) fn sampled(records: &[Record]) -> impl Iterator<Item = u64> {
    let cells = records.iter().filter_map(|record| match record {
        Record::Sites { cells, .. } => Some(cells),
        _ => None,
    });
    let accesses = records.iter().filter_map(|record| match record {
        Record::Accesses { cells, .. } => Some(cells),
        _ => None,
    });
    let places = cells
        .flatten()
        .flat_map(|cell| [cell.place, cell.other_place]);
    let places = places.chain(accesses.flatten().map(|sample| sample.place));
    places.filter(|&place| place != 0)
}

impl Assembly<'_> {
    /// The samples of a process; `object_at` finds the profile's object at a page.
    pub(super) fn sites(
        &self,
        (space, process): (&Space, &Lineage<'_>),
        memory: &Memory,
        indexes: &[Option<ObjectIdx>],
        code: &dyn Code,
    ) -> Vec<SiteRow> {
        let mut known: HashMap<u64, CodePlace> = HashMap::new();
        let mut place_at = |address: u64| -> CodePlace {
            let found = known.entry(address);
            found
                .or_insert_with(|| place(process, address, code))
                .clone()
        };
        let touchers = self.first_touchers(space);
        let mut rows = Vec::new();
        for record in &space.records {
            let Record::Sites { thread, cells } = record else {
                continue;
            };
            let totals = space.totals.get(thread).copied().unwrap_or_default();
            let Some(reader) = self.thread(space, *thread) else {
                continue;
            };
            for cell in cells {
                let SiteCount {
                    kind,
                    other,
                    page,
                    place,
                    other_place,
                    samples,
                    amount,
                } = *cell;
                let start = page << PAGE_SHIFT;
                let object = memory.object_at(start, start + PAGE);
                let communicates = kind == SiteKind::Communication;
                let (other, amount) = match communicates {
                    true => (
                        self.thread(space, other),
                        totals.scale(space.line_share_ppm, amount),
                    ),
                    false => (touchers.get(&page).copied(), amount),
                };
                // As in the matrix: a thread does not communicate with itself.
                if communicates && other == Some(reader) {
                    continue;
                }
                rows.push(SiteRow {
                    kind,
                    thread: reader,
                    other,
                    object: object.and_then(|object| indexes[object]),
                    variable: object.and_then(|object| filling(memory, object, start)),
                    here: place_at(place),
                    there: match communicates {
                        true => place_at(other_place),
                        false => CodePlace::default(),
                    },
                    samples,
                    amount,
                });
            }
        }
        rows
    }

    /// The thread that placed each page with a sample.
    fn first_touchers(&self, space: &Space) -> BTreeMap<u64, ThreadIdx> {
        let cells = space.records.iter().filter_map(|record| match record {
            Record::Sites { cells, .. } => Some(cells),
            _ => None,
        });
        let pages: BTreeSet<u64> = cells.flatten().map(|cell| cell.page).collect();
        let touches = self.touches(space, |range| pages.range(range).copied());
        let touchers = touches.into_iter().filter(|(page, _)| pages.contains(page));
        touchers.map(|(page, touch)| (page, touch.thread)).collect()
    }
}

/// Offset in an object of its variable that holds at least half of the page at an address.
fn filling(memory: &Memory, object: usize, address: u64) -> Option<u64> {
    // The object's first page may begin before it.
    let origin = memory.origin(object, address);
    let start = address.saturating_sub(origin);
    let end = (address + PAGE).saturating_sub(origin);
    let variables = &memory.objects[object].variables;
    let found = Variable::within(variables, start, end, PAGE / 2)?;
    Some(variables[found].offset)
}

/// The place at an address of the program's code: its innermost function with a line that is the program's own.
pub(crate) fn place(process: &Lineage<'_>, address: u64, code: &dyn Code) -> CodePlace {
    if address == 0 {
        return CodePlace::default();
    }
    // Frames are those of return addresses, which lie after the instruction that they belong to.
    let frames = code.frames(address.wrapping_add(1));
    let own = frames.iter().find(|frame| frame.is_own());
    let Some(frame) = own.or(frames.first()) else {
        let file = file_at(process, address);
        let function =
            file.map(|(file, start)| format!("{}+{:#x}", base_name(file), address - start));
        return CodePlace {
            function,
            source: None,
        };
    };
    let function = Some(frame.function.clone()).filter(|function| !function.is_empty());
    CodePlace {
        function,
        source: frame.source.as_deref().map(base_name).map(str::to_owned),
    }
}
