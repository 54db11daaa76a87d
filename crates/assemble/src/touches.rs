//! Which thread placed each page: by its first touch, or in one of the kernel's other ways.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use numaloc_identity::ThreadPath;
use numaloc_journal::Record;
use numaloc_model::ids::ThreadIdx;
use numaloc_model::{MemoryPolicy, PolicyMode};

use crate::Assembly;
use crate::load::Space;

/// How a page was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Touch {
    /// When.
    pub time: u64,
    /// The thread that placed it.
    pub thread: ThreadIdx,
    /// The memory policy under which it was placed; `None` for first touch.
    pub policy: Option<MemoryPolicy>,
}

impl Assembly<'_> {
    /// How the pages (of 4 KiB) of a process image were placed, those that `accessed` returns for a range of pages. An
    /// address is touched first again when something else has been mapped there, or its page was freed: the last time
    /// belongs to the page that remained. By page.
    pub(super) fn touches<I: Iterator<Item = u64>>(
        &self,
        space: &Space,
        accessed: impl Fn(std::ops::Range<u64>) -> I,
    ) -> Vec<(u64, Touch)> {
        let policies = policies(space);
        let mut touches: Vec<(u64, Touch)> = Vec::new();
        for record in &space.records {
            match record {
                Record::FirstTouch { thread, cells } => {
                    let Some(thread) = self.thread(space, *thread) else {
                        continue;
                    };
                    for &(page, time) in cells {
                        let touch = Touch {
                            time,
                            thread,
                            policy: None,
                        };
                        touches.push((page, touch));
                    }
                }
                Record::Placed {
                    thread,
                    forks,
                    policy,
                    time,
                    page,
                    count,
                    ..
                } => {
                    let Some(thread) = self.placer(space, *thread, *forks) else {
                        continue;
                    };
                    let touch = Touch {
                        time: *time,
                        thread,
                        policy: policies.get(policy).copied(),
                    };
                    let pages = accessed(*page..page.saturating_add(*count));
                    touches.extend(pages.map(|page| (page, touch)));
                }
                _ => {}
            }
        }
        touches.sort_by_key(|&(page, touch)| (page, Reverse(touch)));
        touches.dedup_by_key(|&mut (page, _)| page);
        touches
    }

    /// The thread with a number in the journal of the process that lies this many forks before one.
    fn placer(&self, space: &Space, thread: u32, forks: u32) -> Option<ThreadIdx> {
        let mut ancestor = space;
        for _ in 0..forks {
            ancestor = self.parent(ancestor)?;
        }
        self.thread(ancestor, thread)
    }

    /// The process image that forked one: the last one of the creating thread's process that had begun by then.
    fn parent(&self, space: &Space) -> Option<&Space> {
        let process = ThreadPath::new(&space.first).creator()?.process();
        let creates = |other: &&Space| {
            let expected = &other.expected;
            other.first == process.as_str()
                && expected
                    .iter()
                    .any(|child| child.path == space.first && child.image == space.image)
        };
        let images = self.spaces.iter();
        images.clone().find(creates).or_else(|| {
            images
                .filter(|other| other.first == process.as_str())
                .max_by_key(|other| other.image)
        })
    }
}

/// The policies of a journal by their numbers, except those that mean first touch.
fn policies(space: &Space) -> BTreeMap<u32, MemoryPolicy> {
    let policies = space.records.iter().filter_map(|record| match record {
        Record::MemoryPolicy {
            policy,
            mode,
            nodes,
            ..
        } => {
            let mode = PolicyMode::of(*mode)?;
            let nodes = *nodes;
            Some((*policy, MemoryPolicy { mode, nodes }))
        }
        _ => None,
    });
    policies.collect()
}
