//! Processes of the program that still run when it has ended: daemons. They continue under the frontend, unrecorded,
//! unless the recorder waits for their end.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use numaloc_launch::{Stop, ask_to_end};
use numaloc_model::Profile;

use crate::ui::Ui;

/// Interval between checks of the processes that are waited for.
const TICK: Duration = Duration::from_millis(100);

/// Waits until no other process has a file of `folder` open. The first signal that asks the recorder to end is passed
/// on to them as SIGTERM, the second ends the wait.
///
/// # Errors
/// The system's error if signals cannot be caught.
pub fn wait(folder: &Path, ui: &Ui) -> std::io::Result<()> {
    let mut stop = Stop::new()?;
    let mut asked = false;
    let mut announced = false;
    loop {
        let mut left = left(folder);
        if left.is_empty() {
            left = holders(folder);
        }
        if left.is_empty() || (asked && stop.asked()) {
            return Ok(());
        }
        if !announced {
            let names: Vec<String> = left
                .iter()
                .map(|(pid, name)| format!("{pid} ({name})"))
                .collect();
            ui.remark(format_args!(
                "the program has ended; --wait waits for {}; Ctrl-C asks them to end",
                names.join(", ")
            ));
            announced = true;
        }
        if stop.asked() {
            left.iter().for_each(|&(pid, _)| ask_to_end(pid));
            asked = true;
            stop = Stop::new()?;
        }
        std::thread::sleep(TICK);
    }
}

/// Process ids and names of those that have a journal in `folder` open.
pub fn left(folder: &Path) -> Vec<(u32, String)> {
    let recorded: BTreeSet<u32> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| pid_of(entry.file_name().to_str()?))
        .collect();
    recorded
        .into_iter()
        .filter(|&pid| holds(pid, folder))
        .map(|pid| (pid, name(pid)))
        .collect()
}

/// All other processes that have a file of the folder open: one that was forked has its parent's until it has its own.
fn holders(folder: &Path) -> Vec<(u32, String)> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid: &u32| pid != std::process::id() && holds(pid, folder))
        .map(|pid| (pid, name(pid)))
        .collect()
}

/// The process of a journal: `PATH-PID-IMAGE.journal`.
fn pid_of(file: &str) -> Option<u32> {
    let stem = file.strip_suffix(".journal")?;
    let (rest, _image) = stem.rsplit_once('-')?;
    rest.rsplit_once('-')?.1.parse().ok()
}

/// Whether a process has a file of the folder open; its id may belong to another process by now.
fn holds(pid: u32, folder: &Path) -> bool {
    std::fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|entries| {
        entries
            .flatten()
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .any(|target| target.starts_with(folder))
    })
}

/// Name of the program; under the emulator, the argument of its option `-0`, of the translator, what follows `--`.
fn name(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<String> = line
        .split(|&byte| byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let translated = words
        .first()
        .is_some_and(|word| word.ends_with("numaloc-native"));
    let before = if translated { "--" } else { "-0" };
    let option = words.iter().position(|word| word == before);
    let at = option.map_or(0, |at| at + 1);
    words.get(at).cloned().unwrap_or_default()
}

/// Notes the processes that still run although the program has ended.
pub fn note(profile: &mut Profile, folder: &Path) {
    let left = left(folder).into_iter();
    profile.add_notes(left.map(|(pid, name)| {
        format!(
            "process {pid} ({name}) still runs, as slowly as before, but is no longer recorded; kill {pid} ends it"
        )
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journals_are_named_after_their_process() {
        assert_eq!(pid_of("0-25457-0.journal"), Some(25457));
        assert_eq!(pid_of("0_1-7-12.journal"), Some(7));
        assert_eq!(pid_of("25457.status"), None);
    }

    #[test]
    fn who_has_a_journal_open_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let own = std::process::id();
        let path = folder.path().join(format!("0-{own}-0.journal"));
        let file = std::fs::File::create(&path).unwrap();
        let found = left(folder.path());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, own);
        drop(file);
        assert!(left(folder.path()).is_empty());
    }
}
