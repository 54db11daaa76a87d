//! The least known cost of every case over all runs so far, kept in `best_known.csv`.

use std::collections::BTreeMap;
use std::path::Path;

use crate::cases::Case;

const FILE: &str = "best_known.csv";

/// Least costs by `family,tasks,machine`.
pub struct Known(BTreeMap<String, f64>);

impl Known {
    /// The committed file; empty before the first run.
    pub fn committed() -> Self {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/mapping");
        let text = std::fs::read_to_string(Path::new(folder).join(FILE)).unwrap_or_default();
        let line = |line: &str| {
            let (case, cost) = line.rsplit_once(',')?;
            Some((case.to_owned(), cost.parse().ok()?))
        };
        Self(text.lines().skip(1).filter_map(line).collect())
    }

    /// The smaller of the known cost and `cost`; stored as the known cost.
    pub fn lower(&mut self, case: Case, cost: f64) -> f64 {
        let key = format!(
            "{},{},{}",
            case.family.name(),
            case.tasks,
            case.machine.name
        );
        let least = self.0.entry(key).or_insert(cost);
        *least = least.min(cost);
        *least
    }

    pub fn write(&self, folder: &Path) {
        let mut text = "family,tasks,machine,cost\n".to_owned();
        for (case, cost) in &self.0 {
            text += &format!("{case},{cost}\n");
        }
        std::fs::write(folder.join(FILE), text).expect("the output can be written");
    }
}
