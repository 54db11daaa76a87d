//! The rows of `top`: roles and their threads, from two moments of a service. Pure.

use std::collections::{BTreeMap, BTreeSet};

use numaloc_analysis::roles;
use numaloc_model::profile::{Clock, Meta, ProfileBuilder, Resident, Thread};
use numaloc_outside::top::{Counts, Moment};
use serde_json::{Value, json};

/// Ticks of a second in `/proc` (`USER_HZ`), on every machine of today.
const TICKS: f64 = 100.0;

/// Why there is no bandwidth.
pub const NO_BANDWIDTH: &str = "bandwidth: -, for the counters of memory controllers count the machine, not a service \
                                (numaloc compare shows them)";
/// Why there is no remote share.
pub const NO_REMOTE: &str = "remote share: -, for only the kernel's NUMA balancing shows it, and it found no page in this \
                             interval (kernel.numa_balancing)";

/// The column by which roles are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Time on PUs, the most first.
    Time,
    /// Memory, the most first.
    Memory,
    /// Number of threads, the most first.
    Threads,
    /// Name.
    Name,
}

impl Sort {
    /// The next column.
    pub fn next(self) -> Self {
        match self {
            Self::Time => Self::Memory,
            Self::Memory => Self::Threads,
            Self::Threads => Self::Name,
            Self::Name => Self::Time,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Memory => "memory",
            Self::Threads => "threads",
            Self::Name => "name",
        }
    }
}

/// A thread of a role.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    pub pid: i32,
    pub tid: i32,
    pub name: String,
    /// PUs that it used on average.
    pub pus: f64,
    pub pu: u32,
    pub node: Option<u32>,
}

/// A role.
#[derive(Clone, Debug, PartialEq)]
pub struct Role {
    pub name: String,
    pub processes: usize,
    /// The threads, those that used most time first.
    pub threads: Vec<Member>,
    pub pus: f64,
    /// PUs used, by the node on which the threads ran last.
    pub pus_by_node: BTreeMap<u32, f64>,
    /// Memory of the processes whose first threads have this role.
    pub resident: Resident,
}

/// What is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    pub of: String,
    pub seconds: f64,
    pub processes: usize,
    pub threads: usize,
    pub pus: f64,
    pub roles: Vec<Role>,
    pub resident: Resident,
    /// Counts of the machine in a second.
    pub hint_faults_per_s: f64,
    pub pages_balanced_per_s: f64,
    pub pages_moved_per_s: f64,
    /// Share of hint faults whose page was on another node, in the whole machine.
    pub remote_share: Option<f64>,
    pub sort: Sort,
}

/// The rows of the time between two moments. `resident` gives the memory of processes.
pub fn shown(
    of: &str,
    before: &Moment,
    after: &Moment,
    node_of: &BTreeMap<u32, u32>,
    resident: &dyn Fn(&BTreeSet<i32>) -> Resident,
) -> Shown {
    let seconds = (after.at - before.at).as_secs_f64().max(1e-3);
    let ran: BTreeMap<(i32, i32, u64), u64> = before
        .threads
        .iter()
        .map(|thread| ((thread.pid, thread.tid, thread.began), thread.ticks))
        .collect();
    let member = |thread: &numaloc_outside::top::Thread| {
        // What a new thread has run, it ran since the look before.
        let since = ran
            .get(&(thread.pid, thread.tid, thread.began))
            .copied()
            .unwrap_or(0);
        Member {
            pid: thread.pid,
            tid: thread.tid,
            name: thread.name.clone(),
            pus: thread.ticks.saturating_sub(since) as f64 / TICKS / seconds,
            pu: thread.pu,
            node: node_of.get(&thread.pu).copied(),
        }
    };
    let roles = grouped(after)
        .into_iter()
        .map(|(name, threads)| {
            let members = threads.iter().map(|&at| member(&after.threads[at]));
            role(name, members.collect(), resident)
        })
        .collect::<Vec<_>>();
    let counts = since(&before.counts, &after.counts);
    let per_s = |count: u64| count as f64 / seconds;
    let faults = counts.hint_faults;
    Shown {
        of: of.to_owned(),
        seconds,
        processes: after.processes.len(),
        threads: after.threads.len(),
        pus: roles.iter().map(|role| role.pus).sum(),
        roles,
        resident: resident(&after.processes.keys().copied().collect()),
        hint_faults_per_s: per_s(faults),
        pages_balanced_per_s: per_s(counts.balanced),
        pages_moved_per_s: per_s(counts.moved),
        remote_share: (faults > 0)
            .then(|| 1.0 - (counts.hint_faults_local as f64 / faults as f64).min(1.0)),
        sort: Sort::Time,
    }
}

fn since(before: &Counts, after: &Counts) -> Counts {
    Counts {
        hint_faults: after.hint_faults.saturating_sub(before.hint_faults),
        hint_faults_local: after
            .hint_faults_local
            .saturating_sub(before.hint_faults_local),
        balanced: after.balanced.saturating_sub(before.balanced),
        moved: after.moved.saturating_sub(before.moved),
    }
}

fn role(
    name: String,
    mut threads: Vec<Member>,
    resident: &dyn Fn(&BTreeSet<i32>) -> Resident,
) -> Role {
    threads.sort_by(|a, b| b.pus.total_cmp(&a.pus).then(a.tid.cmp(&b.tid)));
    let processes: BTreeSet<i32> = threads.iter().map(|thread| thread.pid).collect();
    let firsts = threads.iter().filter(|thread| thread.pid == thread.tid);
    let mut pus_by_node = BTreeMap::new();
    for thread in &threads {
        if let Some(node) = thread.node {
            *pus_by_node.entry(node).or_default() += thread.pus;
        }
    }
    Role {
        name,
        processes: processes.len(),
        pus: threads.iter().map(|thread| thread.pus).sum(),
        pus_by_node,
        resident: resident(&firsts.map(|thread| thread.pid).collect()),
        threads,
    }
}

/// The roles of threads, as `show` has them: names, and positions in the moment's threads.
fn grouped(moment: &Moment) -> Vec<(String, Vec<usize>)> {
    let mut paths: BTreeMap<i32, String> = BTreeMap::new();
    let mut children: BTreeMap<i32, u32> = BTreeMap::new();
    let mut roots = 0;
    let mut left: Vec<i32> = moment.processes.keys().copied().collect();
    // Creators first, whatever their ids are; a circle of creators cannot be, and would end.
    while !left.is_empty() {
        let parent = |pid: &i32| moment.processes[pid].parent;
        let ready =
            |pid: &i32| parent(pid).is_none_or(|of| paths.contains_key(&of) || !left.contains(&of));
        let (now, later): (Vec<i32>, Vec<i32>) = left.iter().partition(|pid| ready(pid));
        let (now, later) = if now.is_empty() {
            (later, now)
        } else {
            (now, later)
        };
        for pid in now {
            let path = match parent(&pid).and_then(|of| paths.get(&of).map(|path| (of, path))) {
                Some((of, path)) => {
                    let number = children.entry(of).or_default();
                    *number += 1;
                    format!("{path}/{number}")
                }
                None => {
                    roots += 1;
                    (roots - 1).to_string()
                }
            };
            paths.insert(pid, path);
        }
        left = later;
    }
    let mut tables = ProfileBuilder::new(Meta::new("top", Clock::Wall), 4096);
    let mut numbers: BTreeMap<i32, u32> = BTreeMap::new();
    let mut rows: Vec<(String, usize)> = Vec::new();
    for (at, thread) in moment.threads.iter().enumerate() {
        let Some(path) = paths.get(&thread.pid) else {
            continue;
        };
        rows.push(match thread.tid == thread.pid {
            true => (path.clone(), at),
            false => {
                let number = numbers.entry(thread.pid).or_default();
                *number += 1;
                (format!("{path}.{number}"), at)
            }
        });
    }
    // A process before its threads and its children.
    rows.sort_by_key(|(path, _)| path.len());
    let names: BTreeMap<i32, &str> = moment
        .threads
        .iter()
        .filter(|thread| thread.pid == thread.tid)
        .map(|thread| (thread.pid, thread.name.as_str()))
        .collect();
    tables.threads = rows
        .iter()
        .map(|(path, at)| {
            let thread = &moment.threads[*at];
            let is_first = thread.tid == thread.pid;
            let is_own = !is_first && names.get(&thread.pid) != Some(&thread.name.as_str());
            Thread {
                name: is_own.then(|| thread.name.clone()),
                title: is_first.then(|| moment.processes[&thread.pid].title.clone()),
                ..Thread::new(path.clone())
            }
        })
        .collect();
    let Ok(profile) = tables.build() else {
        return vec![(
            "all threads".to_owned(),
            (0..moment.threads.len()).collect(),
        )];
    };
    // The profile's threads are in the order of their rows.
    let groups = roles::groups(&profile).into_iter();
    groups
        .map(|group| {
            let threads = group.threads.iter().map(|thread| rows[thread.index()].1);
            (group.name, threads.collect())
        })
        .collect()
}

/// Sorts roles; equal ones by name.
pub fn sort(roles: &mut [Role], by: Sort) {
    let memory = |role: &Role| role.resident.iter().map(|(_, bytes)| bytes).sum::<u64>();
    roles.sort_by(|a, b| {
        let first = match by {
            Sort::Time => b.pus.total_cmp(&a.pus),
            Sort::Memory => memory(b).cmp(&memory(a)),
            Sort::Threads => b.threads.len().cmp(&a.threads.len()),
            Sort::Name => std::cmp::Ordering::Equal,
        };
        first.then_with(|| a.name.cmp(&b.name))
    });
}

/// The object of `--json`.
pub fn json(shown: &Shown) -> Value {
    let nodes = |resident: &Resident| {
        let nodes = resident.iter();
        nodes
            .map(|(node, bytes)| json!({"node": node, "bytes": bytes}))
            .collect::<Vec<_>>()
    };
    let thread = |member: &Member| {
        json!({
            "pid": member.pid,
            "tid": member.tid,
            "name": member.name,
            "pus": member.pus,
            "pu": member.pu,
            "node": member.node,
        })
    };
    let roles = shown.roles.iter().map(|role| {
        let by_node = role.pus_by_node.iter();
        json!({
            "name": role.name,
            "processes": role.processes,
            "pus": role.pus,
            "pus_by_node": by_node.map(|(node, pus)| json!({"node": node, "pus": pus})).collect::<Vec<_>>(),
            "nodes": nodes(&role.resident),
            "threads": role.threads.iter().map(thread).collect::<Vec<_>>(),
        })
    });
    json!({
        "version": 1,
        "of": shown.of,
        "interval_s": shown.seconds,
        "processes": shown.processes,
        "threads": shown.threads,
        "pus": shown.pus,
        "roles": roles.collect::<Vec<_>>(),
        "nodes": nodes(&shown.resident),
        "machine": {
            "hint_faults_per_s": shown.hint_faults_per_s,
            "pages_balanced_per_s": shown.pages_balanced_per_s,
            "pages_moved_per_s": shown.pages_moved_per_s,
            "remote_share": shown.remote_share,
        },
        "missing": missing(shown),
    })
}

/// What has no source here, and why: a sentence each.
pub fn missing(shown: &Shown) -> Vec<&'static str> {
    let remote = shown.remote_share.is_none().then_some(NO_REMOTE);
    remote.into_iter().chain([NO_BANDWIDTH]).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use numaloc_outside::top;
    use std::time::{Duration, Instant};

    /// A server with two clients of one title, one of which has a thread.
    pub fn example() -> Shown {
        let thread = |pid, tid, name: &str, pu, ticks| top::Thread {
            pid,
            tid,
            name: name.to_owned(),
            began: 5,
            pu,
            ticks,
        };
        let process = |parent, title: &str| top::Process {
            parent,
            title: title.to_owned(),
        };
        let moment = |at, ticks| Moment {
            at,
            threads: vec![
                thread(30, 30, "server", 0, 100),
                thread(20, 20, "server", 1, 100 + ticks),
                thread(20, 21, "log", 1, ticks),
                thread(40, 40, "server", 3, 100 + 3 * ticks),
            ],
            processes: BTreeMap::from([
                (20, process(Some(30), "server: client 1")),
                (30, process(None, "server")),
                (40, process(Some(30), "server: client 2")),
            ]),
            counts: Counts {
                hint_faults: 10 * ticks,
                hint_faults_local: 5 * ticks,
                balanced: ticks,
                moved: 2 * ticks,
            },
        };
        let at = Instant::now();
        let nodes = BTreeMap::from([(0, 0), (1, 0), (2, 1), (3, 1)]);
        shown(
            "process 30",
            &moment(at, 0),
            &moment(at + Duration::from_secs(2), 20),
            &nodes,
            &|processes| vec![(0, processes.len() as u64 * 4096)],
        )
    }

    #[test]
    fn processes_of_one_title_are_one_role_with_the_time_of_its_threads() {
        let mut found = example();
        sort(&mut found.roles, Sort::Time);
        let rows: Vec<_> = found
            .roles
            .iter()
            .map(|role| (role.name.as_str(), role.threads.len(), role.processes))
            .collect();
        assert_eq!(
            rows,
            [("server: client N", 2, 2), ("log", 1, 1), ("server", 1, 1)]
        );
        let clients = &found.roles[0];
        // 20 and 60 ticks in two seconds.
        assert!((clients.pus - 0.4).abs() < 1e-9, "{}", clients.pus);
        assert_eq!(clients.threads[0].tid, 40);
        assert!((clients.pus_by_node[&1] - 0.3).abs() < 1e-9);
        assert_eq!(clients.resident, [(0, 8192)]);
        assert_eq!(
            (found.remote_share, found.pages_moved_per_s),
            (Some(0.5), 20.0)
        );
        sort(&mut found.roles, Sort::Name);
        assert_eq!(found.roles[0].name, "log");
        assert_eq!(missing(&found), [NO_BANDWIDTH]);
    }
}
