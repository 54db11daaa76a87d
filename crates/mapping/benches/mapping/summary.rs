//! Tables of a benchmark run.

use std::fmt::Write as _;
use std::path::Path;

use crate::cases::Case;

/// One tool on one case.
pub struct Run {
    pub case: Case,
    pub tool: String,
    pub cost: f64,
    pub ms: f64,
    /// Tasks above a PU's capacity.
    pub overload: usize,
    /// Least cost known for the case.
    pub best: f64,
}

impl Run {
    fn ratio(&self) -> f64 {
        self.cost / self.best
    }
}

/// Writes `runs.csv` and `summary.md`.
pub fn write(folder: &Path, runs: &[Run]) {
    let mut csv = "family,tasks,machine,tool,cost,over_best_known,ms,overloaded_tasks\n".to_owned();
    for run in runs {
        let Case {
            family,
            tasks,
            machine,
        } = run.case;
        let _ = writeln!(
            csv,
            "{},{tasks},{},{},{},{:.6},{:.3},{}",
            family.name(),
            machine.name,
            run.tool,
            run.cost,
            run.ratio(),
            run.ms,
            run.overload
        );
    }
    std::fs::write(folder.join("runs.csv"), csv).expect("the output can be written");
    let text = tables(runs);
    print!("\n{text}");
    std::fs::write(folder.join("summary.md"), text).expect("the output can be written");
}

fn tables(runs: &[Run]) -> String {
    let mut tools: Vec<&str> = Vec::new();
    for run in runs {
        if !tools.contains(&run.tool.as_str()) {
            tools.push(&run.tool);
        }
    }
    let sizes = [64, 256, 1024, 4096, 65_536];
    let mut text = String::from(
        "| tool | cases | J over best known: geometric mean | worst | best in | overloads in | median ms at N = 64 | 256 | 1024 | 4096 | 65,536 |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for tool in tools {
        let of: Vec<&Run> = runs.iter().filter(|run| run.tool == tool).collect();
        let logs: f64 = of.iter().map(|run| run.ratio().ln()).sum();
        let worst = of.iter().map(|run| run.ratio()).fold(0.0, f64::max);
        let best = of
            .iter()
            .filter(|run| run.overload == 0 && run.ratio() < 1.000_01)
            .count();
        let over = of.iter().filter(|run| run.overload > 0).count();
        let mut row = format!(
            "| {tool} | {} | {:.4} | {worst:.4} | {best} | {over} |",
            of.len(),
            (logs / of.len() as f64).exp()
        );
        for size in sizes {
            let mut ms: Vec<f64> = of
                .iter()
                .filter(|run| run.case.tasks == size)
                .map(|run| run.ms)
                .collect();
            ms.sort_by(f64::total_cmp);
            let _ = match ms.get(ms.len() / 2) {
                Some(ms) => write!(row, " {ms:.1} |"),
                None => write!(row, " - |"),
            };
        }
        text += &row;
        text.push('\n');
    }
    text
}
