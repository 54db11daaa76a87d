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

fn recorded(folder: &Path, frontend: &str) -> Profile {
    let source = folder.join("forks.c");
    let program = folder.join("forks");
    std::fs::write(&source, PROGRAM).unwrap();
    let mut compiler = match frontend {
        "instrument" => numaloc(&["cc", "--", "gcc"]),
        _ => Command::new("gcc"),
    };
    ok(compiler
        .args(["-O1", "-g", "-fno-tree-vectorize", "-o"])
        .args([&program, &source]));
    let profile = folder.join("p.numaloc");
    let mut recorder = numaloc(&["record", "--quiet", "--force", "--frontend", frontend, "-o"]);
    ok(recorder.arg(&profile).arg("--").arg(&program));
    numaloc_formats::profile::read(&profile).unwrap()
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
