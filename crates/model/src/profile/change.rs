//! Changes to a profile that keep it valid.

use super::Profile;
use super::builder::ProfileBuilder;
use super::error::ProfileError;
use super::rows::{PageSlice, SlowLoad, Variable};
use crate::conditions::Repeats;
use crate::ids::{ObjectIdx, ThreadIdx};

impl Profile {
    /// The profile's tables, to be changed and built again.
    #[must_use]
    pub fn into_builder(self) -> ProfileBuilder {
        let mut tables = ProfileBuilder::new(self.meta, self.pages.page_size());
        tables.usage(&self.pages);
        let number = |page: u32| self.pages.pages()[page as usize].number;
        let rows = self.page_slices.iter().map(|row| PageSlice {
            slice: row.slice,
            page: number(row.page),
            thread: row.thread,
            accesses: row.accesses,
        });
        tables.page_slices = rows.collect();
        tables.slow_loads = self.slow_loads.map(|slow| {
            let rows = slow.rows.iter().map(|row| SlowLoad {
                page: number(row.page),
                thread: row.thread,
                loads: row.loads,
            });
            (slow.source, rows.collect())
        });
        tables.threads = self.threads;
        tables.slices = self.slices;
        tables.communication = self.communication;
        tables.access_slices = self.access_slices;
        tables.objects = self.objects;
        tables.cell_errors = self.cell_errors;
        tables.shared_lines = self.shared_lines;
        tables.contended_lines = self.contended_lines;
        tables.contended_visits = self.contended_visits;
        tables.marks = self.marks;
        tables.sites = self.sites;
        tables.mpi_calls = self.mpi_calls;
        tables.mpi_waits = self.mpi_waits;
        tables
    }

    /// The profile with its tables changed.
    ///
    /// # Errors
    /// [`ProfileError`] if the changed tables are not a profile.
    pub fn changed(self, change: impl FnOnce(&mut ProfileBuilder)) -> Result<Self, ProfileError> {
        let mut tables = self.into_builder();
        change(&mut tables);
        tables.build()
    }

    /// The profile without the threads `t` for which `into[t]` is another thread, to which their activity is
    /// attributed. Communication between threads that become one is left out. The errors of cells of merged threads are
    /// not known and left out, too.
    ///
    /// # Errors
    /// [`ProfileError`] if an amount exceeds [`super::MAX_COUNTED`].
    ///
    /// # Panics
    /// If `into` has another length than the threads, or names a thread that is itself attributed to another.
    pub fn merge_threads(self, into: &[ThreadIdx]) -> Result<Self, ProfileError> {
        assert_eq!(into.len(), self.threads.len(), "one entry for each thread");
        let stays = |at: usize| into[at].index() == at;
        let mut members = vec![0usize; into.len()];
        let mut new = vec![ThreadIdx(0); into.len()];
        let mut kept = 0;
        for (at, &to) in into.iter().enumerate() {
            assert!(stays(to.index()), "{to} is itself attributed to another");
            members[to.index()] += 1;
            if stays(at) {
                new[at] = ThreadIdx::from_index(kept);
                kept += 1;
            }
        }
        let mut tables = self.into_builder();
        let is_whole = |thread: ThreadIdx| members[into[thread.index()].index()] == 1;
        tables
            .cell_errors
            .retain(|cell| is_whole(cell.src) && is_whole(cell.dst));
        tables.attribute(|thread| new[into[thread.index()].index()]);
        tables.communication.retain(|row| row.src != row.dst);
        let threads = std::mem::take(&mut tables.threads);
        let (stay, leave): (Vec<_>, Vec<_>) = threads
            .into_iter()
            .enumerate()
            .partition(|&(at, _)| stays(at));
        tables.threads = stay.into_iter().map(|(_, thread)| thread).collect();
        for (at, thread) in leave {
            let to = &mut tables.threads[new[into[at].index()].index()];
            to.accesses += thread.accesses;
            to.read_bytes += thread.read_bytes;
            to.write_bytes += thread.write_bytes;
            to.dram_bytes = match (to.dram_bytes, thread.dram_bytes) {
                (Some(own), Some(more)) => Some(own + more),
                (own, _) => own,
            };
        }
        tables.build()
    }

    /// Sets whether the recording saw the whole run.
    pub fn set_complete(&mut self, complete: bool) {
        self.meta.complete = complete;
    }

    /// Adds notes for the reader.
    pub fn add_notes(&mut self, notes: impl IntoIterator<Item = String>) {
        self.meta.notes.extend(notes);
    }

    /// Sets the environment variables that influenced the run, with their values.
    pub fn set_environment(&mut self, variables: Vec<(String, String)>) {
        self.meta.conditions.environment = variables;
    }

    /// Names the whole of an object of which no part is known. Its identity stays as it is.
    pub fn name_whole(&mut self, object: ObjectIdx, name: &str) {
        let object = &mut self.objects[object.index()];
        if object.variables.is_empty() && object.size > 0 {
            object.variables.push(Variable {
                name: name.to_owned(),
                offset: 0,
                size: object.size,
                source: None,
            });
        }
    }

    /// Sets how well repeated recordings agree with this one.
    pub fn set_repeats(&mut self, repeats: Repeats) {
        self.meta.conditions.repeats = Some(repeats);
    }

    /// Calls `change` for the texts that a profile gets from its program or its file: command, frontend, notes, paths
    /// and names.
    pub fn for_each_text(&mut self, mut change: impl FnMut(&mut String)) {
        let meta = &mut self.meta;
        meta.command.iter_mut().for_each(&mut change);
        meta.notes.iter_mut().for_each(&mut change);
        change(&mut meta.frontend);
        for thread in &mut self.threads {
            change(&mut thread.path);
            thread.role.name_mut().into_iter().for_each(&mut change);
            thread.name.iter_mut().for_each(&mut change);
            thread.title.iter_mut().for_each(&mut change);
        }
        for object in &mut self.objects {
            change(&mut object.name);
            for part in &mut object.variables {
                change(&mut part.name);
                part.source.iter_mut().for_each(&mut change);
            }
        }
    }
}
