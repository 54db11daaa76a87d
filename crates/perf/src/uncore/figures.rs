//! Formulas that compute figures with units from counts (docs/commands/compare.md).

use std::collections::{BTreeMap, BTreeSet};

use super::{Counter, Quantity, Topic};

/// One figure of one socket, computed for every run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Its name.
    pub name: &'static str,
    /// The socket.
    pub socket: u32,
    /// The nodes of the socket, ascending: counters are per socket, so a socket with several nodes has their sum.
    pub nodes: Vec<u32>,
    /// Unit of the values.
    pub unit: &'static str,
    /// The PMUs and events it is computed from.
    pub from: String,
    formula: Formula,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Formula {
    /// Sum, in units of 10^9.
    Giga(Quantity),
    /// Sum divided by the run's time, in units of 10^9 per second.
    GigaPerSecond(Quantity),
    /// Sum as it is.
    Sum(Quantity),
    /// Remote reads as a share of all reads, in percent.
    RemoteShare,
    /// Mean number of entries in a controller's queue.
    QueueLength,
    /// Mean waiting time of a request, ns.
    QueueTime,
    /// Mean waiting time of a request, in the controller's cycles.
    QueueCycles,
}

/// The figures that `counters` allow, by socket.
#[must_use]
pub fn of(counters: &[Counter], nodes: &BTreeMap<u32, Vec<u32>>) -> Vec<Figure> {
    let sockets: BTreeSet<u32> = counters.iter().map(|counter| counter.socket).collect();
    let mut figures = Vec::new();
    for (name, unit, formula) in FIGURES {
        for &socket in &sockets {
            let here = |quantity: &Quantity| {
                let mut all = counters.iter();
                all.any(|c| c.socket == socket && c.quantity == *quantity)
            };
            let used = formula.quantities();
            let clocked = here(&Quantity::QueueClocks);
            if !used.iter().all(here) || (formula == Formula::QueueCycles && clocked) {
                continue;
            }
            figures.push(Figure {
                name,
                socket,
                nodes: nodes.get(&socket).cloned().unwrap_or_default(),
                unit,
                from: sources(counters, socket, used),
                formula,
            });
        }
    }
    figures
}

const FIGURES: [(&str, &str, Formula); 13] = [
    (
        "dram-read-bandwidth",
        "GB/s",
        Formula::GigaPerSecond(Quantity::DramRead),
    ),
    (
        "dram-write-bandwidth",
        "GB/s",
        Formula::GigaPerSecond(Quantity::DramWritten),
    ),
    (
        "dram-bandwidth",
        "GB/s",
        Formula::GigaPerSecond(Quantity::DramMoved),
    ),
    ("dram-read", "GB", Formula::Giga(Quantity::DramRead)),
    ("dram-written", "GB", Formula::Giga(Quantity::DramWritten)),
    ("dram-moved", "GB", Formula::Giga(Quantity::DramMoved)),
    ("read-queue-length", "entries", Formula::QueueLength),
    ("read-queue-latency", "ns", Formula::QueueTime),
    ("read-queue-latency", "cycles", Formula::QueueCycles),
    ("link-sent", "GB", Formula::Giga(Quantity::LinkSent)),
    ("link-received", "GB", Formula::Giga(Quantity::LinkReceived)),
    ("remote-reads", "%", Formula::RemoteShare),
    ("dram-energy", "J", Formula::Sum(Quantity::DramEnergy)),
];

impl Formula {
    fn quantities(&self) -> &[Quantity] {
        use Quantity::{LocalReads, QueueClocks, QueueInserts, QueueOccupancy, RemoteReads};
        match self {
            Self::Giga(quantity) | Self::GigaPerSecond(quantity) | Self::Sum(quantity) => {
                std::slice::from_ref(quantity)
            }
            Self::RemoteShare => &[LocalReads, RemoteReads],
            Self::QueueLength => &[QueueOccupancy, QueueClocks],
            Self::QueueTime => &[QueueOccupancy, QueueInserts, QueueClocks],
            Self::QueueCycles => &[QueueOccupancy, QueueInserts],
        }
    }
}

impl Figure {
    /// Its topic.
    #[must_use]
    pub fn topic(&self) -> Topic {
        self.formula.quantities()[0].topic()
    }

    /// Its value from the counts of a run (one per counter, not yet scaled) and the run's duration in seconds;
    /// `None` if a counter was not read or the divisor is 0.
    #[must_use]
    pub fn value(&self, counters: &[Counter], counts: &[Option<f64>], seconds: f64) -> Option<f64> {
        let of = |quantity| self.sum(counters, counts, quantity);
        let value = match self.formula {
            Formula::Giga(quantity) => of(quantity)?.0 * 1e-9,
            Formula::GigaPerSecond(quantity) => of(quantity)?.0 * 1e-9 / seconds,
            Formula::Sum(quantity) => of(quantity)?.0,
            Formula::RemoteShare => {
                let (local, remote) = (of(Quantity::LocalReads)?.0, of(Quantity::RemoteReads)?.0);
                100.0 * remote / (local + remote)
            }
            Formula::QueueLength => of(Quantity::QueueOccupancy)?.0 / of(Quantity::QueueClocks)?.0,
            Formula::QueueCycles => of(Quantity::QueueOccupancy)?.0 / of(Quantity::QueueInserts)?.0,
            Formula::QueueTime => {
                let cycles = of(Quantity::QueueOccupancy)?.0 / of(Quantity::QueueInserts)?.0;
                let (clocks, controllers) = of(Quantity::QueueClocks)?;
                cycles * seconds * 1e9 * controllers / clocks
            }
        };
        value.is_finite().then_some(value)
    }

    /// The scaled sum of a quantity on this socket, and its number of counters.
    fn sum(
        &self,
        counters: &[Counter],
        counts: &[Option<f64>],
        quantity: Quantity,
    ) -> Option<(f64, f64)> {
        let (mut sum, mut number) = (0.0, 0.0);
        for (counter, count) in counters.iter().zip(counts) {
            if counter.socket == self.socket && counter.quantity == quantity {
                sum += (*count)? * counter.scale;
                number += 1.0;
            }
        }
        Some((sum, number))
    }
}

/// The sources as text, one `uncore_imc_{0,1,2}/cas_count_read/` per event.
fn sources(counters: &[Counter], socket: u32, used: &[Quantity]) -> String {
    let mut pmus: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for counter in counters {
        if counter.socket != socket || !used.contains(&counter.quantity) {
            continue;
        }
        let (family, number) = match counter.pmu.rsplit_once('_') {
            Some((family, number)) if number.bytes().all(|b| b.is_ascii_digit()) => {
                (family, number)
            }
            _ => (counter.pmu.as_str(), ""),
        };
        let numbers = pmus.entry((family, counter.event.as_str())).or_default();
        numbers.push(number);
    }
    let shown = pmus
        .iter()
        .map(|((family, event), numbers)| match &numbers[..] {
            [""] => format!("{family}/{event}/"),
            [number] => format!("{family}_{number}/{event}/"),
            [..] if numbers[0].is_empty() => format!("{family}/{event}/"),
            numbers => format!("{family}_{{{}}}/{event}/", numbers.join(",")),
        });
    shown.collect::<Vec<_>>().join(" + ")
}
