//! Small machines and page tables for tests worked by hand.

use numaloc_model::pages::PageHead;
use numaloc_model::{
    LogicalPu, Mapping, ObjectIdx, PageNumber, PageUsage, ThreadAccess, ThreadIdx,
};
use numaloc_topology::Topology;

/// `nodes` NUMA nodes with one PU each, PU n on node n.
pub(crate) fn machine(nodes: usize) -> Topology {
    numaloc_topology::resolve(&format!("numa:{nodes} pu:1")).expect("a synthetic machine")
}

/// Thread t on PU `pus[t]`.
pub(crate) fn mapping(pus: &[u32]) -> Mapping {
    Mapping {
        pu: pus.iter().map(|&pu| LogicalPu(pu)).collect(),
    }
}

/// Pages 0, 1, ...: `(thread, reads)` each; the first listed thread touched it first.
pub(crate) fn usage(pages: &[&[(u32, u64)]]) -> PageUsage {
    let mut usage = PageUsage::new(4096);
    for (number, accesses) in pages.iter().enumerate() {
        usage.push(
            PageHead {
                number: PageNumber(number as u64),
                object: None,
                object_page: 0,
                first_touch: accesses.first().map(|&(thread, _)| ThreadIdx(thread)),
                first_touch_time: 0,
                policy: None,
            },
            accesses
                .iter()
                .map(|&(thread, reads)| ThreadAccess {
                    thread: ThreadIdx(thread),
                    reads,
                    writes: 0,
                })
                .collect(),
        );
    }
    usage
}

/// As [`usage`], each page with its object.
pub(crate) fn of_objects(pages: &[(u32, &[(u32, u64)])]) -> PageUsage {
    let rows: Vec<&[(u32, u64)]> = pages.iter().map(|page| page.1).collect();
    let plain = usage(&rows);
    let mut usage = PageUsage::new(4096);
    for (page, &(object, _)) in plain.pages().iter().zip(pages) {
        let head = PageHead {
            object: Some(ObjectIdx(object)),
            ..page.head()
        };
        usage.push(head, plain.accesses(page).to_vec());
    }
    usage
}

/// The nodes a policy gives the pages, -1 for those left to the kernel.
pub(crate) fn nodes_of(name: &str, input: &crate::PlaceInput) -> Vec<i64> {
    crate::place(crate::policy(name).expect("a policy"), input)
        .expect("a placement")
        .placement
        .node
        .iter()
        .map(|node| node.map_or(-1, |node| i64::from(node.0)))
        .collect()
}
