//! Counts what was done with each thread and page of a plan, and turns it into the outcome.

use numaloc_model::Plan;
use numaloc_model::outcome::{Applied, Outcome};
use numaloc_model::plan::ObjectKey;
use std::collections::BTreeMap;

use crate::index::PlanIndex;
use crate::ptrace::errno_name;
use crate::roster::RosterOutcome;

/// State of a planned thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ThreadState {
    /// Not seen so far.
    #[default]
    NotFound,
    /// On its PU.
    Placed,
    /// The kernel refused the PU: errno and PU (kernel number).
    Refused(i32, u32),
    /// It ended with another affinity: its PUs at that time (kernel numbers).
    Elsewhere(Vec<u32>),
}

/// State of the pages of a planned object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageState {
    /// The object appeared in the run.
    pub found: bool,
    /// It is the unwritable part of an ELF file: page cache shared by all processes, not placed.
    pub text: bool,
    /// Its pages were read back.
    pub checked: bool,
    /// Pages bound to their node before they were touched (or bound again later).
    pub bound: u64,
    /// Pages that existed and are on their planned node now.
    pub moved: u64,
    /// Pages read back on their planned node.
    pub placed: u64,
    /// Pages read back on another node.
    pub elsewhere: u64,
    /// Pages that did not exist when read back (never touched, released, or only ever read).
    pub absent: u64,
    /// Number of refused pages by errno.
    pub refused: BTreeMap<i32, u64>,
}

impl PageState {
    /// Counts `pages` refused pages.
    pub fn refuse(&mut self, errno: i32, pages: u64) {
        *self.refused.entry(errno).or_default() += pages;
    }

    /// Counts the kernel's status for a page moved to `node`.
    pub fn relocated(&mut self, status: i32, node: u32) {
        match status {
            _ if status == node as i32 => self.moved += 1,
            // The page does not exist yet: its mempolicy decides its node when it is touched.
            _ if status == -libc::ENOENT || status == -libc::EFAULT => {}
            _ if status < 0 => self.refuse(-status, 1),
            _ => {}
        }
    }

    /// Counts the statuses of pages that were read back; of each, `planned` has a node. Where a page is does not
    /// matter, only how many are on each node.
    pub fn seen_in_all(&mut self, statuses: &[i32], planned: &[u32]) {
        let mut nodes: BTreeMap<i32, (u64, u64)> = BTreeMap::new();
        for (&status, &node) in statuses.iter().zip(planned) {
            if status < 0 {
                self.absent += 1;
                continue;
            }
            nodes.entry(status).or_default().0 += 1;
            nodes.entry(node as i32).or_default().1 += 1;
        }
        for (found, planned) in nodes.into_values() {
            self.placed += found.min(planned);
            self.elsewhere += found.saturating_sub(planned);
        }
    }

    /// Counts the status of a page that was read back; `node` is the planned one.
    pub fn seen(&mut self, status: i32, node: u32) {
        match status {
            _ if status == node as i32 => self.placed += 1,
            _ if status >= 0 => self.elsewhere += 1,
            _ => self.absent += 1,
        }
    }
}

/// The counts of one run; see the module.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    threads: Vec<ThreadState>,
    own_affinity: Vec<bool>,
    overruled: u64,
    unplanned: Vec<String>,
    unplanned_count: u64,
    handed_over: u64,
    pages: Vec<PageState>,
    planned: Vec<u64>,
    coarsened: Option<u64>,
    notes: Vec<String>,
    roles: RosterOutcome,
    own_seats: u64,
}

/// Names listed of each kind before "and N more".
const LISTED: usize = 5;

impl Tally {
    /// The tally of a plan of which nothing has been applied yet.
    pub fn new(index: &PlanIndex) -> Self {
        let objects = index.objects().map(|(at, _)| at + 1).max().unwrap_or(0);
        let mut planned = vec![0; objects];
        for (at, _) in index.objects() {
            planned[at] = index.pages(at);
        }
        Self {
            pages: vec![PageState::default(); objects],
            planned,
            coarsened: index.coarsened(),
            ..Self::default()
        }
    }

    /// Records that pages are placed in blocks of this many, if they are.
    pub fn in_blocks(&mut self, block: Option<u64>) {
        self.coarsened = block;
    }

    /// Sets the state of thread `at` of the plan.
    pub fn thread(&mut self, at: usize, state: ThreadState) {
        if self.threads.len() <= at {
            self.threads.resize(at + 1, ThreadState::NotFound);
            self.own_affinity.resize(at + 1, false);
        }
        self.threads[at] = state;
    }

    /// Records the affinity `mask` with which a thread ended; `pu` is the planned PU.
    pub fn read_back(&mut self, at: usize, pu: u32, mask: &[u32]) {
        let refused = matches!(self.threads.get(at), Some(ThreadState::Refused(..)));
        if !refused {
            self.thread(
                at,
                if mask == [pu] {
                    ThreadState::Placed
                } else {
                    ThreadState::Elsewhere(mask.to_vec())
                },
            );
        }
    }

    /// Records that the program set the affinity of thread `at` itself.
    pub fn own_affinity(&mut self, at: usize, overruled: bool) {
        if overruled {
            self.overruled += 1;
        } else if let Some(own) = self.own_affinity.get_mut(at) {
            *own = true;
        }
    }

    /// Records that the program set the affinity of a thread that its role binds.
    pub fn own_seat(&mut self, overruled: bool) {
        match overruled {
            true => self.overruled += 1,
            false => self.own_seats += 1,
        }
    }

    /// Records what became of the roles, and the number of memory policies that could not be set.
    pub fn roles(&mut self, found: RosterOutcome, late_policies: u64) {
        for (name, count) in found.unknown.iter().take(LISTED) {
            self.note(format!(
                "a role that the plan does not know was left alone: {name} ({count})"
            ));
        }
        let more = found.unknown.iter().skip(LISTED).map(|(_, count)| count);
        let (names, threads) = more.fold((0, 0), |(names, all), count| (names + 1, all + count));
        if names > 0 {
            self.note(format!(
                "{names} more roles that the plan does not know were left alone ({threads})"
            ));
        }
        if late_policies > 0 {
            self.note(format!(
                "{late_policies} threads kept the memory policy that they had before their role was known"
            ));
        }
        if self.own_seats > 0 {
            self.note(format!(
                "the program itself set the affinity of threads that the plan binds, {} times (--enforce overrules it)",
                self.own_seats
            ));
        }
        self.roles = found;
    }

    /// Records a thread that is not in the plan.
    pub fn unplanned_thread(&mut self, path: &str) {
        self.unplanned_count += 1;
        if self.unplanned.len() < LISTED {
            self.unplanned.push(path.to_owned());
        }
    }

    /// Records a process that was handed over because the program traces it itself.
    pub fn handed_over(&mut self) {
        self.handed_over += 1;
    }

    /// The page state of object `at`.
    pub fn page(&mut self, at: usize) -> &mut PageState {
        if self.pages.len() <= at {
            self.pages.resize(at + 1, PageState::default());
            self.planned.resize(at + 1, 0);
        }
        &mut self.pages[at]
    }

    /// Whether object `at` has been found.
    pub fn found(&self, at: usize) -> bool {
        self.pages.get(at).is_some_and(|page| page.found)
    }

    /// Marks object `at` as text or constants of an ELF file.
    pub fn text(&mut self, at: usize) {
        self.page(at).text = true;
    }

    /// Adds a note for the user.
    pub fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// The outcome of a run of `plan`. `pages`: whether pages were placed at all.
    #[must_use]
    pub fn outcome(mut self, plan: &Plan, pages: bool, wall_s: f64, status: i32) -> Outcome {
        let mut notes = std::mem::take(&mut self.notes);
        let threads = self.thread_counts(plan, &mut notes);
        let pages = if pages {
            self.page_counts(plan, &mut notes)
        } else {
            Applied::default()
        };
        Outcome {
            threads,
            pages,
            roles: std::mem::take(&mut self.roles.roles),
            segments: std::mem::take(&mut self.roles.segments),
            notes,
            wall_s,
            status,
        }
    }

    fn thread_counts(&self, plan: &Plan, notes: &mut Vec<String>) -> Applied {
        let mut counts = Applied {
            planned: plan.threads.len() as u64,
            unplanned: self.unplanned_count,
            ..Applied::default()
        };
        if !plan.roles.is_empty() {
            return self.role_counts();
        }
        let mut refused: BTreeMap<i32, u64> = BTreeMap::new();
        let mut missing = Vec::new();
        let mut elsewhere = Vec::new();
        let not_found = ThreadState::NotFound;
        for (at, thread) in plan.threads.iter().enumerate() {
            match self.threads.get(at).unwrap_or(&not_found) {
                ThreadState::NotFound => {
                    counts.not_found += 1;
                    missing.push(thread.path.clone());
                }
                ThreadState::Placed => counts.placed += 1,
                ThreadState::Refused(errno, pu) => {
                    *refused.entry(*errno).or_default() += 1;
                    notes.push(format!(
                        "thread {} could not go to PU P#{pu}: {} (PU offline, outside the cpuset or the inherited affinity mask)",
                        thread.path,
                        errno_name(*errno)
                    ));
                }
                ThreadState::Elsewhere(mask) => {
                    let own = self.own_affinity.get(at) == Some(&true);
                    let who = if own {
                        "the program itself"
                    } else {
                        "another process"
                    };
                    elsewhere.push(format!(
                        "{} ({who} set its affinity to {})",
                        thread.path,
                        list_pus(mask)
                    ));
                }
            }
        }
        counts.refused = by_name(&refused);
        if !missing.is_empty() {
            notes.push(format!(
                "threads of the plan that did not appear: {}",
                some(&missing)
            ));
        }
        if !elsewhere.is_empty() {
            notes.push(format!(
                "threads that ended elsewhere: {} (--enforce overrules the program)",
                some(&elsewhere)
            ));
        }
        if self.overruled > 0 {
            notes.push(format!(
                "overruled {} calls of the program that would have moved planned threads",
                self.overruled
            ));
        }
        if self.handed_over > 0 {
            notes.push(format!(
                "{} processes are traced by the program itself and were left to it: what they start is not placed",
                self.handed_over
            ));
        }
        if self.unplanned_count > 0 {
            notes.push(format!(
                "{} threads are not in the plan and were left to the kernel: {}",
                self.unplanned_count,
                more(&self.unplanned, self.unplanned_count)
            ));
        }
        counts
    }

    /// Members of roles that the plan binds, and threads of roles that it does not know.
    fn role_counts(&self) -> Applied {
        let bound = || self.roles.roles.iter().filter(|role| !role.is_left);
        let unknown = self.roles.unknown.iter();
        Applied {
            planned: bound().map(|role| role.members).sum(),
            placed: bound().map(|role| role.placed).sum(),
            unplanned: unknown.map(|(_, count)| count).sum(),
            refused: self.roles.refused.clone(),
            ..Applied::default()
        }
    }

    fn page_counts(&self, plan: &Plan, notes: &mut Vec<String>) -> Applied {
        let mut counts = Applied::default();
        let mut refused: BTreeMap<i32, u64> = BTreeMap::new();
        let (mut text, mut absent, mut moved) = (0, 0, 0);
        let (mut missing, mut elsewhere) = (Vec::new(), Vec::new());
        for (at, page) in self.pages.iter().enumerate() {
            let planned = self.planned[at];
            if planned == 0 {
                continue;
            }
            if page.text && !page.found {
                text += planned;
                continue;
            }
            for (&errno, &pages) in &page.refused {
                *refused.entry(errno).or_default() += pages;
            }
            moved += page.moved;
            if !page.found {
                counts.planned += planned;
                counts.not_found += planned;
                missing.push(format!(
                    "{} ({planned} pages)",
                    described(&plan.objects[at])
                ));
            } else if page.checked {
                let exists = page.placed + page.elsewhere;
                counts.planned += exists;
                counts.placed += page.placed;
                if page.elsewhere > 0 {
                    elsewhere.push((plan.objects[at].name.as_str(), page.elsewhere));
                }
                absent += planned.saturating_sub(exists);
            } else {
                counts.planned += planned;
                counts.placed += page.bound.min(planned);
            }
        }
        counts.refused = by_name(&refused);
        if refused.contains_key(&libc::EPERM) {
            notes.push(
                "EPERM: a seccomp filter (of a container, or the program's own) forbids mbind or \
                 move_pages"
                    .to_owned(),
            );
        }
        let what = [
            (
                moved,
                "existed before they could be placed, and were moved where needed".to_owned(),
            ),
            (elsewhere.iter().map(|&(_, pages)| pages).sum(), in_objects(&elsewhere)),
            (
                absent,
                "were not there when read back (not touched in this run, or released)".to_owned(),
            ),
            (
                text,
                "are text or constants in the page cache, shared with other processes, and left alone"
                    .to_owned(),
            ),
        ];
        let counted = what.iter().filter(|(pages, _)| *pages > 0);
        notes.extend(counted.map(|(pages, what)| format!("{pages} planned pages {what}")));
        if !missing.is_empty() {
            notes.push(format!(
                "objects of the plan that did not appear: {}",
                some(&missing)
            ));
        }
        if let Some(block) = self.coarsened {
            notes.push(format!(
                "the plan has more ranges than vm.max_map_count allows mappings: placed in blocks of \
                 {block} pages"
            ));
        }
        counts
    }
}

/// What identifies an object.
fn described(key: &ObjectKey) -> String {
    let creator = key.creator.as_deref().unwrap_or("start");
    let (kind, name) = (key.kind.name(), &key.name);
    format!(
        "{kind} {name} of {} bytes, number {} by {creator}",
        key.size, key.order
    )
}

/// Where pages were found on another node: the name of each object, and its number of them.
fn in_objects(elsewhere: &[(&str, u64)]) -> String {
    let by_object = elsewhere
        .iter()
        .map(|(name, pages)| format!("{name}: {pages}"));
    let by_object: Vec<String> = by_object.collect();
    format!(
        "were found on another node than planned ({})",
        some(&by_object)
    )
}

fn by_name(refused: &BTreeMap<i32, u64>) -> Vec<(String, u64)> {
    let mut named: Vec<(String, u64)> = refused
        .iter()
        .map(|(&errno, &count)| (errno_name(errno), count))
        .collect();
    named.sort();
    named
}

fn some(names: &[String]) -> String {
    more(&names[..names.len().min(LISTED)], names.len() as u64)
}

fn more(shown: &[String], all: u64) -> String {
    let list = shown.join(", ");
    match all - shown.len() as u64 {
        0 => list,
        rest => format!("{list} and {rest} more"),
    }
}

/// PUs as `0-3,8`.
pub fn list_pus(pus: &[u32]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut at = 0;
    while at < pus.len() {
        let mut end = at;
        while end + 1 < pus.len() && pus[end + 1] == pus[end] + 1 {
            end += 1;
        }
        parts.push(if end == at {
            pus[at].to_string()
        } else {
            format!("{}-{}", pus[at], pus[end])
        });
        at = end + 1;
    }
    parts.join(",")
}
