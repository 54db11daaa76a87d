//! Environment variables that shape a recording: read before the program starts and stored next to the journals, so
//! that `--salvage` finds them too.

use std::path::Path;

use numaloc_model::conditions::{BY_NODE, DEAL, VARIABLES};

const FILE: &str = "environment";

/// The [`VARIABLES`] that are set, by name, except [`DEAL`], which an option sets. Values that are not UTF-8 are left
/// out.
pub fn environment() -> Vec<(String, String)> {
    let set = |name: &&str| Some(((*name).to_owned(), std::env::var(name).ok()?));
    let names = VARIABLES.iter().filter(|name| **name != DEAL);
    names.filter_map(set).collect()
}

/// Writes the variables to a work folder, and that loops are dealt, if they are.
pub fn keep(folder: &Path, deals: bool) -> std::io::Result<()> {
    let mut text = String::new();
    let mut all = environment();
    if deals {
        all.push((DEAL.to_owned(), BY_NODE.to_owned()));
        all.sort();
    }
    for (name, value) in all {
        text += &format!("{name}={value}\0");
    }
    std::fs::write(folder.join(FILE), text)
}

/// Reads what [`keep`] has written; empty if there is no such file.
pub fn kept(folder: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(folder.join(FILE)).unwrap_or_default();
    text.split('\0')
        .filter_map(|line| line.split_once('='))
        .filter(|(name, _)| VARIABLES.contains(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
