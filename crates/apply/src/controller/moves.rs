//! Later moves: threads change their PU and pages their node while the program runs.

use super::{Actuator, Controller};
use crate::moves::Move;

/// Pages of a later move that exist: address and node (kernel number).
pub type Batch = Vec<(u64, u32)>;

impl Controller {
    /// Moves the threads of a later move, and binds its pages of process `tgid` that appear from now on. Returns the
    /// pages that may exist already, for [`Self::move_batch`].
    pub fn carry_out(&mut self, of: &Move, tgid: i32, act: &mut dyn Actuator) -> Batch {
        for (path, pu) in &of.threads {
            self.move_thread(path, *pu, act);
        }
        self.index.move_pages(&of.pages);
        let Some(process) = self.processes.get(&tgid) else {
            return Vec::new();
        };
        let ranges: Vec<(u64, u64, u32)> = process
            .live
            .iter()
            .flat_map(|live| {
                of.pages
                    .ranges(live.object, live.base, live.start, live.end)
            })
            .collect();
        // A refused range keeps its policy; whether its pages move is counted page by page.
        let _ = act.bind(&ranges);
        let pages = ranges.iter().flat_map(|&(start, end, node)| {
            (start..end).step_by(4096).map(move |page| (page, node))
        });
        pages.collect()
    }

    fn move_thread(&mut self, path: &str, pu: u32, act: &mut dyn Actuator) {
        // A thread that comes later begins there.
        self.index.move_thread(path, pu);
        let mut threads = self.threads.iter();
        let found = threads.find(|(_, thread)| thread.creator.path() == path);
        let Some((&tid, thread)) = found else {
            self.moves.threads_not_found += 1;
            return;
        };
        if thread.own_affinity {
            self.moves.threads_own += 1;
            return;
        }
        match self.pin(tid, pu, act) {
            Ok(()) => {
                self.moves.threads += 1;
                let thread = self.threads.get_mut(&tid);
                if let Some((_, planned)) = thread.and_then(|thread| thread.planned.as_mut()) {
                    *planned = pu;
                }
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                *self.moves.refused_threads.entry(errno).or_default() += 1;
            }
        }
    }

    /// Moves pages of process `tgid` that exist, and counts them.
    pub fn move_batch(&mut self, tgid: i32, batch: &[(u64, u32)], act: &mut dyn Actuator) {
        let pages: Vec<u64> = batch.iter().map(|(page, _)| *page).collect();
        let nodes: Vec<i32> = batch.iter().map(|(_, node)| *node as i32).collect();
        match act.relocate(tgid, &pages, &nodes) {
            Ok(status) => {
                for (status, node) in status.into_iter().zip(nodes) {
                    match status {
                        _ if status == node => self.moves.pages += 1,
                        // The page does not exist yet.
                        _ if status == -libc::ENOENT || status == -libc::EFAULT => {}
                        _ => *self.moves.refused_pages.entry(-status.min(0)).or_default() += 1,
                    }
                }
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                let refused = self.moves.refused_pages.entry(errno).or_default();
                *refused += batch.len() as u64;
            }
        }
    }
}
