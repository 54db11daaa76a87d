//! The loop that follows a program: threads that come and go, their samples, advice and what becomes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use numaloc_model::Access;
use numaloc_perf::live::machine::FaultSampler;
use numaloc_perf::live::thread::{ThreadSampler, monotonic_ns, thread_ns};
use numaloc_sys::{affinity, memory};

use super::keeper::Keeper;
use super::others::Others;
use super::progress::Progress;
use super::source::Source;
use super::virtual_pmu::{Occupants, VirtualPmu};
use super::{Advice, Advisor, Moved, Present, Report, threads};
use crate::image::maps;

/// Time between two looks at the samples.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// Time between two looks for threads.
const SCAN: Duration = Duration::from_millis(50);
/// Pages moved in one system call.
const BATCH: usize = 512;
/// Bytes moved per second at most: a tenth of a link of the 2010s.
const BYTES_PER_S: f64 = 2e9;
/// Longest time between two decisions, however long they take.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How a program is followed.
#[derive(Clone, Copy, Debug)]
pub struct Following<'a> {
    /// How accesses are seen.
    pub source: &'a Source,
    /// Share of a thread's time that page faults may take which numaloc causes.
    pub budget: f64,
    /// Whether pages move: on machines with several nodes.
    pub pages: bool,
    /// Whether passes of the program's marks are counted, which preloads the agent.
    pub marks: bool,
    /// The node of each PU, by the kernel's numbers.
    pub nodes: &'a BTreeMap<u32, u32>,
}

struct Thread {
    number: usize,
    began: u64,
    samplers: Vec<ThreadSampler>,
    /// The affinity that the program gave it.
    own: Vec<u32>,
    bound: Option<u32>,
}

/// A followed process.
pub(super) struct Follower<'a> {
    pid: i32,
    source: &'a Source,
    budget: f64,
    move_pages: bool,
    progress: Option<Progress>,
    virtual_pmu: Option<(VirtualPmu, Occupants)>,
    /// The page faults of all threads; without it each thread is sampled.
    all_faults: Option<FaultSampler>,
    /// The PUs that the program's threads might use when it was found (kernel numbers): they are bound to no other.
    usable: BTreeSet<u32>,
    threads: BTreeMap<i32, Thread>,
    free: BTreeSet<usize>,
    numbers: usize,
    keeper: Keeper,
    begun_ns: u64,
    scanned: Option<Instant>,
    provoke_at: Instant,
    faults: u64,
    decide_at: Instant,
    /// Child processes whose affinity has been checked.
    children: BTreeSet<i32>,
    others: Others,
    pub(super) report: Report,
}

/// The PUs that the threads of a process may run on.
fn usable(pid: i32) -> BTreeSet<u32> {
    let threads = threads::of(pid).unwrap_or_default().into_iter();
    threads
        .flat_map(|tid| affinity::get(tid).unwrap_or_default())
        .collect()
}

impl<'a> Follower<'a> {
    pub(super) fn new(pid: i32, following: Following<'a>, keeper: Keeper) -> Self {
        let now = Instant::now();
        let Following {
            source,
            budget,
            pages,
            marks,
            nodes,
        } = following;
        // The threads of this process inherit nothing from here on: the program runs already.
        memory::keep_from_balancing();
        let mut notes = Vec::new();
        let opened = source.virtual_pmu(nodes.clone()).unwrap_or_else(|error| {
            notes.push(format!(
                "the virtual machine's samples cannot be read: {error}"
            ));
            None
        });
        Self {
            pid,
            source,
            budget,
            move_pages: pages,
            progress: marks.then(Progress::default),
            virtual_pmu: opened.map(|pmu| (pmu, Occupants::default())),
            all_faults: source.faults(),
            usable: usable(pid),
            threads: BTreeMap::new(),
            free: BTreeSet::new(),
            numbers: 0,
            keeper,
            begun_ns: monotonic_ns(),
            scanned: None,
            provoke_at: now,
            faults: 0,
            decide_at: now,
            children: BTreeSet::new(),
            others: Others::of(pid),
            report: Report {
                source: Some(source.why.clone()),
                notes,
                ..Report::default()
            },
        }
    }

    fn now_s(&self) -> f64 {
        (monotonic_ns() - self.begun_ns) as f64 / 1e9
    }

    /// One round.
    ///
    /// # Errors
    /// Why the program is not followed any further; `NotFound` if it has ended.
    pub(super) fn look(&mut self, advisor: &mut dyn Advisor) -> Result<(), String> {
        if self.scanned.is_none_or(|at| at.elapsed() >= SCAN) {
            self.scan(advisor);
            self.others.look();
            self.scanned = Some(Instant::now());
        }
        self.read(advisor);
        self.provoke()?;
        if let Some(progress) = &mut self.progress {
            advisor.passed(progress.passes(self.pid));
        }
        let now_s = self.now_s();
        if Instant::now() < self.decide_at {
            return Ok(());
        }
        let begun_ns = thread_ns();
        if let Some(pages) = advisor.due(now_s) {
            self.report.decisions += 1;
            let present = self.present(&pages);
            let advice = advisor.decide(now_s, &present)?;
            let took = Duration::from_nanos(thread_ns().saturating_sub(begun_ns));
            self.report.deciding_s += took.as_secs_f64();
            if let Some(advice) = advice {
                self.carry_out(now_s, &advice)?;
            }
            self.decide_at = Instant::now() + self.rest_after(took);
        }
        Ok(())
    }

    /// Time until the next decision, if one took this long of a PU: decisions get a share `budget` of all PUs.
    fn rest_after(&self, took: Duration) -> Duration {
        let pus = std::thread::available_parallelism().map_or(1, usize::from);
        let rest = took.as_secs_f64() / (self.budget * pus as f64);
        Duration::try_from_secs_f64(rest).map_or(LONGEST_WAIT, |rest| rest.min(LONGEST_WAIT))
    }

    /// Finds threads that are new and that have ended.
    fn scan(&mut self, advisor: &mut dyn Advisor) {
        let Ok(now) = threads::of(self.pid) else {
            return;
        };
        let ended: Vec<i32> = self
            .threads
            .iter()
            .filter(|(tid, thread)| {
                let stat = threads::stat(**tid);
                stat.is_none_or(|stat| stat.ended || stat.began != thread.began)
            })
            .map(|(&tid, _)| tid)
            .collect();
        for tid in ended {
            if let Some(thread) = self.threads.remove(&tid) {
                self.free.insert(thread.number);
                advisor.ended(thread.number);
            }
        }
        for tid in now {
            if !self.threads.contains_key(&tid) {
                self.enter(tid);
            }
        }
        if self.report.threads > 0 {
            self.free_children();
        }
    }

    fn enter(&mut self, tid: i32) {
        let (Some(stat), Ok(own)) = (threads::stat(tid), affinity::get(tid)) else {
            return;
        };
        if stat.ended {
            return;
        }
        // Created by a thread that numaloc bound, it inherited a PU that the program did not choose.
        let own = match self.owner_of(&own) {
            Some(before) => {
                let _ = affinity::set(tid, &before);
                before
            }
            None => own,
        };
        let samplers = match &self.all_faults {
            Some(_) => Ok(Vec::new()),
            None => self.source.open(tid),
        };
        let samplers = match samplers {
            Ok(samplers) => samplers,
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                if errno != libc::ESRCH {
                    *self.report.not_sampled.entry(errno).or_default() += 1;
                }
                Vec::new()
            }
        };
        let number = self.free.pop_first().unwrap_or_else(|| {
            self.numbers += 1;
            self.numbers - 1
        });
        let thread = Thread {
            number,
            began: stat.began,
            samplers,
            own,
            bound: None,
        };
        self.threads.insert(tid, thread);
    }

    /// The affinity of the program's own where `mask` is one that numaloc gave to a thread.
    fn owner_of(&self, mask: &[u32]) -> Option<Vec<u32>> {
        let &[pu] = mask else { return None };
        let mut bound = self.threads.values();
        bound
            .find(|thread| thread.bound == Some(pu) && thread.own != mask)
            .map(|thread| thread.own.clone())
    }

    /// Gives processes that a bound thread created the affinity that they would have without numaloc.
    fn free_children(&mut self) {
        let tids: Vec<i32> = self.threads.keys().copied().collect();
        for child in tids
            .iter()
            .flat_map(|&tid| threads::children(self.pid, tid))
        {
            if !self.children.insert(child) {
                continue;
            }
            for tid in threads::of(child).unwrap_or_default() {
                if let Ok(mask) = affinity::get(tid)
                    && let Some(own) = self.owner_of(&mask)
                {
                    let _ = affinity::set(tid, &own);
                }
            }
        }
    }

    /// Passes new samples on, in the order of their times.
    fn read(&mut self, advisor: &mut dyn Advisor) {
        self.read_virtual(advisor);
        let mut samples: Vec<(u64, usize, Access)> = Vec::new();
        let (report, begun_ns) = (&mut self.report, self.begun_ns);
        if let Some(faults) = &mut self.all_faults {
            let (threads, scanned) = (&self.threads, &mut self.scanned);
            let read = faults.read(self.pid, |ns, tid, access| match threads.get(&tid) {
                Some(thread) => samples.push((ns, thread.number, access)),
                // A new one: found in the next round.
                None => *scanned = None,
            });
            report.samples += read.samples;
            report.lost += read.lost;
            self.faults += read.samples + read.lost;
        }
        for thread in self.threads.values_mut() {
            for sampler in &mut thread.samplers {
                let number = thread.number;
                let read = sampler.read(|ns, access| samples.push((ns, number, access)));
                report.samples += read.samples;
                report.lost += read.lost;
                self.faults += read.samples + read.lost;
            }
        }
        samples.sort_unstable_by_key(|(ns, number, access)| (*ns, *number, access.address));
        for (ns, number, access) in samples {
            let time_s = ns.saturating_sub(begun_ns) as f64 / 1e9;
            advisor.observe(number, &access, time_s);
        }
    }

    /// Passes the samples of the virtual machine on, whose time is now.
    fn read_virtual(&mut self, advisor: &mut dyn Advisor) {
        let now_s = self.now_s();
        let Some((pmu, occupants)) = &mut self.virtual_pmu else {
            return;
        };
        let now = self.threads.iter().filter_map(|(&tid, thread)| {
            let at = (threads::stat(tid)?.pu, threads::ran_ns(tid)?);
            Some((thread.number, at))
        });
        let on = occupants.look(now.collect());
        for sample in pmu.read() {
            self.report.lost += sample.dropped;
            match on.get(&sample.cpu) {
                Some(&number) => {
                    self.report.samples += 1;
                    advisor.observe(number, &sample.access, now_s);
                }
                None => self.report.lost += 1,
            }
        }
    }

    fn provoke(&mut self) -> Result<(), String> {
        if !self.source.must_be_provoked() || Instant::now() < self.provoke_at {
            return Ok(());
        }
        let faults = std::mem::take(&mut self.faults);
        match self.source.provoke(self.pid, faults, self.budget) {
            Ok(pause) => {
                self.provoke_at = Instant::now() + pause;
                Ok(())
            }
            Err(_) if threads::stat(self.pid).is_none_or(|stat| stat.ended) => Ok(()),
            Err(error) => Err(format!("cannot make accesses visible: {error}")),
        }
    }

    /// Where threads are, and those of `pages` that are the program's own.
    fn present(&self, pages: &[u64]) -> Present {
        let threads = self.threads.iter().filter_map(|(&tid, thread)| {
            let pu = thread.bound.or_else(|| Some(threads::stat(tid)?.pu))?;
            Some((thread.number, pu))
        });
        let mut present = Present {
            threads: threads.collect(),
            pages: Vec::new(),
        };
        if !self.move_pages {
            return present;
        }
        let maps = maps(self.pid).unwrap_or_default();
        let writable = |page: u64| {
            let at = maps.partition_point(|map| map.end <= page);
            maps.get(at)
                .is_some_and(|map| map.start <= page && map.writable)
        };
        let own: Vec<u64> = pages
            .iter()
            .copied()
            .filter(|&page| writable(page))
            .collect();
        for batch in own.chunks(BATCH) {
            let Ok(nodes) = memory::locate_pages(self.pid, batch) else {
                continue;
            };
            let known = batch.iter().zip(nodes);
            let known = known.filter_map(|(&page, node)| Some((page, u32::try_from(node).ok()?)));
            present.pages.extend(known);
        }
        present
    }

    fn carry_out(&mut self, now_s: f64, advice: &Advice) -> Result<(), String> {
        let before = (self.report.threads, self.report.pages);
        let done = self.bind(advice).map(|()| self.move_advised(advice));
        self.report.moves.push(Moved {
            at_s: now_s,
            threads: self.report.threads - before.0,
            pages: self.report.pages - before.1,
            predicted: advice.predicted,
        });
        done
    }

    fn bind(&mut self, advice: &Advice) -> Result<(), String> {
        for &(number, pu) in &advice.threads {
            let found = self
                .threads
                .iter_mut()
                .find(|(_, thread)| thread.number == number);
            let Some((&tid, thread)) = found else {
                continue;
            };
            // Without a keeper a killed numaloc would leave the thread bound.
            self.keeper.note(tid, pu, &thread.own).map_err(|error| {
                format!("the process that restores affinities has ended: {error}")
            })?;
            let bound = match self.usable.contains(&pu) {
                true => affinity::set(tid, &[pu]),
                false => Err(io::Error::from_raw_os_error(libc::EINVAL)),
            };
            match bound {
                Ok(()) => {
                    thread.bound = Some(pu);
                    self.report.threads += 1;
                }
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(0);
                    *self.report.refused_threads.entry(errno).or_default() += 1;
                }
            }
        }
        Ok(())
    }

    fn move_advised(&mut self, advice: &Advice) {
        for batch in advice.pages.chunks(BATCH) {
            let begun = Instant::now();
            self.move_batch(batch);
            let least = Duration::from_secs_f64(batch.len() as f64 * 4096.0 / BYTES_PER_S);
            if let Some(rest) = least.checked_sub(begun.elapsed()) {
                std::thread::sleep(rest);
            }
        }
    }

    fn move_batch(&mut self, batch: &[(u64, u32)]) {
        let pages: Vec<u64> = batch.iter().map(|(page, _)| *page).collect();
        let nodes: Vec<i32> = batch.iter().map(|(_, node)| *node as i32).collect();
        // Since the decision a page may have come to its node by itself (the copy that a write makes after a fork, the
        // kernel's balancing); a move to where a page is succeeds, and is none.
        let moved = memory::locate_pages(self.pid, &pages)
            .and_then(|before| Ok((before, memory::move_pages(self.pid, &pages, &nodes)?)));
        let refused = &mut self.report.refused_pages;
        match moved {
            Ok((before, after)) => {
                for ((before, after), node) in before.into_iter().zip(after).zip(nodes) {
                    match after {
                        _ if after == node => self.report.pages += u64::from(before != node),
                        // The page has been given back meanwhile.
                        _ if after == -libc::ENOENT || after == -libc::EFAULT => {}
                        _ => *refused.entry(-after.min(0)).or_default() += 1,
                    }
                }
            }
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                *refused.entry(errno).or_default() += batch.len() as u64;
            }
        }
    }

    /// Stops following: threads that are bound get their own affinity back, unless somebody has changed it.
    pub(super) fn end(self, advisor: &dyn Advisor) -> Report {
        let Self {
            mut report,
            keeper,
            others,
            ..
        } = self;
        // The keeper does it, as it would if this process were killed, and has ended when this returns.
        drop(keeper);
        report.notes.extend(advisor.remarks());
        report.notes.extend(others.remark());
        report
    }
}

/// Whether process `pid` belongs to the user of this process.
///
/// # Errors
/// The kernel's: `NotFound` if there is no such process.
pub(super) fn is_ours(pid: i32) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let owner = |of: &str| std::fs::metadata(format!("/proc/{of}")).map(|about| about.uid());
    Ok(owner(&pid.to_string())? == owner("self")?)
}
