//! Checked access to hints (`ocrHint_t`).

use numaloc_tasks::error::{Error, Result};
use numaloc_tasks::guid::affinity_node;
use numaloc_tasks::{Guid, NO_NODE};

use super::abi::Hint;

/// First property, and last property plus one, of each hint type; exclusive bounds as in `ocr.h`.
const BOUNDS: [(u32, u32); 5] = [(0, 0), (0, 7), (8, 16), (17, 18), (19, 20)];
const EDT: u32 = 1;
const DB: u32 = 2;
const EDT_AFFINITY: u32 = 3;
const DB_AFFINITY: u32 = 9;

/// Index of a property in a hint's values.
///
/// # Errors
/// [`Error::Invalid`]: no such property for this type of hint.
pub fn index(hint: &Hint, property: u32) -> Result<usize> {
    let &(start, end) = BOUNDS.get(hint.kind as usize).ok_or(Error::Invalid)?;
    (property > start && property < end)
        .then(|| (property - start - 1) as usize)
        .ok_or(Error::Invalid)
}

fn value(hint: &Hint, property: u32) -> Option<u64> {
    let at = index(hint, property).ok()?;
    (hint.mask & (1 << at) != 0).then(|| hint.args[at])
}

/// The node that a task's hint asks for, on a machine of `nodes` nodes.
#[must_use]
pub fn task_node(hint: Option<&Hint>, nodes: usize) -> u16 {
    node(hint, EDT, EDT_AFFINITY, nodes)
}

/// The node that a data block's hint asks for.
#[must_use]
pub fn block_node(hint: Option<&Hint>, nodes: usize) -> u16 {
    node(hint, DB, DB_AFFINITY, nodes)
}

fn node(hint: Option<&Hint>, kind: u32, property: u32, nodes: usize) -> u16 {
    hint.filter(|hint| hint.kind == kind)
        .and_then(|hint| value(hint, property))
        .and_then(affinity_node)
        .filter(|&node| usize::from(node) < nodes)
        .unwrap_or(NO_NODE)
}

/// Adds an affinity hint for `node`, unless it is `NO_NODE`; for `ocrGetHint`.
pub fn add_node(hint: &mut Hint, node: u16) {
    let property = match hint.kind {
        EDT => EDT_AFFINITY,
        DB => DB_AFFINITY,
        _ => return,
    };
    if let Ok(at) = index(hint, property)
        && node != NO_NODE
    {
        hint.mask |= 1 << at;
        hint.args[at] = Guid::of_affinity(node).0 as u64;
    }
}
