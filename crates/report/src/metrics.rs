//! Every metric of a characterisation, with what a reader needs to use it. `show`, `report`, `diff` and
//! the JSON outputs print this one list; `docs/metrics.md` explains each entry under its key.

use numaloc_analysis::mapping_cost::{imbalance, remote_communication};
use numaloc_analysis::{Characterisation, LoadSource};
use numaloc_model::profile::Clock;

use crate::number;

/// What a value counts, and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// A count of events, accesses or pages; the word is the unit.
    Count(&'static str),
    /// A share, 0..=1.
    Share,
    /// A rate; the words are the unit.
    PerTime(&'static str),
    /// A number without a unit.
    Plain,
}

impl Unit {
    /// The unit as it stands in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Count(word) | Self::PerTime(word) => word,
            Self::Share => "share",
            Self::Plain => "1",
        }
    }
}

/// One metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Stable name in JSON and in the documentation.
    pub key: &'static str,
    /// Name for people.
    pub name: &'static str,
    /// The symbol in the paper.
    pub symbol: &'static str,
    /// `None` where not observed.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: Unit,
    /// What values it can take.
    pub range: &'static str,
    /// Paper and equation.
    pub source: &'static str,
    /// What it means: the rest of a line of 80 columns, at most 44 characters.
    pub meaning: &'static str,
}

impl Metric {
    /// The value with its unit, for people.
    #[must_use]
    pub fn shown(&self) -> String {
        self.value
            .map_or_else(|| "not observed".to_owned(), |value| self.show(value))
    }

    /// Any value of this metric's kind.
    #[must_use]
    pub fn show(&self, value: f64) -> String {
        match self.unit {
            Unit::Bytes => number::bytes(value),
            Unit::Count(_) => number::count(value),
            Unit::Share => number::percent(value),
            Unit::Plain | Unit::PerTime(_) => number::plain(value),
        }
    }
}

/// A heading and its metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// For people.
    pub title: &'static str,
    /// In reading order.
    pub metrics: Vec<Metric>,
}

/// All metrics, by section.
#[must_use]
pub fn sections(c: &Characterisation) -> Vec<Section> {
    vec![
        Section {
            title: "Communication",
            metrics: communication(c),
        },
        Section {
            title: "Pages",
            metrics: pages(c),
        },
        Section {
            title: "Load of the nodes",
            metrics: load(c),
        },
    ]
}

/// Clock ticks in the interval that rates refer to: one second or a million accesses.
fn per_tick(clock: Clock) -> f64 {
    match clock {
        Clock::Wall => 1e9,
        Clock::Virtual => 1e6,
    }
}

fn communication(c: &Characterisation) -> Vec<Metric> {
    let m = &c.communication;
    vec![
        Metric {
            key: "communication_events",
            name: "events",
            symbol: "",
            value: Some(m.events),
            unit: Unit::Count("events"),
            range: "0..",
            source: "",
            meaning: "times a thread needed another's data",
        },
        Metric {
            key: "communication_load_bytes",
            name: "load",
            symbol: "Lcomm",
            value: Some(m.load_bytes),
            unit: Unit::Bytes,
            range: "0..",
            source: "DeLoc eq. 4",
            meaning: "bytes that threads exchanged",
        },
        Metric {
            key: "communication_ratio",
            name: "ratio to memory",
            symbol: "CommR",
            value: m.ratio,
            unit: Unit::Share,
            range: "0..1",
            source: "DeLoc eq. 5",
            meaning: "of all accessed bytes were communication",
        },
        Metric {
            key: "communication_concurrency",
            name: "concurrency",
            symbol: "CommC",
            value: m.concurrency,
            unit: Unit::Share,
            range: "0..1",
            source: "DeLoc eq. 6",
            meaning: "of the threads communicate at the same time",
        },
        Metric {
            key: "false_sharing",
            name: "false sharing",
            symbol: "",
            value: c.sharing.false_share,
            unit: Unit::Share,
            range: "0..1",
            source: "",
            meaning: "of the events share a line but no data",
        },
        Metric {
            key: "dram_ratio",
            name: "DRAM ratio",
            symbol: "DramR",
            value: m.dram_ratio,
            unit: Unit::Share,
            range: "0..",
            source: "DeLoc eq. 7",
            meaning: "of the accessed bytes came from DRAM",
        },
        Metric {
            key: "communication_locality",
            name: "locality",
            symbol: "CommLoc",
            value: Some(m.locality),
            unit: Unit::Plain,
            range: "0..0.25",
            source: "DeLoc eq. 9",
            meaning: "how strongly threads prefer some partners",
        },
        Metric {
            key: "communication_heterogeneity",
            name: "heterogeneity",
            symbol: "C_H",
            value: Some(m.heterogeneity),
            unit: Unit::Plain,
            range: "0..2500",
            source: "OPT eq. 2",
            meaning: "the higher, the more thread mapping can do",
        },
        Metric {
            key: "communication_amount",
            name: "amount",
            symbol: "C_A",
            value: Some(m.amount),
            unit: Unit::Count("events per cell"),
            range: "0..",
            source: "OPT eq. 3",
            meaning: "mean events per cell of the matrix",
        },
        Metric {
            key: "clusters",
            name: "clusters in time",
            symbol: "k",
            value: Some(c.concurrency.k as f64),
            unit: Unit::Count("clusters"),
            range: "0..",
            source: "DeLoc eq. 1",
            meaning: "stretches of concurrent communication",
        },
        Metric {
            key: "phases",
            name: "phases",
            symbol: "",
            value: Some(c.phases.len() as f64),
            unit: Unit::Count("phases"),
            range: "1..",
            source: "OPT eq. 4",
            meaning: "stretches of similar heterogeneity",
        },
        Metric {
            key: "phase_rate",
            name: "phase rate",
            symbol: "",
            value: (c.duration > 0 && c.timeline.events.len() > 1)
                .then(|| c.phases.len() as f64 / c.duration as f64 * per_tick(c.clock)),
            unit: Unit::PerTime(match c.clock {
                Clock::Wall => "phases per second",
                Clock::Virtual => "phases per million accesses",
            }),
            range: "0..",
            source: "OPT fig. 4",
            meaning: match c.clock {
                Clock::Wall => "phases per second of the run",
                Clock::Virtual => "phases per 10^6 accesses of the clock",
            },
        },
        Metric {
            key: "pattern_phases",
            name: "pattern phases",
            symbol: "",
            value: Some(c.pattern_phases.len() as f64),
            unit: Unit::Count("phases"),
            range: "1..",
            source: "",
            meaning: "stretches with the same communicating pairs",
        },
        Metric {
            key: "remote_communication",
            name: "between nodes",
            symbol: "RemoteComm",
            value: Some(remote_communication(c.weighed(), c.layer, &c.assignment)),
            unit: Unit::Count(if c.layer.is_message() {
                "bytes"
            } else {
                "events"
            }),
            range: "0..",
            source: "CMLB eq. 4, 5",
            meaning: if c.layer.is_message() {
                "bytes between nodes, threads in blocks"
            } else {
                "events between nodes, threads in blocks"
            },
        },
    ]
}

fn pages(c: &Characterisation) -> Vec<Metric> {
    let p = &c.pages;
    let at = |size: u64| c.exclusivity.iter().find(|e| e.page_size == size);
    let own = c.exclusivity.first();
    vec![
        Metric {
            key: "pages",
            name: "pages used",
            symbol: "P",
            value: Some(p.pages as f64),
            unit: Unit::Count("pages"),
            range: "0..",
            source: "",
            meaning: "pages with at least one access",
        },
        Metric {
            key: "memory_bytes",
            name: "memory used",
            symbol: "",
            value: Some(p.memory_bytes() as f64),
            unit: Unit::Bytes,
            range: "0..",
            source: "OPT eq. 7",
            meaning: "if it fits the caches, nothing to gain",
        },
        Metric {
            key: "memory_to_caches",
            name: "memory / caches",
            symbol: "",
            value: c
                .cache_bytes
                .map(|caches| p.memory_bytes() as f64 / caches as f64),
            unit: Unit::Plain,
            range: "0..",
            source: "OPT eq. 7",
            meaning: "at most 1: placement cannot gain",
        },
        Metric {
            key: "page_exclusivity",
            name: "page exclusivity",
            symbol: "E_page",
            value: p.mean_page_exclusivity,
            unit: Unit::Share,
            range: "1/N..1",
            source: "OPT eq. 5",
            meaning: "mean over pages: accesses of the main node",
        },
        Metric {
            key: "application_exclusivity",
            name: "exclusivity",
            symbol: "E_app",
            value: p.exclusivity,
            unit: Unit::Share,
            range: "1/N..1",
            source: "data mapping eq. 2",
            meaning: "local if every page is on its best node",
        },
        Metric {
            key: "application_exclusivity_most",
            name: "  best assignment",
            symbol: "",
            value: own.map(|e| e.most),
            unit: Unit::Share,
            range: "1/N..1",
            source: "OPT fig. 6",
            meaning: "with the best thread assignment found",
        },
        Metric {
            key: "application_exclusivity_least",
            name: "  worst assignment",
            symbol: "",
            value: own.map(|e| e.least),
            unit: Unit::Share,
            range: "1/N..1",
            source: "OPT fig. 7",
            meaning: "with the worst thread assignment found",
        },
        Metric {
            key: "application_exclusivity_inherent",
            name: "  a node per thread",
            symbol: "",
            value: own.map(|e| e.inherent),
            unit: Unit::Share,
            range: "1/T..1",
            source: "data mapping fig. 1",
            meaning: "if every thread had a node of its own",
        },
        Metric {
            key: "application_exclusivity_2_mib",
            name: "  with 2 MiB pages",
            symbol: "",
            value: at(2 << 20).map(|e| e.assigned),
            unit: Unit::Share,
            range: "1/N..1",
            source: "OPT fig. 6",
            meaning: "if pages were 2 MiB",
        },
        Metric {
            key: "application_exclusivity_64_mib",
            name: "  with 64 MiB pages",
            symbol: "",
            value: at(64 << 20).map(|e| e.assigned),
            unit: Unit::Share,
            range: "1/N..1",
            source: "OPT fig. 6",
            meaning: "if pages were 64 MiB",
        },
        Metric {
            key: "first_touch_local_share",
            name: "local, first touch",
            symbol: "",
            value: p.local_share,
            unit: Unit::Share,
            range: "0..1",
            source: "",
            meaning: "of the accesses are local under first touch",
        },
        Metric {
            key: "first_touch_page_accuracy",
            name: "accuracy, pages",
            symbol: "Acc_page",
            value: p.page_accuracy,
            unit: Unit::Share,
            range: "0..1",
            source: "OPT eq. 8",
            meaning: "of the pages lie on their main user's node",
        },
        Metric {
            key: "first_touch_access_accuracy",
            name: "accuracy, accesses",
            symbol: "Acc_app",
            value: p.access_accuracy,
            unit: Unit::Share,
            range: "0..1",
            source: "OPT eq. 9",
            meaning: "of the accesses are to such pages",
        },
        Metric {
            key: "first_touch_page_balance",
            name: "balance, pages",
            symbol: "B_pages",
            value: p.page_balance,
            unit: Unit::Share,
            range: "0..1",
            source: "data mapping eq. 3",
            meaning: "how evenly pages lie on the nodes",
        },
        Metric {
            key: "first_touch_access_balance",
            name: "balance, accesses",
            symbol: "B_acc",
            value: p.access_balance,
            unit: Unit::Share,
            range: "0..1",
            source: "data mapping eq. 5",
            meaning: "how evenly the nodes' memories are used",
        },
        Metric {
            key: "page_migrations",
            name: "migrations",
            symbol: "",
            value: c.migrations.as_ref().map(|m| m.total as f64),
            unit: Unit::Count("migrations"),
            range: "0..",
            source: "data mapping II-C",
            meaning: "to keep pages with their slice's main user",
        },
    ]
}

fn load(c: &Characterisation) -> Vec<Metric> {
    let load = &c.load;
    let by_slice = load.smoothed.is_some();
    vec![
        Metric {
            key: "access_phases",
            name: "access phases",
            symbol: "",
            value: by_slice.then_some(load.phases.len() as f64),
            unit: Unit::Count("phases"),
            range: "1..",
            source: "CMLB alg. 1",
            meaning: "stretches between lows of memory traffic",
        },
        Metric {
            key: "load_deviation",
            name: "load deviation",
            symbol: "Load_std",
            value: Some(load.deviation),
            unit: match load.source {
                LoadSource::Dram(_) => Unit::Bytes,
                LoadSource::Accesses => Unit::Count("accesses"),
            },
            range: "0..",
            source: "CMLB eq. 6",
            meaning: "of the nodes' loads, threads in blocks",
        },
        Metric {
            key: "load_imbalance",
            name: "busiest node",
            symbol: "",
            value: Some(imbalance(&load.by_node)),
            unit: Unit::Plain,
            range: "1..N",
            source: "",
            meaning: "times the mean load, threads in blocks",
        },
    ]
}
