//! A forked process uses what its parent has made: its memory and its code have names.

use std::path::Path;
use std::process::Command;

use crate::support::{numaloc, ok};
use numaloc_model::{Profile, SiteKind};

/// The parent makes a block and a mapping before it forks; the child, and its child, work on them, on a static array
/// and on a block of their own.
const PROGRAM: &str = r#"
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
enum { WORDS = 1 << 15 };
static long grid[WORDS], parents[WORDS] __attribute__((aligned(4096)));
__attribute__((noinline)) static long work(long *p)
{
    long sum = 0;
    for (int round = 0; round < 5; round++)
        for (int i = 0; i < WORDS; i++) sum += p[i]++;
    return sum;
}
int main(void)
{
    long *block = malloc(WORDS * sizeof *block);
    long *mapped = mmap(0, WORDS * sizeof *mapped, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long sum = work(parents);
    for (int depth = 0; depth < 2; depth++) {
        int child = fork();
        if (child) {
            int status = 1;
            waitpid(child, &status, 0);
            _exit(status != 0);
        }
        sum += work(grid) + work(block) + work(mapped) + work(malloc(WORDS * sizeof *block));
    }
    _exit(sum == 0);
}
"#;

/// Two children, one after the other, write half of a shared mapping each; the parent waits for each, by another call,
/// and reads its half. Prints the mapping's address.
const CHILDREN: &str = r#"
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
enum { WORDS = 1 << 15 };
int main(void)
{
    long *shared = mmap(0, WORDS * sizeof *shared, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    long sum = 0;
    for (int half = 0; half < 2; half++) {
        int child = fork();
        if (!child) {
            for (int round = 0; round < 3; round++)
                for (int i = 0; i < WORDS / 2; i++) shared[half * WORDS / 2 + i] += i + round;
            _exit(0);
        }
        siginfo_t ended;
        if (half ? waitid(P_PID, child, &ended, WEXITED) : waitpid(child, 0, 0) != child) return 1;
        for (int i = 0; i < WORDS / 2; i++) sum += shared[half * WORDS / 2 + i];
    }
    printf("%ld %d\n", (long)shared, sum == 0);
}
"#;

fn recorded(folder: &Path, frontend: &str) -> Profile {
    recording_of(folder, frontend, PROGRAM).0
}

/// The profile of a program, and what it printed.
fn recording_of(folder: &Path, frontend: &str, code: &str) -> (Profile, String) {
    let source = folder.join("forks.c");
    let program = folder.join("forks");
    std::fs::write(&source, code).unwrap();
    let mut compiler = match frontend {
        "instrument" => numaloc(&["cc", "--", "gcc"]),
        _ => Command::new("gcc"),
    };
    ok(compiler
        .args(["-O1", "-g", "-fno-tree-vectorize", "-o"])
        .args([&program, &source]));
    let profile = folder.join("p.numaloc");
    let mut recorder = numaloc(&["record", "--quiet", "--force", "--frontend", frontend, "-o"]);
    let said = ok(recorder.arg(&profile).arg("--").arg(&program));
    (numaloc_formats::profile::read(&profile).unwrap(), said)
}

#[test]
fn who_waits_for_a_process_comes_after_what_it_did() {
    const PAGES: u64 = (8 << 15) / 4096;
    for frontend in ["native", "qemu"] {
        let folder = tempfile::tempdir().unwrap();
        let (profile, said) = recording_of(folder.path(), frontend, CHILDREN);
        let address: u64 = said.split_whitespace().next().unwrap().parse().unwrap();
        let path = |thread: numaloc_model::ThreadIdx| &*profile.threads()[thread.index()].path;
        let placed: Vec<(u64, Option<&str>)> = profile
            .pages()
            .pages()
            .iter()
            .map(|page| (page.number.0, page.first_touch.map(path)))
            .filter(|&(page, _)| (address / 4096..address / 4096 + PAGES).contains(&page))
            .collect();
        assert_eq!(placed.len() as u64, PAGES, "{frontend}");
        for (at, &(_, who)) in placed.iter().enumerate() {
            let child = if (at as u64) < PAGES / 2 {
                "0/1"
            } else {
                "0/2"
            };
            assert_eq!(who, Some(child), "{frontend}, page {at}");
        }
        // The parent's last reads are later than the children's work, each of which is as long as them.
        let end = |at: usize| profile.threads()[at].end;
        assert!(end(0) > end(1) && end(0) > end(2), "{frontend}");
    }
}

#[test]
fn memory_and_code_that_a_process_has_from_its_parent_have_names() {
    for frontend in ["native", "instrument"] {
        let folder = tempfile::tempdir().unwrap();
        let profile = recorded(folder.path(), frontend);
        let threads = profile.threads();
        let paths: Vec<&str> = threads.iter().map(|t| t.path.as_str()).collect();
        assert_eq!(paths, ["0", "0/1", "0/1/1"], "{frontend}");
        let usage = profile.pages();
        let nameless = usage.pages().iter().filter(|page| page.object.is_none());
        let nameless: u64 = nameless
            .flat_map(|page| usage.accesses(page))
            .map(|a| a.total())
            .sum();
        assert!(
            nameless * 100 < usage.total(),
            "{frontend}: {nameless} of {}",
            usage.total()
        );
        // Each process has an array of its own, and the block that the first thread has allocated.
        for (at, path) in paths.iter().enumerate().skip(1) {
            let objects = profile.objects().iter();
            let parts = |name: &str| {
                objects
                    .clone()
                    .filter(|object| {
                        object
                            .variables
                            .iter()
                            .any(|part| part.name.starts_with(name))
                    })
                    .map(|object| object.thread.map(|thread| thread.index()))
                    .collect::<Vec<_>>()
            };
            assert!(
                parts("grid").contains(&Some(at)),
                "{frontend}, {path}: {:?}",
                parts("grid")
            );
            assert!(
                !parts("malloc in main, thread 0").is_empty(),
                "{frontend}, {path}"
            );
            // Of what a process has from its parent, only what it uses is listed: it may have brothers by the thousand.
            assert_eq!(parts("parents"), [Some(0)], "{frontend}, {path}");
        }
        let sites = profile.sites().iter();
        let places =
            sites.filter(|row| row.kind != SiteKind::Communication && row.thread.index() > 0);
        let named = |function: Option<&String>| function.is_some_and(|name| name == "work");
        let (mut all, mut known) = (0, 0);
        for row in places {
            all += row.amount;
            known += if named(row.here.function.as_ref()) {
                row.amount
            } else {
                0
            };
        }
        assert!(
            all > 0 && known * 10 > all * 9,
            "{frontend}: {known} of {all}"
        );
    }
}
