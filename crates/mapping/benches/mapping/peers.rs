//! External mapping tools, run as programs if they are installed.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use numaloc_mapping::{MapInput, Slots, Spread};
use numaloc_model::{LogicalPu, Mapping};

use crate::cases::Case;

/// A peer's answer: PU of every task, and milliseconds (as measured by the tool if it reports them).
pub type Answer = Option<(Mapping, f64)>;

/// METIS: recursive bisection into as many parts as PUs; neighbouring parts are neighbours in its recursion, so part k
/// is PU k. The time is the partitioning time that gpmetis reports.
pub fn metis(case: Case, input: &MapInput, folder: &Path) -> Answer {
    let file = folder.join("graph");
    let graph = input.graph();
    let mut text = format!("{} {} 001\n", graph.tasks(), graph.stored_cells() / 2);
    for task in 0..graph.tasks() {
        for (other, weight) in graph.row(task) {
            text += &format!("{} {} ", other + 1, weight.round().max(1.0));
        }
        text.push('\n');
    }
    std::fs::write(&file, text).ok()?;
    let parts = case.machine.pus().to_string();
    let output = Command::new("gpmetis")
        .args(["-ptype=rb", "-ufactor=1"])
        .arg(&file)
        .arg(&parts)
        .output()
        .ok()?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let seconds = stdout.lines().find(|line| line.contains("Partitioning:"))?;
    let seconds: f64 = seconds.split_whitespace().nth(1)?.parse().ok()?;
    let parts = std::fs::read_to_string(folder.join(format!("graph.part.{parts}"))).ok()?;
    let pu: Option<Vec<LogicalPu>> = parts
        .lines()
        .map(|l| Some(LogicalPu(l.parse().ok()?)))
        .collect();
    Some((Mapping { pu: pu? }, seconds * 1e3))
}

/// Mt-KaHyPar onto the complete graph of the PUs, Steiner-tree objective; `NUMALOC_MTKAHYPAR_PYTHON`
/// names a Python that has the package.
pub fn mtkahypar(case: Case, input: &MapInput, folder: &Path) -> Answer {
    let python = std::env::var_os("NUMALOC_MTKAHYPAR_PYTHON")?;
    // A complete target graph has P (P - 1) / 2 edges: larger ones exceed memory or time.
    if case.machine.pus() > 64 || case.tasks > 256 || case.family.is_dense() {
        return None;
    }
    let write = |name: &str, n: usize, edges: &[(usize, usize, u64)]| {
        let mut rows = vec![String::new(); n];
        for &(a, b, w) in edges {
            rows[a] += &format!("{} {w} ", b + 1);
            rows[b] += &format!("{} {w} ", a + 1);
        }
        let text = format!("{n} {} 1\n{}\n", edges.len(), rows.join("\n"));
        std::fs::write(folder.join(name), text)
    };
    let edges: Vec<_> = input
        .graph()
        .pairs()
        .map(|(a, b, w)| (a, b, w.round().max(1.0) as u64))
        .collect();
    write("tasks", input.tasks(), &edges).ok()?;
    let pus = case.machine.pus();
    let all = (0..pus).flat_map(|a| (a + 1..pus).map(move |b| (a, b)));
    let target: Vec<_> = all
        .map(|(a, b)| (a, b, input.distances().get(a, b) as u64))
        .collect();
    write("target", pus, &target).ok()?;
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/benches/mapping/mtkahypar_peer.py"
    );
    let output = Command::new("timeout")
        .arg("120")
        .arg(python)
        .arg(script)
        .arg(folder)
        .arg(input.tasks().div_ceil(pus).to_string())
        .output()
        .ok()?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = stdout
        .lines()
        .skip_while(|line| !line.starts_with("milliseconds "));
    let ms: f64 = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let pu: Option<Vec<LogicalPu>> = lines
        .next()?
        .split(' ')
        .map(|word| Some(LogicalPu(word.parse().ok()?)))
        .collect();
    Some((Mapping { pu: pu? }, ms))
}

/// Number of tasks above their PU's capacity.
pub fn overload(input: &MapInput, mapping: &Mapping) -> usize {
    let slots = Slots::new(input.topology(), input.tasks(), Spread::Auto);
    let limit = slots.capacity().iter().copied().max().unwrap_or(1);
    let mut used = vec![0; slots.capacity().len()];
    mapping.pu.iter().for_each(|pu| used[pu.index()] += 1);
    used.into_iter()
        .map(|n: u32| n.saturating_sub(limit) as usize)
        .sum()
}

/// Run time of a closure in milliseconds, and its result.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed().as_secs_f64() * 1e3)
}
