//! The plan: for each class of tasks a node and where its creations lead, for each class of data
//! blocks a node. A folder of CSV files, each with a header line, meant to be read and edited:
//!
//! | file | one row is | columns |
//! |---|---|---|
//! | `plan.csv` | a fact | `key`, `value`: `version` (1), `machine`, `nodes`, `steal` (`node`, or `any`: workers without work may take it from other nodes) |
//! | `classes.csv` | a class of tasks | `class` (0 the root's), `template`, `slots`, `node` (empty: no opinion), `path` (for people) |
//! | `transitions.csv` | a creation | `class` (of the creator), `position`, `template`, `slots`, `to` (class of the new task) |
//! | `blocks.csv` | a class of data blocks | `class` (of the creator), `position`, `node` (empty: no opinion), `bytes` (for people) |

use std::path::Path;

use numaloc_files::FolderKind;

use crate::files::{FileError, Row, Table, check_version, shown, write};
use crate::model::Stealing;

/// A plan; see the module documentation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskPlan {
    /// Name of the machine.
    pub machine: String,
    /// Number of nodes with PUs; nodes in the plan are below this.
    pub nodes: usize,
    /// Which workers may steal from other nodes.
    pub stealing: Stealing,
    /// Classes of tasks; the first is the root's.
    pub classes: Vec<PlanClass>,
}

/// A class of tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanClass {
    /// Template.
    pub template: String,
    /// Slots.
    pub slots: u32,
    /// The node its tasks run on; `None`: left open.
    pub node: Option<u16>,
    /// Generalised path, informative only.
    pub path: String,
    /// Transitions to the classes of the tasks it creates.
    pub children: Vec<PlanChild>,
    /// Data blocks its tasks create.
    pub blocks: Vec<PlanBlock>,
}

/// A creation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanChild {
    /// Position among the creator's creations.
    pub position: u32,
    /// Template of the new task.
    pub template: String,
    /// Slots of the new task.
    pub slots: u32,
    /// Class of the new task.
    pub class: u32,
}

/// A class of data blocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanBlock {
    /// Position among the blocks its creator creates.
    pub position: u32,
    /// The node of its blocks; `None`: left open.
    pub node: Option<u16>,
    /// Mean size of its blocks.
    pub bytes: u64,
}

const FACTS: [&str; 2] = ["key", "value"];
const CLASSES: [&str; 5] = ["class", "template", "slots", "node", "path"];
const TRANSITIONS: [&str; 5] = ["class", "position", "template", "slots", "to"];
const BLOCKS: [&str; 4] = ["class", "position", "node", "bytes"];

/// Creations of one task beyond this number are not planned.
const MOST_POSITIONS: u32 = 1 << 22;

/// Largest number of nodes: a node is stored in 16 bits.
const MOST_NODES: usize = 1 << 16;

/// Plan folders as outputs.
pub const PLAN_FOLDER: FolderKind = FolderKind {
    name: "numaloc task plan",
    mark: "plan.csv",
    owns: |name| {
        ["classes.csv", "transitions.csv", "blocks.csv", "plan.csv"]
            .iter()
            .any(|ours| name == Path::new(ours))
    },
};

/// Writes a plan.
///
/// # Errors
/// [`FileError`] names the file.
pub fn write_plan(folder: &Path, plan: &TaskPlan) -> Result<(), FileError> {
    let classes = || plan.classes.iter().enumerate();
    write(
        folder,
        "classes.csv",
        &CLASSES,
        classes().map(|(at, class)| {
            vec![
                at.to_string(),
                class.template.clone(),
                class.slots.to_string(),
                shown(class.node),
                class.path.clone(),
            ]
        }),
    )?;
    write(
        folder,
        "transitions.csv",
        &TRANSITIONS,
        classes().flat_map(|(at, class)| {
            class.children.iter().map(move |child| {
                vec![
                    at.to_string(),
                    child.position.to_string(),
                    child.template.clone(),
                    child.slots.to_string(),
                    child.class.to_string(),
                ]
            })
        }),
    )?;
    write(
        folder,
        "blocks.csv",
        &BLOCKS,
        classes().flat_map(|(at, class)| {
            class.blocks.iter().map(move |block| {
                vec![
                    at.to_string(),
                    block.position.to_string(),
                    shown(block.node),
                    block.bytes.to_string(),
                ]
            })
        }),
    )?;
    // Written last: a folder with this file is complete.
    let facts = [
        ("version", "1".to_owned()),
        ("machine", plan.machine.clone()),
        ("nodes", plan.nodes.to_string()),
        ("steal", plan.stealing.name().to_owned()),
    ];
    write(
        folder,
        "plan.csv",
        &FACTS,
        facts
            .iter()
            .map(|(key, value)| vec![(*key).to_owned(), value.clone()]),
    )
}

/// Reads a plan, and checks that it refers to what exists.
///
/// # Errors
/// [`FileError`] names the file and line, what was found and what was expected.
pub fn read_plan(folder: &Path) -> Result<TaskPlan, FileError> {
    let mut plan = read_facts(folder)?;
    read_classes(folder, &mut plan)?;
    let classes = plan.classes.len();
    let class = |row: &Row, column: &str| -> Result<usize, FileError> {
        let class: usize = row.value(column, "a class number")?;
        if class >= classes {
            return Err(row.wrong(
                format!("{column} {class}"),
                &format!("a class below {classes}"),
            ));
        }
        Ok(class)
    };
    let table = Table::read(folder, "transitions.csv", &TRANSITIONS)?;
    for row in table.rows(&TRANSITIONS) {
        let from = class(&row, "class")?;
        plan.classes[from].children.push(PlanChild {
            position: position(&row)?,
            template: row.text("template").to_owned(),
            slots: row.value("slots", "a number")?,
            class: class(&row, "to")? as u32,
        });
    }
    let table = Table::read(folder, "blocks.csv", &BLOCKS)?;
    for row in table.rows(&BLOCKS) {
        let from = class(&row, "class")?;
        plan.classes[from].blocks.push(PlanBlock {
            position: position(&row)?,
            node: node(&row, plan.nodes)?,
            bytes: row.value("bytes", "a number of bytes")?,
        });
    }
    Ok(plan)
}

/// Reads what `plan.csv` says of the plan as a whole.
fn read_facts(folder: &Path) -> Result<TaskPlan, FileError> {
    let mut plan = TaskPlan::default();
    let table = Table::read(folder, "plan.csv", &FACTS)?;
    let mut version = None;
    for row in table.rows(&FACTS) {
        match row.text("key") {
            "version" => version = Some(row.value::<u32>("value", "a version number")?),
            "machine" => plan.machine = row.text("value").to_owned(),
            "nodes" => plan.nodes = row.value("value", "a number of nodes")?,
            "steal" => {
                let text = row.text("value");
                let known = Stealing::ALL.into_iter().find(|(name, _)| *name == text);
                let Some((_, stealing)) = known else {
                    let expected = "node, surplus or any";
                    return Err(row.wrong(format!("steal {text:?}"), expected));
                };
                plan.stealing = stealing;
            }
            _ => {}
        }
    }
    check_version(folder, "plan.csv", version)?;
    if !(1..=MOST_NODES).contains(&plan.nodes) {
        return Err(FileError::Contents {
            path: folder.join("plan.csv"),
            line: 0,
            found: format!("{} nodes", plan.nodes),
            expected: format!("1 to {MOST_NODES}"),
        });
    }
    Ok(plan)
}

fn read_classes(folder: &Path, plan: &mut TaskPlan) -> Result<(), FileError> {
    let table = Table::read(folder, "classes.csv", &CLASSES)?;
    for (at, row) in table.rows(&CLASSES).enumerate() {
        if row.value::<usize>("class", "a class number")? != at {
            return Err(row.wrong(format!("class {}", row.text("class")), &at.to_string()));
        }
        plan.classes.push(PlanClass {
            template: row.text("template").to_owned(),
            slots: row.value("slots", "a number")?,
            node: node(&row, plan.nodes)?,
            path: row.text("path").to_owned(),
            ..PlanClass::default()
        });
    }
    Ok(())
}

/// A node of the plan, one of `nodes`.
fn node(row: &Row, nodes: usize) -> Result<Option<u16>, FileError> {
    let node: Option<u16> = row.optional("node", "a node or nothing")?;
    match node {
        Some(node) if usize::from(node) >= nodes => {
            Err(row.wrong(format!("node {node}"), &format!("a node below {nodes}")))
        }
        node => Ok(node),
    }
}

/// A position among a creator's creations.
fn position(row: &Row) -> Result<u32, FileError> {
    let position = row.value("position", "a number")?;
    if position >= MOST_POSITIONS {
        return Err(row.wrong(
            format!("position {position}"),
            &format!("less than {MOST_POSITIONS}"),
        ));
    }
    Ok(position)
}
