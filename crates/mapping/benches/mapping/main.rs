mod cases;
mod families;
use numaloc_mapping::policies::numaloc::Numaloc;
use numaloc_mapping::policies::scotch::{Scotch, Strategy};
use numaloc_mapping::*;
use std::time::Instant;

fn main() {
    let largest: usize = std::env::var("LARGEST")
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(1024);
    let _long: usize = std::env::var("LONG")
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(20000);
    let _f = |n: &str, d: f64| {
        std::env::var(n)
            .ok()
            .and_then(|v| v.parse().ok())
            .unwrap_or(d)
    };
    let drb = Scotch {
        strategy: Strategy::Recursive,
    };
    let def = Scotch {
        strategy: Strategy::Default,
    };
    let ours = Numaloc { balance: 1.0 };
    let all: [(&str, &dyn MappingPolicy); 3] = [("drb", &drb), ("kway", &def), ("numaloc", &ours)];
    println!(
        "{:10} {:6} {:9} {}",
        "family",
        "N",
        "machine",
        all.map(|a| format!("{:>16}", a.0)).join(" ")
    );
    let mut logs = vec![Vec::new(); all.len()];
    for case in cases::cases(largest) {
        if std::env::var("FAMILY").is_ok_and(|v| v != case.family.name()) {
            continue;
        }
        let topology = case.machine.topology();
        let comm = case.family.generate(case.tasks, 7);
        let input = MapInput::new(&comm, &topology);
        let mut row = Vec::new();
        for (_, p) in &all {
            let t = Instant::now();
            let m = map(*p, &input).unwrap();
            let t = t.elapsed().as_secs_f64() * 1e3;
            row.push((cost(&input, &m.mapping), t));
        }
        let best = row.iter().map(|r| r.0).fold(f64::INFINITY, f64::min);
        for (l, r) in logs.iter_mut().zip(&row) {
            l.push(((r.0 / best).ln(), r.1));
        }
        println!(
            "{:10} {:6} {:9} {}",
            case.family.name(),
            case.tasks,
            case.machine.name,
            row.iter()
                .map(|r| format!("{:7.4} {:8.2}", r.0 / best, r.1))
                .collect::<Vec<_>>()
                .join(" ")
        );
    }
    for (l, a) in logs.iter().zip(&all) {
        let g = (l.iter().map(|x| x.0).sum::<f64>() / l.len() as f64).exp();
        let w = l.iter().map(|x| x.0).fold(0.0, f64::max).exp();
        println!("{:8} geomean {g:.4} worst {w:.4}", a.0);
    }
}
