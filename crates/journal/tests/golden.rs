//! The bytes of journals: one record of every kind, written before the records were a table, is written and read with
//! the same bytes.

use std::path::Path;

use numaloc_journal::{
    AccessKind, AccessSample, Journal, LAYOUT, Record, SiteCount, SiteKind, Visitor, replay,
};

/// One record of every kind, with the smallest and largest values of its fields.
fn records() -> Vec<Record> {
    let mut records = vec![
        Record::Process {
            version: 3,
            pid: u32::MAX,
            path: "r3.1".into(),
            image: 2,
            frontend: "instrument".into(),
            virtual_clock: false,
            line_shift: 19,
            time_share_ppm: 1,
            line_share_ppm: 1_000_000,
            program: "/opt/a program, with=signs%".into(),
        },
        Record::ThreadStart {
            thread: 0,
            path: "0.1".into(),
            tid: 4_000_000,
            time: u64::MAX,
            routine: 127,
        },
        Record::ThreadTotals {
            thread: 128,
            time: 1 << 32,
            accesses: 16_383,
            seen: 16_384,
            read_bytes: 0,
            write_bytes: u64::MAX,
        },
        Record::Comm {
            thread: 1,
            layer: 255,
            start: 65536,
            length: 1,
            cells: vec![(0, 3, 24), (u32::MAX, u64::MAX, 1)],
        },
        Record::Pages {
            thread: 1,
            start: 0,
            length: u64::MAX,
            cells: vec![(5, 1, 2), (9, 0, u64::MAX), ((1 << 40) - 1, 7, 7)],
        },
        Record::FirstTouch {
            thread: 9,
            cells: vec![((1 << 40) - 1, 3), (0, u64::MAX)],
        },
        Record::Map {
            sequence: 1,
            thread: 2,
            address: 0x7fff_0000_1000,
            length: 4096,
            protection: 3,
            flags: 0x22,
            file: String::new(),
            offset: 1 << 40,
            moved_from: 5,
        },
        Record::Unmap {
            sequence: 1 << 20,
            address: 4096,
            length: 1,
        },
        Record::Backing {
            sequence: 3,
            address: 0x7000_0000,
            length: 1 << 30,
            object: 65535,
            offset: 1 << 40,
        },
        Record::ThreadName {
            thread: 1,
            name: "GC Thread#0".into(),
        },
        Record::Site {
            site: 3,
            frames: vec![u64::MAX, 5],
        },
        Record::Block {
            sequence: 9,
            thread: 1,
            address: 1 << 46,
            length: 40,
            site: 3,
        },
        Record::CrossProcessNumber {
            thread: 1,
            number: 70000,
        },
        Record::TableOfHost("n2.example".to_owned()),
        Record::Break {
            sequence: 0,
            address: 0x5555_0000_0000,
        },
        Record::Stack {
            sequence: 4,
            path: "0.2.1".into(),
            pointer: 0x7fff_ffff_fff0,
        },
        Record::Image {
            file: "/bin/true".into(),
            start: 0x40_0000,
            end: 0x40_2000,
        },
        Record::Lines {
            thread: 4,
            start: 1,
            length: 2,
            lines: vec![7, 8, 1 << 58, u64::MAX],
        },
        Record::SharedLines(vec![(1 << 40, 9, 3), (0, 1, 0)]),
        Record::Groups {
            thread: 2,
            layer: 6,
            src: 1,
            counts: vec![0, 7, u64::MAX],
        },
        Record::Expected {
            path: "0.p1".into(),
            image: 1,
            time: u64::MAX,
            program: "/bin/other".into(),
        },
        Record::Withdrawn {
            path: "0.p1".into(),
            image: 1,
        },
        Record::Forked {
            parent: "0".into(),
            image: 2,
            sequence: 300,
        },
        Record::Reduced("pages are not counted from here on".into()),
        Record::Note("ümlaut".into()),
        Record::Sharing("GOMP_task".into()),
        Record::MarkPlace {
            place: 511,
            kind: 3,
            name: "solve".into(),
            function: 1 << 46,
        },
        Record::Mark {
            thread: 1,
            place: 511,
            occurrence: 10_000_000,
            time: u64::MAX,
        },
        Record::Sites {
            thread: 3,
            cells: vec![
                SiteCount {
                    kind: SiteKind::Communication,
                    other: u32::MAX,
                    page: (1 << 40) - 1,
                    place: 1 << 46,
                    other_place: u64::MAX,
                    samples: 1,
                    amount: u64::MAX,
                },
                SiteCount {
                    kind: SiteKind::Store,
                    other: 0,
                    page: 5,
                    place: 0,
                    other_place: 0,
                    samples: 7,
                    amount: 7,
                },
            ],
        },
        Record::Accesses {
            thread: 3,
            cells: vec![
                AccessSample {
                    address: 1 << 46,
                    size: 8,
                    kind: AccessKind::Atomic,
                    time: 1 << 40,
                    accesses: 1 << 39,
                    since: 1 << 39,
                    until: 1 << 41,
                    guard: 0,
                    odd: true,
                    closed: false,
                    place: 1 << 46,
                    amount: u64::MAX,
                },
                AccessSample {
                    address: 64,
                    size: 255,
                    kind: AccessKind::Load,
                    time: 7,
                    accesses: 1 << 40,
                    since: 7,
                    until: 7,
                    guard: 128,
                    odd: false,
                    closed: true,
                    place: 0,
                    amount: 1,
                },
            ],
        },
    ];
    records.push(Record::MemoryPolicy {
        policy: 1,
        mode: 3,
        nodes: u64::MAX,
        home: 2,
    });
    records.push(Record::Placed {
        thread: 3,
        forks: 1,
        rule: 6,
        policy: 1,
        time: 1 << 33,
        page: (1 << 40) - 1,
        count: 512,
    });
    records.push(Record::End);
    records.push(Record::TaskName {
        tid: u32::MAX,
        name: "io_thd_1".into(),
    });
    records.push(Record::Title("postgres: checkpointer".into()));
    records.push(Record::MemoryName {
        sequence: 128,
        address: 1 << 40,
        length: 127,
        name: "heap".into(),
    });
    records
}

fn golden() -> Vec<u8> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/every-record.journal");
    std::fs::read(file).unwrap()
}

#[test]
fn every_record_is_written_with_the_bytes_of_the_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let journal = Journal::create(&path).unwrap();
    let mut payload = Vec::new();
    Journal::begin(&mut payload);
    for record in records() {
        record.encode(&mut payload);
    }
    journal.append(&mut payload);
    assert_eq!(std::fs::read(&path).unwrap(), golden());
}

#[test]
fn every_record_of_the_format_is_read() {
    let mut seen = Vec::new();
    assert!(replay(&golden(), |record| seen.push(record)));
    assert_eq!(seen, records());
}

/// Collects the fields and numbers of a record.
#[derive(Default)]
struct Parts(Vec<(&'static str, String)>);

impl Visitor for Parts {
    fn number(&mut self, field: &'static str, value: u64) {
        self.0.push((field, value.to_string()));
    }

    fn text(&mut self, field: &'static str, text: &str) {
        self.0.push((field, text.to_owned()));
    }
}

#[test]
fn a_visitor_receives_the_fields_in_the_order_of_the_layout() {
    for record in records() {
        let mut parts = Parts::default();
        record.visit(&mut parts);
        let layout = LAYOUT
            .iter()
            .find(|layout| layout.kind == record.kind())
            .unwrap();
        let mut seen: Vec<&str> = parts.0.iter().map(|part| part.0).collect();
        seen.dedup();
        let listed: Vec<&str> = layout.fields.iter().map(|field| field.name).collect();
        assert_eq!(seen, listed, "{}", layout.name);
    }
}

#[test]
fn the_test_has_a_record_of_every_kind() {
    let mut tested: Vec<u8> = records().iter().map(Record::kind).collect();
    tested.sort_unstable();
    let listed: Vec<u8> = LAYOUT.iter().map(|layout| layout.kind).collect();
    assert_eq!(tested, listed);
}
