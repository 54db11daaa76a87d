//! The table of a host on which no recorder runs: the ranks of an MPI program there share memory with each other.
//!
//! The first process of the host that looks for the table creates it, and writes where it is to a file in the folder of
//! the journals. The file is named after the host, because all hosts may see the folder. The others read it there. That
//! first process keeps the table open for those that come later, also when it executes another program; once it has
//! ended, they find none, and each counts on its own.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

use super::table::{Board, Table};
use numaloc_journal::settings::{Config, Place};

/// The table that a process uses.
#[derive(Clone)]
pub(crate) struct Found {
    pub table: Table,
    /// The host that made it; `None` for the recorder's table.
    pub host: Option<String>,
}

/// The recorder's table, or that of this host if the recorder is on another one.
pub(crate) fn find(config: &Config) -> Option<Found> {
    let place = config.cross_process?;
    if let Ok(table) = Table::open(place, config.line_shift) {
        return Some(Found { table, host: None });
    }
    let host = numaloc_journal::host_name();
    if config.host.is_empty() || config.host == host {
        return None;
    }
    let place = agreed(&config.folder, &host).ok()?;
    let table = Table::open(place, config.line_shift).ok()?;
    Some(Found {
        table,
        host: Some(host),
    })
}

/// The place of the host's table. If no process has written one yet, creates the table.
fn agreed(folder: &Path, host: &str) -> std::io::Result<Place> {
    let known = folder.join(format!("{host}.table"));
    match std::fs::read_to_string(&known) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        found => return place_in(&found?),
    }
    let board = Board::create()?.inherited()?;
    let place = board.place();
    let ours = folder.join(format!("{host}.{}-{}.table", place.pid, place.descriptor));
    let mut file = File::create(&ours)?;
    write!(file, "{} {} {}", place.pid, place.descriptor, place.nonce)?;
    // Unlike a renaming, a link fails if another process was first; and it appears with its content.
    let linked = std::fs::hard_link(&ours, &known);
    let removed = std::fs::remove_file(&ours);
    match linked {
        Ok(()) => {
            board.keep();
            removed.and(Ok(place))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            place_in(&std::fs::read_to_string(&known)?)
        }
        Err(error) => Err(error),
    }
}

fn place_in(text: &str) -> std::io::Result<Place> {
    let numbers: Option<Vec<u64>> = text.split(' ').map(|word| word.parse().ok()).collect();
    let place = match numbers.as_deref() {
        Some(&[pid, descriptor, nonce]) => {
            pid.try_into()
                .ok()
                .zip(descriptor.try_into().ok())
                .map(|(pid, descriptor)| Place {
                    pid,
                    descriptor,
                    nonce,
                })
        }
        _ => None,
    };
    place.ok_or_else(|| ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    /// A process of a recording whose table is on another host: nothing here has its nonce.
    fn config(folder: &Path, host: &str) -> Config {
        Config {
            folder: folder.to_owned(),
            host: host.to_owned(),
            cross_process: Some(Place {
                pid: std::process::id(),
                descriptor: 0,
                nonce: 1,
            }),
            ..Config::default()
        }
    }

    #[test]
    fn processes_of_a_host_without_the_recorder_agree_on_one_table() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), "not-this-one");
        let found: Vec<Found> = std::thread::scope(|scope| {
            let finders: Vec<_> = (0..8).map(|_| scope.spawn(|| find(&config))).collect();
            finders
                .into_iter()
                .map(|f| f.join().unwrap().unwrap())
                .collect()
        });
        let numbers: Vec<u64> = found.iter().map(|f| f.table.number_thread()).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7]);
        let line = found[0].table.line(0, 0);
        found[0].table.word(line).store(5, Relaxed);
        assert_eq!(found[7].table.word(line).load(Relaxed), 5);
        let host = numaloc_journal::host_name();
        assert!(found.iter().all(|found| found.host.as_ref() == Some(&host)));
        let left: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(left, [format!("{host}.table")]);
    }

    #[test]
    fn on_the_recorders_host_or_after_the_first_process_has_ended_there_is_no_table() {
        let folder = tempfile::tempdir().unwrap();
        let host = numaloc_journal::host_name();
        assert!(find(&config(folder.path(), &host)).is_none());
        assert!(find(&config(folder.path(), "")).is_none());
        let config = config(folder.path(), "not-this-one");
        let known = folder.path().join(format!("{host}.table"));
        for text in ["4194304 3 7", "1 2", "", "-1 3 7", "4294967296 3 7"] {
            std::fs::write(&known, text).unwrap();
            assert!(find(&config).is_none(), "{text}");
        }
    }
}
