//! Opens the counters of the machine's memory system and reads them before and after a run.
//!
//! They count everything that runs on the machine, not one program. Memory: one descriptor and 24 bytes per counter.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};

use crate::uncore::figures::{self, Figure};
use crate::uncore::{Counter, Offer, Quantity, Source, Topic, counted};

use super::sys::{self, Attr};

/// The opened counters.
#[derive(Debug)]
pub struct Counters {
    counters: Vec<Counter>,
    /// The event of each counter; `None` for files.
    events: Vec<Option<File>>,
    figures: Vec<Figure>,
    missing: Vec<(Topic, String)>,
}

/// The value of a counter.
#[derive(Clone, Copy, Debug)]
struct Reading {
    value: u64,
    /// Time in ns for which it was enabled.
    enabled: u64,
    /// Time in ns for which it had a hardware counter.
    running: u64,
}

/// The values of all counters at one time.
#[derive(Debug)]
pub struct Readings(Vec<Option<Reading>>);

impl Counters {
    /// Opens what a machine offers. If one counter of a quantity is refused, the quantity is not counted at all,
    /// because its sum would be too small.
    #[must_use]
    pub fn open(offer: Offer) -> Self {
        let mut missing = offer.missing;
        let mut refused = BTreeSet::new();
        let mut opened = Vec::new();
        for counter in offer.counters {
            let file = matches!(counter.source, Source::File { .. });
            match open(&counter.source) {
                Ok(event) => opened.push((counter, event)),
                Err(error) => {
                    missing
                        .entry(counter.quantity.topic())
                        .or_insert_with(|| reason(&counter, &error));
                    refused.insert((counter.quantity, file));
                }
            }
        }
        opened.retain(|(counter, event)| !refused.contains(&(counter.quantity, event.is_none())));
        // Both sources read the same registers, so only one is used.
        let by_event = opened
            .iter()
            .any(|(c, event)| c.quantity == Quantity::DramEnergy && event.is_some());
        opened
            .retain(|(c, event)| c.quantity != Quantity::DramEnergy || event.is_some() == by_event);
        let (counters, events): (Vec<Counter>, _) = opened.into_iter().unzip();
        let figures = figures::of(&counters, &offer.nodes);
        let shown = |topic| figures.iter().any(|figure| figure.topic() == topic);
        let missing = missing.into_iter().filter(|(topic, _)| !shown(*topic));
        let missing = missing.collect();
        Self {
            counters,
            events,
            figures,
            missing,
        }
    }

    /// The figures that are measured.
    #[must_use]
    pub fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// The topics that are not measured, and why.
    #[must_use]
    pub fn missing(&self) -> &[(Topic, String)] {
        &self.missing
    }

    /// Reads all counters.
    #[must_use]
    pub fn read(&self) -> Readings {
        let counters = self.counters.iter().zip(&self.events);
        Readings(
            counters
                .map(|(counter, event)| read(&counter.source, event.as_ref()).ok())
                .collect(),
        )
    }

    /// The value of each figure since `before`, which was read `seconds` ago.
    #[must_use]
    pub fn since(&self, before: &Readings, seconds: f64) -> Vec<Option<f64>> {
        let counts: Vec<Option<f64>> = self
            .counters
            .iter()
            .zip(&before.0)
            .zip(self.read().0)
            .map(|((counter, before), after)| between(&counter.source, (*before)?, after?))
            .collect();
        self.figures
            .iter()
            .map(|figure| figure.value(&self.counters, &counts, seconds))
            .collect()
    }
}

fn open(source: &Source) -> io::Result<Option<File>> {
    match source {
        Source::Event { kind, config, cpu } => {
            let attr = Attr::of_the_machine(*kind, *config);
            let event = File::from(sys::open_system_wide(&attr, *cpu, None)?);
            Ok(Some(event))
        }
        Source::File { path, .. } => {
            number(&fs::read_to_string(path)?)?;
            Ok(None)
        }
    }
}

fn read(source: &Source, event: Option<&File>) -> io::Result<Reading> {
    match (source, event) {
        (Source::Event { .. }, Some(mut event)) => {
            let mut words = [[0; 8]; 3];
            event.read_exact(words.as_flattened_mut())?;
            let [value, enabled, running] = words.map(u64::from_ne_bytes);
            Ok(Reading {
                value,
                enabled,
                running,
            })
        }
        (Source::File { path, .. }, _) => Ok(Reading {
            value: number(&fs::read_to_string(path)?)?,
            enabled: 0,
            running: 0,
        }),
        (Source::Event { .. }, None) => Err(io::ErrorKind::NotFound.into()),
    }
}

fn number(text: &str) -> io::Result<u64> {
    let number = text.trim().parse();
    number.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

/// The count between two readings. If events are multiplexed on fewer hardware counters, it is scaled by
/// the share of the time for which this event was counted; `None` if it never was.
fn between(source: &Source, before: Reading, after: Reading) -> Option<f64> {
    match source {
        Source::Event { .. } => {
            let value = after.value.checked_sub(before.value)? as f64;
            let enabled = after.enabled.checked_sub(before.enabled)? as f64;
            let running = after.running.checked_sub(before.running)? as f64;
            (running > 0.0).then(|| value * enabled / running)
        }
        Source::File { range, .. } => {
            counted(before.value, after.value, *range).map(|count| count as f64)
        }
    }
}

fn reason(counter: &Counter, error: &io::Error) -> String {
    let Counter { pmu, event, .. } = counter;
    if let Source::File { path, .. } = &counter.source {
        return format!("{}: {error}", path.display());
    }
    let path = "/proc/sys/kernel/perf_event_paranoid";
    let level = fs::read_to_string(path).unwrap_or_else(|_| "unreadable".to_owned());
    format!(
        "perf_event_open of {pmu}/{event}/: {error}; {path} is {}, counting the whole machine takes at most 0 or \
         CAP_PERFMON",
        level.trim()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: Source = Source::Event {
        kind: 1,
        config: [0; 3],
        cpu: 0,
    };

    fn reading(value: u64, enabled: u64, running: u64) -> Reading {
        Reading {
            value,
            enabled,
            running,
        }
    }

    #[test]
    fn counts_of_multiplexed_events_are_scaled() {
        // 100 counted in a quarter of the time.
        let (before, after) = (reading(50, 1000, 500), reading(150, 2000, 750));
        assert_eq!(between(&EVENT, before, after), Some(400.0));
        let never = reading(50, 2000, 500);
        assert_eq!(between(&EVENT, before, never), None);
    }

    #[test]
    fn energy_files_wrap_at_their_range() {
        let path = "energy_uj".into();
        let range = Some(100);
        let file = Source::File { path, range };
        let count = between(&file, reading(90, 0, 0), reading(5, 0, 0));
        assert_eq!(count, Some(15.0));
    }
}
