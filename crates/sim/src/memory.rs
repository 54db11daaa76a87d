//! The memory system: private caches if they are modelled, last-level caches, the directory, controllers and links.
//!
//! For each line, the directory stores the core that has it written (owner), the cores that may have it (sharers) and
//! the last-level caches that may have it: MESI with the exclusive state folded into ownership on the first write.
//! Cores evict clean lines silently, so sharers are an upper bound, as in real directories.
//!
//! Latencies of a request by a core: a last-level hit takes the cache's latency; memory of its own node the memory
//! latency after the controller's queue; another node's memory adds a request and a data message along the route. A
//! line that another core has written comes from that core: inside a last-level cache for its latency plus one private
//! latency; from another one through the line's home, to which the line is written back. A write waits until all other
//! copies are invalid. Lines written back to memory take an entry of the core's write-back buffer.

use crate::cache::{Cache, Evicted, Replacement, Used};
use crate::directory::Directory;
use crate::event::{Packed, Step};
use crate::line::Line;
use crate::machine::{LinkModel, Machine, Place};
use crate::outcome::{GroupFigures, LinkFigures, NodeFigures};
use crate::pages::{Fault, PageTable};
use crate::routes::{Message, Routes};
use crate::translation::Translation;
use crate::write_backs::WriteBacks;

mod counts;
mod servers;
mod traffic;

use servers::{Controller, Link};

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// By the core's own caches at this time: nothing is outstanding.
    Private(u64),
    /// The line arrives at this time.
    At(u64),
}

pub(crate) struct Memory<'a> {
    machine: &'a Machine,
    pub(crate) pages: PageTable,
    page_shift: u32,
    pub(crate) directory: Directory,
    /// Largest private cache of each core; `None` if the trace's own filter models it.
    private: Option<Vec<Cache>>,
    /// Whether lines of pages that one thread uses stay on its core, so that the directory needs no entry for them.
    pub(crate) knows_private: bool,
    /// The core of the only thread that uses each page, for last-level caches that include private ones; else empty.
    page_cores: Vec<u32>,
    llcs: Vec<Cache>,
    controllers: Vec<Controller>,
    links: Vec<Link>,
    /// TLBs and page walks, if they take time.
    pub(crate) translation: Option<Translation>,
    /// By core.
    write_backs: Vec<WriteBacks>,
    /// When all write-backs of the current access had entries in the buffer; see [`Memory::resume`].
    buffered_at: u64,
    /// By [`Message`].
    message_bytes: [u64; 2],
    routes: Routes,
    /// A node of each last-level cache's cores.
    group_node: Vec<u32>,
    pub(crate) groups: Vec<GroupFigures>,
    /// Lines read from DRAM and written back to it, by the core's node and the line's home.
    pub(crate) lines_by_node_pair: Vec<u64>,
    /// Requests below private caches, by the core's node and the line's home.
    pub(crate) requests_by_node_pair: Vec<u64>,
    /// Whether requests only change the state of caches and take the time of an idle machine.
    pub(crate) is_functional: bool,
    /// Sum of the latencies of all requests' parts on an idle machine.
    pub(crate) idle: u64,
    pub(crate) private_hits: u64,
    pub(crate) invalidations: u64,
    pub(crate) transfers_within: u64,
    pub(crate) transfers_between: u64,
}

impl<'a> Memory<'a> {
    pub(crate) fn new(
        machine: &'a Machine,
        pages: PageTable,
        page_shift: u32,
        lines: usize,
        with_private: bool,
    ) -> Self {
        let cores = machine.core_node.len();
        let parameters = &machine.parameters;
        let message_bytes = [
            parameters.request_bytes,
            machine.line_bytes + parameters.header_bytes,
        ];
        let times = |link: &LinkModel| {
            message_bytes.map(|bytes| (bytes as f64 * link.ps_per_byte).round() as u64)
        };
        Self {
            pages,
            page_shift,
            directory: Directory::new(lines, cores),
            private: with_private.then(|| {
                let cache = |_| Cache::new(machine.private, Replacement::Lru, lines);
                (0..cores).map(cache).collect()
            }),
            knows_private: false,
            page_cores: Vec::new(),
            llcs: (0..machine.groups)
                .map(|_| {
                    Cache::new(
                        machine.llc,
                        parameters.llc_replacement.unwrap_or_default(),
                        lines,
                    )
                })
                .collect(),
            controllers: Controller::all(machine),
            links: machine
                .links
                .iter()
                .map(|link| Link::new(times(link)[Message::Line as usize]))
                .collect(),
            translation: None,
            write_backs: vec![WriteBacks::new(parameters.write_backs); cores],
            buffered_at: 0,
            routes: Routes::new(machine, times),
            message_bytes,
            group_node: (0..machine.groups)
                .map(|group| machine.node_of_group(group))
                .collect(),
            groups: vec![GroupFigures::default(); machine.groups],
            lines_by_node_pair: vec![0; machine.nodes * machine.nodes],
            requests_by_node_pair: vec![0; machine.nodes * machine.nodes],
            is_functional: false,
            idle: 0,
            private_hits: 0,
            invalidations: 0,
            transfers_within: 0,
            transfers_between: 0,
            machine,
        }
    }

    /// States that the only thread that uses a page stays on its core: `core_of` gives that of each thread, `users` the
    /// thread of each page, or another number.
    pub(crate) fn know_private(&mut self, users: &[u32], core_of: impl Fn(u32) -> Option<u32>) {
        self.knows_private = true;
        if self.machine.parameters.inclusive {
            let cores = users.iter().map(|&user| core_of(user).unwrap_or(0));
            self.page_cores = cores.collect();
        }
    }

    /// Asks the host for what a core's request for a line will use.
    #[inline(always)]
    pub(crate) fn prefetch(&self, at: Place, line: Line) {
        if !line.is_private() {
            self.directory.prefetch(line.number());
        }
        if let Some(caches) = &self.private {
            caches[at.core as usize].prefetch(line);
        }
        self.llcs[at.group as usize].prefetch(line);
    }

    /// Asks the host for what the eviction of another line will use, once [`Memory::prefetch`] has had its effect.
    #[inline(always)]
    pub(crate) fn prefetch_evicted(&self, at: Place, line: Line) {
        if let Some(evicted) = self.llcs[at.group as usize].last(line)
            && !evicted.is_private()
        {
            self.directory.prefetch(evicted.number());
        }
    }

    #[inline(always)]
    fn home(&mut self, line: Line, node: usize, now: u64) -> usize {
        let page = (line.number() >> self.page_shift) as usize;
        self.pages.home(page, node as u32, now)
    }

    /// When a core's access to a line at `now` has the address of its page.
    #[inline(always)]
    pub(crate) fn translate(&mut self, at: Place, line: Line, now: u64) -> u64 {
        let page = (line.number() >> self.page_shift) as usize;
        let Some(translation) = &mut self.translation else {
            return now;
        };
        if translation.has(at, page) {
            return now;
        }
        let home = self.pages.home(page, at.node, now);
        let time = translation.walk(self.machine, at, page, home);
        match self.is_functional {
            true => now,
            false => translation.wait(at, now, time),
        }
    }

    /// Handles the fault of an access if its page is marked; returns when the thread continues, or `None` without a
    /// fault.
    pub(crate) fn fault(&mut self, at: Place, thread: u32, line: Line, now: u64) -> Option<u64> {
        let node = at.node;
        let fault = self.pages.access(
            (line.number() >> self.page_shift) as usize,
            thread,
            node,
            now,
        )?;
        let costs = &self.machine.parameters.page_costs;
        let of_us = |us: f64| (us * 1e6).round() as u64;
        let handled = now + of_us(costs.fault_us);
        match fault {
            Fault::Stays => Some(handled),
            Fault::Moves { from } => {
                let unmapped = handled + of_us(costs.move_us);
                Some(self.copy_page(unmapped, from, node as usize))
            }
        }
    }

    /// Performs the request of an event without regard to its time.
    pub(crate) fn request(&mut self, at: Place, event: Packed, now: u64) {
        let line = event.line(self.knows_private);
        if event.step() != Step::WriteBack {
            self.translate(at, line, now);
        }
        match event.step() {
            Step::Read => {
                self.read(at, line, now);
            }
            Step::Write => {
                self.write(at, line, now);
            }
            Step::Own => {
                self.own(at, line, now);
            }
            _ => self.write_back(at, line, now),
        }
    }

    /// Touches the page of a line.
    pub(crate) fn touch(&mut self, at: Place, line: Line, now: u64) {
        let node = at.node as usize;
        self.home(line, node, now);
    }

    /// Picoseconds of moving a page, without the copy.
    pub(crate) fn page_move(&self) -> u64 {
        (self.machine.parameters.page_costs.move_us * 1e6).round() as u64
    }

    /// A load that missed in the recorder's filter.
    #[inline(always)]
    pub(crate) fn read(&mut self, at: Place, line: Line, now: u64) -> Answer {
        if let Some(caches) = &mut self.private
            && caches[at.core as usize].touch(line)
        {
            self.private_hits += 1;
            return Answer::Private(now + self.machine.private_latency);
        }
        let done = if line.is_private() {
            let home = self.begin(at, line, now);
            self.fetch_private(at, line, now, home)
        } else {
            let done = self.fetch(at, line, now);
            self.directory.add_sharer(line.number(), at.core);
            done
        };
        // The look-up above missed, and fetching a line puts none into private caches.
        if let Some(caches) = &mut self.private
            && let Some((evicted, true)) = caches[at.core as usize].put_absent(line, false)
        {
            self.leave_private(at, evicted, now);
        }
        Answer::At(done)
    }

    /// A store that missed in the recorder's filter.
    #[inline]
    pub(crate) fn write(&mut self, at: Place, line: Line, now: u64) -> Answer {
        let is_here = match &mut self.private {
            Some(caches) => caches[at.core as usize].touch(line),
            None => false,
        };
        if is_here {
            self.private_hits += 1;
            return self.own(at, line, now);
        }
        let fetched = self.fetch(at, line, now);
        let invalid = self.invalidate(at, line, now);
        self.fill_private(at, line, true, now);
        Answer::At(fetched.max(invalid))
    }

    /// A store to a line that the core has, and that others may have too.
    #[inline]
    pub(crate) fn own(&mut self, at: Place, line: Line, now: u64) -> Answer {
        let done = self.invalidate(at, line, now);
        self.fill_private(at, line, true, now);
        if done == now {
            Answer::Private(now)
        } else {
            Answer::At(done)
        }
    }

    /// A written line was evicted from the recorder's filter.
    #[inline]
    pub(crate) fn write_back(&mut self, at: Place, line: Line, now: u64) {
        if self.private.is_some() {
            // The machine's own private cache keeps it until it is evicted there.
            self.fill_private(at, line, true, now);
        } else {
            self.leave_private(at, line, now);
        }
    }

    fn fill_private(&mut self, at: Place, line: Line, dirty: bool, now: u64) {
        let Some(caches) = &mut self.private else {
            return;
        };
        if let Some((evicted, was_dirty)) = caches[at.core as usize].put(line, dirty)
            && was_dirty
        {
            self.leave_private(at, evicted, now);
        }
    }

    /// Moves a written line from private caches to the core's last-level cache.
    fn leave_private(&mut self, at: Place, line: Line, now: u64) {
        if !line.is_private() {
            let owner = self.directory.entry(line.number()).owner;
            // Another core has taken ownership meanwhile.
            if owner != 0 && owner != at.core + 1 {
                return;
            }
            self.directory.disown(line.number());
        }
        let group = at.group;
        self.fill_llc(at, group, line, true, now);
    }

    /// Puts a line into a last-level cache, because of an access of `core`.
    fn fill_llc(&mut self, at: Place, group: u32, line: Line, dirty: bool, now: u64) {
        let evicted = self.llcs[group as usize].put(line, dirty);
        self.filled(at, group, line, evicted, now);
    }

    /// Records that a last-level cache has a line, and handles the line that it evicted for it.
    #[inline]
    fn filled(&mut self, at: Place, group: u32, line: Line, evicted: Evicted, now: u64) {
        if !line.is_private() {
            self.directory.add_group(line.number(), group);
        }
        let Some((evicted, was_dirty)) = evicted else {
            return;
        };
        if !evicted.is_private() {
            self.directory.remove_group(evicted.number(), group);
        }
        let mut was_dirty = was_dirty;
        if self.machine.parameters.inclusive {
            was_dirty |= self.drop_below(group, evicted);
        }
        if was_dirty {
            let node = self.node_of_group(group);
            let page = (evicted.number() >> self.page_shift) as usize;
            let home = self.pages.home_of_written(page, node, now);
            self.write_dram(at.core, now, node as usize, home);
        }
    }

    /// Removes a line from the private caches below a last-level cache; returns whether one had it written.
    fn drop_below(&mut self, group: u32, line: Line) -> bool {
        let mut was_dirty = false;
        if line.is_private() {
            let core = self.page_cores[(line.number() >> self.page_shift) as usize];
            return match &mut self.private {
                Some(caches) => caches[core as usize].remove(line),
                None => false,
            };
        }
        for core in 0..self.machine.core_group.len() as u32 {
            let entry = self.directory.entry(line.number());
            if self.machine.core_group[core as usize] != group
                || entry.sharers & self.directory.bit(core) == 0
            {
                continue;
            }
            was_dirty |= entry.owner == core + 1;
            if entry.owner == core + 1 {
                self.directory.disown(line.number());
            }
            if let Some(caches) = &mut self.private {
                caches[core as usize].remove(line);
            }
        }
        was_dirty
    }

    fn node_of_group(&self, group: u32) -> u32 {
        self.group_node[group as usize]
    }

    /// Counts a request; returns the line's home.
    #[inline(always)]
    fn begin(&mut self, at: Place, line: Line, now: u64) -> usize {
        let node = at.node as usize;
        let home = self.home(line, node, now);
        self.requests_by_node_pair[node * self.machine.nodes + home] += 1;
        self.idle += self.machine.llc_latency;
        home
    }

    /// Fetches a line for a core; returns its arrival time. Does not change the directory's sharers.
    fn fetch(&mut self, at: Place, line: Line, now: u64) -> u64 {
        let home = self.begin(at, line, now);
        if line.is_private() {
            return self.fetch_private(at, line, now, home);
        }
        let (group, node) = (at.group, at.node as usize);
        let entry = self.directory.entry(line.number());
        let figures = &mut self.groups[group as usize];
        if entry.owner != 0 && entry.owner != at.core + 1 {
            let owner = entry.owner - 1;
            self.directory.disown(line.number());
            let owner_group = self.machine.core_group[owner as usize];
            if owner_group == group {
                self.transfers_within += 1;
                figures.hits += 1;
                self.fill_llc(at, group, line, true, now);
                return now + self.machine.llc_latency + self.machine.private_latency;
            }
            figures.misses += 1;
            let from = self.machine.core_node[owner as usize] as usize;
            return self.transfer(now, at, home, (owner_group, from), line);
        }
        // The directory knows of every line in a last-level cache: most misses need no search there.
        if entry.groups & (1 << group) != 0 && self.llcs[group as usize].touch(line) {
            figures.hits += 1;
            return now + self.machine.llc_latency;
        }
        figures.misses += 1;
        let mut others = entry.groups & !(1 << group);
        while others != 0 {
            let other = others.trailing_zeros();
            others &= others - 1;
            if self.llcs[other as usize].is_dirty(line) {
                let from = self.node_of_group(other) as usize;
                return self.transfer(now, at, home, (other, from), line);
            }
        }
        let done = self.read_dram(now, node, home);
        // The look-up above missed, and nothing has changed the cache since.
        let evicted = self.llcs[group as usize].put_absent(line, false);
        self.filled(at, group, line, evicted, now);
        done
    }

    /// [`Memory::fetch`] of a line that no other core ever has.
    #[inline(always)]
    fn fetch_private(&mut self, at: Place, line: Line, now: u64, home: usize) -> u64 {
        let (group, node) = (at.group, at.node as usize);
        match self.llcs[group as usize].use_or_put(line) {
            Used::Hit => {
                self.groups[group as usize].hits += 1;
                now + self.machine.llc_latency
            }
            Used::Put(evicted) => {
                self.groups[group as usize].misses += 1;
                let done = self.read_dram(now, node, home);
                self.filled(at, group, line, evicted, now);
                done
            }
        }
    }

    /// Makes a core the owner of a line that another one owns, as if that had never had it, at no cost.
    pub(crate) fn hand_to(&mut self, line: Line, core: u32) {
        let entry = self.directory.entry(line.number());
        if let Some(caches) = &mut self.private
            && let Some(owner) = entry.owner.checked_sub(1)
        {
            caches[owner as usize].remove(line);
        }
        let group = 1 << self.machine.core_group[core as usize];
        let mut others = entry.groups & !group;
        while others != 0 {
            self.llcs[others.trailing_zeros() as usize].remove(line);
            others &= others - 1;
        }
        self.directory
            .own(line.number(), core, entry.groups & group);
    }

    /// Transfers a written line from another last-level cache, or from a core below it, through its home, to which it
    /// is written back.
    fn transfer(
        &mut self,
        now: u64,
        at: Place,
        home: usize,
        (other, from): (u32, usize),
        line: Line,
    ) -> u64 {
        let (group, node) = (at.group, at.node as usize);
        self.transfers_between += 1;
        let asked = self.send_request(now + self.machine.llc_latency, node, home);
        let forwarded = self.send_request(asked, home, from) + self.machine.llc_latency;
        let done = self.send_line(forwarded, from, node);
        self.write_dram(at.core, forwarded, from, home);
        self.llcs[other as usize].clean(line);
        self.fill_llc(at, other, line, false, now);
        self.fill_llc(at, group, line, false, now);
        done
    }

    /// Invalidates all copies except that of `core`; returns when all have been acknowledged.
    fn invalidate(&mut self, at: Place, line: Line, now: u64) -> u64 {
        if line.is_private() {
            return now;
        }
        let group = at.group;
        let (bit, entry) = (
            self.directory.bit(at.core),
            self.directory.entry(line.number()),
        );
        self.directory
            .own(line.number(), at.core, entry.groups & (1 << group));
        if entry.owner == at.core + 1 {
            return now;
        }
        let (sharers, groups) = (entry.sharers & !bit, entry.groups & !(1 << group));
        if sharers == 0 && groups == 0 {
            return now;
        }
        let node = at.node as usize;
        let mut asked_groups = groups;
        let mut done = now;
        let cores = self.machine.core_group.len() as u32;
        let sharer_shift = self.directory.sharer_shift();
        let mut bits = sharers;
        while bits != 0 {
            let first = bits.trailing_zeros() << sharer_shift;
            bits &= bits - 1;
            for other in first..(first + (1 << sharer_shift)).min(cores) {
                if other == at.core {
                    continue;
                }
                self.invalidations += 1;
                if let Some(caches) = &mut self.private {
                    caches[other as usize].remove(line);
                }
                match self.machine.core_group[other as usize] {
                    same if same == group => done = done.max(now + self.machine.llc_latency),
                    another => asked_groups |= 1 << another,
                }
            }
        }
        while asked_groups != 0 {
            let other = asked_groups.trailing_zeros();
            asked_groups &= asked_groups - 1;
            self.llcs[other as usize].remove(line);
            let to = self.node_of_group(other) as usize;
            let asked = self.send_request(now + self.machine.llc_latency, node, to);
            done = done.max(self.send_request(asked, to, node));
        }
        done
    }

    /// Figures of controllers, with pages by node, and of links.
    pub(crate) fn figures(&self) -> (Vec<NodeFigures>, Vec<LinkFigures>) {
        let pages = self.pages.count(self.machine.nodes);
        let controllers = self.controllers.iter().zip(pages);
        let nodes = controllers.map(|(controller, pages)| controller.figures(pages));
        let links = self.links.iter().zip(&self.machine.links);
        let links = links.map(|(link, model)| {
            let mut figures = LinkFigures::of(model);
            link.complete(&mut figures);
            figures
        });
        (nodes.collect(), links.collect())
    }
}
