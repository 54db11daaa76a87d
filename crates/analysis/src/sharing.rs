//! Sharing of cache lines by variable, divided into true and false sharing.
//!
//! Communication through a line is *false sharing* if the reader used none of the bytes that the writer had written: no
//! data is exchanged, and moving one of the two to its own line removes it. The recorder classifies the events and
//! keeps a bounded list of lines ([`Profile::shared_lines`]); here lines are summed by the variables in them, so that
//! an array is one row and two variables in one line are named together.
//!
//! Cost: O(lines log variables).

use std::collections::BTreeMap;

use numaloc_model::profile::{Named, Profile};
use numaloc_model::{Layer, ObjectIdx};

use crate::objects::{object_label, variable_label};

/// Maximum number of variables named for one line; the rest are "and others".
const MOST_NAMED: usize = 3;

/// Lines of one object, or of the same variables of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMemory {
    /// Which object; `None` for lines without one.
    pub object: Option<ObjectIdx>,
    /// Its variables that lie in the lines, by index.
    pub variables: Vec<usize>,
    /// How many lines.
    pub lines: u64,
    /// Events through them.
    pub events: u64,
    /// Number of those that are false sharing.
    pub false_events: u64,
}

impl SharedMemory {
    /// Share of the events that is false sharing.
    #[must_use]
    pub fn false_share(&self) -> f64 {
        self.false_events as f64 / self.events.max(1) as f64
    }

    /// Its variables, or its object if none are known.
    #[must_use]
    pub fn named(&self) -> Vec<Named> {
        let Some(object) = self.object else {
            return Vec::new();
        };
        let of = |variable| Named { object, variable };
        match self.variables.is_empty() {
            true => vec![of(None)],
            false => self.variables.iter().map(|&at| of(Some(at))).collect(),
        }
    }

    /// `hits (app.c:7) + misses (app.c:8)`, or the object if no variables are known.
    #[must_use]
    pub fn label(&self, profile: &Profile) -> String {
        let Some(object) = self.object.map(|at| profile.object(at)) else {
            return "(no object)".to_owned();
        };
        if self.variables.is_empty() {
            return object_label(object);
        }
        let mut names: Vec<String> = self
            .variables
            .iter()
            .take(MOST_NAMED)
            .map(|&at| variable_label(&object.variables[at]))
            .collect();
        if self.variables.len() > MOST_NAMED {
            names.push("others".to_owned());
        }
        names.join(" + ")
    }
}

/// Sharing of cache lines in a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sharing {
    /// Share of all `write_read` events that is false sharing; `None` if it was not determined.
    pub false_share: Option<f64>,
    /// By variables or object: most false events first, then most events, then first in memory.
    pub memory: Vec<SharedMemory>,
}

/// Sums a run's shared lines.
#[must_use]
pub fn sharing(profile: &Profile) -> Sharing {
    let mut sums: BTreeMap<(Option<ObjectIdx>, Vec<usize>), SharedMemory> = BTreeMap::new();
    for line in profile.shared_lines() {
        let variables = variables_at(profile, line.object, line.object_offset);
        let sum = sums
            .entry((line.object, variables.clone()))
            .or_insert(SharedMemory {
                object: line.object,
                variables,
                lines: 0,
                events: 0,
                false_events: 0,
            });
        sum.lines += 1;
        sum.events += line.events;
        sum.false_events += line.false_events;
    }
    let mut memory: Vec<SharedMemory> = sums.into_values().collect();
    memory.sort_by_key(|m| std::cmp::Reverse((m.false_events, m.events)));
    let events = |layer| -> u64 {
        let rows = profile.communication().iter();
        rows.filter(|row| row.layer == layer)
            .map(|row| row.events)
            .sum()
    };
    let all = events(Layer::WriteRead);
    let observed = !profile.shared_lines().is_empty() && all > 0;
    Sharing {
        false_share: observed.then(|| events(Layer::FalseSharing) as f64 / all as f64),
        memory,
    }
}

/// The variables of an object that lie in the line at `offset`, by index.
pub(crate) fn variables_at(
    profile: &Profile,
    object: Option<ObjectIdx>,
    offset: u64,
) -> Vec<usize> {
    let Some(object) = object.and_then(|at| profile.objects().get(at.index())) else {
        return Vec::new();
    };
    let size = profile.meta().line_size.max(1);
    // The line that holds the object's first byte may start before it.
    let before = if offset == 0 { object.base % size } else { 0 };
    let end = offset.saturating_add(size - before);
    let from = object
        .variables
        .partition_point(|v| v.offset.saturating_add(v.size) <= offset);
    let within = object.variables[from..]
        .iter()
        .take_while(|v| v.offset < end);
    (from..from + within.count()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::tests::profile_of;
    use numaloc_model::profile::{Object, ObjectKind, SharedLine, Variable};
    use numaloc_model::{SliceIdx, ThreadIdx, profile::CommRow};
    use proptest::prelude::*;

    #[test]
    fn lines_are_summed_by_their_variables() {
        let mut tables = profile_of(2, 1, &[(0, 0, 1, 100)]).into_builder();
        tables.communication.push(CommRow {
            slice: SliceIdx(0),
            src: ThreadIdx(0),
            dst: ThreadIdx(1),
            layer: Layer::FalseSharing,
            events: 30,
            bytes: 240,
        });
        let variable = |name: &str, offset, size, line: u32| Variable {
            name: name.into(),
            offset,
            size,
            source: Some(format!("app.c:{line}")),
        };
        tables.objects = vec![Object {
            kind: ObjectKind::Static,
            name: "app:.data".into(),
            size: 4096,
            order: 0,
            thread: Some(ThreadIdx(0)),
            // 16 bytes into a line: the first line holds offsets 0..48.
            base: 0x1010,
            variables: vec![
                variable("hits", 0, 8, 7),
                variable("misses", 8, 8, 8),
                variable("next", 48, 8, 9),
                variable("array", 112, 1024, 10),
            ],
        }];
        let line = |object, object_offset, events, false_events| SharedLine {
            line: 0,
            object,
            object_offset,
            events,
            false_events,
        };
        let first = Some(ObjectIdx(0));
        tables.shared_lines = vec![
            line(first, 0, 25, 25),
            line(first, 112, 30, 2),
            line(first, 176, 20, 3),
            line(None, 0, 10, 0),
        ];
        let profile = tables.build().unwrap();
        let found = sharing(&profile);
        assert_eq!(found.false_share, Some(0.3));
        let rows: Vec<(String, u64, u64, u64)> = found
            .memory
            .iter()
            .map(|m| (m.label(&profile), m.lines, m.events, m.false_events))
            .collect();
        assert_eq!(
            rows,
            [
                ("hits (app.c:7) + misses (app.c:8)".to_owned(), 1, 25, 25),
                ("array (app.c:10)".to_owned(), 2, 50, 5),
                ("(no object)".to_owned(), 1, 10, 0),
            ]
        );
    }

    #[test]
    fn unclassified_sharing_is_not_observed() {
        let found = sharing(&profile_of(2, 1, &[(0, 0, 1, 100)]));
        assert_eq!((found.false_share, found.memory.len()), (None, 0));
    }

    proptest! {
        #[test]
        fn events_add_up_and_shares_are_in_range(
            lines in proptest::collection::vec((0u32..3, 0u64..16, 1u64..100, 0u64..100), 1..30),
        ) {
            let mut tables = profile_of(2, 1, &[(0, 0, 1, 3000)]).into_builder();
            let object = |order| Object {
                kind: ObjectKind::Static, name: format!("part {order}"), size: 1024, order,
                thread: None, base: 0x1000,
                variables: vec![Variable { name: "v".into(), offset: 128, size: 256, source: None }],
            };
            tables.objects = (0..2).map(object).collect();
            tables.shared_lines = lines.iter().map(|&(object, at, events, false_)| SharedLine {
                line: 0,
                object: (object < 2).then_some(ObjectIdx(object)),
                object_offset: at * 64,
                events,
                false_events: false_.min(events),
            }).collect();
            let profile = tables.build().unwrap();
            let found = sharing(&profile);
            let sum = |value: fn(&SharedMemory) -> u64| found.memory.iter().map(value).sum::<u64>();
            prop_assert_eq!(sum(|m| m.lines), lines.len() as u64);
            prop_assert_eq!(sum(|m| m.events), lines.iter().map(|l| l.2).sum::<u64>());
            prop_assert!(found.memory.iter().all(|m| (0.0..=1.0).contains(&m.false_share())));
            prop_assert!(found.memory.windows(2).all(|w| w[0].false_events >= w[1].false_events));
            // The order of the lines does not matter.
            let reversed = profile.changed(|tables| tables.shared_lines.reverse());
            prop_assert_eq!(sharing(&reversed.unwrap()), found);
        }
    }
}
