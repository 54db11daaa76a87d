//! What the program reads in `/proc/self/maps`: its own memory, with the protection that it asked for.
//!
//! The engine's memory is left out, and the program's code, which the processor cannot execute, is shown executable.

use std::fmt::Write as _;
use std::ops::Range;

use rangemap::RangeSet;

use super::error;
use crate::cache::ENGINE;
use crate::regions::Regions;
use crate::sys;

/// Opens the list as it is now, for `open` with these flags.
pub fn open(flags: u64) -> i64 {
    let text = match std::fs::read_to_string("/proc/self/maps") {
        Ok(text) => text,
        Err(failed) => return error(failed.raw_os_error().unwrap_or(libc::EIO)),
    };
    let shown = {
        let engine = ENGINE.lock();
        shown(&text, &engine.source.mapped, &engine.source.regions)
    };
    let closes = match flags & libc::O_CLOEXEC as u64 {
        0 => 0,
        _ => u64::from(libc::MFD_CLOEXEC),
    };
    let name = c"maps".as_ptr() as u64;
    let call = |number: i64, a: [u64; 3]| {
        let [first, second, third] = a;
        // SAFETY: a file of our own; name and text live.
        unsafe { sys::call(number, [first, second, third, 0, 0, 0]) }
    };
    let file = call(libc::SYS_memfd_create, [name, closes, 0]);
    if file < 0 {
        return file;
    }
    let mut rest = shown.as_bytes();
    while !rest.is_empty() {
        let (at, len) = (rest.as_ptr() as u64, rest.len() as u64);
        let written = call(libc::SYS_write, [file as u64, at, len]);
        if written <= 0 {
            call(libc::SYS_close, [file as u64, 0, 0]);
            return written.min(error(libc::EIO));
        }
        rest = &rest[written as usize..];
    }
    call(libc::SYS_lseek, [file as u64, 0, libc::SEEK_SET as u64]);
    file
}

/// The lowest address to which the mapping at an address may grow: the end of the one below.
pub fn room_below(at: u64) -> Option<u64> {
    below(&std::fs::read_to_string("/proc/self/maps").ok()?, at)
}

/// The program's memory.
pub fn of_the_program() -> Vec<Range<u64>> {
    let text = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let engine = ENGINE.lock();
    let mappings = text.lines().filter_map(Mapping::parse);
    mappings
        .flat_map(|mapping| mapping.parts(&engine.source.mapped))
        .collect()
}

/// The end of the mapping that begins at an address.
pub fn end_of(start: u64) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/maps").ok()?;
    let mut ranges = text.lines().filter_map(Mapping::parse).map(|one| one.range);
    ranges
        .find(|range| range.start == start)
        .map(|range| range.end)
}

fn below(text: &str, at: u64) -> Option<u64> {
    let ranges: Vec<Range<u64>> = text
        .lines()
        .filter_map(Mapping::parse)
        .map(|one| one.range)
        .collect();
    let mut here = ranges.iter().position(|range| range.contains(&at))?;
    // Parts of one mapping may have different protection.
    while here > 0 && ranges[here - 1].end == ranges[here].start {
        here -= 1;
    }
    Some(here.checked_sub(1).map_or(0, |before| ranges[before].end))
}

/// Bytes that the engine has mapped: all, and those that count as data, private and writable.
pub fn own_memory() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/self/maps").ok()?;
    let engine = ENGINE.lock();
    Some(own(&text, &engine.source.mapped))
}

fn own(text: &str, mapped: &RangeSet<u64>) -> (u64, u64) {
    let (mut all, mut data) = (0, 0);
    let mappings = text.lines().filter_map(Mapping::parse);
    for mapping in mappings.filter(|mapping| !mapping.is_the_programs()) {
        let Range { start, end } = mapping.range;
        let theirs: u64 = mapped
            .overlapping(&mapping.range)
            .map(|part| part.end.min(end) - part.start.max(start))
            .sum();
        let own = end - start - theirs;
        all += own;
        if mapping.protection[1..].starts_with('w') && mapping.protection.ends_with('p') {
            data += own;
        }
    }
    (all, data)
}

/// The lines of `text`, as the kernel shows mappings, that are the program's: within `mapped`, and executable where
/// `regions` say so.
fn shown(text: &str, mapped: &RangeSet<u64>, regions: &Regions) -> String {
    let mut shown = String::with_capacity(text.len());
    for line in text.lines() {
        let Some(mapping) = Mapping::parse(line) else {
            continue;
        };
        for part in mapping.parts(mapped) {
            for (piece, region) in regions.pieces(part) {
                let mut protection = mapping.protection.to_owned();
                if let Some(region) = region {
                    // Pages from which code was translated cannot be written at present.
                    let write = if region.writable { "w" } else { "-" };
                    protection.replace_range(1..3, &format!("{write}x"));
                }
                mapping.show(&piece, &protection, &mut shown);
            }
        }
    }
    shown
}

/// A line of the list.
struct Mapping<'a> {
    range: Range<u64>,
    protection: &'a str,
    offset: u64,
    device: &'a str,
    inode: &'a str,
    path: &'a str,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        Some(Self {
            range: number(start)?..number(end)?,
            protection: fields.next().filter(|field| field.len() == 4)?,
            offset: number(fields.next()?)?,
            device: fields.next()?,
            inode: fields.next()?,
            path: fields.next()?.trim_start(),
        })
    }

    /// Whether it is the program's although it was not mapped by a call that the engine follows.
    fn is_the_programs(&self) -> bool {
        const KERNELS: [&str; 3] = ["[heap]", "[stack]", "[vsyscall]"];
        KERNELS.contains(&self.path)
            || ["[vdso", "[vvar", "/SYSV"]
                .iter()
                .any(|name| self.path.starts_with(name))
    }

    /// The parts that are the program's.
    fn parts(&self, mapped: &RangeSet<u64>) -> Vec<Range<u64>> {
        let whole = &self.range;
        if self.is_the_programs() {
            return vec![whole.clone()];
        }
        let parts = mapped.overlapping(whole);
        let parts = parts.map(|part| part.start.max(whole.start)..part.end.min(whole.end));
        parts.collect()
    }

    /// Appends the line for a piece of it.
    fn show(&self, piece: &Range<u64>, protection: &str, to: &mut String) {
        let Range { start, end } = *piece;
        let offset = match self.inode {
            "0" => self.offset,
            _ => self.offset + (start - self.range.start),
        };
        let (device, inode) = (self.device, self.inode);
        let head = format!("{start:08x}-{end:08x} {protection} {offset:08x} {device} {inode} ");
        // Columns are the kernel's.
        let written = match self.path {
            "" => writeln!(to, "{head}"),
            path => writeln!(to, "{head:<73}{path}"),
        };
        debug_assert!(written.is_ok(), "a string takes all");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_may_grow_down_to_the_mapping_below() {
        let text = "\
1000-4000 r--p 00001000 fe:00 247026                             /usr/bin/cat
8000-9000 rw-p 00000000 00:00 0 
9000-a000 r--p 00000000 00:00 0 
a000-b000 rw-p 00000000 00:00 0                          [stack]
";
        for at in [0x8000, 0x9fff, 0xafff] {
            assert_eq!(below(text, at), Some(0x4000), "{at:x}");
        }
        assert_eq!((below(text, 0x1000), below(text, 0x7fff)), (Some(0), None));
    }

    #[test]
    fn the_programs_memory_is_shown_as_it_asked_for_it() {
        let text = "\
10000000-10004000 r--p 00001000 fe:00 247026                             /usr/bin/cat
10010000-10020000 rw-p 00000000 00:00 0 
70000000-8070000000 rw-p 00000000 00:00 0 
8070000000-8070001000 r--p 00000000 fe:00 7                              /lib/numaloc native
7f0000000000-7f0000021000 rw-p 00000000 00:00 0                          [stack]
";
        let mut mapped = RangeSet::new();
        mapped.insert(0x1000_0000..0x1000_4000);
        mapped.insert(0x1001_8000..0x1001_a000);
        let mut regions = Regions::new();
        regions.insert(0x1000_1000, 0x1000_3000, false);
        regions.insert(0x1001_9000, 0x1001_a000, true);
        let expected = "\
10000000-10001000 r--p 00001000 fe:00 247026                             /usr/bin/cat
10001000-10003000 r-xp 00002000 fe:00 247026                             /usr/bin/cat
10003000-10004000 r--p 00004000 fe:00 247026                             /usr/bin/cat
10018000-10019000 rw-p 00000000 00:00 0 
10019000-1001a000 rwxp 00000000 00:00 0 
7f0000000000-7f0000021000 rw-p 00000000 00:00 0                          [stack]
";
        assert_eq!(shown(text, &mapped, &regions), expected);
        assert_eq!(shown("no mapping\n", &mapped, &regions), "");
        // The rest: all of it, and what is private and writable.
        let own_data = (512 << 30) + 0xe000;
        assert_eq!(own(text, &mapped), (own_data + 0x1000, own_data));
    }
}
