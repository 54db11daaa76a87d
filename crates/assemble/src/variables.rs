//! Finds the variables in a file's writable sections, and their declarations.
//!
//! Addresses, sizes and names come from the symbol table (the dynamic one if the file is stripped); `FILE:LINE` of the
//! declaration and the name as written in the source (`counter` for the symbol `counter.0`) from DWARF, if present.
//! Debugging information is optional: what cannot be parsed is skipped.
//!
//! Cost: O(symbols + DWARF entries) time; files with more than
//! [`DEBUG_INFO_MAX`](crate::debug::DEBUG_INFO_MAX) bytes of debugging information are read without it.

use std::collections::{BTreeMap, HashMap};

use gimli::{AttributeValue, Operation};
use numaloc_identity::object::base_name;
use numaloc_model::profile::Variable;
use object::{Object as _, ObjectSymbol as _, SymbolKind};

use crate::debug::{Bytes, Debug};

/// Most variables kept of a section: the largest ones.
const KEPT: usize = 1 << 16;

/// A file's variables by address.
#[derive(Debug, Default)]
pub struct Variables {
    /// Address in the file to size, name and declaration.
    by_address: BTreeMap<u64, (u64, String, Option<String>)>,
}

impl Variables {
    /// Reads symbols and debugging information of a file.
    #[must_use]
    pub fn of(debug: &Debug) -> Self {
        let mut by_address: BTreeMap<u64, (u64, String, Option<String>)> = BTreeMap::new();
        let files = debug.files();
        let symbols = files
            .iter()
            .flat_map(|file| file.symbols().chain(file.dynamic_symbols()));
        for symbol in symbols {
            let Ok(name) = symbol.name() else { continue };
            if symbol.kind() != SymbolKind::Data
                || !symbol.is_definition()
                || symbol.size() == 0
                || name.is_empty()
            {
                continue;
            }
            let kept = by_address
                .entry(symbol.address())
                .or_insert_with(|| (symbol.size(), name.to_owned(), None));
            // Of several names of one variable (`environ`, `__environ`): the largest, then the first by name.
            if (symbol.size(), kept.1.as_str()) > (kept.0, name) {
                (kept.0, kept.1) = (symbol.size(), name.to_owned());
            }
        }
        if !by_address.is_empty() {
            for (address, (name, source)) in declarations(debug) {
                if let Some(variable) = by_address.get_mut(&address) {
                    variable.1 = name;
                    variable.2 = source;
                }
            }
        }
        Self { by_address }
    }

    /// The variables in a section of `size` bytes at `address`, by ascending offset.
    #[must_use]
    pub fn within(&self, address: u64, size: u64) -> Vec<Variable> {
        let mut found: Vec<Variable> = self
            .by_address
            .range(address..address.saturating_add(size))
            .map(|(&at, (bytes, name, source))| Variable {
                name: name.clone(),
                offset: at - address,
                size: (*bytes).min(size - (at - address)),
                source: source.clone(),
            })
            .collect();
        if found.len() > KEPT {
            found.sort_by_key(|variable| std::cmp::Reverse(variable.size));
            found.truncate(KEPT);
            found.sort_by_key(|variable| variable.offset);
        }
        found
    }
}

/// Name in the source, and `FILE:LINE` if known.
type Declared = (String, Option<String>);

fn declarations(debug: &Debug) -> HashMap<u64, Declared> {
    let mut found = HashMap::new();
    let Some(sections) = debug.sections() else {
        return found;
    };
    let dwarf = sections.dwarf();
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        if let Ok(unit) = dwarf.unit(header) {
            // A unit that cannot be read to its end gives the entries before.
            let _ = unit_declarations(unit.unit_ref(&dwarf), &mut found);
        }
    }
    found
}

fn unit_declarations(
    unit: gimli::UnitRef<'_, Bytes<'_>>,
    found: &mut HashMap<u64, Declared>,
) -> gimli::Result<()> {
    let mut entries = unit.entries();
    while let Some((_, entry)) = entries.next_dfs()? {
        if !matches!(
            entry.tag(),
            gimli::DW_TAG_variable | gimli::DW_TAG_common_block
        ) {
            continue;
        }
        let Some(AttributeValue::Exprloc(place)) = entry.attr_value(gimli::DW_AT_location)? else {
            continue;
        };
        let mut operations = place.operations(unit.encoding());
        let address = match operations.next()? {
            Some(Operation::Address { address }) => address,
            Some(Operation::AddressIndex { index }) => unit.address(index)?,
            _ => continue,
        };
        // More operations than an address: part of a variable, or thread-local.
        if operations.next()?.is_some() {
            continue;
        }
        // A definition may refer to the declaration that has the name (`extern`, C++ members).
        let declaration = match entry.attr_value(gimli::DW_AT_specification)? {
            Some(AttributeValue::UnitRef(offset)) => Some(unit.entry(offset)?),
            _ => None,
        };
        let attribute = |name| -> gimli::Result<Option<AttributeValue<Bytes<'_>>>> {
            match (entry.attr_value(name)?, &declaration) {
                (None, Some(declaration)) => declaration.attr_value(name),
                (value, _) => Ok(value),
            }
        };
        let Some(name) = attribute(gimli::DW_AT_name)? else {
            continue;
        };
        let name = unit.attr_string(name)?.to_string_lossy().into_owned();
        let line = attribute(gimli::DW_AT_decl_line)?.and_then(|value| value.udata_value());
        let file = match attribute(gimli::DW_AT_decl_file)? {
            Some(AttributeValue::FileIndex(index)) => file_name(unit, index)?,
            Some(value) => match value.udata_value() {
                Some(index) => file_name(unit, index)?,
                None => None,
            },
            None => None,
        };
        let source = file.zip(line).map(|(file, line)| format!("{file}:{line}"));
        found.insert(address, (name, source));
    }
    Ok(())
}

/// A file of the unit's line table, without folders.
fn file_name(unit: gimli::UnitRef<'_, Bytes<'_>>, index: u64) -> gimli::Result<Option<String>> {
    let Some(file) = unit
        .line_program
        .as_ref()
        .and_then(|program| program.header().file(index))
    else {
        return Ok(None);
    };
    let path = unit
        .attr_string(file.path_name())?
        .to_string_lossy()
        .into_owned();
    Ok(Some(base_name(&path).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::ObjectSection as _;
    use std::process::Command;

    const PROGRAM: &str = "\
static volatile double grid[1000];
int shared = 3;
extern double grid_edge[512];
double grid_edge[512];
static _Thread_local int own;
int main(void) {
  static volatile long counter[16] = {1};
  own = 1;
  grid[3] = shared + own;
  return (int)(grid[3] + counter[0] + grid_edge[0]) == 0;
}
";

    /// The variables of a program built from the text above with `flags`.
    fn built(flags: &[&str]) -> Vec<Variable> {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("stencil.c");
        let program = folder.path().join("stencil");
        std::fs::write(&source, PROGRAM).unwrap();
        let status = Command::new("cc")
            .args(flags)
            .arg("-o")
            .args([&program, &source])
            .status()
            .unwrap();
        assert!(status.success());
        let debug = Debug::open(program.to_str().unwrap()).unwrap();
        let file = debug.file().unwrap();
        let variables = Variables::of(&debug);
        file.sections()
            .filter(|section| matches!(section.name(), Ok(".data" | ".bss")))
            .flat_map(|section| variables.within(section.address(), section.size()))
            .collect()
    }

    #[test]
    fn variables_have_their_line_with_debugging_information() {
        for flags in [["-O0", "-gdwarf-5"], ["-O2", "-gdwarf-4"]] {
            let found = built(&flags);
            let of = |name: &str| {
                let all: Vec<_> = found.iter().filter(|v| v.name == name).collect();
                assert_eq!(all.len(), 1, "{name} in {found:?}");
                (all[0].size, all[0].source.as_deref())
            };
            assert_eq!(of("grid"), (8000, Some("stencil.c:1")));
            assert_eq!(of("shared"), (4, Some("stencil.c:2")));
            assert_eq!(of("grid_edge"), (4096, Some("stencil.c:4")));
            assert_eq!(of("counter"), (128, Some("stencil.c:7")));
            assert!(found.iter().all(|v| v.name != "own"), "thread-local");
        }
    }

    #[test]
    fn variables_have_their_names_without_it() {
        let found = built(&["-O0"]);
        let grid = found.iter().find(|v| v.name == "grid").unwrap();
        assert_eq!((grid.size, &grid.source), (8000, &None));
        assert!(built(&["-O0", "-s"]).is_empty());
    }
}
