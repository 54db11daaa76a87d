//! The agent that counts marks in the program: its library, and the functions and probes that are marks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use object::read::ReadCache;
use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};

use crate::image::Map;

/// File name of the agent.
pub const LIBRARY: &str = "libnumaloc_marks.so";

/// Addresses of the symbol `name` in the process, in the file of which `map` is the lowest mapping.
pub(crate) fn symbol(map: &Map, name: &str) -> Vec<u64> {
    let find = || {
        let cache = ReadCache::new(File::open(&map.name).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let lowest = file.segments().map(|segment| segment.address()).min()? & !4095;
        let symbols = file.symbols().chain(file.dynamic_symbols());
        let named = symbols.filter(|symbol| symbol.is_definition() && symbol.name() == Ok(name));
        let found: BTreeSet<u64> = named
            .map(|symbol| {
                symbol
                    .address()
                    .wrapping_sub(lowest)
                    .wrapping_add(map.start)
            })
            .collect();
        Some(found.into_iter().collect())
    };
    find().unwrap_or_default()
}

/// A function in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Its address.
    pub at: u64,
    /// Its size.
    pub bytes: u64,
}

/// The functions of the file of which `map` is the lowest mapping, by name; empty for a stripped one.
pub(crate) fn functions(map: &Map) -> BTreeMap<String, Function> {
    let find = || {
        let cache = ReadCache::new(File::open(&map.name).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let lowest = file.segments().map(|segment| segment.address()).min()? & !4095;
        let defined = file.symbols().filter(|symbol| {
            symbol.is_definition() && symbol.kind() == SymbolKind::Text && symbol.size() > 0
        });
        let named = defined.filter_map(|symbol| {
            let at = symbol.address().wrapping_sub(lowest);
            let function = Function {
                at: at.wrapping_add(map.start),
                bytes: symbol.size(),
            };
            Some((symbol.name().ok()?.to_owned(), function))
        });
        Some(named.collect())
    };
    find().unwrap_or_default()
}

/// Length of the instruction at a probe of `shims/include/numaloc.h`, which does nothing.
const PROBE: u64 = 5;
/// Type of a probe's note.
const STAPSDT: u32 = 3;

/// The probes `provider:name` (USDT) in the file of which `map` is the lowest mapping, whose argument is in `rdi`.
pub(crate) fn probes(map: &Map, provider: &str, name: &str) -> Vec<Function> {
    let find = || {
        let cache = ReadCache::new(File::open(&map.name).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let lowest = file.segments().map(|segment| segment.address()).min()? & !4095;
        let notes = file.section_by_name(".note.stapsdt")?.data().ok()?;
        let base = file.section_by_name(".stapsdt.base")?.address();
        let wanted = format!("{provider}\0{name}\08@%rdi\0");
        let of = |found: Probe| {
            let at = found.at.wrapping_add(base.wrapping_sub(found.base));
            let at = at.wrapping_sub(lowest).wrapping_add(map.start);
            (found.text == wanted.as_bytes()).then_some(Function { at, bytes: PROBE })
        };
        Some(Probes(notes).filter_map(of).collect())
    };
    find().unwrap_or_default()
}

/// A probe's note: its address, that of `.stapsdt.base` when it was linked, and provider, name and arguments, each
/// ended by NUL.
struct Probe<'a> {
    at: u64,
    base: u64,
    text: &'a [u8],
}

/// Reads the notes of `.note.stapsdt`; ends at one that is malformed.
struct Probes<'a>(&'a [u8]);

impl<'a> Iterator for Probes<'a> {
    type Item = Probe<'a>;

    fn next(&mut self) -> Option<Probe<'a>> {
        const HEAD: usize = 12;
        let number = |at: usize| {
            let bytes = self.0.get(at..at + 4)?.try_into().ok()?;
            Some(u32::from_le_bytes(bytes))
        };
        let (name, described, kind) = (number(0)? as usize, number(4)? as usize, number(8)?);
        let from = HEAD + name.next_multiple_of(4);
        let body = self.0.get(from..from.checked_add(described)?)?;
        let word = |at: usize| Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?));
        let (at, base) = (word(0)?, word(8)?);
        let text = body.get(24..)?;
        self.0 = self.0.get(from + described.next_multiple_of(4)..)?;
        (kind == STAPSDT).then_some(Probe { at, base, text })
    }
}

/// The lowest mapping of each file.
pub(crate) fn files(maps: Vec<Map>) -> Vec<Map> {
    let mut seen = BTreeSet::new();
    let named = maps.into_iter().filter(|map| map.name.starts_with('/'));
    named.filter(|map| seen.insert(map.name.clone())).collect()
}
