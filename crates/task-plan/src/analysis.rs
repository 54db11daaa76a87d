//! The analysis: computes a plan from a profile, and the figures reported with it.

use numaloc_topology::Topology;

use crate::affinity::Affinity;
use crate::classes::ClassId;
use crate::compare::{Placement, ScheduleSimulation, SimulatedRun};
use crate::data::Data;
use crate::model::Stealing;
use crate::place::{Nodes, Placed, block_pattern, joint, place};
use crate::plan::{PlanBlock, PlanChild, PlanClass, TaskPlan};
use crate::profile::TaskProfile;
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

/// Whether placing this many of all tasks has an effect.
fn places_enough(placed: u64, all: u64) -> bool {
    placed as f64 >= MIN_PLACED_SHARE * all as f64
}

impl Analysis {
    /// A reason not to use the plan, if there is one.
    #[must_use]
    pub fn doubt(&self) -> Option<Doubt> {
        if !places_enough(self.placed_tasks, self.tasks) {
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
    pub plan: TaskPlan,
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
    profile: &TaskProfile,
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
    let study = Study {
        profile,
        data: &data,
        affinity: &affinity,
        is_refused: &is_refused,
        nodes: Nodes {
            count: ids.len(),
            excess: &excess,
        },
        simulation: ScheduleSimulation::new(&data, machine),
        hints_count: profile.nodes == ids.len(),
    };
    let no_plan = study.without_plan();
    let best = study.best(options, &no_plan);
    let best = best.ok_or(AnalyseError::NothingToPlace)?;
    let placed = &best.placed;
    let refused = refusals(&data, &is_refused);
    let placed_tasks = study.check(placed, &refused)?;
    let (hints_compared, hints_agreeing) = study.agreement(placed);
    let hint_traffic =
        (study.hints_count && hints_compared > 0).then(|| study.hint_traffic(&distance));
    let simulated_with_hints = study.with_hints();
    Ok(Analysis {
        traffic: traffic(&data, &affinity, &distance, &placed.tasks, &placed.blocks),
        plan: TaskPlan {
            stealing: best.stealing,
            ..plan_of(&data, machine, ids.len(), &placed.tasks, &placed.blocks)
        },
        distribution: best.distribution,
        simulated: best.simulated,
        simulated_without_plan: no_plan,
        simulated_with_hints,
        class_tasks: data.class_data.iter().map(|class| class.tasks).collect(),
        block_classes: data.block_classes.len(),
        tasks: profile.tasks.len() as u64,
        placed_tasks,
        refused,
        hint_traffic,
        hints_compared,
        hints_agreeing,
        load: best.placed.load,
        affinity,
    })
}

/// What all candidates for a plan are made from.
struct Study<'a> {
    profile: &'a TaskProfile,
    data: &'a Data<'a>,
    affinity: &'a Affinity,
    /// By class of tasks.
    is_refused: &'a [bool],
    nodes: Nodes<'a>,
    simulation: ScheduleSimulation<'a>,
    /// Whether hints are for as many nodes as the machine has.
    hints_count: bool,
}

/// A candidate for the plan.
struct Candidate {
    simulated: Scales,
    distribution: Distribution,
    stealing: Stealing,
    /// Whether it places enough tasks.
    has_effect: bool,
    placed: Placed,
}

impl Study<'_> {
    fn run(&self, placement: &Placement) -> Scales {
        Scales {
            as_profiled: self.simulation.run(placement, 1),
            larger: self.simulation.run(placement, LARGER),
        }
    }

    /// The node that the program asked for, by task number.
    fn hinted(&self, task: usize) -> Option<u16> {
        self.profile.tasks[task].hint.filter(|_| self.hints_count)
    }

    /// The node that the program asked for, by block number.
    fn block_hinted(&self, block: usize) -> Option<u16> {
        self.profile.blocks[block].hint.filter(|_| self.hints_count)
    }

    fn without_plan(&self) -> Scales {
        self.run(&Placement {
            task: &|_| None,
            block: &|_| None,
            stealing: Stealing::Any,
        })
    }

    /// The program's hints with the better stealing mode of the two, as in `tasks run` without a plan and in the
    /// paper's rows. `None`: the program has none for this number of nodes.
    fn with_hints(&self) -> Option<Scales> {
        let any = (0..self.profile.tasks.len()).any(|task| self.hinted(task).is_some())
            || (0..self.profile.blocks.len()).any(|block| self.block_hinted(block).is_some());
        let [anywhere, inside] = any.then(|| {
            [Stealing::Any, Stealing::Node].map(|stealing| {
                self.run(&Placement {
                    task: &|task| self.hinted(task),
                    block: &|block| self.block_hinted(block),
                    stealing,
                })
            })
        })?;
        Some(if inside.larger.seconds < anywhere.larger.seconds {
            inside
        } else {
            anywhere
        })
    }

    /// The fastest candidate of those that place enough tasks to have an effect, else of all. Of equal or nearly equal
    /// ones, the first is used.
    fn best(&self, options: Options, no_plan: &Scales) -> Option<Candidate> {
        let distributions: &[Distribution] = match options.distribution {
            Distribution::Best => &[Distribution::Block, Distribution::Joint],
            Distribution::Block => &[Distribution::Block],
            Distribution::Joint => &[Distribution::Joint],
        };
        let mut best: Option<Candidate> = None;
        for &distribution in distributions {
            let fixed = match distribution {
                Distribution::Joint => joint(self.data, self.affinity, self.nodes.count),
                _ => block_pattern(self.data, self.nodes.count),
            };
            for slack in [options.slack, LARGE_SLACK, f64::INFINITY] {
                let placed = place(
                    self.data,
                    self.affinity,
                    &self.nodes,
                    self.is_refused,
                    fixed.clone(),
                    slack.max(options.slack),
                );
                let has_effect = self.has_effect(&placed);
                for stealing in [Stealing::Surplus, Stealing::Any] {
                    let simulated = self.simulate(&placed, stealing);
                    let better = best.as_ref().is_none_or(|best| {
                        if has_effect != best.has_effect {
                            return has_effect;
                        }
                        let (now, before) =
                            (simulated.larger.seconds, best.simulated.larger.seconds);
                        now < CLEARLY_FASTER * before
                            || (before > no_plan.larger.seconds && now < before)
                    });
                    if better {
                        best = Some(Candidate {
                            simulated,
                            distribution,
                            stealing,
                            has_effect,
                            placed: placed.clone(),
                        });
                    }
                }
            }
        }
        best
    }

    /// What is placed goes where it is placed, the rest where the program's hints say.
    fn simulate(&self, placed: &Placed, stealing: Stealing) -> Scales {
        let data = self.data;
        self.run(&Placement {
            task: &|task| placed.tasks[data.class_of[task].index()].or(self.hinted(task)),
            block: &|block| placed.blocks[data.block_class_of[block]].or(self.block_hinted(block)),
            stealing,
        })
    }

    fn has_effect(&self, placed: &Placed) -> bool {
        let tasks = self.tasks_in(|class| placed.tasks[class].is_some());
        places_enough(tasks, self.profile.tasks.len() as u64)
    }

    /// Tasks in classes.
    fn tasks_in(&self, which: impl Fn(usize) -> bool) -> u64 {
        let counts = self.data.class_data.iter().enumerate();
        counts
            .filter(|&(class, _)| which(class))
            .map(|(_, data)| data.tasks)
            .sum()
    }

    /// Number of tasks that are placed.
    ///
    /// # Errors
    /// The program is a recursion, or nothing is placed.
    fn check(&self, placed: &Placed, refused: &[Refusal]) -> Result<u64, AnalyseError> {
        let all = self.profile.tasks.len() as u64;
        let tasks = self.tasks_in(|class| self.is_refused[class]);
        if let Some(worst) = refused.iter().max_by_key(|refusal| refusal.tasks)
            && tasks * 2 > all
        {
            let path = worst.path.clone();
            return Err(AnalyseError::Recursion { path, tasks, all });
        }
        match self.tasks_in(|class| placed.tasks[class].is_some()) {
            0 => Err(AnalyseError::NothingToPlace),
            tasks => Ok(tasks),
        }
    }

    /// Placed tasks with a hint, and how many of them are placed where the hint says.
    fn agreement(&self, placed: &Placed) -> (u64, u64) {
        let (mut compared, mut agreeing) = (0, 0);
        for (task, class) in self.profile.tasks.iter().zip(&self.data.class_of) {
            if let (true, Some(hint), Some(node)) =
                (self.hints_count, task.hint, placed.tasks[class.index()])
            {
                compared += 1;
                agreeing += u64::from(hint == node);
            }
        }
        (compared, agreeing)
    }

    /// Traffic with the program's hints.
    fn hint_traffic(&self, distance: &dyn Fn(u16, u16) -> f64) -> Traffic {
        let mut tasks = vec![None; self.data.class_data.len()];
        for (task, class) in self.profile.tasks.iter().zip(&self.data.class_of) {
            tasks[class.index()] = task.hint;
        }
        let blocks = self.data.block_classes.iter();
        let blocks: Vec<_> = blocks.map(|block| block.hint).collect();
        traffic(self.data, self.affinity, distance, &tasks, &blocks)
    }
}

fn plan_of(
    data: &Data,
    machine: &Topology,
    nodes: usize,
    tasks: &[Option<u16>],
    blocks: &[Option<u16>],
) -> TaskPlan {
    let mut plan = TaskPlan {
        machine: machine.name().to_owned(),
        nodes,
        stealing: Stealing::default(),
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
