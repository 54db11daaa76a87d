//! What the events of a trace, or the slices of a profile, say about each page: who began with it, who used it
//! afterwards.
//!
//! A page's *beginning* is what its first thread does with it before another thread uses it: usually its
//! initialisation. What follows is its use.
//!
//! Memory: O(pages x threads that use each).

use std::collections::HashMap;

use numaloc_model::ThreadIdx;
use numaloc_model::trace::{Action, Event};

/// One page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageFacts {
    /// The thread that began with it.
    pub first: ThreadIdx,
    /// Number of requests and write-backs of its beginning.
    pub beginning: u64,
    /// Whether another thread has used it.
    pub is_shared: bool,
    /// Whether a thread wrote it after its beginning.
    pub is_written_after: bool,
    /// Requests after its beginning, by thread in the order of their first.
    pub users: Vec<(ThreadIdx, u64)>,
}

impl PageFacts {
    /// The threads that use it most after its beginning: those with at least half as many requests as the one with
    /// most. Ascending.
    #[must_use]
    pub fn main_users(&self) -> Vec<ThreadIdx> {
        let most = self.users.iter().map(|(_, requests)| *requests).max();
        let least = most.unwrap_or(0).div_ceil(2);
        let main = self.users.iter().filter(|(_, requests)| *requests >= least);
        let mut users: Vec<ThreadIdx> = main.map(|(thread, _)| *thread).collect();
        users.sort_unstable();
        users
    }

    /// Requests of all threads but the first after the beginning.
    #[must_use]
    pub fn requests_of_others(&self) -> u64 {
        let others = self
            .users
            .iter()
            .filter(|(thread, _)| *thread != self.first);
        others.map(|(_, requests)| requests).sum()
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
        }
    }

    /// Pages of a run without a trace, by their numbers; `requests`: of all threads below their private caches.
    pub fn of_pages(requests: u64, pages: impl IntoIterator<Item = (u64, PageFacts)>) -> Self {
        let (index, pages): (Vec<u64>, Vec<PageFacts>) = pages.into_iter().unzip();
        Self {
            page_shift: 0,
            requests,
            pages,
            index: index.into_iter().zip(0..).collect(),
            recent: Vec::new(),
        }
    }

    /// A page by its number.
    #[must_use]
    pub fn page(&self, number: u64) -> Option<&PageFacts> {
        let at = *self.index.get(&number)?;
        Some(&self.pages[at as usize])
    }

    fn page_of(&mut self, thread: ThreadIdx, number: u64) -> &mut PageFacts {
        if self.recent.len() <= thread.index() {
            self.recent.resize(thread.index() + 1, (u64::MAX, 0));
        }
        let recent = &mut self.recent[thread.index()];
        if recent.0 != number {
            let next = self.pages.len() as u32;
            let at = *self.index.entry(number).or_insert(next);
            if at == next {
                self.pages.push(PageFacts {
                    first: thread,
                    beginning: 0,
                    is_shared: false,
                    is_written_after: false,
                    users: Vec::new(),
                });
            }
            *recent = (number, at);
        }
        &mut self.pages[recent.1 as usize]
    }

    /// Adds an event; events come in recorded order.
    pub fn add(&mut self, thread: ThreadIdx, event: &Event) {
        let Some((line, writes)) = line_of(event.action) else {
            return;
        };
        let is_request = !matches!(event.action, Action::WriteBack(_));
        self.requests += u64::from(is_request);
        let page = self.page_of(thread, line >> self.page_shift);
        // A line that leaves a cache was written before.
        if !is_request {
            page.beginning += u64::from(!page.is_shared);
            return;
        }
        page.is_shared |= page.first != thread;
        if !page.is_shared {
            page.beginning += 1;
            return;
        }
        page.is_written_after |= writes;
        match page.users.iter_mut().find(|(user, _)| *user == thread) {
            Some((_, requests)) => *requests += 1,
            None => page.users.push((thread, 1)),
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
        facts.add(ThreadIdx(1), &event(Action::Own(1)));
        assert!(facts.page(0).unwrap().is_written_after);
    }
}
