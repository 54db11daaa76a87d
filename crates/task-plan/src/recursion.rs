//! Decides which recursions get classes by depth, and which cannot be placed.
//!
//! The star makes one class of a recursion of any depth, as of a loop. Two kinds of recursions are unfolded:
//!
//! - Branching ones (a task creates two or more tasks of its own cycle), because a class of theirs has many tasks alive
//!   at a time on different data.
//! - Chains over levels (one recursive task per task, as in a V-cycle): entered repeatedly, to the same depth each
//!   time, with data of a different size at each depth. A loop inside a loop has the same data in each iteration; it
//!   stays folded, because the run may have more iterations.

use std::collections::{BTreeMap, BTreeSet};

use crate::classes::ClassId;
use crate::data::Data;
use crate::profile::TaskProfile;

/// The profile by classes, and which classes are refused as recursions. Recursions are first unfolded by depth: if
/// every task of one then shares its class with others (the recursion is repeated to the same depth, as in a multigrid
/// cycle), its classes can be placed.
pub fn by_depth_where_bounded(profile: &TaskProfile) -> (Data<'_>, Vec<bool>) {
    let mut recursions = BTreeSet::new();
    let mut data = Data::new(profile, &recursions);
    let levels = chains_over_levels(&data);
    if !levels.is_empty() {
        let unfolded = Data::new(profile, &levels);
        if classes_have_several_tasks(&unfolded, &levels) {
            (data, recursions) = (unfolded, levels);
        }
    }
    let mut refused = recursive(&data);
    while refused.iter().any(|&refused| refused) {
        let (component, sizes) = data.classes.components();
        let before = recursions.len();
        for class in (0..refused.len()).filter(|&class| refused[class]) {
            let id = ClassId(class as u32);
            if sizes[component[class]] > 1 || data.classes.leads_to_itself(id) {
                recursions.insert(data.classes.template(id).to_owned());
            }
        }
        if recursions.len() == before {
            break;
        }
        let unfolded = Data::new(profile, &recursions);
        if !classes_have_several_tasks(&unfolded, &recursions) {
            break;
        }
        data = unfolded;
        refused = recursive(&data);
    }
    (data, refused)
}

/// Classes of recursions (some task creates two or more tasks of its own cycle, so that many tasks of a class are alive
/// at a time), and what such classes create.
fn recursive(data: &Data) -> Vec<bool> {
    let (component, _) = data.classes.components();
    let mut in_cycle = vec![0_u32; data.profile.tasks.len()];
    let mut bad = vec![false; component.len()];
    for (at, task) in data.profile.tasks.iter().enumerate() {
        let Some(creator) = task.creator else {
            continue;
        };
        let (from, to) = (data.class_of[creator as usize], data.class_of[at]);
        if component[from.index()] == component[to.index()] {
            in_cycle[creator as usize] += 1;
            if in_cycle[creator as usize] > 1 {
                bad[component[from.index()]] = true;
            }
        }
    }
    let mut refused: Vec<bool> = component.iter().map(|&at| bad[at]).collect();
    // A class created by a recursive class is as ambiguous as that class.
    loop {
        let before = refused.clone();
        for (from, _, to) in data.classes.transitions() {
            refused[to.index()] |= refused[from.index()];
        }
        if before == refused {
            return refused;
        }
    }
}

/// Whether the classes of these templates, unfolded by depth, have two tasks or more on average.
fn classes_have_several_tasks(data: &Data, templates: &BTreeSet<String>) -> bool {
    let (mut classes, mut tasks) = (0, 0);
    for (class, data_of) in data.class_data.iter().enumerate() {
        if templates.contains(data.classes.template(ClassId(class as u32))) {
            classes += 1;
            tasks += data_of.tasks;
        }
    }
    tasks >= 2 * classes
}

/// Data at neighbouring depths differs by this factor if depths are levels.
const LEVELS_DIFFER: u64 = 3; // halves: a factor of 1.5

/// Templates of chains over levels; see the module documentation.
fn chains_over_levels(data: &Data) -> BTreeSet<String> {
    const NONE: usize = usize::MAX;
    let tasks = &data.profile.tasks;
    let (component, sizes) = data.classes.components();
    let on_cycle: Vec<bool> = (0..component.len())
        .map(|at| sizes[component[at]] > 1 || data.classes.leads_to_itself(ClassId(at as u32)))
        .collect();
    // `entry` and `depth`: for a task on a cycle, the task with which the cycle was entered and the depth below it; for
    // any task, the nearest ancestor (or itself) on a cycle.
    let (mut entry, mut depth) = (vec![NONE; tasks.len()], vec![0; tasks.len()]);
    let mut owner = vec![NONE; tasks.len()];
    let mut sums: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    let mut branching = BTreeSet::new();
    for (at, task) in tasks.iter().enumerate() {
        let class = data.class_of[at].index();
        let creator = task.creator.map_or(NONE, |creator| creator as usize);
        if !on_cycle[class] {
            owner[at] = if creator == NONE {
                NONE
            } else {
                owner[creator]
            };
            continue;
        }
        owner[at] = at;
        let inside =
            creator != NONE && component[data.class_of[creator].index()] == component[class];
        if inside {
            (entry[at], depth[at]) = (entry[creator], depth[creator] + 1);
        } else {
            entry[at] = at;
        }
        let chain = sums.entry(entry[at]).or_default();
        if chain.len() == depth[at] {
            chain.push(0);
        } else {
            branching.insert(component[class]);
        }
    }
    for access in &data.profile.accesses {
        let owner = owner[access.task as usize];
        if owner != NONE {
            let bytes = data.profile.blocks[access.block as usize].bytes;
            if let Some(chain) = sums.get_mut(&entry[owner]) {
                chain[depth[owner]] += bytes;
            }
        }
    }
    let mut of_component: BTreeMap<usize, Vec<&Vec<u64>>> = BTreeMap::new();
    for (&entry, chain) in &sums {
        let component = component[data.class_of[entry].index()];
        of_component.entry(component).or_default().push(chain);
    }
    let over_levels = |chains: &[&Vec<u64>]| {
        let usual = chains[chains.len() - 1];
        let steps = usual.windows(2);
        let differing = steps
            .filter(|pair| {
                let (more, less) = (pair[0].max(pair[1]), pair[0].min(pair[1]));
                2 * more >= LEVELS_DIFFER * less && more > 0
            })
            .count();
        chains.len() >= 2
            && chains.iter().all(|chain| chain.len() == usual.len())
            // The first chain may do more.
            && chains.iter().skip(1).all(|chain| *chain == usual)
            && 2 * differing > usual.len() - 1
    };
    let found: BTreeSet<usize> = of_component
        .into_iter()
        .filter(|(component, chains)| !branching.contains(component) && over_levels(chains))
        .map(|(component, _)| component)
        .collect();
    (0..component.len())
        .filter(|&class| on_cycle[class] && found.contains(&component[class]))
        .map(|class| data.classes.template(ClassId(class as u32)).to_owned())
        .collect()
}
