//! What a process has loaded: its mappings, the ELF files among them, their writable sections, and the
//! instructions with which they make the system calls we care about.

use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader};
use object::read::{ReadCache, ReadRef};
use object::{Endianness, read};
use std::collections::BTreeMap;
use std::io;

use crate::tracee::SYSCALL;

/// A line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Whether it is executable.
    pub executable: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Path, or a name such as `[stack]`; empty for anonymous memory.
    pub name: String,
}

/// The mappings of a process.
pub fn maps(tgid: i32) -> io::Result<Vec<Map>> {
    let text = std::fs::read_to_string(format!("/proc/{tgid}/maps"))?;
    Ok(text.lines().filter_map(parse_map).collect())
}

fn parse_map(line: &str) -> Option<Map> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let offset = fields.next()?;
    let name = fields.nth(2).unwrap_or("").trim_start();
    let hex = |digits| u64::from_str_radix(digits, 16).ok();
    Some(Map {
        start: hex(start)?,
        end: hex(end)?,
        executable: permissions.as_bytes().get(2) == Some(&b'x'),
        offset: hex(offset)?,
        name: name.trim_end_matches(" (deleted)").to_owned(),
    })
}

/// A writable section in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name (`.data`).
    pub name: String,
    /// Address of its first byte.
    pub base: u64,
    /// Bytes.
    pub size: u64,
}

/// An ELF file that a process has mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Path.
    pub path: String,
    /// Base name of the path, and the name the file gives itself (`DT_SONAME`) if that differs.
    pub names: Vec<String>,
    /// First and last address of its mappings.
    pub span: (u64, u64),
    /// Writable sections, thread-local ones excluded.
    pub sections: Vec<Section>,
}

/// The ELF files of a process by path.
pub fn images(tgid: i32, maps: &[Map]) -> Vec<Image> {
    let mut spans: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for map in maps.iter().filter(|map| map.name.starts_with('/')) {
        let span = spans.entry(&map.name).or_insert((map.start, map.end));
        span.1 = map.end;
    }
    spans
        .into_iter()
        .filter(|(path, _)| maps.iter().any(|m| m.name == *path && m.executable))
        .filter_map(|(path, span)| {
            // As the process sees its files (it may have another root). Only headers are read.
            let file = std::fs::File::open(format!("/proc/{tgid}/root{path}")).ok()?;
            read_image(path, &ReadCache::new(file), span).ok()
        })
        .collect()
}

fn read_image<'a>(path: &str, bytes: impl ReadRef<'a>, span: (u64, u64)) -> read::Result<Image> {
    let header = FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, bytes)?;
    let lowest = segments
        .iter()
        .filter(|segment| segment.p_type(endian) == elf::PT_LOAD)
        .map(|segment| segment.p_vaddr(endian))
        .min()
        .unwrap_or(0);
    let bias = span.0.wrapping_sub(lowest - lowest % 4096);
    let mut names = vec![base_name(path).to_owned()];
    let table = header.sections(endian, bytes)?;
    let mut sections = Vec::new();
    for section in table.iter() {
        let flags = section.sh_flags(endian);
        let writable = elf::SHF_WRITE | elf::SHF_ALLOC;
        if flags & writable == writable && flags & elf::SHF_TLS != elf::SHF_TLS {
            sections.push(Section {
                name: String::from_utf8_lossy(table.section_name(endian, section)?).into_owned(),
                base: bias.wrapping_add(section.sh_addr(endian)),
                size: section.sh_size(endian),
            });
        }
        if let Some((entries, link)) = section.dynamic(endian, bytes)? {
            let strings = table.strings(endian, bytes, link)?;
            for entry in entries {
                if entry.tag(endian) == elf::DT_SONAME {
                    let name = entry.string(endian, strings)?;
                    names.push(String::from_utf8_lossy(name).into_owned());
                }
            }
        }
    }
    names.dedup();
    Ok(Image {
        path: path.to_owned(),
        names,
        span,
        sections,
    })
}

/// The last component of a path.
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The `syscall` instructions in `text` that make one of the calls `numbers`: offset and call. Such an
/// instruction stands at most 16 bytes behind `mov $number, %eax` (as compilers emit it).
pub fn call_sites(text: &[u8], numbers: &[u32]) -> Vec<(usize, u32)> {
    let mut sites = Vec::new();
    for (at, window) in text.windows(5).enumerate() {
        // The numbers are small: the upper bytes tell nearly all other code apart.
        if window[0] != 0xb8 || window[3] != 0 || window[4] != 0 {
            continue;
        }
        let number = u32::from_le_bytes([window[1], window[2], window[3], window[4]]);
        if !numbers.contains(&number) {
            continue;
        }
        let rest = &text[at + 5..text.len().min(at + 5 + 16)];
        if let Some(offset) = rest.windows(2).position(|pair| pair == SYSCALL) {
            sites.push((at + 5 + offset, number));
        }
    }
    sites
}

/// Whether a file is one of those that make a program's system calls: the C library and the dynamic
/// linker, or (there being none) the program itself.
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
        let images = images(pid, &maps(pid).unwrap());
        let home = images.iter().find(|i| {
            i.sections
                .iter()
                .any(|s| (s.base..s.base + s.size).contains(&address) && s.name == ".data")
        });
        let exe = std::env::current_exe().unwrap();
        assert_eq!(home.unwrap().path, exe.to_str().unwrap());
        let libc = images
            .iter()
            .find(|i| i.names.iter().any(|n| n == "libc.so.6"));
        assert!(libc.is_some_and(|libc| !libc.sections.is_empty()));
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
        let from = libc.offset as usize;
        let text = &file[from..from + (libc.end - libc.start) as usize];
        for number in [
            libc::SYS_mmap,
            libc::SYS_brk,
            libc::SYS_mremap,
            libc::SYS_sched_getaffinity,
        ] {
            let sites = call_sites(text, &[number as u32]);
            assert!(!sites.is_empty(), "no site for call {number}");
            assert!(sites.iter().all(|&(at, _)| text[at..at + 2] == SYSCALL));
        }
    }
}
