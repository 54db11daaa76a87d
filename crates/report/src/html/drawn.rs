//! Every figure of a report, for the page and for `--svg` and `--png`.

use numaloc_topology::Topology;

use super::Report;
use crate::figures::{self, Figure, NodeSeries, Occupied, Paint};
use crate::number;
use crate::runs;

/// The static figures, in the report's order.
#[must_use]
pub fn figures(report: &Report<'_>, paint: Paint) -> Vec<Figure> {
    let (profile, c) = (report.profile, report.found);
    let mut all = Vec::new();
    if c.events.stored_cells() > 0 {
        all.push(Figure {
            name: "matrix",
            title: format!("Communication matrix ({})", c.layer.name()),
            caption: "Rows produce data, columns consume it.".into(),
            svg: figures::matrix(&c.events, number::count, paint),
        });
        if c.bytes.stored_cells() > 0 {
            all.push(Figure {
                name: "matrix-bytes",
                title: format!("Communication matrix ({}), bytes", c.layer.name()),
                caption: "The same in bytes.".into(),
                svg: figures::matrix(&c.bytes, number::bytes, paint),
            });
        }
    }
    // A run of one slice has nothing to show over time.
    if c.events.stored_cells() > 0 && profile.slices().len() > 1 {
        all.push(Figure {
            name: "timeline",
            title: "Communication over time".into(),
            caption:
                "Events per slice (for messages: bytes). Each colour is one cluster of concurrent communication."
                    .into(),
            svg: figures::timeline(profile, c, paint),
        });
        all.push(Figure {
            name: "behaviour",
            title: "Pattern over time".into(),
            caption: "Amount and heterogeneity of every slice. Heterogeneity is high where few pairs talk, low \
                      where everybody does.".into(),
            svg: figures::behaviour(c, paint),
        });
        if let Some(svg) = figures::phase_matrices(profile, c, paint) {
            all.push(Figure {
                name: "phase-matrices",
                title: "Communication matrix of each phase".into(),
                caption: "One matrix for each stretch between changes of the pattern, those with most communication."
                    .into(),
                svg,
            });
        }
    }
    if let Some(svg) = figures::load(&c.load, paint) {
        all.push(Figure {
            name: "load",
            title: "Memory accesses over time".into(),
            caption: "Loads and stores per slice: when memory is under pressure.".into(),
            svg,
        });
    }
    if c.pages.pages > 0 {
        all.push(Figure {
            name: "exclusivity",
            title: "Page exclusivity".into(),
            caption:
                "Far right: pages that only one node uses. They gain most from correct placement."
                    .into(),
            svg: figures::distribution(c, paint),
        });
        all.push(Figure {
            name: "exclusivity-by-page-size",
            title: "Exclusivity by page size".into(),
            caption: "Share of the accesses that can be local. It falls with larger pages and more nodes."
                .into(),
            svg: figures::by_page_size(c, paint),
        });
        let mut pages = vec![series("first touch", &c.pages.node_pages)];
        let mut accesses = vec![series("first touch", &c.pages.node_accesses)];
        for plan in report.plans {
            pages.push(series(&plan.name, &plan.pages.node_pages));
            accesses.push(series(&plan.name, &plan.pages.node_accesses));
        }
        all.push(Figure {
            name: "pages-per-node",
            title: "Pages on every node".into(),
            caption: "Number of pages on each node; equal bars are page balance 1.".into(),
            svg: figures::per_node(&pages, "pages", paint),
        });
        all.push(Figure {
            name: "accesses-per-node",
            title: "Accesses that every node answers".into(),
            caption: "The load of the memory controllers; one tall bar is a bottleneck.".into(),
            svg: figures::per_node(&accesses, "accesses", paint),
        });
        if !report.policies.is_empty() {
            all.push(Figure {
                name: "balance",
                title: "Balance under page policies".into(),
                caption: "How evenly the nodes hold pages and answer accesses; 100 % is even."
                    .into(),
                svg: figures::balance(report.policies, paint),
            });
            all.push(Figure {
                name: "accuracy",
                title: "Accuracy of page policies".into(),
                caption: "Pages on the node that uses them most, and the accesses to such pages."
                    .into(),
                svg: figures::accuracy(report.policies, paint),
            });
        }
    }
    if let Some(found) = &c.migrations {
        all.push(Figure {
            name: "migrations",
            title: "Page migrations".into(),
            caption: "Moves needed to keep every page on the node that uses it most in each slice. Mostly \
                      none: a place chosen once will do.".into(),
            svg: figures::migrations(found, paint),
        });
        all.push(Figure {
            name: "page-behaviour",
            title: "Page use over time".into(),
            caption: "Pages that must move in every slice to stay with their main user, and the share of the \
                      slice's accesses that can be local.".into(),
            svg: figures::page_behaviour(found, paint),
        });
    }
    if let Some(machine) = report.machine {
        for (name, title, caption, pus) in mappings(report, machine) {
            all.push(Figure {
                name,
                title,
                caption,
                svg: figures::machine(
                    machine,
                    &pus,
                    if report.plans.is_empty() {
                        1080.0
                    } else {
                        530.0
                    },
                    paint,
                ),
            });
        }
    }
    if report.compared.len() > 1 {
        all.extend(runs::figures(report.compared, paint));
    }
    all.extend(super::simulated::figures(report.simulated, paint));
    all
}

fn series(name: &str, by_node: &[u64]) -> NodeSeries {
    NodeSeries {
        name: name.to_owned(),
        by_node: by_node.to_vec(),
    }
}

/// Threads on PUs, before (in order) and after every plan. Colours: the node of the first plan, so
/// that "after" is one colour per node and "before" shows what was mixed.
fn mappings(
    report: &Report<'_>,
    machine: &Topology,
) -> Vec<(&'static str, String, String, Vec<Occupied>)> {
    let c = report.found;
    let colour = |t: usize| match report.plans.first() {
        Some(plan) => plan.assignment.node(t),
        None => c.assignment.node(t),
    };
    let count = machine.pus().len();
    let threads = report.profile.threads().len();
    let mut before = vec![Occupied::default(); count];
    // Blocks over nodes, in order within a node: what page metrics assume.
    let mut next: Vec<usize> = vec![0; machine.nodes().len()];
    for t in 0..threads {
        let node = c.assignment.node(t).min(machine.nodes().len() - 1);
        let pus = &machine.nodes()[node].pus;
        if !pus.is_empty() {
            let pu = pus[next[node] % pus.len()];
            next[node] += 1;
            before[pu.index()].threads.push((t, colour(t)));
        }
    }
    let share = numaloc_analysis::mapping_cost::remote_share(c.weighed(), c.layer, &c.assignment);
    let mut all = vec![(
        "threads-before",
        "Before: threads in order".to_owned(),
        format!(
            "{} of the communication is between nodes.",
            number::percent(share)
        ),
        before,
    )];
    const NAMES: [&str; 4] = [
        "threads-plan-1",
        "threads-plan-2",
        "threads-plan-3",
        "threads-plan-4",
    ];
    for (plan, name) in report.plans.iter().zip(NAMES) {
        let mut after = vec![Occupied::default(); count];
        for (t, pu) in plan.pus.iter().enumerate() {
            if let Some(pu) = pu {
                after[pu.index()].threads.push((t, colour(t)));
            }
        }
        let missing = match plan.missing_threads {
            0 => String::new(),
            n => format!(" {n} threads of the run are not in the plan."),
        };
        all.push((
            name,
            format!("{}: {}", plan.name, plan.policies),
            format!(
                "{} of the communication is between nodes; busiest node {} times the mean.{missing}",
                number::percent(plan.remote_share),
                number::fixed(plan.imbalance, 2)
            ),
            after,
        ));
    }
    all
}
