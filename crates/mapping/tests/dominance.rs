//! No listed policy is better than `numaloc` in cost, remote communication and load at once, unless tasks that compute
//! share cores under it while others are idle.

use std::collections::BTreeSet;

use fastrand::Rng;
use numaloc_mapping::{Evaluation, MapInput, by_name, evaluate, map, registry};
use numaloc_model::{CommMatrix, Mapping};
use numaloc_topology::{Topology, resolve};

/// Trees of one to three levels, a machine with siblings, and a ring of nodes that is no tree.
fn machines() -> Vec<Topology> {
    let mut machines: Vec<Topology> = [
        "numa:2 core:4 pu:2",
        "numa:4 core:2 pu:1",
        "package:2 numa:2 l3:2 core:4 pu:1",
        "numa:16 core:2 pu:1",
    ]
    .map(|spec| resolve(spec).unwrap())
    .into();
    let ring = [
        10.0, 16.0, 22.0, 16.0, 16.0, 10.0, 16.0, 22.0, 22.0, 16.0, 10.0, 16.0, 16.0, 22.0, 16.0,
        10.0,
    ];
    let square = resolve("numa:4 core:8 pu:1").unwrap();
    machines.push(square.with_node_distances(ring.to_vec()).unwrap());
    machines
}

/// Whether `theirs` is at most `ours` in everything and less in something; sums in another order differ
/// in the last digits.
fn dominates(theirs: &Evaluation, ours: &Evaluation) -> bool {
    let mean = |e: &Evaluation| e.node_load.iter().sum::<f64>() / e.node_load.len() as f64;
    let deviation = |e: &Evaluation| e.load_std / mean(e).max(f64::MIN_POSITIVE);
    let sides = [
        (theirs.cost, ours.cost, ours.cost),
        (theirs.remote, ours.remote, ours.remote),
        (deviation(theirs), deviation(ours), 1.0),
    ];
    let more = |&(a, b, unit): &(f64, f64, f64)| a > b + 2e-9 * unit;
    let less = |&(a, b, unit): &(f64, f64, f64)| a < b - 2e-9 * unit;
    !sides.iter().any(more) && sides.iter().any(less)
}

/// The policies that dominate `numaloc`, with what they reach.
fn dominators(input: &MapInput) -> Vec<String> {
    let value = |policy| evaluate(input, &map(policy, input).unwrap().mapping);
    let ours = value(by_name("numaloc").unwrap());
    let others = registry().iter().filter(|p| p.name() != "numaloc");
    let better = others.filter_map(|&policy| {
        let mapped = map(policy, input).unwrap().mapping;
        if input.load().is_some() && shares_cores(input, &mapped) {
            return None;
        }
        let theirs = evaluate(input, &mapped);
        let say = |e: &Evaluation| (e.cost, e.remote, e.load_std);
        let (name, theirs_say) = (policy.name(), say(&theirs));
        dominates(&theirs, &ours).then(|| format!("{name} {theirs_say:?}, ours {:?}", say(&ours)))
    });
    better.collect()
}

/// Whether tasks share a core while others have none.
fn shares_cores(input: &MapInput, mapping: &Mapping) -> bool {
    let core = |pu: usize| input.topology().pus()[pu].core;
    let all: BTreeSet<u32> = (0..input.topology().pus().len()).map(core).collect();
    let used: BTreeSet<u32> = mapping.pu.iter().map(|pu| core(pu.index())).collect();
    used.len() < mapping.pu.len().min(all.len())
}

fn refuse(found: &[String], what: &str) {
    assert!(found.is_empty(), "{what}: dominated by {found:?}");
}

/// Kinds of programs, labels shuffled.
fn generated(kind: usize, tasks: usize, rng: &mut Rng) -> CommMatrix {
    let mut label: Vec<usize> = (0..tasks).collect();
    rng.shuffle(&mut label);
    let side = (tasks as f64).sqrt() as usize;
    let mut cells = Vec::new();
    for t in 0..tasks {
        match kind {
            0 => cells.push((t, (t + 1) % tasks, 10.0)),
            1 if t % 2 == 0 => cells.push((t, t + 1, 50.0)),
            2 => {
                cells.extend((t % side + 1 < side && t + 1 < tasks).then_some((t, t + 1, 7.0)));
                cells.extend((t + side < tasks).then_some((t, t + side, 7.0)));
            }
            3 => cells.extend((0..t).map(|u| (t, u, f64::from(rng.u32(90..110))))),
            4 => cells.extend((0..3).map(|_| (t, rng.usize(0..tasks), f64::from(rng.u32(1..100))))),
            // Uniform, and a star: another mapping loses and gains nothing.
            5 => cells.extend((0..t).map(|u| (t, u, 1.0))),
            6 => cells.push((0, t, 5.0)),
            _ => {}
        }
    }
    let cells = cells.into_iter().filter(|c| c.0 != c.1);
    CommMatrix::from_cells(tasks, cells.map(|(a, b, w)| (label[a], label[b], w))).unwrap()
}

fn loads(kind: usize, tasks: usize, rng: &mut Rng) -> Option<Vec<f64>> {
    match kind {
        0 => None,
        1 => Some((0..tasks).map(|_| f64::from(rng.u32(50..150))).collect()),
        2 => Some(
            (0..tasks)
                .map(|t| if t % 4 == 0 { 900.0 } else { 10.0 })
                .collect(),
        ),
        _ => Some(vec![0.0; tasks]),
    }
}

#[test]
fn numaloc_is_never_dominated_on_generated_matrices() {
    let mut rng = Rng::with_seed(17);
    for (at, machine) in machines().iter().enumerate() {
        // 16 tasks in `make test-full` only.
        let is_full = std::env::var_os("NUMALOC_FULL_TESTS").is_some();
        for tasks in [6, 16, 32]
            .into_iter()
            .filter(|&tasks| is_full || tasks != 16)
        {
            for kind in 0..8 {
                let comm = generated(kind, tasks, &mut rng);
                for load in 0..4 {
                    let loads = loads(load, tasks, &mut rng);
                    let input = MapInput::new(&comm, machine)
                        .with_load(loads.as_deref())
                        .with_seed(rng.u64(..));
                    let what = format!("machine {at}, {tasks} tasks, matrix {kind}, load {load}");
                    refuse(&dominators(&input), &what);
                }
            }
        }
    }
}

/// Matrices and access loads of the programs in `workloads/`, recorded under the emulator with 8, 16 and
/// 32 threads (`shared_pair` is two processes): in each file the threads' accesses, then the rows of layer
/// `write_read` as `numaloc export` writes them.
fn recorded() -> Vec<(String, CommMatrix, Vec<f64>)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.iter().map(|path| read(path)).collect()
}

fn read(path: &std::path::Path) -> (String, CommMatrix, Vec<f64>) {
    let text = std::fs::read_to_string(path).unwrap();
    let numbers =
        |line: &str| -> Vec<f64> { line.split(',').map(|n| n.parse().unwrap()).collect() };
    let (load, rows) = text.split_once('\n').unwrap();
    let load = numbers(load.strip_prefix("load,").unwrap());
    let cells: Vec<f64> = rows.lines().flat_map(numbers).collect();
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    (
        name,
        CommMatrix::from_dense(load.len(), &cells).unwrap(),
        load,
    )
}

#[test]
fn numaloc_is_never_dominated_on_recorded_matrices() {
    let recorded = recorded();
    assert_eq!(recorded.len(), 28);
    for (at, machine) in machines().iter().enumerate() {
        for (name, comm, load) in &recorded {
            let input = MapInput::new(comm, machine);
            refuse(&dominators(&input), &format!("machine {at}, {name}"));
            let input = input.with_load(Some(load)).with_seed(7);
            refuse(
                &dominators(&input),
                &format!("machine {at}, {name} with loads"),
            );
        }
    }
}
