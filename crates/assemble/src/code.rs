//! Maps return addresses to functions and lines, by the ELF files that a process had loaded.
//!
//! Each file is read once, for the addresses of all processes. Files with more debugging information than
//! [`DEBUG_INFO_MAX`] give symbols only. Cost: parsing the units that hold the addresses.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use gimli::{EndianSlice, LittleEndian, SectionId};
use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _};

use crate::places;
use crate::sites::{self, Code, Frame};
use crate::variables::DEBUG_INFO_MAX;
use numaloc_journal::Record;

/// A loaded file: start address, end address, path.
type Image = (u64, u64, String);

/// The frames at the addresses of call stacks, by file.
#[derive(Default)]
pub struct Lines(HashMap<String, BTreeMap<u64, Vec<Frame>>>);

impl Lines {
    /// Looks up the call stacks of all processes of a recording, each given by its records.
    pub fn of<'a>(processes: impl Iterator<Item = &'a [Record]>) -> Self {
        let mut wanted: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
        for records in processes {
            let images = images(records);
            let frames = records.iter().filter_map(|record| match record {
                Record::Site { frames, .. } => Some(frames),
                _ => None,
            });
            // What is looked up is a return address, after the instruction that it belongs to.
            let sampled = places::sampled(records).map(|place| place + 1);
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
    pub fn process(&self, records: &[Record]) -> impl Code {
        Process {
            images: images(records),
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

fn images(records: &[Record]) -> Vec<Image> {
    let images = records.iter().filter_map(|record| match record {
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

/// The frames at return addresses, which are relative to the file's load address.
fn look_up(path: &str, addresses: &BTreeSet<u64>) -> BTreeMap<u64, Vec<Frame>> {
    let Ok(bytes) = std::fs::read(path) else {
        return BTreeMap::new();
    };
    let Ok(file) = object::File::parse(&*bytes) else {
        return BTreeMap::new();
    };
    let base = file
        .segments()
        .map(|segment| segment.address() & !0xfff)
        .min()
        .unwrap_or(0);
    let symbols = symbols(&file);
    let info = file.section_by_name(".debug_info").map_or(0, |s| s.size());
    let load = |id: SectionId| -> Result<Cow<'_, [u8]>, gimli::Error> {
        Ok(file
            .section_by_name(id.name())
            .filter(|_| info <= DEBUG_INFO_MAX)
            .and_then(|section| section.uncompressed_data().ok())
            .unwrap_or(Cow::Borrowed(&[])))
    };
    let sections = gimli::DwarfSections::load(load).ok();
    let dwarf = sections
        .as_ref()
        .map(|sections| sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian)));
    let context = dwarf.and_then(|dwarf| addr2line::Context::from_dwarf(dwarf).ok());
    let frames = |relative: u64| {
        // A return address belongs to the instruction after the call.
        let address = (relative + base).wrapping_sub(1);
        let symbol = symbols
            .range(..=address)
            .next_back()
            .filter(|(start, (size, _))| address - *start < *size)
            .map(|(_, (_, name))| plain(addr2line::demangle_auto(Cow::Borrowed(name), None)));
        // Frames of the recorder are named by symbol, without functions inlined into them.
        let of_recorder = symbol.as_deref().is_some_and(sites::is_recorder);
        let inlined = context
            .as_ref()
            .filter(|_| !of_recorder)
            .map_or_else(Vec::new, |context| {
                let mut found = Vec::new();
                if let Ok(mut frames) = context.find_frames(address).skip_all_loads() {
                    while let Ok(Some(frame)) = frames.next() {
                        let name = frame.function.as_ref().and_then(|f| f.demangle().ok());
                        let place = frame.location.as_ref();
                        found.push(Frame {
                            function: name
                                .map(plain)
                                .or_else(|| symbol.clone())
                                .unwrap_or_default(),
                            source: place.and_then(|l| Some(format!("{}:{}", l.file?, l.line?))),
                        });
                    }
                }
                found
            });
        match (inlined.is_empty(), symbol) {
            (true, Some(function)) => vec![Frame {
                function,
                source: None,
            }],
            _ => inlined,
        }
    };
    addresses
        .iter()
        .map(|&relative| (relative, frames(relative)))
        .collect()
}

/// Function symbols by address: size and name.
fn symbols<'a>(file: &object::File<'a>) -> BTreeMap<u64, (u64, &'a str)> {
    file.symbols()
        .chain(file.dynamic_symbols())
        .filter(|symbol| symbol.is_definition() && symbol.kind() == object::SymbolKind::Text)
        .filter_map(|symbol| Some((symbol.address(), (symbol.size(), symbol.name().ok()?))))
        .collect()
}

/// The name of a C++ function without its arguments.
fn plain(name: Cow<'_, str>) -> String {
    let mut depth = 0usize;
    for (at, byte) in name.bytes().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            b'(' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && at > 0 {
                    return name[..at].to_owned();
                }
            }
            _ if depth == 0 => break,
            _ => {}
        }
    }
    name.into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_left_out_of_names() {
        for (long, short) in [
            ("main", "main"),
            ("grid::make(int, double (*)(int))", "grid::make"),
            ("(anonymous namespace)::work", "(anonymous namespace)::work"),
            ("task::operator()(int)", "task::operator()"),
        ] {
            assert_eq!(plain(Cow::Borrowed(long)), short);
        }
    }

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
        let lines = Lines::of([&records[..]].into_iter());
        let frames = lines.process(&records).frames(address);
        let last = frames.last().unwrap();
        assert_eq!(last.function, "outer");
        let line = last.source.as_deref().unwrap();
        assert!(line.ends_with("a.c:3") || line.ends_with("a.c:4"), "{line}");
        assert!(lines.process(&records).frames(7).is_empty());
    }
}
