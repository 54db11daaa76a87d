//! Runs blocks natively and translated in all ways, and says what differs.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use numaloc_journal::Record;

use crate::generator::Generator;

const NATIVE: &str = env!("CARGO_BIN_EXE_numaloc-native");
const HARNESS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/torture/harness.c");

/// Seconds that a busy machine may take for any program.
pub const LIMIT: &str = "600";

/// What differed.
pub enum Failure {
    /// The blocks cannot be run natively: a part of a block is no block.
    NoProgram(String),
    /// The translated program failed.
    Status(String),
    /// The state that the block with this number left, if it is one of the blocks.
    State(Option<usize>, String),
    /// Numbers of accesses, or of those to pages.
    Counts(String),
}

/// Accesses by page. Those to the stack and the heap, whose places differ from run to run, are counted together.
type Pages = BTreeMap<u64, u64>;

/// Makes a program of assembly and other `parts`: C files, options of the compiler.
pub fn assembled(folder: &Path, code: &str, parts: &[&str]) -> Result<PathBuf, Failure> {
    let (source, program) = (folder.join("blocks.s"), folder.join("blocks"));
    std::fs::write(&source, code).expect("written");
    // Static and at fixed addresses, so that registers with addresses are the same in every run.
    let output = Command::new("cc")
        .args(["-O1", "-static", "-no-pie", "-z", "noexecstack", "-o"])
        .args([&program, &source])
        .args(parts)
        .output()
        .expect("a compiler");
    match output.status.success() {
        true => Ok(program),
        false => Err(Failure::NoProgram(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )),
    }
}

/// The standard output of a command, which ends after some seconds at most.
fn output(seconds: &str, command: &[&str]) -> Result<String, String> {
    let output = Command::new("timeout")
        .args(["--signal=KILL", seconds])
        .args(command)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("it runs");
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).expect("text")),
        false => Err(format!("{command:?}: {}", output.status)),
    }
}

/// The first line that differs: the block's number, both lines.
pub fn difference<'a>(native: &'a str, translated: &'a str) -> Option<(usize, &'a str, &'a str)> {
    let (mut a, mut b) = (native.lines(), translated.lines());
    loop {
        let (left, right) = match (a.next(), b.next()) {
            (None, None) => return None,
            (left, right) => (left.unwrap_or(""), right.unwrap_or("")),
        };
        if left != right {
            let block = left.split(' ').next().and_then(|word| word.parse().ok());
            return Some((block.unwrap_or(usize::MAX), left, right));
        }
    }
}

/// Removes what a recording has left in a folder.
fn clear(folder: &Path) {
    for file in with_name(folder, "journal").chain(with_name(folder, "status")) {
        std::fs::remove_file(file).expect("removed");
    }
}

/// Files in a folder whose names end so.
fn with_name(folder: &Path, end: &'static str) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let all = entries.map(|entry| entry.expect("an entry").path());
    all.filter(move |file| file.extension().is_some_and(|name| name == end))
}

/// What was recorded in a folder.
fn recorded(folder: &Path) -> Pages {
    const ELSEWHERE: u64 = (2 << 30) >> 12;
    let mut pages = Pages::new();
    for file in with_name(folder, "journal") {
        let journal = std::fs::read(file).expect("a journal");
        numaloc_journal::replay(&journal, |record| {
            if let Record::Pages { cells, .. } = record {
                for (page, reads, writes) in cells {
                    *pages.entry(page.min(ELSEWHERE)).or_default() += reads + writes;
                }
            }
        });
    }
    pages
}

/// The number of accesses of a recording, those that were only counted included.
fn counted(folder: &Path) -> u64 {
    let mut threads = HashMap::new();
    for file in with_name(folder, "journal") {
        let journal = std::fs::read(file).expect("a journal");
        numaloc_journal::replay(&journal, |record| {
            if let Record::ThreadTotals {
                thread, accesses, ..
            } = record
            {
                threads.insert(thread, accesses);
            }
        });
    }
    threads.into_values().sum()
}

/// The number of accesses of a program in a recording with these settings in addition to the folder.
pub fn accesses(program: &Path, arguments: &[&str], folder: &Path, settings: &str) -> u64 {
    clear(folder);
    let settings = format!("folder={}{settings}", folder.display());
    let program = program.to_str().expect("a name");
    let command = [&[NATIVE, "--record", &settings, program], arguments].concat();
    output(LIMIT, &command).expect("it ends");
    counted(folder)
}

/// Runs each block some times, natively and translated; each run ends after some seconds at most.
pub fn run(
    generator: &Generator,
    blocks: &[String],
    times: u64,
    seconds: &str,
) -> Result<(), Failure> {
    let folder = tempfile::tempdir().expect("a folder");
    let program = assembled(folder.path(), &generator.program(blocks), &[HARNESS])?;
    let program = program.to_str().expect("a name");
    let times = times.to_string();
    let native = output(seconds, &[program, &times]).map_err(Failure::NoProgram)?;
    assert_eq!(native.lines().count() % blocks.len(), 0);
    let all_recorded = format!("folder={}", folder.path().display());
    let sampled = format!("{all_recorded},time_share_ppm=50000");
    let (mut counts, mut pages) = (Vec::new(), Vec::new());
    let ways: [&[&str]; 6] = [
        &[],
        &["--all-paths"],
        &["--record", &sampled],
        &["--all-paths", "--record", &sampled],
        &["--record", &all_recorded],
        &["--all-paths", "--record", &all_recorded],
    ];
    for options in ways {
        clear(folder.path());
        let command = [&[NATIVE], options, &[program, &times]].concat();
        let translated = output(seconds, &command).map_err(Failure::Status)?;
        if let Some((block, native, translated)) = difference(&native, &translated) {
            let text = format!("{options:?}\nnatively:   {native}\ntranslated: {translated}");
            return Err(Failure::State(
                Some(block).filter(|&at| at < blocks.len()),
                text,
            ));
        }
        if options.contains(&"--record") {
            counts.push((options, counted(folder.path())));
        }
        if options.contains(&all_recorded.as_str()) {
            pages.push(recorded(folder.path()));
        }
    }
    if counts.iter().any(|count| count.1 != counts[0].1) {
        let mut text = String::from("numbers of accesses differ:\n");
        for (options, count) in counts {
            let _ = writeln!(text, "{count:12} {}", options.join(" "));
        }
        return Err(Failure::Counts(text));
    }
    let sum: u64 = pages[0].values().sum();
    assert!(sum > 100 * blocks.len() as u64, "{sum} accesses recorded");
    if pages[0] != pages[1] {
        let both = pages[0].keys().chain(pages[1].keys());
        let count = |n: usize, page| pages[n].get(page).copied().unwrap_or(0);
        let other: std::collections::BTreeSet<&u64> = both
            .filter(|page| count(0, page) != count(1, page))
            .collect();
        let mut text = String::from("accesses to pages differ, without and with paths:\n");
        for page in other {
            let _ = writeln!(text, "{page:#12x} {} {}", count(0, page), count(1, page));
        }
        return Err(Failure::Counts(text));
    }
    Ok(())
}
