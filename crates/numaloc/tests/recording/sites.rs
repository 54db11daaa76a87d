//! Code sites: which functions and lines communicate and access memory, with each exact frontend.
//!
//! Needs qemu-x86_64, gcc, the plugin and numaloc-native (`cargo build --workspace` first).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{numaloc, ok};
use numaloc_analysis::sites::code_sites;
use numaloc_model::{Layer, Profile, SiteKind, ThreadIdx};

/// Two threads: one stores, the other loads what was stored, at the lines with these marks.
const PROGRAM: &str = "\
#include <pthread.h>
#include <stdio.h>
enum { WORDS = 2048, ROUNDS = 40 };
static long buffer[WORDS] __attribute__((aligned(4096)));
static pthread_barrier_t barrier;
static long sum;
__attribute__((noinline)) static void produce(long round)
{
    for (long at = 0; at < WORDS; at += 8)
        buffer[at] = round + at; /* written here */
}
__attribute__((noinline)) static void consume(void)
{
    long found = 0;
    for (long at = 0; at < WORDS; at += 8)
        found += buffer[at]; /* read here */
    sum += found;
}
static void *other(void *unused)
{
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&barrier);
        consume();
        pthread_barrier_wait(&barrier);
    }
    return unused;
}
int main(void)
{
    pthread_t thread;
    pthread_barrier_init(&barrier, 0, 2);
    pthread_create(&thread, 0, other, 0);
    for (int round = 0; round < ROUNDS; round++) {
        produce(round);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
    }
    pthread_join(thread, 0);
    printf(\"%ld\\n\", sum);
    return 0;
}
";

/// The first thread stores to more lines than the places of stores are kept for, before there is another thread.
const SWEEP: &str = "\
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
enum { WORDS = 5 << 20 };
static long *buffer;
static void *other(void *sum)
{
    for (long at = 0; at < WORDS; at += 8)
        *(long *)sum += buffer[at]; /* read here */
    return 0;
}
int main(void)
{
    pthread_t thread;
    long sum = 0;
    buffer = malloc(WORDS * sizeof(long));
    for (long at = 0; at < WORDS; at++)
        buffer[at] = at; /* written here */
    pthread_create(&thread, 0, other, &sum);
    pthread_join(thread, 0);
    printf(\"%ld\\n\", sum);
    return 0;
}
";

/// `FILE:LINE` of the line of a program with a mark.
fn line_of(program: &str, mark: &str) -> String {
    let at = program.lines().position(|line| line.contains(mark));
    format!("exchange.c:{}", at.unwrap() + 1)
}

fn line(mark: &str) -> String {
    line_of(PROGRAM, mark)
}

fn compiled(text: &str, folder: &Path, compiler: &mut Command) -> PathBuf {
    let (source, program) = (folder.join("exchange.c"), folder.join("exchange"));
    std::fs::write(&source, text).unwrap();
    ok(compiler
        .args(["-O1", "-g", "-pthread", "-o"])
        .args([&program, &source]));
    program
}

fn recorded(text: &str, frontend: &str, folder: &Path) -> Profile {
    let program = match frontend {
        "instrument" => compiled(text, folder, &mut numaloc(&["cc", "--", "gcc"])),
        _ => compiled(text, folder, &mut Command::new("gcc")),
    };
    let profile = folder.join(format!("{frontend}.numaloc"));
    let mut command = numaloc(&["record", "--quiet", "--frontend", frontend, "-o"]);
    ok(command.arg(&profile).arg("--").arg(program));
    numaloc_formats::profile::read(&profile).unwrap()
}

/// Each reader's samples stand for all its events, except for those since the last sample.
fn samples_stand_for_all_events(profile: &Profile) {
    let mut events: BTreeMap<ThreadIdx, u64> = BTreeMap::new();
    for row in profile.communication() {
        if row.layer == Layer::WriteRead {
            *events.entry(row.dst).or_default() += row.events;
        }
    }
    for (reader, events) in events {
        let rows = profile.sites().iter();
        let of = rows.filter(|row| row.kind == SiteKind::Communication && row.thread == reader);
        let (samples, amount) =
            of.fold((0, 0), |sum, row| (sum.0 + row.samples, sum.1 + row.amount));
        let expected = match events.checked_sub(256) {
            None => (events, events),
            Some(more) => (256 + more / 61, 256 + more / 61 * 61),
        };
        assert_eq!((samples, amount), expected, "{reader:?}: {events} events");
    }
}

#[test]
fn each_frontend_names_the_lines_that_write_and_read() {
    for frontend in ["native", "qemu", "instrument"] {
        let dir = tempfile::tempdir().unwrap();
        let profile = recorded(PROGRAM, frontend, dir.path());
        samples_stand_for_all_events(&profile);
        let sites = code_sites(&profile);
        let most = &sites.exchanges[0];
        let found = |place: &numaloc_model::CodePlace| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            (text(&place.function), text(&place.source))
        };
        assert_eq!(
            (found(&most.write), found(&most.read)),
            (
                ("produce".to_owned(), line("written here")),
                ("consume".to_owned(), line("read here"))
            ),
            "{frontend}: {:#?}",
            sites.exchanges
        );
        let events = 256 * 39;
        assert!(most.events > events * 9 / 10, "{frontend}: {most:?}");
        let memory = most.memory.and_then(|of| profile.variable(of));
        let name = memory.map(|variable| variable.name.as_str());
        assert_eq!(name, Some("buffer"), "{frontend}");
        assert_eq!(most.most.map(|pair| (pair.0.0, pair.1.0)), Some((0, 1)));
        // Accesses: the store and the load are the program's most frequent ones.
        let of = |kind, mark: &str| {
            let line = line(mark);
            let rows = profile.sites().iter();
            let here = rows.filter(move |row| {
                row.kind == kind && row.here.source.as_deref() == Some(line.as_str())
            });
            here.map(|row| row.amount).sum::<u64>()
        };
        let (stores, loads) = (
            of(SiteKind::Store, "written here"),
            of(SiteKind::Load, "read here"),
        );
        assert!(
            stores > 4000 && loads > 4000,
            "{frontend}: {stores} {loads}"
        );
    }
}

#[test]
fn show_and_report_name_the_lines() {
    let dir = tempfile::tempdir().unwrap();
    recorded(PROGRAM, "native", dir.path());
    let profile = dir.path().join("native.numaloc");
    let text = ok(numaloc(&["show", "--all"]).arg(&profile));
    let expected = format!(
        "produce ({}) -> consume ({}), buffer (exchange.c:",
        line("written here"),
        line("read here")
    );
    assert!(text.contains(&expected), "{text}");
    let json = ok(numaloc(&["show", "--json"]).arg(&profile));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        json["code_communication"][0]["write"]["function"],
        "produce"
    );
    let page = dir.path().join("page.html");
    ok(numaloc(&["report", "-o"]).arg(&page).arg(&profile));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Code that communicates") && page.contains(&line("read here")));
}

#[test]
fn the_writer_of_a_large_array_is_known() {
    for frontend in ["native", "qemu", "instrument"] {
        let dir = tempfile::tempdir().unwrap();
        let profile = recorded(SWEEP, frontend, dir.path());
        let sites = code_sites(&profile);
        let most = &sites.exchanges[0];
        let source = |place: &numaloc_model::CodePlace| place.source.clone().unwrap_or_default();
        assert_eq!(
            (source(&most.write), source(&most.read)),
            (line_of(SWEEP, "written here"), line_of(SWEEP, "read here")),
            "{frontend}: {:#?}",
            sites.exchanges
        );
        let lines = (5 << 20) / 8;
        assert!(most.events > lines * 99 / 100, "{frontend}: {most:?}");
    }
}
