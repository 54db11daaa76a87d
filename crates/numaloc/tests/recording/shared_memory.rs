//! Memory shared by processes, for every way of sharing it: communication between them counts as between threads, and
//! its pages are one object.
//!
//! Needs qemu-x86_64, gcc and the plugin (`cargo build --workspace` first).

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::support::{numaloc, ok};
use numaloc_formats::access_trace::AccessTrace;
use numaloc_model::profile::{Amount, ObjectKind};
use numaloc_model::trace::Action;
use numaloc_model::{Layer, Profile};

/// Two processes, 16 pages both can map (1,024 lines) behind which lies what the argument says. The parent writes a
/// word of each line, the child reads them twice and writes 100 lines, which the parent reads, five times over; pipes
/// keep the order. The child maps the memory again, at another address, if it can.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>
enum { SIZE = 1 << 16, LINES = 1024 };
static volatile long *map(int file) { return mmap(0, SIZE, 3, MAP_SHARED, file, 0); }
int main(int argc, char **argv)
{
    const char *how = argv[1];
    volatile long *memory = 0;
    int file = -1, segment = -1;
    /* What start-up code has unmapped stays free: pages count for what is mapped there last. */
    for (int i = 0; i < 16; i++) mmap(0, SIZE, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!strcmp(how, "anonymous"))
        memory = mmap(0, SIZE, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    else if (!strcmp(how, "memfd"))
        file = memfd_create("buffer", 0);
    else if (!strcmp(how, "posix")) {
        file = shm_open(argv[2], O_RDWR | O_CREAT | O_EXCL, 0600);
    } else if (!strcmp(how, "file"))
        file = open(argv[2], O_RDWR | O_CREAT, 0600);
    else
        memory = shmat(segment = shmget(IPC_PRIVATE, SIZE, IPC_CREAT | 0600), 0, 0);
    if (file >= 0) {
        if (ftruncate(file, SIZE)) return 3;
        memory = map(file);
    }
    if (!memory || (long)memory == -1) return 4;
    int down[2], up[2], sum = 0;
    char token = 0;
    if (pipe(down) || pipe(up)) return 5;
    pid_t child = fork();
    if (child == 0) {
        if (file >= 0) {
            void *before = (void *)memory;
            mmap(0, 3 << 12, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (!strcmp(how, "posix")) file = shm_open(argv[2], O_RDWR, 0);
            memory = map(file);
            munmap(before, SIZE);
        } else if (segment >= 0)
            memory = shmat(segment, 0, 0);
        if ((long)memory == -1) return 6;
        for (int round = 0; round < 5; round++) {
            if (read(down[0], &token, 1) != 1) return 7;
            for (int twice = 0; twice < 2; twice++)
                for (int i = 0; i < LINES; i++) sum += memory[i * 8];
            for (int i = 0; i < 100; i++) memory[i * 8] = sum;
            if (write(up[1], &token, 1) != 1) return 8;
        }
        return 0;
    }
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < LINES; i++) memory[i * 8] = round;
        if (write(down[1], &token, 1) != 1 || read(up[0], &token, 1) != 1) return 9;
        for (int i = 0; i < 100; i++) sum += memory[i * 8];
    }
    int status = 1;
    waitpid(child, &status, 0);
    if (segment >= 0) shmctl(segment, IPC_RMID, 0);
    if (!strcmp(how, "posix")) shm_unlink(argv[2]);
    return status != 0;
}
"#;

fn compile(dir: &Path, instrumented: bool) -> String {
    let (source, program) = (dir.join("two.c"), dir.join(format!("two-{instrumented}")));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut command = if instrumented {
        numaloc(&["cc", "--", "gcc"])
    } else {
        Command::new("gcc")
    };
    let arguments = ["-O1", "-fno-tree-vectorize", "-o"];
    ok(command
        .args(arguments)
        .arg(&program)
        .arg(&source)
        .arg("-lrt"));
    program.to_str().unwrap().to_owned()
}

fn recorded(dir: &Path, program: &str, how: &str) -> Profile {
    let folder = dir.join("p.numaloc");
    let name = if how == "posix" {
        format!("/numaloc-test-{}", std::process::id())
    } else {
        dir.join("buffer").to_str().unwrap().to_owned()
    };
    let mut recorder = numaloc(&["record", "--quiet", "--force"]);
    // Caches that are smaller than the buffer, so that the trace has all of its lines.
    recorder.args(["--trace", "--trace-l1", "4K/4", "--trace-l2", "16K/4", "-o"]);
    ok(recorder.arg(&folder).args(["--", program, how, &name]));
    let profile = numaloc_formats::profile::read(&folder).unwrap();
    check_traces(&folder, &profile, how);
    profile
}

/// Both processes' traces have the buffer's lines by the pages that the profile has once.
fn check_traces(folder: &Path, profile: &Profile, how: &str) {
    let objects = profile.objects();
    let pages = profile.pages().pages().iter().filter(|page| {
        let object = page.object.map(|object| &objects[object.index()]);
        object.is_some_and(|object| object.kind == ObjectKind::Shared && object.size == 1 << 16)
    });
    let pages: BTreeSet<u64> = pages.map(|page| page.number.0).collect();
    assert_eq!(pages.len(), 16, "{how}");
    for image in 0..2 {
        let path = folder.join(format!("accesses/{image}.trace"));
        let trace = AccessTrace::open(&path, image).unwrap();
        assert!(trace.complete, "{how}, {image}");
        let lines: BTreeSet<u64> = trace
            .events(0)
            .filter_map(|event| match event.unwrap().action {
                Action::Read(line) | Action::Write(line) | Action::Own(line) => Some(line),
                _ => None,
            })
            .filter(|line| pages.contains(&(line / 64)))
            .collect();
        assert_eq!(lines.len(), 1024, "{how}, {image}");
    }
}

fn check(profile: &Profile, how: &str) {
    assert!(
        profile.meta().complete && profile.meta().notes.is_empty(),
        "{how}: {:?}",
        profile.meta().notes
    );
    let paths: Vec<_> = profile
        .threads()
        .iter()
        .map(|thread| thread.path.as_str())
        .collect();
    assert_eq!(paths, ["0", "0/1"], "{how}");
    let matrix = profile.matrix(Layer::WriteRead, Amount::Events).unwrap();
    // Of 1,024 lines, each of five rounds' writes is read once; 100 lines come back.
    let found = [matrix.get(0, 1), matrix.get(1, 0)];
    assert_eq!(found, [5.0 * 1024.0, 5.0 * 100.0], "{how}");
    let apart = profile.matrix(Layer::FalseSharing, Amount::Events).unwrap();
    assert_eq!(apart.to_dense().iter().sum::<f64>(), 0.0, "{how}");

    let buffers: Vec<_> = profile
        .objects()
        .iter()
        .enumerate()
        .filter(|(_, object)| object.kind == ObjectKind::Shared && object.size == 1 << 16)
        .collect();
    assert_eq!(buffers.len(), 1, "{how}: {buffers:?}");
    let (index, buffer) = buffers[0];
    assert_eq!(buffer.thread.map(|thread| thread.index()), Some(0), "{how}");
    let pages = profile.pages().pages().iter();
    let pages: Vec<_> = pages
        .filter(|page| page.object.is_some_and(|object| object.index() == index))
        .collect();
    let numbers: Vec<u64> = pages.iter().map(|page| page.object_page).collect();
    assert_eq!(numbers, (0..16).collect::<Vec<_>>(), "{how}");
    for page in pages {
        // 64 lines a page; the first 100 lines come back.
        let back = 100u64.saturating_sub(page.object_page * 64).min(64);
        let accesses = profile.pages().accesses(page).iter();
        let accesses: Vec<_> = accesses
            .map(|a| (a.thread.index(), a.reads, a.writes))
            .collect();
        let expected = [(0, 5 * back, 5 * 64), (1, 5 * 128, 5 * back)];
        assert_eq!(accesses, expected, "{how}, page {}", page.object_page);
        assert_eq!(page.first_touch.map(|thread| thread.index()), Some(0));
    }
}

#[test]
fn processes_communicate_through_any_memory_they_share() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), false);
    for how in ["anonymous", "memfd", "posix", "file", "segment"] {
        check(&recorded(dir.path(), &program, how), how);
    }
}

#[test]
fn instrumented_processes_do_so_too() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), true);
    for how in ["anonymous", "memfd", "segment"] {
        check(&recorded(dir.path(), &program, how), how);
    }
}
