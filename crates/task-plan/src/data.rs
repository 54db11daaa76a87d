//! A profile by classes: the class of each task and block, what a class uses, and how long it takes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::classes::{ClassId, Classes};
use crate::model::SECONDS_PER_TASK;
use crate::noise::{median, rounded};
use crate::profile::TaskProfile;

/// A class of data blocks.
#[derive(Clone, Debug)]
pub struct BlockClass {
    /// Class of the creator; `None` for blocks of the runtime.
    pub creator: Option<ClassId>,
    /// Position among the creator's blocks.
    pub position: u32,
    /// Blocks in it.
    pub count: u64,
    /// Mean size.
    pub bytes: u64,
    /// The most frequent hint of its blocks.
    pub hint: Option<u16>,
}

/// A class of tasks, in addition to what [`Classes`] stores.
#[derive(Clone, Debug, Default)]
pub struct ClassData {
    /// Tasks in it.
    pub tasks: u64,
    /// Typical time of a task: the median over tasks of the same template, number of slots and bytes, because a class's
    /// own few tasks are too noisy for balancing.
    pub typical_seconds: f64,
    /// The time used for balancing: the model's time for the task's bytes, corrected by a power of eight if tasks of
    /// its template take at least ten times as long or short as tasks in general do for their bytes. Less noisy than a
    /// measurement.
    pub steady_seconds: f64,
    /// Number of uses by slot and block class.
    pub uses: BTreeMap<(u32, usize), u64>,
    /// Mean bytes by slot.
    pub slot_bytes: BTreeMap<u32, f64>,
}

/// A profile by classes.
pub struct Data<'a> {
    pub profile: &'a TaskProfile,
    pub classes: Classes,
    pub class_of: Vec<ClassId>,
    pub class_data: Vec<ClassData>,
    pub block_classes: Vec<BlockClass>,
    /// The class of each block.
    pub block_class_of: Vec<usize>,
}

impl<'a> Data<'a> {
    /// Groups a profile into classes, by depth in recursions through these templates. Classes of tasks and of blocks
    /// are numbered in the order of their paths, so that the result does not depend on the order of creation.
    pub fn new(profile: &'a TaskProfile, recursions: &BTreeSet<String>) -> Self {
        let (classes, class_of) = task_classes(profile, recursions);
        let (block_classes, block_class_of) = block_classes(profile, &class_of);
        let mut class_data = vec![ClassData::default(); classes.len()];
        let bytes_of_task = add_uses(profile, &class_of, &block_class_of, &mut class_data);
        add_times(profile, &class_of, &bytes_of_task, &mut class_data);
        steady(&classes, &mut class_data);
        Self {
            profile,
            classes,
            class_of,
            class_data,
            block_classes,
            block_class_of,
        }
    }
}

/// The classes of tasks, and the class of each task.
fn task_classes(profile: &TaskProfile, recursions: &BTreeSet<String>) -> (Classes, Vec<ClassId>) {
    let root = profile.tasks.first();
    let mut classes = Classes::by_depth(
        root.map_or("", |task| &task.template),
        root.map_or(0, |task| task.slots),
        recursions,
    );
    let mut class_of: Vec<ClassId> = Vec::with_capacity(profile.tasks.len());
    for task in &profile.tasks {
        class_of.push(match task.creator {
            None => ClassId::ROOT,
            Some(creator) => classes.child(
                class_of[creator as usize],
                task.position,
                &task.template,
                task.slots,
            ),
        });
    }
    let (classes, numbers) = classes.ordered();
    for class in &mut class_of {
        *class = numbers[class.index()];
    }
    (classes, class_of)
}

/// The classes of data blocks, and the class of each block.
fn block_classes(profile: &TaskProfile, class_of: &[ClassId]) -> (Vec<BlockClass>, Vec<usize>) {
    let mut block_classes: Vec<BlockClass> = Vec::new();
    let mut known: HashMap<(Option<ClassId>, u32), usize> = HashMap::new();
    let mut block_class_of = Vec::with_capacity(profile.blocks.len());
    let mut total_bytes: Vec<u64> = Vec::new();
    for block in &profile.blocks {
        let creator = block.creator.map(|creator| class_of[creator as usize]);
        let class = *known.entry((creator, block.position)).or_insert_with(|| {
            block_classes.push(BlockClass {
                creator,
                position: block.position,
                count: 0,
                bytes: 0,
                hint: block.hint,
            });
            total_bytes.push(0);
            block_classes.len() - 1
        });
        block_classes[class].count += 1;
        total_bytes[class] = total_bytes[class].saturating_add(block.bytes);
        block_class_of.push(class);
    }
    for (class, total) in block_classes.iter_mut().zip(&total_bytes) {
        class.bytes = total / class.count;
    }
    let mut order: Vec<usize> = (0..block_classes.len()).collect();
    order.sort_by_key(|&at| (block_classes[at].creator, block_classes[at].position));
    let mut number = vec![0; order.len()];
    for (at, &class) in order.iter().enumerate() {
        number[class] = at;
    }
    let block_classes: Vec<BlockClass> =
        order.iter().map(|&at| block_classes[at].clone()).collect();
    for class in &mut block_class_of {
        *class = number[*class];
    }
    (block_classes, block_class_of)
}

/// Adds uses and bytes by slot to the classes of tasks. Returns the bytes that each task uses.
fn add_uses(
    profile: &TaskProfile,
    class_of: &[ClassId],
    block_class_of: &[usize],
    class_data: &mut [ClassData],
) -> Vec<u64> {
    let mut bytes_of_task = vec![0_u64; profile.tasks.len()];
    let mut slot_counts: HashMap<(ClassId, u32), u64> = HashMap::new();
    for access in &profile.accesses {
        let class = class_of[access.task as usize];
        let bytes = profile.blocks[access.block as usize].bytes;
        bytes_of_task[access.task as usize] += bytes;
        let data = &mut class_data[class.index()];
        *data
            .uses
            .entry((access.slot, block_class_of[access.block as usize]))
            .or_default() += 1;
        *data.slot_bytes.entry(access.slot).or_default() += bytes as f64;
        *slot_counts.entry((class, access.slot)).or_default() += 1;
    }
    for ((class, slot), count) in slot_counts {
        if let Some(bytes) = class_data[class.index()].slot_bytes.get_mut(&slot) {
            *bytes /= count as f64;
        }
    }
    bytes_of_task
}

/// Adds the number and the typical time of tasks to their classes.
fn add_times(
    profile: &TaskProfile,
    class_of: &[ClassId],
    bytes_of_task: &[u64],
    class_data: &mut [ClassData],
) {
    let mut similar: HashMap<(&str, u32, u64), Vec<f64>> = HashMap::new();
    let key = |at: usize| {
        let task = &profile.tasks[at];
        (task.template.as_str(), task.slots, bytes_of_task[at])
    };
    for (at, task) in profile.tasks.iter().enumerate() {
        similar.entry(key(at)).or_default().push(task.seconds);
    }
    for times in similar.values_mut() {
        times.sort_by(f64::total_cmp);
    }
    for (at, class) in class_of.iter().enumerate() {
        let data = &mut class_data[class.index()];
        let times = &similar[&key(at)];
        data.typical_seconds += times[times.len() / 2];
        data.tasks += 1;
    }
    for data in class_data {
        data.typical_seconds /= data.tasks.max(1) as f64;
    }
}

impl Data<'_> {
    /// By class, whether its tasks are repeated by the program's loop: classes on a cycle and what they create, except
    /// for what ends a loop. `None` without a loop.
    ///
    /// A creation that occurs only once in three or more iterations belongs to the end of the loop: a check, a sum,
    /// output. A run with more iterations than the profile has no more of these.
    pub fn in_loop(&self) -> Option<Vec<bool>> {
        let mut in_loop = self.classes.repeating();
        if !in_loop.contains(&true) {
            return None;
        }
        let mut created: BTreeMap<(ClassId, ClassId), u64> = BTreeMap::new();
        for (task, &class) in self.profile.tasks.iter().zip(&self.class_of) {
            if let Some(creator) = task.creator {
                let from = self.class_of[creator as usize];
                *created.entry((from, class)).or_default() += 1;
            }
        }
        loop {
            let before = in_loop.clone();
            for (&(from, to), &count) in &created {
                let ends = count == 1 && self.class_data[from.index()].tasks >= 3;
                in_loop[to.index()] |= in_loop[from.index()] && !ends;
            }
            if before == in_loop {
                return Some(in_loop);
            }
        }
    }
}

/// Bytes that a core moves per second; used for balance only.
const BYTES_PER_SECOND: f64 = 5e9;

/// A kind's measured times count in the balance from this number of tasks and this share of all time on.
const MIN_TASKS: u64 = 16;
const MIN_TIME_SHARE: f64 = 0.1;

fn steady(classes: &Classes, class_data: &mut [ClassData]) {
    let model = |data: &ClassData| {
        SECONDS_PER_TASK + data.slot_bytes.values().sum::<f64>() / BYTES_PER_SECOND
    };
    let mut all = Vec::new();
    let mut by_kind: HashMap<(&str, u32), Vec<(f64, u64)>> = HashMap::new();
    let kind = |class: usize| {
        let class = ClassId(class as u32);
        (classes.template(class), classes.slots(class))
    };
    for (class, data) in class_data.iter().enumerate() {
        if data.tasks > 0 {
            let ratio = (data.typical_seconds / model(data), data.tasks);
            all.push(ratio);
            by_kind.entry(kind(class)).or_default().push(ratio);
        }
    }
    let mut seconds_of: HashMap<(&str, u32), f64> = HashMap::new();
    for (class, data) in class_data.iter().enumerate() {
        *seconds_of.entry(kind(class)).or_default() += data.typical_seconds * data.tasks as f64;
    }
    let whole: f64 = class_data
        .iter()
        .map(|data| data.typical_seconds * data.tasks as f64)
        .sum();
    let usual = median(all).unwrap_or(1.0).max(f64::MIN_POSITIVE);
    let factors: HashMap<(&str, u32), f64> = by_kind
        .into_iter()
        // Few or short tasks say more about noise than about balance.
        .filter(|(kind, ratios)| {
            let tasks: u64 = ratios.iter().map(|ratio| ratio.1).sum();
            tasks >= MIN_TASKS
                && seconds_of
                    .get(kind)
                    .is_some_and(|&s| s > MIN_TIME_SHARE * whole)
        })
        .filter_map(|(kind, ratios)| Some((kind, rounded(median(ratios)? / usual))))
        .collect();
    for (class, data) in class_data.iter_mut().enumerate() {
        let factor = factors.get(&kind(class)).copied().unwrap_or(1.0);
        data.steady_seconds = model(data) * factor;
    }
}
