//! Names of code that a program generates while it runs, from the files that it writes for profilers.
//!
//! | file | written by |
//! |---|---|
//! | `/tmp/perf-PID.map`, a line `START SIZE NAME` for each function, in hexadecimal digits | `node --perf-basic-prof`, `java -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit`, `python -X perf` |
//! | `jit-PID.dump`, which the program maps executable while it writes it (jitdump) | `node --perf-prof` |
//!
//! The program is not asked to write them. A file is only used if its owner is the recording's, if it is a regular file
//! and not a link, and if it was written after the recording began, so that one of an earlier process with this number
//! is not. What is damaged is left out.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use numaloc_identity::object::base_name;
use numaloc_journal::Record;
use numaloc_model::{SiteKind, SiteRow};

use crate::load::Space;
use crate::sites::{Code, Frame};

/// Largest file that is read, in bytes.
const MOST_BYTES: u64 = 256 << 20;
/// Longest name that is kept, in bytes.
const MOST_NAME: usize = 256;
/// Share of accesses by code without a name from which on there is a note, if there are this many samples.
const UNNAMED: f64 = 0.1;
const FEWEST_SAMPLES: u64 = 100;
/// First word of a jitdump file in this byte order: `JiTD`.
const MAGIC: u32 = 0x4a69_5444;
/// Record of a jitdump file: code was generated.
const LOAD: u32 = 0;
/// Record of a jitdump file: code was moved.
const MOVE: u32 = 1;

/// The generated functions of a process: start, end and name. Where code used an address after other code, the later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Generated(BTreeMap<u64, (u64, String)>);

impl Generated {
    /// What a process has written.
    pub(crate) fn of(space: &Space) -> Self {
        let mut found = Self::default();
        let Some(own) = &space.file else {
            return found;
        };
        let map = format!("/tmp/perf-{}.map", space.pid);
        if let Some(bytes) = read(Path::new(&map), own) {
            found.add_map(&bytes);
        }
        let dumps = space.records.iter().filter_map(|record| match record {
            Record::Map { file, .. } if is_dump(base_name(file)) => Some(file),
            _ => None,
        });
        for file in dumps {
            if let Some(bytes) = read(Path::new(file), own) {
                found.add_dump(&bytes);
            }
        }
        found
    }

    /// The function at an address.
    pub(crate) fn name(&self, address: u64) -> Option<&str> {
        let (_, (end, name)) = self.0.range(..=address).next_back()?;
        (address < *end).then_some(name)
    }

    fn add(&mut self, start: u64, size: u64, name: &[u8]) {
        let name = String::from_utf8_lossy(&name[..name.len().min(MOST_NAME)]);
        let (name, end) = (name.trim(), start.saturating_add(size));
        if name.is_empty() || size == 0 {
            return;
        }
        // What was there before is gone as a whole.
        let before = self.0.range(..end).rev();
        let before = before.take_while(|(_, (other, _))| *other > start);
        let before: Vec<u64> = before.map(|(&at, _)| at).collect();
        for at in before {
            self.0.remove(&at);
        }
        self.0.insert(start, (end, name.to_owned()));
    }

    fn add_map(&mut self, bytes: &[u8]) {
        for line in bytes.split(|&byte| byte == b'\n') {
            let mut words = line.splitn(3, |&byte| byte == b' ');
            let mut number = || hexadecimal(words.next()?);
            let (Some(start), Some(size)) = (number(), number()) else {
                continue;
            };
            if let Some(name) = words.next() {
                self.add(start, size, name);
            }
        }
    }

    fn add_dump(&mut self, bytes: &[u8]) {
        // Magic number, version, size of the header, then further words.
        let (Some(MAGIC), Some(header)) = (word(bytes, 0), word(bytes, 8)) else {
            return;
        };
        let mut at = header as usize;
        while let (Some(kind), Some(size)) = (word(bytes, at), word(bytes, at + 4)) {
            let Some(record) = bytes.get(at..at + size as usize).filter(|r| r.len() >= 16) else {
                return;
            };
            at += record.len();
            // After the record's head: process, thread, address, then as below.
            match (kind, long(record, 32), long(record, 40), record.get(56..)) {
                (LOAD, Some(start), Some(size), Some(rest)) => {
                    let name = rest.split(|&byte| byte == 0).next().unwrap_or_default();
                    self.add(start, size, name);
                }
                (MOVE, Some(from), Some(to), Some(_)) => {
                    if let (Some((_, name)), Some(size)) = (self.0.remove(&from), long(record, 48))
                    {
                        self.add(to, size, name.as_bytes());
                    }
                }
                _ => {}
            }
        }
    }
}

/// Code of a process, with names of what it, or one that it was forked from, has generated.
pub(crate) struct WithGenerated<'a, C> {
    /// Names from its files.
    pub(crate) code: C,
    /// What it has generated, then what its ancestors have.
    pub(crate) generated: Vec<&'a Generated>,
}

impl<C: Code> Code for WithGenerated<'_, C> {
    fn frames(&self, address: u64) -> Vec<Frame> {
        let found = self.code.frames(address);
        if !found.is_empty() {
            return found;
        }
        // What is looked up is a return address, after the instruction that it belongs to.
        let mut names = self.generated.iter();
        let name = names.find_map(|generated| generated.name(address.wrapping_sub(1)));
        let frame = name.map(|name| Frame {
            function: name.to_owned(),
            source: None,
            of_system: false,
        });
        frame.into_iter().collect()
    }
}

/// What a process of the recording, and those that it was forked from, have generated.
pub(crate) fn inherited<'a>(
    spaces: &[Space],
    all: &'a [Generated],
    at: usize,
) -> Vec<&'a Generated> {
    let parent = |at: &usize| spaces[*at].inherits.map(|(parent, _)| parent);
    let line = std::iter::successors(Some(at), parent);
    line.map(|at| &all[at]).collect()
}

/// What to do where a tenth or more of the sampled accesses are those of code without a name.
pub(crate) fn note(sites: &[SiteRow]) -> Option<String> {
    let accesses = sites
        .iter()
        .filter(|site| site.kind != SiteKind::Communication);
    let (mut unnamed, mut all, mut samples) = (0u64, 0u64, 0u64);
    for site in accesses {
        all = all.saturating_add(site.amount);
        samples = samples.saturating_add(site.samples);
        if site.here.function.is_none() {
            unnamed = unnamed.saturating_add(site.amount);
        }
    }
    let share = unnamed as f64 / all.max(1) as f64;
    (share >= UNNAMED && samples >= FEWEST_SAMPLES).then(|| {
        format!(
            "{:.0} % of the sampled accesses are those of code without a name, which the program generated: it has names if it \
             is recorded with java -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit, node --perf-basic-prof, \
             python -X perf, or what else writes /tmp/perf-PID.map",
            share * 100.0
        )
    })
}

fn is_dump(name: &str) -> bool {
    name.starts_with("jit-") && name.ends_with(".dump")
}

/// The content of a file that the process of the journal with these properties may have written.
fn read(path: &Path, journal: &Metadata) -> Option<Vec<u8>> {
    let found = std::fs::symlink_metadata(path).ok()?;
    let is_later = found.modified().ok()? >= journal.created().or(journal.modified()).ok()?;
    if !found.is_file() || found.uid() != journal.uid() || !is_later {
        return None;
    }
    let file = File::open(path).ok()?;
    // Between the two calls, the name may have become that of another file.
    let opened = file.metadata().ok()?;
    if (opened.dev(), opened.ino()) != (found.dev(), found.ino()) {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn hexadecimal(word: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?;
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let found = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(found.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let found = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(found.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_model::{CodePlace, ThreadIdx};

    fn of_map(text: &str) -> Generated {
        let mut found = Generated::default();
        found.add_map(text.as_bytes());
        found
    }

    #[test]
    fn a_map_names_code_and_later_lines_replace_earlier_ones() {
        let found = of_map(
            "7f00 20 void W.run(int)\n0x8000 0x10 Interpreter\nnonsense\n9000 zz f\n\n7f10 8 JS:*f /a.js:1:2\n",
        );
        let names = [0x7eff, 0x7f00, 0x7f10, 0x7f17, 0x7f18, 0x800f, 0x8010];
        let names = names.map(|address| found.name(address));
        let (script, interpreter) = (Some("JS:*f /a.js:1:2"), Some("Interpreter"));
        // The function that was there before is gone as a whole.
        assert_eq!(names, [None, None, script, script, None, interpreter, None]);
        assert_eq!(of_map("ffffffffffffffff ff end\n").name(u64::MAX - 1), None);
        let long = of_map(&format!("10 10 {}", "x".repeat(1000)));
        assert_eq!(long.name(0x10).map(str::len), Some(MOST_NAME));
    }

    /// A jitdump file with these records: kind and body.
    fn dump(records: &[(u32, Vec<u8>)]) -> Vec<u8> {
        let mut out = [MAGIC, 1, 40, 62, 0, 7, 0, 0, 0, 0]
            .map(u32::to_le_bytes)
            .concat();
        for (kind, body) in records {
            out.extend(kind.to_le_bytes());
            out.extend((16 + body.len() as u32).to_le_bytes());
            out.extend([0; 8]);
            out.extend(body);
        }
        out
    }

    fn longs(values: &[u64]) -> Vec<u8> {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes());
        bytes.collect()
    }

    #[test]
    fn a_dump_names_code_wherever_it_is_cut() {
        // Process and thread, address, start, size, number; then the name and the code.
        let load = [longs(&[7, 0x5000, 0x5000, 4, 1]), b"work\0code".to_vec()].concat();
        let moved = longs(&[7, 0x6000, 0x5000, 0x6000, 4, 1]);
        let whole = dump(&[(LOAD, load.clone()), (3, vec![]), (MOVE, moved)]);
        let named = |bytes: &[u8]| {
            let mut found = Generated::default();
            found.add_dump(bytes);
            [0x5000, 0x6003].map(|at| found.name(at).map(str::to_owned))
        };
        assert_eq!(named(&whole), [None, Some("work".to_owned())]);
        assert_eq!(
            named(&dump(&[(LOAD, load)])),
            [Some("work".to_owned()), None]
        );
        for end in 0..whole.len() {
            named(&whole[..end]);
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            named(&damaged);
        }
    }

    #[test]
    fn a_note_says_how_generated_code_gets_names() {
        let site = |function: Option<&str>, amount| SiteRow {
            variable: None,
            kind: SiteKind::Load,
            thread: ThreadIdx(0),
            other: None,
            object: None,
            here: CodePlace {
                function: function.map(str::to_owned),
                source: None,
            },
            there: CodePlace::default(),
            samples: 60,
            amount,
        };
        let noted = note(&[site(Some("f"), 89), site(None, 11)]).unwrap();
        assert!(noted.starts_with("11 % of the sampled accesses"), "{noted}");
        for few in [
            &[site(Some("f"), 91), site(None, 9)][..],
            &[site(None, 9)],
            &[],
        ] {
            assert_eq!(note(few), None);
        }
    }

    #[test]
    fn only_files_of_the_same_owner_that_were_written_later_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("old.map"), "10 10 old\n").unwrap();
        let before = File::options().write(true).open(at("old.map")).unwrap();
        before.set_modified(std::time::UNIX_EPOCH).unwrap();
        std::fs::write(at("a.journal"), "").unwrap();
        let journal = std::fs::metadata(at("a.journal")).unwrap();
        std::fs::write(at("new.map"), "10 10 new\n").unwrap();
        std::os::unix::fs::symlink(at("new.map"), at("link.map")).unwrap();
        assert!(read(&at("new.map"), &journal).is_some());
        for name in ["old.map", "link.map", "missing.map", "."] {
            assert_eq!(read(&at(name), &journal), None, "{name}");
        }
    }
}
