//! `weighted-interleave` compared with the best of all weights, by the model of worth.

use numaloc_model::{Layer, LogicalPu, Mapping, Profile};
use numaloc_topology::{Topology, resolve};

use crate::pages;
use crate::worth::Model;
use crate::worth::tests::{Use, profile};
use crate::{Choice, Options, PlanRequest, Scope, Subject, Unobserved, plan};

/// Sum of the weights that are tried.
const PARTS: u32 = 16;
const PAGES: u32 = 1600;

/// Each page is swept by a thread of each of `nodes` nodes, another one for the next page.
fn all_read_all(nodes: u32, threads_of_node: u32) -> Profile {
    let uses: Vec<Use> = (0..PAGES)
        .flat_map(|page| {
            let turn = page * 7 % threads_of_node;
            (0..nodes).map(move |node| (0, page, node * threads_of_node + turn, 512))
        })
        .collect();
    profile(nodes * threads_of_node, &uses, &[])
}

/// All weights of `nodes` nodes that add up to `PARTS`.
fn all_weights(nodes: usize) -> Vec<Vec<u32>> {
    let mut found = vec![Vec::new()];
    for left in (0..nodes).rev() {
        let grown = found.iter().flat_map(|weights: &Vec<u32>| {
            let rest = PARTS - weights.iter().sum::<u32>();
            let least = if left == 0 { rest } else { 0 };
            (least..=rest).map(|weight| [&weights[..], &[weight]].concat())
        });
        found = grown.collect();
    }
    found
}

/// Seconds with the policy's own weights, with even ones, and with the best of all.
fn seconds(machine: &Topology, nodes: &[u32], threads_of_node: u32) -> [f64; 3] {
    let run = all_read_all(nodes.len() as u32, threads_of_node);
    let pus = nodes.iter().flat_map(|&node| {
        let pus = &machine.nodes()[node as usize].pus;
        pus[..threads_of_node as usize].iter().copied()
    });
    let mapping = Mapping {
        pu: pus.collect::<Vec<LogicalPu>>(),
    };
    let model = Model::of(&run, Layer::WriteRead, machine).unwrap();
    let seated = model.seated(&mapping);
    let by = |weights: Option<Vec<u32>>| {
        let policy = numaloc_placement::policy("weighted-interleave").unwrap();
        let options = Options {
            weights,
            ..Options::default()
        };
        let placed = pages::place(policy, &run, &mapping, machine, &options).unwrap();
        seated.worth(&placed.placement).seconds
    };
    let of = machine.nodes().len();
    let best = all_weights(of).into_iter().map(|weights| by(Some(weights)));
    [
        by(None),
        by(Some(vec![1; of])),
        best.fold(f64::INFINITY, f64::min),
    ]
}

#[test]
fn weights_by_bandwidth_are_within_5_percent_of_the_best_of_all() {
    for (name, nodes, threads_of_node) in [
        ("cxl-2s", &[0, 2][..], 32),
        ("cxl-2s", &[0], 32),
        ("purple", &[0, 1], 8),
        ("skylake-4s", &[0, 1, 2, 3], 12),
        ("skylake-4s", &[0, 1], 12),
        ("skylake-4s", &[1], 12),
        ("deloc-4n", &[0, 1, 2, 3], 8),
        ("deloc-4n", &[0, 2], 8),
    ] {
        let machine = resolve(name).unwrap();
        let [own, even, best] = seconds(&machine, nodes, threads_of_node);
        println!(
            "{name} {nodes:?}: {:.3} of the best, even weights {:.3}",
            own / best,
            even / best
        );
        assert!(own <= best * 1.05, "{name} {nodes:?}: {own} {best}");
    }
}

#[test]
fn with_a_slow_memory_only_node_the_default_plan_is_never_slower_than_as_it_is() {
    let machine = resolve("cxl-2s").unwrap();
    let run = all_read_all(2, 32);
    let subject = Subject::new(std::borrow::Cow::Owned(run), &Scope::default()).unwrap();
    let request = PlanRequest {
        subject: &subject,
        machine: &machine,
        choice: &Choice::open(None, None).unwrap(),
        options: &Options::default(),
    };
    let ranking = plan(request, &Unobserved).unwrap().ranking().unwrap();
    let rated = |name: &str| ranking.candidates.iter().any(|rated| rated.pages == name);
    assert!(rated("weighted-interleave"), "it is a candidate");
    assert!(ranking.plan().seconds <= ranking.as_it_is.seconds);
}

#[test]
fn without_bandwidths_it_is_no_candidate_and_is_left_out_of_a_comparison() {
    let machine = resolve("numa:2 core:2 pu:1").unwrap();
    let run = all_read_all(2, 2);
    let subject = Subject::new(std::borrow::Cow::Owned(run), &Scope::default()).unwrap();
    let planned = |threads, pages| {
        let request = PlanRequest {
            subject: &subject,
            machine: &machine,
            choice: &Choice::open(threads, pages).unwrap(),
            options: &Options::default(),
        };
        let planned = plan(request, &Unobserved);
        planned.map(|planned| planned.ranking().unwrap().candidates)
    };
    let without = |name: &str| name != "weighted-interleave";
    assert!(
        planned(None, None)
            .unwrap()
            .iter()
            .all(|rated| without(rated.pages))
    );
    assert!(
        planned(None, Some("all"))
            .unwrap()
            .iter()
            .all(|rated| without(rated.pages))
    );
    assert!(planned(Some("packed"), Some("weighted-interleave")).is_err());
}
