//! The mappings of a process, the nodes of their pages, and how much of them was used.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use numaloc_identity::object::{ANONYMOUS, HEAP, STACK, SYSTEM_V, base_name};
use numaloc_model::maps::{self, MapsLine};
use numaloc_model::profile::{ObjectKind, Resident, Segment};
use numaloc_perf::areas::Area;

/// What ends the path of a removed file.
const DELETED: &str = " (deleted)";

fn text(pid: i32, file: &str) -> io::Result<String> {
    fs::read(format!("/proc/{pid}/{file}")).map(maps::text)
}

/// The mappings of a process that hold memory of its own or of files, by address.
///
/// # Errors
/// The kernel's: the process has ended, or belongs to another user.
pub fn areas(pid: i32) -> io::Result<Vec<Area>> {
    let text = text(pid, "maps")?;
    let lines = text.lines().filter_map(MapsLine::parse);
    Ok(lines.filter_map(|line| area(&line)).collect())
}

/// The area of a mapping; `None` for memory of the kernel and reserved addresses.
fn area(line: &MapsLine<'_>) -> Option<Area> {
    let is_kernels = matches!(
        line.name,
        "[vdso]" | "[vvar]" | "[vvar_vclock]" | "[vsyscall]"
    );
    if is_kernels || line.rights.starts_with("---") {
        return None;
    }
    let file = line.name.trim_end_matches(DELETED);
    let (kind, name) = match file {
        HEAP => (ObjectKind::Heap, HEAP),
        STACK => (ObjectKind::Stack, STACK),
        _ if line.is_shared() => (ObjectKind::Shared, shared_name(file)),
        "" => (ObjectKind::Mapping, ANONYMOUS),
        _ if file.starts_with('[') => (ObjectKind::Mapping, file),
        _ => (ObjectKind::Mapping, base_name(file)),
    };
    // Objects of the kernel such as rings of io_uring have one inode in common.
    let is_one = line.is_shared() && !file.starts_with("anon_inode:");
    Some(Area {
        range: line.start..line.end,
        offset: line.offset,
        kind,
        name: name.to_owned(),
        backing: is_one.then_some((line.device, line.inode)),
    })
}

fn shared_name(file: &str) -> &str {
    match file {
        "" | "/dev/zero" => ANONYMOUS,
        _ if file.starts_with("/SYSV") => SYSTEM_V,
        _ => base_name(file),
    }
}

/// A mapping and how much of it is there and was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Address of its first byte.
    pub start: u64,
    /// Address after its last byte.
    pub end: u64,
    /// Bytes that are in memory.
    pub resident: u64,
    /// Bytes of them that were used since the kernel's marks were cleared.
    pub referenced: u64,
}

/// What a process has used of each of its mappings.
///
/// # Errors
/// The kernel's.
pub fn used(pid: i32) -> io::Result<Vec<Used>> {
    Ok(used_in(&text(pid, "smaps")?))
}

fn used_in(text: &str) -> Vec<Used> {
    let mut found: Vec<Used> = Vec::new();
    for line in text.lines() {
        if let Some(map) = MapsLine::parse(line) {
            found.push(Used {
                start: map.start,
                end: map.end,
                resident: 0,
                referenced: 0,
            });
            continue;
        }
        let Some((last, (name, value))) = found.last_mut().zip(line.split_once(':')) else {
            continue;
        };
        let kib = || value.trim().trim_end_matches(" kB").parse::<u64>();
        match name {
            "Rss" => last.resident = kib().unwrap_or(0).saturating_mul(1024),
            "Referenced" => last.referenced = kib().unwrap_or(0).saturating_mul(1024),
            _ => {}
        }
    }
    found
}

/// The nodes of a mapping's pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnNodes {
    /// Address of its first byte.
    pub start: u64,
    /// Whether some of its pages are the process's own, not a file's.
    pub is_anonymous: bool,
    /// Bytes by node.
    pub resident: Resident,
}

/// The nodes of the memory of a process.
///
/// # Errors
/// The kernel's; `NotFound` too if it was built without NUMA.
pub fn on_nodes(pid: i32) -> io::Result<Vec<OnNodes>> {
    Ok(text(pid, "numa_maps")?
        .lines()
        .filter_map(nodes_of)
        .collect())
}

/// A line such as `7f10000 default anon=3 dirty=3 N0=2 N1=1 kernelpagesize_kB=4`.
fn nodes_of(line: &str) -> Option<OnNodes> {
    let mut fields = line.split(' ');
    let start = u64::from_str_radix(fields.next()?, 16).ok()?;
    let (mut pages, mut page_kib, mut is_anonymous) = (Vec::new(), 4, false);
    for (name, value) in fields.filter_map(|field| field.split_once('=')) {
        match name {
            "kernelpagesize_kB" => page_kib = value.parse::<u64>().ok()?,
            "anon" => is_anonymous = true,
            _ => {
                let node = name
                    .strip_prefix('N')
                    .and_then(|node| node.parse::<u32>().ok());
                if let (Some(node), Ok(count)) = (node, value.parse::<u64>()) {
                    pages.push((node, count));
                }
            }
        }
    }
    let resident = pages.into_iter();
    Some(OnNodes {
        start,
        is_anonymous,
        resident: resident
            .map(|(node, count)| (node, count.saturating_mul(page_kib * 1024)))
            .collect(),
    })
}

/// Adds bytes by node.
pub fn add(to: &mut BTreeMap<u32, u64>, resident: &Resident) {
    for &(node, bytes) in resident {
        let sum = to.entry(node).or_default();
        *sum = sum.saturating_add(bytes);
    }
}

/// A piece's name, what backs it if it is shared, and whether processes have it in common.
type Piece = (String, Option<(u64, u64)>, bool);
/// Bytes by node.
type ByNode = BTreeMap<u32, u64>;

/// Where the memory of a service is: memory that processes share counts once.
#[derive(Debug, Default)]
pub struct Located {
    /// Processes and bytes by node.
    pieces: BTreeMap<Piece, (u32, ByNode)>,
}

impl Located {
    /// Adds a process.
    pub fn add(&mut self, areas: &[Area], nodes: &[OnNodes]) {
        let mut of_process: BTreeMap<Piece, ByNode> = BTreeMap::new();
        for area in areas {
            let at = nodes.partition_point(|nodes| nodes.start < area.range.start);
            let Some(found) = nodes
                .get(at)
                .filter(|nodes| nodes.start == area.range.start)
            else {
                continue;
            };
            // Pages of a file that nobody has written to are the page cache's: every process has the same.
            let is_cached = !found.is_anonymous && !area.name.starts_with('[');
            let key = (
                area.name.clone(),
                area.backing,
                area.backing.is_some() || is_cached,
            );
            add(of_process.entry(key).or_default(), &found.resident);
        }
        for (key, resident) in of_process {
            let is_common = key.2;
            let (processes, sum) = self.pieces.entry(key).or_default();
            *processes += 1;
            for (node, bytes) in resident {
                let of = sum.entry(node).or_default();
                *of = match is_common {
                    true => bytes.max(*of),
                    false => of.saturating_add(bytes),
                };
            }
        }
    }

    /// Bytes by node of everything.
    #[must_use]
    pub fn resident(&self) -> Resident {
        let mut all = BTreeMap::new();
        for (_, resident) in self.pieces.values() {
            add(&mut all, &resident.clone().into_iter().collect());
        }
        all.into_iter().collect()
    }

    /// The largest pieces, the largest first, at most `most`.
    #[must_use]
    pub fn segments(&self, most: usize) -> Vec<Segment> {
        let pieces = self.pieces.iter();
        let mut found: Vec<Segment> = pieces
            .map(|((name, _, is_shared), (processes, resident))| Segment {
                name: name.clone(),
                is_shared: *is_shared,
                processes: *processes,
                resident: resident.clone().into_iter().collect(),
            })
            .filter(|segment| segment.bytes() > 0)
            .collect();
        found.sort_by_key(|segment| std::cmp::Reverse(segment.bytes()));
        found.truncate(most);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<Area> {
        area(&MapsLine::parse(line)?)
    }

    #[test]
    fn mappings_have_the_names_of_objects() {
        let names = [
            ("1000-2000 rw-p 0 00:00 0 [heap]", "[heap]"),
            ("1000-2000 rw-p 0 00:00 0", "[anon]"),
            ("1000-2000 rw-p 0 00:00 0 [anon:GC]", "[anon:GC]"),
            ("1000-2000 rw-s 0 00:01 9 /dev/zero (deleted)", "[anon]"),
            ("1000-2000 rw-s 0 00:01 9 /SYSV0052e2c1 (deleted)", "[shm]"),
            ("1000-2000 r--p 0 08:01 9 /lib/libc.so.6", "libc.so.6"),
        ];
        for (line, name) in names {
            assert_eq!(of(line).unwrap().name, name);
        }
        assert_eq!(of("1000-2000 r-xp 0 00:00 0 [vdso]"), None);
        assert_eq!(of("1000-2000 ---p 0 00:00 0"), None);
        let shared = of("1000-2000 rw-s 3000 00:01 9 /dev/zero (deleted)").unwrap();
        assert_eq!((shared.backing, shared.offset), (Some((1, 9)), 0x3000));
        let ring = of("1000-2000 rw-s 0 00:0f 9 anon_inode:[io_uring]").unwrap();
        assert_eq!(ring.backing, None);
    }

    #[test]
    fn use_and_nodes_are_read_by_mapping() {
        let smaps = "1000-5000 rw-p 00000000 00:00 0\nRss: 12 kB\nReferenced:   8 kB\nVmFlags: rd\n\
                     9000-a000 rw-p 00000000 00:00 0 [heap]\nRss: 4 kB\nReferenced: 0 kB\n";
        let found = used_in(smaps);
        assert_eq!(
            (found[0].resident, found[0].referenced),
            (12 << 10, 8 << 10)
        );
        assert_eq!((found[1].start, found[1].referenced), (0x9000, 0));
        let line = "7f00 default file=/a anon=2 N0=2 N1=1 kernelpagesize_kB=2048";
        let found = nodes_of(line).unwrap();
        assert_eq!(found.resident, [(0, 4 << 20), (1, 2 << 20)]);
        assert!(found.is_anonymous && nodes_of("x").is_none());
    }

    #[test]
    fn shared_memory_counts_once_and_private_memory_for_each_process() {
        let areas = [
            of("1000-2000 rw-s 0 00:01 9 /dev/shm/pool").unwrap(),
            of("3000-4000 rw-p 0 00:00 0 [heap]").unwrap(),
        ];
        let nodes = |shared, own| {
            [(0x1000, shared), (0x3000, own)].map(|(start, bytes)| OnNodes {
                start,
                is_anonymous: start == 0x3000,
                resident: vec![(1, bytes)],
            })
        };
        let mut located = Located::default();
        located.add(&areas, &nodes(500, 10));
        located.add(&areas, &nodes(700, 20));
        assert_eq!(located.resident(), [(1, 730)]);
        let segments = located.segments(8);
        assert_eq!(
            (segments[0].name.as_str(), segments[0].processes),
            ("pool", 2)
        );
        assert_eq!((segments[0].bytes(), segments[1].bytes()), (700, 30));
        assert_eq!(located.segments(1).len(), 1);
    }

    #[test]
    fn this_process_has_memory() {
        let pid = std::process::id() as i32;
        assert!(
            areas(pid)
                .unwrap()
                .iter()
                .any(|area| area.kind == ObjectKind::Stack)
        );
        assert!(used(pid).unwrap().iter().any(|used| used.resident > 0));
        assert!(areas(0).is_err());
    }
}
