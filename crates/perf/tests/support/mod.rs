//! Writes `perf.data` files from the format's description, independently of the importer.

#![allow(dead_code)]

use std::path::{Path, PathBuf};

pub const LOAD: u64 = 2;
pub const STORE: u64 = 4;
/// `mem_lvl`: hit in L1, hit in local memory, hit in remote memory one hop away.
pub const L1: u64 = (2 | 0x8) << 5;
pub const LOCAL: u64 = (2 | 0x80) << 5;
pub const REMOTE: u64 = (2 | 0x100) << 5;

/// IP, TID, TIME, ADDR, ID, PERIOD, WEIGHT, DATA_SRC: what `perf mem record` asks for.
pub const MEMORY: u64 = 1 | 2 | 4 | 8 | 1 << 6 | 1 << 8 | 1 << 14 | 1 << 15;

/// A file under construction.
#[derive(Clone)]
pub struct PerfData {
    pub sample_type: u64,
    pub period: u64,
    pub big_endian: bool,
    pub events: Vec<&'static str>,
    pub command: Vec<&'static str>,
    pub records: Vec<u8>,
}

impl Default for PerfData {
    fn default() -> Self {
        Self {
            sample_type: MEMORY,
            period: 1000,
            big_endian: false,
            events: vec!["cpu/mem-loads,ldlat=30/P"],
            command: vec!["perf", "mem", "record", "./app", "--size", "10"],
            records: Vec::new(),
        }
    }
}

impl PerfData {
    fn u16(&self, to: &mut Vec<u8>, word: u16) {
        to.extend(if self.big_endian {
            word.to_be_bytes()
        } else {
            word.to_le_bytes()
        });
    }

    fn u32(&self, to: &mut Vec<u8>, word: u32) {
        to.extend(if self.big_endian {
            word.to_be_bytes()
        } else {
            word.to_le_bytes()
        });
    }

    fn u64(&self, to: &mut Vec<u8>, word: u64) {
        to.extend(if self.big_endian {
            word.to_be_bytes()
        } else {
            word.to_le_bytes()
        });
    }

    pub fn record(&mut self, kind: u32, misc: u16, body: &[u8]) -> &mut Self {
        let mut bytes = Vec::new();
        self.u32(&mut bytes, kind);
        self.u16(&mut bytes, misc);
        self.u16(&mut bytes, 8 + body.len() as u16);
        bytes.extend(body);
        self.records.extend(bytes);
        self
    }

    /// The fields at the end of every record that is no sample: pid and tid, time, id.
    fn trailer(&self, body: &mut Vec<u8>, pid: u32, tid: u32, time: u64) {
        self.u32(body, pid);
        self.u32(body, tid);
        self.u64(body, time);
        self.u64(body, 1);
    }

    pub fn exec(&mut self, pid: u32, name: &str, time: u64) -> &mut Self {
        let mut body = Vec::new();
        self.u32(&mut body, pid);
        self.u32(&mut body, pid);
        let mut text = name.as_bytes().to_vec();
        text.resize(text.len() / 8 * 8 + 8, 0);
        body.extend(text);
        self.trailer(&mut body, pid, pid, time);
        self.record(3, 1 << 13, &body)
    }

    pub fn fork(&mut self, pid: u32, ppid: u32, tid: u32, ptid: u32, time: u64) -> &mut Self {
        let mut body = Vec::new();
        for word in [pid, ppid, tid, ptid] {
            self.u32(&mut body, word);
        }
        self.u64(&mut body, time);
        self.trailer(&mut body, pid, tid, time);
        self.record(7, 0, &body)
    }

    pub fn lost(&mut self, count: u64) -> &mut Self {
        let mut body = Vec::new();
        self.u64(&mut body, 1);
        self.u64(&mut body, count);
        self.trailer(&mut body, 0, 0, 1);
        self.record(2, 0, &body)
    }

    /// What newer versions of perf write at the end in addition, or (`filtered`) for samples that a filter left out.
    pub fn lost_in_all(&mut self, count: u64, filtered: bool) -> &mut Self {
        let mut body = Vec::new();
        self.u64(&mut body, count);
        self.trailer(&mut body, 0, 0, 1);
        self.record(13, u16::from(filtered) << 15, &body)
    }

    /// A sample of the event with id `event` (from 1).
    pub fn sample_of(
        &mut self,
        event: u64,
        (pid, tid): (u32, u32),
        time: u64,
        address: u64,
        source: u64,
        latency: u64,
    ) -> &mut Self {
        let mut body = Vec::new();
        self.u64(&mut body, 0x40_1000);
        self.u32(&mut body, pid);
        self.u32(&mut body, tid);
        for word in [time, address, event, self.period, latency, source] {
            self.u64(&mut body, word);
        }
        self.record(9, 2, &body)
    }

    pub fn sample(
        &mut self,
        thread: (u32, u32),
        time: u64,
        address: u64,
        source: u64,
        latency: u64,
    ) -> &mut Self {
        self.sample_of(1, thread, time, address, source, latency)
    }

    /// The whole file.
    pub fn bytes(&self) -> Vec<u8> {
        const HEADER: u64 = 104;
        const ATTR: u64 = 136;
        let events = self.events.len() as u64;
        let ids_at = HEADER;
        let attrs_at = ids_at + events * 8;
        let data_at = attrs_at + events * (ATTR + 16);
        let mut file = Vec::new();
        file.extend(if self.big_endian {
            b"2ELIFREP"
        } else {
            b"PERFILE2"
        });
        let data = self.records.len() as u64;
        for word in [
            HEADER,
            ATTR + 16,
            attrs_at,
            events * (ATTR + 16),
            data_at,
            data,
            0,
            0,
        ] {
            self.u64(&mut file, word);
        }
        // Features: command line (11) and event names (12).
        self.u64(&mut file, 1 << 11 | 1 << 12);
        for _ in 0..3 {
            self.u64(&mut file, 0);
        }
        for id in 1..=events {
            self.u64(&mut file, id);
        }
        let attr = |file: &mut Vec<u8>| {
            let start = file.len();
            self.u32(file, 4);
            self.u32(file, ATTR as u32);
            for word in [0x1cd, self.period, self.sample_type, 4, 1 << 18] {
                self.u64(file, word);
            }
            file.resize(start + ATTR as usize, 0);
        };
        for event in 0..events {
            attr(&mut file);
            self.u64(&mut file, ids_at + event * 8);
            self.u64(&mut file, 8);
        }
        file.extend(&self.records);

        let string = |to: &mut Vec<u8>, text: &str| {
            let mut text = text.as_bytes().to_vec();
            text.resize(text.len() / 64 * 64 + 64, 0);
            self.u32(to, text.len() as u32);
            to.extend(text);
        };
        let mut command = Vec::new();
        self.u32(&mut command, self.command.len() as u32);
        for word in &self.command {
            string(&mut command, word);
        }
        let mut names = Vec::new();
        self.u32(&mut names, events as u32);
        self.u32(&mut names, ATTR as u32);
        for (at, name) in self.events.iter().enumerate() {
            attr(&mut names);
            self.u32(&mut names, 1);
            string(&mut names, name);
            self.u64(&mut names, at as u64 + 1);
        }
        let features_at = data_at + data + 32;
        for (offset, section) in [(0, &command), (command.len(), &names)] {
            self.u64(&mut file, features_at + offset as u64);
            self.u64(&mut file, section.len() as u64);
        }
        file.extend(command);
        file.extend(names);
        file
    }

    pub fn write(&self, folder: &Path) -> PathBuf {
        let path = folder.join("perf.data");
        std::fs::write(&path, self.bytes()).unwrap();
        path
    }
}

/// A program of four threads: 1 writes a line that 2 reads; 3 and 0 share a line that only 0 stores to,
/// after 3 loaded it; every thread also has a page of its own.
pub fn four_threads() -> PerfData {
    let mut file = PerfData::default();
    file.exec(100, "app", 1_000_000);
    for tid in 101..=103 {
        file.fork(100, 100, tid, 100, 1_000_000 + u64::from(tid));
    }
    let line = 0x7f00_0000_0000;
    for round in 0..10_u64 {
        let at = 2_000_000 + round * 1_000_000;
        file.sample((100, 101), at, line, STORE | L1, 0);
        file.sample((100, 102), at + 1000, line + 8, LOAD | LOCAL, 300);
        file.sample((100, 103), at + 2000, line + 0x1000, LOAD | L1, 4);
        file.sample((100, 100), at + 3000, line + 0x1010, STORE | L1, 0);
        for thread in 0..4_u64 {
            let own = line + 0x10_0000 + thread * 0x1000;
            file.sample(
                (100, 100 + thread as u32),
                at + 4000 + thread,
                own,
                LOAD | REMOTE,
                500,
            );
        }
    }
    file
}
