//! Processes of the program that still run when it has ended: daemons, which continue under the emulator, unrecorded.

use std::collections::BTreeSet;
use std::path::Path;

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
