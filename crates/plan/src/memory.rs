//! Advice about memory that no page policy gives by itself: a node that fills up, a controller that is saturated, and
//! data of which every node could have a copy. What it saves is by the model of worth, compared with the program as
//! it is.

use std::collections::{BTreeMap, BTreeSet};

use numaloc_analysis::local::{Home, home};
use numaloc_analysis::objects::object_label;
use numaloc_model::{LogicalNode, Mapping, ObjectIdx, Placement, Profile, ThreadIdx, number};
use numaloc_topology::Topology;
use serde_json::{Value, json};

use crate::options::Options;
use crate::pages;
use crate::plan::{PlanRequest, Planned};
use crate::registry::ThreadPolicy;
use crate::threads;
use crate::worth::{ERROR, Model, Seated};

/// Share of the run that controllers determine, from which they are saturated.
const SATURATED: f64 = 0.5;
/// Largest number of objects that are tried, those with most accesses first.
const MOST_OBJECTS: usize = 8;
/// The policy that spreads an object.
const SPREAD: &str = "weighted-interleave";
/// Bytes of the smallest word with which memory is initialised.
const SMALL_WORD: u64 = 4;

/// What could be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Advice {
    /// First touch puts more on a node than it holds.
    FillsUp {
        /// The node.
        node: LogicalNode,
        /// Bytes of the pages.
        bytes: u64,
        /// Bytes that fit.
        room: u64,
    },
    /// The controller of a node determines the time.
    Saturated {
        /// The node.
        node: LogicalNode,
        /// The object to spread.
        object: String,
        /// Weight of each node.
        weights: Vec<u64>,
    },
    /// Every node reads an object that none writes after it was initialised.
    Copies {
        /// The object.
        object: String,
        /// Bytes of the copies in addition to the first.
        bytes: u64,
    },
}

/// Advice, and what it saves.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// What could be done.
    pub advice: Advice,
    /// Seconds of the program as it is, and with this change; `None` if the model does not say.
    pub seconds: Option<(f64, f64)>,
}

impl Note {
    /// A sentence.
    #[must_use]
    pub fn text(&self) -> String {
        let saves = self.seconds.map_or_else(String::new, |(as_it_is, with)| {
            format!(
                "saves {} of {} (+- {} %)",
                numaloc_analysis::verdict::time(as_it_is - with),
                numaloc_analysis::verdict::time(as_it_is),
                number::fixed(100.0 * ERROR, 0)
            )
        });
        match &self.advice {
            Advice::FillsUp { node, bytes, room } => format!(
                "{node} fills up: first touch puts {} there, room for {}; the rest goes to other nodes",
                size(*bytes),
                size(*room)
            ),
            Advice::Saturated {
                node,
                object,
                weights,
            } => {
                let weights: Vec<String> = weights.iter().map(u64::to_string).collect();
                format!(
                    "controller of {node} saturated: spread {object} with weights {}: {saves}",
                    weights.join(":")
                )
            }
            Advice::Copies { object, bytes } => format!(
                "{object} is read by all nodes and written by none after load: a copy per node {saves} and costs {}",
                size(*bytes)
            ),
        }
    }

    /// The same as data.
    #[must_use]
    pub fn json(&self) -> Value {
        let (kind, node, object, weights, bytes) = match &self.advice {
            Advice::FillsUp { node, bytes, .. } => {
                ("fills_up", Some(node), None, None, Some(bytes))
            }
            Advice::Saturated {
                node,
                object,
                weights,
            } => ("saturated", Some(node), Some(object), Some(weights), None),
            Advice::Copies { object, bytes } => ("copies", None, Some(object), None, Some(bytes)),
        };
        json!({
            "kind": kind,
            "node": node.map(|node| node.0),
            "object": object,
            "weights": weights,
            "bytes": bytes,
            "as_it_is_s": self.seconds.map(|seconds| seconds.0),
            "with_s": self.seconds.map(|seconds| seconds.1),
            "text": self.text(),
        })
    }
}

fn size(bytes: u64) -> String {
    let (unit, name) = match bytes {
        b if b >= 1 << 30 => (30, "GiB"),
        b if b >= 1 << 20 => (20, "MiB"),
        _ => (10, "KiB"),
    };
    format!(
        "{} {name}",
        number::fixed(bytes as f64 / f64::from(1 << unit), 1)
    )
}

/// All advice about the memory of a planned program; none where the model of worth does not apply, nor what the plan
/// makes up for: with the advice alone the program must be faster than with the plan.
#[must_use]
pub fn notes(planned: &Planned) -> Vec<Note> {
    let PlanRequest {
        subject,
        machine,
        options,
        ..
    } = planned.request();
    let profile = subject.profile();
    let Some(model) = Model::of(profile, subject.layer(), machine) else {
        return Vec::new();
    };
    let input = threads::problem(subject.communication(), machine, options);
    let Ok(os) = threads::run(ThreadPolicy::Os, &input, profile, options) else {
        return Vec::new();
    };
    let seated = model.unbound(&os.mapping);
    let run = Run {
        profile,
        machine,
        options,
        mapping: &os.mapping,
        seated: &seated,
        objects: by_accesses(profile),
    };
    let mut notes = run.full();
    notes.extend(run.saturated());
    notes.extend(run.copies());
    if let Some(ranking) = planned.ranking() {
        let with_plan = ranking.plan().seconds;
        notes.retain(|note| {
            let with = note.seconds.map(|seconds| seconds.1);
            with.is_none_or(|with| with_plan > with * (1.0 + ERROR))
        });
    }
    notes
}

/// Objects with pages, those with most accesses first, and their pages.
fn by_accesses(profile: &Profile) -> Vec<(ObjectIdx, Vec<usize>)> {
    let mut found: BTreeMap<ObjectIdx, (u64, Vec<usize>)> = BTreeMap::new();
    for (at, page) in profile.pages().pages().iter().enumerate() {
        let Some(object) = page.object else { continue };
        let accesses = profile.pages().accesses(page).iter();
        let of_object = found.entry(object).or_default();
        of_object.0 += accesses.map(|access| access.total()).sum::<u64>();
        of_object.1.push(at);
    }
    let mut objects: Vec<_> = found.into_iter().collect();
    objects.sort_by_key(|(object, (accesses, _))| (std::cmp::Reverse(*accesses), *object));
    let objects = objects.into_iter().take(MOST_OBJECTS);
    objects
        .map(|(object, (_, pages))| (object, pages))
        .collect()
}

/// A program as it is.
struct Run<'a> {
    profile: &'a Profile,
    machine: &'a Topology,
    options: &'a Options,
    mapping: &'a Mapping,
    seated: &'a Seated<'a>,
    objects: Vec<(ObjectIdx, Vec<usize>)>,
}

impl Run<'_> {
    fn untouched(&self) -> Placement {
        Placement {
            node: vec![None; self.profile.pages().pages().len()],
        }
    }

    fn node_of(&self, thread: ThreadIdx) -> LogicalNode {
        self.machine.node_of(self.mapping.pu[thread.index()])
    }

    /// Where first touch puts each page.
    fn homes(&self) -> Vec<Home> {
        let nodes = self.machine.nodes().len();
        let pages = self.profile.pages().pages().iter();
        pages
            .map(|page| {
                home(self.profile, page, None, nodes, |thread| {
                    self.node_of(thread)
                })
            })
            .collect()
    }

    fn label(&self, object: ObjectIdx) -> String {
        object_label(self.profile.object(object))
    }

    /// Nodes that do not hold what first touch puts there.
    fn full(&self) -> Vec<Note> {
        let page_bytes = self.profile.pages().page_size();
        let homes = self.homes();
        let nodes = (0..self.machine.nodes().len()).map(LogicalNode::from_index);
        nodes
            .filter_map(|node| {
                let pages = homes
                    .iter()
                    .filter(|home| **home == Home::Node(node))
                    .count();
                let bytes = pages as u64 * page_bytes;
                let given = self.options.capacity.as_ref();
                let given = given.and_then(|all| all.get(node.index()).copied());
                let room = given.or_else(|| self.machine.memory_of(node))?;
                (bytes > room).then_some(Note {
                    advice: Advice::FillsUp { node, bytes, room },
                    seconds: None,
                })
            })
            .collect()
    }

    /// The object whose spreading saves most, if a controller determines the time.
    fn saturated(&self) -> Option<Note> {
        let as_it_is = self.seated.worth(&self.untouched());
        if as_it_is.controllers_s < SATURATED * as_it_is.seconds {
            return None;
        }
        let policy = numaloc_placement::policy(SPREAD)?;
        let (profile, mapping) = (self.profile, self.mapping);
        let spread = pages::place(policy, profile, mapping, self.machine, self.options).ok()?;
        let homes = self.homes();
        let tried = self.objects.iter().filter_map(|(object, pages)| {
            let mut placement = self.untouched();
            let mut counts = vec![0_u64; self.machine.nodes().len()];
            let mut before = counts.clone();
            for &page in pages {
                placement.node[page] = spread.placement.node[page];
                if let Some(node) = placement.node[page] {
                    counts[node.index()] += 1;
                }
                if let Home::Node(node) = homes[page] {
                    before[node.index()] += 1;
                }
            }
            let worth = self.seated.worth(&placement);
            let node =
                (0..before.len()).max_by_key(|&node| (before[node], std::cmp::Reverse(node)))?;
            as_it_is
                .loses_to(&worth)
                .then_some((worth.seconds, *object, counts, node))
        });
        let (seconds, object, counts, node) = tried.min_by(|a, b| a.0.total_cmp(&b.0))?;
        let least = counts.iter().copied().filter(|&pages| pages > 0).min()?;
        let weight = |&pages: &u64| (pages as f64 / least as f64).round() as u64;
        Some(Note {
            advice: Advice::Saturated {
                node: LogicalNode::from_index(node),
                object: self.label(object),
                weights: counts.iter().map(weight).collect(),
            },
            seconds: Some((as_it_is.seconds, seconds)),
        })
    }

    /// Objects of which copies save more than the error of the model.
    fn copies(&self) -> Vec<Note> {
        let as_it_is = self.seated.worth(&self.untouched());
        let threads = (0..self.mapping.pu.len()).map(ThreadIdx::from_index);
        let nodes: BTreeSet<LogicalNode> = threads.map(|thread| self.node_of(thread)).collect();
        let objects = self.objects.iter();
        let constant = objects.filter(|(_, pages)| self.is_read_by_all(pages, &nodes));
        constant
            .filter_map(|(object, pages)| {
                let mut is_copied = vec![false; self.profile.pages().pages().len()];
                for &page in pages {
                    is_copied[page] = true;
                }
                let with = self.seated.worth_with_copies(&self.untouched(), &is_copied);
                let size = pages.len() as u64 * self.profile.pages().page_size();
                as_it_is.loses_to(&with).then(|| Note {
                    advice: Advice::Copies {
                        object: self.label(*object),
                        bytes: size * (nodes.len() as u64 - 1),
                    },
                    seconds: Some((as_it_is.seconds, with.seconds)),
                })
            })
            .collect()
    }

    /// Whether threads of all nodes read the pages, and only the first toucher of each wrote it, at most once.
    fn is_read_by_all(&self, pages: &[usize], nodes: &BTreeSet<LogicalNode>) -> bool {
        let usage = self.profile.pages();
        let once = usage.page_size() / SMALL_WORD;
        let mut readers = BTreeSet::new();
        for &at in pages {
            let page = &usage.pages()[at];
            for access in usage.accesses(page) {
                let is_first = page.first_touch == Some(access.thread);
                if access.writes > 0 && (!is_first || access.writes > once) {
                    return false;
                }
                if access.reads > 0 {
                    readers.insert(self.node_of(access.thread));
                }
            }
        }
        nodes.len() > 1 && readers == *nodes
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use numaloc_topology::resolve;

    use super::*;
    use crate::worth::tests::Use;
    use crate::{Choice, Scope, Subject, Unobserved, plan};

    /// Pages of thread 0's object, which it touches first, swept by a thread of each node.
    fn table(threads: u32, pages: u32, is_written: bool) -> Profile {
        let first = (0..pages).map(|page| (0, page, 0, 64));
        // On each node another thread reads the next page.
        let reader = |page: u32, node: u32| page % (threads / 4) * 4 + node;
        let later =
            (0..pages).flat_map(|page| (0..4).map(move |node| (1, page, reader(page, node), 512)));
        let uses: Vec<Use> = first.chain(later).collect();
        crate::worth::tests::table(threads, &uses, is_written)
    }

    fn noted(run: Profile, machine: &str, capacity: Option<Vec<u64>>) -> Vec<Note> {
        let machine = resolve(machine).unwrap();
        let subject = Subject::new(Cow::Owned(run), &Scope::default()).unwrap();
        let options = Options {
            capacity,
            ..Options::default()
        };
        let request = PlanRequest {
            subject: &subject,
            machine: &machine,
            choice: &Choice::new("os", "first-touch").unwrap(),
            options: &options,
        };
        notes(&plan(request, &Unobserved).unwrap())
    }

    #[test]
    fn what_all_nodes_read_and_none_writes_can_have_copies() {
        let notes = noted(table(16, 12_000, false), "skylake-4s", None);
        let copies = notes.iter().find_map(|note| match &note.advice {
            Advice::Copies { object, bytes } => Some((object.as_str(), *bytes, note)),
            _ => None,
        });
        let (object, bytes, note) = copies.unwrap_or_else(|| panic!("{notes:?}"));
        assert_eq!((object, bytes), ("table", 3 * 12_000 * 4096));
        let (as_it_is, with) = note.seconds.unwrap();
        assert!(as_it_is > with * 1.15, "{note:?}");
        assert!(
            note.text()
                .contains("read by all nodes and written by none after load"),
            "{}",
            note.text()
        );
        let written = noted(table(16, 12_000, true), "skylake-4s", None);
        assert!(
            written
                .iter()
                .all(|note| !matches!(note.advice, Advice::Copies { .. }))
        );
    }

    #[test]
    fn a_node_that_does_not_hold_what_first_touch_puts_there_fills_up() {
        let capacity = vec![300 * 4096, 1 << 30, 1 << 30, 1 << 30];
        let notes = noted(table(4, 400, false), "skylake-4s", Some(capacity));
        let text = notes[0].text();
        assert!(
            text.contains("fills up") && text.contains("1.6 MiB"),
            "{text}"
        );
        assert!(noted(table(4, 4, false), "skylake-4s", None).is_empty());
    }
}
