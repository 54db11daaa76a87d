//! The analysis: computes a plan from a profile, and the figures reported with it.

use numaloc_topology::Topology;

use crate::affinity::Affinity;
use crate::classes::ClassId;
use crate::compare::{Placement, ScheduleSimulation, SimulatedRun};
use crate::data::Data;
use crate::place::{Nodes, Placed, block_pattern, kinds_of_lasting_blocks, place};
use crate::plan::{Plan, PlanBlock, PlanChild, PlanClass};
use crate::profile::Profile;
use crate::recursion::by_depth_where_bounded;
use crate::remote::{Traffic, traffic};

/// How lasting data blocks are distributed over the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// In blocks, in the order of their creators' paths: the paper's.
    Block,
    /// Together with the tasks, from the affinities: the paper's future work.
    Joint,
    /// The faster of the two when simulated on the tasks of the profile.
    Best,
}

/// Slack tried in addition to the configured one and to no limit: with parts of uneven size, no node can keep to a
/// small slack, and placing tasks with their data may be worth more.
const LARGE_SLACK: f64 = 0.5;

/// A later candidate replaces an earlier one only if it takes less than this share of its time.
const CLEARLY_FASTER: f64 = 0.98;

/// Factor for a second simulation with larger blocks. A profile is made with a smaller problem than the run; with
/// blocks enlarged by this factor, data and the fixed cost of a task have about the proportion of a real run.
pub const LARGER: u64 = 64;

/// Simulations of the profile's tasks, with blocks as large as in the profile and [`LARGER`] times as large.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scales {
    /// As in the profile.
    pub as_profiled: SimulatedRun,
    /// Blocks [`LARGER`] times as large.
    pub larger: SimulatedRun,
}

/// Why a plan should not be used.
#[derive(Clone, Debug, PartialEq)]
pub enum Doubt {
    /// On the tasks of the profile, the plan is simulated to be slower than no plan.
    Slower,
    /// The plan places so few tasks that it has almost no effect.
    PlacesFewTasks,
}

/// Times within this factor count as equal.
const TIE_FACTOR: f64 = 1.01;

/// A plan that places a smaller share of the tasks is doubted.
const MIN_PLACED_SHARE: f64 = 0.1;

impl Analysis {
    /// A reason not to use the plan, if there is one.
    #[must_use]
    pub fn doubt(&self) -> Option<Doubt> {
        if (self.placed_tasks as f64) < MIN_PLACED_SHARE * self.tasks as f64 {
            return Some(Doubt::PlacesFewTasks);
        }
        // Equal times are no reason.
        (self.simulated.larger.seconds > TIE_FACTOR * self.simulated_without_plan.larger.seconds)
            .then_some(Doubt::Slower)
    }
}

/// Options of the analysis.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Distribution of lasting data blocks.
    pub distribution: Distribution,
    /// How much a node's load may exceed the mean; 0.1 is a tenth. Larger values are tried, and used if they are
    /// faster.
    pub slack: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            distribution: Distribution::Block,
            slack: 0.1,
        }
    }
}

/// Classes without a node, because their path does not determine where their tasks belong.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// One of the classes.
    pub class: ClassId,
    /// Its path.
    pub path: String,
    /// Tasks in the classes.
    pub tasks: u64,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum AnalyseError {
    /// No tasks.
    #[error("the profile has no tasks")]
    Empty,
    /// Nothing can be placed, because the program is recursive.
    #[error(
        "the program is a recursion ({path}): {tasks} of {all} tasks are of classes that create two or more \
         tasks of their own cycle, so many of a class are alive at the same time on different data, and the \
         class does not say where they belong"
    )]
    Recursion {
        /// Path of a class.
        path: String,
        /// Tasks in such classes.
        tasks: u64,
        /// All tasks.
        all: u64,
    },
    /// No task uses a data block that can be placed.
    #[error("no task uses a data block that can be placed: nothing to decide")]
    NothingToPlace,
}

/// A plan and the figures reported with it.
#[derive(Debug)]
pub struct Analysis {
    /// The plan.
    pub plan: Plan,
    /// Affinities the plan is based on.
    pub affinity: Affinity,
    /// Tasks in the profile.
    pub tasks: u64,
    /// Tasks by class.
    pub class_tasks: Vec<u64>,
    /// Tasks whose class the plan places.
    pub placed_tasks: u64,
    /// Classes of data blocks.
    pub block_classes: usize,
    /// Refused classes.
    pub refused: Vec<Refusal>,
    /// Traffic of the plan on the profile.
    pub traffic: Traffic,
    /// Traffic with the program's hints; `None` if it gives no hints for this number of nodes.
    pub hint_traffic: Option<Traffic>,
    /// Tasks with a hint whose class the plan places.
    pub hints_compared: u64,
    /// Number of those that the plan places where the hint says.
    pub hints_agreeing: u64,
    /// The distribution of lasting data blocks used.
    pub distribution: Distribution,
    /// Simulation of the profile's tasks with the plan.
    pub simulated: Scales,
    /// The same without plan and hints.
    pub simulated_without_plan: Scales,
    /// The same with the program's hints, if it gives any for this number of nodes.
    pub simulated_with_hints: Option<Scales>,
    /// Load by node, in seconds of the cost model.
    pub load: Vec<f64>,
}

/// Computes a plan for a machine from a profile. Pure: the same input gives the same plan.
///
/// # Errors
/// [`AnalyseError`] if there is nothing to plan.
pub fn analyse(
    profile: &Profile,
    machine: &Topology,
    options: Options,
) -> Result<Analysis, AnalyseError> {
    if profile.tasks.is_empty() {
        return Err(AnalyseError::Empty);
    }
    let (data, is_refused) = by_depth_where_bounded(profile);
    let affinity = Affinity::new(&data);
    let ids = machine.nodes_with_pus();
    let distance = |a: u16, b: u16| machine.node_distance(ids[usize::from(a)], ids[usize::from(b)]);
    let excess = |a: u16, b: u16| (distance(a, b) / distance(a, a).max(1.0) - 1.0).max(0.0);
    let nodes = Nodes {
        count: ids.len(),
        excess: &excess,
    };
    let refused = refusals(&data, &is_refused);
    let simulation = ScheduleSimulation::new(&data, machine);
    let hints_count = profile.nodes == nodes.count;
    let hinted = |task: usize| profile.tasks[task].hint.filter(|_| hints_count);
    let block_hinted = |block: usize| profile.blocks[block].hint.filter(|_| hints_count);
    let run = |placement: &Placement| Scales {
        as_profiled: simulation.run(placement, 1),
        larger: simulation.run(placement, LARGER),
    };
    let no_plan = run(&Placement {
        task: &|_| None,
        block: &|_| None,
        steal_anywhere: true,
    });
    let any_hint = (0..profile.tasks.len()).any(|task| hinted(task).is_some())
        || (0..profile.blocks.len()).any(|block| block_hinted(block).is_some());
    // The better stealing mode of the two, as in `tasks run` without a plan and in the paper's rows.
    let with_hints = any_hint.then(|| {
        [true, false]
            .map(|steal_anywhere| {
                run(&Placement {
                    task: &hinted,
                    block: &block_hinted,
                    steal_anywhere,
                })
            })
            .into_iter()
            .reduce(|a, b| {
                if b.larger.seconds < a.larger.seconds {
                    b
                } else {
                    a
                }
            })
            .unwrap_or_default()
    });
    let distributions: &[Distribution] = match options.distribution {
        Distribution::Best => &[Distribution::Block, Distribution::Joint],
        Distribution::Block => &[Distribution::Block],
        Distribution::Joint => &[Distribution::Joint],
    };
    let mut best: Option<(Scales, Distribution, bool, Placed)> = None;
    for &distribution in distributions {
        let fixed = match distribution {
            Distribution::Joint => joint(&data, &affinity, nodes.count),
            _ => block_pattern(&data, nodes.count),
        };
        for slack in [options.slack, LARGE_SLACK, f64::INFINITY] {
            let placed = place(
                &data,
                &affinity,
                &nodes,
                &is_refused,
                fixed.clone(),
                slack.max(options.slack),
            );
            for steal_anywhere in [false, true] {
                let tried = run(&Placement {
                    task: &|task| placed.tasks[data.class_of[task].index()].or(hinted(task)),
                    block: &|block| {
                        placed.blocks[data.block_class_of[block]].or(block_hinted(block))
                    },
                    steal_anywhere,
                });
                // Of equal or nearly equal candidates, the first is used.
                let better = best.as_ref().is_none_or(|best| {
                    let (now, before) = (tried.larger.seconds, best.0.larger.seconds);
                    now < CLEARLY_FASTER * before
                        || (before > no_plan.larger.seconds && now < before)
                });
                if better {
                    best = Some((tried, distribution, steal_anywhere, placed.clone()));
                }
            }
        }
    }
    let Some((with_plan, distribution, steal_anywhere, placed)) = best else {
        return Err(AnalyseError::NothingToPlace);
    };
    let all = profile.tasks.len() as u64;
    let in_classes = |which: &dyn Fn(usize) -> bool| -> u64 {
        let counts = data.class_data.iter().enumerate();
        counts
            .filter(|&(class, _)| which(class))
            .map(|(_, data)| data.tasks)
            .sum()
    };
    let placed_tasks = in_classes(&|class| placed.tasks[class].is_some());
    let refused_tasks = in_classes(&|class| is_refused[class]);
    if let Some(worst) = refused.iter().max_by_key(|refusal| refusal.tasks)
        && refused_tasks * 2 > all
    {
        return Err(AnalyseError::Recursion {
            path: worst.path.clone(),
            tasks: refused_tasks,
            all,
        });
    }
    if placed_tasks == 0 {
        return Err(AnalyseError::NothingToPlace);
    }
    let (mut compared, mut agreeing) = (0, 0);
    for (task, class) in profile.tasks.iter().zip(&data.class_of) {
        if let (true, Some(hint), Some(node)) =
            (hints_count, task.hint, placed.tasks[class.index()])
        {
            compared += 1;
            agreeing += u64::from(hint == node);
        }
    }
    let hint_traffic = (hints_count && compared > 0).then(|| {
        let mut tasks = vec![None; data.class_data.len()];
        for (task, class) in profile.tasks.iter().zip(&data.class_of) {
            tasks[class.index()] = task.hint;
        }
        let blocks: Vec<_> = data.block_classes.iter().map(|block| block.hint).collect();
        traffic(&data, &affinity, &distance, &tasks, &blocks)
    });
    Ok(Analysis {
        traffic: traffic(&data, &affinity, &distance, &placed.tasks, &placed.blocks),
        plan: Plan {
            steal_anywhere,
            ..plan_of(&data, machine, nodes.count, &placed.tasks, &placed.blocks)
        },
        distribution,
        simulated: with_plan,
        simulated_without_plan: no_plan,
        simulated_with_hints: with_hints,
        class_tasks: data.class_data.iter().map(|class| class.tasks).collect(),
        block_classes: data.block_classes.len(),
        affinity,
        tasks: all,
        placed_tasks,
        refused,
        hint_traffic,
        hints_compared: compared,
        hints_agreeing: agreeing,
        load: placed.load,
    })
}

fn plan_of(
    data: &Data,
    machine: &Topology,
    nodes: usize,
    tasks: &[Option<u16>],
    blocks: &[Option<u16>],
) -> Plan {
    let mut plan = Plan {
        machine: machine.name().to_owned(),
        nodes,
        steal_anywhere: false,
        classes: (0..data.classes.len())
            .map(|at| {
                let class = ClassId(at as u32);
                PlanClass {
                    template: data.classes.template(class).to_owned(),
                    slots: data.classes.slots(class),
                    node: tasks[at],
                    path: data.classes.path(class),
                    ..PlanClass::default()
                }
            })
            .collect(),
    };
    for (from, letter, to) in data.classes.transitions() {
        plan.classes[from.index()].children.push(PlanChild {
            position: letter.position,
            template: letter.template.clone(),
            slots: letter.slots,
            class: to.0,
        });
    }
    for (block, &node) in data.block_classes.iter().zip(blocks) {
        if let Some(creator) = block.creator {
            plan.classes[creator.index()].blocks.push(PlanBlock {
                position: block.position,
                node,
                bytes: block.bytes,
            });
        }
    }
    plan
}

fn refusals(data: &Data, is_refused: &[bool]) -> Vec<Refusal> {
    (0..data.class_data.len())
        .filter(|&class| is_refused[class])
        .map(|class| Refusal {
            class: ClassId(class as u32),
            path: data.classes.path(ClassId(class as u32)),
            tasks: data.class_data[class].tasks,
        })
        .collect()
}

/// Places blocks by affinities: blocks used by the same tasks are merged, strongest connection first, as long as a
/// group stays within a node's share of the bytes; the groups then fill the nodes, largest first.
fn joint(data: &Data, affinity: &Affinity, nodes: usize) -> Vec<Option<u16>> {
    let mut ties: std::collections::BTreeMap<(usize, usize), f64> = Default::default();
    let lasting: Vec<usize> = kinds_of_lasting_blocks(data)
        .into_iter()
        .flatten()
        .collect();
    let is_lasting = |block: usize| lasting.contains(&block);
    let in_loop = data.in_loop();
    for (class, used) in data.class_data.iter().enumerate() {
        if in_loop.as_ref().is_some_and(|in_loop| !in_loop[class]) {
            continue;
        }
        let mine: Vec<(usize, f64)> = used
            .uses
            .iter()
            .filter(|((_, block), _)| is_lasting(*block))
            .map(|(&(slot, block), &count)| {
                let b = affinity.weight(class, slot).unwrap_or(0.0);
                (block, b * count as f64)
            })
            .collect();
        for (at, &(a, wa)) in mine.iter().enumerate() {
            for &(b, wb) in &mine[at + 1..] {
                if a != b {
                    *ties.entry((a.min(b), a.max(b))).or_default() += wa.min(wb);
                }
            }
        }
    }
    let bytes = |block: usize| data.block_classes[block].bytes as f64;
    let total: f64 = lasting.iter().map(|&block| bytes(block)).sum();
    let share = total / nodes as f64 * 1.05;
    let mut group: Vec<usize> = (0..data.block_classes.len()).collect();
    let mut weight: Vec<f64> = (0..group.len()).map(bytes).collect();
    let mut order: Vec<_> = ties.into_iter().collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    for ((a, b), _) in order {
        let (a, b) = (group[a], group[b]);
        if a != b && weight[a] + weight[b] <= share {
            weight[a] += weight[b];
            for member in &mut group {
                if *member == b {
                    *member = a;
                }
            }
        }
    }
    let mut groups: Vec<usize> = lasting.iter().map(|&block| group[block]).collect();
    groups.sort_unstable();
    groups.dedup();
    groups.sort_by(|&a, &b| weight[b].total_cmp(&weight[a]).then(a.cmp(&b)));
    let mut filled = vec![0.0; nodes];
    let mut blocks = vec![None; data.block_classes.len()];
    for part in groups {
        let node = (0..nodes)
            .min_by(|&a, &b| f64::total_cmp(&filled[a], &filled[b]).then(a.cmp(&b)))
            .unwrap_or(0);
        filled[node] += weight[part];
        for &block in lasting.iter().filter(|&&block| group[block] == part) {
            blocks[block] = Some(node as u16);
        }
    }
    blocks
}
