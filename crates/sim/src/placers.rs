//! Who placed each page in the recorded run: a trace shows requests below the private caches, not faults.

use std::hash::Hasher;

use numaloc_model::pages::PageUsage;
use numaloc_model::{MemoryPolicy, PageNumber};

/// Who placed a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Placer {
    /// The thread; `None` if no thread of the recording did.
    thread: Option<u32>,
    /// The policy of the program, and the page's number in its object.
    policy: Option<(MemoryPolicy, u64)>,
}

/// Who placed the pages of a trace, by dense number; empty if that is not known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placers(Vec<Placer>);

impl Placers {
    /// As the recording has it: `pages` are those of the trace, of the size of the pages in `usage`.
    pub fn of(pages: &[u64], usage: &PageUsage) -> Self {
        let placer = |&page: &u64| {
            let known = usage.index_of(PageNumber(page));
            let known = known.map(|at| &usage.pages()[at as usize]);
            Placer {
                thread: known
                    .and_then(|page| page.first_touch)
                    .map(|thread| thread.0),
                policy: known.and_then(|page| Some((page.policy?, page.object_page))),
            }
        };
        Self(pages.iter().map(placer).collect())
    }

    /// Adds all to a digest.
    pub fn digest(&self, digest: &mut impl Hasher) {
        for placer in &self.0 {
            digest.write_u64(placer.thread.map_or(0, |thread| u64::from(thread) + 1));
            if let Some((policy, page)) = placer.policy {
                digest.write_u64(policy.nodes);
                digest.write_u64(page << 8 | policy.mode as u64);
            }
        }
    }

    /// The node on which a page is placed, of `nodes`; `None` if its first access decides. `node_of` has the node of a
    /// thread if that stays the same.
    pub fn node(
        &self,
        page: usize,
        nodes: usize,
        node_of: impl Fn(usize) -> Option<usize>,
    ) -> Option<u32> {
        let placer = self.0.get(page)?;
        let toucher = placer.thread.and_then(|thread| node_of(thread as usize));
        let node = match placer.policy {
            Some((policy, page)) => policy.node(page, nodes, toucher),
            None => toucher,
        };
        node.map(|node| node as u32)
    }
}
