//! Imports `perf.data` files written by the test, and files that perf itself writes here.

mod support;

use std::os::unix::fs::FileExt;

use numaloc_model::profile::{Amount, Profile};
use numaloc_model::{Layer, SliceIdx};
use numaloc_perf::{Options, PerfError, import};
use support::{L1, LOAD, LOCAL, PerfData, STORE, four_threads};

fn imported(file: &PerfData, options: &Options) -> Result<Profile, PerfError> {
    let folder = tempfile::tempdir().unwrap();
    import(&file.write(folder.path()), options)
}

/// The non-zero cells of a layer.
fn cells(profile: &Profile, layer: Layer) -> Vec<(usize, usize, f64)> {
    profile
        .matrix(layer, Amount::Events)
        .unwrap()
        .cells()
        .collect()
}

#[test]
fn samples_become_communication_pages_and_memory_traffic() {
    let profile = imported(&four_threads(), &Options::default()).unwrap();
    let paths: Vec<&str> = profile.threads().iter().map(|t| t.path.as_str()).collect();
    assert_eq!(paths, ["0", "0.1", "0.2", "0.3"]);
    assert_eq!(profile.meta().command, ["./app", "--size", "10"]);
    assert_eq!(profile.meta().frontend, "perf");
    assert!(profile.meta().complete);
    assert_eq!(profile.meta().sampled, 0.001);

    // Thread 1 stores, 2 loads 1 us later, ten times. In each further round (1 ms later, inside the
    // window of 10 ms) 1 stores again after 2's load: 10 + 9 events of period 1000, in both directions.
    // 3 loads before 0 stores, ten times; nine times 3 loads again what 0 stored.
    assert_eq!(
        cells(&profile, Layer::SampledLine),
        [
            (0, 3, 19_000.0),
            (1, 2, 19_000.0),
            (2, 1, 19_000.0),
            (3, 0, 19_000.0)
        ]
    );
    assert_eq!(
        cells(&profile, Layer::WriteRead),
        [(0, 3, 9_000.0), (1, 2, 10_000.0)]
    );

    // Each thread: one sample of shared memory and one of its own page a round.
    for (at, thread) in profile.threads().iter().enumerate() {
        assert_eq!(thread.accesses, 20_000);
        // Own page from remote memory; thread 2's shared loads from local memory too; a line of 64 bytes each.
        let memory = if at == 2 { 20_000 } else { 10_000 };
        assert_eq!(thread.dram_bytes, Some(memory * 64));
    }
    assert_eq!(profile.threads()[1].write_bytes, 10_000 * 8);
    assert_eq!(profile.pages().pages().len(), 6);
    assert_eq!(profile.pages().total(), 80_000);
    let per_slice: u64 = profile.page_slices().iter().map(|row| row.accesses).sum();
    assert_eq!(per_slice, 80_000);
    assert_eq!(profile.slices().len(), 2);
    let notes = profile.meta().notes.join("\n");
    assert!(
        notes.contains("remote memory 500 (40 samples)")
            && notes.contains("local memory 300 (10 samples)"),
        "{notes}"
    );
    assert!(notes.contains("cpu/mem-loads,ldlat=30/P"), "{notes}");
}

/// Page number, thread and number of long loads.
fn slow(profile: &Profile) -> Vec<(u64, u32, u64)> {
    let rows = profile.slow_loads().into_iter();
    let rows = rows.flat_map(|slow| &slow.rows);
    rows.map(|row| {
        let page = &profile.pages().pages()[row.page as usize];
        (page.number.0, row.thread.0, row.loads)
    })
    .collect()
}

#[test]
fn long_loads_are_found_by_latency_else_by_what_served_them() {
    let recording = |latencies: [u64; 3]| {
        let mut file = PerfData::default();
        file.exec(1, "app", 1);
        file.fork(1, 1, 2, 1, 2);
        // A cache can answer late if the line is contended; memory can answer early if the line was prefetched.
        file.sample((1, 1), 10, 0x1000, LOAD | L1, latencies[0]);
        file.sample((1, 2), 20, 0x1000, LOAD | LOCAL, latencies[1]);
        file.sample((1, 2), 30, 0x2000, STORE | LOCAL, latencies[2]);
        imported(&file, &Options::default()).unwrap()
    };
    let timed = recording([128, 127, 500]);
    assert_eq!(slow(&timed), [(1, 0, 1000)]);
    let source = &timed.slow_loads().unwrap().source;
    assert!(source.contains("at least 128 core cycles"), "{source}");
    let untimed = recording([0, 0, 0]);
    assert_eq!(slow(&untimed), [(1, 1, 1000)]);
    let source = &untimed.slow_loads().unwrap().source;
    assert!(source.contains("no sample has a latency"), "{source}");
}

#[test]
fn what_is_imported_can_be_written_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let profile = imported(&four_threads(), &Options::default()).unwrap();
    let to = folder.path().join("p.numaloc");
    numaloc_formats::profile::write(&profile, &to, false).unwrap();
    assert_eq!(numaloc_formats::profile::read(&to).unwrap(), profile);
}

#[test]
fn byte_order_does_not_matter() {
    let mut little = four_threads();
    let profile = imported(&little, &Options::default()).unwrap();
    let mut big = PerfData {
        big_endian: true,
        ..PerfData::default()
    };
    big.exec(100, "app", 5);
    big.sample((100, 100), 10, 0x1000, LOAD | L1, 4);
    little = PerfData::default();
    little.exec(100, "app", 5);
    little.sample((100, 100), 10, 0x1000, LOAD | L1, 4);
    assert_eq!(
        imported(&big, &Options::default()).unwrap(),
        imported(&little, &Options::default()).unwrap()
    );
    assert!(profile.threads().len() == 4);
}

#[test]
fn events_are_distinguished_by_their_ids() {
    let mut file = PerfData {
        events: vec!["cpu/mem-loads/P", "cpu/mem-stores/P"],
        ..PerfData::default()
    };
    file.exec(1, "app", 1);
    file.fork(1, 1, 2, 1, 2);
    file.sample_of(2, (1, 1), 10, 0x1000, STORE | L1, 0);
    file.sample_of(1, (1, 2), 20, 0x1000, LOAD | LOCAL, 90);
    let profile = imported(&file, &Options::default()).unwrap();
    assert_eq!(cells(&profile, Layer::WriteRead), [(0, 1, 1000.0)]);
}

#[test]
fn the_user_can_set_the_window_and_the_line_size() {
    let mut file = PerfData::default();
    file.exec(1, "app", 1);
    file.fork(1, 1, 2, 1, 2);
    file.sample((1, 1), 10, 0x1000, STORE | L1, 0);
    file.sample((1, 2), 5_010, 0x1040, LOAD | L1, 0);
    let with = |window_ns, line_size| {
        let options = Options {
            window_ns,
            line_size,
            ..Options::default()
        };
        cells(&imported(&file, &options).unwrap(), Layer::SampledLine).len()
    };
    assert_eq!(with(5_000, 64), 0);
    assert_eq!(with(4_999, 128), 0);
    assert_eq!(with(5_000, 128), 2);
}

#[test]
fn slices_are_merged_to_stay_few() {
    let mut file = PerfData::default();
    file.exec(1, "app", 1);
    for at in 0..100_u64 {
        file.sample((1, 1), 1 + at * 10_000_000, 0x1000, LOAD | L1, 0);
    }
    let options = Options {
        max_slices: 8,
        ..Options::default()
    };
    let profile = imported(&file, &options).unwrap();
    // 100 slices of 10 ms become 7 of 160 ms.
    assert_eq!(profile.slices().len(), 7);
    assert_eq!(profile.slices()[0].end, 160_000_000);
    let of_first: u64 = profile
        .page_slices()
        .iter()
        .filter(|row| row.slice == SliceIdx(0))
        .map(|row| row.accesses)
        .sum();
    assert_eq!(of_first, 16_000);
}

#[test]
fn one_process_of_many_can_be_chosen() {
    let mut file = PerfData::default();
    file.exec(50, "other", 1);
    file.exec(100, "app", 2);
    file.fork(100, 100, 101, 100, 3);
    file.sample((50, 50), 10, 0x1000, LOAD | L1, 0);
    file.sample((100, 101), 11, 0x1000, LOAD | L1, 0);
    let all = imported(&file, &Options::default()).unwrap();
    assert_eq!(all.threads().len(), 3);
    // Same address, two processes: two pages.
    assert_eq!(all.pages().pages().len(), 2);
    for process in ["app", "100"] {
        let options = Options {
            process: Some(process.to_owned()),
            ..Options::default()
        };
        let one = imported(&file, &options).unwrap();
        let paths: Vec<&str> = one.threads().iter().map(|t| t.path.as_str()).collect();
        assert_eq!(paths, ["0", "0.1"], "{process}");
    }
}

#[test]
fn a_missing_process_is_reported_with_those_that_exist() {
    let mut file = four_threads();
    file.exec(7, "other", 3_000_000);
    let options = Options {
        process: Some("ap".to_owned()),
        ..Options::default()
    };
    let error = imported(&file, &options).unwrap_err().to_string();
    assert!(error.starts_with("no process ap in "), "{error}");
    assert!(error.ends_with(", only app, other"), "{error}");
}

#[test]
fn lost_records_are_reported_once() {
    let notes = |change: fn(&mut PerfData)| {
        let mut file = four_threads();
        change(&mut file);
        let profile = imported(&file, &Options::default()).unwrap();
        let notes = profile.meta().notes.iter();
        let lost = notes.filter(|note| note.contains("records were lost"));
        lost.cloned().collect::<Vec<_>>().join("; ")
    };
    let lost: fn(&mut PerfData) = |file| {
        file.lost(17);
    };
    assert!(notes(lost).starts_with("17 records"));
    // Newer versions of perf repeat the number at the end, with what was lost last.
    let both = |file: &mut PerfData| {
        file.lost(12).lost(5).lost_in_all(20, false);
    };
    assert!(notes(both).starts_with("20 records"), "{}", notes(both));
    let filtered: fn(&mut PerfData) = |file| {
        file.lost_in_all(9, true);
    };
    assert_eq!(notes(filtered), "");
}

/// The file of `data` whose records are these.
fn with_records(data: &PerfData, records: &[u8]) -> Vec<u8> {
    let part = PerfData {
        records: records.to_vec(),
        ..data.clone()
    };
    part.bytes()
}

#[test]
fn the_folder_of_a_recording_by_several_threads_gives_the_profile_of_one_file() {
    let whole = four_threads();
    // The records in turn to the main file and to three threads.
    let (mut parts, mut rest, mut turn) = ([const { Vec::new() }; 4], &whole.records[..], 0);
    while rest.len() >= 8 {
        let size = usize::from(u16::from_le_bytes([rest[6], rest[7]]));
        parts[turn % 4].extend(&rest[..size]);
        (rest, turn) = (&rest[size..], turn + 1);
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("perf.data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("data"), with_records(&whole, &parts[0])).unwrap();
    for (at, part) in parts[1..].iter().enumerate() {
        std::fs::write(data.join(format!("data.{at}")), part).unwrap();
    }
    let (one, several) = (
        imported(&whole, &Options::default()).unwrap(),
        import(&data, &Options::default()).unwrap(),
    );
    assert!(several.meta().complete);
    assert_eq!(several.threads(), one.threads());
    assert_eq!(several.pages().total(), one.pages().total());
    let layer = Layer::SampledLine;
    assert_eq!(cells(&several, layer), cells(&one, layer));
    // A thread's file that was cut short.
    let last = data.join("data.2");
    std::fs::write(&last, &parts[3][..parts[3].len() - 3]).unwrap();
    let cut = import(&data, &Options::default()).unwrap();
    assert!(!cut.meta().complete && cut.pages().total() < one.pages().total());
    std::fs::write(&last, [0; 40]).unwrap();
    let error = import(&data, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("data.2"), "{error}");
}

#[test]
fn a_folder_of_perf_record_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    let status = std::process::Command::new("perf")
        .args([
            "record",
            "-q",
            "--threads",
            "-c",
            "1",
            "-d",
            "-e",
            "page-faults:u",
            "-o",
        ])
        .arg(&path)
        .args(["--", "/usr/bin/python3", "-c", "b = bytearray(1 << 20)"])
        .env("PYTHONMALLOC", "malloc")
        .status()
        .expect("perf is installed (make packages)");
    // Older versions of perf have no such option.
    if !status.success() {
        return;
    }
    assert!(path.is_dir());
    let profile = import(&path, &Options::default()).unwrap();
    assert!(
        profile.threads()[0].accesses >= 256,
        "{:?}",
        profile.threads()
    );
}

#[test]
fn a_file_cut_anywhere_is_refused_or_marked_never_a_panic() {
    let whole = four_threads().bytes();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    let (mut refused, mut partial) = (0, 0);
    for length in (0..whole.len()).step_by(7) {
        std::fs::write(&path, &whole[..length]).unwrap();
        match import(&path, &Options::default()) {
            Ok(profile) => {
                partial += 1;
                // Only the features after the records may be missing from a profile marked complete.
                let records_end = whole.len() - 1000;
                assert!(!profile.meta().complete || length > records_end, "{length}");
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().contains('\n'));
            }
        }
    }
    assert!(
        refused > 20 && partial > 100,
        "{refused} refused, {partial} partial"
    );
}

#[test]
fn a_killed_perf_leaves_a_file_that_is_still_read() {
    let mut bytes = four_threads().bytes();
    // perf writes the size of the data last.
    bytes[48..56].fill(0);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    std::fs::write(&path, bytes).unwrap();
    let profile = import(&path, &Options::default()).unwrap();
    assert!(!profile.meta().complete);
    assert_eq!(profile.threads().len(), 4);
    assert_eq!(profile.pages().total(), 80_000);
}

#[test]
fn any_byte_may_be_wrong() {
    let whole = four_threads().bytes();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    // Every byte of header, ids and attributes and of the first records; then a stride through the rest.
    let positions = (0..700).chain((700..whole.len()).step_by(11));
    std::fs::write(&path, &whole).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    for position in positions {
        for value in [0, 1, 0x80, 0xff, whole[position]] {
            file.write_all_at(&[value], position as u64).unwrap();
            if let Ok(profile) = import(&path, &Options::default()) {
                profile.matrix(Layer::SampledLine, Amount::Events).unwrap();
            }
        }
    }
}

#[test]
fn messages_state_the_error_and_its_offset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    let message = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let error = import(&path, &Options::default()).unwrap_err();
        error.to_string().replace(&path.display().to_string(), "F")
    };
    assert_eq!(message(b"0,1\n1,0\n"), "F is not a perf.data file: 8 bytes");
    assert_eq!(
        message(b"0,1,2,3,4,5,6,7,8,9\n"),
        "F is not a perf.data file: it begins with 0,1,2,3,"
    );
    let whole = four_threads().bytes();
    let with = |at: usize, word: u64| {
        let mut bytes = whole.clone();
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        bytes
    };
    assert_eq!(
        message(&with(8, 16)),
        "cannot import F: perf wrote it through a pipe"
    );
    assert_eq!(
        message(&with(16, 0)),
        "cannot read F: byte 16: found events of 0 bytes, expected 80 to 4096"
    );
    assert_eq!(
        message(&with(24, u64::MAX)),
        "cannot read F: byte 24: found events that end at 0xffffffffffffffff, expected a section inside the file"
    );
    assert_eq!(
        message(&with(40, 1 << 40)),
        "cannot read F: byte 40: found records at 0x10000000000, expected records between header and end of file"
    );
    let mut empty = PerfData::default();
    empty.exec(1, "app", 1);
    empty.sample((1, 1), 5, 0, LOAD, 0);
    assert_eq!(
        message(&empty.bytes()),
        "no sample with a data address in F (1 samples without)"
    );
    let mut spe = PerfData::default();
    spe.record(71, 0, &[0; 40]);
    assert_eq!(
        message(&spe.bytes()),
        "cannot import F: it holds a raw hardware trace (Arm SPE or Intel PT)"
    );
}

/// A file written by perf itself: page faults have data addresses on every machine.
#[test]
fn a_file_of_perf_record_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    // Two threads of python write a megabyte each.
    let program = "import threading\n\
        def work(): b = bytearray(1 << 20); b[::4096] = bytes(256)\n\
        t = [threading.Thread(target=work) for _ in range(2)]\n\
        [x.start() for x in t]; [x.join() for x in t]\n";
    let status = std::process::Command::new("perf")
        .args(["record", "-q", "-c", "1", "-d", "-e", "page-faults:u", "-o"])
        .arg(&path)
        .args(["--", "/usr/bin/python3", "-c", program])
        .env("PYTHONMALLOC", "malloc")
        .status()
        .expect("perf is installed (make packages)");
    assert!(status.success());
    let profile = import(&path, &Options::default()).unwrap();
    let paths: Vec<&str> = profile.threads().iter().map(|t| t.path.as_str()).collect();
    assert_eq!(paths, ["0", "0.1", "0.2"]);
    assert_eq!(profile.meta().command[..2], ["/usr/bin/python3", "-c"]);
    // Each thread faulted in its own megabyte, at least 256 pages, and touched them first.
    for thread in &profile.threads()[1..] {
        assert!(thread.accesses >= 256, "{thread:?}");
    }
    assert!(
        profile
            .pages()
            .pages()
            .iter()
            .all(|page| page.first_touch.is_some())
    );
    assert_eq!(profile.meta().sampled, 1.0);
}
