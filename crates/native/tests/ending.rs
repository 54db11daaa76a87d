//! Programs end as they do natively, whatever signals arrive meanwhile and with whom they share their memory.

mod support;

use std::path::PathBuf;
use std::sync::OnceLock;

use support::{ours, same, same_with};

/// Compiled once: the tests run at the same time.
static STORM: OnceLock<PathBuf> = OnceLock::new();

/// Programs that end under signals, each recorded once: the schedules differ from run to run.
/// `NUMALOC_STORM`: the number of processes of each kind, instead of `rounds`.
fn storm(how: &str, microseconds: &[&str], rounds: &str) {
    let more = std::env::var("NUMALOC_STORM").ok();
    let rounds = more.as_deref().unwrap_or(rounds);
    let program = STORM.get_or_init(|| ours("storm.c", &[]));
    for microseconds in microseconds {
        let journals = tempfile::tempdir().expect("a folder");
        let settings = format!("folder={}", journals.path().display());
        same_with(
            &["--record", &settings],
            program,
            &[how, microseconds, rounds],
        );
    }
}

#[test]
fn programs_end_under_a_timer() {
    storm("timer", &["50", "200", "1000", "10000"], "10");
    storm("killed", &["50", "1000"], "5");
}

#[test]
fn programs_end_while_children_end() {
    storm("children", &["100", "2000"], "10");
}

#[test]
fn programs_end_while_other_threads_and_processes_send_signals() {
    storm("threads", &["200", "2000"], "5");
    storm("process", &["200", "2000"], "5");
}

#[test]
fn programs_end_while_their_threads_wait_and_fork() {
    storm("pthread", &["500"], "5");
    storm("fork", &["500", "5000"], "5");
}

#[test]
fn processes_share_memory() {
    same(&ours("sharing.c", &[]), &[]);
}

#[test]
fn children_begin_without_handlers() {
    same(&ours("cleared.c", &[]), &[]);
}

#[test]
fn processes_that_share_memory_are_killed_in_the_middle_of_their_work() {
    same(&ours("killing.c", &[]), &[]);
}
