//! Finds what a process has loaded: its mappings, the ELF files among them, their writable sections, and the
//! instructions that make the intercepted system calls.

use numaloc_identity::object::base_name;
use numaloc_model::maps::{self, MapsLine};
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader};
use object::read::{ReadCache, ReadRef};
use object::{Endianness, read};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use crate::tracee::SYSCALL;

/// A line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Whether it is writable.
    pub writable: bool,
    /// Whether it is executable.
    pub executable: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Device and inode of the file.
    pub file: (u64, u64),
    /// Path, or a name such as `[stack]`; empty for anonymous memory.
    pub name: String,
}

/// The mappings of a process.
pub fn maps(tgid: i32) -> io::Result<Vec<Map>> {
    let text = maps::text(std::fs::read(format!("/proc/{tgid}/maps"))?);
    Ok(text.lines().filter_map(parse_map).collect())
}

fn parse_map(line: &str) -> Option<Map> {
    let found = MapsLine::parse(line)?;
    Some(Map {
        start: found.start,
        end: found.end,
        writable: found.is_writable(),
        executable: found.is_executable(),
        offset: found.offset,
        file: (found.device, found.inode),
        name: found.name.trim_end_matches(" (deleted)").to_owned(),
    })
}

/// A writable section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name (`.data`).
    pub name: String,
    /// Address of its first byte.
    pub base: u64,
    /// Size in bytes.
    pub size: u64,
}

/// An ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Base name of its path, and the name the file gives itself (`DT_SONAME`) if that differs.
    pub names: Vec<String>,
    /// Page of its lowest segment.
    lowest: u64,
    /// Writable sections except thread-local ones, at the addresses in the file.
    pub sections: Vec<Section>,
}

/// An ELF file that a process has mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The file.
    pub image: Rc<Image>,
    /// Load bias: what to add to the file's addresses.
    pub bias: u64,
}

fn read_image<'a>(path: &str, bytes: impl ReadRef<'a>) -> read::Result<Image> {
    let header = FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, bytes)?;
    let lowest = segments
        .iter()
        .filter(|segment| segment.p_type(endian) == elf::PT_LOAD)
        .map(|segment| segment.p_vaddr(endian))
        .min()
        .unwrap_or(0);
    let mut names = vec![base_name(path).to_owned()];
    let table = header.sections(endian, bytes)?;
    let mut sections = Vec::new();
    for section in table.iter() {
        let flags = section.sh_flags(endian);
        let writable = u64::from(elf::SHF_WRITE | elf::SHF_ALLOC);
        if flags & writable == writable && flags & u64::from(elf::SHF_TLS) == 0 {
            sections.push(Section {
                name: String::from_utf8_lossy(table.section_name(endian, section)?).into_owned(),
                base: section.sh_addr(endian),
                size: section.sh_size(endian),
            });
        }
        if let Some((entries, link)) = section.dynamic(endian, bytes)? {
            let strings = table.strings(endian, bytes, link)?;
            for entry in entries {
                if entry.d_tag(endian) == u64::from(elf::DT_SONAME) {
                    let name = u32::try_from(entry.d_val(endian)).ok();
                    let name = name.and_then(|at| strings.get(at).ok());
                    names.extend(name.map(|name| String::from_utf8_lossy(name).into_owned()));
                }
            }
        }
    }
    names.dedup();
    Ok(Image {
        names,
        lowest: lowest - lowest % 4096,
        sections,
    })
}

/// A `syscall` instruction that makes one of the intercepted calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its offset in the searched text.
    pub at: usize,
    /// The number of the call.
    pub number: u32,
    /// Bytes of the instructions between the `mov $number, %eax` and it.
    pub between: usize,
}

/// Finds the `syscall` instructions in `text` that make one of the calls `numbers`. Such an instruction
/// follows `mov $number, %eax` within 16 bytes, as compilers emit it.
pub fn call_sites(text: &[u8], numbers: &[u32]) -> Vec<Site> {
    const MOV: usize = 5;
    let mut sites = Vec::new();
    for at in memchr::memmem::find_iter(text, &SYSCALL) {
        let before = &text[at.saturating_sub(MOV + 16)..at];
        let mov = before.windows(MOV).enumerate().rev().find_map(|(i, mov)| {
            let number = u32::from_le_bytes([mov[1], mov[2], mov[3], mov[4]]);
            (mov[0] == 0xb8 && numbers.contains(&number)).then_some((i, number))
        });
        if let Some((i, number)) = mov
            && memchr::memmem::find(&before[i + MOV..], &SYSCALL).is_none()
        {
            let between = before.len() - (i + MOV);
            sites.push(Site {
                at,
                number,
                between,
            });
        }
    }
    sites
}

/// Bytes of a file searched at once: reading a whole C library costs more in page faults than in searching.
const WINDOW: usize = 128 << 10;
/// Longest distance from the start of a `mov` to the end of its `syscall`.
const OVERLAP: usize = 5 + 16 + 2;

/// The [sites](call_sites) in an executable mapping of process `tgid`, as offsets in the file.
fn search(tgid: i32, map: &Map, numbers: &[u32]) -> io::Result<Vec<Site>> {
    // Opened in the root of the process, which may differ from ours.
    let file = File::open(format!("/proc/{tgid}/root{}", map.name))?;
    let end = file
        .metadata()?
        .len()
        .min(map.offset + (map.end - map.start));
    let mut window = vec![0; WINDOW];
    let mut sites: Vec<Site> = Vec::new();
    let mut from = map.offset;
    while from < end {
        let bytes = WINDOW.min((end - from) as usize);
        let text = &mut window[..bytes];
        file.read_exact_at(text, from)?;
        for site in call_sites(text, numbers) {
            let at = site.at + from as usize;
            if sites.iter().rev().take(OVERLAP).all(|known| known.at != at) {
                sites.push(Site { at, ..site });
            }
        }
        if from + bytes as u64 == end {
            break;
        }
        from += (bytes - OVERLAP) as u64;
    }
    Ok(sites)
}

/// Caches what was found in files, because most processes of a program map the same ones.
#[derive(Debug, Default)]
pub struct Files {
    sites: HashMap<(u64, u64), Rc<[Site]>>,
    images: HashMap<(u64, u64), Option<Rc<Image>>>,
}

impl Files {
    /// The [sites](call_sites) of `numbers` (the same in every call) in the file of an executable mapping of
    /// process `tgid`, as offsets in the file.
    pub fn sites(&mut self, tgid: i32, map: &Map, numbers: &[u32]) -> Rc<[Site]> {
        if let Some(known) = self.sites.get(&map.file) {
            return known.clone();
        }
        let found = search(tgid, map, numbers).unwrap_or_default();
        let found: Rc<[Site]> = found.into();
        self.sites.insert(map.file, found.clone());
        found
    }

    /// The ELF files of a process, ordered by path.
    pub fn images(&mut self, tgid: i32, maps: &[Map]) -> Vec<Loaded> {
        let mut spans: BTreeMap<&str, ((u64, u64), u64, bool)> = BTreeMap::new();
        for map in maps.iter().filter(|map| map.name.starts_with('/')) {
            let found = (map.file, map.start, false);
            let (.., executable) = spans.entry(&map.name).or_insert(found);
            *executable |= map.executable;
        }
        let executable = spans
            .into_iter()
            .filter(|(_, (.., executable))| *executable);
        executable
            .filter_map(|(path, (file, start, _))| {
                let image = self.images.entry(file).or_insert_with(|| {
                    // Only the headers are read.
                    let file = File::open(format!("/proc/{tgid}/root{path}")).ok()?;
                    read_image(path, &ReadCache::new(file)).ok().map(Rc::new)
                });
                let image = image.clone()?;
                let bias = start.wrapping_sub(image.lowest);
                Some(Loaded { image, bias })
            })
            .collect()
    }
}

/// Whether a file makes a program's system calls: the C library, the dynamic linker, or, if there is neither,
/// the program itself.
pub fn makes_calls(path: &str) -> bool {
    let name = base_name(path);
    ["libc.", "libc-", "ld-", "libpthread"]
        .iter()
        .any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_lines_are_read_with_spaces_in_names() {
        let map = parse_map("7f00-7f10 r-xp 00001000 08:01 42                 /a b/c (deleted)");
        let map = map.unwrap();
        assert_eq!((map.start, map.end, map.offset), (0x7f00, 0x7f10, 0x1000));
        assert!(map.executable && map.name == "/a b/c");
        assert_eq!(parse_map("nonsense"), None);
        let anonymous = parse_map("10-20 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!(anonymous.name, "");
    }

    #[test]
    fn sections_of_this_very_process_are_where_its_statics_are() {
        static MARK: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(7);
        let address = &raw const MARK as u64;
        let pid = std::process::id() as i32;
        let images = Files::default().images(pid, &maps(pid).unwrap());
        let home = images.iter().find(|loaded| {
            loaded.image.sections.iter().any(|s| {
                let base = s.base.wrapping_add(loaded.bias);
                (base..base + s.size).contains(&address) && s.name == ".data"
            })
        });
        let exe = std::env::current_exe().unwrap();
        let name = exe.file_name().unwrap().to_str().unwrap();
        assert_eq!(home.unwrap().image.names[0], name);
        let libc = images
            .iter()
            .find(|i| i.image.names.iter().any(|n| n == "libc.so.6"));
        assert!(libc.is_some_and(|libc| !libc.image.sections.is_empty()));
    }

    #[test]
    fn finds_the_calls_of_the_real_c_library() {
        let pid = std::process::id() as i32;
        let maps = maps(pid).unwrap();
        let libc = maps
            .iter()
            .find(|m| m.executable && m.name.contains("libc.so.6"))
            .unwrap();
        let file = std::fs::read(&libc.name).unwrap();
        for number in [
            libc::SYS_mmap,
            libc::SYS_brk,
            libc::SYS_mremap,
            numaloc_sys::affinity::GET_CALL,
        ] {
            let sites = Files::default().sites(pid, libc, &[number as u32]);
            assert!(!sites.is_empty(), "no site for call {number}");
            assert!(sites.iter().all(|s| file[s.at..s.at + 2] == SYSCALL));
        }
    }

    #[test]
    fn a_site_belongs_to_the_call_before_it() {
        // mov $12,%eax; syscall | mov $9,%eax; nop; syscall; syscall
        let text = [
            0xb8, 12, 0, 0, 0, 0x0f, 0x05, 0xb8, 9, 0, 0, 0, 0x90, 0x0f, 0x05, 0x0f, 0x05,
        ];
        let site = |at, number, between| Site {
            at,
            number,
            between,
        };
        let found = call_sites(&text, &[12, 9]);
        assert_eq!(found, [site(5, 12, 0), site(13, 9, 1)]);
        assert_eq!(call_sites(&text, &[9]), [site(13, 9, 1)]);
    }
}
