//! Affinities and plans on hand-made profiles.

mod support;

use numaloc_task_plan::{
    Access, AnalyseError, Block, Distribution, Doubt, Options, SimulatedRun, TaskProfile, analyse,
};
use support::{strands, task};

#[test]
fn regression_finds_the_cost_of_each_slot() {
    let machine = numaloc_topology::resolve("numa:4 pu:2").unwrap();
    let analysis = analyse(&strands(8, 6), &machine, Options::default()).unwrap();
    let mut seen = 0;
    for slots in &analysis.affinity.estimates {
        if let (Some(first), Some(second)) = (slots.get(&0), slots.get(&1)) {
            // Least squares: 100 us and 0 within the noise; shrinkage moves them by little.
            assert!((first.measured.unwrap() - 100e-6).abs() < 2e-6, "{first:?}");
            assert!(second.measured.unwrap().abs() < 2e-6, "{second:?}");
            assert!(
                first.seconds > 20.0 * second.seconds,
                "{first:?} {second:?}"
            );
            seen += 1;
        }
    }
    // Every strand: the first work task and the later ones.
    assert_eq!(seen, 16);
}

#[test]
fn strands_follow_their_blocks_in_blocks_over_the_nodes() {
    let machine = numaloc_topology::resolve("numa:4 pu:2").unwrap();
    let analysis = analyse(&strands(8, 6), &machine, Options::default()).unwrap();
    for part in 0..8_u16 {
        let class = analysis
            .plan
            .classes
            .iter()
            .filter(|class| class.path.starts_with(&format!("(main,{part},start)")));
        for class in class {
            // floor(part * 4 / 8)
            assert_eq!(class.node, Some(part / 2), "{}", class.path);
        }
    }
    let load = &analysis.load;
    assert!(
        load.iter()
            .all(|&l| l <= 1.1 * load.iter().sum::<f64>() / 4.0 + 1e-12)
    );
}

/// The same program with its start tasks run in another order, so that their blocks were created in another.
fn created_in_another_order(mut profile: TaskProfile) -> TaskProfile {
    let blocks = profile.blocks.len() as u32;
    let moved = |block: u32| (block * 3 + 1) % blocks;
    let before = profile.blocks.clone();
    for (at, block) in before.into_iter().enumerate() {
        profile.blocks[moved(at as u32) as usize] = block;
    }
    for access in &mut profile.accesses {
        access.block = moved(access.block);
    }
    profile
}

#[test]
fn the_plan_does_not_depend_on_when_blocks_were_created_nor_on_noise() {
    let machine = numaloc_topology::resolve("numa:4 pu:2").unwrap();
    for distribution in [Distribution::Block, Distribution::Joint, Distribution::Best] {
        let options = Options {
            distribution,
            ..Options::default()
        };
        let plan = |profile: &TaskProfile| analyse(profile, &machine, options).unwrap().plan;
        let first = strands(8, 6);
        let expected = plan(&first);
        assert_eq!(plan(&created_in_another_order(first.clone())), expected);
        // Times vary by up to half either way, differently for each task and replay.
        let mut noisy = first;
        for (at, task) in noisy.tasks.iter_mut().enumerate() {
            task.seconds *= 1.0 + 0.5 * ((at * 7919 % 100) as f64 / 50.0 - 1.0);
        }
        for (at, replay) in noisy.replays.iter_mut().enumerate() {
            replay.seconds += 30e-6 * ((at * 104_729 % 100) as f64 / 50.0 - 1.0);
        }
        assert_eq!(plan(&noisy), expected, "{distribution:?}");
    }
}

/// One chain of tasks that use all blocks: near if left where they were created, far if spread over the nodes.
fn one_chain() -> TaskProfile {
    let mut profile = strands(8, 1);
    profile.tasks.truncate(9);
    profile.accesses.clear();
    profile.replays.clear();
    let mut last = 0;
    for _ in 0..20 {
        let at = profile.tasks.len() as u32;
        profile
            .tasks
            .push(task(Some(last), 8 * u32::from(last == 0), "all", 8));
        last = at;
        for slot in 0..8 {
            profile.accesses.push(Access {
                task: at,
                slot,
                block: slot,
                mode: "RW".to_owned(),
            });
        }
    }
    profile
}

#[test]
fn a_plan_that_is_slower_than_none_or_places_few_tasks_is_doubted() {
    let machine = numaloc_topology::resolve("skylake-4s").unwrap();
    let options = Options {
        distribution: Distribution::Block,
        ..Options::default()
    };
    let analysis = analyse(&one_chain(), &machine, options).unwrap();
    assert_eq!(analysis.doubt(), Some(Doubt::Slower), "{analysis:?}");
    assert!(
        analysis.simulated.larger.remote_bytes
            > analysis.simulated_without_plan.larger.remote_bytes
    );
    // Strands by their blocks: only with the plan are the blocks near.
    let analysis = analyse(&strands(8, 6), &machine, options).unwrap();
    assert_eq!(analysis.doubt(), None, "{analysis:?}");
    // A thousand tasks that use no other block.
    let mut profile = strands(8, 6);
    for position in 8..1008 {
        profile.tasks.push(task(Some(0), position, "idle", 0));
    }
    let analysis = analyse(&profile, &machine, options).unwrap();
    assert_eq!(analysis.doubt(), Some(Doubt::PlacesFewTasks));
}

/// A loop whose iterations create a task for each of `parts` equal blocks, which were made before the loop.
fn fork_join(parts: u32, turns: u32) -> TaskProfile {
    let mut profile = strands(parts, 0);
    for block in &mut profile.blocks {
        block.bytes = 100_000;
    }
    let mut last = 0;
    for turn in 0..turns {
        let at = profile.tasks.len() as u32;
        let position = if turn == 0 { parts } else { parts + 1 };
        profile.tasks.push(task(Some(last), position, "loop", 1));
        // An iteration begins when the tasks of the one before have ended.
        for before in 0..parts.min(at - 1) {
            profile.dependences.push((at - 1 - before, at));
        }
        last = at;
        for part in 0..parts {
            profile.accesses.push(Access {
                task: profile.tasks.len() as u32,
                slot: 0,
                block: part,
                mode: "RW".to_owned(),
            });
            profile.tasks.push(task(Some(at), part, "work", 1));
        }
    }
    profile
}

#[test]
fn without_a_plan_equal_tasks_do_not_meet_the_same_worker_in_every_iteration() {
    let machine = numaloc_topology::resolve("numa:4 pu:4").unwrap();
    let analysis = analyse(&fork_join(16, 8), &machine, Options::default()).unwrap();
    // By chance, three of four blocks are on another node.
    let without = analysis.simulated_without_plan.larger;
    let share = without.remote_share();
    assert!((0.6..0.9).contains(&share), "{share}");
    assert_eq!(analysis.simulated.larger.remote_bytes, 0);
    assert!(without.seconds > analysis.simulated.larger.seconds);
}

/// Three blocks of a kind for four nodes: the paper's distribution leaves them open.
#[test]
fn the_best_distribution_is_joint_where_only_joint_decides() {
    let machine = numaloc_topology::resolve("numa:4 pu:2").unwrap();
    let made = |distribution| {
        let options = Options {
            distribution,
            ..Options::default()
        };
        analyse(&strands(3, 6), &machine, options)
    };
    assert_eq!(
        made(Distribution::Block).unwrap_err(),
        AnalyseError::NothingToPlace
    );
    let joint = made(Distribution::Joint).unwrap();
    let best = made(Distribution::Best).unwrap();
    assert_eq!(best.distribution, Distribution::Joint);
    assert_eq!(best.plan, joint.plan);
}

#[test]
fn joint_distribution_places_every_block_within_its_share() {
    let machine = numaloc_topology::resolve("numa:4 pu:2").unwrap();
    let options = Options {
        distribution: Distribution::Joint,
        ..Options::default()
    };
    let analysis = analyse(&strands(8, 6), &machine, options).unwrap();
    let mut count = [0; 4];
    for class in &analysis.plan.classes {
        for block in &class.blocks {
            count[usize::from(block.node.unwrap())] += 1;
        }
    }
    assert_eq!(count, [2; 4]);
}

#[test]
fn a_recursion_is_refused_and_an_empty_profile_too() {
    let machine = numaloc_topology::resolve("numa:2 pu:2").unwrap();
    let mut profile = TaskProfile {
        tasks: vec![task(None, 0, "main", 0), task(Some(0), 0, "fib", 0)],
        ..TaskProfile::default()
    };
    let mut next = 1;
    while profile.tasks.len() < 200 {
        for position in 0..2 {
            profile.tasks.push(task(Some(next), position, "fib", 0));
        }
        next += 1;
    }
    let error = analyse(&profile, &machine, Options::default()).unwrap_err();
    assert!(matches!(error, AnalyseError::Recursion { .. }), "{error}");
    let error = analyse(&TaskProfile::default(), &machine, Options::default()).unwrap_err();
    assert_eq!(error, AnalyseError::Empty);
}

/// A solver's loop whose iterations go down `levels` levels, one task creating the next, each with `parts` tasks on
/// blocks of its level; a block of a level is `shrink` times as large as one of the next.
fn cycles(turns: u32, levels: u32, parts: u32, shrink: u64) -> TaskProfile {
    let mut profile = TaskProfile {
        machine: "by hand".to_owned(),
        nodes: 4,
        method: "none".to_owned(),
        tasks: vec![task(None, 0, "main", 0)],
        ..TaskProfile::default()
    };
    let add = |profile: &mut TaskProfile, creator, position, template, slots| {
        profile
            .tasks
            .push(task(Some(creator), position, template, slots));
        profile.tasks.len() as u32 - 1
    };
    for at in 0..levels * parts {
        let creator = add(&mut profile, 0, at, "init", 0);
        profile.blocks.push(Block {
            creator: Some(creator),
            position: 0,
            bytes: 64 * shrink.pow(levels - at / parts),
            hint: None,
        });
    }
    let mut solver = add(&mut profile, 0, levels * parts, "loop", 0);
    for _ in 0..turns {
        let mut above = add(&mut profile, solver, 0, "cycle", 0);
        for level in 0..levels {
            for part in 0..parts {
                let at = add(&mut profile, above, part, "smooth", 1);
                profile.accesses.push(Access {
                    task: at,
                    slot: 0,
                    block: level * parts + part,
                    mode: "RW".to_owned(),
                });
            }
            if level + 1 < levels {
                above = add(&mut profile, above, parts, "cycle", 0);
            }
        }
        solver = add(&mut profile, solver, 1, "loop", 0);
    }
    profile
}

#[test]
fn a_cycle_over_levels_has_classes_by_depth_and_a_nested_loop_does_not() {
    let machine = numaloc_topology::resolve("numa:4 pu:2").unwrap();
    let smoothers = |profile: &TaskProfile| {
        let plan = analyse(profile, &machine, Options::default()).unwrap().plan;
        let found = plan.classes.into_iter();
        found
            .filter(|class| class.template == "smooth")
            .collect::<Vec<_>>()
    };
    // Five levels of four parts; in the first iteration of the solver and in all others.
    let by_depth = smoothers(&cycles(6, 5, 4, 4));
    assert_eq!(by_depth.len(), 2 * 5 * 4);
    // Every part of a level has its own data, and all parts fit on one node each.
    assert!(by_depth.iter().all(|class| class.node.is_some()));
    // The same data at every depth: a loop of five iterations. The first two have classes of their own.
    let folded = smoothers(&cycles(6, 5, 4, 1));
    assert_eq!(folded.len(), 2 * 2 * 4);
    // A run with more iterations of the solver has no other classes.
    assert_eq!(by_depth.len(), smoothers(&cycles(12, 5, 4, 4)).len());
}

#[test]
fn the_end_of_a_loop_does_not_count_when_a_plan_is_simulated() {
    let machine = numaloc_topology::resolve("numa:4 pu:2").unwrap();
    let profile = cycles(6, 1, 8, 4);
    let tried = |profile: &TaskProfile| {
        let analysis = analyse(profile, &machine, Options::default()).unwrap();
        [
            analysis.simulated.larger,
            analysis.simulated_without_plan.larger,
        ]
    };
    let mut checked = profile.clone();
    let last = checked.tasks.len() as u32 - 1;
    checked.tasks.push(task(Some(last), 0, "check", 8));
    for block in 0..8 {
        checked.accesses.push(Access {
            task: last + 1,
            slot: block,
            block,
            mode: "RO".to_owned(),
        });
    }
    for (with, without) in tried(&checked).into_iter().zip(tried(&profile)) {
        let all = |tried: SimulatedRun| tried.local_bytes + tried.remote_bytes;
        assert_eq!(all(with), all(without));
    }
}

#[test]
fn noise_does_not_contradict_bytes_but_an_untouched_block_does() {
    let machine = numaloc_topology::resolve("numa:4 pu:2").unwrap();
    let weights = |profile: &TaskProfile| {
        let analysis = analyse(profile, &machine, Options::default()).unwrap();
        let classes = analysis.plan.classes.iter().enumerate();
        let of_work = classes.filter(|(_, class)| class.template == "work");
        of_work
            .flat_map(|(class, _)| {
                [0, 1].map(|slot| analysis.affinity.weight(class, slot).unwrap())
            })
            .collect::<Vec<f64>>()
    };
    let quiet = strands(8, 8);
    for pair in weights(&quiet).chunks(2) {
        assert!(*pair == [1000.0, 1000.0 / 64.0], "{pair:?}");
    }
    // The same tasks on a busy machine, several times: up to ten times their duration is added at random.
    for seed in 1..20_u64 {
        let mut noisy = quiet.clone();
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for replay in &mut noisy.replays {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let draw = (random >> 40) as f64 / (1_u64 << 24) as f64;
            replay.seconds += 1e-2 * draw.powi(8);
        }
        assert!(
            weights(&noisy).iter().all(|&weight| weight == 1000.0),
            "seed {seed}: {:?}",
            weights(&noisy)
        );
    }
}
