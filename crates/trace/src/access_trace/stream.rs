//! A thread's trace: from its accesses to blocks of records on their way to the recorder.

use numaloc_access_trace::message::{Block, Message, Thread};
use numaloc_access_trace::{BLOCK_RECORDS, Kind, Record, columns};

use super::Outlet;
use super::caches::PrivateCaches;

/// log2 of the bytes of a synchronisation word.
const WORD_SHIFT: u32 = 2;
/// A thread that releases a word again within so many accesses, with nothing to tell in between, does not tell of it again.
const SAME_RELEASE: u64 = 64;

/// What one thread has not sent yet.
pub struct Stream {
    outlet: &'static Outlet,
    caches: PrivateCaches,
    shift: u32,
    thread: u32,
    records: Vec<Record>,
    /// Accesses since the last record.
    work: u64,
    /// The line of the last access, and whether the private caches held it.
    last: (u64, bool),
    /// Clock, number and accesses of the next block's first record.
    clock: u64,
    first: u64,
    bytes: Vec<u8>,
}

impl Stream {
    /// The trace of thread `thread`, which begins at `clock`; the directory knows it as `writer`, from 1. `None` when the
    /// recorder takes no more.
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
            records: Vec::with_capacity(BLOCK_RECORDS),
            work: 0,
            last: (u64::MAX, false),
            clock,
            first: 0,
            bytes: Vec::new(),
        }))
    }

    /// One access of the program.
    #[inline(always)]
    pub fn access<const WRITE: bool>(&mut self, address: u64, size: u32) {
        self.work += 1;
        let last = address.saturating_add(u64::from(size.max(1)) - 1) >> self.shift;
        for line in address >> self.shift..=last {
            let (records, work) = (&mut self.records, &mut self.work);
            let tell = |kind, line| records.push(Record::new(kind, line, std::mem::take(work)));
            let held = self.caches.access::<WRITE>(line, tell);
            self.last = (line, held);
        }
        // An access tells of four things at most: two lines, and two that leave.
        if self.records.len() > BLOCK_RECORDS - 8 {
            self.send();
        }
    }

    fn push(&mut self, kind: Kind, value: u64) {
        self.records
            .push(Record::new(kind, value, std::mem::take(&mut self.work)));
        if self.records.len() > BLOCK_RECORDS - 8 {
            self.send();
        }
    }

    /// The thread takes the clock of a word, which moves its own on by `jump`.
    pub fn acquire(&mut self, address: u64, jump: u64) {
        // A line that is still in the caches was written by nobody else since the clock was last taken.
        if jump == 0 && self.last == (address >> self.shift, true) {
            return;
        }
        if jump > 0 {
            self.push(Kind::Clock, jump);
        }
        self.push(Kind::Acquire, address >> WORD_SHIFT);
    }

    /// The thread leaves its clock at a word.
    pub fn release(&mut self, address: u64) {
        let value = address >> WORD_SHIFT;
        if self.work < SAME_RELEASE
            && self
                .records
                .last()
                .is_some_and(|last| last.kind() == Kind::Release && last.value() == value)
        {
            return;
        }
        self.push(Kind::Release, value);
    }

    /// The thread is about to create its `n`-th.
    pub fn create(&mut self, n: u32) {
        self.push(Kind::Create, n.into());
    }

    /// Whether the recorder takes no more: the stream can be dropped.
    #[must_use]
    pub fn closed(&self) -> bool {
        self.outlet.closed()
    }

    /// Sends what there is.
    pub fn flush(&mut self) {
        if self.work > 0 {
            self.push(Kind::Clock, 0);
        }
        if !self.records.is_empty() {
            self.send();
        }
    }

    #[cold]
    #[inline(never)]
    fn send(&mut self) {
        let counts = std::mem::take(&mut self.caches.counts);
        let mut block = Block {
            thread: self.thread,
            first: self.first,
            count: 0,
            clock: self.clock,
            accesses: 0,
            l1_hits: counts.l1_hits,
            l2_hits: counts.l2_hits,
            coherence_misses: counts.coherence_misses,
        };
        let records = std::mem::take(&mut self.records);
        // Where the system holds less than the longest block, it goes in parts.
        let mut part = records.len();
        let mut rest = &records[..];
        while !rest.is_empty() && !self.outlet.closed() {
            let (now, later) = rest.split_at(part.min(rest.len()));
            block.count = now.len() as u32;
            block.accesses = now.iter().map(|record| record.work).sum();
            self.bytes.clear();
            Message::Block(block, &[]).encode(&mut self.bytes);
            columns::encode(now, &mut self.bytes);
            match self.outlet.send_bytes(&self.bytes) {
                Ok(()) => {
                    block.first += u64::from(block.count);
                    block.clock += elapsed(now);
                    (block.l1_hits, block.l2_hits, block.coherence_misses) = (0, 0, 0);
                    rest = later;
                }
                Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) && part > 1 => part /= 2,
                Err(_) => self.outlet.stop(),
            }
        }
        (self.first, self.clock) = (block.first, block.clock);
        self.records = records;
        self.records.clear();
    }
}

/// How far a clock moves through these records.
fn elapsed(records: &[Record]) -> u64 {
    records
        .iter()
        .map(|record| match record.kind() {
            Kind::Clock => record.work + record.value(),
            _ => record.work,
        })
        .sum()
}
