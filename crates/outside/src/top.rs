//! What the threads of a service do between two moments: time on PUs, nodes, memory, moves of pages.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use numaloc_perf::events::cpu_list;

use crate::memory::{self, Located};
use crate::process;
use crate::tree::Tree;

/// Share of the time in which a service may have to wait because its memory is looked at.
const BUDGET: f64 = 0.02;

/// A thread at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Process.
    pub pid: i32,
    /// Thread.
    pub tid: i32,
    /// Name.
    pub name: String,
    /// When it began.
    pub began: u64,
    /// The PU on which it ran last.
    pub pu: u32,
    /// Ticks for which it has run.
    pub ticks: u64,
}

/// A process at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// The process that created it, if that is observed too.
    pub parent: Option<i32>,
    /// Its title, else its name.
    pub title: String,
}

/// Counts of the kernel since the boot, of the whole machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Hint faults of the kernel's balancing.
    pub hint_faults: u64,
    /// Those of them whose page was on the node of the thread.
    pub hint_faults_local: u64,
    /// Pages that the balancing moved.
    pub balanced: u64,
    /// Pages that moved, by whoever's wish.
    pub moved: u64,
}

impl Counts {
    fn parse(text: &str) -> Self {
        let of = |name: &str| {
            let lines = text.lines().filter_map(|line| line.split_once(' '));
            let mut values = lines.filter(|(found, _)| *found == name);
            values
                .next()
                .and_then(|(_, value)| value.trim().parse().ok())
                .unwrap_or(0)
        };
        Self {
            hint_faults: of("numa_hint_faults"),
            hint_faults_local: of("numa_hint_faults_local"),
            balanced: of("numa_pages_migrated"),
            moved: of("pgmigrate_success"),
        }
    }
}

/// A service at a moment.
#[derive(Clone, Debug)]
pub struct Moment {
    /// When.
    pub at: Instant,
    /// Its threads, by process and thread.
    pub threads: Vec<Thread>,
    /// Its processes.
    pub processes: BTreeMap<i32, Process>,
    /// Counts of the machine.
    pub counts: Counts,
}

/// Looks at a service again and again.
#[derive(Debug)]
pub struct Looker {
    tree: Tree,
    /// Where the memory of each process was when that was last looked at.
    memory: BTreeMap<i32, (Vec<numaloc_perf::areas::Area>, Vec<memory::OnNodes>)>,
    memory_due: Instant,
}

impl Looker {
    /// Looks at this tree.
    #[must_use]
    pub fn new(tree: Tree) -> Self {
        Self {
            tree,
            memory: BTreeMap::new(),
            memory_due: Instant::now(),
        }
    }

    /// What is observed.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The service now.
    pub fn look(&mut self) -> Moment {
        self.tree.look();
        let at = Instant::now();
        let mut threads = Vec::new();
        let mut processes = BTreeMap::new();
        for (&pid, of) in self.tree.processes() {
            let found = of.threads.iter().filter_map(|&tid| {
                let stat = process::thread_stat(pid, tid)?;
                Some(Thread {
                    pid,
                    tid,
                    name: stat.name,
                    began: stat.began,
                    pu: stat.pu,
                    ticks: stat.ticks,
                })
            });
            threads.extend(found);
            let name = || process::stat(pid).map_or_else(String::new, |stat| stat.name);
            let process = Process {
                parent: of.parent,
                title: process::title(pid).unwrap_or_else(name),
            };
            processes.insert(pid, process);
        }
        self.look_at_memory();
        let counts = fs::read_to_string("/proc/vmstat").unwrap_or_default();
        Moment {
            at,
            threads,
            processes,
            counts: Counts::parse(&counts),
        }
    }

    /// Memory is looked at so rarely that it takes [`BUDGET`].
    fn look_at_memory(&mut self) {
        if Instant::now() < self.memory_due {
            return;
        }
        let begun = Instant::now();
        let processes = self.tree.processes().keys();
        self.memory = processes
            .filter_map(|&pid| Some((pid, (memory::areas(pid).ok()?, memory::on_nodes(pid).ok()?))))
            .collect();
        let pause = Duration::try_from_secs_f64(begun.elapsed().as_secs_f64() / BUDGET);
        self.memory_due = Instant::now() + pause.unwrap_or(Duration::from_secs(60));
    }

    /// Where the memory of these processes is; what they share counts once.
    #[must_use]
    pub fn located(&self, processes: impl Iterator<Item = i32>) -> Located {
        let mut located = Located::default();
        for (areas, nodes) in processes.filter_map(|pid| self.memory.get(&pid)) {
            located.add(areas, nodes);
        }
        located
    }
}

/// The node of each PU that is online, by the kernel's numbers.
#[must_use]
pub fn node_of_pus() -> BTreeMap<u32, u32> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let nodes = cpu_list(read("/sys/devices/system/node/online").trim());
    let of_node = |node: u32| {
        let pus = cpu_list(read(&format!("/sys/devices/system/node/node{node}/cpulist")).trim());
        pus.into_iter().map(move |pu| (pu, node))
    };
    nodes.into_iter().flat_map(of_node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    #[test]
    fn counts_are_found_by_their_names() {
        let text = "numa_hint_faults 12\nnuma_hint_faults_local 5\nnuma_pages_migrated 3\npgmigrate_success 9\n";
        let found = Counts::parse(text);
        assert_eq!((found.hint_faults, found.hint_faults_local), (12, 5));
        assert_eq!((found.balanced, found.moved), (3, 9));
        assert_eq!(Counts::parse(""), Counts::default());
    }

    #[test]
    fn this_process_has_threads_and_memory() {
        let pid = std::process::id() as i32;
        let mut looker = Looker::new(Tree::new(Target::Process(pid)).unwrap());
        let moment = looker.look();
        assert!(moment.threads.iter().any(|thread| thread.tid == pid));
        assert!(!moment.processes[&pid].title.is_empty());
        let pus = node_of_pus();
        if !pus.is_empty() {
            assert!(pus.contains_key(&moment.threads[0].pu));
        }
    }
}
