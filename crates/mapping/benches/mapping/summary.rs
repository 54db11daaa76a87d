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
    /// J divided by the least known cost.
    pub fn ratio(&self) -> f64 {
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
            ..
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

/// Names of the tools, in the order they ran.
pub fn tools(runs: &[Run]) -> Vec<&str> {
    let mut tools: Vec<&str> = Vec::new();
    for run in runs {
        if !tools.contains(&run.tool.as_str()) {
            tools.push(&run.tool);
        }
    }
    tools
}

/// Geometric mean of J over the least known cost.
pub fn mean_ratio(runs: &[&Run]) -> f64 {
    let logs: f64 = runs.iter().map(|run| run.ratio().ln()).sum();
    (logs / runs.len() as f64).exp()
}

/// Median time, if there is any run.
pub fn median_ms(runs: &[&Run]) -> Option<f64> {
    let mut ms: Vec<f64> = runs.iter().map(|run| run.ms).collect();
    ms.sort_by(f64::total_cmp);
    ms.get(ms.len() / 2).copied()
}

/// Name of the processor and number of CPUs, for the tables.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown processor", |text| {
        text.trim_start_matches([' ', '\t', ':'])
    });
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{model}, {cpus} CPUs")
}

fn tables(runs: &[Run]) -> String {
    let sizes = [64, 256, 1024, 4096, 65_536];
    let mut text = format!("Measured on: {}\n\n", machine());
    text += "| tool | cases | J over best known: geometric mean | worst | best in | overloads in | median ms at N = 64 | 256 | 1024 | 4096 | 65,536 |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n";
    for tool in tools(runs) {
        let of: Vec<&Run> = runs.iter().filter(|run| run.tool == tool).collect();
        let worst = of.iter().map(|run| run.ratio()).fold(0.0, f64::max);
        let best = of
            .iter()
            .filter(|run| run.overload == 0 && run.ratio() < 1.000_01)
            .count();
        let over = of.iter().filter(|run| run.overload > 0).count();
        let mut row = format!(
            "| {tool} | {} | {:.4} | {worst:.4} | {best} | {over} |",
            of.len(),
            mean_ratio(&of)
        );
        for size in sizes {
            let sized: Vec<&Run> = of
                .iter()
                .copied()
                .filter(|run| run.case.tasks == size)
                .collect();
            let _ = match median_ms(&sized) {
                Some(ms) => write!(row, " {ms:.1} |"),
                None => write!(row, " - |"),
            };
        }
        text += &row;
        text.push('\n');
    }
    text
}
