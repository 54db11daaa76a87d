//! Maps return addresses to functions and lines, by the ELF files that a process had loaded.
//!
//! Each file is read once, for the addresses of all processes. Files with more debugging information than
//! [`DEBUG_INFO_MAX`](crate::debug::DEBUG_INFO_MAX) give symbols only. Cost: parsing the units that hold the addresses.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gimli::DwLang;
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};

use crate::debug::Debug;
use crate::lineage::Lineage;
use crate::places;
use crate::sites::{self, Code, Frame};
use crate::system;
use numaloc_identity::object::base_name;
use numaloc_journal::Record;
use numaloc_model::CodePlace;
use numaloc_names::readable;

/// A loaded file: start address, end address, path.
type Image = (u64, u64, String);

/// The frames at the addresses of call stacks, by file.
#[derive(Default)]
pub struct Lines(HashMap<String, BTreeMap<u64, Vec<Frame>>>);

impl Lines {
    /// Looks up the call stacks of all processes of a recording.
    pub fn of<'a>(processes: impl Iterator<Item = Lineage<'a>>) -> Self {
        let mut wanted: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
        for process in processes {
            let images = images(&process);
            let frames = process.own().iter().filter_map(|record| match record {
                Record::Site { frames, .. } => Some(frames),
                _ => None,
            });
            // What is looked up is a return address, after the instruction that it belongs to.
            let sampled = places::sampled(process.own()).map(|place| place + 1);
            for address in frames.flatten().copied().chain(sampled) {
                if let Some((start, _, file)) = holding(&images, address) {
                    let of_file = wanted.entry(file.clone()).or_default();
                    of_file.insert(address - start);
                }
            }
        }
        let found = wanted.into_iter().map(|(file, addresses)| {
            let frames = look_up(&file, &addresses);
            (file, frames)
        });
        Self(found.collect())
    }

    /// The frames for one of the processes.
    #[must_use]
    pub fn process(&self, process: &Lineage<'_>) -> impl Code + use<'_> {
        Process {
            images: images(process),
            lines: self,
        }
    }
}

struct Process<'a> {
    images: Vec<Image>,
    lines: &'a Lines,
}

impl Code for Process<'_> {
    fn frames(&self, address: u64) -> Vec<Frame> {
        holding(&self.images, address)
            .and_then(|(start, _, file)| self.lines.0.get(file)?.get(&(address - start)))
            .cloned()
            .unwrap_or_default()
    }
}

fn images(process: &Lineage<'_>) -> Vec<Image> {
    let images = process.records().filter_map(|record| match record {
        Record::Image { file, start, end } => Some((*start, *end, file.clone())),
        // The code of a library that the program has loaded; its addresses count from the file's first byte.
        Record::Map {
            file,
            address,
            length,
            protection,
            offset,
            ..
        } if protection & 4 != 0 && !file.is_empty() => Some((
            address.wrapping_sub(*offset),
            address + length,
            file.clone(),
        )),
        _ => None,
    });
    images.collect()
}

fn holding(images: &[Image], address: u64) -> Option<&Image> {
    images
        .iter()
        .find(|(start, end, _)| (*start..*end).contains(&address))
}

/// The places of return addresses in a file, which are relative to its load address; unknown ones are left out. Of what
/// is inlined, the innermost function.
#[must_use]
pub fn places_in(file: &str, addresses: &BTreeSet<u64>) -> BTreeMap<u64, CodePlace> {
    let named = look_up(file, addresses).into_iter();
    named
        .filter_map(|(address, frames)| Some((address, frames.into_iter().next()?)))
        .map(|(address, frame)| {
            let source = frame.source.as_deref().map(base_name).map(str::to_owned);
            let function = Some(frame.function);
            (address, CodePlace { function, source })
        })
        .collect()
}

/// The frames at return addresses, which are relative to the file's load address.
fn look_up(path: &str, addresses: &BTreeSet<u64>) -> BTreeMap<u64, Vec<Frame>> {
    let debug = Debug::open(path);
    let Some((debug, file)) = debug
        .as_ref()
        .and_then(|debug| Some((debug, debug.file()?)))
    else {
        return BTreeMap::new();
    };
    let base = file
        .segments()
        .map(|segment| segment.address() & !0xfff)
        .min()
        .unwrap_or(0);
    let of_system = system::is_library(path);
    let files = debug.files();
    let symbols = symbols(&files);
    let sections = debug.sections();
    let dwarf = sections.as_ref().map(|sections| sections.dwarf());
    let context = dwarf.and_then(|dwarf| addr2line::Context::from_dwarf(dwarf).ok());
    let frames = |relative: u64| {
        // A return address belongs to the instruction after the call.
        let address = (relative + base).wrapping_sub(1);
        let symbol = symbols
            .range(..=address)
            .next_back()
            .filter(|(start, (size, _))| address - *start < *size)
            .map(|(_, (_, name))| readable(name, false));
        // Frames of the recorder are named by symbol, without functions inlined into them.
        let of_recorder = symbol.as_deref().is_some_and(sites::is_recorder);
        let inlined = context
            .as_ref()
            .filter(|_| !of_recorder)
            .map_or_else(Vec::new, |context| {
                let mut found = Vec::new();
                if let Ok(mut frames) = context.find_frames(address).skip_all_loads() {
                    while let Ok(Some(frame)) = frames.next() {
                        let name = frame.function.as_ref().and_then(|function| {
                            let name = function.raw_name().ok()?;
                            Some(readable(&name, function.language.is_some_and(is_c)))
                        });
                        let place = frame.location.as_ref();
                        found.push(Frame {
                            function: name.or_else(|| symbol.clone()).unwrap_or_default(),
                            source: place.and_then(|l| Some(format!("{}:{}", l.file?, l.line?))),
                            of_system,
                        });
                    }
                }
                found
            });
        match (inlined.is_empty(), symbol) {
            (true, Some(function)) => vec![Frame {
                function,
                source: None,
                of_system,
            }],
            _ => inlined,
        }
    };
    addresses
        .iter()
        .map(|&relative| (relative, frames(relative)))
        .collect()
}

/// Whether it is a version of C, whose names are not mangled.
fn is_c(language: DwLang) -> bool {
    matches!(
        language,
        gimli::DW_LANG_C
            | gimli::DW_LANG_C89
            | gimli::DW_LANG_C99
            | gimli::DW_LANG_C11
            | gimli::DW_LANG_C17
    )
}

/// Function symbols by address: size and name.
fn symbols<'a>(files: &[object::File<'a>]) -> BTreeMap<u64, (u64, &'a str)> {
    let symbols = files
        .iter()
        .flat_map(|file| file.symbols())
        // Of names for one address, those that programs are linked with win, whatever debugging information there is.
        .chain(files.iter().flat_map(|file| file.dynamic_symbols()));
    symbols
        .filter(|symbol| symbol.is_definition() && symbol.kind() == object::SymbolKind::Text)
        .filter_map(|symbol| Some((symbol.address(), (symbol.size(), symbol.name().ok()?))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_function_and_line() {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("a.c"), folder.path().join("a"));
        let text = "int value;\nstatic inline int inner(int x) { return x * value; }\n\
                    int outer(int x) {\n  return inner(x) + 1;\n}\nint main(void) { return outer(3); }\n";
        std::fs::write(&source, text).unwrap();
        let built = std::process::Command::new("cc")
            .args(["-O2", "-g", "-fno-ipa-icf", "-o"])
            .args([&program, &source])
            .status();
        assert!(built.unwrap().success());
        let bytes = std::fs::read(&program).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let outer = file.symbols().find(|s| s.name() == Ok("outer")).unwrap();
        let start = 0x5555_0000;
        // One past the first instruction, like a return address.
        let address = start + outer.address() + 1;
        let records = [
            Record::Image {
                file: program.to_str().unwrap().to_owned(),
                start,
                end: start + (1 << 20),
            },
            Record::Site {
                site: 0,
                frames: vec![address, 7],
            },
        ];
        let process = || Lineage::alone(&records, "0", |_| "0");
        let lines = Lines::of([process()].into_iter());
        let frames = lines.process(&process()).frames(address);
        let last = frames.last().unwrap();
        assert_eq!(last.function, "outer");
        let line = last.source.as_deref().unwrap();
        assert!(line.ends_with("a.c:3") || line.ends_with("a.c:4"), "{line}");
        assert!(lines.process(&process()).frames(7).is_empty());
    }
}
