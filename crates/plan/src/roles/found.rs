//! The roles of a profile and the memory that its threads share, with what another run recognises them by.

use std::collections::{BTreeMap, HashMap, HashSet};

use numaloc_analysis::roles::{groups, keys};
use numaloc_analysis::segments;
use numaloc_model::profile::{Object, ObjectKind, Profile};
use numaloc_model::roles::RoleKey;
use numaloc_model::segments::SegmentRule;
use numaloc_model::{ObjectIdx, ThreadIdx};

/// A role of a profile.
#[derive(Clone, Debug)]
pub struct FoundRole {
    /// Its name for readers: what its members are called, where they have a name.
    pub name: String,
    /// Its members, ascending.
    pub threads: Vec<ThreadIdx>,
    /// How they are recognised.
    pub key: RoleKey,
    /// Role that created most of them.
    pub creator: Option<u32>,
    /// Share (0..=1) of all accesses.
    pub share: f64,
}

/// Memory of one name that several threads use.
#[derive(Clone, Debug)]
pub struct FoundSegment {
    /// Its name for readers.
    pub name: String,
    /// Kind of memory.
    pub kind: ObjectKind,
    /// The objects' name.
    pub memory: String,
    /// Role of the threads that made it, by position.
    pub role: usize,
    /// Least and greatest size by which it differs from other memory of this kind, name and role; `None` if it does
    /// not.
    pub bytes: Option<(u64, u64)>,
    /// Share (0..=1) of all accesses to pages.
    pub share: f64,
    /// Pages with accesses.
    pub pages: u64,
}

/// Both, and which threads and pages are of which.
pub(super) struct Found {
    pub roles: Vec<FoundRole>,
    /// The most accesses first.
    pub segments: Vec<FoundSegment>,
    /// Role of each thread.
    pub of_thread: Vec<usize>,
    /// Segment of each page.
    pub of_page: Vec<Option<usize>>,
}

/// What memory of one segment has in common: its name, kind, object name and the role that made it.
type Common = (String, ObjectKind, String, usize);

impl Found {
    pub fn of(profile: &Profile, rules: &[SegmentRule]) -> Self {
        let roles = roles(profile);
        let mut of_thread = vec![0; profile.threads().len()];
        for (at, role) in roles.iter().enumerate() {
            role.threads.iter().for_each(|t| of_thread[t.index()] = at);
        }
        let names: HashMap<ObjectIdx, &str> = segments::named(profile, rules).into_iter().collect();
        let common: Vec<Option<Common>> = (0..)
            .map(ObjectIdx)
            .zip(profile.objects())
            .map(|(at, object)| {
                let role = of_thread[object.thread?.index()];
                let name = names.get(&at).map_or(object.name.as_str(), |name| *name);
                is_placed(object).then(|| (name.to_owned(), object.kind, object.name.clone(), role))
            })
            .collect();
        let used = Used::of(profile, &common);
        let mut by_accesses: Vec<(&Common, &Sum)> = used
            .sums
            .iter()
            .filter(|(_, sum)| 2 * sum.shared >= sum.accesses && sum.accesses > 0)
            .map(|(&common, sum)| (common, sum))
            .collect();
        by_accesses.sort_by(|a, b| b.1.accesses.cmp(&a.1.accesses).then(a.0.cmp(b.0)));
        let segments = by_accesses
            .iter()
            .map(|&(of, sum)| FoundSegment {
                name: match of.0.starts_with('[') {
                    true => format!("{} {} of {}", of.1.name(), of.0, roles[of.3].name),
                    false => of.0.clone(),
                },
                kind: of.1,
                memory: of.2.clone(),
                role: of.3,
                bytes: sizes(profile, &common, of),
                share: sum.accesses as f64 / used.all.max(1) as f64,
                pages: sum.pages,
            })
            .collect();
        let at: HashMap<&Common, usize> = (0..)
            .zip(&by_accesses)
            .map(|(at, &(common, _))| (common, at))
            .collect();
        let of_page = profile.pages().pages().iter().map(|page| {
            let common = common[page.object?.index()].as_ref()?;
            at.get(common).copied()
        });
        Self {
            of_page: of_page.collect(),
            segments,
            roles,
            of_thread,
        }
    }
}

/// The roles; those whose members would be recognised as another's are added to it.
fn roles(profile: &Profile) -> Vec<FoundRole> {
    let groups = groups(profile);
    let keys = keys(profile, &groups);
    let all: u64 = profile.threads().iter().map(|thread| thread.accesses).sum();
    let accesses = |threads: &[ThreadIdx]| -> u64 {
        let threads = threads.iter().map(|t| &profile.threads()[t.index()]);
        threads.map(|thread| thread.accesses).sum()
    };
    let mut found: Vec<FoundRole> = Vec::new();
    // Groups without a key of their own shift the numbers of those behind them.
    let mut number: Vec<Option<u32>> = Vec::new();
    let mut others: Vec<ThreadIdx> = Vec::new();
    for (group, key) in groups.into_iter().zip(keys) {
        let Some((key, creator)) = key else {
            number.push(None);
            others.extend(group.threads);
            continue;
        };
        let now = |old: Option<u32>| old.and_then(|old| number[old as usize]);
        let key = RoleKey {
            parent: now(key.parent),
            ..key
        };
        let role = FoundRole {
            name: key.called.clone().unwrap_or(group.name),
            share: accesses(&group.threads) as f64 / all.max(1) as f64,
            creator: now(creator),
            threads: group.threads,
            key,
        };
        number.push(u32::try_from(found.len()).ok());
        found.push(role);
    }
    // Left to the kernel, as the first role's threads are unless it is placed.
    if let Some(first) = found.first_mut() {
        first.share += accesses(&others) as f64 / all.max(1) as f64;
        first.threads.extend(others);
        first.threads.sort_unstable();
    }
    found
}

/// Whether a policy for mappings reaches an object.
fn is_placed(object: &Object) -> bool {
    match object.kind {
        ObjectKind::Shared => true,
        ObjectKind::Mapping => object.name.starts_with('['),
        ObjectKind::Static | ObjectKind::Heap | ObjectKind::Stack => false,
    }
}

/// Use of memory with something in common.
#[derive(Default)]
struct Sum {
    accesses: u64,
    /// Of these, to objects that several threads use.
    shared: u64,
    pages: u64,
}

struct Used<'c> {
    sums: BTreeMap<&'c Common, Sum>,
    all: u64,
}

impl<'c> Used<'c> {
    fn of(profile: &Profile, common: &'c [Option<Common>]) -> Self {
        let mut of_object: HashMap<ObjectIdx, (u64, u64, HashSet<ThreadIdx>)> = HashMap::new();
        let mut all = 0;
        for page in profile.pages().pages() {
            let cells = profile.pages().accesses(page);
            let accesses: u64 = cells.iter().map(|cell| cell.total()).sum();
            all += accesses;
            if let Some(object) = page.object {
                let sum = of_object.entry(object).or_default();
                sum.0 += accesses;
                sum.1 += u64::from(accesses > 0);
                sum.2.extend(cells.iter().map(|cell| cell.thread));
            }
        }
        let mut sums: BTreeMap<&Common, Sum> = BTreeMap::new();
        for (object, (accesses, pages, threads)) in of_object {
            let Some(common) = &common[object.index()] else {
                continue;
            };
            let sum = sums.entry(common).or_default();
            sum.accesses += accesses;
            sum.pages += pages;
            if threads.len() > 1 {
                sum.shared += accesses;
            }
        }
        Self { sums, all }
    }
}

/// Sizes that the objects with this in common have, and others of their kind, name and role have not: half as large as
/// the smallest, and any larger size, as far as none of the others is among them.
fn sizes(profile: &Profile, common: &[Option<Common>], of: &Common) -> Option<(u64, u64)> {
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for (object, common) in profile.objects().iter().zip(common) {
        match common {
            Some(common) if common == of => own.push(object.size),
            Some(common) if (common.1, &common.2, common.3) == (of.1, &of.2, of.3) => {
                others.push(object.size);
            }
            _ => {}
        }
    }
    let (least, most) = (own.iter().min()?, own.iter().max()?);
    if others.iter().any(|size| (least..=most).contains(&size)) {
        return None;
    }
    let below = others.iter().filter(|size| *size < least).max();
    let above = others.iter().filter(|size| *size > most).min();
    Some((
        below.map_or(0, |size| size + 1).max(least / 2),
        above.map_or(u64::MAX, |size| size - 1),
    ))
}
