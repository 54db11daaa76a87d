//! Parts: objects, and variables and blocks that fill pages of them, that one function initialises. A change of that
//! function concerns all of them. Without any code sites, what one thread initialises is one part.

use std::collections::BTreeMap;

use numaloc_model::profile::{Named, Object, ObjectKind, Profile};
use numaloc_model::{CodePlace, ObjectIdx, ThreadIdx};

use crate::facts::Facts;
use crate::places;

/// Largest number of parts that changes are tried on.
const MOST: usize = 6;
/// Share of all requests below private caches that others than the first thread make to a part worth a try.
const LEAST_SHARE: f64 = 0.02;

/// Memory that one function initialises, or one object or variable of which that function is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its objects and variables, most requests of others first.
    pub memory: Vec<Named>,
    /// The thread that began with most of its pages.
    pub first: ThreadIdx,
    /// Where that thread initialises it, as far as known: lines of one function.
    pub beginnings: Vec<CodePlace>,
    /// Its pages that other threads use after their beginning: their numbers, ascending.
    pub pages: Vec<u64>,
    /// Its pages that only the first thread uses, ascending.
    pub own_pages: Vec<u64>,
    /// The threads that should begin with its pages, where that is another one than now: page number and thread, by
    /// ascending page. None if others use most pages while the first thread goes on to begin with others.
    pub beginners: Vec<(u64, ThreadIdx)>,
    /// Requests of others than the first thread after the beginnings.
    pub requests_of_others: u64,
    /// What of its memory no thread writes after its beginning.
    pub constant: Vec<Named>,
    /// Their pages, ascending.
    pub constant_pages: Vec<u64>,
}

/// What pages of one object or variable add up to.
#[derive(Default)]
struct Sum {
    pages: Vec<u64>,
    /// Pages that one thread uses, and that thread.
    of_one: Vec<(u64, ThreadIdx)>,
    first: BTreeMap<ThreadIdx, u64>,
    requests: u64,
    is_written: bool,
}

/// The parts that changes may be worth for, most requests of others first.
#[must_use]
pub fn parts(profile: &Profile, facts: &Facts) -> Vec<Part> {
    let mut sums: BTreeMap<Named, Sum> = BTreeMap::new();
    for page in profile.pages().pages() {
        let named = profile.named(page);
        let Some(named) = named.filter(|of| is_placed(profile, of.object)) else {
            continue;
        };
        let Some(found) = facts.page(page.number.0) else {
            continue;
        };
        let sum = sums.entry(named).or_default();
        if !found.is_shared {
            sum.of_one.push((page.number.0, found.first));
            continue;
        }
        sum.pages.push(page.number.0);
        *sum.first.entry(found.first).or_default() += 1;
        sum.requests += found.requests_of_others();
        sum.is_written |= found.is_written_after;
    }
    let is_used = |(_, sum): &(Named, Sum)| sum.requests > 0;
    let mut found: Vec<(Named, Sum)> = sums.into_iter().filter(is_used).collect();
    found.sort_by_key(|(memory, sum)| (std::cmp::Reverse(sum.requests), *memory));
    let sites = places::by_memory(profile);
    let mut parts: Vec<Part> = Vec::new();
    for (memory, sum) in found {
        let most = sum
            .first
            .iter()
            .max_by_key(|&(thread, pages)| (*pages, std::cmp::Reverse(*thread)));
        let Some((&first, _)) = most else { continue };
        let rows = sites.get(&memory).map_or(&[][..], Vec::as_slice);
        let beginning = places::beginning(rows, first);
        let is_same = |part: &Part| match sites.is_empty() {
            true => part.first == first,
            false => part.begins_in(first, beginning.as_ref()),
        };
        let at = match parts.iter().position(is_same) {
            Some(at) => at,
            None => {
                parts.push(Part::new(first));
                parts.len() - 1
            }
        };
        parts[at].add(memory, sum, beginning);
    }
    parts.retain(|part| part.requests_of_others as f64 >= LEAST_SHARE * facts.requests as f64);
    parts.sort_by_key(|part| (std::cmp::Reverse(part.requests_of_others), part.memory[0]));
    parts.truncate(MOST);
    for part in &mut parts {
        if !is_pipeline(&part.pages, facts) {
            part.beginners = beginners(&part.pages, facts);
        }
    }
    parts
}

/// Whether others use most of these pages before the last one is begun: what begins them makes something for others
/// while these work, so it is no initialisation that could be done at once.
fn is_pipeline(pages: &[u64], facts: &Facts) -> bool {
    let times = || {
        pages
            .iter()
            .filter_map(|&page| Some(facts.page(page)?.times))
    };
    let last = times().map(|[begun, _]| begun).max().unwrap_or(0);
    2 * times().filter(|[_, used]| *used < last).count() > pages.len()
}

/// Who should begin with each of these pages, where that is another thread than now: the one that uses it most. Where
/// several use it about as much, they share such pages in blocks, as loops in parallel do.
fn beginners(pages: &[u64], facts: &Facts) -> Vec<(u64, ThreadIdx)> {
    let count = pages.len().max(1);
    let of_page = |(at, &page): (usize, &u64)| {
        let found = facts.page(page)?;
        let users = found.main_users();
        let user = *users.get(at * users.len() / count)?;
        (user != found.first).then_some((page, user))
    };
    pages.iter().enumerate().filter_map(of_page).collect()
}

impl Part {
    fn new(first: ThreadIdx) -> Self {
        Self {
            memory: Vec::new(),
            first,
            beginnings: Vec::new(),
            pages: Vec::new(),
            own_pages: Vec::new(),
            beginners: Vec::new(),
            requests_of_others: 0,
            constant: Vec::new(),
            constant_pages: Vec::new(),
        }
    }

    /// Whether `first` begins with it in the same function.
    fn begins_in(&self, first: ThreadIdx, beginning: Option<&CodePlace>) -> bool {
        let function = beginning.and_then(|place| place.function.as_ref());
        let known = self
            .beginnings
            .first()
            .and_then(|place| place.function.as_ref());
        self.first == first && function.is_some() && function == known
    }

    fn add(&mut self, memory: Named, sum: Sum, beginning: Option<CodePlace>) {
        if !sum.is_written {
            self.constant.push(memory);
            self.constant_pages.extend(&sum.pages);
            self.constant_pages.sort_unstable();
        }
        self.memory.push(memory);
        self.beginnings.extend(beginning);
        self.beginnings.sort();
        self.beginnings.dedup();
        self.pages.extend(sum.pages);
        self.pages.sort_unstable();
        let own = sum
            .of_one
            .iter()
            .filter(|(_, thread)| *thread == self.first);
        self.own_pages.extend(own.map(|(page, _)| *page));
        self.own_pages.sort_unstable();
        self.requests_of_others += sum.requests;
    }
}

/// Whether the program decides where the object's pages are: not stacks, not what lies in the page cache, not what no
/// line of its source initialises.
fn is_placed(profile: &Profile, object: ObjectIdx) -> bool {
    let object = profile.object(object);
    object.kind != ObjectKind::Stack && !object.is_page_cached(0) && !is_loaders(object)
}

/// Sections that the dynamic linker writes before the program begins.
const RELOCATED: [&str; 6] = [
    ".data.rel.ro",
    ".got",
    ".got.plt",
    ".dynamic",
    ".init_array",
    ".fini_array",
];

/// Whether it is a section that the dynamic linker writes, or one of a shared library of which no line is known, as the
/// C library and run-time systems are.
fn is_loaders(object: &Object) -> bool {
    if object.kind != ObjectKind::Static {
        return false;
    }
    let (file, section) = object.name.rsplit_once(':').unwrap_or(("", &object.name));
    let is_library = file.ends_with(".so") || file.contains(".so.");
    let is_known = object.variables.iter().any(|one| one.source.is_some());
    RELOCATED.contains(&section) || is_library && !is_known
}

#[cfg(test)]
mod tests {
    use numaloc_model::profile::Variable;
    use numaloc_model::trace::Action;

    use super::*;
    use crate::facts::tests::event;

    #[test]
    fn pages_that_all_use_are_begun_in_blocks_others_by_their_user() {
        let mut facts = Facts::new(1);
        let mut add = |thread, action| facts.add(ThreadIdx(thread), &event(action));
        for page in 0..5 {
            add(0, Action::Write(page));
        }
        // All but the first thread read pages 0 to 3, thread 2 reads page 4 most.
        for page in 0..4 {
            add(1, Action::Read(page));
            add(2, Action::Read(page));
        }
        add(1, Action::Read(4));
        for _ in 0..3 {
            add(2, Action::Read(4));
        }
        let found = beginners(&[0, 1, 2, 3, 4], &facts);
        let expected = [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2)];
        assert_eq!(
            found,
            expected.map(|(page, thread)| (page, ThreadIdx(thread)))
        );
    }

    #[test]
    fn what_the_dynamic_linker_and_run_time_systems_write_is_not_for_the_program_to_place() {
        let is_of_program = |name: &str, source: Option<&str>| {
            let variable = Variable {
                name: "grid".to_owned(),
                offset: 0,
                size: 8,
                source: source.map(str::to_owned),
            };
            !is_loaders(&Object {
                kind: ObjectKind::Static,
                name: name.to_owned(),
                size: 4096,
                order: 0,
                thread: None,
                base: 0,
                variables: vec![variable],
            })
        };
        assert!(is_of_program("app:.bss", None) && is_of_program("app:.data", None));
        assert!(is_of_program("libgrid.so:.bss", Some("grid.c:7")));
        assert!(!is_of_program("app:.data.rel.ro", None) && !is_of_program("app:.got.plt", None));
        assert!(
            !is_of_program("libc.so.6:.bss", None)
                && !is_of_program("libgrid.so:.got", Some("grid.c:7"))
        );
    }

    #[test]
    fn pages_that_are_used_while_others_are_begun_are_a_pipeline() {
        let pages: Vec<u64> = (0..6).collect();
        // Thread 1 uses each page `behind` pages after thread 0 has written it.
        let is_pipeline = |behind: u64| {
            let mut facts = Facts::new(1);
            let mut add = |thread, action| facts.add(ThreadIdx(thread), &event(action));
            for page in 0..6 + behind {
                if page < 6 {
                    add(0, Action::Write(page));
                }
                if (behind..6 + behind).contains(&page) {
                    add(1, Action::Read(page - behind));
                }
            }
            super::is_pipeline(&pages, &facts)
        };
        assert_eq!([1, 2, 6].map(is_pipeline), [true, false, false]);
    }

    #[test]
    fn the_thread_that_begins_already_is_not_named() {
        let mut facts = Facts::new(1);
        facts.add(ThreadIdx(0), &event(Action::Write(0)));
        facts.add(ThreadIdx(1), &event(Action::Read(0)));
        for _ in 0..3 {
            facts.add(ThreadIdx(0), &event(Action::Read(0)));
        }
        assert_eq!(beginners(&[0], &facts), []);
    }
}
