//! Records a window of a service that runs already.
//!
//! The kernel reports each new thread and process if this user may sample the whole machine; in addition, and otherwise
//! alone, `/proc` is looked at. What reading costs the service is kept to a budget: the time between two readings is as
//! long as the last one was, divided by the budget.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use numaloc_model::number;
use numaloc_model::profile::{Profile, Resident, Segment, Window, WindowSource};
use numaloc_perf::collect::{Collector, Source};
use numaloc_perf::data_src::DataSource;
use numaloc_perf::live::{monotonic_ns, watch::Watch};
use numaloc_perf::record::{Event, Sample};
use numaloc_perf::{Options, Origin, PerfError};
use numaloc_sys::writes;

use crate::memory::{self, Located};
use crate::process;
use crate::scan::{Scanner, USE};
use crate::source::{Chosen, choose};
use crate::target::{Target, TargetError};
use crate::tree::{Change, Tree};

/// Longest time between two readings of events.
const ROUND: Duration = Duration::from_millis(100);
/// Bounds of the time between two readings of what `/proc` says.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// Time that a page fault takes from the thread, for the budget.
const FAULT: Duration = Duration::from_nanos(1500);
/// Pieces of memory that a profile lists.
const SEGMENTS: usize = 32;

/// What is recorded, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Length of the window; `None`: until it is ended.
    pub length: Option<Duration>,
    /// The source that the user chose.
    pub source: Option<WindowSource>,
    /// Accesses between two samples of the PMU.
    pub period: u64,
    /// Share of the time that reading may take which may make the service wait.
    pub budget: f64,
    /// Granularity of the profile.
    pub options: Options,
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// There is nothing to look at.
    #[error("cannot look at what runs: {0}")]
    Target(#[from] TargetError),
    /// There is no source.
    #[error("cannot see accesses of {of}: {why}")]
    NoSource {
        /// What was observed.
        of: String,
        /// Why not.
        why: String,
    },
    /// The kernel does not show the process.
    #[error("cannot look at {of}: {source}")]
    Refused {
        /// What was observed.
        of: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// No use of memory was seen.
    #[error("{of} used no memory that {source_name} shows in {seconds:.1} s")]
    Nothing {
        /// What was observed.
        of: String,
        /// The source.
        source_name: &'static str,
        /// Length of the window.
        seconds: f64,
    },
    /// No profile can be made of it.
    #[error(transparent)]
    Profile(PerfError),
}

/// When something that costs the service time is done again.
#[derive(Debug)]
struct Pace {
    due: Instant,
    spent: Duration,
}

impl Pace {
    fn new() -> Self {
        Self {
            due: Instant::now(),
            spent: Duration::ZERO,
        }
    }

    fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// It took from `begun` until now, and `more` elsewhere.
    fn done(&mut self, begun: Instant, more: Duration, budget: f64) {
        let took = begun.elapsed() + more;
        self.spent += took;
        let pause = Duration::try_from_secs_f64(took.as_secs_f64() / budget);
        self.due = Instant::now() + pause.map_or(PAUSE.1, |pause| pause.clamp(PAUSE.0, PAUSE.1));
    }
}

/// A window that is open.
struct Recorder {
    tree: Tree,
    chosen: Chosen,
    watch: Option<Watch>,
    collector: Collector,
    /// Processes whose events count.
    followed: BTreeSet<i32>,
    /// Threads that the collector knows.
    known: BTreeSet<i32>,
    /// Processes whose mappings are to be read at once.
    unread: BTreeSet<i32>,
    scanner: Scanner,
    looks: Pace,
    maps: Pace,
    provoking: Pace,
    faults: u64,
    /// Where memory was when that was last looked at.
    resident: Resident,
    segments: Vec<Segment>,
    spent: Duration,
    notes: Vec<String>,
}

/// Records `target` until the window is over, it has ended or `stop` says so.
///
/// # Errors
/// [`WindowError`]: there is no profile. The service runs on in any case.
pub fn record(
    target: Target,
    settings: &Settings,
    stop: &dyn Fn() -> bool,
) -> Result<Profile, WindowError> {
    let of = target.words();
    let tree = Tree::new(target)?;
    let chosen = choose(settings.source).map_err(|why| WindowError::NoSource {
        of: of.clone(),
        why,
    })?;
    let mut recorder = Recorder::open(tree, chosen, settings);
    let roots = recorder.tree.target().roots()?;
    let first = roots.first().copied().unwrap_or_default();
    memory::areas(first).map_err(|source| WindowError::Refused {
        of: of.clone(),
        source,
    })?;
    let command = process::command(first);
    let begun = Instant::now();
    recorder.look(0, settings);
    recorder.locate();
    let is_over = || {
        settings
            .length
            .is_some_and(|length| begun.elapsed() >= length)
    };
    while !is_over() && !stop() && !recorder.tree.processes().is_empty() {
        recorder.wait(
            settings
                .length
                .map(|length| length.saturating_sub(begun.elapsed())),
        );
        recorder.round(settings);
    }
    recorder.finish(command, begun.elapsed(), is_over())
}

impl Recorder {
    fn open(tree: Tree, chosen: Chosen, settings: &Settings) -> Self {
        let period = match chosen.source {
            WindowSource::Pmu => settings.period,
            _ => 1,
        };
        let mut notes = vec![format!("source {}: {}", chosen.source.name(), chosen.why)];
        let watch = match chosen.events.is_empty() {
            true => Err("events cannot be sampled".to_owned()),
            false => Watch::open(&chosen.events, period).map_err(|error| error.to_string()),
        };
        match &watch {
            Ok(watch) if watch.is_of_machine() => {}
            _ => notes.push(
                "processes and threads were looked for every 0.25 s or more: those that ended sooner are missing (as \
                 root the kernel reports each)"
                    .to_owned(),
            ),
        }
        let mut collector = Collector::new(settings.options.clone(), sources(&chosen, period));
        collector.begin_at(monotonic_ns());
        Self {
            tree,
            chosen,
            watch: watch.ok(),
            collector,
            followed: BTreeSet::new(),
            known: BTreeSet::new(),
            unread: BTreeSet::new(),
            scanner: Scanner::default(),
            looks: Pace::new(),
            maps: Pace::new(),
            provoking: Pace::new(),
            faults: 0,
            resident: Resident::new(),
            segments: Vec::new(),
            spent: Duration::ZERO,
            notes,
        }
    }

    fn wait(&self, left: Option<Duration>) {
        let most = left.map_or(ROUND, |left| left.min(ROUND));
        match &self.watch {
            Some(watch) => watch.wait(most),
            None => std::thread::sleep(most),
        }
    }

    fn round(&mut self, settings: &Settings) {
        self.take(false);
        if self.looks.is_due() {
            self.look(monotonic_ns(), settings);
        }
        if self.maps.is_due() {
            self.unread.extend(self.tree.processes().keys());
        }
        self.read_maps(settings.budget);
        if self.provoking.is_due() {
            self.provoke(settings.budget);
        }
    }

    /// Passes on what the kernel has reported.
    fn take(&mut self, all: bool) {
        let events = self.watch.as_mut().map(|watch| watch.take(all));
        for (source, event) in events.into_iter().flatten() {
            self.event(source, event);
        }
    }

    fn event(&mut self, source: usize, event: Event) {
        let is_followed = |pid: u32| self.followed.contains(&(pid as i32));
        match event {
            Event::Sample(sample) if is_followed(sample.pid) => {
                self.faults += 1;
                self.known.insert(sample.tid as i32);
                let sample = meant(sample, self.chosen.source);
                self.collector.feed(source, Event::Sample(sample));
            }
            Event::Fork { pid, ppid, tid, .. } if is_followed(ppid) => {
                if !self.known.insert(tid as i32) {
                    return;
                }
                self.collector.feed(source, event);
                if pid != ppid {
                    self.followed.insert(pid as i32);
                    self.unread.insert(pid as i32);
                    self.tree.adopt(pid as i32, ppid as i32);
                }
            }
            Event::Exit { tid, .. } if self.known.remove(&(tid as i32)) => {
                self.followed.remove(&(tid as i32));
                self.collector.feed(source, event);
            }
            Event::Name { pid, exec, .. } if is_followed(pid) => {
                if exec {
                    self.unread.insert(pid as i32);
                }
                self.collector.feed(source, event);
            }
            Event::Lost(_) | Event::LostInAll(_) | Event::Throttled => {
                self.collector.feed(source, event)
            }
            _ => {}
        }
    }

    /// Looks for processes and threads; `time` is 0 for those that were there before the window.
    fn look(&mut self, time: u64, settings: &Settings) {
        let begun = Instant::now();
        let Change {
            entered,
            threads,
            left,
            ended,
        } = self.tree.look();
        let reports = self.watch.as_ref().is_some_and(Watch::is_of_machine);
        for tid in ended.into_iter().filter(|_| !reports) {
            if self.known.remove(&tid) {
                self.collector.feed(
                    0,
                    Event::Exit {
                        tid: tid as u32,
                        time,
                    },
                );
            }
            if let Some(watch) = &mut self.watch {
                watch.leave(tid);
            }
        }
        for pid in left {
            self.scanner.leave(pid);
            self.unread.remove(&pid);
            if !reports {
                self.followed.remove(&pid);
            }
        }
        for &pid in &entered {
            self.followed.insert(pid);
            self.unread.insert(pid);
            if self.chosen.source == WindowSource::Scan {
                // Use before the window does not count.
                let _ = self.scanner.begin(pid);
            }
        }
        for (pid, tid) in threads {
            self.introduce(pid, tid, time);
        }
        self.looks.done(begun, Duration::ZERO, settings.budget);
        self.read_maps(settings.budget);
    }

    fn introduce(&mut self, pid: i32, tid: i32, time: u64) {
        if let Some(watch) = &mut self.watch {
            let _ = watch.enter(tid);
        }
        if !self.known.insert(tid) {
            return;
        }
        let parent = self
            .tree
            .processes()
            .get(&pid)
            .and_then(|process| process.parent);
        let creator = match (pid == tid, parent) {
            (false, _) => Some(pid),
            (true, parent) => parent.filter(|parent| self.known.contains(parent)),
        };
        let [of, own] = [pid, tid].map(|id| id as u32);
        if let Some(creator) = creator {
            let creator = creator as u32;
            let fork = Event::Fork {
                pid: of,
                ppid: creator,
                tid: own,
                ptid: creator,
                time,
            };
            self.collector.feed(0, fork);
        }
        if let Some(stat) = process::thread_stat(pid, tid) {
            let name = Event::Name {
                pid: of,
                tid: own,
                name: stat.name,
                exec: false,
                time,
            };
            self.collector.feed(0, name);
        }
    }

    /// Reads the mappings and titles of processes that are new or have changed.
    fn read_maps(&mut self, budget: f64) {
        if self.unread.is_empty() {
            return;
        }
        let (begun, now) = (Instant::now(), monotonic_ns());
        for pid in std::mem::take(&mut self.unread) {
            if let Ok(areas) = memory::areas(pid) {
                self.collector.map(pid as u32, areas, now);
            }
            if let Some(title) = process::title(pid) {
                self.collector.title(pid as u32, title, now);
            }
        }
        self.maps.done(begun, Duration::ZERO, budget);
    }

    /// Makes uses of pages visible, where they are not by themselves.
    fn provoke(&mut self, budget: f64) {
        let begun = Instant::now();
        let processes: Vec<i32> = self.tree.processes().keys().copied().collect();
        match self.chosen.source {
            WindowSource::Scan => {
                let time = monotonic_ns();
                let source = self.chosen.events.len();
                for pid in processes {
                    let collector = &mut self.collector;
                    let _ = self.scanner.round(pid, |address, accesses| {
                        let sample = Sample {
                            pid: pid as u32,
                            tid: pid as u32,
                            time,
                            address,
                            period: Some(accesses),
                            ..Sample::default()
                        };
                        collector.feed(source, Event::Sample(sample));
                    });
                }
                self.scanner.next();
                self.provoking.done(begun, Duration::ZERO, budget);
            }
            WindowSource::SoftDirty => {
                for pid in processes {
                    let _ = writes::watch(pid);
                }
                let faults = u32::try_from(std::mem::take(&mut self.faults)).unwrap_or(u32::MAX);
                self.provoking
                    .done(begun, FAULT.saturating_mul(faults), budget);
            }
            _ => {}
        }
    }

    /// Where the memory of the processes that are there is.
    fn locate(&mut self) {
        let begun = Instant::now();
        let mut located = Located::default();
        for &pid in self.tree.processes().keys() {
            if let (Ok(areas), Ok(nodes)) = (memory::areas(pid), memory::on_nodes(pid)) {
                located.add(&areas, &nodes);
            }
        }
        let resident = located.resident();
        if !resident.is_empty() {
            (self.resident, self.segments) = (resident, located.segments(SEGMENTS));
        }
        self.spent += begun.elapsed();
    }

    fn finish(
        mut self,
        command: Vec<String>,
        length: Duration,
        is_whole: bool,
    ) -> Result<Profile, WindowError> {
        self.take(true);
        self.locate();
        let (of, source) = (self.tree.target().words(), self.chosen.source);
        if !is_whole {
            self.notes.push(match self.tree.processes().is_empty() {
                true => "the window ended with the last process".to_owned(),
                false => "the window was ended by a signal".to_owned(),
            });
        }
        let waits = self.spent + self.maps.spent + self.provoking.spent;
        let share =
            |spent: Duration| number::percent(spent.as_secs_f64() / length.as_secs_f64().max(1e-9));
        self.notes.push(format!(
            "reading mappings and clearing marks, for which the service may wait, took {} s of {} s: {}; looking for \
             processes took {}",
            number::fixed(waits.as_secs_f64(), 3),
            number::fixed(length.as_secs_f64(), 1),
            share(waits),
            share(self.looks.spent),
        ));
        let window = Window {
            of: of.clone(),
            source,
            seconds: length.as_secs_f64(),
            processes: u32::try_from(self.tree.seen()).unwrap_or(u32::MAX),
            resident: self.resident,
            segments: self.segments,
        };
        let seconds = window.seconds;
        let origin = Origin {
            command,
            complete: true,
            notes: self.notes,
            name: of.clone(),
            window: Some(window),
        };
        self.collector.finish(origin).map_err(|error| match error {
            PerfError::NoAddresses { .. } => WindowError::Nothing {
                of,
                source_name: source.name(),
                seconds,
            },
            error => WindowError::Profile(error),
        })
    }
}

/// A sample as this source means it: page faults count as uses.
fn meant(mut sample: Sample, source: WindowSource) -> Sample {
    /// The operation of a store in a sample of the kernel's.
    const STORE: u64 = 4;
    if source != WindowSource::Pmu {
        sample.period = Some(USE);
    }
    if source == WindowSource::SoftDirty {
        sample.source = Some(DataSource(STORE));
    }
    sample
}

/// The sources of the collector: the events, and page scanning.
fn sources(chosen: &Chosen, period: u64) -> Vec<Source> {
    let meaning = |what: &str| {
        format!("{what}; one counts as {USE} accesses, for how many there were is not seen")
    };
    let mut sources: Vec<Source> = chosen
        .events
        .iter()
        .map(|event| Source {
            name: event.name.clone(),
            period: Some(event.period(period)),
            faults: matches!(chosen.source, WindowSource::Scan | WindowSource::PageFaults),
            meaning: match chosen.source {
                WindowSource::Pmu => None,
                WindowSource::HintFaults => Some(meaning(
                    "the first use of a page after each visit of the kernel's",
                )),
                WindowSource::SoftDirty => Some(meaning("the first write to a page in each round")),
                _ => Some(meaning("a page that appears")),
            },
        })
        .collect();
    if chosen.source == WindowSource::Scan {
        sources.push(Source {
            name: "page scanning".to_owned(),
            meaning: Some(format!(
                "each page of a mapping counts in a round as {USE} accesses times the share of the mapping that was used, \
                 all by the first thread of its process: which page and which thread it was is not seen"
            )),
            ..Source::default()
        });
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_that_takes_long_is_made_rarely() {
        let mut pace = Pace::new();
        assert!(pace.is_due());
        let begun = Instant::now();
        pace.done(begun, Duration::from_millis(20), 0.02);
        let until = pace.due - begun;
        assert!((0.99..1.2).contains(&until.as_secs_f64()), "{until:?}");
        pace.done(Instant::now(), Duration::from_secs(1), 0.0);
        assert!(pace.due - Instant::now() <= PAUSE.1);
        assert!(pace.spent >= Duration::from_millis(1020));
    }

    #[test]
    fn faults_count_as_uses_and_tracked_writes_as_stores() {
        use numaloc_perf::data_src::Operation;
        let sample = Sample {
            period: Some(1),
            ..Sample::default()
        };
        assert_eq!(meant(sample, WindowSource::Pmu).period, Some(1));
        assert_eq!(meant(sample, WindowSource::HintFaults).period, Some(USE));
        let store = meant(sample, WindowSource::SoftDirty).source.unwrap();
        assert_eq!((store.operation(), store.level()), (Operation::Store, None));
    }
}
