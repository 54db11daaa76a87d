//! Memory shared by processes: two engines with one cross-process table stand for two processes. (An engine reserves 9
//! TiB of address space for good, so this file can have fourteen.)

mod support;

use std::os::fd::AsRawFd;

use numaloc_journal::Record;
use numaloc_model::profile::Amount;
use numaloc_model::{Layer, Profile};
use numaloc_trace::cross_process::{Backing, Board};
use numaloc_trace::{Config, Engine, ThreadTracer};
use support::assembled;

/// Addresses at which the processes map the same three pages; the second one leaves out the first page.
const HERE: u64 = 0x10_0000;
const THERE: u64 = 0x7000_3000;
const SHARED: u64 = 1;

struct Processes {
    folder: tempfile::TempDir,
    _board: Board,
    engines: [&'static Engine; 2],
    threads: [Box<ThreadTracer>; 2],
}

fn processes(adjust: impl Fn(&mut Config)) -> Processes {
    let folder = tempfile::tempdir().unwrap();
    let board = Board::create().unwrap();
    let engines: [&'static Engine; 2] = ["0", "0/1"].map(|path| {
        let mut config = Config {
            folder: folder.path().to_owned(),
            frontend: "test".to_owned(),
            path: path.to_owned(),
            // Journals are named by process and image.
            image: path.len() as u32,
            cross_process: Some(board.place()),
            ..Config::default()
        };
        adjust(&mut config);
        &*Box::leak(Box::new(Engine::start(config, "test").unwrap()))
    });
    let threads = engines.map(|engine| engine.first_thread(1));
    let file = tempfile::tempfile().unwrap();
    for (at, (address, offset)) in [(HERE, 0), (THERE, 4096)].into_iter().enumerate() {
        map(engines[at], address, 3 * 4096 - offset, offset);
        let backing = Backing::of_file(file.as_raw_fd(), address);
        engines[at].shared(backing, address, 3 * 4096 - offset, offset, true);
    }
    Processes {
        folder,
        _board: board,
        engines,
        threads,
    }
}

fn map(engine: &Engine, address: u64, length: u64, offset: u64) {
    engine.write(&Record::Map {
        sequence: engine.sequence(),
        thread: 0,
        address,
        length,
        protection: 3,
        flags: SHARED,
        file: "/tmp/buffer".to_owned(),
        offset,
        moved_from: 0,
    });
}

impl Processes {
    /// Process `who` writes (or reads) 8 bytes at `offset` of the shared memory.
    fn access(&mut self, who: usize, write: bool, offset: u64) {
        let address = [HERE, THERE - 4096][who] + offset;
        if write {
            self.threads[who].access::<true, false>(address, 8);
        } else {
            self.threads[who].access::<false, false>(address, 8);
        }
    }

    fn profile(mut self) -> Profile {
        for (thread, engine) in self.threads.iter_mut().zip(self.engines) {
            thread.end(0);
            engine.finish();
        }
        assembled(self.folder.path())
    }
}

fn events(profile: &Profile, layer: Layer) -> [f64; 2] {
    let matrix = profile.matrix(layer, Amount::Events).unwrap();
    [matrix.get(0, 1), matrix.get(1, 0)]
}

/// Runs a test in a process of its own, since the tables of all tests' engines do not fit into one address space;
/// false in that process.
fn alone(test: &str) -> bool {
    if std::env::var_os("NUMALOC_TEST_ALONE").is_some() {
        return false;
    }
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact"])
        .env("NUMALOC_TEST_ALONE", "yes")
        .status();
    assert!(status.unwrap().success(), "{test}");
    true
}

#[test]
fn reads_of_what_another_process_wrote_count_once_and_pages_are_joined() {
    if alone("reads_of_what_another_process_wrote_count_once_and_pages_are_joined") {
        return;
    }
    let mut both = processes(|_| {});
    // Ten lines of page 1: written here, read twice there; then three of them written there, read here.
    for line in 0..10 {
        both.access(0, true, 4096 + line * 64);
    }
    for _ in 0..2 {
        for line in 0..10 {
            both.access(1, false, 4096 + line * 64);
        }
    }
    for line in 0..3 {
        both.access(1, true, 4096 + line * 64);
        both.access(0, false, 4096 + line * 64);
        both.access(0, false, 4096 + line * 64);
    }
    // Only this process maps page 0, and no other reads it. The same address in the other process is other memory.
    both.access(0, true, 0);
    both.threads[1].access::<false, false>(HERE, 8);
    let profile = both.profile();
    assert!(profile.meta().complete && profile.meta().notes.is_empty());
    assert_eq!(events(&profile, Layer::WriteRead), [10.0, 3.0]);
    assert_eq!(events(&profile, Layer::FalseSharing), [0.0, 0.0]);
    let object = |page: &numaloc_model::pages::Page| {
        let object = page.object.map(|object| &profile.objects()[object.index()]);
        object.map(|object| object.name.as_str())
    };
    let pages: Vec<_> = profile
        .pages()
        .pages()
        .iter()
        .map(|page| {
            let accesses = profile.pages().accesses(page).iter();
            let accesses: Vec<_> = accesses
                .map(|a| (a.thread.index(), a.reads, a.writes))
                .collect();
            (object(page), page.object_page, accesses)
        })
        .collect();
    assert_eq!(
        pages,
        [
            (Some("buffer"), 0, vec![(0, 0, 1)]),
            (Some("buffer"), 1, vec![(0, 6, 10), (1, 20, 3)]),
            (None, HERE / 4096, vec![(1, 1, 0)]),
        ]
    );
    let first = profile.pages().pages()[1].first_touch.unwrap();
    assert_eq!(first.index(), 0);
}

#[test]
fn false_sharing_between_processes_is_distinguished_and_lines_of_a_slice_are_joined() {
    if alone("false_sharing_between_processes_is_distinguished_and_lines_of_a_slice_are_joined") {
        return;
    }
    let mut both = processes(|config| config.layers.push(Layer::SharedLine));
    both.access(0, false, 4096);
    both.access(1, false, 4096 + 64);
    // Each process writes and reads its own word of a line, alternately, 100 times.
    for _ in 0..100 {
        for who in 0..2 {
            both.access(who, false, 8192 + 8 * who as u64);
            both.access(who, true, 8192 + 8 * who as u64);
        }
    }
    let profile = both.profile();
    // The first read here finds nothing written; the first event of the line is not classified.
    assert_eq!(events(&profile, Layer::WriteRead), [100.0, 99.0]);
    assert_eq!(events(&profile, Layer::FalseSharing), [99.0, 99.0]);
    // One line in the only slice.
    assert_eq!(events(&profile, Layer::SharedLine), [1.0, 1.0]);
    let lines: Vec<_> = profile
        .shared_lines()
        .iter()
        .map(|line| (line.events, line.false_events))
        .collect();
    assert_eq!(
        lines.iter().map(|line| line.0).sum::<u64>(),
        199,
        "{lines:?}"
    );
}

#[test]
fn with_consecutive_only_the_next_access_counts() {
    if alone("with_consecutive_only_the_next_access_counts") {
        return;
    }
    let mut both = processes(|config| config.consecutive = true);
    both.access(0, true, 4096);
    both.access(0, false, 4096);
    both.access(1, false, 4096);
    both.access(0, true, 4096);
    both.access(1, false, 4096);
    assert_eq!(events(&both.profile(), Layer::WriteRead), [1.0, 0.0]);
}

#[test]
fn unmapped_memory_is_private_again_and_moved_memory_stays_shared() {
    if alone("unmapped_memory_is_private_again_and_moved_memory_stays_shared") {
        return;
    }
    let mut both = processes(|_| {});
    both.access(0, true, 4096);
    let (object, offset) = both.engines[1].shared_at(THERE).unwrap();
    assert_eq!(offset, 4096);
    both.engines[1].forget(THERE, 8192);
    both.threads[1].access::<false, false>(THERE, 8);
    both.engines[1].map_shared(object, 0x9000_0000, 8192, offset);
    both.threads[1].access::<false, false>(0x9000_0000, 8);
    both.threads[1].access::<false, false>(THERE, 8);
    // Clocks pass through words of shared memory.
    for _ in 0..1000 {
        both.threads[0].access::<true, false>(0x50_0000, 8);
    }
    both.threads[0].synchronise::<true, false>(HERE + 8192, 4);
    both.threads[1].synchronise::<false, false>(0x9000_1000, 4);
    assert!(both.threads[1].time() > 1000);
    // A flag that is written and read is communication, as within a process.
    assert_eq!(events(&both.profile(), Layer::WriteRead), [2.0, 0.0]);
}

#[test]
fn many_readers_count_once_each() {
    if alone("many_readers_count_once_each") {
        return;
    }
    let mut both = processes(|_| {});
    both.access(0, true, 4096);
    let mut readers: Vec<_> = (0..100)
        .map(|tid| {
            let pending_thread = both.threads[1].pending_thread(0);
            both.threads[1].creator.count_thread();
            both.engines[1].attach(pending_thread, tid + 2)
        })
        .collect();
    for _ in 0..2 {
        for reader in &mut readers {
            reader.access::<false, false>(THERE, 8);
            reader.access::<false, false>(THERE, 8);
        }
        both.access(0, true, 4096);
    }
    for mut reader in readers {
        reader.end(0);
    }
    let matrix = both
        .profile()
        .matrix(Layer::WriteRead, Amount::Events)
        .unwrap();
    for reader in 2..102 {
        assert_eq!(matrix.get(0, reader), 2.0, "{reader}");
    }
}

#[test]
fn without_the_table_each_process_counts_on_its_own_with_a_note() {
    if alone("without_the_table_each_process_counts_on_its_own_with_a_note") {
        return;
    }
    let mut both = processes(|config| config.cross_process.as_mut().unwrap().nonce = 7);
    both.access(0, true, 4096);
    both.access(1, false, 4096);
    let profile = both.profile();
    assert_eq!(events(&profile, Layer::WriteRead), [0.0, 0.0]);
    assert_eq!(profile.meta().notes.len(), 2, "{:?}", profile.meta().notes);
    assert!(profile.meta().notes[0].contains("counts the memory it shares"));
}

/// What a profile says about accesses and communication of some thousands of accesses, recorded by the light path where
/// it can if `light`; and how many were.
fn of_many(light: bool) -> (String, u32) {
    let mut both = processes(|_| {});
    let (mut state, mut lightly) = (7_u64, 0);
    for _ in 0..20_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let [who, kind, line, word, size] = [63, 57, 52, 48, 44].map(|shift| state >> shift);
        let (who, size) = (who as usize, 1 << (size % 4));
        let address = [HERE, THERE - 4096][who] + 4096 + line % 8 * 64 + word % 8 * 8;
        let tracer = &mut both.threads[who];
        // Few stores: lines stay with a thread for a while.
        if kind % 8 == 0 {
            match light && tracer.light_store(address, size) {
                true => lightly += 1,
                false => tracer.access::<true, false>(address, size),
            }
        } else {
            match light && tracer.light_load(address, size) {
                true => lightly += 1,
                false => tracer.access::<false, false>(address, size),
            }
        }
    }
    let profile = both.profile();
    let facts = format!(
        "{:?} {:?} {:?}",
        profile.threads(),
        profile.communication(),
        profile.shared_lines()
    );
    (facts, lightly)
}

#[test]
fn the_light_path_changes_no_count_of_shared_memory() {
    if alone("the_light_path_changes_no_count_of_shared_memory") {
        return;
    }
    let (facts, none) = of_many(false);
    let (lightly, most) = of_many(true);
    assert_eq!((none, &facts), (0, &lightly));
    assert!(facts.contains("FalseSharing"), "{facts}");
    assert!(most > 10_000, "{most}");
}

#[test]
fn memory_that_is_only_read_becomes_shared_when_a_process_maps_it_to_be_written() {
    if alone("memory_that_is_only_read_becomes_shared_when_a_process_maps_it_to_be_written") {
        return;
    }
    const READ_AT: u64 = 0x4000_0000;
    const WRITTEN_AT: u64 = 0x6000_0000;
    let mut both = processes(|_| {});
    let file = tempfile::tempfile().unwrap();
    let map = |engine: &Engine, address: u64, writable: bool| {
        map(engine, address, 4096, 0);
        let backing = Backing::of_file(file.as_raw_fd(), address);
        engine.shared(backing, address, 4096, 0, writable);
    };
    let load = |both: &mut Processes, count: u64| {
        for line in 0..count {
            both.threads[0].access::<false, false>(READ_AT + 64 * line, 8);
        }
    };
    map(both.engines[0], READ_AT, false);
    load(&mut both, 20);
    // The process's own table is enough: such a load takes the fast path.
    assert!(both.threads[0].fast::<false, false>(READ_AT, 8));
    map(both.engines[1], WRITTEN_AT, true);
    for line in 0..10 {
        both.threads[1].access::<true, false>(WRITTEN_AT + 64 * line, 8);
    }
    // As after a system call.
    both.engines[0].mark_written();
    assert!(!both.threads[0].fast::<false, false>(READ_AT, 8));
    load(&mut both, 20);
    let profile = both.profile();
    assert_eq!(events(&profile, Layer::WriteRead), [0.0, 10.0]);
}

#[test]
fn memory_that_was_only_read_is_shared_once_it_may_be_written() {
    if alone("memory_that_was_only_read_is_shared_once_it_may_be_written") {
        return;
    }
    let mut both = processes(|_| {});
    let file = tempfile::tempfile().unwrap();
    let at = [0x4000_0000, 0x6000_0000];
    for (engine, address) in both.engines.into_iter().zip(at) {
        map(engine, address, 4096, 0);
        engine.shared(
            Backing::of_file(file.as_raw_fd(), address),
            address,
            4096,
            0,
            false,
        );
    }
    let access = |both: &mut Processes, who: usize, write: bool| match write {
        true => both.threads[who].access::<true, false>(at[who] + 64, 8),
        false => both.threads[who].access::<false, false>(at[who] + 64, 8),
    };
    access(&mut both, 0, false);
    access(&mut both, 1, false);
    both.engines[1].made_writable(at[1], 4096);
    access(&mut both, 1, true);
    both.engines[0].mark_written();
    access(&mut both, 0, false);
    let profile = both.profile();
    assert_eq!(events(&profile, Layer::WriteRead), [0.0, 1.0]);
}
