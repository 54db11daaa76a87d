//! Processes are threads here, each with the folder of its host; real hosts are in `numaloc/tests/mpi_hosts.rs`.

use super::*;
use crate::peers::threads::{Threads, threads};
use crate::shims::MpiLibrary;

/// Folders of hosts: that of the recorder has the mark.
fn prepared(hosts: usize, recorder: usize) -> Vec<tempfile::TempDir> {
    let library = MpiLibrary::Mpich;
    let name = format!("ranks/{}", library.shim_name());
    let folders: Vec<_> = (0..hosts).map(|_| tempfile::tempdir().unwrap()).collect();
    for folder in &folders {
        fill(folder.path(), &[(&name, library.shim())]).unwrap();
    }
    mark(folders[recorder].path()).unwrap();
    folders
}

/// Each process gathers in the folder given for it.
fn gathered(folders: &[&Path]) -> Vec<std::io::Result<()>> {
    std::thread::scope(|scope| {
        let running: Vec<_> = threads(folders.len())
            .into_iter()
            .zip(folders)
            .map(|(mut peers, folder)| {
                let host = format!("n{}", peers.rank);
                scope.spawn(move || gather(&mut peers, folder, &host))
            })
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

fn content(rank: usize) -> Vec<u8> {
    (0..(rank * 700_001) % 3_000_000)
        .map(|at| (at * 31 + rank) as u8)
        .collect()
}

#[test]
fn files_of_all_hosts_are_in_the_recorders_folder_and_nowhere_else() {
    let folders = prepared(3, 1);
    for rank in 0..9 {
        let folder = folders[rank % 3].path();
        std::fs::write(
            folder.join(format!("ranks/rank-{rank}-1.nlmpi")),
            content(rank),
        )
        .unwrap();
        std::fs::write(folder.join(format!("r{rank}-7-0.journal")), [rank as u8]).unwrap();
        std::fs::write(folder.join(format!("ranks/where-{rank}")), "here").unwrap();
    }
    std::fs::write(folders[0].path().join("17.status"), [0; 16]).unwrap();
    std::fs::write(folders[2].path().join("notes.txt"), "the user's").unwrap();
    // Two processes on each host, and one on a host without the folder.
    let nowhere = folders[0].path().join("nowhere");
    let [a, b, c] = [0, 1, 2].map(|at| folders[at].path());
    for result in gathered(&[a, a, c, b, b, &nowhere, c]) {
        result.unwrap();
    }
    for rank in 0..9 {
        let at = |name: String| std::fs::read(b.join(name)).unwrap();
        assert_eq!(at(format!("ranks/rank-{rank}-1.nlmpi")), content(rank));
        assert_eq!(at(format!("r{rank}-7-0.journal")), [rank as u8]);
        assert_eq!(at(format!("ranks/where-{rank}")), b"here");
    }
    // Nothing of ours is left on the others, and nothing of others is removed.
    assert!(!a.exists());
    let left: Vec<_> = std::fs::read_dir(c)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left, ["notes.txt"]);
    let claims = std::fs::read_dir(b).unwrap().flatten();
    let mut claims = claims.map(|e| e.file_name().into_string().unwrap());
    assert!(!claims.any(|name| name.starts_with(CLAIM)));
}

/// A connection that is lost after some messages were sent.
struct Lost(Threads, usize);

impl Peers for Lost {
    fn rank(&self) -> u32 {
        self.0.rank()
    }
    fn size(&self) -> u32 {
        self.0.size()
    }
    fn send(&mut self, to: u32, bytes: &[u8]) -> std::io::Result<()> {
        self.1 = self.1.checked_sub(1).ok_or(ErrorKind::BrokenPipe)?;
        self.0.send(to, bytes)
    }
    fn receive(&mut self, from: u32) -> std::io::Result<Vec<u8>> {
        self.0.receive(from)
    }
}

#[test]
fn an_interrupted_gathering_loses_nothing_and_is_repeated() {
    let names: Vec<String> = (1..5)
        .map(|rank| format!("ranks/rank-{rank}-1.nlmpi"))
        .collect();
    for messages in 0..24 {
        let folders = prepared(2, 0);
        let [receiver, sender] = [0, 1].map(|at| folders[at].path());
        for (name, rank) in names.iter().zip(1..) {
            std::fs::write(sender.join(name), content(rank)).unwrap();
        }
        std::thread::scope(|scope| {
            let mut both = threads(2).into_iter();
            let (mut first, second) = (both.next().unwrap(), both.next().unwrap());
            scope.spawn(move || gather(&mut first, receiver, "n0"));
            scope.spawn(move || gather(&mut Lost(second, messages), sender, "n1"));
        });
        for (name, rank) in names.iter().zip(1..) {
            let somewhere = [receiver, sender].map(|folder| std::fs::read(folder.join(name)));
            assert!(
                somewhere
                    .into_iter()
                    .flatten()
                    .any(|found| found == content(rank))
            );
        }
        if sender.exists() {
            for result in gathered(&[sender, receiver]) {
                result.unwrap();
            }
        }
        for (name, rank) in names.iter().zip(1..) {
            assert_eq!(
                std::fs::read(receiver.join(name)).unwrap(),
                content(rank),
                "{messages}"
            );
        }
    }
}

#[test]
fn files_of_two_hosts_with_one_name_are_both_kept() {
    let folders = prepared(2, 0);
    let [receiver, sender] = [0, 1].map(|at| folders[at].path());
    for (folder, text) in [(receiver, "one"), (sender, "other")] {
        std::fs::write(folder.join("0-9-0.journal"), text).unwrap();
    }
    for result in gathered(&[receiver, sender]) {
        result.unwrap();
    }
    let at = |name: &str| std::fs::read_to_string(receiver.join(name)).unwrap();
    assert_eq!(at("0-9-0.journal"), "one");
    assert_eq!(at("0-9-0@n1.journal"), "other");
}

#[test]
fn a_name_that_leads_elsewhere_is_refused() {
    for name in [
        "../a.nlmpi",
        "/a.nlmpi",
        "a/b/c.nlmpi",
        "ranks/../../a.nlmpi",
        "a.so",
        "",
    ] {
        assert!(!is_ranks(name), "{name}");
    }
    for name in [
        "a.nlmpi",
        "ranks/a.nlmpi",
        "r0-1-0.journal",
        "ranks/where-12",
    ] {
        assert!(is_ranks(name), "{name}");
    }
}

#[test]
fn without_the_recorders_folder_there_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let [error] = &gathered(&[folder.path()])[..] else {
        panic!("one process")
    };
    let error = error.as_ref().unwrap_err().to_string();
    assert!(error.contains("sees the recorder's folder"), "{error}");
}
