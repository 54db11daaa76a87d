//! The events of a trace as if changes had been made: an adaptor between the recorded order and whoever builds a trace.
//!
//! **Initialised by the users** ([`Change::TouchByUsers`]): the events of a page's beginning pass from its first thread
//! to the one that should begin with it, with the work before each of them that fills a line; what the first thread
//! computes besides stays with it, as other threads may not be able to. Each thread does its share when the part is
//! used for the first time, and waits for the others before it uses the part. A thread that begins later does its share
//! first and is not waited for: the recorded order does not say that it could have begun earlier. One that still
//! creates threads does its share after the last of them, or before it acquires a word from another thread.
//!
//! **A copy per node** ([`Change::Replicate`]): once a page's beginning is over, each access goes to the copy of the
//! thread's node. Whoever accesses the part first from a node copies all of it: reads each line, and writes the copy's.
//! The node's other threads wait for that. Lines of the original are written back as recorded.
//!
//! **Contended lines** have no events here, with and without changes: what threads wait for them is estimated
//! ([`lines`](crate::lines)), and would count twice. The order in which threads changed a counter there goes too: it is
//! that of the recording host. Where a change lets threads count for themselves ([`Change::PerThread`],
//! [`Change::Batch`], [`Change::Chunk`]), so do the accesses that such a thread makes in a register: the profile's
//! visits, spread evenly over what its threads do from their first one on, as most of them hit in private caches and
//! have no events. A copy of an array stays in memory.
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

/// Accesses of eight bytes each that copy a line of 64, as those of a string instruction count: loads and stores.
const COPY_WORK: u64 = 8;
/// Most accesses that fill a line: a byte each.
const MOST_WORK: u64 = 64;
/// Accesses that a program and libgomp make to hand out iterations of a loop once: 14.8 in `dynamic.c` of `make
/// table-changes`, with gcc 12.
const HAND_OUT: u64 = 15;
/// Number of the first synchronisation word that no program has.
const FIRST_WORD: u64 = 1 << 62;
/// The first of those on which threads wait for copies.
const FIRST_COPY_WORD: u64 = FIRST_WORD + (1 << 32);

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
    /// By node: the word on which its threads wait for that, from this one on.
    word: u64,
    /// By thread: whether it has waited.
    has_waited: Vec<bool>,
}

/// Contended memory that threads keep in registers now.
struct Register {
    /// Share of what threads do from their first visit on.
    share: f64,
    /// By thread: accesses before its first visit, and those that are still to be taken away.
    visitors: BTreeMap<ThreadIdx, (u64, f64)>,
}

/// Rewrites events under changes.
pub struct Rewriter<'a> {
    facts: &'a Facts,
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
    registers: Vec<Register>,
    /// By thread: its recorded accesses until now.
    clocks: Vec<u64>,
    /// Node of each thread.
    node_of: &'a [usize],
    /// By thread: events that it does as soon as it begins, or has created its threads.
    waiting: Vec<Vec<Event>>,
    has_begun: Vec<bool>,
    /// By thread: how many it has still to create.
    creates: Vec<u64>,
    /// The thread that released each word last.
    released: HashMap<u64, ThreadIdx>,
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
        (facts, parts): (&'a Facts, &[Part]),
        contended: &[&ContendedMemory],
        line_bytes: u64,
        node_of: &'a [usize],
    ) -> Self {
        let threads = node_of.len();
        let mut rewriter = Self {
            facts,
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
            registers: Vec::new(),
            clocks: vec![0; threads],
            node_of,
            waiting: vec![Vec::new(); threads],
            has_begun: vec![false; threads],
            creates: (0..threads)
                .map(|at| facts.creates(ThreadIdx::from_index(at)))
                .collect(),
            released: HashMap::new(),
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

    /// Threads keep contended memory number `at` in registers, and make only the share `left` (0..=1) of their visits.
    /// Of a loop that is handed out, they make as much less of what belongs to that.
    #[must_use]
    pub fn with_registers(mut self, at: usize, memory: &ContendedMemory, left: f64) -> Self {
        let accesses = match memory.hands_out {
            true => memory.visits * HAND_OUT,
            // An atomic instruction loads and stores.
            false => memory.visits + memory.atomics,
        };
        let accesses = accesses as f64 * (1.0 - left);
        let visitors = self.facts.visitors(at, memory.threads);
        let of_all = visitors
            .iter()
            .map(|(by, from)| self.facts.accesses(*by) - from);
        self.registers.push(Register {
            share: (accesses / of_all.sum::<u64>().max(1) as f64).min(1.0),
            visitors: visitors
                .into_iter()
                .map(|(by, from)| (by, (from, 0.0)))
                .collect(),
        });
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
            word: FIRST_COPY_WORD + (self.replicas.len() * nodes) as u64,
            has_waited: vec![false; self.node_of.len()],
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
        self.has_begun[at] = true;
        self.clocks[at] += event.work;
        event.work -= self.in_registers(thread, event.work);
        let depends = self.depends(thread, event.action);
        if depends || self.is_ready(thread) {
            for early in std::mem::take(&mut self.waiting[at]) {
                out(thread, &early);
            }
        }
        if matches!(event.action, Action::Create(_)) {
            self.creates[at] = self.creates[at].saturating_sub(1);
        }
        let is_fetch = matches!(event.action, Action::Read(_) | Action::Write(_));
        if event.after != 0 {
            event.after = nearer(event.after, self.passed_on[at]);
        }
        if self.is_left_out(event.action) {
            // Its work stays.
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
        for (at, events) in self.waiting.iter_mut().enumerate() {
            for event in std::mem::take(events) {
                out(ThreadIdx::from_index(at), &event);
            }
        }
    }

    /// How many of these next accesses of a thread it makes in a register.
    fn in_registers(&mut self, thread: ThreadIdx, accesses: u64) -> u64 {
        let now = self.clocks[thread.index()];
        let mut taken = 0;
        for register in &mut self.registers {
            let share = register.share;
            let visitor = register.visitors.get_mut(&thread);
            if let Some((_, owed)) = visitor.filter(|(from, _)| *from < now) {
                *owed += accesses as f64 * share;
                let whole = (*owed as u64).min(accesses - taken);
                *owed -= whole as f64;
                taken += whole;
            }
        }
        taken
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
            Fate::Copied { .. } if is_beginning || matches!(event.action, Action::WriteBack(_)) => {
                true
            }
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
        if self.shared[part].is_complete && by == first {
            return true;
        }
        event.after = 0;
        if by != first && event.work > MOST_WORK {
            let stays = Event {
                work: event.work - MOST_WORK,
                action: Action::Omitted(0),
                ..event
            };
            out(first, &stays);
            event.work = MOST_WORK;
        }
        let shared = &mut self.shared[part];
        match shared.is_complete {
            true => self.pass_on(by, event, out),
            false => shared.held.push((by, event)),
        }
        false
    }

    /// Gives a thread an event now, or as soon as it begins.
    fn pass_on(&mut self, to: ThreadIdx, event: Event, out: &mut impl FnMut(ThreadIdx, &Event)) {
        match self.is_ready(to) {
            true => out(to, &event),
            false => self.waiting[to.index()].push(event),
        }
    }

    /// Whether the thread continues after another one's release.
    fn depends(&mut self, thread: ThreadIdx, action: Action) -> bool {
        match action {
            Action::Release(word) => {
                self.released.insert(word, thread);
                false
            }
            Action::Acquire(word) => self.released.get(&word).is_some_and(|by| *by != thread),
            _ => false,
        }
    }

    /// Whether a thread runs and creates no further threads.
    fn is_ready(&self, thread: ThreadIdx) -> bool {
        self.has_begun[thread.index()] && self.creates[thread.index()] == 0
    }

    /// A thread is about to use a part: it waits for those that begin with it, as far as they run.
    fn wait(
        &mut self,
        part: usize,
        thread: ThreadIdx,
        time: u64,
        out: &mut impl FnMut(ThreadIdx, &Event),
    ) {
        let synchronises = |action| synchronises(time, action);
        if !std::mem::replace(&mut self.shared[part].is_complete, true) {
            for (by, event) in std::mem::take(&mut self.shared[part].held) {
                self.pass_on(by, event, out);
            }
            let shared = &self.shared[part];
            for &by in shared.by.iter().filter(|by| self.is_ready(**by)) {
                out(by, &synchronises(Action::Release(shared.word)));
            }
        }
        if !self.is_ready(thread) {
            return;
        }
        let shared = &mut self.shared[part];
        if !std::mem::replace(&mut shared.has_waited[thread.index()], true) {
            out(thread, &synchronises(Action::Acquire(shared.word)));
        }
    }

    /// Copies a part to a node, if that has not been done; otherwise waits until it has.
    fn make(
        &mut self,
        part: usize,
        node: usize,
        thread: ThreadIdx,
        time: u64,
        out: &mut impl FnMut(ThreadIdx, &Event),
    ) {
        let replica = &mut self.replicas[part];
        let synchronises = |action| synchronises(time, action);
        let word = replica.word + node as u64;
        let has_waited = std::mem::replace(&mut replica.has_waited[thread.index()], true);
        if std::mem::replace(&mut replica.is_made[node], true) {
            if !has_waited {
                out(thread, &synchronises(Action::Acquire(word)));
            }
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
        out(thread, &synchronises(Action::Release(word)));
    }
}

/// A thread acquires or releases a word.
fn synchronises(time: u64, action: Action) -> Event {
    Event {
        time,
        work: 0,
        action,
        after: 0,
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
