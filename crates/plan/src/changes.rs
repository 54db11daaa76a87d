//! Changes of the program that no plan makes, without an access trace: who initialises memory, pages dealt over the
//! nodes, a copy for each node. The search, the parts and the words are those of `numaloc advise`
//! ([`numaloc_whatif`]); the seconds are those of the model of worth ([`crate::worth`]) instead of a simulation.

use numaloc_analysis::contended::ContendedMemory;
use numaloc_analysis::outlook::{ChangeOf, SourceChange};
use numaloc_analysis::verdict::uses_openmp;
use numaloc_model::{CodePlace, Mapping, Named, Profile, ThreadIdx};
use numaloc_whatif::candidates::candidates;
use numaloc_whatif::change::{Change, Speeds};
use numaloc_whatif::lines::waiting_s;
use numaloc_whatif::parts::Part;
use numaloc_whatif::places::uses;
use numaloc_whatif::search::{Found, Step, WORTHWHILE, search};
use numaloc_whatif::words::{Language, assumption, headline, sketch};

use crate::worth::changed::Changed;
use crate::worth::{ERROR, Model};

/// Largest number of rows of a profile for which sets of several changes are tried, so that `show` stays fast.
const MOST_ROWS: usize = 1 << 20;

/// The changes of the source that save seconds by the model, as `advise` has them: each with the time before and after
/// it, the first saves most.
#[derive(Clone, Debug)]
pub struct Changes {
    /// What they are made to.
    pub parts: Vec<Part>,
    /// What the search found.
    pub found: Found,
    /// Seconds without any other node's memory, queue or line, under the best set.
    pub bound_s: f64,
    /// Nodes with PUs.
    pub nodes: usize,
}

/// Searches for changes of a run whose threads are where the operating system is assumed to put them. `memory`: the
/// contended lines that changes are tried on too.
#[must_use]
pub fn changes(model: &Model, unbound: &Mapping, memory: &[ContendedMemory]) -> Changes {
    let changed = Changed::of(model, unbound);
    let profile = model.profile();
    let threads = profile.threads().len();
    // Where another run may give a thread other work, it cannot initialise what it will use.
    let holds = profile.meta().conditions.repeatability(threads).holds();
    let meant = |change: &Change| match change {
        Change::TouchByUsers(_) => holds,
        Change::Bind(_) | Change::PlacePages | Change::InterleaveAll => false,
        _ => true,
    };
    let nodes = model.machine().nodes_with_pus().len();
    let [_, usual_s, most_s] = model.transfer_s();
    let run_s = changed.worth(&[]).seconds;
    let matters = |one: &ContendedMemory| one.cost_s(most_s, run_s) > WORTHWHILE * run_s;
    let speeds: Vec<Speeds> = changed.by_speed.iter().map(|known| known.0).collect();
    let mut tried = candidates(&changed.parts, memory, matters, 0, (nodes, &speeds));
    tried.retain(meant);
    let is_large = changed.rows() > MOST_ROWS;
    let rate = |sets: &[Vec<Change>]| -> Result<Vec<f64>, std::convert::Infallible> {
        let seconds = |set: &Vec<Change>| match is_large && set.len() > 1 {
            true => f64::INFINITY,
            false => {
                let run_s = changed.worth(set).seconds;
                run_s + waiting_s(memory, set, usual_s, run_s)
            }
        };
        Ok(sets.iter().map(seconds).collect())
    };
    let Ok(found) = search(&tried, rate);
    let best = found.sets.last().map_or(&[][..], |set| &set.changes);
    Changes {
        bound_s: changed.bound_s(best),
        found,
        parts: changed.parts,
        nodes,
    }
}

impl Changes {
    /// The sets that save more than the error of the model, if any.
    #[must_use]
    pub fn worth_it(&self) -> bool {
        let best = self.found.sets.last();
        best.is_some_and(|set| self.found.as_it_is > set.seconds * (1.0 + ERROR))
    }

    /// What saves more than the error of the model, with what people read about it.
    #[must_use]
    pub fn in_words(&self, profile: &Profile) -> Vec<SourceChange> {
        match self.worth_it() {
            true => in_words(profile, &self.parts, &[], &self.found, (self.nodes, ERROR)),
            false => Vec::new(),
        }
    }
}

/// The best set of a search as people read it, for a machine of which `nodes` nodes have PUs. `error`: the share by
/// which ratios of two times may be off.
#[must_use]
pub fn in_words(
    profile: &Profile,
    parts: &[Part],
    memory: &[ContendedMemory],
    found: &Found,
    (nodes, error): (usize, f64),
) -> Vec<SourceChange> {
    let steps = found.steps(found.as_it_is).into_iter();
    let in_words = |step: Step| {
        let change = step.change;
        let copied = match change {
            Change::Replicate(part) => parts[part].constant_pages.len() as u64,
            _ => 0,
        };
        let of = match (change.part(), change.lines()) {
            (Some(part), _) => Of::part(profile, change, &parts[part]),
            (None, Some(lines)) => Of::lines(&memory[lines]),
            (None, None) => Of::default(),
        };
        SourceChange {
            name: change.name(),
            of: match (change.part(), change.lines()) {
                (Some(_), _) => ChangeOf::Memory,
                (None, Some(_)) => ChangeOf::Lines,
                (None, None) => ChangeOf::Run,
            },
            headline: headline(change),
            write: sketch(change, of.language(profile)),
            assumes: assumption(change),
            memory: of.memory,
            first: of.first,
            begins: of.begins,
            used: of.used,
            threads: of.threads,
            pages: of.pages,
            takes: copied * profile.pages().page_size() * (nodes as u64).saturating_sub(1),
            needs_next: step.needs_next,
            before: step.before,
            after: step.after,
            error,
        }
    };
    steps.map(in_words).collect()
}

/// What is known of the memory that a change is made to.
#[derive(Default)]
struct Of {
    memory: Vec<Named>,
    first: ThreadIdx,
    begins: Vec<CodePlace>,
    used: Option<CodePlace>,
    threads: usize,
    pages: usize,
}

impl Of {
    fn part(profile: &Profile, change: Change, part: &Part) -> Self {
        let memory = match change {
            Change::Replicate(_) => &part.constant,
            _ => &part.memory,
        };
        let used = uses(profile, &part.memory, &part.beginnings);
        Self {
            memory: memory.clone(),
            first: part.first,
            begins: part.beginnings.clone(),
            used: used.first().map(|used| used.place.clone()),
            threads: users(profile, part),
            pages: part.pages.len() + part.own_pages.len(),
        }
    }

    fn lines(memory: &ContendedMemory) -> Self {
        Self {
            memory: memory.memory.named(),
            begins: vec![memory.places[0].clone()],
            threads: memory.threads as usize,
            ..Self::default()
        }
    }

    /// What the change is written in.
    fn language(&self, profile: &Profile) -> Language {
        let has_openmp = uses_openmp(profile);
        let of = |place: &CodePlace| Language::of(place.source.as_deref(), has_openmp);
        let used = || self.used.as_ref().map(of);
        Language::of_change(self.begins.first().map(of), used)
            .unwrap_or(Language::of(None, has_openmp))
    }
}

/// Number of threads that use the part's memory.
fn users(profile: &Profile, part: &Part) -> usize {
    let usage = profile.pages();
    let mut is_user = vec![false; profile.threads().len()];
    for number in &part.pages {
        let at = usage
            .pages()
            .binary_search_by_key(number, |page| page.number.0);
        let accesses = at.map_or(&[][..], |at| usage.accesses(&usage.pages()[at]));
        for access in accesses {
            is_user[access.thread.index()] = true;
        }
    }
    is_user.iter().filter(|used| **used).count()
}

#[cfg(test)]
mod tests {
    use numaloc_model::profile::Variable;
    use numaloc_model::{Layer, LogicalPu, ObjectIdx, ProfileBuilder, SiteKind, SiteRow};
    use numaloc_topology::resolve;

    use super::*;
    use crate::worth::tests::{Use, table};

    const THREADS: u32 = 4;
    const PAGES: u32 = 100;

    /// Threads on a node each use a hundred pages each, eight times, that `begins` began with.
    fn found(begins: impl Fn(u32) -> u32) -> (Changes, Profile) {
        let all = THREADS * PAGES;
        let mut uses: Vec<Use> = (0..all)
            .map(|page| (page / PAGES, page, begins(page / PAGES), 512))
            .collect();
        for slice in THREADS..THREADS + 8 {
            uses.extend((0..all).map(|page| (slice, page, page / PAGES, 512)));
        }
        uses.sort_unstable();
        let profile = table(THREADS, &uses, false);
        let machine = resolve("numa:4 core:1 pu:1").unwrap();
        let unbound = Mapping {
            pu: (0..THREADS).map(LogicalPu).collect(),
        };
        let model = Model::of(&profile, Layer::WriteRead, &machine).unwrap();
        let changes = changes(&model, &unbound, &[]);
        (changes, profile)
    }

    #[test]
    fn memory_that_one_thread_begins_with_is_begun_by_its_users() {
        let (changes, profile) = found(|_| 0);
        let words = changes.in_words(&profile);
        assert_eq!(words[0].name, "touch_by_users", "{words:?}");
        assert_eq!((words[0].first, words[0].threads), (ThreadIdx(0), 4));
        assert!(
            words[0].write[0].contains("each thread initialises"),
            "{words:?}"
        );
        // What the first thread did with four hundred pages takes a quarter.
        assert!(words[0].after < 0.85 * words[0].before, "{words:?}");
        assert!(changes.bound_s <= words[0].after, "{changes:?}");
        // The changed program has nothing to change, and takes as long as predicted.
        let (made, profile) = found(|user| user);
        assert!(made.in_words(&profile).is_empty(), "{made:?}");
    }

    #[test]
    fn blocks_of_one_object_are_changed_apart() {
        let (_, profile) = found(|_| 0);
        let half = u64::from(THREADS * PAGES / 2) * 4096;
        let site = |block: u64, thread: u32, kind| SiteRow {
            kind,
            thread: ThreadIdx(thread),
            other: None,
            object: Some(ObjectIdx(0)),
            variable: Some(block * half),
            here: CodePlace {
                function: Some(format!("{}_{block}", kind.name())),
                source: None,
            },
            there: CodePlace::default(),
            samples: 1,
            amount: 100,
        };
        let block = |at: u64| Variable {
            name: format!("block {at}"),
            offset: at * half,
            size: half,
            source: None,
        };
        let tables = |tables: &mut ProfileBuilder| {
            tables.objects[0].variables = vec![block(0), block(1)];
            tables.sites = (0..2)
                .flat_map(|at| [site(at, 0, SiteKind::Store), site(at, 1, SiteKind::Load)])
                .collect();
        };
        let profile = profile.changed(tables).unwrap();
        let machine = resolve("numa:4 core:1 pu:1").unwrap();
        let unbound = Mapping {
            pu: (0..THREADS).map(LogicalPu).collect(),
        };
        let model = Model::of(&profile, Layer::WriteRead, &machine).unwrap();
        let changes = changes(&model, &unbound, &[]);
        let mut parts: Vec<_> = (changes.parts.iter())
            .map(|part| (part.memory[0].variable, part.beginnings[0].function.clone()))
            .collect();
        parts.sort_unstable();
        let begins = |at: usize| (Some(at), Some(format!("store_{at}")));
        assert_eq!(parts, [begins(0), begins(1)]);
    }
}
