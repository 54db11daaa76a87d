//! What a program demands of memory: its pages in groups that are used in the same way, and the threads that wait.

use std::collections::BTreeMap;

use numaloc_model::LogicalNode;
use numaloc_model::ObjectIdx;
use numaloc_model::pages::Page;

use super::PREFETCHED;
use crate::view::View;

/// Bytes of a word.
const WORD: u64 = 8;
/// A thread that uses at least one over this of a page's words at once sweeps it.
const DENSE: u64 = 2;
/// Share of the lines above which the node that fetches most of a page is its main user.
const MAIN: f64 = 0.9;

/// Pages of one object that are used in the same way.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub object: Option<ObjectIdx>,
    /// Indexes into [`View::usage`], ascending.
    pub pages: Vec<usize>,
    /// Lines beyond private caches, by the node of the threads that fetch them.
    pub lines: Vec<f64>,
    /// Lines written back for each that is fetched.
    pub back: f64,
    /// Whether the lines are prefetched.
    pub swept: bool,
    /// Lines that threads wait for, all pages together.
    pub stall: f64,
}

impl Item {
    /// All lines.
    pub fn total(&self) -> f64 {
        self.lines.iter().sum()
    }

    /// Lines that threads wait for, by page.
    pub fn stall_of_page(&self) -> f64 {
        self.stall / self.pages.len() as f64
    }
}

/// Threads of one node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Readers {
    /// All accesses.
    pub accesses: f64,
    /// PUs that work at once.
    pub at_once: f64,
}

/// The demand of a program with its threads in their places.
pub(crate) struct Demand {
    /// In the order of objects; pages without an object first.
    pub items: Vec<Item>,
    /// By node.
    pub readers: Vec<Readers>,
    /// Whether hardware saw for which loads threads wait.
    pub stall_is_measured: bool,
}

/// What pages of one item have in common: object, main user's node, whether they are swept, and their stall to the next
/// power of two.
type Key = (Option<ObjectIdx>, Option<usize>, bool, i16);

impl Demand {
    pub fn of(view: &View) -> Self {
        let sweeps = Sweeps::of(view);
        let slow = slow_loads(view);
        let words_of_line = (view.line_bytes() / WORD).max(1) as f64;
        let readers = readers(view);
        let mut lines = view.counts();
        let mut items: BTreeMap<Key, Item> = BTreeMap::new();
        for (at, page) in view.usage().pages().iter().enumerate() {
            let swept = sweeps.is_swept(view, at, page);
            let (reads, writes) = view
                .usage()
                .accesses(page)
                .iter()
                .fold((0_u64, 0_u64), |(reads, writes), access| {
                    (reads + access.reads, writes + access.writes)
                });
            view.lines_by_node(at, &mut lines);
            // A profile that counts no lines counts every word of a swept line.
            let part = match swept && !view.counts_lines() {
                true => 1.0 / words_of_line,
                false => 1.0,
            };
            let own: Vec<f64> = lines.iter().map(|&count| count as f64 * part).collect();
            let total: f64 = own.iter().sum();
            let stall = match &slow {
                Some(slow) => slow[at] as f64,
                None => total / in_flight(swept),
            };
            let stores = writes as f64 / (reads + writes).max(1) as f64;
            let back = (stores * words_of_line).min(1.0);
            let key = (
                page.object,
                main_user(view, page, &own),
                swept,
                class(stall),
            );
            let item = items.entry(key).or_insert_with(|| Item {
                object: page.object,
                pages: Vec::new(),
                lines: vec![0.0; own.len()],
                back: 0.0,
                swept,
                stall: 0.0,
            });
            item.pages.push(at);
            item.stall += stall;
            item.back += back * total;
            for (sum, own) in item.lines.iter_mut().zip(&own) {
                *sum += own;
            }
        }
        let mut items: Vec<Item> = items.into_values().collect();
        for item in &mut items {
            item.back /= item.total().max(1.0);
        }
        Self {
            items,
            readers,
            stall_is_measured: slow.is_some(),
        }
    }

    /// Lines that threads of a node fetch, of those that are not prefetched.
    pub fn random(&self, node: usize) -> f64 {
        let random = self.items.iter().filter(|item| !item.swept);
        random.map(|item| item.lines[node]).sum()
    }
}

/// Lines that a thread waits for at once.
fn in_flight(swept: bool) -> f64 {
    if swept { PREFETCHED } else { 1.0 }
}

/// Stalls between two powers of two are one class; 0 is below all.
fn class(stall: f64) -> i16 {
    match stall > 0.0 {
        true => stall.log2().floor() as i16,
        false => i16::MIN,
    }
}

/// The node that uses the page almost alone: by its lines, and without any by the first toucher.
fn main_user(view: &View, page: &Page, lines: &[f64]) -> Option<usize> {
    let total: f64 = lines.iter().sum();
    if total == 0.0 {
        return page
            .first_touch
            .map(|thread| view.node_of(thread))
            .map(LogicalNode::index);
    }
    lines.iter().position(|&count| count >= MAIN * total)
}

/// Slow loads of each page, if the profile has them.
fn slow_loads(view: &View) -> Option<Vec<u64>> {
    view.slow_loads_source()?;
    let mut found = vec![0; view.usage().pages().len()];
    for (page, _, loads) in view.slow_loads() {
        found[page] += loads;
    }
    found.iter().any(|&loads| loads > 0).then_some(found)
}

/// Accesses of the threads of each node, and how many of them work at once.
fn readers(view: &View) -> Vec<Readers> {
    let mut work: BTreeMap<(usize, u32), f64> = BTreeMap::new();
    let usage = view.usage();
    for access in usage.pages().iter().flat_map(|page| usage.accesses(page)) {
        let node = view.node_of(access.thread).index();
        *work.entry((node, view.pu_of(access.thread).0)).or_default() += access.total() as f64;
    }
    let mut readers = vec![Readers::default(); view.counts().len()];
    for (&(node, _), work) in &work {
        readers[node].accesses += work;
        readers[node].at_once += work * work;
    }
    for reader in &mut readers {
        let squares = reader.at_once;
        reader.at_once = match squares > 0.0 {
            true => reader.accesses * reader.accesses / squares,
            false => 1.0,
        };
    }
    readers
}

/// Accesses to each page, all and those by threads that sweep it.
struct Sweeps {
    by_page: Vec<(u64, u64)>,
    words: u64,
}

impl Sweeps {
    fn of(view: &View) -> Self {
        let words = (view.recorded_page_size() / WORD).max(1);
        let mut by_page = vec![(0, 0); view.usage().pages().len()];
        for (_, page, _, accesses) in view.page_slices() {
            let (all, swept): &mut (u64, u64) = &mut by_page[page];
            *all += accesses;
            *swept += if accesses * DENSE >= words {
                accesses
            } else {
                0
            };
        }
        Self { by_page, words }
    }

    fn is_swept(&self, view: &View, at: usize, page: &Page) -> bool {
        let (all, swept) = match self.by_page[at] {
            // No slices: the whole run counts as one.
            (0, _) => {
                let words = self.words * view.factor();
                view.usage()
                    .accesses(page)
                    .iter()
                    .fold((0, 0), |(all, swept), access| {
                        let accesses = access.total();
                        let dense = accesses * DENSE >= words;
                        (all + accesses, swept + if dense { accesses } else { 0 })
                    })
            }
            counted => counted,
        };
        swept * 2 > all
    }
}
