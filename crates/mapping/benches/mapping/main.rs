//! `make bench-mapping`: every policy and the installed peers, on generated families.
//!
//! Options: `--largest N` (tasks, default 1024), `--repeat N` (timed runs, of which the fastest counts because machines
//! are shared; default 3), `--polish N` (proposals per task of the search for the best known cost; default 0: use
//! `best_known.csv` next to this file), `--only NAMES` (of policies), `--npb` (the patterns of the NAS benchmarks
//! instead of the generated ones), `--family NAME`, `--out FOLDER`. Writes `runs.csv` (one line per run), `summary.md`,
//! `plot.svg` and `best_known.csv`, the least known cost after this run.

mod cases;
mod families;
mod known;
mod npb;
mod peers;
mod plot;
mod summary;

use numaloc_mapping::policies::numaloc::polish;
use numaloc_mapping::policies::scotch::{Scotch, Strategy};
use numaloc_mapping::{MapInput, MappingPolicy, by_name, cost, map};
use numaloc_model::Mapping;

use crate::peers::timed;
use crate::summary::Run;

const POLICIES: &[&str] = &[
    "packed",
    "eager-map",
    "tree-match",
    "choice-map",
    "mpipp",
    "scotch",
    "deloc",
    "numaloc",
];

struct Options {
    largest: usize,
    repeat: usize,
    polish: usize,
    only: Vec<String>,
    npb: bool,
    family: Option<String>,
    out: std::path::PathBuf,
}

fn options() -> Options {
    let mut options = Options {
        largest: 1024,
        repeat: 3,
        polish: 0,
        only: Vec::new(),
        npb: false,
        family: None,
        out: "target/bench-mapping".into(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || {
            words
                .next()
                .unwrap_or_else(|| panic!("{word} needs a value"))
        };
        match word.as_str() {
            "--largest" => options.largest = value().parse().expect("a number"),
            "--repeat" => options.repeat = value().parse().expect("a number"),
            "--polish" => options.polish = value().parse().expect("a number"),
            "--only" => options.only = value().split(',').map(str::to_owned).collect(),
            "--npb" => options.npb = true,
            "--family" => options.family = Some(value()),
            "--out" => options.out = value().into(),
            // Cargo passes this to every bench.
            "--bench" => {}
            _ => panic!("unknown option {word}"),
        }
    }
    options
}

fn main() {
    let options = options();
    std::fs::create_dir_all(&options.out).expect("the output folder can be made");
    let mut runs: Vec<Run> = Vec::new();
    let mut known = known::Known::committed();
    let families = match options.npb {
        true => &families::Family::NPB[..],
        false => &families::Family::ALL[..],
    };
    for case in cases::cases(families, options.largest) {
        let asked = |name: &String| name == case.family.name();
        if !options.family.as_ref().is_none_or(asked) {
            continue;
        }
        let topology = case.machine.topology();
        let comm = case.family.generate(case.tasks, case.seed);
        let input = MapInput::new(&comm, &topology);
        let mut best: Option<(f64, Mapping)> = None;
        let first = runs.len();
        let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|n| n == name);
        let mut note = |tool: &str, mapping: Mapping, ms: f64| {
            let overload = peers::overload(&input, &mapping);
            let cost = cost(&input, &mapping);
            if overload == 0 && best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, mapping));
            }
            runs.push(Run {
                case,
                tool: tool.to_owned(),
                cost,
                ms,
                overload,
                best: 0.0,
            });
        };
        for name in POLICIES.iter().filter(|name| wanted(name)) {
            // Quadratic and cubic policies run only on sizes at which they end in reasonable time.
            let slow = match *name {
                "mpipp" => case.tasks > 256,
                "tree-match" | "eager-map" | "choice-map" | "scotch" => {
                    case.tasks > 8192 || (case.family.is_dense() && case.tasks > 1024)
                }
                _ => false,
            };
            if slow {
                continue;
            }
            let policy = by_name(name).expect("a policy");
            let mut times = Vec::new();
            let mut answer = None;
            for _ in 0..options.repeat {
                let (mapped, ms) = timed(|| map(policy, &input));
                times.push(ms);
                answer = mapped.ok();
                // Long runs vary little: once is enough.
                if ms > 2000.0 {
                    break;
                }
            }
            times.sort_by(f64::total_cmp);
            if let Some(mapped) = answer {
                note(name, mapped.mapping, times[0]);
            }
        }
        if wanted("scotch-best-of-6") && case.tasks <= 8192 && !case.family.is_dense() {
            let (found, ms) = timed(|| best_of_scotch(&input));
            if let Some(mapping) = found {
                note("scotch-best-of-6", mapping, ms);
            }
        }
        let folder = options.out.join("work");
        std::fs::create_dir_all(&folder).expect("the output folder can be made");
        if wanted("metis")
            && !case.family.is_dense()
            && case.tasks <= 8192
            && let Some((mapping, ms)) = peers::metis(case, &input, &folder)
        {
            note("metis", mapping, ms);
        }
        if wanted("mt-kahypar")
            && let Some((mapping, ms)) = peers::mtkahypar(case, &input, &folder)
        {
            note("mt-kahypar", mapping, ms);
        }
        let (start, mapping) = best.expect("some policy answers");
        let least = known.lower(case, polished(&input, &mapping, start, options.polish));
        for run in &mut runs[first..] {
            run.best = least;
        }
        let shown: Vec<String> = runs[first..]
            .iter()
            .map(|run| format!("{} {:.4} ({:.1} ms)", run.tool, run.cost / least, run.ms))
            .collect();
        println!(
            "{} {} on {}: {}",
            case.family.name(),
            case.tasks,
            case.machine.name,
            shown.join(", ")
        );
    }
    summary::write(&options.out, &runs);
    plot::write(&options.out, &runs);
    known.write(&options.out);
}

/// The least cost reached by long low-temperature searches from the best answer.
fn polished(input: &MapInput, mapping: &Mapping, cost_now: f64, proposals: usize) -> f64 {
    if proposals == 0 {
        return cost_now;
    }
    // Large and dense problems are limited to about a minute.
    let work = input.tasks() * (input.graph().stored_cells() / input.tasks().max(1)).min(64);
    let proposals = proposals.min(4_000_000_000 / work.max(1)).max(50);
    let mut best = (cost_now, mapping.clone());
    for (round, hot) in [0.2, 0.7, 2.0].into_iter().enumerate() {
        let input = input.clone().with_seed(99 + round as u64);
        let found = polish(&input, &best.1, proposals, hot);
        let reached = cost(&input, &found);
        if reached < best.0 {
            best = (reached, found);
        }
    }
    best.0
}

/// Three seeds of two strategies.
fn best_of_scotch(input: &MapInput) -> Option<Mapping> {
    let mut best: Option<(f64, Mapping)> = None;
    for strategy in [Strategy::Recursive, Strategy::Quality] {
        for seed in [1, 2, 3] {
            let input = input.clone().with_seed(seed);
            let mapping = Scotch { strategy }.map(&input).ok()?.mapping;
            let reached = cost(&input, &mapping);
            if best.as_ref().is_none_or(|(least, _)| reached < *least) {
                best = Some((reached, mapping));
            }
        }
    }
    best.map(|(_, mapping)| mapping)
}
