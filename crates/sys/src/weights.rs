//! The weights of the kernel's weighted interleaving (Linux 6.9): one for each node, for the whole system. They are the
//! administrator's, and only read here.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// A file `nodeN` for the weight of each node.
pub const FOLDER: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";

/// The weight of each node with memory (kernel numbers): pages in a row that it gets.
///
/// # Errors
/// `NotFound` if the kernel has no weighted interleaving, `InvalidData` if a weight is no number from 1 to 255.
pub fn of_system() -> io::Result<BTreeMap<u32, u8>> {
    of_folder(Path::new(FOLDER))
}

fn of_folder(folder: &Path) -> io::Result<BTreeMap<u32, u8>> {
    let mut weights = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node"));
        let Some(node) = number.and_then(|number| number.parse().ok()) else {
            continue;
        };
        let text = std::fs::read_to_string(folder.join(&name))?;
        let weight = text.trim().parse().ok().filter(|&weight: &u8| weight > 0);
        let Some(weight) = weight else {
            let found = text.trim().chars().take(20).collect::<String>();
            let why = format!("weight {found:?} of node {node}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        };
        weights.insert(node, weight);
    }
    Ok(weights)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_read_by_node_and_other_files_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text);
        write("node0", "3\n").unwrap();
        write("node12", "1\n").unwrap();
        write("auto", "false\n").unwrap();
        let weights = of_folder(folder.path()).unwrap();
        assert_eq!(weights, BTreeMap::from([(0, 3), (12, 1)]));
        write("node1", "0\n").unwrap();
        let error = of_folder(folder.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        let none = of_folder(&folder.path().join("none")).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }
}
