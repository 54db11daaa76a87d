//! Page faults of a thread: which pages its accesses, and stores by the kernel for it, place.

use std::ops::Range;

use numaloc_journal::Record;
use numaloc_page_faults::{Access, AddressSpace, By, Placed, Policy, Rule};

use super::ThreadTracer;
use crate::pages::PAGE_SHIFT;

impl ThreadTracer {
    /// Sets the thread's memory policy, by number.
    pub fn set_policy(&mut self, policy: u16) {
        self.pages.policy = policy;
    }

    /// Sets the policy with which the thread began.
    pub fn inherit_policy(&mut self, policy: Option<Policy>) {
        if policy.is_some() {
            let number = self.engine.number_policy(policy);
            self.set_policy(number);
        }
    }

    /// Number of the thread's memory policy.
    #[must_use]
    pub fn policy(&self) -> u16 {
        self.pages.policy
    }

    fn by(&self) -> By {
        By {
            thread: self.number(),
            policy: self.pages.policy,
        }
    }

    /// A load or store that may be a fault: of a page that was not accessed before, or only read.
    #[cold]
    #[inline(never)]
    pub(crate) fn fault(&mut self, address: u64, store: bool) {
        let engine = self.engine;
        let (pages, page, by) = (&engine.tables.touched, address >> PAGE_SHIFT, self.by());
        let access = if store { Access::Store } else { Access::Load };
        let ask = |space: &AddressSpace| {
            let area = match engine.any_cross_process() && !space.knows(address) {
                true => engine.area_of_unknown(address),
                false => space.area(address),
            };
            space.access_in(&area, pages, page, access, by)
        };
        if let Some(placed) = engine.faults.ask(ask).flatten() {
            self.record_placed(placed);
        }
    }

    /// The kernel has stored `length` bytes at `address` for this thread.
    pub fn stored_by_kernel(&mut self, address: u64, length: u64) {
        let engine = self.engine;
        let end = address.saturating_add(length);
        let pages = address >> PAGE_SHIFT..end.div_ceil(1 << PAGE_SHIFT);
        let settled = |page: u64| engine.is_settled::<true>(page << PAGE_SHIFT);
        if length > 0 && !pages.clone().all(settled) {
            self.access_all(address..end, Access::KernelStore);
        }
    }

    /// A call has accessed all pages of a range, which are mapped.
    pub fn access_all(&mut self, range: Range<u64>, access: Access) {
        let (engine, by, mut placed) = (self.engine, self.by(), Vec::new());
        engine.faults.ask(|space| {
            space.access_all(&engine.tables.touched, range, access, by, &mut placed);
        });
        placed
            .into_iter()
            .for_each(|placed| self.record_placed(placed));
    }

    /// Records pages that have been placed.
    pub fn record_placed(&mut self, placed: Placed) {
        if !self.pages.counters.counts() {
            return;
        }
        let time = self.time();
        let Placed {
            pages,
            by,
            rule,
            policy,
        } = placed;
        let own = by.forks == 0 && by.thread == self.number();
        if own && rule == Rule::Access && policy == 0 && pages.end == pages.start + 1 {
            self.pages.first_touched.push((pages.start, time));
            return;
        }
        let rule = Rule::ALL.iter().position(|known| *known == rule);
        self.record(&Record::Placed {
            thread: by.thread,
            forks: by.forks.into(),
            rule: rule.unwrap_or(0) as u8,
            policy: policy.into(),
            time,
            page: pages.start,
            count: pages.end - pages.start,
        });
    }

    /// The kernel has freed pages of private memory, which remains mapped.
    pub fn dropped(&mut self, ranges: &[Range<u64>]) {
        for range in ranges {
            self.forget(range.start, range.end - range.start);
        }
    }

    /// The kernel has freed pages of shared memory, which remains mapped.
    pub fn dropped_shared(&mut self, ranges: &[Range<u64>]) {
        for range in ranges {
            self.take_counts(range.start, range.end - range.start);
        }
    }
}
