//! Places the pages of objects on their planned nodes, moves those that exist, and reads them back.

use std::io;

use super::{Actuator, Controller, Found, Live, is_mapped};

/// Pages queried in one system call.
const CHUNK: usize = 16 * 1024;

impl Controller {
    /// Binds the planned ranges of objects and moves their pages that exist already.
    pub(super) fn place(
        &mut self,
        tgid: i32,
        found: &[Found],
        existing: bool,
        act: &mut dyn Actuator,
    ) {
        let page_size = self.index.page_size();
        let mut ranges = Vec::new();
        let mut owners = Vec::new();
        for &(object, base, (start, end)) in found {
            self.tally.page(object).found = true;
            ranges.extend(self.index.ranges(object, base, start, end));
            owners.resize(ranges.len(), object);
        }
        let answers = act.bind(&ranges);
        let mut bound = Vec::new();
        for ((&range, &object), &errno) in ranges.iter().zip(&owners).zip(&answers) {
            let pages = (range.1 - range.0).div_ceil(page_size);
            let state = self.tally.page(object);
            if errno == 0 {
                state.bound += pages;
                bound.push((object, range));
            } else {
                state.refuse(errno, pages);
            }
        }
        if existing {
            self.move_existing(tgid, &bound, act);
        }
        let Some(process) = self.processes.get_mut(&tgid) else {
            return;
        };
        for &(object, base, (start, end)) in found {
            let kind = self.index.key(object).kind;
            if process.found.insert(object) && is_mapped(kind) {
                process.awaited = process.awaited.saturating_sub(1);
            }
            let live = Live {
                object,
                base,
                start,
                end,
            };
            match process.live.iter_mut().find(|live| live.object == object) {
                Some(old) if old.base == base => old.end = old.end.max(end),
                Some(old) => *old = live,
                None => process.live.push(live),
            }
        }
    }

    /// Moves the pages of these ranges that exist on other nodes, all in one go: querying nodes is cheap, but each
    /// move makes the kernel wait for every PU.
    fn move_existing(
        &mut self,
        tgid: i32,
        ranges: &[(usize, (u64, u64, u32))],
        act: &mut dyn Actuator,
    ) {
        let mut astray = Vec::new();
        let mut all = ranges.iter().flat_map(|&(object, (start, end, node))| {
            (start..end)
                .step_by(4096)
                .map(move |page| (object, page, node))
        });
        loop {
            let chunk: Vec<(usize, u64, u32)> = all.by_ref().take(CHUNK).collect();
            if chunk.is_empty() {
                break;
            }
            let pages: Vec<u64> = chunk.iter().map(|&(_, page, _)| page).collect();
            match act.locate(tgid, &pages) {
                Ok(status) => {
                    for (&(object, page, node), status) in chunk.iter().zip(status) {
                        if status >= 0 && status != node as i32 {
                            astray.push((object, page, node));
                        } else {
                            self.tally.page(object).relocated(status, node);
                        }
                    }
                }
                Err(error) => self.refused(&chunk, &error),
            }
        }
        for chunk in astray.chunks(CHUNK) {
            let pages: Vec<u64> = chunk.iter().map(|&(_, page, _)| page).collect();
            let nodes: Vec<i32> = chunk.iter().map(|&(.., node)| node as i32).collect();
            match act.relocate(tgid, &pages, &nodes) {
                Ok(status) => {
                    for (&(object, _, node), status) in chunk.iter().zip(status) {
                        self.tally.page(object).relocated(status, node);
                    }
                }
                Err(error) => self.refused(chunk, &error),
            }
        }
    }

    fn refused(&mut self, pages: &[(usize, u64, u32)], error: &io::Error) {
        for &(object, ..) in pages {
            let state = self.tally.page(object);
            state.refuse(error.raw_os_error().unwrap_or(0), 1);
        }
    }

    /// Reads back where the planned pages of an object within `span` are, in the process of `tid`.
    pub(super) fn check(&mut self, tid: i32, live: Live, span: (u64, u64), act: &mut dyn Actuator) {
        if !self.options.verify {
            return;
        }
        let state = self.tally.page(live.object);
        state.checked = true;
        for (start, end, node) in self.index.ranges(live.object, live.base, span.0, span.1) {
            for pages in addresses(start, end).chunks(CHUNK) {
                match act.locate(tid, pages) {
                    Ok(status) => status.iter().for_each(|&s| state.seen(s, node)),
                    Err(error) => {
                        state.refuse(error.raw_os_error().unwrap_or(0), pages.len() as u64);
                    }
                }
            }
        }
    }
}

fn addresses(start: u64, end: u64) -> Vec<u64> {
    (start..end).step_by(4096).collect()
}
