//! Memory that the program has named (`PR_SET_VMA_ANON_NAME`): named parts of the objects that contain it.
//!
//! The names are not part of the objects' identity, because a program may name memory at any time after it has mapped
//! it, and plans place memory when it is mapped.

use std::collections::BTreeMap;
use std::ops::Range;

use numaloc_journal::Record;
use numaloc_model::profile::{ObjectKind, Variable};

use crate::lineage::Lineage;
use crate::objects::Memory;

/// Adds the memory that a process, or one that it was forked from, has named to the objects that contain it, except
/// where blocks with an allocation site are known. Of several names for one address the last counts.
pub(crate) fn name_memory(process: &Lineage<'_>, memory: &mut Memory) {
    let mut named: Vec<(u64, Range<u64>, &str)> = Vec::new();
    for record in process.records() {
        if let Record::MemoryName {
            sequence,
            address,
            length,
            name,
        } = record
        {
            named.push((*sequence, *address..address.saturating_add(*length), name));
        }
    }
    named.sort_by_key(|(sequence, ..)| *sequence);
    let mut parts: BTreeMap<(usize, u64), Variable> = BTreeMap::new();
    for (_, range, name) in named {
        if let Some((object, part)) = part(memory, &range, name) {
            let end = part.offset + part.size;
            let before = parts.range((object, 0)..(object, end));
            let replaced: Vec<(usize, u64)> = before
                .filter(|(_, other)| other.offset + other.size > part.offset)
                .map(|(&at, _)| at)
                .collect();
            for at in replaced {
                parts.remove(&at);
            }
            parts.insert((object, part.offset), part);
        }
    }
    for ((object, _), part) in parts {
        let known = &memory.objects[object].variables;
        let is_free = |other: &Variable| {
            other.offset >= part.offset + part.size || part.offset >= other.offset + other.size
        };
        if !part.name.is_empty() && known.iter().all(is_free) {
            let mut all: Vec<Variable> = known.iter().cloned().chain([part]).collect();
            all.sort_by_key(|variable| variable.offset);
            memory.objects[object].variables = all.into();
        }
    }
}

/// The object that contains most of the range, and the named part of it.
fn part(memory: &Memory, range: &Range<u64>, name: &str) -> Option<(usize, Variable)> {
    let object = memory.object_at(range.start, range.end)?;
    let found = &memory.objects[object];
    let room = match found.key.kind {
        ObjectKind::Mapping | ObjectKind::Shared => found.key.size,
        ObjectKind::Static | ObjectKind::Heap | ObjectKind::Stack => return None,
    };
    let start = range.start.max(found.base);
    let end = range.end.min(found.base.saturating_add(room));
    let size = end.checked_sub(start).filter(|&size| size > 0)?;
    let part = Variable {
        name: name.to_owned(),
        offset: start - found.base,
        size,
        source: None,
    };
    Some((object, part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{Images, Section};

    struct NoImages;
    impl Images for NoImages {
        fn sections(&self, _: &str) -> Option<Vec<Section>> {
            None
        }
    }

    #[test]
    fn the_last_name_of_memory_is_a_part_of_its_object() {
        let map = Record::Map {
            sequence: 0,
            thread: 0,
            address: 0x10_0000,
            length: 0x1_0000,
            protection: 3,
            flags: 0x22,
            file: String::new(),
            offset: 0,
            moved_from: 0,
        };
        let named = |sequence, address, length, name: &str| Record::MemoryName {
            sequence,
            address,
            length,
            name: name.to_owned(),
        };
        let records = [
            map,
            named(1, 0x10_0000, 0x1_0000, "old"),
            named(2, 0x10_0000, 0x8000, "buffers"),
            // Longer than the object; and memory that is not mapped.
            named(3, 0x10_8000, 0x10_0000, "heap"),
            named(4, 0x90_0000, 0x1000, "elsewhere"),
        ];
        let process = Lineage::alone(&records, "0", |_| "0");
        let mut memory = Memory::build(&process, &NoImages);
        name_memory(&process, &mut memory);
        let [object] = &memory.objects[..] else {
            panic!("{:?}", memory.objects)
        };
        assert_eq!(object.key.name, "[anon]");
        let parts = object.variables.iter();
        let parts: Vec<_> = parts.map(|v| (v.name.as_str(), v.offset, v.size)).collect();
        assert_eq!(parts, [("buffers", 0, 0x8000), ("heap", 0x8000, 0x8000)]);
    }
}
