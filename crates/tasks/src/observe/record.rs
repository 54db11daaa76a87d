//! The profiling run: records which task creates and holds what, and has [`super::replay`] make experiments. Runs on
//! one thread; the files are described in `numaloc-task-plan`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use numaloc_task_plan::{
    Access, Block as BlockRow, ClassId, Classes, Replay, Task, TaskProfile, write_profile,
};

use super::replay::{self, ClassState};
use crate::config::{Config, Experiments};
use crate::error::RunError;
use crate::guid::Guid;
use crate::machine::{Machine, NO_NODE};
use crate::objects::block::{Block, mode_name};
use crate::objects::blocks;
use crate::objects::task::Edt;
use crate::state::{Observer, Worker};

/// Maximum number of recorded satisfactions of one event.
const MOST_SATISFIERS: usize = 4096;

/// The profile being recorded and the state of the experiments.
pub struct Recorder {
    folder: PathBuf,
    experiments: Experiments,
    state: Mutex<State>,
}

/// The mutable part; the lock is never contended (one thread).
struct State {
    profile: TaskProfile,
    classes: Option<Classes>,
    class_of: Vec<ClassId>,
    class_states: HashMap<ClassId, ClassState>,
    started: Option<Instant>,
    /// The task that ran last.
    last: Option<u32>,
    /// The tasks that satisfied an event.
    satisfiers: HashMap<Guid, Vec<u32>>,
    /// Tasks of a finish scope that have ended, by the scope's address.
    scopes: HashMap<usize, Vec<u32>>,
    /// The output event of a completed scope, about to be satisfied.
    scope_output: Guid,
    random: u64,
    /// Time spent on experiments so far.
    spent: Duration,
    /// Whether the exhausted budget was reported.
    budget_reported: bool,
    /// When progress was last shown.
    shown: Option<Instant>,
}

/// Interval between progress updates.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

impl Recorder {
    /// Prepares to write a profile to `folder`.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn new(folder: &Path, config: &Config, machine: &Machine) -> Result<Self, RunError> {
        std::fs::create_dir_all(folder).map_err(|why| RunError::Folder {
            path: folder.to_owned(),
            why,
        })?;
        let method = if config.experiments.per_class == 0 {
            "none"
        } else if machine.bindable_nodes().is_some() {
            "relocate"
        } else {
            "evict"
        };
        Ok(Self {
            folder: folder.to_owned(),
            experiments: config.experiments,
            state: Mutex::new(State {
                profile: TaskProfile {
                    machine: machine.topology().name().to_owned(),
                    nodes: machine.nodes(),
                    method: method.to_owned(),
                    ..TaskProfile::default()
                },
                classes: None,
                class_of: Vec::new(),
                class_states: HashMap::new(),
                started: None,
                last: None,
                satisfiers: HashMap::new(),
                scopes: HashMap::new(),
                scope_output: Guid::NULL,
                random: config.seed | 1,
                spent: Duration::ZERO,
                budget_reported: false,
                shown: None,
            }),
        })
    }

    /// Shows progress after the experiments with a task, overwriting the previous progress line.
    fn show_progress(&self, state: &mut State) {
        let due = state
            .shown
            .is_none_or(|shown| shown.elapsed() >= PROGRESS_EVERY);
        if self.experiments.progress && due {
            state.shown = Some(Instant::now());
            eprint!(
                "\r\x1b[Knumaloc: {} tasks created, {} classes, {} replays, {:.1} of at most {} s of experiments",
                state.profile.tasks.len(),
                state.classes.as_ref().map_or(0, Classes::len),
                state.profile.replays.len(),
                state.spent.as_secs_f64(),
                self.experiments.budget_seconds
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while locked")
    }

    /// Makes experiments with a task that is about to run, if its class is due.
    fn experiment(&self, w: &mut Worker, edt: *mut Edt, class: ClassId) {
        let held = replay::blocks_of(w, edt);
        if held.is_empty() {
            return;
        }
        let started = Instant::now();
        // SAFETY: about to run.
        let id = unsafe { (*edt).id };
        let (due, random) = {
            let mut state = self.lock();
            if state.spent.as_secs() >= self.experiments.budget_seconds {
                if !std::mem::replace(&mut state.budget_reported, true) {
                    w.rt.report(&format!(
                        "the time limit of {} s for experiments is reached; unmeasured classes are estimated from bytes",
                        self.experiments.budget_seconds
                    ));
                }
                return;
            }
            let random = state.random;
            let state = state.class_states.entry(class).or_default();
            (state.due(self.experiments, &held), random)
        };
        let Some(due) = due else { return };
        let made = replay::experiment(w, self.experiments.design, edt, held, due, random);
        let mut state = self.lock();
        let state = &mut *state;
        state.random = made.random;
        state.spent += started.elapsed();
        state.class_states.entry(class).or_default().add(&made);
        let runs = made.runs.into_iter();
        state.profile.replays.extend(runs.map(|run| Replay {
            task: id as u32,
            far: run.far,
            seconds: run.seconds,
        }));
        if let Some(mark) = made.mark {
            state.profile.tasks[id as usize].mark = mark.to_owned();
        }
        self.show_progress(state);
    }
}

fn some_node(node: u16) -> Option<u16> {
    (node != NO_NODE).then_some(node)
}

impl State {
    /// The tasks that caused the current satisfaction: those that satisfied the event being delivered, else the current
    /// task, else the last one.
    fn causes(&self, w: &Worker) -> Vec<u32> {
        if !w.cause.is_null() {
            return self.satisfiers.get(&w.cause).cloned().unwrap_or_default();
        }
        if w.current.is_null() {
            return self.last.into_iter().collect();
        }
        // SAFETY: the current task is alive.
        vec![unsafe { (*w.current).id } as u32]
    }
}

impl Observer for Recorder {
    fn task_created(&self, w: &Worker, parent: *mut Edt, edt: &mut Edt) {
        let mut state = self.lock();
        let state = &mut *state;
        let template = w.rt.names.name(edt.name);
        edt.id = state.profile.tasks.len() as u64;
        let (creator, position) = if parent.is_null() {
            (None, 0)
        } else {
            // SAFETY: the current task is alive; its counter was advanced for this creation already.
            unsafe { (Some((*parent).id as u32), (*parent).children - 1) }
        };
        let class = match (creator, &mut state.classes) {
            (Some(creator), Some(classes)) => classes.child(
                state.class_of[creator as usize],
                position,
                &template,
                edt.depc,
            ),
            _ => {
                state.classes = Some(Classes::new(&template, edt.depc));
                ClassId::ROOT
            }
        };
        state.class_of.push(class);
        state.profile.tasks.push(Task {
            creator,
            position,
            template,
            slots: edt.depc,
            hint: some_node(edt.hinted),
            ..Task::default()
        });
    }

    fn slot_satisfied(&self, w: &Worker, edt: &Edt) {
        let mut state = self.lock();
        let task = edt.id as u32;
        let creator = state.profile.tasks[task as usize].creator;
        for after in state.causes(w) {
            let known =
                creator == Some(after) || state.profile.dependences.last() == Some(&(after, task));
            if !known && after != task {
                state.profile.dependences.push((after, task));
            }
        }
    }

    fn event_satisfied(&self, w: &Worker, event: Guid, counts: bool) {
        let mut state = self.lock();
        if state.scope_output == event && !event.is_null() {
            // Every task in the scope satisfied it; see `scope_done`.
            state.scope_output = Guid::NULL;
            return;
        }
        let causes = state.causes(w);
        let satisfiers = state.satisfiers.entry(event).or_default();
        if !counts {
            satisfiers.clear();
        }
        // A reduction is used many times: the latest participants are enough.
        if satisfiers.len() > MOST_SATISFIERS {
            satisfiers.drain(..MOST_SATISFIERS / 2);
        }
        satisfiers.extend(causes);
    }

    fn task_left_scope(&self, scope: usize, edt: &Edt) {
        let mut state = self.lock();
        state.scopes.entry(scope).or_default().push(edt.id as u32);
    }

    /// The scope's output depends on all its tasks, and so does the enclosing scope.
    fn scope_done(&self, scope: usize, parent: usize, output: Guid) {
        let mut state = self.lock();
        let members = state.scopes.remove(&scope).unwrap_or_default();
        if parent != 0 {
            state
                .scopes
                .entry(parent)
                .or_default()
                .extend_from_slice(&members);
        }
        if !output.is_null() {
            state.scope_output = output;
            state.satisfiers.insert(output, members);
        }
    }

    fn block_created(&self, parent: *mut Edt, block: &mut Block, hinted: u16) {
        let mut state = self.lock();
        block.id = state.profile.blocks.len() as u64;
        let (creator, position) = if parent.is_null() {
            (None, 0)
        } else {
            // SAFETY: the current task is alive; its counter was advanced for this creation already.
            unsafe { (Some((*parent).id as u32), (*parent).blocks - 1) }
        };
        state.profile.blocks.push(BlockRow {
            creator,
            position,
            bytes: block.size,
            hint: some_node(hinted),
        });
    }

    /// Records what the task holds, and makes experiments if its class is due.
    fn before_run(&self, w: &mut Worker, edt: *mut Edt) {
        // SAFETY: about to run, so alive and owned by this thread.
        let id = unsafe { (*edt).id } as usize;
        let class = {
            let mut state = self.lock();
            blocks::for_each_held(w, edt, |slot, block, mode| {
                // SAFETY: held, so alive.
                let block = unsafe { (*block).id };
                state.profile.accesses.push(Access {
                    task: id as u32,
                    slot,
                    block: block as u32,
                    mode: mode_name(mode).to_owned(),
                });
            });
            state.class_of[id]
        };
        if self.experiments.per_class > 0 {
            self.experiment(w, edt, class);
        }
        self.lock().started = Some(Instant::now());
    }

    fn after_run(&self, edt: &Edt) {
        let mut state = self.lock();
        if let Some(started) = state.started.take() {
            let seconds = started.elapsed().as_secs_f64();
            let id = edt.id as usize;
            state.profile.tasks[id].seconds = seconds;
            state.last = Some(id as u32);
        }
    }

    fn write(&self) -> Result<(), RunError> {
        let state = self.lock();
        if state.shown.is_some() {
            eprint!("\r\x1b[K");
        }
        Ok(write_profile(&self.folder, &state.profile)?)
    }
}
