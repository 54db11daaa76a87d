//! The agent that counts marks in the program: its library, and the environment that preloads it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use numaloc_launch::script::{HEAD_BYTES, MAX_DEPTH};
use numaloc_launch::{Interpreter, Part};
use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};
use std::io::Read;

use crate::image::Map;

/// File name of the agent.
pub const LIBRARY: &str = "libnumaloc_marks.so";
const PRELOAD: &str = "LD_PRELOAD";

/// The environment in which the dynamic linker loads the agent into `command`: that of this process, with the agent in
/// front of the libraries that are preloaded anyway. The agent removes itself from it again.
///
/// # Errors
/// Why the program cannot have an agent, for the user.
pub fn environment(command: &[OsString]) -> Result<Vec<CString>, String> {
    let chosen = std::env::var_os("NUMALOC_PLUGIN_DIR");
    let library =
        numaloc_launch::sibling(LIBRARY, Part::Library, chosen).map_err(|why| why.to_string())?;
    let name = library.as_os_str().as_bytes();
    if name.iter().any(|byte| b" :".contains(byte)) {
        return Err(format!(
            "the path {} cannot be preloaded",
            library.display()
        ));
    }
    let program = command
        .first()
        .and_then(|program| numaloc_launch::find(program).ok());
    let is_dynamic = program.is_some_and(|program| is_dynamic(program, 0));
    if !is_dynamic {
        return Err("the program is not loaded by a dynamic linker".to_owned());
    }
    let mut value = library.into_os_string();
    if let Some(before) = std::env::var_os(PRELOAD) {
        value.push(":");
        value.push(before);
    }
    let others = std::env::vars_os().filter(|(name, _)| name != PRELOAD);
    let entry = |(name, value): (OsString, OsString)| {
        let mut text = name;
        text.push("=");
        text.push(value);
        CString::new(text.into_vec()).ok()
    };
    let all = others.chain([(PRELOAD.into(), value)]);
    Ok(all.filter_map(entry).collect())
}

/// Whether a program, or the interpreter that runs it, is loaded by a dynamic linker.
fn is_dynamic(program: PathBuf, depth: usize) -> bool {
    let head = || {
        let mut head = Vec::new();
        let file = File::open(&program).ok()?;
        file.take(HEAD_BYTES as u64).read_to_end(&mut head).ok()?;
        Some(head)
    };
    let Some(head) = head() else { return false };
    match Interpreter::of(&head) {
        Some(script) if depth < MAX_DEPTH => {
            is_dynamic(Path::new(OsStr::new(script.file)).into(), depth + 1)
        }
        Some(_) => false,
        None => has_interpreter(&program).unwrap_or(false),
    }
}

fn has_interpreter(program: &Path) -> Option<bool> {
    let cache = ReadCache::new(File::open(program).ok()?);
    let header = FileHeader64::<Endianness>::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, &cache).ok()?;
    Some(
        segments
            .iter()
            .any(|segment| segment.p_type(endian) == elf::PT_INTERP),
    )
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_scripts_are_dynamic_by_what_loads_them() {
        assert!(is_dynamic("/bin/sh".into(), 0));
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/bin/sh\ntrue\n").unwrap();
        assert!(is_dynamic(script.clone(), 0));
        std::fs::write(&script, "#!/nowhere\n").unwrap();
        assert!(!is_dynamic(script, 0));
    }
}
