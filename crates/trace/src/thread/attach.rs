//! Tracers for the threads of a process: the first one, announced ones, and those whose creation was not observed.

use std::time::Duration;

use numaloc_identity::Creator;
use numaloc_journal::Record;

use super::ThreadTracer;
use crate::engine::Engine;
use crate::line;
use crate::pages::PageCounters;
use crate::pending::PendingThread;
use crate::readers::Readers;

/// Longest that a new thread waits for its creator, which a busy host may not execute for seconds.
const CREATOR: Duration = Duration::from_secs(10);

impl Engine {
    /// The tracer of the process's first thread.
    pub fn first_thread(&'static self, tid: u32) -> Box<ThreadTracer> {
        let mut tracer = self.tracer(self.config.path.clone(), tid, self.config.clock, 0);
        tracer.creator = Creator::after(
            tracer.creator.path(),
            self.config.created_threads,
            self.config.created_processes,
        );
        tracer
    }

    fn tracer(
        &'static self,
        path: String,
        tid: u32,
        clock: u64,
        routine: u64,
    ) -> Box<ThreadTracer> {
        let numbers = self.population.add(&self.tables.readers);
        if numbers.first_crowded {
            self.write(&Record::Note(format!(
                "more than {} threads at once, or {} in all: communication of threads that share a number may be missed or mixed up",
                Readers::limit(),
                line::MAX_WRITER
            )));
        }
        self.write(&Record::ThreadStart {
            thread: numbers.thread,
            path: path.clone(),
            tid,
            time: clock,
            routine,
        });
        let counters = PageCounters::new().unwrap_or_else(|error| {
            // Address space has run out: stop recording, let the program run on.
            self.write(&Record::Note(format!(
                "recording stopped: no address space for the counters of thread {path}: {error}"
            )));
            self.stop();
            PageCounters::discarding(&self.tables.clocks)
        });
        Box::new(ThreadTracer::new(
            self,
            counters,
            numbers.thread,
            numbers.reader,
            path,
            clock,
        ))
    }

    /// The tracer of the calling thread, whose creator has announced it or is about to.
    ///
    /// Waits for the announcement, which is usually a few instructions away. After [`CREATOR`] the thread is attached
    /// as unknown ([`Engine::adopt_unknown`]).
    pub fn adopt(&'static self, tid: u32) -> Box<ThreadTracer> {
        let pending_thread = self.announced.take(tid, CREATOR);
        match pending_thread {
            Some(pending_thread) => {
                let mut tracer = self.tracer(
                    pending_thread.path,
                    tid,
                    pending_thread.clock,
                    pending_thread.routine,
                );
                tracer.clear_tid = pending_thread.clear_tid;
                tracer.contention.lags_by(pending_thread.lag);
                tracer
            }
            None => self.adopt_unknown(tid),
        }
    }

    /// The tracer of a calling thread whose creation was not observed: its path is its kernel id.
    pub fn adopt_unknown(&'static self, tid: u32) -> Box<ThreadTracer> {
        self.write(&Record::Note(format!(
            "the creator of thread {tid} was not seen: its path is not stable"
        )));
        let path = format!("{}.unknown-{tid}", self.config.path);
        self.tracer(path, tid, 0, 0)
    }

    /// The tracer of the calling thread, from what its creator has handed over.
    pub fn attach(&'static self, pending_thread: PendingThread, tid: u32) -> Box<ThreadTracer> {
        let lag = pending_thread.lag;
        let mut tracer = self.tracer(
            pending_thread.path,
            tid,
            pending_thread.clock,
            pending_thread.routine,
        );
        tracer.contention.lags_by(lag);
        tracer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn the_first_thread_leaves_its_own_word_in_lines() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config {
            folder: folder.path().to_owned(),
            frontend: "test".to_owned(),
            ..Config::default()
        };
        let engine: &'static Engine = Box::leak(Box::new(Engine::start(config, "test").unwrap()));
        let first = engine.first_thread(1);
        let second = engine.adopt_unknown(2);
        assert_eq!(first.fast.owned, line::FIRST_OWNED);
        assert_ne!(second.fast.owned, line::FIRST_OWNED);
    }
}
