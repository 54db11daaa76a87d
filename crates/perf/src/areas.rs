//! Which object an address belongs to, by what the kernel lists of the mappings of processes that ran already. Pure.
//!
//! Memory that processes share is one object with one set of pages, whatever address each process has it at.

use std::collections::HashMap;
use std::ops::Range;

use numaloc_model::profile::ObjectKind;

/// A mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its addresses.
    pub range: Range<u64>,
    /// Offset of its first byte in what it maps.
    pub offset: u64,
    /// What kind of memory it is.
    pub kind: ObjectKind,
    /// Name of the object.
    pub name: String,
    /// Device and inode of what processes share; `None` for private memory.
    pub backing: Option<(u64, u64)>,
}

/// An object that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// What kind of memory it is.
    pub kind: ObjectKind,
    /// Its name.
    pub name: String,
    /// Size in bytes, the largest seen.
    pub size: u64,
    /// Address of its first byte, in the process that had it first.
    pub base: u64,
    /// The process image that had it first.
    pub image: u32,
    /// What processes share.
    pub backing: Option<(u64, u64)>,
}

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the object.
    pub object: usize,
    /// Offset of the address in what processes share; `None` for private memory.
    pub shared_offset: Option<u64>,
}

/// The mappings of all processes.
#[derive(Debug, Default)]
pub struct Areas {
    objects: Vec<Known>,
    by_backing: HashMap<(u64, u64), usize>,
    /// The mappings of each process image with their objects, by address.
    of_image: HashMap<u32, Vec<(Area, usize)>>,
}

impl Areas {
    /// The objects.
    #[must_use]
    pub fn objects(&self) -> &[Known] {
        &self.objects
    }

    /// What a process image has mapped now, by ascending address. A mapping that has grown keeps its object.
    pub fn enter(&mut self, image: u32, areas: Vec<Area>) {
        let before = self.of_image.remove(&image).unwrap_or_default();
        let mut now = Vec::with_capacity(areas.len());
        for area in areas {
            let same = before.iter().find(|(old, _)| {
                let overlap = old.range.start < area.range.end && area.range.start < old.range.end;
                overlap && old.kind == area.kind && old.name == area.name
            });
            let known = match area.backing {
                Some(backing) => self.by_backing.get(&backing).copied(),
                None => same.map(|(_, object)| *object),
            };
            let object = known.unwrap_or_else(|| self.add(image, &area));
            let size = area.range.end - area.range.start;
            let of = &mut self.objects[object];
            of.size = of.size.max(size);
            now.push((area, object));
        }
        self.of_image.insert(image, now);
    }

    /// A process image begins as a copy of another.
    pub fn inherit(&mut self, from: u32, to: u32) {
        let areas = self.of_image.get(&from);
        let areas = areas.map(|areas| areas.iter().map(|(area, _)| area.clone()).collect());
        self.enter(to, areas.unwrap_or_default());
    }

    fn add(&mut self, image: u32, area: &Area) -> usize {
        self.objects.push(Known {
            kind: area.kind,
            name: area.name.clone(),
            size: 0,
            base: area.range.start,
            image,
            backing: area.backing,
        });
        let object = self.objects.len() - 1;
        if let Some(backing) = area.backing {
            self.by_backing.insert(backing, object);
        }
        object
    }

    /// Where an address of a process image is.
    #[must_use]
    pub fn find(&self, image: u32, address: u64) -> Option<Place> {
        let areas = self.of_image.get(&image)?;
        let at = areas.partition_point(|(area, _)| area.range.end <= address);
        let (area, object) = areas.get(at)?;
        let inside = address.checked_sub(area.range.start)?;
        let shared_offset = area.backing.map(|_| area.offset.saturating_add(inside));
        Some(Place {
            object: *object,
            shared_offset,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(range: Range<u64>, name: &str, backing: Option<(u64, u64)>) -> Area {
        let kind = match backing {
            Some(_) => ObjectKind::Shared,
            None => ObjectKind::Mapping,
        };
        Area {
            range,
            offset: 0x1000,
            kind,
            name: name.to_owned(),
            backing,
        }
    }

    #[test]
    fn shared_memory_is_one_object_at_any_address() {
        let mut areas = Areas::default();
        areas.enter(0, vec![area(0x10_000..0x20_000, "pool", Some((1, 2)))]);
        areas.enter(1, vec![area(0x50_000..0x60_000, "pool", Some((1, 2)))]);
        let place = |image, address| areas.find(image, address).unwrap();
        assert_eq!(place(0, 0x10_010), place(1, 0x50_010));
        assert_eq!(place(0, 0x10_010).shared_offset, Some(0x1010));
        assert_eq!(areas.objects().len(), 1);
        assert_eq!(areas.find(0, 0x20_000), None);
        assert_eq!(areas.find(0, 0xffff), None);
    }

    #[test]
    fn private_memory_that_grows_is_the_same_object_and_a_copy_is_another() {
        let mut areas = Areas::default();
        areas.enter(0, vec![area(0x10_000..0x20_000, "[heap]", None)]);
        areas.enter(0, vec![area(0x10_000..0x30_000, "[heap]", None)]);
        areas.inherit(0, 1);
        let place = |image| areas.find(image, 0x2_0000).unwrap();
        assert_eq!((place(0).object, place(1).object), (0, 1));
        assert_eq!(areas.objects()[0].size, 0x20_000);
        assert_eq!(place(0).shared_offset, None);
    }
}
