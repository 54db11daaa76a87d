//! Random blocks of instructions leave the same registers, flags and memory in the code cache as natively, whether or
//! not their accesses are recorded, all or in bursts, and whether or not they are part of paths. With paths, the same
//! accesses to the same pages are recorded as without.
//!
//! Each block is run three times from random states, so that its branches are linked in the end, and paths are left
//! where they do not go on. The blocks use all
//! extensions of [`instructions`] that this processor has. `NUMALOC_BLOCKS` sets the number of random blocks,
//! `NUMALOC_SEED` where they begin; a failure names the block and shows its code.

mod generator;
mod instructions;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use generator::Generator;
use numaloc_journal::Record;

const NATIVE: &str = env!("CARGO_BIN_EXE_numaloc-native");
/// Blocks of a program.
const BATCH: u64 = 2000;

fn number(variable: &str, default: u64) -> u64 {
    let value = std::env::var(variable).ok();
    value.map_or(default, |value| value.parse().expect("a number"))
}

/// The processor's extensions, as `/proc/cpuinfo` names them.
fn extensions() -> BTreeSet<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").expect("cpuinfo");
    let flags = text.lines().find(|line| line.starts_with("flags"));
    let flags = flags
        .and_then(|line| line.split_once(':'))
        .expect("flags")
        .1;
    flags.split_whitespace().map(str::to_owned).collect()
}

fn assembled(folder: &Path, code: &str) -> PathBuf {
    let (source, program) = (folder.join("blocks.s"), folder.join("blocks"));
    std::fs::write(&source, code).expect("written");
    let harness = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torture/harness.c");
    // Static and at fixed addresses, so that registers with addresses are the same in every run.
    let status = Command::new("cc")
        .args(["-O1", "-static", "-no-pie", "-z", "noexecstack", "-o"])
        .args([&program, &harness, &source])
        .status()
        .expect("a compiler");
    assert!(status.success(), "the blocks compile");
    program
}

fn output(mut command: Command) -> String {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// The first line that differs: the block's number, both lines.
fn difference<'a>(native: &'a str, translated: &'a str) -> Option<(usize, &'a str, &'a str)> {
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

/// Accesses by page. Those to the stack and the heap, whose places differ from run to run, are counted together.
type Pages = BTreeMap<u64, u64>;

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
    let file = with_name(folder, "status").next().expect("a status");
    let status = std::fs::read(file).expect("read");
    u64::from_le_bytes(status[..8].try_into().expect("a number"))
}

/// Runs blocks natively and translated.
fn compare(generator: &Generator, blocks: &[String]) {
    let folder = tempfile::tempdir().expect("a folder");
    let program = assembled(folder.path(), &generator.program(blocks));
    let native = output(Command::new(&program));
    assert_eq!(native.lines().count(), 3 * blocks.len());
    let settings = format!("folder={}", folder.path().display());
    let sampled = format!("{settings},time_share_ppm=50000");
    let mut pages: Option<Pages> = None;
    let mut counts: Option<u64> = None;
    let all: [&[&str]; 6] = [
        &[],
        &["--all-paths"],
        &["--record", &sampled],
        &["--all-paths", "--record", &sampled],
        &["--record", &settings],
        &["--all-paths", "--record", &settings],
    ];
    for options in all {
        clear(folder.path());
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "300", NATIVE]);
        let translated = output({
            command.args(options).arg(&program);
            command
        });
        if let Some((block, native, translated)) = difference(&native, &translated) {
            let code = blocks.get(block).map_or("", String::as_str);
            panic!(
                "block {block}, {options:?}\nnatively:   {native}\ntranslated: {translated}\n{code}"
            );
        }
        if options.contains(&"--record") {
            let count = counted(folder.path());
            let before = counts.replace(count);
            assert_eq!(before.unwrap_or(count), count, "accesses, {options:?}");
        }
        if options.contains(&settings.as_str()) {
            let recorded = recorded(folder.path());
            assert!(recorded.values().sum::<u64>() > 100 * blocks.len() as u64);
            if let Some(before) = pages.replace(recorded) {
                assert_eq!(pages, Some(before), "pages, and accesses to them");
            }
        }
    }
}

#[test]
fn random_blocks_leave_the_same_registers_flags_and_memory() {
    let all = number("NUMALOC_BLOCKS", BATCH);
    let mut generator = Generator::new(number("NUMALOC_SEED", 1), &extensions());
    let mut made = 0;
    while made < all {
        let first = made;
        let blocks: Vec<String> = (0..BATCH.min(all - made))
            .map(|n| generator.block((first + n) % BATCH))
            .collect();
        compare(&generator, &blocks);
        made += blocks.len() as u64;
    }
}

#[test]
fn each_instruction_of_the_processor_leaves_the_same_registers_flags_and_memory() {
    let mut generator = Generator::new(1, &extensions());
    let blocks = generator.one_block_each();
    assert!(blocks.len() > 150, "{} instructions", blocks.len());
    compare(&generator, &blocks);
}

#[test]
fn a_difference_names_its_block() {
    assert_eq!(difference("0 a\n1 b\n", "0 a\n1 b\n"), None);
    assert_eq!(
        difference("0 a\n7 b\n", "0 a\n7 c\n"),
        Some((7, "7 b", "7 c"))
    );
    assert_eq!(difference("0 a\n7 b\n", "0 a\n"), Some((7, "7 b", "")));
}
