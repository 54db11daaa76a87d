//! Memory shared by processes on two hosts: the recorder's table counts on one, and a table of their own on the other.
//! Both number objects and threads from 0.

mod support;

use std::os::fd::AsRawFd;

use numaloc_journal::Record;
use numaloc_journal::settings::Place;
use numaloc_model::Layer;
use numaloc_model::profile::Amount;
use numaloc_trace::cross_process::{Backing, Board};
use numaloc_trace::{Config, Engine};
use support::assembled;

const BUFFER: u64 = 0x10_0000;
const PAGE: u64 = 4096;

/// A process of the recording, which maps a page of `file`.
fn process(config: Config, file: &std::fs::File) -> &'static Engine {
    let engine: &'static Engine = Box::leak(Box::new(Engine::start(config, "test").unwrap()));
    engine.write(&Record::Map {
        sequence: engine.sequence(),
        thread: 0,
        address: BUFFER,
        length: PAGE,
        protection: 3,
        flags: 1,
        file: "/dev/shm/buffer".to_owned(),
        offset: 0,
        moved_from: 0,
    });
    engine.shared(
        Backing::of_file(file.as_raw_fd(), BUFFER),
        BUFFER,
        PAGE,
        0,
        true,
    );
    engine
}

#[test]
fn processes_of_two_hosts_count_what_each_host_shares() {
    let folder = tempfile::tempdir().unwrap();
    let board = Board::create().unwrap();
    let files = [(); 2].map(|()| tempfile::tempfile().unwrap());
    let here = board.place();
    // No process of this host has the recorder's table under that number.
    let elsewhere = Place { nonce: 1, ..here };
    let places = [(here, 0), (here, 0), (elsewhere, 1), (elsewhere, 1)];
    let engines: Vec<&'static Engine> = std::iter::zip(0.., places)
        .map(|(rank, (place, host))| {
            let config = Config {
                folder: folder.path().to_owned(),
                frontend: "test".to_owned(),
                path: format!("r{rank}"),
                host: "the-recorders".to_owned(),
                cross_process: Some(place),
                ..Config::default()
            };
            process(config, &files[host])
        })
        .collect();
    let mut threads: Vec<_> = engines
        .iter()
        .map(|engine| engine.first_thread(1))
        .collect();
    // On each host the first process writes lines, the second one reads them: 10 here, 20 there.
    for (writer, lines) in [(0, 10), (2, 20)] {
        for line in 0..lines {
            let address = BUFFER + line * 64;
            threads[writer].access::<true, false>(address, 8);
            threads[writer + 1].access::<false, false>(address, 8);
        }
    }
    for (thread, engine) in threads.iter_mut().zip(engines) {
        thread.end(0);
        engine.finish();
    }
    let profile = assembled(folder.path());
    assert!(profile.meta().complete && profile.meta().notes.is_empty());
    let matrix = profile.matrix(Layer::WriteRead, Amount::Events).unwrap();
    for (from, to) in (0..4).flat_map(|from| (0..4).map(move |to| (from, to))) {
        let expected = match (from, to) {
            (0, 1) => 10.0,
            (2, 3) => 20.0,
            _ => 0.0,
        };
        assert_eq!(matrix.get(from, to), expected, "{from} to {to}");
    }
    let sharers: Vec<Vec<usize>> = profile
        .pages()
        .pages()
        .iter()
        .map(|page| {
            let accesses = profile.pages().accesses(page).iter();
            accesses.map(|access| access.thread.index()).collect()
        })
        .collect();
    assert_eq!(sharers, [[0, 1], [2, 3]]);
}
