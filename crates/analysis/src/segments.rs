//! Segments: memory by the names that people use for it, such as PostgreSQL's `shared_buffers` or a Java heap.
//!
//! Rules ([`SegmentRule`]) are tried in their order, and the first that holds for an object names it. What a process
//! has loaded is known by the objects of its programs and libraries, so a profile needs no further tables, and old ones
//! have segments too. The identity of an object stays as it is, as do plans.

use std::collections::{BTreeMap, HashMap, HashSet};

use numaloc_identity::ThreadPath;
use numaloc_identity::object::base_name;
use numaloc_model::profile::{Object, ObjectKind, Profile};
use numaloc_model::segments::{SegmentRule, any_holds, bytes};
use numaloc_model::{ObjectIdx, PageUsage};

use crate::assignment::NodeAssignment;
use crate::local::{self, Counted};

/// Name of memory without an object.
const UNKNOWN: &str = "(no object)";
/// An object is larger than an option states by at most this part, and by at most these bytes: alignment.
const LARGER_BY_PART: u64 = 32;
const LARGER_BY_BYTES: u64 = 4 << 20;

/// A segment, and its use.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Its name.
    pub name: String,
    /// What the program's own settings do with it, if a rule says so.
    pub switch: Option<String>,
    /// Whether the rule is one for memory of any program.
    pub is_general: bool,
    /// Number of objects with accesses.
    pub objects: usize,
    /// Number of processes with threads that used it.
    pub processes: usize,
    /// Number of threads that used it.
    pub threads: usize,
    /// Pages with accesses.
    pub pages: u64,
    /// Loads and stores.
    pub accesses: u64,
    /// Share of the accesses to all pages; 0 if there are none.
    pub share: f64,
    /// Share of its accesses beyond private caches that are remote with threads bound in the order of their creation
    /// and pages by first touch; `None` without such accesses.
    pub remote_share: Option<f64>,
}

/// Whether the segments of a profile say more than its objects: a rule for a program holds.
#[must_use]
pub fn are_worth_listing(segments: &[Segment]) -> bool {
    segments.iter().any(|found| !found.is_general)
}

/// The objects that a rule for a program names, and the name. Objects of general rules keep their names.
#[must_use]
pub fn named<'r>(profile: &Profile, rules: &'r [SegmentRule]) -> Vec<(ObjectIdx, &'r str)> {
    let found = Matches::of(profile, rules).of_object.into_iter();
    let named = found.enumerate().filter_map(|(at, rule)| {
        let rule = &rules[rule?];
        let name = (!rule.is_general).then_some(&*rule.name)?;
        Some((ObjectIdx::from_index(at), name))
    });
    named.collect()
}

/// Gives the [`named`] objects of which no part is known this name as a whole part, so that all tables and answers show
/// it.
pub fn name_memory(profile: &mut Profile, rules: &[SegmentRule]) {
    for (object, name) in named(profile, rules) {
        profile.name_whole(object, name);
    }
}

/// The segments of a profile with their use, the most accesses first (ties: by name). `beyond`: its page accesses
/// beyond private caches. O(rules x objects + page cells).
#[must_use]
pub fn segments(
    profile: &Profile,
    beyond: &PageUsage,
    assignment: &NodeAssignment,
    rules: &[SegmentRule],
) -> Vec<Segment> {
    let found = Matches::of(profile, rules);
    let names = |rule: Option<usize>| rule.map_or(UNKNOWN, |rule| rules[rule].name.as_str());
    let pages = profile.pages().pages();
    let of_page: Vec<Option<usize>> = pages
        .iter()
        .map(|page| {
            let object = page.object?;
            let part = profile.variable_of(page);
            let named = part.and_then(|part| found.of_part.get(&(object.index(), part)));
            named.copied().or(found.of_object[object.index()])
        })
        .collect();
    let accesses = local::Accesses {
        profile,
        beyond,
        alone: &[],
        homes: assignment.homes.len(),
        memories: assignment.nodes,
    };
    let counted = accesses.bound_by_page(|thread| assignment.of_thread[thread.index()]);
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for ((page, rule), counted) in pages.iter().zip(&of_page).zip(counted) {
        let cells = profile.pages().accesses(page);
        if cells.iter().all(|cell| cell.total() == 0) {
            continue;
        }
        let sum = sums.entry(names(*rule)).or_default();
        sum.rule = sum.rule.or(*rule);
        sum.pages += 1;
        sum.objects.extend(page.object);
        sum.threads.extend(cells.iter().map(|cell| cell.thread));
        sum.accesses += cells.iter().map(|cell| cell.total()).sum::<u64>();
        sum.counted.remote += counted.remote;
        sum.counted.all += counted.all;
    }
    let all: u64 = sums.values().map(|sum| sum.accesses).sum();
    let process = |path: &'_ str| ThreadPath::new(path).process().as_str().to_owned();
    let mut found: Vec<Segment> = sums
        .into_iter()
        .map(|(name, sum)| {
            let paths = sum
                .threads
                .iter()
                .map(|&t| &profile.threads()[t.index()].path);
            Segment {
                name: name.to_owned(),
                switch: sum.rule.and_then(|rule| rules[rule].switch.clone()),
                is_general: sum.rule.is_none_or(|rule| rules[rule].is_general),
                objects: sum.objects.len(),
                processes: paths
                    .map(|path| process(path))
                    .collect::<HashSet<_>>()
                    .len(),
                threads: sum.threads.len(),
                pages: sum.pages,
                accesses: sum.accesses,
                share: sum.accesses as f64 / all.max(1) as f64,
                remote_share: sum.counted.remote_share(),
            }
        })
        .collect();
    found.sort_by_key(|segment| std::cmp::Reverse(segment.accesses));
    found
}

/// Sums of a segment.
#[derive(Default)]
struct Sum {
    /// The first of the rules that name it.
    rule: Option<usize>,
    objects: HashSet<ObjectIdx>,
    threads: HashSet<numaloc_model::ThreadIdx>,
    pages: u64,
    accesses: u64,
    counted: Counted,
}

/// Which rule holds for which memory.
struct Matches {
    /// By object.
    of_object: Vec<Option<usize>>,
    /// By object and part, where a rule is about parts.
    of_part: HashMap<(usize, usize), usize>,
}

impl Matches {
    fn of<'p>(profile: &'p Profile, rules: &[SegmentRule]) -> Self {
        let processes = Processes::of(profile);
        let used = used_pages(profile);
        let mut of_object: Vec<Option<usize>> = vec![None; profile.objects().len()];
        let mut of_part = HashMap::new();
        for (at, rule) in rules.iter().enumerate() {
            let mut largest: BTreeMap<&str, (u64, u64, usize)> = BTreeMap::new();
            let mut loaded: HashMap<&'p str, bool> = HashMap::new();
            for (number, object) in profile.objects().iter().enumerate() {
                let process = processes.path(object);
                let has_loaded = |loaded: &mut HashMap<&'p str, bool>| {
                    *loaded
                        .entry(process)
                        .or_insert_with(|| processes.have_loaded(rule, process))
                };
                if !is_such(rule, object) || !has_loaded(&mut loaded) {
                    continue;
                }
                if !rule.parts.is_empty() {
                    for (part, variable) in object.variables.iter().enumerate() {
                        let has_size = (rule.at_least..=rule.at_most).contains(&variable.size);
                        if has_size && any_holds(&rule.parts, &variable.name) {
                            of_part.entry((number, part)).or_insert(at);
                        }
                    }
                } else if of_object[number].is_none()
                    && (rule.at_least..=rule.at_most).contains(&object.size)
                    && states(&rule.options, &profile.meta().command, object.size)
                {
                    if !rule.is_largest {
                        of_object[number] = Some(at);
                        continue;
                    }
                    let rank = (object.size, used[number], number);
                    let best = largest.entry(process).or_insert(rank);
                    // Of equal ones the first.
                    if (rank.0, rank.1) > (best.0, best.1) {
                        *best = rank;
                    }
                }
            }
            for (_, _, number) in largest.into_values() {
                of_object[number] = Some(at);
            }
        }
        Self { of_object, of_part }
    }
}

/// Number of pages with accesses by object.
fn used_pages(profile: &Profile) -> Vec<u64> {
    let mut used = vec![0; profile.objects().len()];
    for object in profile
        .pages()
        .pages()
        .iter()
        .filter_map(|page| page.object)
    {
        if let Some(count) = used.get_mut(object.index()) {
            *count += 1;
        }
    }
    used
}

/// Whether the conditions hold that are about the object's kind, name and address.
fn is_such(rule: &SegmentRule, object: &Object) -> bool {
    let end = object.base.saturating_add(object.size);
    (rule.kinds.is_empty() || rule.kinds.contains(&object.kind))
        && any_holds(&rule.memory, &object.name)
        && (rule.below == u64::MAX || end <= rule.below)
}

/// Whether one of the options on the command line states this size; true without options.
fn states(options: &[String], command: &[String], size: u64) -> bool {
    let stated = |option: &String| {
        let mut given = command
            .iter()
            .filter_map(|word| word.strip_prefix(&**option));
        given.any(|value| {
            bytes(value).is_some_and(|stated| {
                let larger = (stated / LARGER_BY_PART).saturating_add(LARGER_BY_BYTES);
                let most = stated.saturating_add(larger);
                stated > 0 && (stated..=most).contains(&size)
            })
        })
    };
    options.is_empty() || options.iter().any(stated)
}

/// What the processes of a profile have loaded.
struct Processes<'p> {
    profile: &'p Profile,
    /// File names of programs and libraries, by the path of the process.
    loaded: HashMap<&'p str, HashSet<&'p str>>,
}

impl<'p> Processes<'p> {
    fn of(profile: &'p Profile) -> Self {
        let mut found = Self {
            profile,
            loaded: HashMap::new(),
        };
        for object in profile.objects() {
            let file = match object.kind {
                // `FILE:SECTION`.
                ObjectKind::Static => object.name.rsplit_once(':').map(|(file, _)| file),
                ObjectKind::Mapping if !object.name.starts_with('[') => Some(&*object.name),
                _ => None,
            };
            let process = found.path(object);
            found.loaded.entry(process).or_default().extend(file);
        }
        for thread in profile.threads() {
            // A title begins with the program's name: `postgres: checkpointer`, `redis-server *:6379`.
            let title = thread
                .title
                .as_deref()
                .and_then(|title| title.split([':', ' ']).next());
            let process = ThreadPath::new(&thread.path).process().as_str();
            let title = title.map(base_name).filter(|title| !title.is_empty());
            found.loaded.entry(process).or_default().extend(title);
        }
        let first = profile.threads().first().map(|thread| thread.path.as_str());
        let command = profile.meta().command.first().map(|word| base_name(word));
        if let (Some(first), Some(command)) = (first, command) {
            found.loaded.entry(first).or_default().insert(command);
        }
        found
    }

    /// The path of the process that made an object; that of the first if it is not known.
    fn path(&self, object: &Object) -> &'p str {
        let threads = self.profile.threads();
        let thread = object.thread.and_then(|thread| threads.get(thread.index()));
        let thread = thread.or(threads.first());
        thread.map_or("", |thread| {
            ThreadPath::new(&thread.path).process().as_str()
        })
    }

    fn have_loaded(&self, rule: &SegmentRule, process: &str) -> bool {
        let files = self.loaded.get(process);
        rule.loaded.is_empty()
            || files.is_some_and(|files| files.iter().any(|file| any_holds(&rule.loaded, file)))
    }
}

#[cfg(test)]
mod tests;
