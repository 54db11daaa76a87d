//! Page policies inside a simulation: decide the node of each page while the program runs, as a kernel does.
//!
//! | policy | when a page moves | source |
//! |---|---|---|
//! | first touch | never: it stays on the node of the first touch | the default of Linux |
//! | interleave | never: nodes in turn by address | `numactl --interleave` |
//! | next touch | once: pages touched before the first thread is created move to the node of the next thread that touches them | Goglin and Furmento 2009 |
//! | AutoNUMA | whenever a hint fault finds it misplaced | `task_numa_work` and `should_numa_migrate_memory` of Linux 6.1 |
//!
//! AutoNUMA here: in each scan period, the next pages in address order lose their access rights; the next access to
//! such a page in the trace takes a hint fault. The page moves to the faulting thread's node if the page's last fault
//! came from that node too, if it had none yet, or, in the first four scans, if the same thread took it. Not modelled:
//! NUMA groups of tasks, the rate limit for slow memory, adaptive scan periods.
//!
//! Accesses served by the recorder's private caches are not in the trace, so a page whose lines stay there takes its
//! fault later than on a real machine. Cached lines of a moved page stay cached.

use numaloc_model::LogicalNode;

/// A page policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pages {
    /// On the node of the thread that touches the page first.
    FirstTouch,
    /// In turn on every node, by the page's address.
    Interleave,
    /// First touch; pages that the first thread touched before it created another move once, to the next toucher.
    NextTouch,
    /// First touch, and pages follow the hint faults of the kernel's NUMA balancing.
    AutoNuma,
    /// All on one node.
    Node(LogicalNode),
    /// By [`Trace::pages`](crate::Trace::pages); pages without a node by first touch.
    Placed(Vec<Option<LogicalNode>>),
}

/// Costs of faults and page moves, and the scan period. Presets.
#[derive(Clone, Debug, PartialEq)]
pub struct PageCosts {
    /// Microseconds of a fault.
    pub fault_us: f64,
    /// Microseconds for moving a page, in addition to copying: unmapping, TLB shoot-down, mapping.
    pub move_us: f64,
    /// Milliseconds between two scans of AutoNUMA (`numa_balancing_scan_period_min_ms`).
    pub scan_period_ms: f64,
    /// Bytes that a scan covers (`numa_balancing_scan_size_mb`).
    pub scan_bytes: u64,
}

impl Default for PageCosts {
    fn default() -> Self {
        Self {
            fault_us: 1.0,
            move_us: 3.0,
            scan_period_ms: 1000.0,
            scan_bytes: 256 << 20,
        }
    }
}

/// The thread and node of a page's last hint fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Faulted {
    thread: u32,
    node: u16,
}

/// State of AutoNUMA's scans.
#[derive(Clone, Debug)]
struct Scanner {
    /// By page; `thread` is `u32::MAX` before its first fault.
    last: Vec<Faulted>,
    next_at: u64,
    period: u64,
    /// Pages a scan covers.
    pages: usize,
    /// The first page of the next scan.
    from: usize,
    scans: u32,
}

/// Number of scans in which a page follows the thread of its last fault to another node.
const EARLY_SCANS: u32 = 4;

/// The pages of one simulation.
#[derive(Clone, Debug)]
pub(crate) struct PageTable {
    /// Node of each page, and a mark on pages whose next access faults.
    homes: Vec<u16>,
    /// When each page got its node by first touch; 0 if it did otherwise, the largest time before its first touch.
    since: Vec<u64>,
    /// The latest time of a first touch.
    last_since: u64,
    /// Whether the policy makes pages fault.
    pub(crate) can_fault: bool,
    /// Whether next touch still has to mark the pages that the first thread touched.
    marks_on_creation: bool,
    scanner: Option<Scanner>,
    /// Faults taken.
    pub(crate) faults: u64,
    /// Pages moved.
    pub(crate) moves: u64,
}

const NOWHERE: u16 = u16::MAX;
const FAULTS: u16 = 1 << 15;

/// Result of an access to a marked page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Stays,
    Moves { from: usize },
}

impl PageTable {
    /// Creates the table for pages with these numbers, of `page_bytes`, on a machine with `nodes` nodes. Those that
    /// are left to the kernel are where the thread that `placed` them in the recording is, if that is known, otherwise
    /// where they are accessed first.
    pub(crate) fn new(
        policy: &Pages,
        (pages, page_bytes): (&[u64], u64),
        nodes: usize,
        costs: &PageCosts,
        placed: impl Fn(usize) -> Option<u32>,
    ) -> Self {
        let touched = |page: usize| placed(page).map_or(NOWHERE, |node| node as u16);
        let homes = match policy {
            Pages::FirstTouch | Pages::AutoNuma => (0..pages.len()).map(touched).collect(),
            Pages::NextTouch => vec![NOWHERE; pages.len()],
            Pages::Interleave => pages
                .iter()
                .map(|page| (page % nodes as u64) as u16)
                .collect(),
            Pages::Node(node) => vec![node.0 as u16; pages.len()],
            Pages::Placed(homes) => {
                let home = |(page, node): (usize, &Option<LogicalNode>)| {
                    node.map_or_else(|| touched(page), |node| node.0 as u16)
                };
                homes.iter().enumerate().map(home).collect()
            }
        };
        let period = ((costs.scan_period_ms * 1e9).round() as u64).max(1);
        let nobody = Faulted {
            thread: u32::MAX,
            node: 0,
        };
        let scanner = (*policy == Pages::AutoNuma).then(|| Scanner {
            last: vec![nobody; pages.len()],
            next_at: period,
            period,
            pages: (costs.scan_bytes / page_bytes).max(1) as usize,
            from: 0,
            scans: 0,
        });
        let since = homes
            .iter()
            .map(|&home| if home == NOWHERE { u64::MAX } else { 0 });
        Self {
            since: since.collect(),
            last_since: 0,
            homes,
            can_fault: matches!(policy, Pages::NextTouch | Pages::AutoNuma),
            marks_on_creation: *policy == Pages::NextTouch,
            scanner,
            faults: 0,
            moves: 0,
        }
    }

    /// The home of a page that a core of `node` touches at `now`.
    #[inline(always)]
    pub(crate) fn home(&mut self, page: usize, node: u32, now: u64) -> usize {
        let home = self.homes[page];
        if now < self.last_since || home == NOWHERE {
            return self.touch(page, node, now);
        }
        usize::from(home & !FAULTS)
    }

    /// [`PageTable::home`] at a time at which this may be the page's first touch: before all others, or, as clocks of
    /// PUs differ, before the one that was handled first.
    #[inline(never)]
    fn touch(&mut self, page: usize, node: u32, now: u64) -> usize {
        if now < self.since[page] {
            self.since[page] = now;
            self.last_since = self.last_since.max(now);
            let marks = match self.homes[page] {
                NOWHERE => 0,
                home => home & FAULTS,
            };
            self.homes[page] = marks | node as u16;
        }
        usize::from(self.homes[page] & !FAULTS)
    }

    /// The home of a page of which a line is written back at `now`, from below a last-level cache of `node`: that does
    /// not count as a touch, except for a page that was not touched before.
    #[inline(always)]
    pub(crate) fn home_of_written(&mut self, page: usize, node: u32, now: u64) -> usize {
        match self.homes[page] {
            NOWHERE => self.touch(page, node, now),
            home => usize::from(home & !FAULTS),
        }
    }

    /// Moves a page to a node; returns the node that it was on, if that is another one and it was touched already.
    pub(crate) fn move_to(&mut self, page: usize, node: usize) -> Option<usize> {
        let home = std::mem::replace(&mut self.homes[page], node as u16);
        self.since[page] = 0;
        let was = usize::from(home & !FAULTS);
        if home == NOWHERE || was == node {
            return None;
        }
        self.moves += 1;
        Some(was)
    }

    /// Records that a thread was created.
    pub(crate) fn created(&mut self) {
        if !std::mem::take(&mut self.marks_on_creation) {
            return;
        }
        for home in self.homes.iter_mut().filter(|home| **home != NOWHERE) {
            *home |= FAULTS;
        }
    }

    /// Handles an access of `thread` on `node` at `now`; returns the result of its fault, if it takes one.
    #[inline]
    pub(crate) fn access(
        &mut self,
        page: usize,
        thread: u32,
        node: u32,
        now: u64,
    ) -> Option<Fault> {
        if self
            .scanner
            .as_ref()
            .is_some_and(|scanner| now >= scanner.next_at)
        {
            self.scan(now);
        }
        let home = self.homes[page];
        if home == NOWHERE || home & FAULTS == 0 {
            return None;
        }
        Some(self.fault(page, thread, node as u16))
    }

    fn fault(&mut self, page: usize, thread: u32, node: u16) -> Fault {
        let home = self.homes[page] & !FAULTS;
        self.homes[page] = home;
        self.faults += 1;
        let follows = match &mut self.scanner {
            None => true,
            Some(scanner) => {
                let last = scanner.last[page];
                scanner.last[page] = Faulted { thread, node };
                let is_first = last.thread == u32::MAX;
                let is_same = last.thread == thread;
                is_first || last.node == node || (is_same && scanner.scans <= EARLY_SCANS)
            }
        };
        if !follows || home == node {
            return Fault::Stays;
        }
        self.homes[page] = node;
        self.since[page] = 0;
        self.moves += 1;
        Fault::Moves {
            from: usize::from(home),
        }
    }

    /// Marks the next pages in address order.
    fn scan(&mut self, now: u64) {
        let Some(scanner) = &mut self.scanner else {
            return;
        };
        // A period without memory accesses has no scan: ticks come from running threads.
        scanner.next_at = now + scanner.period;
        scanner.scans += 1;
        let pages = self.homes.len();
        for _ in 0..scanner.pages.min(pages) {
            let home = &mut self.homes[scanner.from];
            if *home != NOWHERE {
                *home |= FAULTS;
            }
            scanner.from = (scanner.from + 1) % pages;
        }
    }

    /// Number of pages on each node.
    pub(crate) fn count(&self, nodes: usize) -> Vec<u64> {
        let mut count = vec![0; nodes];
        for &home in self.homes.iter().filter(|&&home| home != NOWHERE) {
            count[usize::from(home & !FAULTS)] += 1;
        }
        count
    }
}
