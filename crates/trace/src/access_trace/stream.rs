//! A thread's access trace: packs its accesses into blocks of records and sends them to the recorder.

use numaloc_access_trace::columns::{self, Columns, Packer};
use numaloc_access_trace::message::{Block, Message, Thread};
use numaloc_access_trace::windows::Thinner;
use numaloc_access_trace::{BLOCK_RECORDS, Kind, Record};

use super::Outlet;
use super::arrivals::Arrivals;
use super::caches::PrivateCaches;

/// log2 of the size of a synchronisation word in bytes.
const WORD_SHIFT: u32 = 2;
/// A repeated release of a word within this many accesses, with no record in between, is not recorded.
const SAME_RELEASE: u64 = 64;

/// Records packed together: few enough to stay in the first-level cache.
const BATCH: usize = 512;
/// Most records of one line's access: a miss and a write-back.
const MARGIN: usize = 2;

/// The part of a thread's trace that is not sent yet.
pub struct Stream {
    outlet: &'static Outlet,
    caches: PrivateCaches,
    shift: u32,
    thread: u32,
    /// Records that are not packed yet.
    records: Vec<Record>,
    /// Number of records above which they are packed.
    full: usize,
    /// Leaves out what is outside the windows, if the trace has windows; and what it has kept of the last records.
    thinner: Option<Thinner>,
    thinned: Vec<Record>,
    packed: Packer,
    /// The last packed record.
    last_packed: Option<Record>,
    /// Accesses since the last record.
    work: u64,
    /// The line of the last access, and whether the private caches held it.
    last: (u64, bool),
    arrivals: Arrivals,
    /// The fetch that the address of the next load comes from, 0 for none.
    after: u64,
    /// Accesses of the packed records, and how far they advance the clock.
    accesses: u64,
    elapsed: u64,
    /// Clock before the next block's first record, and that record's number.
    clock: u64,
    first: u64,
    bytes: Vec<u8>,
}

impl Stream {
    /// The trace of thread `thread`, which begins at `clock`; `writer`, from 1, is its number in the directory. `None`
    /// if the recorder takes no more.
    pub fn new(
        outlet: &'static Outlet,
        thread: u32,
        writer: u32,
        path: &str,
        clock: u64,
    ) -> Option<Box<Self>> {
        if outlet.closed() {
            return None;
        }
        outlet.send(&Message::Thread(Thread {
            number: thread,
            clock,
            path: path.to_owned(),
        }));
        let filter = outlet.filter;
        Some(Box::new(Self {
            outlet,
            caches: PrivateCaches::new(filter.l1, filter.l2, outlet.directory, writer),
            shift: outlet.directory.shift(),
            thread,
            records: Vec::with_capacity(BATCH),
            full: BATCH - MARGIN,
            thinner: filter
                .windows
                .map(|windows| Thinner::new(windows, outlet.directory.shift(), clock)),
            thinned: Vec::new(),
            packed: Packer::default(),
            last_packed: None,
            work: 0,
            last: (u64::MAX, false),
            arrivals: Arrivals::new(),
            after: 0,
            accesses: 0,
            elapsed: 0,
            clock,
            first: 0,
            bytes: Vec::new(),
        }))
    }

    /// Records one access of the program.
    #[inline(always)]
    pub fn access<const WRITE: bool>(&mut self, address: u64, size: u32) {
        self.work += 1;
        let last = address.saturating_add(u64::from(size.max(1)) - 1) >> self.shift;
        let mut line = address >> self.shift;
        loop {
            let (records, work) = (&mut self.records, &mut self.work);
            let (arrivals, after) = (&mut self.arrivals, self.after);
            let record = |kind, line| {
                let work = std::mem::take(work);
                records.push(match kind {
                    Kind::Read => Record::load(line, work, arrivals.fetch(line, after)),
                    Kind::Write => {
                        arrivals.fetch(line, 0);
                        Record::new(kind, line, work)
                    }
                    _ => Record::new(kind, line, work),
                });
            };
            let held = self.caches.access::<WRITE>(line, record);
            self.last = (line, held);
            if self.records.len() > self.full {
                self.pack();
            }
            if line == last {
                break;
            }
            line += 1;
        }
    }

    /// The address of the accesses until [`Stream::loaded`] or [`Stream::stored`] comes from fetch `after`, 0 for none.
    #[inline(always)]
    pub fn wait_for(&mut self, after: u64) {
        self.after = after;
    }

    /// The fetch that the value of a load comes from, 0 for none.
    #[inline(always)]
    pub fn loaded(&mut self, address: u64) -> u64 {
        let after = std::mem::take(&mut self.after);
        self.arrivals.loaded(address >> self.shift, address, after)
    }

    /// A value that comes from fetch `after`, 0 for none, was stored in a word.
    #[inline(always)]
    pub fn stored(&mut self, address: u64, after: u64) {
        self.after = 0;
        self.arrivals.store(address, after);
    }

    fn push(&mut self, kind: Kind, value: u64) {
        self.records
            .push(Record::new(kind, value, std::mem::take(&mut self.work)));
        if self.records.len() > self.full {
            self.pack();
        }
    }

    /// Records that the thread takes the clock of a word, which advances its own by `jump`.
    pub fn acquire(&mut self, address: u64, jump: u64) {
        // A line that is still cached was not written by another thread since the clock was last taken.
        if jump == 0 && self.last == (address >> self.shift, true) {
            return;
        }
        if jump > 0 {
            self.push(Kind::Clock, jump);
        }
        self.push(Kind::Acquire, address >> WORD_SHIFT);
    }

    /// Records that the thread waits for `jump` for something that is no word.
    pub fn idle(&mut self, jump: u64) {
        self.push(Kind::Clock, jump);
    }

    /// Records that the thread leaves its clock at a word.
    pub fn release(&mut self, address: u64) {
        let value = address >> WORD_SHIFT;
        if self.work < SAME_RELEASE
            && self
                .records
                .last()
                .or(self.last_packed.as_ref())
                .is_some_and(|last| last.kind() == Kind::Release && last.value() == value)
        {
            return;
        }
        self.push(Kind::Release, value);
    }

    /// Advances the thread's clock to the wall clock's `now`. Only for recordings by the wall clock, whose threads
    /// pass no clocks on.
    pub fn move_to(&mut self, now: u64) {
        let clock = self.clock + self.elapsed + elapsed(&self.records) + self.work;
        if now > clock {
            self.push(Kind::Clock, now - clock);
        }
    }

    /// Records that the thread is about to create its `n`-th child.
    pub fn create(&mut self, n: u32) {
        self.push(Kind::Create, n.into());
    }

    /// Whether the recorder takes no more, so that the stream can be dropped.
    #[must_use]
    pub fn closed(&self) -> bool {
        self.outlet.closed()
    }

    /// Sends all records.
    pub fn flush(&mut self) {
        if self.work > 0 {
            self.push(Kind::Clock, 0);
        }
        self.pack();
        if let Some(thinner) = &mut self.thinner {
            thinner.flush(&mut self.thinned);
            self.add_thinned();
        }
        if self.packed.count() > 0 {
            self.send();
        }
    }

    /// Packs the records, and sends the block if it is full.
    #[cold]
    #[inline(never)]
    fn pack(&mut self) {
        self.last_packed = self.records.last().copied().or(self.last_packed);
        let mut records = std::mem::take(&mut self.records);
        match &mut self.thinner {
            Some(thinner) => {
                thinner.thin(&records, &mut self.thinned);
                self.add_thinned();
            }
            None => self.add(&records),
        }
        records.clear();
        self.records = records;
        self.full = BATCH.min(BLOCK_RECORDS - self.packed.count()) - MARGIN;
    }

    /// Adds what the thinner has kept to the block.
    fn add_thinned(&mut self) {
        let mut thinned = std::mem::take(&mut self.thinned);
        self.add(&thinned);
        thinned.clear();
        self.thinned = thinned;
    }

    /// Adds records to the block, and sends it whenever it is full.
    fn add(&mut self, mut records: &[Record]) {
        while !records.is_empty() {
            let room = BLOCK_RECORDS - self.packed.count();
            let (now, later) = records.split_at(records.len().min(room));
            self.packed.extend(now);
            self.accesses += accesses(now);
            self.elapsed += elapsed(now);
            if self.packed.count() > BLOCK_RECORDS - MARGIN {
                self.send();
            }
            records = later;
        }
    }

    /// Sends the packed records as a block.
    fn send(&mut self) {
        let counts = std::mem::take(&mut self.caches.counts);
        let block = Block {
            thread: self.thread,
            first: self.first,
            count: self.packed.count() as u32,
            clock: self.clock,
            accesses: std::mem::take(&mut self.accesses),
            l1_hits: counts.l1_hits,
            l2_hits: counts.l2_hits,
            coherence_misses: counts.coherence_misses,
        };
        self.bytes.clear();
        Message::Block(block, &[]).encode(&mut self.bytes);
        let head = self.bytes.len();
        self.packed.finish(&mut self.bytes);
        self.last_packed = None;
        self.first += u64::from(block.count);
        self.clock += std::mem::take(&mut self.elapsed);
        match self.outlet.send_bytes(&self.bytes) {
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                let columns = self.bytes.split_off(head);
                let records = Columns::new(columns, block.count as usize);
                self.send_parts(block, &records.into_iter().flatten().collect::<Vec<_>>());
            }
            Err(_) => self.outlet.stop(),
            Ok(()) => {}
        }
    }

    /// Sends a block in parts, because the system's buffer is smaller.
    #[cold]
    fn send_parts(&mut self, mut block: Block, mut records: &[Record]) {
        let mut part = records.len().div_ceil(2);
        while !records.is_empty() && !self.outlet.closed() {
            let (now, later) = records.split_at(part.min(records.len()));
            (block.count, block.accesses) = (now.len() as u32, accesses(now));
            self.bytes.clear();
            Message::Block(block, &[]).encode(&mut self.bytes);
            columns::encode(now, &mut self.bytes);
            match self.outlet.send_bytes(&self.bytes) {
                Ok(()) => {
                    block.first += u64::from(block.count);
                    block.clock += elapsed(now);
                    (block.l1_hits, block.l2_hits, block.coherence_misses) = (0, 0, 0);
                    records = later;
                }
                Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) && part > 1 => part /= 2,
                Err(_) => self.outlet.stop(),
            }
        }
    }
}

fn accesses(records: &[Record]) -> u64 {
    records.iter().map(|record| record.work).sum()
}

/// How far these records advance a clock.
fn elapsed(records: &[Record]) -> u64 {
    records
        .iter()
        .map(|record| match record.kind() {
            Kind::Clock => record.work + record.value(),
            _ => record.work,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::access_trace::Filter;
    use crate::access_trace::receive::{Receiver, Sink};

    /// Lines that were read, and the number of blocks received.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<(Vec<u64>, usize)>>);

    impl Sink for Lines {
        fn take(&self, message: &[u8]) -> bool {
            if let Ok(Message::Block(block, columns)) = Message::decode(message) {
                let (lines, blocks) = &mut *self.0.lock().unwrap();
                assert_eq!(
                    (block.first, block.clock),
                    (lines.len() as u64, lines.len() as u64)
                );
                assert_eq!(block.accesses, u64::from(block.count));
                let columns = Columns::new(columns.to_vec(), block.count as usize).unwrap();
                lines.extend(columns.map(Record::value));
                *blocks += 1;
            }
            true
        }
    }

    #[test]
    fn a_block_larger_than_the_socket_buffer_is_sent_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let received = Lines::default();
        let sink = received.clone();
        let receiver = Receiver::listen(folder.path(), 1, move || sink.clone()).unwrap();
        let image = (0, "0");
        let outlet = Outlet::open(Filter::default(), folder.path(), 6, image).unwrap();
        let outlet: &'static Outlet = Box::leak(Box::new(outlet));
        outlet.socket.hold(8 << 10);
        let mut stream = Stream::new(outlet, 0, 1, "0", 0).unwrap();
        // Differences too large for a byte: about 80 KiB.
        let lines: Vec<u64> = (0..BLOCK_RECORDS as u64).map(|at| at * at * 1000).collect();
        for line in &lines {
            stream.access::<false>(line << 6, 8);
        }
        stream.flush();
        outlet.close();
        receiver.finish();
        let (read, blocks) = &*received.0.lock().unwrap();
        assert!(*read == lines);
        assert!(*blocks > 4, "{blocks}");
    }
}
