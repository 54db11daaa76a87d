//! Page counts against independent counts: arithmetic on hand-written loops, and valgrind's lackey.
//!
//! Needs qemu-x86_64, gcc, valgrind and the plugin (`cargo build --workspace` first).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::loops::{EXPECTED, EXPECTED_STACK, LOOPS};
use crate::support::{assert_similar, matrix, numaloc, ok, record, root, workload};

/// Reads and writes by page number.
type Counts = BTreeMap<u64, (u64, u64)>;

fn compile(dir: &Path, name: &str, text: &str, flags: &[&str]) -> PathBuf {
    let (source, program) = (dir.join(name), dir.join("program"));
    std::fs::write(&source, text).unwrap();
    ok(Command::new("gcc")
        .args(["-static", "-no-pie", "-g", "-o"])
        .args([&program, &source])
        .args(flags));
    program
}

/// What lackey sees of a program's data accesses, in numaloc's unit: an access of more than 8 bytes counts once for
/// each 8, and what a string instruction moves, of which lackey reports each iteration, once for each aligned word of
/// 8.
fn counted_by_lackey(program: &Path) -> Counts {
    let mut lackey = Command::new("valgrind")
        // Unoptimised: valgrind's optimiser drops loads whose value is not used.
        .args([
            "--tool=lackey",
            "--trace-mem=yes",
            "--log-fd=1",
            "--vex-iropt-level=0",
        ])
        .arg(program)
        .env("GLIBC_TUNABLES", TUNABLES)
        .stdout(Stdio::piped())
        .spawn()
        .expect("valgrind");
    let mut counts = Counts::new();
    let (mut instruction, mut repeats) = (Vec::new(), false);
    let mut words = [0; 2];
    for line in BufReader::new(lackey.stdout.take().unwrap()).split(b'\n') {
        let line = line.unwrap();
        // `I  04001000,3`: the instruction whose accesses follow. No instruction but a string one comes twice in a row.
        if line.starts_with(b"I ") {
            repeats = line == instruction;
            if !repeats {
                words = [0; 2];
            }
            instruction = line;
            continue;
        }
        // ` L 1ffeffe7e,8`: load, store or modify; instructions and the program's own output look otherwise.
        let [b' ', kind @ (b'L' | b'S' | b'M'), b' ', rest @ ..] = &line[..] else {
            continue;
        };
        let text = std::str::from_utf8(rest).unwrap();
        let (address, size) = text.split_once(',').unwrap();
        let address = u64::from_str_radix(address, 16).unwrap();
        let last = std::mem::replace(&mut words[usize::from(*kind == b'S')], address >> 3);
        if repeats && last == address >> 3 {
            continue;
        }
        for at in (0..size.parse().unwrap()).step_by(8) {
            let page = counts.entry((address + at) >> 12).or_default();
            page.0 += u64::from(*kind != b'S');
            page.1 += u64::from(*kind != b'L');
        }
    }
    assert!(lackey.wait().unwrap().success());
    counts
}

/// Both tools emulate their own processor; the program must choose the same code under both.
const TUNABLES: &str = "glibc.cpu.hwcaps=-AVX,-AVX2,-AVX_Fast_Unaligned_Load,-AVX512F,-ERMS,-FSRM,-BMI2,-MOVBE,-RTM,-XSAVEC,-XSAVE:glibc.cpu.x86_rep_movsb_threshold=1000000000";

/// The frontends that record unmodified programs access by access.
const FRONTENDS: [&str; 2] = ["qemu", "native"];

fn counted_by_numaloc(program: &Path, frontend: &str) -> Counts {
    let folder = program.with_extension("numaloc");
    ok(numaloc(&["record", "--quiet", "--force", "--frontend"])
        .args([frontend, "-o"])
        .arg(&folder)
        .arg("--")
        .arg(program)
        .env("GLIBC_TUNABLES", TUNABLES));
    let profile = numaloc_formats::profile::read(&folder).unwrap();
    let mut counts = Counts::new();
    for page in profile.pages().pages() {
        let sum = counts.entry(page.number.0).or_default();
        for access in profile.pages().accesses(page) {
            sum.0 += access.reads;
            sum.1 += access.writes;
        }
    }
    counts
}

/// The counts on the program's own sections, and the sum of those above them, where the stack is.
fn split(counts: &Counts, program: &Path) -> (Counts, (u64, u64)) {
    use object::{Object as _, ObjectSection as _};
    let bytes = std::fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let pages = |section: object::Section| {
        section.address() >> 12..((section.address() + section.size()) >> 12) + 1
    };
    let own: Vec<_> = file
        .sections()
        .filter(|section| section.address() != 0)
        .map(pages)
        .collect();
    let is_own = |page: &u64| own.iter().any(|range| range.contains(page));
    let inside = counts
        .iter()
        .filter(|(page, _)| is_own(page))
        .map(|(&page, &count)| (page, count))
        .collect();
    let outside = counts.iter().filter(|(page, _)| !is_own(page));
    let sum = outside.fold((0, 0), |sum, (_, count)| (sum.0 + count.0, sum.1 + count.1));
    (inside, sum)
}

#[test]
fn hand_written_loops_are_counted_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "loops.s", LOOPS, &["-nostdlib"]);
    // Valgrind makes a loop of `lock xadd` and `xchg`, a load and a compare-and-exchange, and loads twice.
    let (mut theirs, stack) = split(&counted_by_lackey(&program), &program);
    let pages: Vec<u64> = theirs.keys().copied().collect();
    for page in [pages[1], pages[3]] {
        theirs.get_mut(&page).unwrap().0 -= 10;
    }
    for frontend in FRONTENDS {
        let ours = split(&counted_by_numaloc(&program, frontend), &program);
        let pages: Vec<_> = ours.0.values().copied().collect();
        assert_eq!(pages, EXPECTED, "{frontend}");
        assert_eq!(ours.1, EXPECTED_STACK, "{frontend}");
        assert_eq!(ours, (theirs.clone(), stack), "{frontend}");
    }
}

/// Allocation, copying, formatting, sorting and floating point, as programs do.
const WHOLE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static double table[4096];
static int by_value(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}
int main(void)
{
    int *numbers = malloc(5000 * sizeof *numbers);
    for (int i = 0; i < 5000; i++) numbers[i] = i * 7919 % 5003;
    qsort(numbers, 5000, sizeof *numbers, by_value);
    for (int sweep = 0; sweep < 40; sweep++)
        for (int i = 0; i < 4096; i++) table[i] = table[i] / 2 + numbers[i] / 3.0;
    char *text = calloc(1, 20000), line[64];
    size_t end = 0;
    for (int i = 0; i < 300; i++) {
        int length = snprintf(line, sizeof line, "%d %x\n", numbers[i], i);
        memcpy(text + end, line, length);
        end += length;
    }
    char *copy = strdup(text);
    long lines = 0;
    for (char *at = copy; (at = strchr(at, '\n')); at++) lines++;
    memmove(table + 1, table, 4000 * sizeof *table);
    free(numbers), free(text), free(copy);
    return lines != 300;
}
"#;

#[test]
fn whole_programs_are_counted_to_a_percent() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "whole.c", WHOLE, &["-O2"]);
    let theirs = split(&counted_by_lackey(&program), &program);
    for frontend in FRONTENDS {
        let ours = split(&counted_by_numaloc(&program, frontend), &program);
        assert_agree(&ours, &theirs, frontend);
    }
}

/// Compares the counts of a program's sections by page, and the sums of all others.
fn assert_agree(ours: &(Counts, (u64, u64)), theirs: &(Counts, (u64, u64)), frontend: &str) {
    let ((ours, others), (theirs, their_others)) = (ours, theirs);
    let off = |a: u64, b: u64| a.abs_diff(b) as f64 / a.max(b).max(1) as f64;
    let sum = |c: &Counts| c.values().fold((0, 0), |s, c| (s.0 + c.0, s.1 + c.1));
    let (a, b) = (sum(ours), sum(theirs));
    let total = a.0 + a.1 + others.0 + others.1;
    for ((x, y), what) in [(a, b), (*others, *their_others)]
        .into_iter()
        .zip(["sections", "heap and stack"])
    {
        assert!(
            off(x.0, y.0) <= 0.01 && off(x.1, y.1) <= 0.01,
            "{frontend}, {what}: {x:?} and {y:?}"
        );
    }
    // Page by page where more than 1 % of the accesses are: start-up code differs a little, because valgrind and QEMU
    // show the program different processors.
    for (page, &(reads, writes)) in ours.iter().filter(|(_, c)| (c.0 + c.1) * 100 > total) {
        let other = theirs.get(page).copied().unwrap_or_default();
        assert!(
            off(reads + writes, other.0 + other.1) <= 0.01,
            "{frontend}, page {page:#x}: {reads}, {writes} and {other:?}"
        );
    }
}

#[test]
fn both_exact_frontends_agree_on_every_pattern() {
    let dir = tempfile::tempdir().unwrap();
    for (name, arguments) in [
        ("two_phase", ["512", "20"]),
        ("distant_pairs", ["512", "20"]),
        ("stencil2d", ["256", "10"]),
    ] {
        let program = dir.path().join(name);
        ok(numaloc(&["cc", "--", "gcc", "-O2", "-fopenmp"])
            .arg(root().join(format!("workloads/{name}.c")))
            .arg("-o")
            .arg(&program));
        let matrix_of = |program: &Path| {
            let folder = dir.path().join("p.numaloc");
            let _ = std::fs::remove_dir_all(&folder);
            record(
                &folder,
                8,
                &[program.to_str().unwrap(), arguments[0], arguments[1]],
            );
            matrix(&folder)
        };
        let (native, emulated) = (matrix_of(&program), matrix_of(&workload(name)));
        assert_similar(&native, &emulated, 0.99, 0.02, name);
    }
}

#[test]
fn matrices_that_differ_in_amount_or_pattern_are_not_similar() {
    let matrix = |cell: fn(usize, usize) -> f64| -> Vec<Vec<f64>> {
        let row = |i| (0..8).map(|j| cell(i, j)).collect();
        (0..8).map(row).collect()
    };
    let ring = matrix(|i, j| if (i + 1) % 8 == j { 1000.0 } else { 0.0 });
    assert_similar(&ring, &ring, 0.99, 0.02, "itself");
    let others = [
        // The errors of a frontend that counts everything twice, or misses one access in twenty.
        (
            matrix(|i, j| if (i + 1) % 8 == j { 2000.0 } else { 0.0 }),
            "16000 events",
        ),
        (
            matrix(|i, j| if (i + 1) % 8 == j { 950.0 } else { 0.0 }),
            "7600 events",
        ),
        (
            matrix(|i, j| if (i + 2) % 8 == j { 1000.0 } else { 0.0 }),
            "correlation",
        ),
        (matrix(|_, _| 0.0), "correlation"),
    ];
    for (other, why) in others {
        let refused =
            std::panic::catch_unwind(|| assert_similar(&ring, &other, 0.99, 0.02, "other"));
        let said = refused.expect_err(why);
        let said = said.downcast_ref::<String>().unwrap();
        assert!(said.contains(why), "{said}");
    }
}
