//! Roles: threads and processes that do the same kind of work, in the words of the program: `GC Thread#N`, `io_thd_N`,
//! `postgres: checkpointer`.
//!
//! A thread with a name of its own ([`Thread::shown`]: what the program calls it, or its process) has the role of that
//! name, with numbers replaced by `N`, in processes of the same role. Of the others, those with the same start routine,
//! or without a known one, whose creators have the same role are of one role; a thread that runs the same as its
//! creator has the creator's role. So a pool has one role, however deep its threads create each other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use numaloc_identity::ThreadPath;
use numaloc_identity::role::called;
use numaloc_model::profile::{Profile, Thread, ThreadRole};
use numaloc_model::roles::RoleKey;
use numaloc_model::{Layer, Named, PageUsage, ThreadIdx};

use crate::assignment::NodeAssignment;
use crate::local;
use crate::objects::named_label;

/// More threads than this have their roles listed.
const FEW_THREADS: usize = 16;
/// Most objects of a role.
const OBJECTS: usize = 3;

/// Threads of one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Their name, without what differs ([`called`]).
    pub name: String,
    /// The threads, ascending.
    pub threads: Vec<ThreadIdx>,
}

/// A role and its use of memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Role {
    /// Its threads.
    pub group: Group,
    /// Number of processes that have such threads.
    pub processes: usize,
    /// Whether its threads serve a run-time system.
    pub is_helper: bool,
    /// Loads and stores.
    pub accesses: u64,
    /// Share of the accesses of all threads; 0 if there are none.
    pub share: f64,
    /// Share of its accesses beyond private caches that are remote with threads bound in the order of their creation
    /// and pages by first touch; `None` without such accesses.
    pub remote_share: Option<f64>,
    /// Its most used memory: name and accesses, the most used first.
    pub objects: Vec<(String, u64)>,
}

/// Whether the roles of a profile say more than its threads: there are many, or several processes.
#[must_use]
pub fn are_worth_listing(profile: &Profile) -> bool {
    let threads = profile.threads();
    let mut processes = threads.iter().map(process_of);
    let first = processes.next();
    threads.len() > FEW_THREADS || processes.any(|other| Some(other) != first)
}

/// Whether a profile is of MPI ranks: of their messages, their memory, or both.
#[must_use]
pub fn are_of_ranks(profile: &Profile) -> bool {
    let rows = profile.communication().iter();
    let ranks = profile.threads().iter().map(|thread| thread.rank);
    rows.map(|row| row.layer).any(Layer::is_message) || ranks.flatten().next().is_some()
}

/// Whether processes of one role come and go in a profile, as those of a server: a plan by the order of their creation
/// fits no other run. MPI ranks do not: their number is that of the run.
#[must_use]
pub fn come_and_go(profile: &Profile) -> bool {
    let threads = profile.threads();
    let is_of_several = |group: &Group| {
        let members = group.threads.iter().map(|t| &threads[t.index()]);
        members.map(process_of).collect::<HashSet<_>>().len() > 1
    };
    !are_of_ranks(profile) && groups(profile).iter().any(is_of_several)
}

/// The roles of a profile with their use of memory, the most accesses first (ties: by their first threads). `beyond`:
/// its page accesses beyond private caches.
#[must_use]
pub fn roles(profile: &Profile, beyond: &PageUsage, assignment: &NodeAssignment) -> Vec<Role> {
    let threads = profile.threads();
    let all: u64 = threads.iter().map(|thread| thread.accesses).sum();
    let accesses = local::Accesses {
        profile,
        beyond,
        alone: &[],
        homes: assignment.homes.len(),
        memories: assignment.nodes,
    };
    let counted = accesses.bound_by_thread(|thread| assignment.of_thread[thread.index()]);
    let groups = groups(profile);
    let mut of_thread = vec![0; threads.len()];
    for (role, group) in groups.iter().enumerate() {
        group
            .threads
            .iter()
            .for_each(|t| of_thread[t.index()] = role);
    }
    let objects = objects(profile, &of_thread, groups.len());
    let mut found: Vec<Role> = groups
        .into_iter()
        .zip(objects)
        .map(|(group, objects)| {
            let members = || group.threads.iter().map(|t| &threads[t.index()]);
            let accesses: u64 = members().map(|thread| thread.accesses).sum();
            let (mut remote, mut of) = (0.0, 0.0);
            for thread in &group.threads {
                remote += counted[thread.index()].remote;
                of += counted[thread.index()].all;
            }
            Role {
                processes: members().map(process_of).collect::<HashSet<_>>().len(),
                is_helper: members().all(|thread| thread.role.is_helper()),
                accesses,
                share: accesses as f64 / all.max(1) as f64,
                remote_share: (of > 0.0).then(|| remote / of),
                objects,
                group,
            }
        })
        .collect();
    found.sort_by_key(|role| (Reverse(role.accesses), role.group.threads[0]));
    found
}

/// The most used objects of each role; `of_thread` has the roles of the threads.
fn objects(profile: &Profile, of_thread: &[usize], roles: usize) -> Vec<Vec<(String, u64)>> {
    let mut sums: Vec<BTreeMap<Named, u64>> = vec![BTreeMap::new(); roles];
    for page in profile.pages().pages() {
        let Some(named) = profile.named(page) else {
            continue;
        };
        for access in profile.pages().accesses(page) {
            let of_role = &mut sums[of_thread[access.thread.index()]];
            *of_role.entry(named).or_default() += access.total();
        }
    }
    let most = |sums: BTreeMap<Named, u64>| {
        let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
        for (named, accesses) in sums {
            let name = named_label(profile, named);
            *by_name.entry(name).or_default() += accesses;
        }
        let mut rows: Vec<(String, u64)> = by_name.into_iter().collect();
        rows.sort_by_key(|(_, accesses)| Reverse(*accesses));
        rows.truncate(OBJECTS);
        rows
    };
    sums.into_iter().map(most).collect()
}

/// What threads of one role have in common.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    /// A name, and the role of the process's first thread for the other threads of a process.
    Named(String, Option<usize>),
    /// A start routine or nothing, the role of the creator, and whether they are first threads of processes.
    Unnamed(Option<String>, Option<usize>, bool),
}

/// The threads of a profile by their roles, in the order of the roles' first threads.
#[must_use]
pub fn groups(profile: &Profile) -> Vec<Group> {
    let threads = profile.threads();
    let mut of_path: HashMap<&str, usize> = HashMap::new();
    let mut known: HashMap<Key, usize> = HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    let mut starts: Vec<Option<String>> = Vec::new();
    for (at, thread) in threads.iter().enumerate() {
        let path = ThreadPath::new(&thread.path);
        let process = path.process();
        let is_first = process.as_str() == thread.path;
        let creator = path.creator().and_then(|path| of_path.get(path.as_str()));
        let creator = creator.copied();
        let start = own_name(thread).is_none().then(|| thread.role.label());
        let start = start.flatten().map(|label| label.into_owned());
        let key = match own_name(thread) {
            Some(name) => {
                let of_process = of_path.get(process.as_str()).copied();
                Key::Named(called(&name), of_process.filter(|_| !is_first))
            }
            None => Key::Unnamed(start.clone(), creator, is_first),
        };
        let is_as_creator = |role: &usize| start.is_some() && starts[*role] == start && !is_first;
        let role = creator.filter(is_as_creator).unwrap_or_else(|| {
            *known.entry(key).or_insert_with(|| {
                groups.push(Group {
                    name: String::new(),
                    threads: Vec::new(),
                });
                starts.push(start);
                groups.len() - 1
            })
        });
        groups[role].threads.push(ThreadIdx::from_index(at));
        of_path.insert(&thread.path, role);
    }
    for at in 0..groups.len() {
        groups[at].name = name_of(threads, &groups, &of_path, at);
    }
    groups
}

/// How the threads of each of the [`groups`] are recognised in another run, and the group of most of their creators;
/// parents and creators come before those that have them. `None`: other threads of an earlier group would be recognised
/// as these.
#[must_use]
pub fn keys(profile: &Profile, groups: &[Group]) -> Vec<Option<(RoleKey, Option<u32>)>> {
    let threads = profile.threads();
    let mut of_path: HashMap<&str, u32> = HashMap::new();
    for (role, group) in (0..).zip(groups) {
        let paths = group.threads.iter().map(|t| &*threads[t.index()].path);
        of_path.extend(paths.map(|path| (path, role)));
    }
    let role_of = |path: Option<ThreadPath>| of_path.get(path?.as_str()).copied();
    let mut known = HashSet::new();
    let keyed = (0..).zip(groups).map(|(role, group)| {
        let first = &threads[group.threads[0].index()];
        let path = ThreadPath::new(&first.path);
        let is_process = path.process().as_str() == first.path;
        let earlier = |found: &u32| *found < role;
        // What another run shows: the names that the program gives, not what the recorder makes of them.
        let name = Thread {
            role: ThreadRole::Unknown,
            ..first.clone()
        };
        let called = name.shown().filter(|name| !name.is_empty());
        let called = called.map(|name| numaloc_identity::role::called(&name));
        let key = match called {
            Some(called) => RoleKey {
                called: Some(called),
                routine: None,
                is_process,
                parent: role_of(Some(path.process())).filter(|_| !is_process),
            },
            None => RoleKey {
                called: None,
                routine: first.role.label().map(|label| label.into_owned()),
                is_process,
                parent: role_of(path.creator()).filter(earlier),
            },
        };
        let creators = group.threads.iter().filter_map(|thread| {
            role_of(ThreadPath::new(&threads[thread.index()].path).creator()).filter(earlier)
        });
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        creators.for_each(|creator| *counts.entry(creator).or_default() += 1);
        let most = counts
            .into_iter()
            .max_by_key(|&(creator, count)| (count, Reverse(creator)));
        let is_own = key.parent.is_none_or(|parent| parent < role);
        (is_own && known.insert(key.clone())).then(|| (key, most.map(|(creator, _)| creator)))
    });
    keyed.collect()
}

/// The name of a role: that of its threads if all have one, else with `N` for numbers.
fn name_of(
    threads: &[Thread],
    groups: &[Group],
    of_path: &HashMap<&str, usize>,
    at: usize,
) -> String {
    let members = &groups[at].threads;
    let first = &threads[members[0].index()];
    if let Some(name) = first.shown().filter(|name| !name.is_empty()) {
        let same = members
            .iter()
            .all(|t| threads[t.index()].shown().as_ref() == Some(&name));
        return match same {
            true => name.into_owned(),
            false => called(&name),
        };
    }
    let path = ThreadPath::new(&first.path);
    let what = match path.process().as_str() == first.path {
        true => "process",
        false => "thread",
    };
    // The creator's name is known: it comes first.
    match path.creator().and_then(|path| of_path.get(path.as_str())) {
        Some(&creator) if creator < at => format!("{what} of {}", groups[creator].name),
        _ => "main thread".to_owned(),
    }
}

/// The name that the program or its run-time system gives a thread, or its process.
fn own_name(thread: &Thread) -> Option<String> {
    match &thread.role {
        ThreadRole::Helper { of: Some(_) } | ThreadRole::Rank => {
            thread.role.label().map(|label| label.into_owned())
        }
        _ if thread.name.is_some() || thread.title.is_some() => {
            thread.shown().map(|name| name.into_owned())
        }
        _ => None,
    }
}

/// The path of a thread's process.
fn process_of(thread: &Thread) -> &str {
    ThreadPath::new(&thread.path).process().as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_model::LogicalNode;
    use numaloc_model::pages::PageHead;
    use numaloc_model::profile::{Clock, Meta, Object, ObjectKind, ProfileBuilder};
    use numaloc_model::{ObjectIdx, PageNumber, ThreadAccess};

    /// Threads by path, name, title and start routine.
    fn profile(rows: &[(&str, &str, &str, &str)]) -> Profile {
        let mut tables = ProfileBuilder::new(Meta::new("native", Clock::Virtual), 4096);
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        tables.threads = rows
            .iter()
            .map(|&(path, name, title, routine)| Thread {
                role: ThreadRole::from_label(given(routine)),
                name: given(name),
                title: given(title),
                accesses: 10,
                ..Thread::new(path)
            })
            .collect();
        tables.objects = vec![Object {
            kind: ObjectKind::Mapping,
            name: "[anon]".to_owned(),
            size: 1 << 20,
            order: 0,
            thread: Some(ThreadIdx(0)),
            base: 0,
            variables: Vec::new(),
        }];
        let head = PageHead {
            number: PageNumber(0),
            object: Some(ObjectIdx(0)),
            object_page: 0,
            first_touch: Some(ThreadIdx(0)),
            first_touch_time: 0,
            policy: None,
        };
        let row = |thread| ThreadAccess {
            thread: ThreadIdx(thread),
            reads: 10,
            writes: 0,
        };
        tables.page(head, (0..rows.len() as u32).map(row));
        tables.build().unwrap()
    }

    fn shown(profile: &Profile) -> Vec<(String, usize)> {
        let groups = groups(profile).into_iter();
        groups
            .map(|group| (group.name, group.threads.len()))
            .collect()
    }

    #[test]
    fn threads_are_grouped_by_name_then_by_start_routine_and_creator() {
        let profile = profile(&[
            ("0", "", "", ""),
            ("0.1", "io_thd_1", "", "IOThreadMain"),
            ("0.2", "io_thd_2", "", "IOThreadMain"),
            ("0.3", "", "", "work"),
            // The same routine, created by one that runs it: a pool.
            ("0.3.1", "", "", "work"),
            ("0.4", "", "", "listen"),
            // Of two creators: two roles.
            ("0.4.1", "", "", "serve"),
            ("0.5", "", "", "serve"),
        ]);
        let expected = [
            ("main thread", 1),
            ("io_thd_N", 2),
            ("work", 2),
            ("listen", 1),
            ("serve", 1),
            ("serve", 1),
        ];
        assert_eq!(
            shown(&profile),
            expected.map(|(name, count)| (name.to_owned(), count))
        );
        assert!(!are_worth_listing(&profile));
    }

    #[test]
    fn processes_of_one_title_are_one_role_and_their_threads_too() {
        let profile = profile(&[
            ("0", "", "", ""),
            ("0/1", "", "worker 1", ""),
            ("0/1.1", "log", "", "run"),
            ("0/2", "", "worker 2", ""),
            ("0/2.1", "log", "", "run"),
            ("0/3", "", "manager", ""),
            ("0/3.1", "log", "", "run"),
        ]);
        let expected = [
            ("main thread", 1),
            ("worker N", 2),
            ("log", 2),
            ("manager", 1),
            ("log", 1),
        ];
        assert_eq!(
            shown(&profile),
            expected.map(|(name, count)| (name.to_owned(), count))
        );
        assert!(are_worth_listing(&profile));
    }

    #[test]
    fn roles_are_recognised_by_names_code_and_creators() {
        let profile = profile(&[
            ("0", "", "", ""),
            ("0.1", "io_1", "", "run"),
            ("0.2", "", "", "serve"),
            ("0.2.1", "", "", "serve"),
            ("0/1", "", "postgres: ann shop [local] idle", ""),
            ("0/2", "", "postgres: bob wiki 1.2.3.4(5) SELECT", ""),
            ("0/2.1", "log", "", ""),
        ]);
        let groups = groups(&profile);
        let names: Vec<_> = groups.iter().map(|group| &*group.name).collect();
        assert_eq!(
            names,
            [
                "main thread",
                "io_1",
                "serve",
                "postgres: client backend",
                "log"
            ]
        );
        let key = |called: Option<&str>, routine: Option<&str>, is_process, parent| RoleKey {
            called: called.map(str::to_owned),
            routine: routine.map(str::to_owned),
            is_process,
            parent,
        };
        let expected = [
            (key(None, None, true, None), None),
            (key(Some("io_N"), None, false, Some(0)), Some(0)),
            (key(None, Some("serve"), false, Some(0)), Some(0)),
            (
                key(Some("postgres: client backend"), None, true, None),
                Some(0),
            ),
            (key(Some("log"), None, false, Some(3)), Some(3)),
        ];
        assert_eq!(keys(&profile, &groups), expected.map(Some));
    }

    #[test]
    fn figures_of_a_role_are_those_of_its_threads() {
        let profile = profile(&[
            ("0", "", "", ""),
            ("0.1", "io_1", "", ""),
            ("0.2", "io_2", "", ""),
        ]);
        let assignment = NodeAssignment {
            of_thread: [0, 0, 1].map(LogicalNode).to_vec(),
            ..NodeAssignment::blocks(3, 2)
        };
        let found = roles(&profile, profile.pages(), &assignment);
        let [io, main] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(
            (io.group.name.as_str(), io.accesses, io.processes),
            ("io_N", 20, 1)
        );
        // The page is on node 0, as are thread 0 and the first of the two.
        assert_eq!((io.remote_share, main.remote_share), (Some(0.5), Some(0.0)));
        assert!((io.share - 2.0 / 3.0).abs() < 1e-9);
        assert_eq!(io.objects, [("[anon], 1.0 MiB, no. 1".to_owned(), 20)]);
    }
}
