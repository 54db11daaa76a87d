//! Heap blocks by allocation site: named parts of the heap, the arenas and the mappings.
//!
//! A block is identified by the thread that allocated it, the call stack, the size and its number among those with the
//! same three ([`name`](Site::name) and `#order`), not by its address. Functions and lines come from debugging
//! information. Frames of libraries without it, of system headers (inlined containers) and of the recorder itself are
//! skipped, so that the first frame is the line the programmer would name.
//!
//! Where several blocks used the same place, the largest counts, then the first. Neighbouring blocks of one site
//! become one part, so that a loop that allocates rows gives one row of a table.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

use numaloc_model::profile::{ObjectKind, Variable};

use crate::lineage::Lineage;
use crate::objects::Memory;
use numaloc_identity::object::base_name;
use numaloc_journal::Record;
use numaloc_names::constructs_template;

/// Most functions of the program in a site's name.
const NAMED: usize = 3;
/// Most of the program's frames from which a name is made: constructors and repetitions leave it.
const MOST_FRAMES: usize = 8;
/// Blocks of one site are neighbours if the gap between them is at most this: the allocator's own words, rounding, and
/// now and then a block of the recorder.
const GAP: u64 = 4096;

/// Upper bound of heap addresses: the heap has no size of its own, and a process has no higher addresses.
const LARGEST_HEAP: u64 = 1 << 47;

/// A function in a call stack, and its current line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Name as in the source if there is debugging information, otherwise the symbol.
    pub function: String,
    /// `FILE:LINE` with the full path of the file, if known.
    pub source: Option<String>,
    /// Whether it is code of one of the system's libraries, whose debugging information may be installed or not.
    pub of_system: bool,
}

impl Frame {
    /// Whether it is the program's own code, with a known line.
    pub(crate) fn is_own(&self) -> bool {
        let source = self.source.as_deref();
        !self.of_system && source.is_some_and(|source| !is_system(source))
    }
}

/// Resolves the call stacks of a process.
pub trait Code {
    /// The frames at a return address, innermost (inlined) first; empty if nothing is known.
    fn frames(&self, address: u64) -> Vec<Frame>;
}

/// An allocation site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Name, such as `malloc in make_grid < main`.
    pub name: String,
    /// `FILE:LINE` of these functions, without folders.
    pub sources: Vec<Option<String>>,
}

/// Functions that allocate: name in a call stack, and name in a site.
fn allocator(function: &str) -> Option<&'static str> {
    const NAMES: [&str; 10] = [
        "malloc",
        "calloc",
        "realloc",
        "memalign",
        "aligned_alloc",
        "posix_memalign",
        "mmap",
        "mmap64",
        "mremap",
        "valloc",
    ];
    // The C library's own names.
    let function = function.strip_prefix("__libc_").unwrap_or(function);
    // Other allocators' own names.
    let prefixes = ["je_", "mi_", "tc_"].iter();
    let own = prefixes
        .filter_map(|prefix| function.strip_prefix(prefix))
        .next();
    let function = own.unwrap_or(function);
    if function.starts_with("operator new")
        || function.starts_with("_Znw")
        || function.starts_with("_Zna")
    {
        return Some("new");
    }
    NAMES.into_iter().find(|name| *name == function)
}

/// Whether a source is in a folder of system headers, not the program's own code.
fn is_system(source: &str) -> bool {
    ["/usr/include/", "/usr/lib/", "/rustc/"]
        .iter()
        .any(|folder| source.starts_with(folder))
        || source.contains("/include/c++/")
}

/// Whether a function is part of the run-time library, which also wraps the allocators.
pub(crate) fn is_recorder(function: &str) -> bool {
    function.contains("numaloc_") || allocator(function).is_some()
}

impl Site {
    /// The site of a call stack.
    #[must_use]
    pub fn of(stack: &[u64], code: &dyn Code) -> Option<Self> {
        let frames: Vec<Frame> = stack.iter().flat_map(|&at| code.frames(at)).collect();
        // Frames before the allocator are the recorder's own.
        let from = frames.iter().position(|f| allocator(&f.function).is_some());
        let mut how = None;
        let mut own: Vec<Frame> = Vec::new();
        for frame in frames.into_iter().skip(from.unwrap_or(0)) {
            let name = allocator(&frame.function);
            if own.is_empty() && name.is_some() {
                how = name;
            } else if is_recorder(&frame.function) {
                // The recorder allocates for itself, or it has called the program.
                if own.is_empty() {
                    return None;
                }
            } else if frame.is_own() {
                own.push(frame);
                if own.len() == MOST_FRAMES {
                    break;
                }
            }
        }
        own.dedup_by(|outer, inner| outer.function == inner.function);
        let built = own
            .iter()
            .take_while(|frame| constructs_template(&frame.function));
        let built = built.count().min(own.len().saturating_sub(1));
        own.drain(..built);
        own.truncate(NAMED);
        own.first()?;
        let source = |frame: &Frame| frame.source.as_deref().map(base_name).map(str::to_owned);
        let functions: Vec<&str> = own.iter().map(|frame| frame.function.as_str()).collect();
        Some(Self {
            name: format!("{} in {}", how.unwrap_or("memory"), functions.join(" < ")),
            sources: own.iter().map(source).collect(),
        })
    }
}

/// The line that tells each site from others: its innermost, unless the program comes there from several lines, as to a
/// function of its own that wraps the allocator; then that of the caller.
fn telling_lines<K: Copy + Eq + Hash>(sites: &HashMap<K, Site>) -> HashMap<K, Option<String>> {
    type Stack = [Option<String>];
    let mut callers: HashMap<&Stack, HashSet<&Option<String>>> = HashMap::new();
    for site in sites.values() {
        for depth in 1..site.sources.len() {
            let (inner, outer) = site.sources.split_at(depth);
            callers.entry(inner).or_default().extend(outer.first());
        }
    }
    let line = |site: &Site| {
        let is_shared = |depth: &usize| {
            let inner = &site.sources[..*depth];
            callers.get(inner).is_some_and(|lines| lines.len() > 1)
        };
        let shared = (1..site.sources.len()).take_while(is_shared).count();
        site.sources[shared].clone()
    };
    sites.iter().map(|(at, site)| (*at, line(site))).collect()
}

/// Blocks that only their number distinguishes: the process that recorded them (its number in the lineage), its numbers
/// of their creator and site, and their size.
type Kind = (usize, u32, u32, u64);

/// A block, or several neighbouring blocks of one site.
struct Part {
    end: u64,
    kind: Kind,
    /// Numbers of its first and last block among those of its kind.
    first: u32,
    last: u32,
    largest: u64,
}

/// Names the blocks of a process, also those that it had when it was forked: adds them as parts to the objects that
/// contain them.
pub fn name_blocks(process: &Lineage<'_>, memory: &mut Memory, code: &dyn Code) {
    let mut sites: HashMap<(usize, u32), Site> = HashMap::new();
    let mut blocks: Vec<(u64, Kind, u64)> = Vec::new();
    for (at, chapter) in process.chapters().iter().enumerate() {
        for record in chapter.records() {
            match record {
                Record::Site { site, frames } => {
                    if let Some(found) = Site::of(frames, code) {
                        sites.insert((at, *site), found);
                    }
                }
                Record::Block {
                    sequence,
                    thread,
                    address,
                    length,
                    site,
                } => blocks.push((*sequence, (at, *thread, *site, *length), *address)),
                _ => {}
            }
        }
    }
    let lines = telling_lines(&sites);
    blocks.sort_unstable();
    let mut orders: HashMap<Kind, u32> = HashMap::new();
    let mut parts: Vec<BTreeMap<u64, Part>> = Vec::new();
    parts.resize_with(memory.objects.len(), BTreeMap::new);
    for (_, kind, address) in blocks {
        let (chapter, _, site, length) = kind;
        let count = orders.entry(kind).or_insert(0);
        let order = *count;
        *count += 1;
        let Some(object) = memory.object_at(address, address.saturating_add(length.max(1))) else {
            continue;
        };
        let room = match memory.objects[object].key.kind {
            ObjectKind::Heap => LARGEST_HEAP,
            ObjectKind::Mapping | ObjectKind::Shared => memory.objects[object].key.size,
            ObjectKind::Static | ObjectKind::Stack => 0,
        };
        let offset = address.wrapping_sub(memory.origin(object, address));
        let fits = offset < room && length <= room - offset;
        if fits && sites.contains_key(&(chapter, site)) {
            put(&mut parts[object], offset, length, kind, order);
        }
    }
    for (object, parts) in parts
        .into_iter()
        .enumerate()
        .filter(|(_, parts)| !parts.is_empty())
    {
        let named = join(parts).into_iter().map(|(offset, part)| {
            let (chapter, thread, site, _) = part.kind;
            let site = &sites[&(chapter, site)];
            let mut name = site.name.clone();
            let path = process.chapters()[chapter].path_of(thread);
            if path != process.first() {
                name += &format!(", thread {path}");
            }
            if orders[&part.kind] > 1 {
                name += &format!(" #{}", part.first);
            }
            if part.last > part.first {
                name += &format!("..{}", part.last);
            }
            Variable {
                name,
                offset,
                size: part.end - offset,
                source: lines[&(chapter, part.kind.2)].clone(),
            }
        });
        memory.objects[object].variables = named.collect();
    }
}

/// Puts a block into its place unless a larger one has it.
fn put(parts: &mut BTreeMap<u64, Part>, offset: u64, length: u64, kind: Kind, order: u32) {
    let end = offset.saturating_add(length.max(1));
    let before = parts.range(..offset).next_back();
    let overlapped: Vec<u64> = before
        .filter(|(_, part)| part.end > offset)
        .into_iter()
        .chain(parts.range(offset..end))
        .map(|(&at, _)| at)
        .collect();
    if overlapped.iter().any(|at| parts[at].largest >= length) {
        return;
    }
    for at in overlapped {
        parts.remove(&at);
    }
    let part = Part {
        end,
        kind,
        first: order,
        last: order,
        largest: length,
    };
    parts.insert(offset, part);
}

/// Joins neighbours of one kind with consecutive numbers.
fn join(parts: BTreeMap<u64, Part>) -> Vec<(u64, Part)> {
    let mut joined: Vec<(u64, Part)> = Vec::new();
    for (offset, part) in parts {
        if let Some((_, last)) = joined.last_mut()
            && last.kind == part.kind
            && last.last + 1 == part.first
            && offset - last.end <= GAP
        {
            (last.end, last.last) = (part.end, part.last);
        } else {
            joined.push((offset, part));
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Known;
    impl Code for Known {
        fn frames(&self, address: u64) -> Vec<Frame> {
            let frame = |function: &str, source: Option<&str>| Frame {
                function: function.to_owned(),
                source: source.map(str::to_owned),
                of_system: false,
            };
            match address {
                1 => vec![frame(
                    "numaloc_instrument::sites::note",
                    Some("src/sites.rs:9"),
                )],
                2 => vec![frame("malloc", None)],
                3 => vec![frame("operator new(unsigned long)", None)],
                4 => vec![
                    frame(
                        "allocate",
                        Some("/usr/include/c++/12/bits/new_allocator.h:137"),
                    ),
                    frame("make_grid", Some("/home/me/grid.cpp:12")),
                ],
                5 => vec![frame("main", Some("/home/me/main.cpp:40"))],
                6 => vec![Frame {
                    of_system: true,
                    ..frame("__libc_start_main", Some("./csu/libc-start.c:360"))
                }],
                _ => Vec::new(),
            }
        }
    }

    #[test]
    fn a_site_is_the_line_that_the_programmer_would_name() {
        let site = Site::of(&[1, 2, 3, 4, 5, 6], &Known).unwrap();
        assert_eq!(site.name, "new in make_grid < main");
        assert_eq!(site.sources[0].as_deref(), Some("grid.cpp:12"));
        let site = Site::of(&[1, 2, 5], &Known).unwrap();
        assert_eq!(site.name, "malloc in main");
        // What is installed of the C library does not matter.
        assert_eq!(Site::of(&[1, 2, 6, 7], &Known), None);
    }

    #[test]
    fn the_line_of_a_wrapper_is_that_of_its_callers() {
        let site = |lines: &[&str]| Site {
            name: String::new(),
            sources: lines.iter().map(|line| Some((*line).to_owned())).collect(),
        };
        let sites = HashMap::from([
            (0, site(&["own.h:5", "a.c:10", "main.c:1"])),
            (1, site(&["own.h:5", "a.c:20", "main.c:1"])),
            (2, site(&["b.c:7", "main.c:2"])),
            (3, site(&["own.h:9"])),
        ]);
        let lines = telling_lines(&sites);
        let line = |at: i32| lines[&at].as_deref().unwrap();
        assert_eq!(
            [0, 1, 2, 3].map(line),
            ["a.c:10", "a.c:20", "b.c:7", "own.h:9"]
        );
    }

    fn block(sequence: u64, address: u64, length: u64, site: u32, thread: u32) -> Record {
        Record::Block {
            sequence,
            thread,
            address,
            length,
            site,
        }
    }

    #[test]
    fn neighbours_from_one_site_are_one_part_and_the_larger_block_wins() {
        struct NoImages;
        impl crate::objects::Images for NoImages {
            fn sections(&self, _: &str) -> Option<Vec<crate::objects::Section>> {
                None
            }
        }
        let records = [
            Record::Break {
                sequence: 0,
                address: 0x1000,
            },
            Record::Break {
                sequence: 1,
                address: 0x9000,
            },
            Record::Site {
                site: 0,
                frames: vec![2, 5],
            },
            Record::Site {
                site: 1,
                frames: vec![2, 4],
            },
            // Three consecutive rows; a small block of another thread; one whose place a larger one takes.
            block(2, 0x1010, 100, 0, 0),
            block(3, 0x1080, 100, 0, 0),
            block(4, 0x10f0, 100, 0, 0),
            block(5, 0x2000, 8, 1, 1),
            block(6, 0x3000, 64, 1, 0),
            block(7, 0x3020, 4096, 0, 0),
        ];
        let path = |thread| if thread == 0 { "0" } else { "0.1" };
        let process = Lineage::alone(&records, "0", path);
        let mut memory = Memory::build(&process, &NoImages);
        name_blocks(&process, &mut memory, &Known);
        let parts: Vec<_> = memory.objects[0]
            .variables
            .iter()
            .map(|v| (v.name.as_str(), v.offset, v.size))
            .collect();
        assert_eq!(
            parts,
            [
                ("malloc in main #0..2", 0x10, 0xe0 + 100),
                ("malloc in make_grid, thread 0.1", 0x1000, 8),
                ("malloc in main", 0x2020, 4096),
            ]
        );
    }
}
