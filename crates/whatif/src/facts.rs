//! What the events of a trace, or the slices of a profile, say about each page: who began with it, who used it
//! afterwards.
//!
//! A page's *beginning* is what its first thread does with it before another thread uses it: usually its
//! initialisation. What follows is its use. Where others use other pages of the same memory already, what the first
//! thread does after its first pass over the page counts as use as well: it computes with what it has initialised.
//!
//! Memory: O(pages x threads that use each).

use std::collections::{BTreeMap, HashMap};

use numaloc_analysis::contended::ContendedMemory;
use numaloc_model::trace::{Action, Event};
use numaloc_model::{Named, ThreadIdx};

/// A thread that uses a page after its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The thread.
    pub thread: ThreadIdx,
    /// Its requests.
    pub requests: u64,
    /// Those that write.
    pub writes: u64,
}

/// One page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageFacts {
    /// The thread that began with it.
    pub first: ThreadIdx,
    /// When that was, and when another thread used it first: by the order of events, or of slices.
    pub times: [u64; 2],
    /// Number of requests and write-backs of its beginning.
    pub beginning: u64,
    /// Whether another thread has used it.
    pub is_shared: bool,
    /// Whether a thread wrote it after its beginning.
    pub is_written_after: bool,
    /// Who uses it after its beginning, in the order of their first requests.
    pub users: Vec<User>,
}

impl PageFacts {
    /// The threads that should begin with it: those that use it most after its beginning, with at least half as many
    /// requests as the one with most. Where some of them write it, those with at least half as many writes as the one
    /// that writes most, as loops in parallel compute what they initialise. Ascending.
    #[must_use]
    pub fn main_users(&self) -> Vec<ThreadIdx> {
        let mut main: Vec<&User> = self.users.iter().collect();
        for count in [|user: &User| user.requests, |user: &User| user.writes] {
            let most = main.iter().map(|user| count(user)).max();
            main.retain(|user| count(user) >= most.unwrap_or(0).div_ceil(2));
        }
        let mut users: Vec<ThreadIdx> = main.iter().map(|user| user.thread).collect();
        users.sort_unstable();
        users
    }

    /// Adds requests of a thread after the beginning.
    pub fn add_use(&mut self, thread: ThreadIdx, requests: u64, writes: u64) {
        self.is_written_after |= writes > 0;
        match self.users.iter_mut().find(|user| user.thread == thread) {
            Some(user) => {
                user.requests += requests;
                user.writes += writes;
            }
            None => self.users.push(User {
                thread,
                requests,
                writes,
            }),
        }
    }

    /// Requests of all threads but the first after the beginning.
    #[must_use]
    pub fn requests_of_others(&self) -> u64 {
        let others = self.users.iter().filter(|user| user.thread != self.first);
        others.map(|user| user.requests).sum()
    }
}

/// All pages of a trace.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Log2 of the lines of a page.
    pub page_shift: u32,
    /// Requests of all threads below their private caches.
    pub requests: u64,
    pages: Vec<PageFacts>,
    /// Position in `pages` by page number: address divided by the page size.
    index: HashMap<u64, u32>,
    /// The page that each thread used last: its number and its position.
    recent: Vec<(u64, u32)>,
    /// By position in `pages`.
    passes: Vec<Pass>,
    /// Pages of named memory and its number, by ascending page number.
    named: Vec<(u64, u32)>,
    /// By named memory: whether another thread has used a page that one began with.
    is_used: Vec<bool>,
    /// Number of events until now.
    events: u64,
    /// By thread: how many it creates.
    creates: Vec<u64>,
    /// By thread: its accesses until now.
    clocks: Vec<u64>,
    /// Number of the contended memory by line.
    contended: HashMap<u64, usize>,
    /// By contended memory and thread: accesses of the thread before its first event there.
    visits: Vec<BTreeMap<ThreadIdx, u64>>,
}

/// The first pass of a thread over the page that it begins with.
#[derive(Clone, Copy, Debug)]
struct Pass {
    memory: Option<u32>,
    /// Requests that are left of it once others use the memory.
    left: u64,
}

/// The line of an event that has one, and whether the line is written.
pub(crate) fn line_of(action: Action) -> Option<(u64, bool)> {
    match action {
        Action::Read(line) => Some((line, false)),
        Action::Write(line) | Action::Own(line) | Action::WriteBack(line) => Some((line, true)),
        _ => None,
    }
}

impl Facts {
    /// No pages yet, of `lines` lines each.
    ///
    /// # Panics
    /// If that is not a power of two.
    #[must_use]
    pub fn new(lines: u64) -> Self {
        assert!(lines.is_power_of_two(), "{lines} lines a page");
        Self {
            page_shift: lines.trailing_zeros(),
            requests: 0,
            pages: Vec::new(),
            index: HashMap::new(),
            recent: Vec::new(),
            passes: Vec::new(),
            named: Vec::new(),
            is_used: Vec::new(),
            events: 0,
            creates: Vec::new(),
            clocks: Vec::new(),
            contended: HashMap::new(),
            visits: Vec::new(),
        }
    }

    /// The same with the named memory of pages: page number and memory, by ascending page number.
    #[must_use]
    pub fn with_memory(mut self, pages: impl IntoIterator<Item = (u64, Named)>) -> Self {
        let mut numbers: HashMap<Named, u32> = HashMap::new();
        let of_page = |(page, memory)| {
            let next = numbers.len() as u32;
            (page, *numbers.entry(memory).or_insert(next))
        };
        self.named = pages.into_iter().map(of_page).collect();
        self.is_used = vec![false; numbers.len()];
        self
    }

    /// The same with contended memory: when threads visit it.
    #[must_use]
    pub fn with_contended(mut self, memory: &[ContendedMemory]) -> Self {
        let numbers = memory.iter().enumerate();
        self.contended = numbers
            .flat_map(|(at, one)| one.numbers.iter().map(move |line| (*line, at)))
            .collect();
        self.visits = vec![BTreeMap::new(); memory.len()];
        self
    }

    /// Pages of a run without a trace, by their numbers; `requests`: of all threads below their private caches.
    pub fn of_pages(requests: u64, pages: impl IntoIterator<Item = (u64, PageFacts)>) -> Self {
        let (index, pages): (Vec<u64>, Vec<PageFacts>) = pages.into_iter().unzip();
        Self {
            requests,
            pages,
            index: index.into_iter().zip(0..).collect(),
            ..Self::new(1)
        }
    }

    /// A page by its number.
    #[must_use]
    pub fn page(&self, number: u64) -> Option<&PageFacts> {
        let at = *self.index.get(&number)?;
        Some(&self.pages[at as usize])
    }

    /// How many threads a thread creates.
    #[must_use]
    pub fn creates(&self, thread: ThreadIdx) -> u64 {
        self.creates.get(thread.index()).copied().unwrap_or(0)
    }

    /// The threads that visit contended memory number `at`, and how many accesses each has made before: `most` of them,
    /// those with most accesses from then on.
    #[must_use]
    pub fn visitors(&self, at: usize, most: u32) -> BTreeMap<ThreadIdx, u64> {
        let visits = self.visits.get(at).into_iter().flatten();
        let mut visitors: Vec<(ThreadIdx, u64)> = visits.map(|(by, from)| (*by, *from)).collect();
        visitors.sort_by_key(|&(by, from)| std::cmp::Reverse(self.accesses(by) - from));
        visitors.truncate(most as usize);
        visitors.into_iter().collect()
    }

    /// Accesses of a thread.
    #[must_use]
    pub fn accesses(&self, thread: ThreadIdx) -> u64 {
        self.clocks.get(thread.index()).copied().unwrap_or(0)
    }

    fn memory_of(&self, number: u64) -> Option<u32> {
        let at = self.named.binary_search_by_key(&number, |row| row.0);
        at.ok().map(|at| self.named[at].1)
    }

    /// Position of a page.
    fn page_of(&mut self, thread: ThreadIdx, number: u64) -> usize {
        if self.recent.len() <= thread.index() {
            self.recent.resize(thread.index() + 1, (u64::MAX, 0));
        }
        let recent = self.recent[thread.index()];
        if recent.0 == number {
            return recent.1 as usize;
        }
        let next = self.pages.len() as u32;
        let at = *self.index.entry(number).or_insert(next);
        if at == next {
            self.pages.push(PageFacts {
                first: thread,
                times: [self.events; 2],
                beginning: 0,
                is_shared: false,
                is_written_after: false,
                users: Vec::new(),
            });
            let memory = self.memory_of(number);
            let is_used = memory.is_some_and(|memory| self.is_used[memory as usize]);
            // A page that is begun before others use the memory has had its pass by then.
            let left = if is_used { 1 << self.page_shift } else { 0 };
            self.passes.push(Pass { memory, left });
        }
        self.recent[thread.index()] = (number, at);
        at as usize
    }

    /// Adds an event; events come in recorded order.
    pub fn add(&mut self, thread: ThreadIdx, event: &Event) {
        let at = thread.index();
        for counts in [&mut self.creates, &mut self.clocks] {
            counts.resize(counts.len().max(at + 1), 0);
        }
        self.creates[at] += u64::from(matches!(event.action, Action::Create(_)));
        self.clocks[at] += event.work;
        self.events += 1;
        let Some((line, writes)) = line_of(event.action) else {
            return;
        };
        if let Some(&memory) = self.contended.get(&line) {
            let before = self.clocks[at] - event.work;
            self.visits[memory].entry(thread).or_insert(before);
        }
        let is_request = !matches!(event.action, Action::WriteBack(_));
        self.requests += u64::from(is_request);
        let at = self.page_of(thread, line >> self.page_shift);
        let (page, pass) = (&mut self.pages[at], &mut self.passes[at]);
        // A line that leaves a cache was written before.
        if !is_request {
            page.beginning += u64::from(!page.is_shared);
            return;
        }
        if page.first != thread && !page.is_shared {
            page.is_shared = true;
            page.times[1] = self.events;
        }
        if page.is_shared {
            page.add_use(thread, 1, u64::from(writes));
            if let Some(memory) = pass.memory {
                self.is_used[memory as usize] = true;
            }
            return;
        }
        page.beginning += 1;
        if pass
            .memory
            .is_some_and(|memory| self.is_used[memory as usize])
        {
            match pass.left {
                0 => page.add_use(thread, 1, u64::from(writes)),
                _ => pass.left -= 1,
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn event(action: Action) -> Event {
        Event {
            time: 0,
            work: 1,
            action,
            after: 0,
        }
    }

    #[test]
    fn a_beginning_ends_with_the_first_access_of_another_thread() {
        let mut facts = Facts::new(64);
        let mut add = |thread, action| facts.add(ThreadIdx(thread), &event(action));
        add(0, Action::Write(0));
        add(0, Action::Write(1));
        add(0, Action::WriteBack(0));
        add(1, Action::Read(0));
        add(1, Action::Read(1));
        add(0, Action::Read(0));
        add(0, Action::WriteBack(1));
        add(2, Action::Write(64));
        add(2, Action::Acquire(64));
        let page = &facts.page(0).unwrap();
        assert_eq!((page.first, page.beginning), (ThreadIdx(0), 3));
        assert!(page.is_shared && !page.is_written_after);
        assert_eq!(page.main_users(), [ThreadIdx(0), ThreadIdx(1)]);
        assert_eq!(page.requests_of_others(), 2);
        assert_eq!(facts.page(1).unwrap().main_users(), []);
        assert_eq!(facts.requests, 6);
        // Who writes it computes it.
        facts.add(ThreadIdx(1), &event(Action::Own(1)));
        let page = facts.page(0).unwrap();
        assert!(page.is_written_after);
        assert_eq!(page.main_users(), [ThreadIdx(1)]);
    }
}
