//! The demand of a run as if its program had been changed: the changes that [`numaloc_whatif`] rates on traces, rated
//! on the slices of a profile.
//!
//! - A page's *beginning* is what its first toucher does with it in the slices before the first in which another thread
//!   uses it. Initialised by its users, these accesses pass to the thread that should begin with the page, in the slice
//!   before the part's first use: what one thread did page after page, several do at once.
//! - Lines that the first toucher wrote in the beginning reach their users as communication. Its events carry no page,
//!   so a user's first visit takes as many of them as it has accesses, at most the lines of the page.
//! - A copy per node costs one read and one write of each line for each node, all nodes at once.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use numaloc_model::{Mapping, Placement, ThreadIdx};
use numaloc_whatif::change::{Change, Speeds};
use numaloc_whatif::facts::{Facts, PageFacts};
use numaloc_whatif::parts::{Part, parts};

use crate::pages::by_speed;

use super::contended::Exchange;
use super::demand::{Demand, Row};
use super::figures::PREFETCHED;
use super::{Model, Worth};

/// Rates changes of the program under one mapping.
pub struct Changed<'a> {
    model: &'a Model<'a>,
    mapping: &'a Mapping,
    /// What changes are made to: objects that one function initialises.
    pub parts: Vec<Part>,
    /// Where dealing all pages over memory of different speed puts them.
    pub by_speed: Vec<(Speeds, Placement)>,
    /// By page: the slice in which another thread than the first toucher uses it, or `u32::MAX`.
    shared_from: Vec<u32>,
}

impl<'a> Changed<'a> {
    /// Finds the parts.
    #[must_use]
    pub fn of(model: &'a Model<'a>, mapping: &'a Mapping) -> Self {
        let usage = model.profile.pages();
        let demand = &model.demand;
        let first = |page: u32| {
            let page = &usage.pages()[page as usize];
            // Where a memory policy of the program puts a page, first touch decides nothing.
            page.first_touch.filter(|_| page.policy.is_none())
        };
        let mut shared_from = vec![u32::MAX; usage.pages().len()];
        for row in &demand.rows {
            let from = &mut shared_from[row.page as usize];
            if first(row.page).is_some_and(|first| first.0 != row.thread) {
                *from = row.slice.min(*from);
            }
        }
        let mut found: BTreeMap<u32, PageFacts> = BTreeMap::new();
        for row in &demand.rows {
            let (Some(first), from) = (first(row.page), shared_from[row.page as usize]) else {
                continue;
            };
            let page = found.entry(row.page).or_insert_with(|| PageFacts {
                first,
                // Rows come by slice.
                times: [u64::from(row.slice), u64::from(from)],
                beginning: 0,
                is_shared: from < u32::MAX,
                is_written_after: false,
                users: Vec::new(),
            });
            if row.slice < from {
                page.beginning += lines(row);
                continue;
            }
            let thread = ThreadIdx(row.thread);
            // How many of the first toucher's stores in this slice are in the beginning is not known, so that stores
            // do not decide who begins with the page.
            page.add_use(thread, lines(row), 0);
            page.is_written_after |= row.stores > 0.0 && thread != first;
        }
        let requests = demand.rows.iter().map(lines).sum();
        let number = |page: u32| usage.pages()[page as usize].number.0;
        let found = found.into_iter().map(|(page, facts)| (number(page), facts));
        Self {
            model,
            mapping,
            parts: parts(model.profile, &Facts::of_pages(requests, found)),
            by_speed: by_speed(model.profile, mapping, model.machine),
            shared_from,
        }
    }

    /// Number of rows that each rating reads.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.model.demand.rows.len()
    }

    /// The run under a set of changes of parts; others are left out.
    #[must_use]
    pub fn worth(&self, set: &[Change]) -> Worth {
        let (demand, placement, is_copied) = self.under(set);
        self.rated(demand, &placement, &is_copied)
    }

    /// The run with its pages at `placement`, and a copy per node of some of them; by page, none if empty.
    #[must_use]
    pub fn placed(&self, placement: &Placement, is_copied: &[bool]) -> Worth {
        self.rated(Cow::Borrowed(&self.model.demand), placement, is_copied)
    }

    fn rated(&self, demand: Cow<'_, Demand>, placement: &Placement, is_copied: &[bool]) -> Worth {
        // Waiting for contended lines is added under each change of theirs.
        let seated = self.model.unbound_with(self.mapping, demand);
        let seated = seated.without_contention();
        let mut worth = seated.worth_with_copies(placement, is_copied);
        let copied = is_copied.iter().filter(|copied| **copied).count();
        worth.seconds += self.copying_s(copied);
        worth
    }

    /// Seconds under a set of changes if no line came from another node or another thread, and none waited in a queue:
    /// no placement is faster.
    #[must_use]
    pub fn bound_s(&self, set: &[Change]) -> f64 {
        let (demand, placement, _) = self.under(set);
        let mut demand = demand.into_owned();
        demand.exchanges.clear();
        let mut figures = self.model.figures.clone();
        figures.service_s.fill(0.0);
        figures.write_s.fill(0.0);
        let seated = self.model.unbound_with(self.mapping, Cow::Owned(demand));
        let everywhere = vec![true; placement.node.len()];
        seated.worth_by(&figures, &placement, &everywhere).seconds
    }

    /// Seconds in which each node gets a copy of that many pages.
    fn copying_s(&self, pages: usize) -> f64 {
        let figures = &self.model.figures;
        let lines = pages as f64 * f64::from(self.model.demand.lines_of_page);
        let most = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
        let nodes = figures.nodes as f64;
        let served = most(&figures.service_s) * nodes;
        lines * served.max(2.0 * most(&figures.memory_s) / PREFETCHED)
    }

    /// Demand, where pages are placed, and which have copies.
    fn under(&self, set: &[Change]) -> (Cow<'_, Demand>, Placement, Vec<bool>) {
        let usage = self.model.profile.pages().pages();
        let at = |number: u64| {
            usage
                .binary_search_by_key(&number, |page| page.number.0)
                .ok()
        };
        let homes = self.model.machine.nodes_with_pus();
        let mut demand = Cow::Borrowed(&self.model.demand);
        let mut node = vec![None; usage.len()];
        let mut is_copied = Vec::new();
        for change in set {
            match *change {
                Change::TouchByUsers(part) => {
                    let part = &self.parts[part];
                    let mut by = vec![None; usage.len()];
                    for page in part.pages.iter().filter_map(|&page| at(page)) {
                        by[page] = Some(part.first);
                    }
                    let beginners = part.beginners.iter();
                    for (page, thread) in beginners.filter_map(|&(page, by)| Some((at(page)?, by)))
                    {
                        let pu = self.mapping.pu[thread.index()];
                        node[page] = Some(self.model.machine.node_of(pu));
                        by[page] = Some(thread);
                    }
                    self.begin_by(demand.to_mut(), &by);
                }
                Change::Interleave(part) => {
                    for page in self.parts[part].pages.iter().filter_map(|&page| at(page)) {
                        node[page] = Some(homes[usage[page].number.0 as usize % homes.len()]);
                    }
                }
                Change::Deal(part, speeds) => {
                    let of = |known: &&(Speeds, Placement)| known.0 == speeds;
                    let Some((_, dealt)) = self.by_speed.iter().find(of) else {
                        continue;
                    };
                    for page in self.parts[part].pages.iter().filter_map(|&page| at(page)) {
                        node[page] = dealt.node[page];
                    }
                }
                Change::Replicate(part) => {
                    is_copied.resize(usage.len(), false);
                    let pages = self.parts[part].constant_pages.iter();
                    for page in pages.filter_map(|&page| at(page)) {
                        is_copied[page] = true;
                    }
                }
                _ => {}
            }
        }
        (demand, Placement { node }, is_copied)
    }

    /// Has threads begin with the pages of a part, all at once before its first use; `by` page.
    fn begin_by(&self, demand: &mut Demand, by: &[Option<ThreadIdx>]) {
        let usage = self.model.profile.pages().pages();
        let threads = demand.threads;
        let segment_of = std::mem::take(&mut demand.segment_of);
        let segment = |slice: u32| segment_of.get(slice as usize).copied().unwrap_or(0);
        let of_part = by.iter().zip(&self.shared_from);
        let uses = of_part.filter_map(|(by, &from)| by.is_some().then_some(from));
        let before_use = uses.min().unwrap_or(0).saturating_sub(1);
        let mut events: BTreeMap<(u32, u32, u32), f64> = BTreeMap::new();
        let (contended, recorded): (Vec<Exchange>, Vec<Exchange>) =
            demand.exchanges.iter().partition(|at| at.contended);
        for at in &recorded {
            *events.entry((at.segment, at.src, at.dst)).or_default() += at.lines;
        }
        let mut visited: HashSet<(u32, u32)> = HashSet::new();
        for row in &mut demand.rows {
            let page = row.page as usize;
            let (Some(by), Some(first)) = (by[page], usage[page].first_touch) else {
                continue;
            };
            let at = segment(row.slice);
            if row.slice < self.shared_from[page] {
                let from = at as usize * threads + row.thread as usize;
                // Rows know at most 2^32 accesses.
                let moved = f64::from(row.accesses).min(demand.accesses[from]);
                demand.accesses[from] -= moved;
                demand.accesses[segment(before_use) as usize * threads + by.index()] += moved;
                (row.thread, row.slice) = (by.0, before_use);
            } else if row.stores < 1.0 && by != first && visited.insert((row.page, row.thread)) {
                let lines = f64::from(row.accesses.min(demand.lines_of_page));
                receive(&mut events, (at, first.0, by.0), row.thread, lines);
            }
        }
        demand
            .rows
            .sort_by_key(|row| (row.slice, row.page, row.thread));
        let exchange = |((segment, src, dst), lines)| Exchange {
            segment,
            src,
            dst,
            lines,
            contended: false,
        };
        let some = |at: &Exchange| at.lines > 0.0;
        let recorded = events.into_iter().map(exchange).filter(some);
        demand.exchanges = recorded.chain(contended).collect();
        demand
            .exchanges
            .sort_by_key(|at| (at.segment, at.src, at.dst, at.contended));
        demand.segment_of = segment_of;
    }
}

/// A thread that visits a page receives its lines from who begins with it now, no longer from who did.
fn receive(
    events: &mut BTreeMap<(u32, u32, u32), f64>,
    (segment, first, by): (u32, u32, u32),
    thread: u32,
    lines: f64,
) {
    let moved = match thread == first {
        true => lines,
        false => {
            let known = events.entry((segment, first, thread)).or_default();
            let moved = lines.min(*known);
            *known -= moved;
            moved
        }
    };
    if thread != by {
        *events.entry((segment, by, thread)).or_default() += moved;
    }
}

/// Lines that leave the private cache.
fn lines(row: &Row) -> u64 {
    u64::from(row.first) + u64::from(row.again)
}
