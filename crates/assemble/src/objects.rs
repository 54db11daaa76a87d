//! Names memory: builds objects with an identity (docs/identity.md) from the memory events of a process.
//!
//! Pure: an [`Images`] answers what ELF files contain, so that the rules can be tested without files.

use std::collections::HashSet;
use std::rc::Rc;

use numaloc_identity::object::{ANONYMOUS, HEAP, PAGE_BYTES, STACK, base_name};
use numaloc_identity::{MapCall, NewObject, Orders};
use numaloc_model::plan::ObjectKey;
use numaloc_model::profile::{ObjectKind, Variable};

use crate::lineage::{Chapter, Lineage};
use numaloc_identity::ranges::Ranges;
use numaloc_journal::Record;

/// `MAP_FIXED`.
const FIXED: u64 = 0x10;

/// A named range of an ELF file, relative to its load address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// `.data`, `.bss`, ...
    pub name: String,
    /// Address relative to the load address.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
    /// Its variables, as far as symbols show: one list for all processes that have loaded the file.
    pub variables: Rc<[Variable]>,
}

/// The contents of ELF files.
pub trait Images {
    /// The writable, allocated, non-TLS sections of a file; `None` when it cannot be read.
    fn sections(&self, file: &str) -> Option<Vec<Section>>;
}

/// An object: a piece of memory with an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its identity, with a known creator.
    pub key: ObjectKey,
    /// First address.
    pub base: u64,
    /// Its named parts, which do not belong to the identity.
    pub variables: Rc<[Variable]>,
    /// Whether each process that has it names it after its own first thread: a file, a section, the heap, the stack of
    /// that thread.
    pub of_process: bool,
    /// If other processes may map it: its number in the recording, and the offset of its first byte there.
    pub backing: Option<(u32, u64)>,
}

/// The objects of a process image and their addresses.
#[derive(Debug, Default)]
pub struct Memory {
    /// Objects in order of creation.
    pub objects: Vec<Found>,
    /// The object at each address.
    ranges: Ranges<usize>,
    /// Memory that other processes may map: number of the object behind it, and what added to an address gives the
    /// offset in it.
    backings: Ranges<(u32, u64)>,
    orders: Orders,
    heap: Option<(usize, u64)>,
    /// Parts of the heap outside the break: start, end, and the address that byte 0 of the heap would have relative to
    /// them.
    heap_parts: Vec<(u64, u64, u64)>,
    /// Bytes of the heap in all parts.
    heap_length: u64,
    /// Number of objects that existed when the process was forked.
    pub inherited: usize,
}

impl Memory {
    /// Builds the objects from the records of one process image, and of those that it was forked from.
    pub fn build(process: &Lineage<'_>, images: &dyn Images) -> Self {
        let mut memory = Self::default();
        // Files that are programs or libraries: those mapped at the start, and all that are mapped executable.
        let mut loaded: HashSet<&str> = HashSet::new();
        for record in process.records() {
            match record {
                Record::Map {
                    file, protection, ..
                } if protection & 4 != 0 && !file.is_empty() => {
                    loaded.insert(file);
                }
                _ => {}
            }
        }
        let mut known: HashSet<(&str, u64)> = HashSet::new();
        for chapter in process.chapters() {
            memory.hand_down(chapter.first);
            for record in chapter.records() {
                if let Record::Image { file, start, end } = record
                    && known.insert((file, *start))
                {
                    memory.image(file, *start, *end, chapter.first, images);
                }
            }
            memory.happened(chapter, &loaded, images);
        }
        memory
    }

    /// What exists becomes that of a forked process, whose first thread has the path `first`.
    fn hand_down(&mut self, first: &str) {
        for found in self.objects.iter_mut().filter(|found| found.of_process) {
            found.key.creator = Some(first.to_owned());
        }
        self.inherited = self.objects.len();
    }

    /// Adds what the memory events of a process have changed. `loaded`: files that are programs or libraries.
    fn happened(&mut self, process: &Chapter<'_>, loaded: &HashSet<&str>, images: &dyn Images) {
        let (memory, first) = (self, process.first);
        for event in process.events() {
            match event {
                Record::Map {
                    thread,
                    address,
                    length,
                    protection,
                    flags,
                    file,
                    offset,
                    moved_from,
                    ..
                } => {
                    let range = (*address, address + length.next_multiple_of(PAGE_BYTES));
                    memory.backings.clear(range.0, range.1);
                    if *moved_from != 0 {
                        memory.moved(*moved_from, range);
                    } else if file == STACK {
                        memory.add_own(&NewObject::main_stack(range.1), first);
                    } else if file == HEAP {
                        memory.extend_heap(range);
                    } else if loaded.contains(file.as_str()) {
                        if *offset == 0 && !memory.inside(range) {
                            memory.image(file, range.0, range.1, first, images);
                        }
                    } else {
                        let creator = process.path_of(*thread);
                        memory.mapped(range, *protection, *flags, file, creator);
                    }
                }
                Record::Backing {
                    address,
                    length,
                    object,
                    offset,
                    ..
                } => {
                    let end = address.saturating_add(*length);
                    memory.back((*address, end), *object, *offset);
                }
                Record::Break { address, .. } => memory.moved_break(*address, first),
                Record::Stack { path, pointer, .. } => memory.stack(path, *pointer),
                _ => {}
            }
        }
    }

    /// Adds an object created by the thread with path `creator`; its size is that of its identity.
    fn add(&mut self, object: &NewObject<'_>, creator: &str) -> usize {
        self.objects.push(Found {
            key: self.orders.key(object, creator),
            base: object.base,
            variables: Rc::default(),
            of_process: false,
            backing: None,
        });
        let index = self.objects.len() - 1;
        let end = object.base.saturating_add(object.size);
        self.claim((object.base, end), index);
        index
    }

    /// The same for an object of a process, whose first thread has the path `first`.
    fn add_own(&mut self, object: &NewObject<'_>, first: &str) -> usize {
        let index = self.add(object, first);
        self.objects[index].of_process = true;
        index
    }

    /// Assigns `range` to an object; previous owners keep the rest.
    fn claim(&mut self, (start, end): (u64, u64), object: usize) {
        self.ranges.set(start, end, object);
    }

    /// Whether an existing object or image contains the whole range.
    fn inside(&self, (start, end): (u64, u64)) -> bool {
        let mut at = start;
        while at < end {
            match self.ranges.at(at) {
                Some((_, to, _)) => at = to,
                None => return false,
            }
        }
        true
    }

    /// Marks `range` as shared memory, from byte `offset` of `object` on.
    fn back(&mut self, range: (u64, u64), object: u32, offset: u64) {
        self.backings
            .set(range.0, range.1, (object, offset.wrapping_sub(range.0)));
        if let Some((_, _, found)) = self.ranges.at(range.0) {
            let found = &mut self.objects[found];
            if found.base == range.0 {
                found.backing = Some((object, offset));
            }
        }
    }

    /// The shared memory in `start..end`: its number in the recording, and the offset of its first shared byte.
    #[must_use]
    pub fn backing(&self, start: u64, end: u64) -> Option<(u32, u64)> {
        let (from, _, (object, origin)) = self.backings.overlapping(start, end).next()?;
        Some((object, from.max(start).wrapping_add(origin)))
    }

    fn image(&mut self, file: &str, start: u64, end: u64, first: &str, images: &dyn Images) {
        let name = base_name(file);
        self.add_own(&NewObject::image(name, start, end), first);
        for section in images.sections(file).unwrap_or_default() {
            let base = start.wrapping_add(section.address);
            let object = NewObject::section(name, &section.name, section.size, base);
            let object = self.add_own(&object, first);
            self.objects[object].variables = section.variables;
        }
    }

    fn mapped(
        &mut self,
        range: (u64, u64),
        protection: u64,
        flags: u64,
        file: &str,
        creator: &str,
    ) {
        if flags & FIXED != 0 && self.inside(range) {
            return;
        }
        let call = MapCall {
            length: range.1 - range.0,
            protection,
            flags,
            file: (!file.is_empty()).then(|| base_name(file)),
        };
        if let Some(object) = NewObject::of_map(&call, range.0) {
            self.add(&object, creator);
        }
    }

    fn moved(&mut self, from: u64, range: (u64, u64)) {
        if let Some((_, _, object)) = self.ranges.at(from) {
            if self.objects[object].base == from {
                self.objects[object].base = range.0;
            }
            self.claim(range, object);
        }
    }

    fn moved_break(&mut self, address: u64, first: &str) {
        match self.heap {
            None => {
                let heap = NewObject::heap(address);
                self.heap = Some((self.add_own(&heap, first), heap.base));
            }
            Some((heap, base)) => {
                let end = address.next_multiple_of(PAGE_BYTES);
                self.heap_length = self.heap_length.max(end.saturating_sub(base));
                self.claim((base, end), heap);
            }
        }
    }

    /// Continues the heap in a mapping that the C library made because the break could not move.
    fn extend_heap(&mut self, range: (u64, u64)) {
        if let Some((heap, _)) = self.heap {
            let origin = range.0.wrapping_sub(self.heap_length);
            self.heap_parts.push((range.0, range.1, origin));
            self.heap_length += range.1 - range.0;
            self.claim(range, heap);
        }
    }

    /// The address from which pages of `object` at `address` are numbered: the one its first byte would have if it
    /// were contiguous.
    #[must_use]
    pub fn origin(&self, object: usize, address: u64) -> u64 {
        let heap = self.heap.is_some_and(|(heap, _)| heap == object);
        let mut parts = self.heap_parts.iter().rev();
        parts
            .find(|(start, end, _)| heap && (*start..*end).contains(&address))
            .map_or(self.objects[object].base, |part| part.2)
    }

    fn stack(&mut self, owner: &str, pointer: u64) {
        let at = pointer.saturating_sub(1);
        if let Some((_, _, object)) = self.ranges.at(at) {
            let found = &mut self.objects[object];
            if found.key.kind == ObjectKind::Mapping && found.key.name == ANONYMOUS {
                let base = found.base;
                let stack = NewObject::stack(base, base + found.key.size);
                found.key = self.orders.key(&stack, owner);
            }
        }
    }

    /// The object that covers most of `start..end`; of equals the lower one.
    #[must_use]
    pub fn object_at(&self, start: u64, end: u64) -> Option<usize> {
        let mut shares: Vec<(usize, u64)> = Vec::new();
        for (from, to, object) in self.ranges.overlapping(start, end) {
            let share = to.min(end).saturating_sub(from.max(start));
            if share > 0 {
                match shares.iter_mut().find(|(other, _)| *other == object) {
                    Some((_, sum)) => *sum += share,
                    None => shares.push((object, share)),
                }
            }
        }
        // max_by_key keeps the last of equals; ranges ascend, so iterate from the end.
        shares
            .into_iter()
            .rev()
            .max_by_key(|&(_, share)| share)
            .map(|(object, _)| object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Known;
    impl Images for Known {
        fn sections(&self, file: &str) -> Option<Vec<Section>> {
            (file == "/bin/app").then(|| {
                vec![
                    Section {
                        name: ".data".into(),
                        address: 0x3800,
                        size: 0x100,
                        variables: Rc::default(),
                    },
                    Section {
                        name: ".bss".into(),
                        address: 0x3900,
                        size: 0x2000,
                        variables: Rc::default(),
                    },
                ]
            })
        }
    }

    fn map(sequence: u64, address: u64, length: u64, flags: u64, protection: u64) -> Record {
        Record::Map {
            sequence,
            thread: 0,
            address,
            length,
            protection,
            flags,
            file: String::new(),
            offset: 0,
            moved_from: 0,
        }
    }

    fn build(records: &[Record]) -> Memory {
        Memory::build(&Lineage::alone(records, "0", |_| "0"), &Known)
    }

    #[test]
    fn sections_of_the_program_share_pages_by_cover() {
        let memory = build(&[Record::Image {
            file: "/bin/app".into(),
            start: 0x1_0000,
            end: 0x1_6000,
        }]);
        let name = |page: u64| {
            let object = memory.object_at(page << 12, (page + 1) << 12).unwrap();
            memory.objects[object].key.name.clone()
        };
        assert_eq!(name(0x10), "app");
        // Page 0x13: 0x800 of the file, 0x100 of .data, 0x700 of .bss.
        assert_eq!(name(0x13), "app");
        assert_eq!(name(0x14), "app:.bss");
        // Page 0x15: 0x900 of .bss, 0x700 of the file.
        assert_eq!(name(0x15), "app:.bss");
    }

    #[test]
    fn mappings_are_numbered_and_stacks_go_to_their_owner() {
        let memory = build(&[
            map(0, 0x10_0000, 0x1000, 0x22, 3),
            map(1, 0x20_0000, 0x1000, 0x22, 3),
            Record::Stack {
                sequence: 2,
                path: "0.1".into(),
                pointer: 0x20_1000,
            },
            map(3, 0x30_0000, 0x0fff, 0x22, 3),
        ]);
        let described: Vec<_> = memory
            .objects
            .iter()
            .map(|o| {
                (
                    o.key.name.as_str(),
                    o.key.creator.as_deref().unwrap(),
                    o.key.order,
                )
            })
            .collect();
        assert_eq!(
            described,
            [
                ("[anon]", "0", 0),
                ("[stack]", "0.1", 0),
                ("[anon]", "0", 2)
            ]
        );
    }

    #[test]
    fn arenas_have_one_identity_however_they_were_aligned() {
        let reserve = 0x4022;
        let aligned = build(&[map(0, 0x4000_0000, 64 << 20, reserve, 0)]);
        let trimmed = build(&[
            map(0, 0x4100_0000, 64 << 20, reserve, 0),
            map(1, 0x4100_0000, 128 << 20, reserve, 0),
        ]);
        for memory in [aligned, trimmed] {
            assert_eq!(memory.objects.len(), 1);
            let arena = &memory.objects[0];
            assert_eq!(
                (arena.key.name.as_str(), arena.key.size),
                ("[arena]", 64 << 20)
            );
            assert_eq!(arena.base % (64 << 20), 0);
        }
    }

    #[test]
    fn fixed_mappings_inside_an_object_are_part_of_it() {
        let memory = build(&[
            map(0, 0x10_0000, 0x10_0000, 0x22, 0),
            map(1, 0x10_8000, 0x1000, 0x32, 3),
        ]);
        assert_eq!(memory.objects.len(), 1);
        assert_eq!(memory.object_at(0x10_8000, 0x10_9000), Some(0));
    }

    #[test]
    fn the_heap_starts_at_the_first_break_and_grows() {
        let memory = build(&[
            Record::Break {
                sequence: 0,
                address: 0x5001,
            },
            Record::Break {
                sequence: 1,
                address: 0x9000,
            },
        ]);
        assert_eq!(
            (memory.objects[0].base, memory.objects[0].key.size),
            (0x6000, 0)
        );
        assert_eq!(memory.object_at(0x8000, 0x9000), Some(0));
        assert_eq!(memory.object_at(0x9000, 0xa000), None);
    }

    #[test]
    fn a_heap_that_cannot_grow_continues_in_mappings() {
        let rest = |sequence, address| match map(sequence, address, 0x10_0000, 0x22, 3) {
            Record::Map {
                sequence,
                thread,
                address,
                length,
                protection,
                flags,
                ..
            } => Record::Map {
                sequence,
                thread,
                address,
                length,
                protection,
                flags,
                file: "[heap]".into(),
                offset: 0,
                moved_from: 0,
            },
            other => other,
        };
        let grown = |sequence, address| Record::Break { sequence, address };
        let memory = build(&[
            grown(0, 0x6000),
            grown(1, 0x9000),
            rest(2, 0x700_0000),
            rest(3, 0x600_0000),
        ]);
        assert_eq!(memory.objects.len(), 1);
        let page = |address: u64| {
            assert_eq!(memory.object_at(address, address + PAGE_BYTES), Some(0));
            (address - memory.origin(0, address)) / PAGE_BYTES
        };
        assert_eq!((page(0x6000), page(0x8000)), (0, 2));
        assert_eq!((page(0x700_0000), page(0x70f_f000)), (3, 3 + 255));
        assert_eq!(page(0x600_0000), 3 + 256);
    }

    #[test]
    fn a_forked_process_has_what_its_parent_had_at_the_fork() {
        let image = Record::Image {
            file: "/bin/app".into(),
            start: 0x1_0000,
            end: 0x1_6000,
        };
        let grown = |sequence, address| Record::Break { sequence, address };
        let parent = [
            image,
            grown(0, 0x5000_0000),
            grown(1, 0x5000_2000),
            map(2, 0x10_0000, 0x1000, 0x22, 3),
            // After the fork.
            map(3, 0x20_0000, 0x1000, 0x22, 3),
            grown(4, 0x5000_9000),
        ];
        let child = [map(3, 0x30_0000, 0x1000, 0x22, 3), grown(4, 0x5000_3000)];
        let of_parent = Lineage::alone(&parent, "0", |_| "0.7");
        let of_child = Lineage::alone(&child, "0/1", |_| "0/1");
        let memory = Memory::build(&of_parent.forked(3, of_child), &Known);
        let named = |at: u64| {
            let object = memory.object_at(at, at + PAGE_BYTES)?;
            let key = &memory.objects[object].key;
            Some((
                key.name.as_str(),
                key.creator.as_deref().unwrap(),
                key.order,
            ))
        };
        // What belongs to each process is the child's, mappings are those of the thread that made them.
        assert_eq!(named(0x1_4000), Some(("app:.bss", "0/1", 0)));
        assert_eq!(named(0x10_0000), Some(("[anon]", "0.7", 0)));
        assert_eq!(named(0x20_0000), None);
        assert_eq!(named(0x30_0000), Some(("[anon]", "0/1", 0)));
        // One heap, which goes on.
        for page in [0x5000_0000, 0x5000_2000] {
            assert_eq!(named(page), Some(("[heap]", "0/1", 0)));
        }
        assert_eq!(named(0x5000_3000), None);
        assert_eq!(memory.objects.len(), memory.inherited + 1);
    }

    #[test]
    fn a_moved_mapping_keeps_its_identity() {
        let mut moved = map(1, 0x70_0000, 0x4000, 0, 0);
        if let Record::Map { moved_from, .. } = &mut moved {
            *moved_from = 0x10_0000;
        }
        let memory = build(&[map(0, 0x10_0000, 0x2000, 0x22, 3), moved]);
        assert_eq!(memory.objects.len(), 1);
        assert_eq!(
            (memory.objects[0].base, memory.objects[0].key.size),
            (0x70_0000, 0x2000)
        );
    }
}
