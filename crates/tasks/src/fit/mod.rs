//! Whether the plan fits the run, and which class a task has when the run is divided into another number of parts than
//! the profile was.
//!
//! The tasks that a task of one class creates from one template are a *family*: its parts. While the number of parts of
//! a class is not known, the tasks that its first task creates are held until that task ends (or waits). Then part `r`
//! of `n` has the class of part `r m / n` of the `m` in the plan, the rank scaled as in the paper's generalised paths,
//! so that neighbours stay together and every node gets its share. If that class has another number of slots, the
//! nearest one on the same node that has as many takes its place, because it creates the same tasks: parts at the edge
//! have fewer slots than others, and where all exchange data with all, slots grow with the parts. A class with as many
//! parts as in the plan is not held again. A task that creates fewer than in the plan where others create as many does
//! so because of its data, and its tasks are looked up by position.
//!
//! If ranks of one node do not follow each other, nodes say where the data of these very parts is; other parts are
//! spread in blocks. In a run that is divided otherwise, data decides: a task goes to most of its bytes.
//!
//! A plan does not fit if the parts are of other templates, if there are more of them than in a plan that has too few
//! for the nodes, or if their data is made otherwise: other blocks, or blocks of one kind that grew by very different
//! factors. The run then goes on without the plan. So it does if the plan, in a run that is not divided as the profile
//! was, does not do what it is for: a run of tasks ([`guard::WINDOW`]) most of which are not in the plan, whose data
//! is remote almost as often as by chance, or so little that it matters little where they run.

mod guard;
mod parts;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use numaloc_task_plan::TaskPlan;

use guard::Window;
use parts::{Kind, Part, Parts, known, single};

/// Blocks of one kind may have grown by factors that differ this much: parts are rarely of equal size.
const GROWTHS_DIFFER: f64 = 8.0;
/// Smaller blocks say nothing: counters and arguments.
const SMALL: u64 = 4096;

/// A class of blocks, for the check of sizes.
#[derive(Clone, Copy, Default)]
struct Size {
    /// Bytes in the profile; 0: not checked.
    bytes: u64,
    /// Kind: same template of the creator, same position.
    kind: u32,
}

/// Smallest and largest growth of the blocks of a kind, as bits of a number.
struct Growth {
    least: AtomicU64,
    most: AtomicU64,
}

/// How a task that was just created is looked up in the plan.
pub enum LookUp {
    /// By position, at once.
    Position,
    /// By rank, when its creator has ended.
    Rank,
}

/// How the tasks that one task created are looked up.
pub enum Settled {
    /// By position.
    Positions,
    /// By rank, with the number of tasks of each family, by template.
    Ranks(BTreeMap<u32, u32>),
}

/// See the module documentation.
pub struct Fit {
    /// Nodes that the plan uses.
    nodes: usize,
    /// Nodes that it could use.
    all_nodes: usize,
    dropped: AtomicBool,
    classes: Vec<Option<Parts>>,
    /// Parts in the plan and in the run, once known: 32 bits each.
    parts: AtomicU64,
    sizes: Vec<Vec<Size>>,
    growths: Vec<Growth>,
    /// Whether the run has other parts than the profile.
    divided: AtomicBool,
    /// Whether the guard counts: the run is not divided as the profile was.
    watching: AtomicBool,
    window: Window,
}

impl Fit {
    /// Prepares the checks of a plan. `number` gives the number of a template's name.
    pub fn new(plan: &TaskPlan, number: impl Fn(&str) -> u32) -> Self {
        let mut kinds: BTreeMap<(&str, u32), u32> = BTreeMap::new();
        let mut sizes = Vec::new();
        for class in &plan.classes {
            let mut of_class = Vec::new();
            for block in &class.blocks {
                let next = kinds.len() as u32;
                let kind = *kinds
                    .entry((&class.template, block.position))
                    .or_insert(next);
                let at = block.position as usize;
                if of_class.len() <= at {
                    of_class.resize(at + 1, Size::default());
                }
                let bytes = if block.bytes < SMALL { 0 } else { block.bytes };
                of_class[at] = Size { bytes, kind };
            }
            sizes.push(of_class);
        }
        let growth = |_| Growth {
            least: AtomicU64::new(f64::INFINITY.to_bits()),
            most: AtomicU64::new(0),
        };
        Self {
            nodes: plan
                .classes
                .iter()
                .filter_map(|class| class.node)
                .collect::<std::collections::BTreeSet<_>>()
                .len(),
            all_nodes: plan.nodes,
            dropped: AtomicBool::new(false),
            classes: (0..plan.classes.len())
                .zip(single(plan))
                .map(|(class, single)| Parts::of(plan, class, single, &number))
                .collect(),
            parts: AtomicU64::new(0),
            sizes,
            growths: (0..kinds.len()).map(growth).collect(),
            divided: AtomicBool::new(false),
            watching: AtomicBool::new(false),
            window: Window::default(),
        }
    }

    /// Whether the run goes on without the plan.
    #[inline]
    pub fn dropped(&self) -> bool {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Drops the plan. True the first time.
    pub fn drop_plan(&self) -> bool {
        !self.dropped.swap(true, Ordering::Relaxed)
    }

    /// How the tasks that a task of `class` creates are looked up.
    #[inline]
    pub fn look_up(&self, class: u32) -> LookUp {
        match self.classes.get(class as usize) {
            Some(Some(parts)) if parts.known.load(Ordering::Relaxed) != known::BY_POSITION => {
                LookUp::Rank
            }
            _ => LookUp::Position,
        }
    }

    /// A task of `class` has created these tasks and this number of blocks: decides how they are looked up. `ended`: it
    /// creates no more of them.
    ///
    /// # Errors
    /// The plan does not fit: why.
    pub fn settle(
        &self,
        class: u32,
        ended: bool,
        created: impl Iterator<Item = Kind>,
        blocks: u32,
        name: impl Fn(u32) -> String,
    ) -> Result<Settled, String> {
        let Some(Some(parts)) = self.classes.get(class as usize) else {
            return Ok(Settled::Positions);
        };
        let by_position = || {
            parts.known.store(known::BY_POSITION, Ordering::Relaxed);
            Ok(Settled::Positions)
        };
        if !ended {
            return by_position();
        }
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        // Whether all of the largest family have as many slots as some in the plan.
        let mut same_slots = true;
        for (template, slots) in created {
            *counts.entry(template).or_default() += 1;
            same_slots &= parts.widest != Some(template) || parts.has(template, slots);
        }
        let (run, in_plan) = parts.widest.map_or((0, 0), |widest| {
            let planned = parts.families.get(&widest);
            let planned = planned.map_or(0, |family| family.members.len());
            (counts.get(&widest).copied().unwrap_or(0), planned as u32)
        });
        let unknown_yet = self.parts.load(Ordering::Relaxed) == 0;
        let first = parts.spread && parts.single && unknown_yet;
        // The first task creates the data of all parts, or none: another one, that of its part.
        if class == 0 && !parts.blocks_fit(blocks) {
            return Err(format!(
                "the first task creates {blocks} data blocks, in the plan {}",
                parts.blocks
            ));
        }
        if run == 0 {
            let mut unknown = counts
                .iter()
                .filter(|(template, _)| !parts.families.contains_key(template));
            return match unknown.find(|&(_, &count)| count > 1) {
                Some((&template, count)) if first => Err(format!(
                    "a task creates {count} tasks of template {}, the plan has others",
                    name(template)
                )),
                // It may be the last of its class: the end of a loop.
                _ => Ok(Settled::Positions),
            };
        }
        if first && run > in_plan && (in_plan as usize) < self.all_nodes {
            return Err(format!(
                "the run has {run} parts, the plan {in_plan}, for {} nodes",
                self.all_nodes
            ));
        }
        let agrees = (!parts.spread && parts.single)
            || ((parts.single || run >= in_plan || !unknown_yet) && self.agree(in_plan, run));
        if (run == in_plan && same_slots) || (run < in_plan && !agrees) {
            return by_position();
        }
        parts.known.store(known::SCALED, Ordering::Relaxed);
        self.divided.store(true, Ordering::Relaxed);
        self.watch();
        Ok(Settled::Ranks(counts))
    }

    /// Part `rank` of `count`, created by a task of `class`; `None`: the plan has no such part.
    pub fn part(&self, class: u32, kind: Kind, rank: u32, count: u32) -> Option<Part> {
        let parts = self.classes.get(class as usize)?.as_ref()?;
        parts.part(kind, rank, count)
    }

    /// A task is not in the plan, or a class is scaled: the guard counts from now on.
    #[inline]
    pub fn watch(&self) {
        if !self.watching.load(Ordering::Relaxed) {
            self.watching.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the run has other parts than the profile: where data is then says more of a task than its class.
    #[inline]
    pub fn divided(&self) -> bool {
        self.divided.load(Ordering::Relaxed)
    }

    /// Whether the guard counts tasks.
    #[inline]
    pub fn watching(&self) -> bool {
        self.watching.load(Ordering::Relaxed) && !self.dropped()
    }

    /// Counts a task that is about to run, and its bytes.
    ///
    /// # Errors
    /// The plan does not do what it is for: why.
    pub fn count(
        &self,
        planned: bool,
        local: u64,
        remote: u64,
        longer: impl Fn(f64) -> f64,
    ) -> Result<(), String> {
        self.window
            .count(self.nodes, planned, local, remote, longer)
    }

    /// Whether these numbers of parts agree with what the first class said; the first one says it.
    fn agree(&self, planned: u32, run: u32) -> bool {
        let new = u64::from(planned) << 32 | u64::from(run);
        let first = self
            .parts
            .compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
        first.map_or_else(
            |first| (first >> 32) * u64::from(run) == (first & 0xffff_ffff) * u64::from(planned),
            |_| true,
        )
    }

    /// Checks the size of a block that a task of `class` creates at `position`.
    ///
    /// # Errors
    /// The plan does not fit: why.
    pub fn check_size(&self, class: u32, position: u32, bytes: u64) -> Result<(), String> {
        let of_class = self.sizes.get(class as usize);
        let Some(size) = of_class.and_then(|sizes| sizes.get(position as usize)) else {
            return Ok(());
        };
        if size.bytes == 0 || bytes == 0 {
            return Ok(());
        }
        let growth = bytes as f64 / size.bytes as f64;
        let kind = &self.growths[size.kind as usize];
        // The bits of positive numbers are ordered as the numbers are.
        let new = growth.to_bits();
        let least = f64::from_bits(kind.least.fetch_min(new, Ordering::Relaxed).min(new));
        let most = f64::from_bits(kind.most.fetch_max(new, Ordering::Relaxed).max(new));
        if most <= GROWTHS_DIFFER * least {
            return Ok(());
        }
        Err(format!(
            "data blocks of one kind are {least:.2} to {most:.2} times as large as in the profile"
        ))
    }
}
