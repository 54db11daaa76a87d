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
    let chart = |name,
                 title: &str,
                 caption: &str,
                 stacked,
                 show: fn(f64) -> String,
                 series: Vec<(&str, Vec<Option<f64>>)>| {
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
    let one = |key: &str| {
        let drawn = metrics::declared(key).and_then(|metric| metric.chart);
        drawn.map(|drawn| {
            let series = vec![(drawn.title, metric(key))];
            chart(
                drawn.name,
                drawn.title,
                drawn.caption,
                false,
                drawn.show,
                series,
            )
        })
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
    [
        one("communication_load_bytes"),
        one("communication_concurrency"),
        one("communication_ratio"),
        one("dram_ratio"),
        one("communication_locality"),
        one("communication_heterogeneity"),
        one("communication_amount"),
        one("phase_rate"),
        Some(chart(
            "runs-exclusivity",
            "Exclusivity with the best assignment found",
            "For three page sizes (OPT Fig. 6).",
            false,
            number::percent,
            by_size(|e| e.most),
        )),
        Some(chart(
            "runs-exclusivity-difference",
            "Best minus worst assignment",
            "What thread mapping does to exclusivity (OPT Fig. 7).",
            false,
            number::percent,
            by_size(|e| e.most - e.least),
        )),
        Some(chart(
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
        )),
        Some(chart(
            "runs-accuracy",
            "Accuracy of first touch",
            "Pages on their main user's node, and accesses to them (OPT Fig. 8).",
            false,
            number::percent,
            vec![
                ("pages", metric("first_touch_page_accuracy")),
                ("accesses", metric("first_touch_access_accuracy")),
            ],
        )),
        Some(chart(
            "runs-balance",
            "Balance under first touch",
            "Pages on the nodes, and accesses that the nodes answer (data mapping Fig. 2).",
            false,
            number::percent,
            vec![
                ("pages", metric("first_touch_page_balance")),
                ("accesses", metric("first_touch_access_balance")),
            ],
        )),
        one("memory_bytes"),
        one("first_touch_local_share"),
        one("false_sharing"),
        one("remote_communication"),
        one("load_deviation"),
        one("load_imbalance"),
        Some(chart(
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
        )),
    ]
    .into_iter()
    .flatten()
    .collect()
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
