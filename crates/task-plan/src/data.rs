//! A profile by classes: who is in which class, what a class uses, how long it takes.

use std::collections::{BTreeMap, HashMap};

use crate::classes::{ClassId, Classes};
use crate::profile::Profile;

/// A class of data blocks.
#[derive(Clone, Debug)]
pub struct BlockClass {
    /// Class of the creator; none: the runtime created it.
    pub creator: Option<ClassId>,
    /// Position among the creator's blocks.
    pub position: u32,
    /// Blocks in it.
    pub count: u64,
    /// Mean size.
    pub bytes: u64,
    /// The hint most of its blocks have.
    pub hint: Option<u16>,
}

/// A class of tasks, beside what [`Classes`] knows.
#[derive(Clone, Debug, Default)]
pub struct ClassData {
    /// Tasks in it.
    pub tasks: u64,
    /// Time of one, as tasks like it take (the median over tasks of the same template, number of slots and
    /// bytes: a class's own few tasks are too noisy to balance by).
    pub typical_seconds: f64,
    /// How often it used which block class through which slot.
    pub uses: BTreeMap<(u32, usize), u64>,
    /// Mean bytes by slot.
    pub slot_bytes: BTreeMap<u32, f64>,
}

/// A profile by classes.
pub struct Data<'a> {
    pub profile: &'a Profile,
    pub classes: Classes,
    pub class_of: Vec<ClassId>,
    pub class_data: Vec<ClassData>,
    pub block_classes: Vec<BlockClass>,
}

impl<'a> Data<'a> {
    /// Sorts a profile into classes.
    pub fn new(profile: &'a Profile) -> Self {
        let root = profile.tasks.first();
        let mut classes = Classes::new(
            root.map_or("", |task| &task.template),
            root.map_or(0, |task| task.slots),
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
            total_bytes[class] += block.bytes;
            block_class_of.push(class);
        }
        for (class, total) in block_classes.iter_mut().zip(&total_bytes) {
            class.bytes = total / class.count;
        }
        let mut class_data = vec![ClassData::default(); classes.len()];
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
        let mut alike: HashMap<(&str, u32, u64), Vec<f64>> = HashMap::new();
        let key = |at: usize| {
            let task = &profile.tasks[at];
            (task.template.as_str(), task.slots, bytes_of_task[at])
        };
        for (at, task) in profile.tasks.iter().enumerate() {
            alike.entry(key(at)).or_default().push(task.seconds);
        }
        for times in alike.values_mut() {
            times.sort_by(f64::total_cmp);
        }
        for (at, class) in class_of.iter().enumerate() {
            let data = &mut class_data[class.index()];
            let times = &alike[&key(at)];
            data.typical_seconds += times[times.len() / 2];
            data.tasks += 1;
        }
        for data in &mut class_data {
            data.typical_seconds /= data.tasks.max(1) as f64;
        }
        Self {
            profile,
            classes,
            class_of,
            class_data,
            block_classes,
        }
    }
}
