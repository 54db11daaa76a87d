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
        let mut bound = Vec::new();
        for &(object, base, (start, end)) in found {
            self.tally.page(object).found = true;
            let spread = self.spread_out(object, base, (start, end), act);
            let planned = self.index.ranges(object, base, start, end);
            let distributed = spread.iter().flat_map(|&part| clipped(&planned, part));
            bound.extend(distributed.map(|range| (object, range)));
            ranges.extend(outside(&planned, &spread));
            owners.resize(ranges.len(), object);
        }
        let answers = act.bind(&ranges);
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

    /// Has the kernel distribute what it can of an object by the system's weights. Returns these address ranges.
    fn spread_out(
        &mut self,
        object: usize,
        base: u64,
        within: (u64, u64),
        act: &mut dyn Actuator,
    ) -> Vec<(u64, u64)> {
        let mut done = Vec::new();
        for range in self.distributed(object, base, within) {
            let errno = act.interleave_by_weights(range, self.spread.nodes());
            if errno != 0 {
                self.spread.refused(errno);
                self.index.coarsen(|_| &[]);
                self.tally.in_blocks(self.index.coarsened());
                break;
            }
            self.tally.page(object).bound += (range.1 - range.0).div_ceil(self.index.page_size());
            done.push(range);
        }
        done
    }

    /// The address ranges of an object that the kernel distributes.
    fn distributed(&self, object: usize, base: u64, within: (u64, u64)) -> Vec<(u64, u64)> {
        let rounds = self.spread.rounds(object).iter();
        rounds
            .filter_map(|&pages| self.index.range(pages, base, within))
            .collect()
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
        let planned = self.index.ranges(live.object, live.base, span.0, span.1);
        let spread = self.distributed(live.object, live.base, span);
        let state = self.tally.page(live.object);
        state.checked = true;
        for part in &spread {
            let (mut statuses, mut nodes) = (Vec::new(), Vec::new());
            let pages: Vec<(u64, u32)> = clipped(&planned, *part)
                .flat_map(|(start, end, node)| {
                    (start..end).step_by(4096).map(move |page| (page, node))
                })
                .collect();
            for chunk in pages.chunks(CHUNK) {
                let pages: Vec<u64> = chunk.iter().map(|&(page, _)| page).collect();
                match act.locate(tid, &pages) {
                    Ok(status) => {
                        statuses.extend(status);
                        nodes.extend(chunk.iter().map(|&(_, node)| node));
                    }
                    Err(error) => {
                        state.refuse(error.raw_os_error().unwrap_or(0), pages.len() as u64);
                    }
                }
            }
            state.seen_in_all(&statuses, &nodes);
        }
        for (start, end, node) in outside(&planned, &spread) {
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

/// A range of addresses and its planned node.
type Planned = (u64, u64, u32);

/// What of these ranges is within `part`.
fn clipped(ranges: &[Planned], part: (u64, u64)) -> impl Iterator<Item = Planned> {
    let clip = move |&(start, end, node): &Planned| (start.max(part.0), end.min(part.1), node);
    let clipped = ranges.iter().map(clip);
    clipped.filter(|(start, end, _)| start < end)
}

/// What of these ranges is in none of `parts`, which are in the order of their addresses.
fn outside(ranges: &[Planned], parts: &[(u64, u64)]) -> Vec<Planned> {
    let starts = std::iter::once(0).chain(parts.iter().map(|part| part.1));
    let ends = parts.iter().map(|part| part.0).chain([u64::MAX]);
    let gaps = starts.zip(ends);
    gaps.flat_map(|gap| clipped(ranges, gap)).collect()
}

fn addresses(start: u64, end: u64) -> Vec<u64> {
    (start..end).step_by(4096).collect()
}
