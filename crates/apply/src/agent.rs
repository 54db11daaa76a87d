//! The agent that counts marks in the program: its library, and the environment that preloads it.

use std::collections::BTreeSet;
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
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};
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
