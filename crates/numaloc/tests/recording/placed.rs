//! Who placed pages, by the kernel's rules for page faults: the program says for each kind who must have done it. The
//! same program runs in the virtual NUMA machine (`tests/lab.rs`), where the kernel itself is asked.

use std::collections::HashMap;
use std::path::Path;

use crate::support::{numaloc, ok, root};
use numaloc_model::profile::image;

/// Kinds for which recording and program disagree, and the number of kinds.
fn wrong(folder: &Path, frontend: &str) -> (Vec<String>, usize) {
    let program = folder.join("placed");
    ok(std::process::Command::new("gcc")
        .args(["-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(root().join("crates/numaloc/tests/lab/placed.c")));
    let profile = folder.join(format!("{frontend}.numaloc"));
    let options = ["record", "--quiet", "--huge-pages", "madvise", "--frontend"];
    let said = ok(numaloc(&options)
        .args([frontend, "-o"])
        .arg(&profile)
        .arg("--")
        .arg(&program));
    let profile = numaloc_formats::profile::read(&profile).unwrap();
    let pages: HashMap<u64, Option<&str>> = profile
        .pages()
        .pages()
        .iter()
        .map(|page| {
            let path = |thread: numaloc_model::ThreadIdx| &*profile.threads()[thread.index()].path;
            (page.number.0, page.first_touch.map(path))
        })
        .collect();
    let mut wrong = Vec::new();
    for line in said.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let address = u64::from_str_radix(words[2].trim_start_matches("0x"), 16).unwrap();
        let count: u64 = words[3].parse().unwrap();
        let (of, who) = match words[1] {
            "a" => (0, "0"),
            "b" => (0, "0.1"),
            "A" => (1, "0"),
            _ => (1, "0/1"),
        };
        let first = (address >> 12) + image::first_page(of, 4096);
        let found: Vec<_> = (first..first + count)
            .map(|page| pages.get(&page))
            .collect();
        let differing: Vec<_> = found
            .iter()
            .filter(|page| **page != Some(&Some(who)))
            .collect();
        if let Some(one) = differing.first() {
            wrong.push(format!(
                "{}: {} of {count} pages, for example {one:?}, not {who}",
                words[0],
                differing.len()
            ));
        }
    }
    (wrong, said.lines().count())
}

#[test]
fn pages_belong_to_the_threads_that_the_kernels_rules_name() {
    let folder = tempfile::tempdir().unwrap();
    for frontend in ["native", "qemu"] {
        let (wrong, kinds) = wrong(folder.path(), frontend);
        assert!(
            wrong.is_empty() && kinds > 25,
            "{frontend}, {kinds}: {wrong:#?}"
        );
    }
}

/// The first thread sets memory policies and places pages under them.
const POLICIES: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#define N (16 * 4096)
static char *fresh(void) { return mmap(0, N, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
static void store(char *p) { for (int i = 0; i < N; i++) p[i] = 1; }
int main(void)
{
    unsigned long first = 1;
    char *plain = fresh(), *bound = fresh(), *spread = fresh();
    if (syscall(SYS_mbind, bound, N, 2, &first, 64, 0)) return 77;
    store(plain);
    store(bound);
    if (syscall(SYS_set_mempolicy, 3, &first, 64)) return 77;
    store(spread);
    printf("%p %p %p\n", (void *)plain, (void *)bound, (void *)spread);
    return 0;
}
"#;

#[test]
fn memory_policies_of_the_program_are_kept_with_its_pages() {
    let folder = tempfile::tempdir().unwrap();
    let program = crate::support::compile(folder.path(), "policies", POLICIES, false);
    let native = std::process::Command::new(&program).output().unwrap();
    if native.status.code() == Some(77) {
        eprintln!("skipped: this machine refuses memory policies");
        return;
    }
    let profile = folder.path().join("policies.numaloc");
    let said = ok(
        numaloc(&["record", "--quiet", "--frontend", "native", "-o"])
            .arg(&profile)
            .arg("--")
            .arg(&program),
    );
    let profile = numaloc_formats::profile::read(&profile).unwrap();
    let policies: Vec<Option<String>> = said
        .split_whitespace()
        .map(|address| {
            let page = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap() >> 12;
            let mut pages = profile.pages().pages().iter();
            let page = pages.find(|found| found.number.0 == page + 3).unwrap();
            page.policy.map(|policy| policy.to_string())
        })
        .collect();
    // Those of a machine with one node are all of it.
    let spread = policies[2].as_deref();
    assert_eq!(policies[0], None);
    assert_eq!(policies[1].as_deref(), Some("bind:0"));
    assert!(
        matches!(spread, Some("interleave:all" | "interleave:0")),
        "{spread:?}"
    );
}
