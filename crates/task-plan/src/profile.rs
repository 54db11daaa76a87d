//! What a profiling run saw. A folder of CSV files, each with a header line:
//!
//! | file | one row is | columns |
//! |---|---|---|
//! | `run.csv` | a fact | `key`, `value`: `version` (1), `machine`, `nodes`, `method` (`relocate`, `evict` or `none`) |
//! | `tasks.csv` | a task | `task` (order of creation, 0 the root), `creator` (empty for the root), `position` (among the creator's creations), `template`, `slots`, `hint` (node the program asked for; never used to decide), `seconds` (the one real run), `mark` (why it was not replayed) |
//! | `blocks.csv` | a data block | `block`, `creator` (task; empty: the runtime), `position`, `bytes`, `hint` |
//! | `accesses.csv` | a slot through which a task held a block | `task`, `slot`, `block`, `mode` (`RO`, `RW`, `EW`, `CONST`) |
//! | `dependences.csv` | a task that satisfied a slot of another (its creator aside); may be missing in older profiles | `after` (who satisfied), `task` |
//! | `replays.csv` | an experiment | `task`, `far` (slots whose block was far, joined by `;`), `seconds` |

use std::path::Path;

use numaloc_files::FolderKind;

use crate::files::{FileError, Row, Table, check_version, shown, write};

/// A task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Task {
    /// Number of its creator; `None` for the root.
    pub creator: Option<u32>,
    /// Position among the creator's creations.
    pub position: u32,
    /// Template.
    pub template: String,
    /// Slots.
    pub slots: u32,
    /// The node the program asked for.
    pub hint: Option<u16>,
    /// Time of the real run.
    pub seconds: f64,
    /// Why it was not replayed; empty if it was, or was not selected.
    pub mark: String,
}

/// A data block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// Number of the task that created it; `None` for blocks of the runtime.
    pub creator: Option<u32>,
    /// Position among the blocks its creator created.
    pub position: u32,
    /// Size.
    pub bytes: u64,
    /// The node the program asked for.
    pub hint: Option<u16>,
}

/// A slot through which a task held a block.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// The task, by number.
    pub task: u32,
    /// The slot.
    pub slot: u32,
    /// The block, by number.
    pub block: u32,
    /// How it was held.
    pub mode: String,
}

/// An experiment: the task was run once more with the blocks in `far` far and all others near, then undone.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// The task, by number.
    pub task: u32,
    /// Slots whose block was far.
    pub far: Vec<u32>,
    /// Time of this run.
    pub seconds: f64,
}

/// The data recorded by a profiling run; see the module documentation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskProfile {
    /// Name of the machine, real or described.
    pub machine: String,
    /// Number of nodes; hints are below this.
    pub nodes: usize,
    /// How far memory was produced: `relocate` (moved to another node), `evict` (out of the caches, if there is no
    /// other node), `none`.
    pub method: String,
    /// Tasks in the order of creation.
    pub tasks: Vec<Task>,
    /// Blocks in the order of creation.
    pub blocks: Vec<Block>,
    /// Blocks held, by task.
    pub accesses: Vec<Access>,
    /// Which task satisfied a slot of which, as (earlier task, later task); creators are not repeated.
    pub dependences: Vec<(u32, u32)>,
    /// Experiments, in the order they were made.
    pub replays: Vec<Replay>,
}

const RUN: [&str; 2] = ["key", "value"];
const TASKS: [&str; 8] = [
    "task", "creator", "position", "template", "slots", "hint", "seconds", "mark",
];
const BLOCKS: [&str; 5] = ["block", "creator", "position", "bytes", "hint"];
const ACCESSES: [&str; 4] = ["task", "slot", "block", "mode"];
const DEPENDENCES: [&str; 2] = ["after", "task"];
const REPLAYS: [&str; 3] = ["task", "far", "seconds"];

/// Profile folders as outputs.
pub const PROFILE_FOLDER: FolderKind = FolderKind {
    name: "numaloc task profile",
    mark: "run.csv",
    owns: |name| {
        [
            "tasks.csv",
            "blocks.csv",
            "accesses.csv",
            "replays.csv",
            "dependences.csv",
            "run.csv",
        ]
        .iter()
        .any(|ours| name == Path::new(ours))
    },
};

/// Writes a profile.
///
/// # Errors
/// [`FileError`] names the file.
pub fn write_profile(folder: &Path, profile: &TaskProfile) -> Result<(), FileError> {
    write_created(folder, profile)?;
    write(
        folder,
        "accesses.csv",
        &ACCESSES,
        profile.accesses.iter().map(|access| {
            vec![
                access.task.to_string(),
                access.slot.to_string(),
                access.block.to_string(),
                access.mode.clone(),
            ]
        }),
    )?;
    write(
        folder,
        "dependences.csv",
        &DEPENDENCES,
        profile
            .dependences
            .iter()
            .map(|(after, task)| vec![after.to_string(), task.to_string()]),
    )?;
    write(
        folder,
        "replays.csv",
        &REPLAYS,
        profile.replays.iter().map(|replay| {
            let far: Vec<String> = replay.far.iter().map(u32::to_string).collect();
            vec![
                replay.task.to_string(),
                far.join(";"),
                format!("{:.9}", replay.seconds),
            ]
        }),
    )?;
    let facts = [
        ("version", "1".to_owned()),
        ("machine", profile.machine.clone()),
        ("nodes", profile.nodes.to_string()),
        ("method", profile.method.clone()),
    ];
    // Written last: a folder with this file is complete.
    write(
        folder,
        "run.csv",
        &RUN,
        facts
            .iter()
            .map(|(key, value)| vec![(*key).to_owned(), value.clone()]),
    )
}

/// Writes what the program created: tasks and data blocks.
fn write_created(folder: &Path, profile: &TaskProfile) -> Result<(), FileError> {
    write(
        folder,
        "tasks.csv",
        &TASKS,
        profile.tasks.iter().enumerate().map(|(at, task)| {
            vec![
                at.to_string(),
                shown(task.creator),
                task.position.to_string(),
                task.template.clone(),
                task.slots.to_string(),
                shown(task.hint),
                format!("{:.9}", task.seconds),
                task.mark.clone(),
            ]
        }),
    )?;
    write(
        folder,
        "blocks.csv",
        &BLOCKS,
        profile.blocks.iter().enumerate().map(|(at, block)| {
            vec![
                at.to_string(),
                shown(block.creator),
                block.position.to_string(),
                block.bytes.to_string(),
                shown(block.hint),
            ]
        }),
    )
}

/// A duration.
fn seconds(row: &Row) -> Result<f64, FileError> {
    let seconds: f64 = row.value("seconds", "seconds")?;
    if seconds.is_finite() && seconds >= 0.0 {
        return Ok(seconds);
    }
    Err(row.wrong(format!("{seconds} seconds"), "a finite time of at least 0"))
}

/// Largest data block: 256 TiB, the address space of a program.
const MOST_BYTES: u64 = 1 << 48;

/// The size of a data block.
fn bytes(row: &Row) -> Result<u64, FileError> {
    let bytes = row.value("bytes", "a number of bytes")?;
    if bytes <= MOST_BYTES {
        return Ok(bytes);
    }
    Err(row.wrong(
        format!("a block of {bytes} bytes"),
        &format!("at most {MOST_BYTES}"),
    ))
}

/// The node that the program's hint asked for, one of `nodes`.
fn hint(row: &Row, nodes: usize) -> Result<Option<u16>, FileError> {
    let hint: Option<u16> = row.optional("hint", "a node or nothing")?;
    match hint {
        Some(node) if usize::from(node) >= nodes => {
            Err(row.wrong(format!("hint {node}"), &format!("a node below {nodes}")))
        }
        _ => Ok(hint),
    }
}

/// Reads a profile, and checks that numbers refer to existing entries.
///
/// # Errors
/// [`FileError`] names the file and line, what was found and what was expected.
pub fn read_profile(folder: &Path) -> Result<TaskProfile, FileError> {
    let mut profile = TaskProfile::default();
    let table = Table::read(folder, "run.csv", &RUN)?;
    let mut version = None;
    for row in table.rows(&RUN) {
        match row.text("key") {
            "version" => version = Some(row.value::<u32>("value", "a version number")?),
            "machine" => profile.machine = row.text("value").to_owned(),
            "nodes" => profile.nodes = row.value("value", "a number of nodes")?,
            "method" => profile.method = row.text("value").to_owned(),
            _ => {}
        }
    }
    check_version(folder, "run.csv", version)?;
    read_tasks(folder, &mut profile)?;
    read_blocks(folder, &mut profile)?;
    read_accesses(folder, &mut profile)?;
    // Older profiles have no such file.
    if folder.join("dependences.csv").exists() {
        read_dependences(folder, &mut profile)?;
    }
    read_replays(folder, &mut profile)?;
    Ok(profile)
}

fn read_tasks(folder: &Path, profile: &mut TaskProfile) -> Result<(), FileError> {
    let table = Table::read(folder, "tasks.csv", &TASKS)?;
    for (at, row) in table.rows(&TASKS).enumerate() {
        if row.value::<usize>("task", "a task number")? != at {
            return Err(row.wrong(format!("task {}", row.text("task")), &at.to_string()));
        }
        let creator: Option<u32> = row.optional("creator", "a task number or nothing")?;
        let known = match creator {
            Some(creator) => (creator as usize) < at,
            None => at == 0,
        };
        if !known {
            return Err(row.wrong(
                format!("creator {:?} of task {at}", row.text("creator")),
                "an earlier task (nothing for task 0 only)",
            ));
        }
        profile.tasks.push(Task {
            creator,
            position: row.value("position", "a number")?,
            template: row.text("template").to_owned(),
            slots: row.value("slots", "a number")?,
            hint: hint(&row, profile.nodes)?,
            seconds: seconds(&row)?,
            mark: row.text("mark").to_owned(),
        });
    }
    Ok(())
}

fn read_blocks(folder: &Path, profile: &mut TaskProfile) -> Result<(), FileError> {
    let tasks = profile.tasks.len();
    let table = Table::read(folder, "blocks.csv", &BLOCKS)?;
    for row in table.rows(&BLOCKS) {
        let creator: Option<u32> = row.optional("creator", "a task number or nothing")?;
        if creator.is_some_and(|creator| creator as usize >= tasks) {
            return Err(row.wrong(
                format!("creator {}", row.text("creator")),
                &format!("a task below {tasks}"),
            ));
        }
        profile.blocks.push(Block {
            creator,
            position: row.value("position", "a number")?,
            bytes: bytes(&row)?,
            hint: hint(&row, profile.nodes)?,
        });
    }
    Ok(())
}

fn read_accesses(folder: &Path, profile: &mut TaskProfile) -> Result<(), FileError> {
    let tasks = profile.tasks.len();
    let blocks = profile.blocks.len();
    let table = Table::read(folder, "accesses.csv", &ACCESSES)?;
    for row in table.rows(&ACCESSES) {
        let access = Access {
            task: row.value("task", "a task number")?,
            slot: row.value("slot", "a slot")?,
            block: row.value("block", "a block number")?,
            mode: row.text("mode").to_owned(),
        };
        if access.task as usize >= tasks || access.block as usize >= blocks {
            return Err(row.wrong(
                format!("task {}, block {}", access.task, access.block),
                &format!("a task below {tasks} and a block below {blocks}"),
            ));
        }
        profile.accesses.push(access);
    }
    Ok(())
}

fn read_dependences(folder: &Path, profile: &mut TaskProfile) -> Result<(), FileError> {
    let tasks = profile.tasks.len();
    let table = Table::read(folder, "dependences.csv", &DEPENDENCES)?;
    for row in table.rows(&DEPENDENCES) {
        let after: u32 = row.value("after", "a task number")?;
        let task: u32 = row.value("task", "a task number")?;
        if after as usize >= tasks || task as usize >= tasks || after == task {
            return Err(row.wrong(
                format!("task {task} after {after}"),
                &format!("two different tasks below {tasks}"),
            ));
        }
        profile.dependences.push((after, task));
    }
    Ok(())
}

fn read_replays(folder: &Path, profile: &mut TaskProfile) -> Result<(), FileError> {
    let tasks = profile.tasks.len();
    let table = Table::read(folder, "replays.csv", &REPLAYS)?;
    for row in table.rows(&REPLAYS) {
        let task: u32 = row.value("task", "a task number")?;
        let seconds = seconds(&row)?;
        if task as usize >= tasks {
            return Err(row.wrong(format!("task {task}"), &format!("a task below {tasks}")));
        }
        let far = row
            .text("far")
            .split(';')
            .filter(|text| !text.is_empty())
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map_err(|_| row.wrong(format!("far {:?}", row.text("far")), "slots joined by ;"))?;
        profile.replays.push(Replay { task, far, seconds });
    }
    Ok(())
}
