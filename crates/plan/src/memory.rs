//! Remarks about memory that no page policy makes up for by itself ([`numaloc_analysis::remark`]): a node that fills
//! up, a controller that is saturated, and data of which every node could have a copy. What they save is rated as
//! changes of the program are ([`crate::worth::changed`]), compared with the program as it is.

use std::collections::{BTreeMap, BTreeSet};

use numaloc_analysis::local::{Home, home};
use numaloc_analysis::objects::object_label;
use numaloc_analysis::remark::{About, Concern, Gain, Remark};
use numaloc_model::{LogicalNode, Mapping, ObjectIdx, Placement, Profile, ThreadIdx};
use numaloc_topology::Topology;

use crate::options::Options;
use crate::pages;
use crate::plan::{PlanRequest, Planned};
use crate::registry::ThreadPolicy;
use crate::threads;
use crate::worth::changed::Changed;
use crate::worth::{ERROR, Model, Worth};

/// Share of the run that controllers determine, from which they are saturated.
const SATURATED: f64 = 0.5;
/// Largest number of objects that are tried, those with most accesses first.
const MOST_OBJECTS: usize = 8;
/// The policy that spreads an object.
const SPREAD: &str = "weighted-interleave";
/// Bytes of the smallest word with which memory is initialised.
const SMALL_WORD: u64 = 4;

/// All remarks about the memory of a planned program; none where the model of worth does not apply, nor what the plan
/// makes up for: with the change alone the program must be faster than with the plan.
#[must_use]
pub fn notes(planned: &Planned) -> Vec<Remark> {
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
    let mut remarks = remarks(&model, &os.mapping, options);
    if let Some(ranking) = planned.ranking() {
        let [now, with_plan] = [&ranking.as_it_is, ranking.plan()].map(|worth| worth.seconds);
        keep_better(&mut remarks, now, with_plan);
    }
    remarks
}

/// Keeps the remarks whose change alone is better than a plan with which the program takes `with_plan` seconds, instead
/// of `as_it_is`, by more than the error of the model.
pub(crate) fn keep_better(remarks: &mut Vec<Remark>, as_it_is: f64, with_plan: f64) {
    remarks.retain(|remark| {
        let share = remark.gain.map(|gain| gain.with / gain.as_it_is);
        share.is_none_or(|share| with_plan > as_it_is * share * (1.0 + ERROR))
    });
}

/// All remarks about the memory of a program whose threads are where the operating system is assumed to put them.
pub(crate) fn remarks(model: &Model, unbound: &Mapping, options: &Options) -> Vec<Remark> {
    let changed = Changed::of(model, unbound);
    let untouched = Placement {
        node: vec![None; model.profile().pages().pages().len()],
    };
    let run = Run {
        profile: model.profile(),
        machine: model.machine(),
        options,
        mapping: unbound,
        as_it_is: changed.placed(&untouched, &[]),
        changed,
        untouched,
        objects: by_accesses(model.profile()),
    };
    let mut found = run.full();
    found.extend(run.saturated());
    found.extend(run.copies());
    found
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
    changed: Changed<'a>,
    untouched: Placement,
    as_it_is: Worth,
    objects: Vec<(ObjectIdx, Vec<usize>)>,
}

impl Run<'_> {
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

    fn subject(&self, object: ObjectIdx) -> About {
        About {
            object,
            label: object_label(self.profile.object(object)),
        }
    }

    fn gain(&self, with: &Worth) -> Gain {
        Gain {
            as_it_is: self.as_it_is.seconds,
            with: with.seconds,
            error: ERROR,
        }
    }

    /// Nodes that do not hold what first touch puts there.
    fn full(&self) -> Vec<Remark> {
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
                (bytes > room).then_some(Remark {
                    concern: Concern::FillsUp { node, bytes, room },
                    subject: None,
                    gain: None,
                })
            })
            .collect()
    }

    /// The object whose spreading saves most, if a controller determines the time.
    fn saturated(&self) -> Option<Remark> {
        let as_it_is = &self.as_it_is;
        if as_it_is.controllers_s < SATURATED * as_it_is.seconds {
            return None;
        }
        let policy = numaloc_placement::policy(SPREAD)?;
        let (profile, mapping) = (self.profile, self.mapping);
        let spread = pages::place(policy, profile, mapping, self.machine, self.options).ok()?;
        let homes = self.homes();
        let tried = self.objects.iter().filter_map(|(object, pages)| {
            let mut placement = self.untouched.clone();
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
            let worth = self.changed.placed(&placement, &[]);
            let node =
                (0..before.len()).max_by_key(|&node| (before[node], std::cmp::Reverse(node)))?;
            as_it_is
                .loses_to(&worth)
                .then_some((worth, *object, counts, node))
        });
        let (with, object, counts, node) =
            tried.min_by(|a, b| a.0.seconds.total_cmp(&b.0.seconds))?;
        let least = counts.iter().copied().filter(|&pages| pages > 0).min()?;
        let weight = |&pages: &u64| (pages as f64 / least as f64).round() as u64;
        Some(Remark {
            concern: Concern::Saturated {
                node: LogicalNode::from_index(node),
                weights: counts.iter().map(weight).collect(),
            },
            subject: Some(self.subject(object)),
            gain: Some(self.gain(&with)),
        })
    }

    /// Objects of which copies save more than the error of the model.
    fn copies(&self) -> Vec<Remark> {
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
                let with = self.changed.placed(&self.untouched, &is_copied);
                let size = pages.len() as u64 * self.profile.pages().page_size();
                self.as_it_is.loses_to(&with).then(|| Remark {
                    concern: Concern::Copies {
                        bytes: size * (nodes.len() as u64 - 1),
                    },
                    subject: Some(self.subject(*object)),
                    gain: Some(self.gain(&with)),
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
        // Each node reads each page so often that copying it once is little.
        let later = (1..9).flat_map(|slice| {
            let nodes = move |page| (0..4).map(move |node| (slice, page, reader(page, node), 512));
            (0..pages).flat_map(nodes)
        });
        let uses: Vec<Use> = first.chain(later).collect();
        crate::worth::tests::table(threads, &uses, is_written)
    }

    fn noted(run: Profile, machine: &str, capacity: Option<Vec<u64>>) -> Vec<Remark> {
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
        let copies = notes.iter().find_map(|note| match &note.concern {
            Concern::Copies { bytes } => Some((*bytes, note)),
            _ => None,
        });
        let (bytes, note) = copies.unwrap_or_else(|| panic!("{notes:?}"));
        let object = note.subject.as_ref().map(|subject| subject.label.as_str());
        assert_eq!((object, bytes), (Some("table"), 3 * 12_000 * 4096));
        let gain = note.gain.unwrap();
        assert!(gain.as_it_is > gain.with * 1.15, "{note:?}");
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
                .all(|note| !matches!(note.concern, Concern::Copies { .. }))
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

    #[test]
    fn what_all_nodes_sweep_on_one_node_is_spread_by_weights() {
        // It is written, so that no node can have a copy; 64 threads sweep it, each more than its caches hold.
        let pages = 64_000;
        let first = (0..pages).map(|page| (0, page, 0, 64));
        let sweep = |slice: u32| (0..pages).map(move |page| (slice, page, page % 64, 512));
        let uses: Vec<Use> = first.chain((1..12).flat_map(sweep)).collect();
        let run = crate::worth::tests::table(64, &uses, true);
        let notes = noted(run, "opteron-6386", None);
        let spread = notes.iter().find_map(|note| match &note.concern {
            Concern::Saturated { node, weights } => Some((*node, weights.clone(), note)),
            _ => None,
        });
        let (node, weights, note) = spread.unwrap_or_else(|| panic!("{notes:?}"));
        assert_eq!((node, weights.len()), (LogicalNode(0), 8), "{note:?}");
        assert!(weights.iter().all(|&weight| weight > 0), "{note:?}");
        let gain = note.gain.unwrap();
        assert!(gain.as_it_is > gain.with * (1.0 + gain.error), "{note:?}");
    }

    #[test]
    fn what_a_plan_makes_up_for_is_no_remark() {
        let gain = Gain {
            as_it_is: 2.0,
            with: 1.0,
            error: ERROR,
        };
        let copies = Remark {
            concern: Concern::Copies { bytes: 1 },
            subject: None,
            gain: Some(gain),
        };
        let full = Remark {
            concern: Concern::FillsUp {
                node: LogicalNode(0),
                bytes: 2,
                room: 1,
            },
            gain: None,
            ..copies.clone()
        };
        let left = |with_plan: f64| {
            let mut remarks = vec![copies.clone(), full.clone()];
            keep_better(&mut remarks, 4.0, with_plan);
            remarks.len()
        };
        // Half of the time; the plan saves nothing, or as much within the error.
        assert_eq!((left(4.0), left(2.2)), (2, 1));
    }
}
