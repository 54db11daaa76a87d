//! Decodes a journal.

use numaloc_model::conditions::WorkSharing;
use std::collections::{BTreeMap, HashMap};
use std::fs::Metadata;
use std::path::Path;

use numaloc_identity::object::base_name;
use numaloc_model::profile::{Clock, Meta};

use crate::AssembleError;
use numaloc_journal::bursts::{self, Bursts};
use numaloc_journal::{self as journal, Record, VERSION};

/// A share of all lines.
pub(super) const MILLION: u32 = bursts::MILLION as u32;

/// Totals of a thread from its journal.
#[derive(Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) time: u64,
    pub(super) accesses: u64,
    pub(super) seen: u64,
    pub(super) read_bytes: u64,
    pub(super) write_bytes: u64,
}

impl Totals {
    /// Estimates an amount for all accesses from the amount sampled: by `line_share_ppm` if lines were sampled,
    /// otherwise by the share of accesses.
    pub(super) fn scale(&self, line_share_ppm: u32, amount: u64) -> u64 {
        if line_share_ppm < MILLION {
            return (amount as f64 * (f64::from(MILLION) / f64::from(line_share_ppm))).round()
                as u64;
        }
        self.by_accesses(amount)
    }

    /// Estimates an amount by the share of the thread's accesses that were sampled (ratio estimator), for either kind
    /// of sampling.
    pub(super) fn by_accesses(&self, amount: u64) -> u64 {
        if self.seen == self.accesses || self.seen == 0 {
            return amount;
        }
        (amount as f64 * (self.accesses as f64 / self.seen as f64)).round() as u64
    }
}

/// One journal, decoded.
pub(super) struct Space {
    pub(super) first: String,
    pub(super) image: u32,
    pub(super) program: String,
    pub(super) threads: BTreeMap<u32, (String, u32, u64, u64)>,
    /// The first name that each thread set, by its number.
    pub(super) names: HashMap<u32, String>,
    /// The first name that each thread got through its file in `/proc`, by thread id.
    pub(super) task_names: HashMap<u32, String>,
    /// The title by which the process has replaced its arguments.
    pub(super) title: Option<String>,
    pub(super) totals: HashMap<u32, Totals>,
    pub(super) bursts: Option<Bursts>,
    /// Sampled share of the lines, in millionths.
    pub(super) line_share_ppm: u32,
    pub(super) records: Vec<Record>,
    pub(super) pid: u32,
    /// Properties of its journal.
    pub(super) file: Option<Metadata>,
    /// The host of the process's cross-process table, empty for the recorder's table.
    pub(super) host: String,
    /// Number of that table among those of all spaces.
    pub(super) table: usize,
    pub(super) complete: bool,
    /// Process images that should have journals.
    pub(super) expected: Vec<Expected>,
    /// The process that it was forked from.
    pub(super) forked: Option<Forked>,
    /// Its number among all spaces, and of what order its memory events after the fork are ([`crate::lineage`]).
    pub(super) inherits: Option<(usize, u64)>,
}

/// The process that another was forked from.
pub(super) struct Forked {
    /// Path of its first thread.
    pub(super) parent: String,
    pub(super) image: u32,
    /// Its memory events that come before the fork have lower numbers.
    pub(super) sequence: u64,
}

/// A process image that another one has announced.
pub(super) struct Expected {
    pub(super) path: String,
    pub(super) image: u32,
    pub(super) time: u64,
    pub(super) program: String,
}

impl Space {
    /// A space of a journal that begins with this record; `None` if it is of another kind.
    fn begin(record: Record, meta: &mut Meta) -> Option<Self> {
        let Record::Process {
            version: _,
            pid,
            path,
            image,
            frontend,
            virtual_clock,
            line_shift,
            time_share_ppm,
            line_share_ppm,
            program,
        } = record
        else {
            return None;
        };
        meta.frontend = frontend;
        meta.line_size = 1 << line_shift;
        meta.clock = if virtual_clock {
            Clock::Virtual
        } else {
            Clock::Wall
        };
        Some(Self {
            first: path,
            image,
            program,
            pid,
            file: None,
            host: String::new(),
            table: 0,
            threads: BTreeMap::new(),
            names: HashMap::new(),
            task_names: HashMap::new(),
            title: None,
            totals: HashMap::new(),
            bursts: Bursts::of_clock(time_share_ppm, virtual_clock),
            line_share_ppm,
            records: Vec::new(),
            complete: false,
            expected: Vec::new(),
            forked: None,
            inherits: None,
        })
    }

    /// The title of the thread with that path, if it is the process's first: what the process has replaced its
    /// arguments by, otherwise the program of a process that another has created.
    pub(super) fn title_of(&self, path: &str) -> Option<String> {
        let is_created = path.contains('/');
        let program = || is_created.then(|| base_name(&self.program).to_owned());
        let title = (path == self.first).then(|| self.title.clone().or_else(program));
        title.flatten().filter(|title| !title.is_empty())
    }

    /// Drops what no table is made from: journals are kept until all are read, and there may be thousands of them.
    fn fold(&mut self) {
        // Threads contend for a line; a process with one has samples of its lines too.
        if self.threads.len() <= 1 {
            let is_sample = |record: &Record| matches!(record, Record::Accesses { .. });
            self.records.retain(|record| !is_sample(record));
        }
        self.records.shrink_to_fit();
    }

    /// Adds a record that follows; those about the whole run change `meta`.
    fn add(&mut self, record: Record, meta: &mut Meta) {
        match record {
            Record::ThreadStart {
                thread,
                path,
                tid,
                time,
                routine,
            } => {
                self.threads.insert(thread, (path, tid, time, routine));
            }
            Record::ThreadTotals {
                thread,
                time,
                accesses,
                seen,
                read_bytes,
                write_bytes,
            } => {
                let totals = Totals {
                    time,
                    accesses,
                    seen,
                    read_bytes,
                    write_bytes,
                };
                self.totals.insert(thread, totals);
            }
            Record::ThreadName { thread, name } => {
                self.names.entry(thread).or_insert(name);
            }
            Record::TaskName { tid, name } => {
                self.task_names.entry(tid).or_insert(name);
            }
            Record::Title(title) => self.title = Some(title),
            Record::TableOfHost(host) => self.host = host,
            Record::Forked {
                parent,
                image,
                sequence,
            } => {
                self.forked = Some(Forked {
                    parent,
                    image,
                    sequence,
                });
            }
            Record::Note(text) => meta.notes.push(text),
            Record::Sharing(symbol) => {
                if let Some(kind) = WorkSharing::of_symbol(&symbol) {
                    meta.conditions.sharing.push((kind, symbol));
                }
            }
            Record::Reduced(text) => {
                meta.notes.push(text);
                meta.complete = false;
            }
            Record::Expected {
                path,
                image,
                time,
                program,
            } => self.expected.push(Expected {
                path,
                image,
                time,
                program,
            }),
            Record::Withdrawn { path, image } => {
                // Another process may share the address space, and so the journal.
                self.complete &= path != self.first;
                let withdrawn = (&path, image);
                self.expected
                    .retain(|image| (&image.path, image.image) != withdrawn);
            }
            Record::End => self.complete = true,
            record => {
                // A record after the end: an execve that failed.
                self.complete = false;
                self.records.push(record);
            }
        }
    }
}

pub(super) fn load(
    file: &Path,
    bytes: &[u8],
    meta: &mut Meta,
) -> Result<Option<Space>, AssembleError> {
    let mut space: Option<Space> = None;
    let mut version = None;
    let clean = journal::replay(bytes, |record| match &mut space {
        None => {
            if let Record::Process { version: found, .. } = &record {
                version = Some(*found);
            }
            space = Space::begin(record, meta);
        }
        Some(space) => space.add(record, meta),
    });
    match version {
        Some(found) if found != VERSION => Err(AssembleError::Version {
            path: file.to_owned(),
            found,
        }),
        _ => Ok(space.map(|mut space| {
            space.complete &= clean;
            space.fold();
            space
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_scaled_by_the_share_of_lines_or_else_of_accesses() {
        let totals = Totals {
            accesses: 1_000,
            seen: 100,
            ..Totals::default()
        };
        // A sample of lines: an event on one of four lines stands for four.
        assert_eq!(totals.scale(MILLION / 4, 10), 40);
        assert_eq!(totals.scale(MILLION / 20, 3), 60);
        // A sample of accesses: a tenth was recorded.
        assert_eq!(totals.scale(MILLION, 7), 70);
        assert_eq!(totals.by_accesses(7), 70);
        // Everything was recorded, or nothing is known.
        for seen in [1_000, 0] {
            let totals = Totals { seen, ..totals };
            assert_eq!(totals.scale(MILLION, 7), 7);
        }
    }
}
