//! Page policies inside a simulation: which node a page lives on, decided when it is first touched, as a kernel does.

use numaloc_model::LogicalNode;

/// Where pages live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pages {
    /// On the node of the thread that touches the page first.
    FirstTouch,
    /// In turn on every node, by the page's address.
    Interleave,
    /// All on one node.
    Node(LogicalNode),
    /// By [`Trace::pages`](crate::Trace::pages); pages without a node by first touch.
    Placed(Vec<Option<LogicalNode>>),
}

/// The pages of one simulation.
#[derive(Clone, Debug)]
pub(crate) struct PageTable {
    homes: Vec<u16>,
}

const NOWHERE: u16 = u16::MAX;

impl PageTable {
    /// For pages with these numbers on a machine with `nodes` nodes.
    pub(crate) fn new(policy: &Pages, pages: &[u64], nodes: usize) -> Self {
        let homes = match policy {
            Pages::FirstTouch => vec![NOWHERE; pages.len()],
            Pages::Interleave => pages
                .iter()
                .map(|page| (page % nodes as u64) as u16)
                .collect(),
            Pages::Node(node) => vec![node.0 as u16; pages.len()],
            Pages::Placed(homes) => {
                let home = |node: &Option<LogicalNode>| node.map_or(NOWHERE, |node| node.0 as u16);
                homes.iter().map(home).collect()
            }
        };
        Self { homes }
    }

    /// The home of a page that a core of `node` touches.
    #[inline(always)]
    pub(crate) fn home(&mut self, page: usize, node: u32) -> usize {
        let home = &mut self.homes[page];
        if *home == NOWHERE {
            *home = node as u16;
        }
        usize::from(*home)
    }

    /// Pages that live on each node.
    pub(crate) fn count(&self, nodes: usize) -> Vec<u64> {
        let mut count = vec![0; nodes];
        for &home in self.homes.iter().filter(|&&home| home != NOWHERE) {
            count[usize::from(home)] += 1;
        }
        count
    }
}
