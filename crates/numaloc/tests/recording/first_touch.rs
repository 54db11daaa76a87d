//! First touch of the memory of threads: stacks and thread-local variables. Natively `pthread_create` stores the new
//! thread's variables and descriptor at the end of its stack, and the thread itself everything below; both exact
//! frontends must record this.

use std::path::Path;

use crate::support::{compile, numaloc, ok};
use numaloc_model::Profile;
use numaloc_model::profile::ObjectKind;

/// Each of three threads uses an array on its stack, whose address it gives to no other, and 32 KiB of variables of its
/// own; so does the first thread.
const THREADS: &str = r#"
#include <pthread.h>
static __thread double own[4096];
static double sums[4];
static __attribute__((noinline)) double on_stack(double sum)
{
    volatile double local[2000];
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 2000; i++) local[i] = i + round;
        for (int i = 0; i < 2000; i++) sum += local[i];
    }
    return sum;
}
static void *work(void *number)
{
    double sum = on_stack(0);
    for (int round = 0; round < 5; round++)
        for (int i = 0; i < 4096; i++) own[i] += sum + i;
    sums[(long)number] = own[17] + sum;
    return 0;
}
int main(void)
{
    pthread_t threads[3];
    for (long t = 0; t < 3; t++) pthread_create(threads + t, 0, work, (void *)t);
    for (int t = 0; t < 3; t++) pthread_join(threads[t], 0);
    work((void *)3);
    return sums[0] != sums[3];
}
"#;

fn recorded(program: &Path, frontend: &str) -> Profile {
    let folder = program.with_extension("numaloc");
    ok(
        numaloc(&["record", "--quiet", "--frontend", frontend, "-o"])
            .arg(&folder)
            .arg("--")
            .arg(program)
            // Pages of the first stack that are only read: `execve` has stored to them.
            .env("ENVIRONMENT", "x".repeat(10_000)),
    );
    numaloc_formats::profile::read(&folder).unwrap()
}

/// Of each page of the stack of thread `path` with over 500 accesses, from the lowest on: its accesses by that thread,
/// and who touched it first.
fn stack(profile: &Profile, path: &str) -> Vec<(u64, String)> {
    let of = |thread: numaloc_model::ThreadIdx| profile.threads()[thread.index()].path.as_str();
    let pages = profile.pages().pages().iter().filter(|page| {
        page.object.is_some_and(|object| {
            let object = &profile.objects()[object.index()];
            object.kind == ObjectKind::Stack && object.thread.map(of) == Some(path)
        })
    });
    pages
        .map(|page| {
            let own = profile.pages().accesses(page).iter();
            let own = own.filter(|access| of(access.thread) == path);
            let sum: u64 = own.map(|access| access.total()).sum();
            (sum, page.first_touch.map_or("nobody", of).to_owned())
        })
        .filter(|page| page.0 > 500)
        .collect()
}

#[test]
fn stacks_are_touched_by_their_threads_and_variables_by_their_creator() {
    let dir = tempfile::tempdir().unwrap();
    let mut sums = Vec::new();
    for (frontend, name) in [("qemu", "plain"), ("instrument", "built")] {
        let program = compile(dir.path(), name, THREADS, frontend == "instrument");
        let profile = recorded(&program, frontend);
        for thread in ["0.1", "0.2", "0.3"] {
            let pages = stack(&profile, thread);
            let own: Vec<u64> = pages
                .iter()
                .filter(|page| page.1 == thread)
                .map(|page| page.0)
                .collect();
            let creators: u64 = pages.iter().filter(|page| page.1 == "0").map(|p| p.0).sum();
            // 40,000 accesses to an array of four pages, the uppermost of which may begin in the creator's last one; 5
            // times 4,096 loads and stores of the thread's variables, which are above.
            let on_stack: u64 = own.iter().sum();
            assert!(
                (30_000..41_000).contains(&on_stack),
                "{frontend}: {pages:?}"
            );
            assert!(
                (36_000..52_000).contains(&creators),
                "{frontend}: {pages:?}"
            );
            sums.push((on_stack + creators) as f64);
        }
        // What the first thread does to its stack and its variables is in objects, too.
        let nowhere = profile
            .pages()
            .pages()
            .iter()
            .filter(|p| p.object.is_none());
        let lost = nowhere.flat_map(|page| profile.pages().accesses(page));
        let lost: u64 = lost.map(|access| access.total()).sum();
        assert!(lost * 100 < profile.pages().total(), "{frontend}: {lost}");
        let first: u64 = stack(&profile, "0").iter().map(|page| page.0).sum();
        // Its array may begin or end on a page with few of the 40,000.
        assert!(first >= 38_000, "{frontend}: {first}");
    }
    for (watched, built) in sums.iter().zip(&sums[3..]) {
        assert!((watched / built - 1.0).abs() < 0.05, "{sums:?}");
    }
}

#[test]
fn the_uppermost_page_of_a_stack_is_its_threads_own() {
    // QEMU refuses `clone3`, and what the C library then does stores two words on the new thread's stack.
    let text = THREADS.replace("4096", "4").replace("2000", "200");
    let dir = tempfile::tempdir().unwrap();
    for (frontend, name) in [("qemu", "plain"), ("instrument", "built")] {
        let program = compile(dir.path(), name, &text, frontend == "instrument");
        let profile = recorded(&program, frontend);
        for thread in ["0.1", "0.2", "0.3"] {
            let pages = stack(&profile, thread);
            assert!(
                pages.iter().all(|page| page.1 == thread) && pages[0].0 >= 4000,
                "{frontend}: {thread} {pages:?}"
            );
        }
    }
}

/// The first thread maps a file of four pages; one thread stores to the second page, another loads all of them.
const FILE: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
static char *volatile map;
static long sums[2];
static void *store(void *unused) { map[4096] = 1; return unused; }
static void *load(void *unused)
{
    for (int i = 0; i < 4 * 4096; i++) sums[0] += map[i];
    return unused;
}
int main(int argc, char **argv)
{
    map = mmap(0, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, open(argv[1], O_RDONLY), 0);
    if (map == MAP_FAILED || argc != 2) return 1;
    pthread_t thread;
    pthread_create(&thread, 0, store, 0);
    pthread_join(thread, 0);
    pthread_create(&thread, 0, load, 0);
    pthread_join(thread, 0);
    return sums[0] != 1;
}
"#;

#[test]
fn pages_of_the_page_cache_are_placed_by_stores_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("four.dat");
    std::fs::write(&file, vec![0; 4 * 4096]).unwrap();
    for (frontend, name) in [("qemu", "plain"), ("instrument", "built")] {
        let program = compile(dir.path(), name, FILE, frontend == "instrument");
        let folder = program.with_extension("numaloc");
        let mut record = numaloc(&["record", "--quiet", "--frontend", frontend, "-o"]);
        ok(record.arg(&folder).arg("--").arg(&program).arg(&file));
        let profile = numaloc_formats::profile::read(&folder).unwrap();
        let mapped = |page: &&numaloc_model::pages::Page| {
            let object = page.object.map(|object| &profile.objects()[object.index()]);
            object.is_some_and(|object| object.name == "four.dat")
        };
        let pages = profile.pages().pages().iter().filter(mapped);
        let of = |thread: numaloc_model::ThreadIdx| profile.threads()[thread.index()].path.as_str();
        let first: Vec<_> = pages.map(|page| page.first_touch.map(of)).collect();
        assert_eq!(first, [None, Some("0.1"), None, None], "{frontend}");
    }
}
