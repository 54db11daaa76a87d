//! The declarations of all metrics: one entry each, in reading order. A table, so it may be long.

use numaloc_analysis::characterise::ExclusivityAt;
use numaloc_analysis::mapping_cost::{imbalance, remote_communication};
use numaloc_analysis::{Characterisation, LoadSource};
use numaloc_model::profile::Clock;

use super::{Chart, Declared, Of, Unit};
use crate::number;

/// Headings and their metrics.
pub const SECTIONS: &[(&str, &[Declared])] = &[
    ("Communication", COMMUNICATION),
    ("Pages", PAGES),
    ("Load of the nodes", LOAD),
];

/// Clock ticks in the interval that rates refer to: one second or a million accesses.
fn per_tick(clock: Clock) -> f64 {
    match clock {
        Clock::Wall => 1e9,
        Clock::Virtual => 1e6,
    }
}

/// Exclusivity with the profile's own page size.
fn own(c: &Characterisation) -> Option<&ExclusivityAt> {
    c.exclusivity.first()
}

/// Exclusivity with pages of `size` bytes.
fn at(c: &Characterisation, size: u64) -> Option<&ExclusivityAt> {
    c.exclusivity.iter().find(|e| e.page_size == size)
}

const COMMUNICATION: &[Declared] = &[
    Declared {
        key: "communication_events",
        name: "events",
        symbol: "",
        value: |c| Some(c.communication.events),
        unit: Of::Every(Unit::Count("events")),
        range: "0..",
        source: "",
        meaning: Of::Every("times a thread needed another's data"),
        chart: None,
    },
    Declared {
        key: "communication_load_bytes",
        name: "load",
        symbol: "Lcomm",
        value: |c| Some(c.communication.load_bytes),
        unit: Of::Every(Unit::Bytes),
        range: "0..",
        source: "DeLoc eq. 4",
        meaning: Of::Every("bytes that threads exchanged"),
        chart: Some(Chart {
            name: "runs-load",
            title: "Communication load",
            caption: "Bytes exchanged (DeLoc eq. 4).",
            show: number::bytes,
        }),
    },
    Declared {
        key: "communication_ratio",
        name: "ratio to memory",
        symbol: "CommR",
        value: |c| c.communication.ratio,
        unit: Of::Every(Unit::Share),
        range: "0..1",
        source: "DeLoc eq. 5",
        meaning: Of::Every("of all accessed bytes were communication"),
        chart: Some(Chart {
            name: "runs-ratio",
            title: "Communication-to-memory ratio",
            caption: "Share of the accessed bytes (DeLoc eq. 5).",
            show: number::percent,
        }),
    },
    Declared {
        key: "communication_concurrency",
        name: "concurrency",
        symbol: "CommC",
        value: |c| c.communication.concurrency,
        unit: Of::Every(Unit::Share),
        range: "0..1",
        source: "DeLoc eq. 6",
        meaning: Of::Every("of the threads communicate at the same time"),
        chart: Some(Chart {
            name: "runs-concurrency",
            title: "Communication concurrency",
            caption: "Threads that communicate at the same time (DeLoc eq. 6).",
            show: number::percent,
        }),
    },
    Declared {
        key: "false_sharing",
        name: "false sharing",
        symbol: "",
        value: |c| c.sharing.false_share,
        unit: Of::Every(Unit::Share),
        range: "0..1",
        source: "",
        meaning: Of::Every("of the events share a line but no data"),
        chart: Some(Chart {
            name: "runs-false-sharing",
            title: "False sharing",
            caption: "Events that share a line but no data.",
            show: number::percent,
        }),
    },
    Declared {
        key: "dram_ratio",
        name: "DRAM ratio",
        symbol: "DramR",
        value: |c| c.communication.dram_ratio,
        unit: Of::Every(Unit::Share),
        range: "0..",
        source: "DeLoc eq. 7",
        meaning: Of::Every("of the accessed bytes came from DRAM"),
        chart: Some(Chart {
            name: "runs-dram-ratio",
            title: "DRAM-to-memory ratio",
            caption: "Share of the accessed bytes from DRAM (DeLoc eq. 7).",
            show: number::percent,
        }),
    },
    Declared {
        key: "communication_locality",
        name: "locality",
        symbol: "CommLoc",
        value: |c| Some(c.communication.locality),
        unit: Of::Every(Unit::Plain),
        range: "0..0.25",
        source: "DeLoc eq. 9",
        meaning: Of::Every("how strongly threads prefer some partners"),
        chart: Some(Chart {
            name: "runs-locality",
            title: "Communication locality",
            caption: "How strongly threads prefer some partners (DeLoc eq. 9).",
            show: number::plain,
        }),
    },
    Declared {
        key: "communication_heterogeneity",
        name: "heterogeneity",
        symbol: "C_H",
        value: |c| Some(c.communication.heterogeneity),
        unit: Of::Every(Unit::Plain),
        range: "0..2500",
        source: "OPT eq. 2",
        meaning: Of::Every("the higher, the more thread mapping can do"),
        chart: Some(Chart {
            name: "runs-heterogeneity",
            title: "Heterogeneity",
            caption: "What grouping threads can win (OPT eq. 2).",
            show: number::plain,
        }),
    },
    Declared {
        key: "communication_amount",
        name: "amount",
        symbol: "C_A",
        value: |c| Some(c.communication.amount),
        unit: Of::Every(Unit::Count("events per cell")),
        range: "0..",
        source: "OPT eq. 3",
        meaning: Of::Every("mean events per cell of the matrix"),
        chart: Some(Chart {
            name: "runs-amount",
            title: "Amount",
            caption: "Events per cell of the matrix (OPT eq. 3).",
            show: number::count,
        }),
    },
    Declared {
        key: "clusters",
        name: "clusters in time",
        symbol: "k",
        value: |c| Some(c.concurrency.k as f64),
        unit: Of::Every(Unit::Count("clusters")),
        range: "0..",
        source: "DeLoc eq. 1",
        meaning: Of::Every("stretches of concurrent communication"),
        chart: None,
    },
    Declared {
        key: "phases",
        name: "phases",
        symbol: "",
        value: |c| Some(c.phases.len() as f64),
        unit: Of::Every(Unit::Count("phases")),
        range: "1..",
        source: "OPT eq. 4",
        meaning: Of::Every("stretches of similar heterogeneity"),
        chart: None,
    },
    Declared {
        key: "phase_rate",
        name: "phase rate",
        symbol: "",
        value: |c| {
            (c.duration > 0 && c.timeline.events.len() > 1)
                .then(|| c.phases.len() as f64 / c.duration as f64 * per_tick(c.clock))
        },
        unit: Of::Run(|c| {
            Unit::PerTime(match c.clock {
                Clock::Wall => "phases per second",
                Clock::Virtual => "phases per million accesses",
            })
        }),
        range: "0..",
        source: "OPT fig. 4",
        meaning: Of::Run(|c| match c.clock {
            Clock::Wall => "phases per second of the run",
            Clock::Virtual => "phases per 10^6 accesses of the clock",
        }),
        chart: Some(Chart {
            name: "runs-phases",
            title: "Phases",
            caption: "Changes of the pattern by time: the fewer, the better one mapping fits (OPT Fig. 4).",
            show: number::plain,
        }),
    },
    Declared {
        key: "pattern_phases",
        name: "pattern phases",
        symbol: "",
        value: |c| Some(c.pattern_phases.len() as f64),
        unit: Of::Every(Unit::Count("phases")),
        range: "1..",
        source: "",
        meaning: Of::Every("stretches with the same communicating pairs"),
        chart: None,
    },
    Declared {
        key: "remote_communication",
        name: "between nodes",
        symbol: "RemoteComm",
        value: |c| Some(remote_communication(c.weighed(), c.layer, &c.assignment)),
        unit: Of::Run(|c| {
            Unit::Count(if c.layer.is_message() {
                "bytes"
            } else {
                "events"
            })
        }),
        range: "0..",
        source: "CMLB eq. 4, 5",
        meaning: Of::Run(|c| {
            if c.layer.is_message() {
                "bytes between nodes, threads in blocks"
            } else {
                "events between nodes, threads in blocks"
            }
        }),
        chart: Some(Chart {
            name: "runs-remote",
            title: "Communication between nodes",
            caption: "RemoteComm, threads in blocks (CMLB eq. 4, 5).",
            show: number::count,
        }),
    },
];

const PAGES: &[Declared] = &[
    Declared {
        key: "pages",
        name: "pages used",
        symbol: "P",
        value: |c| Some(c.pages.pages as f64),
        unit: Of::Every(Unit::Count("pages")),
        range: "0..",
        source: "",
        meaning: Of::Every("pages with at least one access"),
        chart: None,
    },
    Declared {
        key: "memory_bytes",
        name: "memory used",
        symbol: "",
        value: |c| Some(c.pages.memory_bytes() as f64),
        unit: Of::Every(Unit::Bytes),
        range: "0..",
        source: "OPT eq. 7",
        meaning: Of::Every("if it fits the caches, nothing to gain"),
        chart: Some(Chart {
            name: "runs-memory",
            title: "Memory used",
            caption: "Pages with accesses (OPT eq. 7).",
            show: number::bytes,
        }),
    },
    Declared {
        key: "memory_to_caches",
        name: "memory / caches",
        symbol: "",
        value: |c| {
            c.cache_bytes
                .map(|caches| c.pages.memory_bytes() as f64 / caches as f64)
        },
        unit: Of::Every(Unit::Plain),
        range: "0..",
        source: "OPT eq. 7",
        meaning: Of::Every("at most 1: placement cannot gain"),
        chart: None,
    },
    Declared {
        key: "page_exclusivity",
        name: "page exclusivity",
        symbol: "E_page",
        value: |c| c.pages.mean_page_exclusivity,
        unit: Of::Every(Unit::Share),
        range: "1/N..1",
        source: "OPT eq. 5",
        meaning: Of::Every("mean over pages: accesses of the main node"),
        chart: None,
    },
    Declared {
        key: "application_exclusivity",
        name: "exclusivity",
        symbol: "E_app",
        value: |c| c.pages.exclusivity,
        unit: Of::Every(Unit::Share),
        range: "1/N..1",
        source: "data mapping eq. 2",
        meaning: Of::Every("local if every page is on its best node"),
        chart: None,
    },
    Declared {
        key: "application_exclusivity_most",
        name: "  best assignment",
        symbol: "",
        value: |c| own(c).map(|e| e.most),
        unit: Of::Every(Unit::Share),
        range: "1/N..1",
        source: "OPT fig. 6",
        meaning: Of::Every("with the best thread assignment found"),
        chart: None,
    },
    Declared {
        key: "application_exclusivity_least",
        name: "  worst assignment",
        symbol: "",
        value: |c| own(c).map(|e| e.least),
        unit: Of::Every(Unit::Share),
        range: "1/N..1",
        source: "OPT fig. 7",
        meaning: Of::Every("with the worst thread assignment found"),
        chart: None,
    },
    Declared {
        key: "application_exclusivity_inherent",
        name: "  a node per thread",
        symbol: "",
        value: |c| own(c).map(|e| e.inherent),
        unit: Of::Every(Unit::Share),
        range: "1/T..1",
        source: "data mapping fig. 1",
        meaning: Of::Every("if every thread had a node of its own"),
        chart: None,
    },
    Declared {
        key: "application_exclusivity_2_mib",
        name: "  with 2 MiB pages",
        symbol: "",
        value: |c| at(c, 2 << 20).map(|e| e.assigned),
        unit: Of::Every(Unit::Share),
        range: "1/N..1",
        source: "OPT fig. 6",
        meaning: Of::Every("if pages were 2 MiB"),
        chart: None,
    },
    Declared {
        key: "application_exclusivity_64_mib",
        name: "  with 64 MiB pages",
        symbol: "",
        value: |c| at(c, 64 << 20).map(|e| e.assigned),
        unit: Of::Every(Unit::Share),
        range: "1/N..1",
        source: "OPT fig. 6",
        meaning: Of::Every("if pages were 64 MiB"),
        chart: None,
    },
    Declared {
        key: "first_touch_local_share",
        name: "local, first touch",
        symbol: "",
        value: |c| c.pages.local_share,
        unit: Of::Every(Unit::Share),
        range: "0..1",
        source: "",
        meaning: Of::Every("of the accesses are local under first touch"),
        chart: Some(Chart {
            name: "runs-local",
            title: "Local under first touch",
            caption: "Share of the accesses.",
            show: number::percent,
        }),
    },
    Declared {
        key: "first_touch_page_accuracy",
        name: "accuracy, pages",
        symbol: "Acc_page",
        value: |c| c.pages.page_accuracy,
        unit: Of::Every(Unit::Share),
        range: "0..1",
        source: "OPT eq. 8",
        meaning: Of::Every("of the pages lie on their main user's node"),
        chart: None,
    },
    Declared {
        key: "first_touch_access_accuracy",
        name: "accuracy, accesses",
        symbol: "Acc_app",
        value: |c| c.pages.access_accuracy,
        unit: Of::Every(Unit::Share),
        range: "0..1",
        source: "OPT eq. 9",
        meaning: Of::Every("of the accesses are to such pages"),
        chart: None,
    },
    Declared {
        key: "first_touch_page_balance",
        name: "balance, pages",
        symbol: "B_pages",
        value: |c| c.pages.page_balance,
        unit: Of::Every(Unit::Share),
        range: "0..1",
        source: "data mapping eq. 3",
        meaning: Of::Every("how evenly pages lie on the nodes"),
        chart: None,
    },
    Declared {
        key: "first_touch_access_balance",
        name: "balance, accesses",
        symbol: "B_acc",
        value: |c| c.pages.access_balance,
        unit: Of::Every(Unit::Share),
        range: "0..1",
        source: "data mapping eq. 5",
        meaning: Of::Every("how evenly the nodes' memories are used"),
        chart: None,
    },
    Declared {
        key: "page_migrations",
        name: "migrations",
        symbol: "",
        value: |c| c.migrations.as_ref().map(|m| m.total as f64),
        unit: Of::Every(Unit::Count("migrations")),
        range: "0..",
        source: "data mapping II-C",
        meaning: Of::Every("to keep pages with their slice's main user"),
        chart: None,
    },
];

const LOAD: &[Declared] = &[
    Declared {
        key: "access_phases",
        name: "access phases",
        symbol: "",
        value: |c| {
            c.load
                .smoothed
                .is_some()
                .then_some(c.load.phases.len() as f64)
        },
        unit: Of::Every(Unit::Count("phases")),
        range: "1..",
        source: "CMLB alg. 1",
        meaning: Of::Every("stretches between lows of memory traffic"),
        chart: None,
    },
    Declared {
        key: "load_deviation",
        name: "load deviation",
        symbol: "Load_std",
        value: |c| Some(c.load.deviation),
        unit: Of::Run(|c| match c.load.source {
            LoadSource::Dram(_) => Unit::Bytes,
            LoadSource::Accesses => Unit::Count("accesses"),
        }),
        range: "0..",
        source: "CMLB eq. 6",
        meaning: Of::Every("of the nodes' loads, threads in blocks"),
        chart: Some(Chart {
            name: "runs-deviation",
            title: "Load deviation",
            caption: "Load_std of the nodes, threads in blocks (CMLB eq. 6).",
            show: number::count,
        }),
    },
    Declared {
        key: "load_imbalance",
        name: "busiest node",
        symbol: "",
        value: |c| Some(imbalance(&c.load.by_node)),
        unit: Of::Every(Unit::Plain),
        range: "1..N",
        source: "",
        meaning: Of::Every("times the mean load, threads in blocks"),
        chart: Some(Chart {
            name: "runs-imbalance",
            title: "Busiest node",
            caption: "Times the mean load of the nodes.",
            show: number::plain,
        }),
    },
];
