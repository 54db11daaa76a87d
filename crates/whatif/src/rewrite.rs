//! The events of a trace as if changes had been made: an adaptor between the recorded order and whoever builds a trace.
//!
//! **Initialised by the users** ([`Change::TouchByUsers`]): the events of a page's beginning pass from its first thread
//! to the one that should begin with it, with the work before each of them. Each thread does its share when the part is
//! used for the first time, and waits for the others before it uses the part. A thread that begins later does its share
//! first and is not waited for: the recorded order does not say that it could have begun earlier.
//!
//! **A copy per node** ([`Change::Replicate`]): once a page's beginning is over, each access goes to the copy of the
//! thread's node. Whoever accesses the part first from a node copies all of it: reads each line, and writes the copy's.
//!
//! **Contended lines** have no events here, with and without changes: what threads wait for them is estimated
//! ([`lines`](crate::lines)), and would count twice. Where a change lets threads count for themselves
//! ([`Change::PerThread`], [`Change::Batch`]), the order that changes of the line imposed goes too.
//!
//! A load that waits for a fetch which another thread makes now does not wait; distances to others are corrected.

use std::collections::{BTreeMap, HashMap, HashSet};

use numaloc_analysis::contended::ContendedMemory;
use numaloc_model::ThreadIdx;
use numaloc_model::pages::{PageHead, PageUsage};
use numaloc_model::trace::{Action, Event};

use crate::change::Change;
use crate::facts::{Facts, line_of};
use crate::parts::Part;

#[cfg(test)]
mod tests;

/// Accesses of eight bytes each that copy a line of 64: loads and stores.
const COPY_WORK: u64 = 8;
/// Number of the first synchronisation word that no program has.
const FIRST_WORD: u64 = 1 << 62;

/// What happens to a page's events.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// A thread begins with it, as one of those that begin with the part.
    Begun { part: usize, by: ThreadIdx },
    /// Only the first thread of the part uses it: what it does before others use the part belongs to the beginning.
    Own { part: usize },
    /// Its use goes to the copy with this number of a replicated part.
    Copied { part: usize, copy: u64 },
}

struct Changed {
    fate: Fate,
    /// Events of the beginning that are still to come.
    left: u64,
}

/// A part that several threads begin with.
struct Shared {
    /// The word on which they wait for each other.
    word: u64,
    /// Those that begin with it.
    by: Vec<ThreadIdx>,
    /// What each does as soon as the part is used.
    held: Vec<(ThreadIdx, Event)>,
    is_complete: bool,
    /// By thread: whether it has waited.
    has_waited: Vec<bool>,
}

/// A part with a copy per node.
struct Replica {
    /// Page numbers, ascending.
    pages: Vec<u64>,
    /// Page number of the first node's first copy.
    from: u64,
    /// By node: whether its copy has been made.
    is_made: Vec<bool>,
}

/// Rewrites events under changes.
pub struct Rewriter<'a> {
    page_shift: u32,
    /// Log2 of the synchronisation words of a line.
    word_shift: u32,
    pages: HashMap<u64, Changed>,
    shared: Vec<Shared>,
    replicas: Vec<Replica>,
    /// Contended lines.
    contended: HashSet<u64>,
    /// Those of them that no longer order threads.
    unordered: HashSet<u64>,
    /// Node of each thread.
    node_of: &'a [usize],
    /// By thread: events that it does as soon as it begins.
    waiting: Vec<Vec<Event>>,
    has_begun: Vec<bool>,
    /// By thread: of its last 64 fetches, the latest in the lowest bit, those that another thread makes now, or it at
    /// another time.
    passed_on: Vec<u64>,
}

impl<'a> Rewriter<'a> {
    /// An adaptor for these changes; changes of threads and page policies do not concern events. `node_of` has the node
    /// of each thread, `contended` the memory whose lines have no events.
    #[must_use]
    pub fn new(
        changes: &[Change],
        (facts, parts): (&Facts, &[Part]),
        contended: &[&ContendedMemory],
        line_bytes: u64,
        node_of: &'a [usize],
    ) -> Self {
        let threads = node_of.len();
        let mut rewriter = Self {
            page_shift: facts.page_shift,
            word_shift: (line_bytes / 4).max(1).trailing_zeros(),
            pages: HashMap::new(),
            shared: Vec::new(),
            replicas: Vec::new(),
            contended: contended
                .iter()
                .flat_map(|one| one.numbers.iter().copied())
                .collect(),
            unordered: HashSet::new(),
            node_of,
            waiting: vec![Vec::new(); threads],
            has_begun: vec![false; threads],
            passed_on: vec![0; threads],
        };
        let last = parts.iter().filter_map(|part| part.pages.last());
        let mut next = 1 + last.max().unwrap_or(&0);
        for change in changes {
            match *change {
                Change::TouchByUsers(part) => rewriter.share(&parts[part], facts),
                Change::Replicate(part) => next = rewriter.replicate(&parts[part], facts, next),
                _ => {}
            }
        }
        rewriter
    }

    /// The lines of this memory no longer order threads.
    #[must_use]
    pub fn without_order(mut self, memory: &ContendedMemory) -> Self {
        self.unordered.extend(&memory.numbers);
        self
    }

    fn share(&mut self, part: &Part, facts: &Facts) {
        let at = self.shared.len();
        let beginners: BTreeMap<u64, ThreadIdx> = part.beginners.iter().copied().collect();
        let mut by: Vec<ThreadIdx> = Vec::new();
        for &page in &part.pages {
            let Some(found) = facts.page(page) else {
                continue;
            };
            let thread = beginners.get(&page).copied().unwrap_or(found.first);
            by.push(thread);
            let fate = Fate::Begun {
                part: at,
                by: thread,
            };
            let left = found.beginning;
            self.pages.insert(page, Changed { fate, left });
        }
        for &page in &part.own_pages {
            let fate = Fate::Own { part: at };
            self.pages.insert(page, Changed { fate, left: 0 });
        }
        by.sort_unstable();
        by.dedup();
        self.shared.push(Shared {
            word: FIRST_WORD + at as u64,
            by,
            held: Vec::new(),
            is_complete: false,
            has_waited: vec![false; self.node_of.len()],
        });
    }

    /// Copies of a part from page number `from`; the number after the last one.
    fn replicate(&mut self, part: &Part, facts: &Facts, from: u64) -> u64 {
        let nodes = self.node_of.iter().max().map_or(1, |most| most + 1);
        for (&page, copy) in part.constant_pages.iter().zip(0..) {
            let left = facts.page(page).map_or(0, |found| found.beginning);
            let fate = Fate::Copied {
                part: self.replicas.len(),
                copy,
            };
            self.pages.insert(page, Changed { fate, left });
        }
        self.replicas.push(Replica {
            pages: part.constant_pages.clone(),
            from,
            is_made: vec![false; nodes],
        });
        from + part.constant_pages.len() as u64 * nodes as u64
    }

    /// Passes the events on that an event of the recording becomes; events come in recorded order.
    pub fn push(
        &mut self,
        thread: ThreadIdx,
        mut event: Event,
        out: &mut impl FnMut(ThreadIdx, &Event),
    ) {
        let at = thread.index();
        if !self.has_begun[at] {
            self.has_begun[at] = true;
            for early in std::mem::take(&mut self.waiting[at]) {
                out(thread, &early);
            }
        }
        let is_fetch = matches!(event.action, Action::Read(_) | Action::Write(_));
        if event.after != 0 {
            event.after = nearer(event.after, self.passed_on[at]);
        }
        if self.is_left_out(event.action) {
            // Its work stays; that of what a thread keeps in a register does not.
            let is_kept =
                line_of(event.action).is_some_and(|(line, _)| self.unordered.contains(&line));
            event.work -= event.work.min(u64::from(is_kept));
            event.action = Action::Omitted(0);
            event.after = 0;
        }
        let stays = self.rewrite(thread, &mut event, out);
        if is_fetch {
            self.passed_on[at] = self.passed_on[at] << 1 | u64::from(!stays);
        }
        if stays {
            out(thread, &event);
        }
    }

    /// Passes on what is left when the recording ends.
    pub fn finish(&mut self, out: &mut impl FnMut(ThreadIdx, &Event)) {
        for part in 0..self.shared.len() {
            for (by, event) in std::mem::take(&mut self.shared[part].held) {
                out(by, &event);
            }
        }
    }

    fn is_left_out(&self, action: Action) -> bool {
        match action {
            Action::Acquire(word) | Action::Release(word) => {
                !self.unordered.is_empty() && self.unordered.contains(&(word >> self.word_shift))
            }
            _ => {
                !self.contended.is_empty()
                    && line_of(action).is_some_and(|(line, _)| self.contended.contains(&line))
            }
        }
    }

    /// Whether the event stays where it is, perhaps with another line; otherwise it has been passed on.
    fn rewrite(
        &mut self,
        thread: ThreadIdx,
        event: &mut Event,
        out: &mut impl FnMut(ThreadIdx, &Event),
    ) -> bool {
        let Some((line, _)) = line_of(event.action) else {
            return true;
        };
        let Some(changed) = self.pages.get_mut(&(line >> self.page_shift)) else {
            return true;
        };
        let is_beginning = changed.left > 0;
        changed.left -= u64::from(is_beginning);
        match changed.fate {
            Fate::Begun { part, by } if is_beginning => self.begin(part, (thread, by), *event, out),
            Fate::Own { part } => self.begin(part, (thread, thread), *event, out),
            Fate::Begun { part, .. } => {
                self.wait(part, thread, event.time, out);
                true
            }
            Fate::Copied { .. } if is_beginning => true,
            Fate::Copied { part, copy } => {
                let node = self.node_of[thread.index()];
                self.make(part, node, thread, event.time, out);
                let replica = &self.replicas[part];
                let page = replica.from + node as u64 * replica.pages.len() as u64 + copy;
                let within = line & ((1 << self.page_shift) - 1);
                event.action = on_line(event.action, page << self.page_shift | within);
                true
            }
        }
    }

    /// An event of a beginning passes from the first thread to another, or to a later time; whether it stays.
    fn begin(
        &mut self,
        part: usize,
        (first, by): (ThreadIdx, ThreadIdx),
        mut event: Event,
        out: &mut impl FnMut(ThreadIdx, &Event),
    ) -> bool {
        let shared = &mut self.shared[part];
        if shared.is_complete && by == first {
            return true;
        }
        event.after = 0;
        match shared.is_complete {
            true => self.pass_on(by, event, out),
            false => shared.held.push((by, event)),
        }
        false
    }

    /// Gives a thread an event now, or as soon as it begins.
    fn pass_on(&mut self, to: ThreadIdx, event: Event, out: &mut impl FnMut(ThreadIdx, &Event)) {
        match self.has_begun[to.index()] {
            true => out(to, &event),
            false => self.waiting[to.index()].push(event),
        }
    }

    /// A thread is about to use a part: it waits for those that begin with it, as far as they run.
    fn wait(
        &mut self,
        part: usize,
        thread: ThreadIdx,
        time: u64,
        out: &mut impl FnMut(ThreadIdx, &Event),
    ) {
        let synchronises = |action| Event {
            time,
            work: 0,
            action,
            after: 0,
        };
        if !std::mem::replace(&mut self.shared[part].is_complete, true) {
            for (by, event) in std::mem::take(&mut self.shared[part].held) {
                self.pass_on(by, event, out);
            }
            let shared = &self.shared[part];
            for &by in shared.by.iter().filter(|by| self.has_begun[by.index()]) {
                out(by, &synchronises(Action::Release(shared.word)));
            }
        }
        let shared = &mut self.shared[part];
        if !std::mem::replace(&mut shared.has_waited[thread.index()], true) {
            out(thread, &synchronises(Action::Acquire(shared.word)));
        }
    }

    /// Copies a part to a node, if that has not been done.
    fn make(
        &mut self,
        part: usize,
        node: usize,
        thread: ThreadIdx,
        time: u64,
        out: &mut impl FnMut(ThreadIdx, &Event),
    ) {
        let replica = &mut self.replicas[part];
        if std::mem::replace(&mut replica.is_made[node], true) {
            return;
        }
        let first = replica.from + node as u64 * replica.pages.len() as u64;
        for (page, copy) in replica.pages.iter().zip(first..) {
            for within in 0..1 << self.page_shift {
                let of = |page: u64| page << self.page_shift | within;
                for action in [Action::Read(of(*page)), Action::Write(of(copy))] {
                    let event = Event {
                        time,
                        work: COPY_WORK,
                        action,
                        after: 0,
                    };
                    out(thread, &event);
                }
            }
        }
    }
}

/// The distance to a fetch without those in between that are made elsewhere now; 0 if that fetch is too.
fn nearer(after: u8, passed_on: u64) -> u8 {
    let before = passed_on & ((1 << (after - 1)) - 1);
    match passed_on >> (after - 1) & 1 {
        1 => 0,
        _ => after - before.count_ones() as u8,
    }
}

fn on_line(action: Action, line: u64) -> Action {
    match action {
        Action::Read(_) => Action::Read(line),
        Action::Write(_) => Action::Write(line),
        Action::Own(_) => Action::Own(line),
        Action::WriteBack(_) => Action::WriteBack(line),
        other => other,
    }
}

/// Who places each page under these changes: the users of parts that they initialise, otherwise as recorded.
#[must_use]
pub fn placed_by(usage: &PageUsage, changes: &[Change], parts: &[Part]) -> PageUsage {
    let mut users: BTreeMap<u64, ThreadIdx> = BTreeMap::new();
    for change in changes {
        if let Change::TouchByUsers(part) = *change {
            users.extend(parts[part].beginners.iter().copied());
        }
    }
    let mut placed = PageUsage::new(usage.page_size());
    for page in usage.pages() {
        let head = match users.get(&page.number.0) {
            Some(&user) => PageHead {
                first_touch: Some(user),
                ..page.head()
            },
            None => page.head(),
        };
        placed.push(head, usage.accesses(page).to_vec());
    }
    placed
}
