//! The lines for which threads of a process would contend: their samples, objects and code.

use std::collections::{BTreeMap, HashMap};

use numaloc_journal::Record;
use numaloc_model::ids::ObjectIdx;
use numaloc_model::profile::{ContendedLine, image};

use crate::Assembly;
use crate::contention::{Access, Estimate, Sections, estimate};
use crate::lineage::Lineage;
use crate::load::Space;
use crate::objects::Memory;
use crate::places::place;
use crate::sites::Code;

/// Most lines of a process that are listed.
const LISTED: usize = 1024;

impl Assembly<'_> {
    /// The contended lines of the `at`-th process image, those with the most transfers.
    pub(super) fn contended_lines(
        &self,
        (space, process): (&Space, &Lineage<'_>),
        at: u64,
        memory: &Memory,
        indexes: &[Option<ObjectIdx>],
        code: &dyn Code,
    ) -> Vec<ContendedLine> {
        let size = self.meta.line_size;
        let mut sections = Sections::default();
        let mut lines: BTreeMap<u64, Vec<Access>> = BTreeMap::new();
        let mut threads: HashMap<u64, Option<usize>> = HashMap::new();
        for record in &space.records {
            let Record::Accesses { thread, cells } = record else {
                continue;
            };
            let Some(thread) = self.thread(space, *thread).map(|thread| thread.index()) else {
                continue;
            };
            for &sample in cells {
                sections.add(thread, &sample);
                let line = sample.address / size;
                // `None`: several threads.
                let seen = threads.entry(line).or_insert(Some(thread));
                *seen = seen.filter(|&other| other == thread);
                lines
                    .entry(line)
                    .or_default()
                    .push(Access { thread, sample });
            }
        }
        lines.retain(|line, _| threads.get(line) == Some(&None));
        let estimates = lines
            .iter()
            .filter_map(|(&line, accesses)| Some((line, estimate(accesses, &sections)?)));
        let mut estimates: Vec<(u64, Estimate)> = estimates.collect();
        estimates.sort_by_key(|(line, found)| (std::cmp::Reverse(found.transfers), *line));
        estimates.truncate(LISTED);
        let offset = image::first_line(at, size);
        let row = |(line, found): (u64, Estimate)| {
            let start = line.wrapping_mul(size);
            let object = memory.object_at(start, start.saturating_add(size));
            let base = object.map_or(start, |object| memory.objects[object].base);
            let [writer, reader] = found.places.map(|address| place(process, address, code));
            ContendedLine {
                line: offset.wrapping_add(line),
                object: object.and_then(|object| indexes[object]),
                object_offset: start.saturating_sub(base),
                threads: found.threads,
                writers: found.writers,
                visits: found.visits,
                transfers: found.transfers,
                false_transfers: found.false_transfers,
                atomics: found.atomics,
                samples: found.samples,
                writer,
                reader,
            }
        };
        estimates.into_iter().map(row).collect()
    }
}
