//! Reads functions, sections and variables from the ELF files of programs and libraries.

use std::cell::RefCell;
use std::collections::HashMap;

use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _};

use crate::debug::Debug;
use crate::objects::{Images, Section};
use crate::variables::Variables;

/// Function symbols of a file: address relative to the load base, size, name.
type Symbols = Vec<(u64, u64, String)>;

/// ELF files on disk, each read once.
#[derive(Default)]
pub(super) struct Elf {
    symbols: RefCell<HashMap<String, Symbols>>,
    sections: RefCell<HashMap<String, Option<Vec<Section>>>>,
}

/// Address of the first loaded byte, the base of relative addresses.
fn link_base(file: &object::File) -> u64 {
    file.segments()
        .map(|segment| segment.address() & !0xfff)
        .min()
        .unwrap_or(0)
}

impl Elf {
    pub(super) fn symbol(&self, path: &str, address: u64) -> Option<String> {
        let mut cache = self.symbols.borrow_mut();
        let symbols = cache.entry(path.to_owned()).or_insert_with(|| {
            let debug = Debug::open(path);
            let Some((debug, file)) = debug
                .as_ref()
                .and_then(|debug| Some((debug, debug.file()?)))
            else {
                return Vec::new();
            };
            let base = link_base(&file);
            let files = debug.files();
            let symbols = files
                .iter()
                .flat_map(|file| file.symbols())
                // As in `code`: the same names with and without debugging information.
                .chain(files.iter().flat_map(|file| file.dynamic_symbols()));
            symbols
                .filter(|symbol| symbol.is_definition() && symbol.size() > 0)
                .filter_map(|symbol| {
                    let name = symbol.name().ok()?.to_owned();
                    Some((symbol.address().wrapping_sub(base), symbol.size(), name))
                })
                .collect()
        });
        symbols
            .iter()
            .find(|(start, size, _)| (*start..start + size).contains(&address))
            .map(|(_, _, name)| name.clone())
    }
}

impl Images for Elf {
    fn sections(&self, path: &str) -> Option<Vec<Section>> {
        let mut cache = self.sections.borrow_mut();
        cache
            .entry(path.to_owned())
            .or_insert_with(|| Self::read_sections(path))
            .clone()
    }
}

impl Elf {
    fn read_sections(path: &str) -> Option<Vec<Section>> {
        let debug = Debug::open(path)?;
        let file = debug.file()?;
        let base = link_base(&file);
        let variables = Variables::of(&debug);
        let sections = file
            .sections()
            .filter(|section| match section.flags() {
                object::SectionFlags::Elf { sh_flags } => {
                    let wanted = u64::from(object::elf::SHF_WRITE | object::elf::SHF_ALLOC);
                    sh_flags & wanted == wanted && sh_flags & u64::from(object::elf::SHF_TLS) == 0
                }
                _ => false,
            })
            .filter(|section| section.size() > 0)
            .map(|section| Section {
                name: section.name().unwrap_or("?").to_owned(),
                address: section.address().wrapping_sub(base),
                size: section.size(),
                variables: variables.within(section.address(), section.size()).into(),
            })
            .collect();
        Some(sections)
    }
}
