//! Whether the plan fits the run, and which class a task has when the run is divided into another number of parts than
//! the profile was.
//!
//! The tasks that a task of one class creates from one template are a *family*: its parts. While the number of parts of
//! a class is not known, the tasks that its first task creates are held until that task ends (or waits). Then part `r`
//! of `n` has the class of part `r m / n` of the `m` in the plan, the rank scaled as in the paper's generalised paths,
//! so that neighbours stay together and every node gets its share. A class with as many parts as in the plan is not
//! held again. A task that creates fewer than in the plan where others create as many does so because of its data, and
//! its tasks are looked up by position.
//!
//! A plan does not fit if the parts are of other templates, fewer than the nodes, or their data is made otherwise:
//! other blocks, or blocks of one kind that grew by very different factors. The run then goes on without the plan. So
//! it does if the plan, in a run that is not divided as the profile was, does not do what it is for: a run of tasks
//! ([`WINDOW`]) most of which are not in the plan, or whose data is remote almost as often as by chance.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use numaloc_task_plan::TaskPlan;

/// Template (its number) and slots: what tasks of a family share.
pub type Kind = (u32, u32);

/// Blocks of one kind may have grown by factors that differ this much: parts are rarely of equal size.
const GROWTHS_DIFFER: f64 = 8.0;
/// Smaller blocks say nothing: counters and arguments.
const SMALL: u64 = 4096;

/// Tasks after which the guard looks at what the plan did.
pub const WINDOW: u64 = 128;
/// By chance, `1 - 1 / nodes` of the bytes are remote; with a plan that is worth it, at most this share of that.
const REMOTE: f64 = 0.6;

/// What is known of the number of parts of a class.
mod known {
    pub const NOTHING: u8 = 0;
    /// As many as in the plan, or as the data wants it: tasks are looked up by position.
    pub const BY_POSITION: u8 = 1;
    /// Another number.
    pub const SCALED: u8 = 2;
}

/// The families of a class.
struct Parts {
    known: AtomicU8,
    /// Classes of each family, by rank.
    families: BTreeMap<Kind, Vec<u32>>,
    /// The largest family.
    widest: Option<Kind>,
    /// Whether the largest family is on several nodes.
    spread: bool,
    /// Whether one task only is of this class, so that the plan has exactly what it created, and not what several did.
    single: bool,
    /// Blocks that a task of the class creates, if the plan spreads them over nodes; else 0.
    blocks: u32,
}

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
    /// By rank, with the number of tasks of each family.
    Ranks(BTreeMap<Kind, u32>),
}

/// See the module documentation.
pub struct Fit {
    nodes: usize,
    dropped: AtomicBool,
    classes: Vec<Option<Parts>>,
    /// Parts in the plan and in the run, once known: 32 bits each.
    parts: AtomicU64,
    sizes: Vec<Vec<Size>>,
    growths: Vec<Growth>,
    /// Whether the guard counts: the run is not divided as the profile was.
    watching: AtomicBool,
    window: Window,
}

/// What the guard has counted.
#[derive(Default)]
struct Window {
    tasks: AtomicU64,
    unplanned: AtomicU64,
    local_bytes: AtomicU64,
    remote_bytes: AtomicU64,
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
            dropped: AtomicBool::new(false),
            classes: (0..plan.classes.len())
                .zip(single(plan))
                .map(|(class, single)| Parts::of(plan, class, single, &number))
                .collect(),
            parts: AtomicU64::new(0),
            sizes,
            growths: (0..kinds.len()).map(growth).collect(),
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
        let mut counts: BTreeMap<Kind, u32> = BTreeMap::new();
        for kind in created {
            *counts.entry(kind).or_default() += 1;
        }
        let (run, in_plan) = parts.widest.map_or((0, 0), |widest| {
            let planned = parts.families.get(&widest).map_or(0, Vec::len);
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
                .filter(|(kind, _)| !parts.families.contains_key(kind));
            return match unknown.find(|&(_, &count)| count > 1) {
                Some((&(template, slots), count)) if first => Err(format!(
                    "a task creates {count} tasks of template {} with {slots} slots, the plan has others",
                    name(template)
                )),
                // It may be the last of its class: the end of a loop.
                _ => Ok(Settled::Positions),
            };
        }
        if first && run < in_plan && (run as usize) < self.nodes {
            return Err(format!(
                "the run has {run} parts, the plan {in_plan} on {} nodes",
                self.nodes
            ));
        }
        let agrees = (!parts.spread && parts.single)
            || ((parts.single || run >= in_plan || !unknown_yet) && self.agree(in_plan, run));
        if run == in_plan || (run < in_plan && !agrees) {
            return by_position();
        }
        parts.known.store(known::SCALED, Ordering::Relaxed);
        self.watch();
        Ok(Settled::Ranks(counts))
    }

    /// The class of part `rank` of `count`, created by a task of `class`.
    pub fn part(&self, class: u32, kind: Kind, rank: u32, count: u32) -> Option<u32> {
        let parts = self.classes.get(class as usize)?.as_ref()?;
        let to = parts.families.get(&kind)?;
        let at = u64::from(rank) * to.len() as u64 / u64::from(count.max(1));
        to.get(at as usize).copied()
    }

    /// A task is not in the plan, or a class is scaled: the guard counts from now on.
    #[inline]
    pub fn watch(&self) {
        if !self.watching.load(Ordering::Relaxed) {
            self.watching.store(true, Ordering::Relaxed);
        }
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
    pub fn count(&self, planned: bool, local: u64, remote: u64) -> Result<(), String> {
        let window = &self.window;
        window
            .unplanned
            .fetch_add(u64::from(!planned), Ordering::Relaxed);
        window.local_bytes.fetch_add(local, Ordering::Relaxed);
        window.remote_bytes.fetch_add(remote, Ordering::Relaxed);
        if !(window.tasks.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(WINDOW) {
            return Ok(());
        }
        // Other workers may add to either window meanwhile: a few tasks more or less.
        let unplanned = window.unplanned.swap(0, Ordering::Relaxed);
        let local = window.local_bytes.swap(0, Ordering::Relaxed) as f64;
        let remote = window.remote_bytes.swap(0, Ordering::Relaxed) as f64;
        if 2 * unplanned > WINDOW {
            return Err(format!("{unplanned} of {WINDOW} tasks are not in it"));
        }
        let share = remote / (local + remote).max(1.0);
        if share > REMOTE * (1.0 - 1.0 / self.nodes.max(1) as f64) {
            let percent = 100.0 * share;
            return Err(format!(
                "{percent:.0} % of the bytes of {WINDOW} tasks are remote with it"
            ));
        }
        Ok(())
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

impl Parts {
    /// The families of a class of the plan; `None`: its tasks have no parts.
    fn of(
        plan: &TaskPlan,
        class: usize,
        single: bool,
        number: &impl Fn(&str) -> u32,
    ) -> Option<Self> {
        let class = &plan.classes[class];
        let mut children: Vec<_> = class.children.iter().collect();
        children.sort_by_key(|child| child.position);
        let mut families: BTreeMap<Kind, Vec<u32>> = BTreeMap::new();
        for child in children {
            let kind = (number(&child.template), child.slots);
            families.entry(kind).or_default().push(child.class);
        }
        let blocks = if several(class.blocks.iter().map(|block| block.node)) {
            class.blocks.len() as u32
        } else {
            0
        };
        // Of equal ones the first, so that the choice is always the same.
        let widest = families.iter().rev().max_by_key(|(_, to)| to.len());
        let spread = widest
            .is_some_and(|(_, to)| several(to.iter().map(|&to| plan.classes[to as usize].node)));
        let widest = widest.map(|(&kind, _)| kind);
        let any = blocks > 0 || families.values().any(|to| to.len() > 1);
        any.then(|| Self {
            known: AtomicU8::new(known::NOTHING),
            widest,
            spread,
            single,
            families,
            blocks,
        })
    }

    fn blocks_fit(&self, blocks: u32) -> bool {
        self.blocks == 0 || self.blocks == blocks
    }
}

/// Whether one task only is of a class, by class: what one task created once, and the tasks that it created once.
fn single(plan: &TaskPlan) -> Vec<bool> {
    let mut ways = vec![0_u32; plan.classes.len()];
    for child in plan.classes.iter().flat_map(|class| &class.children) {
        ways[child.class as usize] += 1;
    }
    let mut single = vec![false; plan.classes.len()];
    let mut next: Vec<usize> = (0..plan.classes.len().min(1))
        .filter(|&root| ways[root] == 0)
        .collect();
    while let Some(class) = next.pop() {
        single[class] = true;
        let children = plan.classes[class].children.iter();
        next.extend(
            children
                .map(|child| child.class as usize)
                .filter(|&to| ways[to] == 1),
        );
    }
    single
}

/// Whether there are several nodes among these.
fn several(nodes: impl Iterator<Item = Option<u16>>) -> bool {
    let mut nodes = nodes.flatten();
    nodes
        .next()
        .is_some_and(|first| nodes.any(|other| other != first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_task_plan::{PlanBlock, PlanChild, PlanClass};

    fn number(name: &str) -> u32 {
        ["main", "part"]
            .iter()
            .position(|&known| known == name)
            .unwrap() as u32
    }

    /// A root with 16 parts on four nodes, each with a block.
    fn sixteen() -> Fit {
        let class = |template: &str, node| PlanClass {
            template: template.to_owned(),
            node,
            ..PlanClass::default()
        };
        let mut classes = vec![class("main", None)];
        for part in 0..16 {
            classes[0].children.push(PlanChild {
                position: part,
                template: "part".to_owned(),
                slots: 1,
                class: part + 1,
            });
            classes.push(PlanClass {
                blocks: vec![PlanBlock {
                    position: 0,
                    node: Some((part / 4) as u16),
                    bytes: 10_000,
                }],
                ..class("part", Some((part / 4) as u16))
            });
        }
        let plan = TaskPlan {
            nodes: 4,
            classes,
            ..TaskPlan::default()
        };
        Fit::new(&plan, number)
    }

    fn settle(fit: &Fit, kind: Kind, count: usize) -> Result<Settled, String> {
        let name = |_| "other".to_owned();
        fit.settle(0, true, std::iter::repeat_n(kind, count), 0, name)
    }

    #[test]
    fn the_rank_of_a_part_is_scaled() {
        let part = (number("part"), 1);
        for (count, expected) in [
            (64, [0, 16, 32, 48].map(|rank| (rank, 1 + rank / 4))),
            (4, [(0, 1), (1, 5), (2, 9), (3, 13)]),
            (20, [(0, 1), (5, 5), (10, 9), (19, 16)]),
        ] {
            let fit = sixteen();
            let Ok(Settled::Ranks(counts)) = settle(&fit, part, count as usize) else {
                panic!("{count} parts are not scaled");
            };
            assert_eq!(counts[&part], count);
            for (rank, class) in expected {
                assert_eq!(
                    fit.part(0, part, rank, count),
                    Some(class),
                    "{rank} of {count}"
                );
            }
        }
        let fit = sixteen();
        assert!(matches!(settle(&fit, part, 16), Ok(Settled::Positions)));
        assert!(matches!(fit.look_up(0), LookUp::Position), "not held again");
    }

    #[test]
    fn a_plan_of_other_parts_or_sizes_does_not_fit() {
        let part = (number("part"), 1);
        let why = settle(&sixteen(), part, 3).err().unwrap();
        assert_eq!(why, "the run has 3 parts, the plan 16 on 4 nodes");
        let why = settle(&sixteen(), (77, 1), 16).err().unwrap();
        assert!(why.contains("16 tasks of template other"), "{why}");
        let fit = sixteen();
        // A hundred times as large, more or less: another problem size.
        for (part, bytes) in [(1, 1_000_000), (2, 1_200_000), (3, 400_000)] {
            assert_eq!(fit.check_size(part, 0, bytes), Ok(()));
        }
        let why = fit.check_size(4, 0, 10_000_000).unwrap_err();
        assert!(why.contains("40.00 to 1000.00 times"), "{why}");
    }

    #[test]
    fn a_plan_that_places_little_or_badly_is_dropped() {
        let window = |planned, local, remote| {
            let fit = sixteen();
            (0..WINDOW).find_map(|_| fit.count(planned, local, remote).err())
        };
        assert_eq!(window(true, 60, 40), None);
        assert!(window(true, 30, 70).unwrap().contains("70 % of the bytes"));
        assert!(window(false, 1, 0).unwrap().contains("128 of 128 tasks"));
    }

    #[test]
    fn a_class_whose_data_wants_another_number_of_tasks_is_not_scaled() {
        let part = (number("part"), 1);
        let fit = sixteen();
        assert!(
            fit.agree(8, 8),
            "the first class has as many parts as planned"
        );
        assert!(matches!(settle(&fit, part, 12), Ok(Settled::Positions)));
    }
}
