//! The profiling run: records which task creates and holds what, and has [`crate::replay`] make experiments. Runs on
//! one thread; the files are described in `numaloc-task-plan`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use numaloc_task_plan::{
    Access, Block as BlockRow, ClassId, Classes, Profile, Task, write_profile,
};

use crate::abi::{Guid, mode};
use crate::block::{Block, New};
use crate::config::{Config, Experiments};
use crate::edt::{Edt, slot_state};
use crate::machine::Machine;
use crate::replay::{self, ClassState};
use crate::runtime::Runtime;
use crate::worker::{NO_NODE, Worker};

/// Maximum number of recorded satisfactions of one event.
const MOST_SATISFIERS: usize = 4096;

/// Number of a block that is in no profile.
const NO_ID: u64 = u64::MAX;

/// The profile being recorded and the state of the experiments.
pub struct Recorder {
    folder: PathBuf,
    pub(crate) experiments: Experiments,
    pub(crate) state: Mutex<State>,
}

/// The mutable part; the lock is never contended (one thread).
pub struct State {
    pub(crate) profile: Profile,
    classes: Option<Classes>,
    class_of: Vec<ClassId>,
    pub(crate) class_states: HashMap<ClassId, ClassState>,
    started: Option<Instant>,
    /// The task that ran last.
    last: Option<u32>,
    /// The tasks that satisfied an event.
    satisfiers: HashMap<Guid, Vec<u32>>,
    /// Tasks of a finish scope that have ended, by the scope's address.
    scopes: HashMap<usize, Vec<u32>>,
    /// The output event of a completed scope, about to be satisfied.
    scope_output: Guid,
    pub(crate) random: u64,
    /// Time spent on experiments so far.
    pub(crate) spent: Duration,
    /// Whether the exhausted budget was reported.
    pub(crate) budget_reported: bool,
    /// When progress was last shown.
    shown: Option<Instant>,
}

/// Interval between progress updates.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

impl Recorder {
    /// Prepares to write a profile to `folder`.
    ///
    /// # Errors
    /// A message, if the folder cannot be created.
    pub fn new(folder: &Path, config: &Config, machine: &Machine) -> Result<Self, String> {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
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
                profile: Profile {
                    machine: machine.topology().name().to_owned(),
                    nodes: machine.nodes(),
                    method: method.to_owned(),
                    ..Profile::default()
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
    pub(crate) fn show_progress(&self, state: &mut State) {
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

    /// Writes the profile.
    ///
    /// # Errors
    /// A message that names the file.
    pub fn write(&self, _: &Runtime) -> Result<(), String> {
        let state = self.state.lock().expect("no panic while locked");
        if state.shown.is_some() {
            eprint!("\r\x1b[K");
        }
        write_profile(&self.folder, &state.profile).map_err(|error| error.to_string())
    }
}

fn recorder(w: &Worker) -> &'static Recorder {
    let rt = w.rt;
    rt.recorder.as_deref().expect("called only while recording")
}

fn some_node(node: u16) -> Option<u16> {
    (node != NO_NODE).then_some(node)
}

/// Records a new task; `parent` is null for the first one.
pub fn task_created(w: &mut Worker, parent: *mut Edt, edt: &mut Edt) {
    let mut state = recorder(w).state.lock().expect("no panic while locked");
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

/// Records that a slot of a task was satisfied.
pub fn satisfied(w: &mut Worker, edt: &Edt) {
    let mut state = recorder(w).state.lock().expect("no panic while locked");
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

/// Records that an event is satisfied; `counts`: it may need several satisfactions to fire.
pub fn event_satisfied(w: &mut Worker, event: Guid, counts: bool) {
    let mut state = recorder(w).state.lock().expect("no panic while locked");
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

/// Records that a task of a finish scope has ended.
pub fn task_left_scope(w: &mut Worker, scope: usize, edt: &Edt) {
    let mut state = recorder(w).state.lock().expect("no panic while locked");
    state.scopes.entry(scope).or_default().push(edt.id as u32);
}

/// Records that a finish scope is complete: its output depends on all its tasks, and so does the enclosing scope.
pub fn scope_done(w: &mut Worker, scope: usize, parent: usize, output: Guid) {
    let mut state = recorder(w).state.lock().expect("no panic while locked");
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

/// Records a new block; `parent` is null for blocks of the runtime.
pub fn block_created(w: &mut Worker, parent: *mut Edt, block: &mut Block, new: &New, _: bool) {
    let mut state = recorder(w).state.lock().expect("no panic while locked");
    block.id = state.profile.blocks.len() as u64;
    let (creator, position) = if parent.is_null() {
        (None, 0)
    } else {
        // SAFETY: as above.
        unsafe { (Some((*parent).id as u32), (*parent).blocks - 1) }
    };
    state.profile.blocks.push(BlockRow {
        creator,
        position,
        bytes: new.size,
        hint: some_node(new.hinted),
    });
}

/// Before a task runs: records what it holds, and makes experiments if its class is due.
pub fn before_run(w: &mut Worker, edt: *mut Edt) {
    let recorder = recorder(w);
    {
        let mut state = recorder.state.lock().expect("no panic while locked");
        // SAFETY: about to run, so owned by this thread, its blocks held.
        unsafe {
            for slot in 0..(*edt).depc {
                let dep = &*Edt::slot(edt, slot);
                let held = dep.state.load(Ordering::Relaxed);
                let Ok(block) = crate::block::find(w, dep.guid) else {
                    continue;
                };
                if held & slot_state::HELD == 0 || (*block).id == NO_ID {
                    continue;
                }
                let mode = match held >> slot_state::MODE_SHIFT {
                    mode::CONST => "CONST",
                    mode::EW => "EW",
                    mode::RO => "RO",
                    _ => "RW",
                };
                state.profile.accesses.push(Access {
                    task: (*edt).id as u32,
                    slot,
                    block: (*block).id as u32,
                    mode: mode.to_owned(),
                });
            }
        }
    }
    if recorder.experiments.per_class > 0 {
        // SAFETY: about to run.
        let id = unsafe { (*edt).id } as usize;
        let class = recorder
            .state
            .lock()
            .expect("no panic while locked")
            .class_of[id];
        replay::experiment(w, recorder, edt, class);
    }
    let mut state = recorder.state.lock().expect("no panic while locked");
    state.started = Some(Instant::now());
}

/// Records the time of a task that has run.
pub fn after_run(w: &mut Worker, edt: *mut Edt) {
    let mut state = recorder(w).state.lock().expect("no panic while locked");
    if let Some(started) = state.started.take() {
        let seconds = started.elapsed().as_secs_f64();
        // SAFETY: has run, not released yet.
        let id = unsafe { (*edt).id } as usize;
        state.profile.tasks[id].seconds = seconds;
        state.last = Some(id as u32);
    }
}
