//! Several runs compared: the overview charts of the papers, a bar for each run.

use numaloc_analysis::Characterisation;
use numaloc_analysis::characterise::ExclusivityAt;

use crate::figures::{Bars, Figure, Paint, bars};
use crate::metrics::{self, Metric};
use crate::number;

/// The data of a run that the charts need.
#[derive(Clone, Debug)]
pub struct Run {
    /// Name for the charts.
    pub name: String,
    metrics: Vec<Metric>,
    exclusivity: Vec<ExclusivityAt>,
    /// Pages by number of migrations.
    migrations: Option<Vec<u64>>,
}

/// Numbers of migrations of a page that the charts distinguish; the last one stands for this many or more.
const MOVES: usize = 4;

impl Run {
    /// Keeps what the charts need.
    #[must_use]
    pub fn of(name: &str, c: &Characterisation) -> Self {
        Self {
            name: name.to_owned(),
            metrics: metrics::sections(c)
                .into_iter()
                .flat_map(|s| s.metrics)
                .collect(),
            exclusivity: c.exclusivity.clone(),
            migrations: c.migrations.as_ref().map(|m| m.pages.clone()),
        }
    }

    fn metric(&self, key: &str) -> Option<f64> {
        self.metrics.iter().find(|m| m.key == key)?.value
    }

    fn at_size(&self, size: u64, value: impl Fn(&ExclusivityAt) -> f64) -> Option<f64> {
        self.exclusivity
            .iter()
            .find(|e| e.page_size == size)
            .map(value)
    }

    /// Share of the pages that move `moves` times ([`MOVES`] - 1: or more often).
    fn moved(&self, moves: usize) -> Option<f64> {
        let pages = self.migrations.as_ref()?;
        let all: u64 = pages.iter().sum();
        let last = if moves + 1 == MOVES {
            pages.len()
        } else {
            moves + 1
        };
        let these: u64 = pages.get(moves..last)?.iter().sum();
        (all > 0).then(|| these as f64 / all as f64)
    }
}

const SIZES: [(u64, &str); 3] = [(4 << 10, "4 KiB"), (2 << 20, "2 MiB"), (64 << 20, "64 MiB")];

/// The charts, for two runs or more.
#[must_use]
pub fn figures(runs: &[Run], paint: Paint) -> Vec<Figure> {
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    let chart =
        |name, title: &str, caption: &str, stacked, show, series: Vec<(&str, Vec<Option<f64>>)>| {
            Figure {
                name,
                title: title.to_owned(),
                caption: caption.to_owned(),
                svg: bars(
                    &Bars {
                        label: title,
                        runs: &names,
                        series,
                        stacked,
                        show,
                    },
                    paint,
                ),
            }
        };
    let metric = |key: &str| runs.iter().map(|run| run.metric(key)).collect::<Vec<_>>();
    let one = |name, title: &str, caption: &str, show, key: &str| {
        chart(
            name,
            title,
            caption,
            false,
            show,
            vec![(title, metric(key))],
        )
    };
    let by_size = |value: fn(&ExclusivityAt) -> f64| {
        SIZES
            .iter()
            .map(|&(size, word)| {
                (
                    word,
                    runs.iter().map(|run| run.at_size(size, value)).collect(),
                )
            })
            .collect::<Vec<(&str, Vec<Option<f64>>)>>()
    };
    let at = |size: u64, value: fn(&ExclusivityAt) -> f64| {
        runs.iter()
            .map(|run| run.at_size(size, value))
            .collect::<Vec<_>>()
    };
    let moved = |moves| runs.iter().map(|run| run.moved(moves)).collect::<Vec<_>>();
    vec![
        one(
            "runs-load",
            "Communication load",
            "Bytes exchanged (DeLoc eq. 4).",
            number::bytes,
            "communication_load_bytes",
        ),
        one(
            "runs-concurrency",
            "Communication concurrency",
            "Threads that communicate at the same time (DeLoc eq. 6).",
            number::percent,
            "communication_concurrency",
        ),
        one(
            "runs-ratio",
            "Communication-to-memory ratio",
            "Share of the accessed bytes (DeLoc eq. 5).",
            number::percent,
            "communication_ratio",
        ),
        one(
            "runs-dram-ratio",
            "DRAM-to-memory ratio",
            "Share of the accessed bytes from DRAM (DeLoc eq. 7).",
            number::percent,
            "dram_ratio",
        ),
        one(
            "runs-locality",
            "Communication locality",
            "How strongly threads prefer some partners (DeLoc eq. 9).",
            number::plain,
            "communication_locality",
        ),
        one(
            "runs-heterogeneity",
            "Heterogeneity",
            "What grouping threads can win (OPT eq. 2).",
            number::plain,
            "communication_heterogeneity",
        ),
        one(
            "runs-amount",
            "Amount",
            "Events per cell of the matrix (OPT eq. 3).",
            number::count,
            "communication_amount",
        ),
        one(
            "runs-phases",
            "Phases",
            "Changes of the pattern by time: the fewer, the better one mapping fits (OPT Fig. 4).",
            number::plain,
            "phase_rate",
        ),
        chart(
            "runs-exclusivity",
            "Exclusivity with the best assignment found",
            "For three page sizes (OPT Fig. 6).",
            false,
            number::percent,
            by_size(|e| e.most),
        ),
        chart(
            "runs-exclusivity-difference",
            "Best minus worst assignment",
            "What thread mapping does to exclusivity (OPT Fig. 7).",
            false,
            number::percent,
            by_size(|e| e.most - e.least),
        ),
        chart(
            "runs-inherent",
            "Exclusivity by nodes and page size",
            "With the nodes of this report, and with a node for every thread (data mapping Fig. 1).",
            false,
            number::percent,
            vec![
                ("4 KiB", at(4 << 10, |e| e.assigned)),
                ("2 MiB", at(2 << 20, |e| e.assigned)),
                ("4 KiB, node per thread", at(4 << 10, |e| e.inherent)),
                ("2 MiB, same", at(2 << 20, |e| e.inherent)),
            ],
        ),
        chart(
            "runs-accuracy",
            "Accuracy of first touch",
            "Pages on their main user's node, and accesses to them (OPT Fig. 8).",
            false,
            number::percent,
            vec![
                ("pages", metric("first_touch_page_accuracy")),
                ("accesses", metric("first_touch_access_accuracy")),
            ],
        ),
        chart(
            "runs-balance",
            "Balance under first touch",
            "Pages on the nodes, and accesses that the nodes answer (data mapping Fig. 2).",
            false,
            number::percent,
            vec![
                ("pages", metric("first_touch_page_balance")),
                ("accesses", metric("first_touch_access_balance")),
            ],
        ),
        one(
            "runs-memory",
            "Memory used",
            "Pages with accesses (OPT eq. 7).",
            number::bytes,
            "memory_bytes",
        ),
        one(
            "runs-local",
            "Local under first touch",
            "Share of the accesses.",
            number::percent,
            "first_touch_local_share",
        ),
        one(
            "runs-false-sharing",
            "False sharing",
            "Events that share a line but no data.",
            number::percent,
            "false_sharing",
        ),
        one(
            "runs-remote",
            "Communication between nodes",
            "RemoteComm, threads in blocks (CMLB eq. 4, 5).",
            number::count,
            "remote_communication",
        ),
        one(
            "runs-deviation",
            "Load deviation",
            "Load_std of the nodes, threads in blocks (CMLB eq. 6).",
            number::count,
            "load_deviation",
        ),
        one(
            "runs-imbalance",
            "Busiest node",
            "Times the mean load of the nodes.",
            number::plain,
            "load_imbalance",
        ),
        chart(
            "runs-migrations",
            "Pages by number of migrations",
            "To keep every page on its main user's node, slice by slice (OPT Fig. 9, data mapping Fig. 4).",
            true,
            number::percent,
            vec![
                ("none", moved(0)),
                ("1", moved(1)),
                ("2", moved(2)),
                ("3 or more", moved(3)),
            ],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_moved_three_times_or_more_are_one_share() {
        let run = Run {
            name: "a".into(),
            metrics: Vec::new(),
            exclusivity: Vec::new(),
            migrations: Some(vec![5, 2, 1, 1, 1, 0, 0, 0, 0, 0, 0]),
        };
        let shares: Vec<f64> = (0..MOVES).map(|m| run.moved(m).unwrap()).collect();
        assert_eq!(shares, [0.5, 0.2, 0.1, 0.2]);
        // A bar for each run and no value that is not there.
        let drawn = figures(&[run.clone(), run], Paint::file());
        assert_eq!(drawn.len(), 20);
        assert_eq!(drawn[0].svg.matches("not observed").count(), 2);
        assert!(drawn[19].svg.contains("a, none: 50.0 %"));
    }
}
