//! Properties that every policy guarantees, on many small problems, and further properties of our own policy.

use fastrand::Rng;
use numaloc_mapping::{
    Evaluation, MapError, MapInput, Spread, by_name, check_mapping, cost, evaluate, lower_bound,
    map, registry,
};
use numaloc_model::{CommMatrix, GroupPair, LogicalPu, Mapping, TaskGroup, ThreadIdx};
use numaloc_topology::{Topology, resolve};
use proptest::prelude::*;

fn machines() -> Vec<Topology> {
    let mut machines: Vec<Topology> = [
        "numa:4 core:2 pu:1",
        "numa:2 core:3 pu:2",
        "package:2 numa:2 l3:2 core:2 pu:1",
        "numa:3 core:1 pu:1",
        "core:1 pu:1",
        "core:6 pu:2",
    ]
    .map(|spec| resolve(spec).unwrap())
    .into();
    // A ring of four nodes: no tree.
    let ring = vec![
        10.0, 16.0, 22.0, 16.0, 16.0, 10.0, 16.0, 22.0, 22.0, 16.0, 10.0, 16.0, 16.0, 22.0, 16.0,
        10.0,
    ];
    let square = resolve("numa:4 core:3 pu:1").unwrap();
    machines.push(square.with_node_distances(ring).unwrap());
    machines
}

fn spreads() -> impl Strategy<Value = Spread> {
    proptest::sample::select(&[Spread::Auto, Spread::Spread, Spread::Compact, Spread::Cores][..])
}

/// `share` of all cells, amounts 0 to 99.
fn random_matrix(tasks: usize, share: f64, seed: u64) -> CommMatrix {
    let mut rng = Rng::with_seed(seed);
    let cells = (0..tasks).flat_map(|a| (0..tasks).map(move |b| (a, b)));
    let chosen: Vec<_> = cells.filter(|_| rng.f64() < share).collect();
    let cells = chosen
        .into_iter()
        .map(|(a, b)| (a, b, f64::from(rng.u32(0..100))));
    CommMatrix::from_cells(tasks, cells).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_policy_keeps_capacity_and_repeats(
        machine in 0usize..7,
        tasks in 0usize..40,
        share in 0.0f64..1.0,
        seed in any::<u64>(),
        spread in spreads(),
    ) {
        let machine = &machines()[machine];
        let comm = random_matrix(tasks, share, seed);
        let input = MapInput::new(&comm, machine).with_spread(spread).with_seed(seed);
        for policy in registry() {
            // `map` itself panics when a PU is overloaded or a task is missing.
            let mapped = map(*policy, &input).unwrap();
            prop_assert_eq!(&mapped, &map(*policy, &input).unwrap(), "{}", policy.name());
            let value = evaluate(&input, &mapped.mapping);
            prop_assert!(value.cost >= value.lower_bound * (1.0 - 1e-12), "{}", policy.name());
            if tasks < machine.pus().len() && spread != Spread::Auto {
                // The choice of PUs does not depend on the policy.
                let slots = numaloc_mapping::Slots::new(machine, tasks, spread);
                for pu in &mapped.mapping.pu {
                    prop_assert!(slots.capacity()[pu.index()] > 0, "{}", policy.name());
                }
            }
        }
    }

    #[test]
    fn loads_and_groups_of_any_kind_are_taken(
        machine in 0usize..7,
        tasks in 2usize..30,
        seed in any::<u64>(),
    ) {
        let machine = &machines()[machine];
        let comm = random_matrix(tasks, 0.3, seed);
        let mut rng = Rng::with_seed(seed);
        let load: Vec<f64> = (0..tasks).map(|_| f64::from(rng.u32(0..5))).collect();
        let groups: Vec<TaskGroup> = (0..3).map(|_| random_group(&comm, &mut rng)).collect();
        let input = MapInput::new(&comm, machine).with_load(Some(&load)).with_groups(&groups);
        for policy in registry() {
            let mapped = map(*policy, &input).unwrap();
            prop_assert_eq!(check_mapping(&input, &mapped.mapping), Ok(()));
        }
    }
}

fn random_group(comm: &CommMatrix, rng: &mut Rng) -> TaskGroup {
    let pairs = (0..comm.threads()).flat_map(|a| (a + 1..comm.threads()).map(move |b| (a, b)));
    let pairs = pairs.filter_map(|(a, b)| {
        let in_run = comm.get(a, b) + comm.get(b, a);
        (in_run > 0.0 && rng.bool()).then(|| GroupPair {
            a: ThreadIdx::from_index(a),
            b: ThreadIdx::from_index(b),
            in_group: in_run / 2.0,
            in_run,
        })
    });
    TaskGroup {
        pairs: pairs.collect(),
    }
}

/// The least possible cost: branch and bound over PUs, tasks in order of their volume.
fn optimum(input: &MapInput) -> f64 {
    let graph = input.graph();
    let mut order: Vec<usize> = (0..input.tasks()).collect();
    order.sort_by(|&a, &b| graph.volume(b).total_cmp(&graph.volume(a)));
    let slots = numaloc_mapping::Slots::new(input.topology(), input.tasks(), Spread::Auto);
    let mut free = slots.capacity().to_vec();
    let mut pu = vec![usize::MAX; input.tasks()];
    let start = map(by_name("numaloc").unwrap(), input).unwrap();
    let mut best = cost(input, &start.mapping) + 1e-9;
    descend(input, &order, &mut free, &mut pu, 0.0, &mut best);
    best
}

fn descend(
    input: &MapInput,
    remaining: &[usize],
    free: &mut [u32],
    pu: &mut [usize],
    sum: f64,
    best: &mut f64,
) {
    let Some((&task, remaining)) = remaining.split_first() else {
        *best = best.min(sum);
        return;
    };
    let mut seen: Vec<Vec<u64>> = Vec::new();
    for at in 0..free.len() {
        if free[at] == 0 {
            continue;
        }
        let far = |(other, w): (usize, f64)| match pu[other] {
            usize::MAX => 0.0,
            there => w * input.distances().mean(at, there),
        };
        let now = sum + input.graph().row(task).map(far).sum::<f64>();
        if now >= *best {
            continue;
        }
        // PUs with equal distances to all others in use are one choice.
        let look: Vec<u64> = (0..free.len())
            .map(|other| match pu.contains(&other) {
                true => input.distances().mean(at, other).to_bits(),
                false => 0,
            })
            .collect();
        if !pu.contains(&at) && input.topology().node_matrix().is_none() {
            if seen.contains(&look) {
                continue;
            }
            seen.push(look);
        }
        free[at] -= 1;
        pu[task] = at;
        descend(input, remaining, free, pu, now, best);
        pu[task] = usize::MAX;
        free[at] += 1;
    }
}

#[test]
fn numaloc_finds_the_optimum_of_small_problems() {
    for (at, machine) in machines().iter().enumerate() {
        for seed in 0..3 {
            // One more takes ten times as long.
            let tasks = machine
                .pus()
                .len()
                .min(if machine.pus().len() > 12 { 7 } else { 8 });
            let comm = random_matrix(tasks, 0.4, seed);
            let input = MapInput::new(&comm, machine);
            let mapped = map(by_name("numaloc").unwrap(), &input).unwrap();
            let (found, least) = (cost(&input, &mapped.mapping), optimum(&input));
            assert!(
                found <= least * (1.0 + 1e-9) + 1e-6,
                "machine {at} seed {seed}: {found} {least}"
            );
            assert!(lower_bound(&input) <= least * (1.0 + 1e-9));
        }
    }
}

/// A grid with labels in order or shuffled.
fn grid(side: usize, order: Option<u64>) -> CommMatrix {
    let n = side * side;
    let mut label: Vec<usize> = (0..n).collect();
    if let Some(seed) = order {
        Rng::with_seed(seed).shuffle(&mut label);
    }
    let right = (0..n).filter(|t| t % side + 1 < side).map(|t| (t, t + 1));
    let down = (0..n - side).map(|t| (t, t + side));
    let both = right.chain(down).flat_map(|(a, b)| [(a, b), (b, a)]);
    CommMatrix::from_cells(n, both.map(|(a, b)| (label[a], label[b], 3.0))).unwrap()
}

#[test]
fn labels_do_not_matter_for_quality() {
    let machine = resolve("numa:4 core:16 pu:1").unwrap();
    let machine = machine.with_level_distances(&[10.0, 2.0]).unwrap();
    for policy in ["scotch", "numaloc"] {
        let policy = by_name(policy).unwrap();
        for order in [None, Some(1), Some(2), Some(3), Some(4)] {
            let comm = grid(8, order);
            let input = MapInput::new(&comm, &machine);
            let mapped = map(policy, &input).unwrap();
            // Four 4 x 4 squares cut 16 of 112 edges.
            assert_eq!(
                evaluate(&input, &mapped.mapping).remote,
                48.0,
                "{} {order:?}",
                policy.name()
            );
        }
    }
}

#[test]
fn numaloc_is_never_worse_than_scotch() {
    let machine = resolve("numa:4 core:4 pu:2").unwrap();
    for seed in 0..20 {
        let comm = random_matrix(32, 0.15, seed);
        let input = MapInput::new(&comm, &machine);
        let of = |name: &str| {
            cost(
                &input,
                &map(by_name(name).unwrap(), &input).unwrap().mapping,
            )
        };
        assert!(of("numaloc") <= of("scotch"), "seed {seed}");
    }
}

#[test]
fn a_node_matrix_is_mapped_by_its_own_distances() {
    // Four nodes in a ring 0-2-1-3-0: a ring of 12 tasks must follow it, not the node numbers.
    let near = [(0, 2), (2, 1), (1, 3), (3, 0)];
    let mut matrix = vec![30.0; 16];
    for n in 0..4 {
        matrix[n * 5] = 10.0;
    }
    for (a, b) in near {
        (matrix[a * 4 + b], matrix[b * 4 + a]) = (15.0, 15.0);
    }
    let machine = resolve("numa:4 core:3 pu:1")
        .unwrap()
        .with_node_distances(matrix)
        .unwrap();
    let comm = CommMatrix::from_cells(12, (0..12).map(|t| (t, (t + 1) % 12, 1.0))).unwrap();
    let input = MapInput::new(&comm, &machine);
    let mapped = map(by_name("numaloc").unwrap(), &input).unwrap();
    // 8 edges inside nodes at 10, 4 between neighbouring nodes at 15.
    assert_eq!(cost(&input, &mapped.mapping), 8.0 * 10.0 + 4.0 * 15.0);
}

fn value(name: &str, input: &MapInput) -> Evaluation {
    evaluate(input, &map(by_name(name).unwrap(), input).unwrap().mapping)
}

#[test]
fn heavy_threads_are_spread_at_little_cost_in_locality() {
    let machine = resolve("numa:4 core:16 pu:1").unwrap();
    let machine = machine.with_level_distances(&[10.0, 2.0]).unwrap();
    for seed in 0..3 {
        let comm = planted(64, seed);
        let mut rng = Rng::with_seed(seed);
        // One heavy thread in each of the first 8 blocks, which locality puts on two nodes.
        let load: Vec<f64> = (0..64)
            .map(|t| {
                let heavy = t < 32 && t % 4 == 0;
                f64::from(rng.u32(0..100)) + if heavy { 900.0 } else { 100.0 }
            })
            .collect();
        let pure = value("numaloc", &MapInput::new(&comm, &machine));
        let level = value(
            "numaloc",
            &MapInput::new(&comm, &machine).with_load(Some(&load)),
        );
        let mean = load.iter().sum::<f64>() / 4.0;
        assert!(
            level.load_std <= 0.01 * mean,
            "seed {seed}: {} of {mean}",
            level.load_std
        );
        assert!(level.remote <= 1.05 * pure.remote, "seed {seed}");
    }
}

#[test]
fn tasks_that_compute_have_a_core_each_while_there_are_as_many() {
    let machine = resolve("numa:2 core:4 pu:2").unwrap();
    for tasks in 2..=8 {
        let ring = (0..tasks).map(|t| (t, (t + 1) % tasks, 10.0));
        let comm = CommMatrix::from_cells(tasks, ring).unwrap();
        let load = vec![100.0; tasks];
        let cores = |input: &MapInput| {
            let mapped = map(by_name("numaloc").unwrap(), input).unwrap().mapping;
            let cores = mapped.pu.iter().map(|pu| pu.0 / 2);
            cores.collect::<std::collections::BTreeSet<_>>().len()
        };
        let input = MapInput::new(&comm, &machine);
        assert_eq!(cores(&input.clone().with_load(Some(&load))), tasks);
        assert_eq!(
            cores(&input),
            tasks.div_ceil(2),
            "{tasks} tasks of unknown load"
        );
    }
}

/// Blocks of 4 that communicate much, in a chain of blocks, and a background between all.
fn planted(tasks: usize, seed: u64) -> CommMatrix {
    let mut rng = Rng::with_seed(seed);
    let pairs = (0..tasks).flat_map(|a| (0..a).map(move |b| (a, b)));
    let cells: Vec<_> = pairs
        .map(|(a, b)| {
            let amount = match a / 4 - b / 4 {
                0 => 900..1000,
                1 => 25..40,
                _ => 20..30,
            };
            (a, b, f64::from(rng.u32(amount)))
        })
        .collect();
    CommMatrix::from_cells(tasks, cells).unwrap()
}

#[test]
fn groups_of_communication_are_no_load() {
    // Without a load vector there is nothing to level, whatever communicates at the same time: groups are amounts of
    // communication, and giving up locality to spread them has no benefit.
    let machine = resolve("numa:4 core:2 pu:1").unwrap();
    for seed in 0..5 {
        let comm = random_matrix(8, 0.6, seed);
        let mut rng = Rng::with_seed(seed);
        let groups: Vec<TaskGroup> = (0..3).map(|_| random_group(&comm, &mut rng)).collect();
        let plain = MapInput::new(&comm, &machine);
        let grouped = plain.clone().with_groups(&groups);
        let of = |input: &MapInput| map(by_name("numaloc").unwrap(), input).unwrap();
        assert_eq!(of(&plain), of(&grouped), "seed {seed}");
    }
}

#[test]
fn a_budget_is_used_up_and_never_hurts() {
    let machine = resolve("numa:4 core:4 pu:2").unwrap();
    let comm = random_matrix(32, 0.3, 5);
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let expired = || calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= 5;
    let input = MapInput::new(&comm, &machine);
    let plain = map(by_name("numaloc").unwrap(), &input).unwrap();
    let longer = input.clone().with_budget(&expired);
    let longer = map(by_name("numaloc").unwrap(), &longer).unwrap();
    assert!(cost(&input, &longer.mapping) <= cost(&input, &plain.mapping));
    assert!(
        longer.diagnostics.contains(&("rounds", 6.0)),
        "{:?}",
        longer.diagnostics
    );
}

#[test]
fn input_that_does_not_fit_is_refused() {
    let machine = resolve("numa:2 core:2 pu:1").unwrap();
    let comm = random_matrix(4, 0.5, 1);
    let policy = by_name("numaloc").unwrap();
    let with = |load: &[f64]| {
        map(
            policy,
            &MapInput::new(&comm, &machine).with_load(Some(load)),
        )
        .unwrap_err()
    };
    assert_eq!(with(&[1.0]), MapError::LoadLength { found: 1, tasks: 4 });
    assert_eq!(
        with(&[1.0, -2.0, 0.0, 0.0]),
        MapError::NotALoad {
            task: 1,
            found: -2.0
        }
    );
    let pair = GroupPair {
        a: ThreadIdx(1),
        b: ThreadIdx(9),
        in_group: 1.0,
        in_run: 1.0,
    };
    let groups = [TaskGroup { pairs: vec![pair] }];
    let refused = map(policy, &MapInput::new(&comm, &machine).with_groups(&groups)).unwrap_err();
    assert_eq!(
        refused,
        MapError::GroupTask {
            group: 0,
            task: 9,
            tasks: 4
        }
    );
    let wide = random_matrix(600, 0.01, 1);
    let refused = map(by_name("mpipp").unwrap(), &MapInput::new(&wide, &machine)).unwrap_err();
    assert!(refused.to_string().contains("at most 512"), "{refused}");
}

#[test]
fn names_and_aliases_resolve() {
    for name in [
        "locality",
        "scotch",
        "numaloc",
        "tree-match",
        "treematch",
        "eagermap",
        "mpipp",
    ] {
        assert!(by_name(name).is_some(), "{name}");
    }
    assert_eq!(by_name("locality").unwrap().name(), "tree-match");
    assert!(by_name("nonsense").is_none());
    let _ = Mapping {
        pu: vec![LogicalPu(0)],
    };
}
