//! Assembles a plan from a policy's answer: threads by stable path, pages by object and range.
//!
//! Pages of one object on one node become one range, including pages between them that the recorded run never touched;
//! this keeps the number of ranges (and later of the kernel's mappings) small. A page of no known object cannot be
//! identified in another run, so it cannot be planned: it is counted. Pages of a private file mapping that is never
//! written (text, constants, `ld.so.cache`) belong to the page cache, which all processes share and no process's
//! mempolicy places: they are left out.

use std::collections::BTreeMap;

use numaloc_model::plan::{ObjectKey, PagePlan, Plan, Predicted, Provenance, ThreadPlan};
use numaloc_model::roles::RolesPlan;
use numaloc_model::{LogicalNode, Mapping, ObjectIdx, Placement, Profile};
use numaloc_topology::Topology;

/// A plan, and the number of pages that could not be included.
#[derive(Clone, Debug, PartialEq)]
pub struct Assembled {
    /// The plan.
    pub plan: Plan,
    /// Pages the policy placed that belong to no known object.
    pub nameless_pages: u64,
}

/// Makes a plan for `topology` with the threads of `profile` at `mapping` and its pages at `placement`.
///
/// O(pages log pages).
///
/// # Panics
/// If mapping or placement do not fit the profile.
#[must_use]
pub fn assemble(
    profile: &Profile,
    topology: &Topology,
    mapping: &Mapping,
    placement: &Placement,
    provenance: Provenance,
    predicted: Predicted,
) -> Assembled {
    assert_eq!(
        mapping.pu.len(),
        profile.threads().len(),
        "one PU per thread"
    );
    let threads = profile
        .threads()
        .iter()
        .zip(&mapping.pu)
        .map(|(thread, &pu)| ThreadPlan {
            path: thread.path.clone(),
            pu,
            os_pu: topology.pus()[pu.index()].os,
        })
        .collect();

    let mut by_object: BTreeMap<ObjectIdx, Vec<(u64, LogicalNode)>> = BTreeMap::new();
    let mut nameless_pages = 0;
    for (page, node) in profile.pages().pages().iter().zip(&placement.node) {
        match (page.object, node) {
            _ if profile.is_in_page_cache(page) => {}
            (Some(object), &Some(node)) => {
                by_object
                    .entry(object)
                    .or_default()
                    .push((page.object_page, node));
            }
            (None, Some(_)) => nameless_pages += 1,
            (_, None) => {}
        }
    }
    let (mut objects, mut pages) = (Vec::new(), Vec::new());
    for (object, mut placed) in by_object {
        placed.sort_unstable();
        let index = objects.len() as u32;
        objects.push(object_key(profile, object));
        for range in placed.chunk_by(|a, b| a.1 == b.1) {
            let (first, node) = range[0];
            pages.push(PagePlan {
                object: index,
                first_page: first,
                pages: range[range.len() - 1].0 - first + 1,
                node,
                os_node: topology.nodes()[node.index()].os,
            });
        }
    }
    Assembled {
        plan: Plan {
            machine: topology.name().to_owned(),
            fingerprint: topology.fingerprint(),
            provenance,
            predicted,
            page_size: profile.pages().page_size(),
            threads,
            objects,
            pages,
            schedule: Vec::new(),
            roles: RolesPlan::default(),
        },
        nameless_pages,
    }
}

/// The identity of an object of `profile`, equal in other runs.
///
/// # Panics
/// If the profile has no such object.
#[must_use]
pub fn object_key(profile: &Profile, object: ObjectIdx) -> ObjectKey {
    let object = profile.object(object);
    ObjectKey {
        kind: object.kind,
        name: object.name.clone(),
        creator: object
            .thread
            .map(|t| profile.threads()[t.index()].path.clone()),
        size: object.size,
        order: object.order,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_model::pages::{PageHead, PageUsage, ThreadAccess};
    use numaloc_model::profile::{Clock, Meta, Object, ObjectKind, ProfileBuilder, Thread};
    use numaloc_model::{LogicalPu, PageNumber, ThreadIdx};

    /// Two threads; object 0 has pages 0, 1 (thread 0), 3 (thread 1) of a run at address 100 pages; page 900 belongs to
    /// no object. Thread 0 touched all first.
    fn profile() -> Profile {
        let thread = |n: u32| Thread {
            pid: 1,
            tid: 1 + n,
            end: 1,
            ..Thread::new(["0", "0.1"][n as usize])
        };
        let mut pages = PageUsage::new(4096);
        for (number, object_page, thread, count) in [
            (100, 0, 0, 5),
            (101, 1, 0, 7),
            (103, 3, 1, 11),
            (900, 0, 1, 2),
        ] {
            pages.push(
                PageHead {
                    number: PageNumber(number),
                    object: (number < 900).then_some(ObjectIdx(0)),
                    object_page,
                    first_touch: Some(ThreadIdx(0)),
                    first_touch_time: 0,
                    policy: None,
                },
                vec![ThreadAccess {
                    thread: ThreadIdx(thread),
                    reads: count,
                    writes: 0,
                }],
            );
        }
        let mut tables = ProfileBuilder::new(
            Meta {
                command: vec!["app".into()],
                ..Meta::new("qemu", Clock::Virtual)
            },
            pages.page_size(),
        );
        tables.usage(&pages);
        tables.threads = vec![thread(0), thread(1)];
        tables.objects = vec![Object {
            kind: ObjectKind::Mapping,
            name: "[anon]".into(),
            size: 16384,
            order: 0,
            thread: Some(ThreadIdx(0)),
            base: 100 * 4096,
            variables: Vec::new(),
        }];
        tables.build().unwrap()
    }

    #[test]
    fn ranges_bridge_untouched_pages_and_nameless_pages_are_counted() {
        let machine = numaloc_topology::resolve("numa:2 core:1 pu:1").unwrap();
        let mapping = Mapping {
            pu: vec![LogicalPu(0), LogicalPu(1)],
        };
        let node = |n: u32| Some(LogicalNode(n));
        let by_hand = Plan::by_hand("", "");
        let make = |nodes: [Option<LogicalNode>; 4]| {
            assemble(
                &profile(),
                &machine,
                &mapping,
                &Placement {
                    node: nodes.to_vec(),
                },
                by_hand.provenance.clone(),
                by_hand.predicted.clone(),
            )
        };
        // Locality: pages 0 and 1 at node 0, page 3 at node 1.
        let local = make([node(0), node(0), node(1), node(1)]);
        let ranges: Vec<_> = local
            .plan
            .pages
            .iter()
            .map(|p| (p.first_page, p.pages, p.node.0))
            .collect();
        assert_eq!(ranges, [(0, 2, 0), (3, 1, 1)]);
        assert_eq!(local.nameless_pages, 1);
        // All at node 1: one range over the untouched page 2.
        let far = make([node(1), node(1), node(1), None]);
        assert_eq!(far.plan.pages[0].pages, 4);
        assert_eq!(far.plan.objects[0].creator.as_deref(), Some("0"));
    }

    #[test]
    fn only_pages_written_in_a_mapped_file_are_planned() {
        let renamed = profile().changed(|tables| tables.objects[0].name = "libc.so.6".into());
        let profile = renamed.unwrap();
        let page = |at: usize| &profile.pages().pages()[at];
        assert!(profile.is_in_page_cache(page(0)));
        let written = PageHead {
            number: PageNumber(104),
            object: Some(ObjectIdx(0)),
            object_page: 4,
            first_touch: None,
            first_touch_time: 0,
            policy: None,
        };
        let write = ThreadAccess {
            thread: ThreadIdx(1),
            reads: 0,
            writes: 1,
        };
        let profile = profile
            .changed(|tables| tables.page(written, [write]))
            .unwrap();
        let page = &profile.pages().pages()[3];
        assert_eq!(page.number, written.number);
        assert!(!profile.is_in_page_cache(page));
    }
}
