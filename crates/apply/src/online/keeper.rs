//! A process that gives threads their own affinity back if numaloc is killed.
//!
//! It is forked before numaloc has threads and reads a pipe whose other end only numaloc has. At its end, for whatever
//! reason, every thread that still has the affinity that numaloc gave it gets the one that it had before. It has a
//! session of its own, so signals of the terminal do not reach it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};

use numaloc_sys::affinity;

use super::threads;
use crate::launch::{self, Forked};

/// A thread that numaloc bound.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bound {
    began: u64,
    pu: u32,
    before: Vec<u32>,
}

/// The process; it ends after this is dropped.
pub struct Keeper {
    pipe: Option<File>,
    process: Forked,
}

impl Keeper {
    /// Forks. Must be called while this process has one thread.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start() -> io::Result<Self> {
        let (pipe, process) = launch::fork_reader(|pipe| restore(&read(BufReader::new(pipe))))?;
        Ok(Self {
            pipe: Some(pipe),
            process,
        })
    }

    /// Thread `tid` is about to be bound to `pu`; before it may run on `before`.
    ///
    /// # Errors
    /// `EPIPE` if the process was killed: then nothing must be bound.
    pub fn note(&mut self, tid: i32, pu: u32, before: &[u32]) -> io::Result<()> {
        let began = threads::stat(tid).map_or(0, |stat| stat.began);
        let before: Vec<String> = before.iter().map(u32::to_string).collect();
        let line = format!("{tid} {began} {pu} {}\n", before.join(","));
        match &mut self.pipe {
            Some(pipe) => pipe.write_all(line.as_bytes()),
            None => Ok(()),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.pipe.take());
        self.process.wait();
    }
}

/// The last word on each thread; a line that is cut off is none.
fn read(lines: impl BufRead) -> BTreeMap<i32, Bound> {
    let mut bound: BTreeMap<i32, Bound> = BTreeMap::new();
    for line in lines.split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        let mut fields = line.split(' ');
        let mut parsed = || {
            let tid: i32 = fields.next()?.parse().ok()?;
            let began = fields.next()?.parse().ok()?;
            let pu = fields.next()?.parse().ok()?;
            let before = fields.next()?.split(',').map(|pu| pu.parse().ok());
            let before = before.collect::<Option<Vec<u32>>>()?;
            Some((tid, Bound { began, pu, before }))
        };
        if let Some((tid, new)) = parsed() {
            bound.insert(tid, new);
        }
    }
    bound
}

/// Restores affinities. Threads that have ended, or whose affinity somebody else has changed, are left alone.
fn restore(bound: &BTreeMap<i32, Bound>) {
    for (&tid, of) in bound {
        let is_the_same = threads::stat(tid).is_some_and(|stat| stat.began == of.began);
        if is_the_same && affinity::get(tid).is_ok_and(|now| now == [of.pu]) {
            // The thread may end at any moment.
            let _ = affinity::set(tid, &of.before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_thread_counts_and_broken_ones_do_not() {
        let text = "7 100 2 0,1,2\n8 5 1 0\n7 100 0 0,1,2\nrubbish\n9 1 1 0,x\n8 5";
        let bound = read(text.as_bytes());
        assert_eq!(bound.keys().copied().collect::<Vec<_>>(), [7, 8]);
        assert_eq!((bound[&7].pu, bound[&7].before.len()), (0, 3));
    }

    #[test]
    fn a_thread_gets_its_affinity_back_unless_it_has_changed_it() {
        let before = affinity::get(0).unwrap();
        let link = std::fs::read_link("/proc/thread-self").unwrap();
        let tid: i32 = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let began = threads::stat(tid).unwrap().began;
        let of = |began, pu| {
            BTreeMap::from([(
                tid,
                Bound {
                    began,
                    pu,
                    before: before.clone(),
                },
            )])
        };
        let last = *before.last().unwrap();
        affinity::set(0, &[last]).unwrap();
        restore(&of(began + 1, last));
        assert_eq!(affinity::get(0).unwrap(), [last], "another thread's");
        if before.len() > 1 {
            restore(&of(began, before[0]));
            assert_eq!(affinity::get(0).unwrap(), [last], "changed since");
        }
        restore(&of(began, last));
        assert_eq!(affinity::get(0).unwrap(), before);
    }
}
