//! On which node a page is expected to be in a run with a mapping and a placement: the one rule for every figure of
//! remote accesses and for every time.

use numaloc_model::pages::Page;
use numaloc_model::{LogicalNode, Mapping, Placement, Profile};
use numaloc_topology::Topology;

/// Where a page is expected to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// On this node.
    Node(LogicalNode),
    /// On any node with equal probability: a page of the page cache, which all processes share and no plan places, or
    /// one that no thread used.
    Anywhere,
}

/// The home of each page: where the plan puts it, else its first toucher's node, or if first touch was not observed,
/// that of its main user (ties: the last). Pages of the page cache are anywhere, whatever the plan says.
///
/// # Panics
/// If mapping or placement do not fit the profile.
#[must_use]
pub fn homes(
    profile: &Profile,
    topology: &Topology,
    mapping: &Mapping,
    placement: &Placement,
) -> Vec<Home> {
    let pages = profile.pages().pages();
    assert_eq!(placement.node.len(), pages.len(), "a node per page");
    pages
        .iter()
        .zip(&placement.node)
        .map(|(page, &node)| home(profile, topology, mapping, page, node))
        .collect()
}

fn home(
    profile: &Profile,
    topology: &Topology,
    mapping: &Mapping,
    page: &Page,
    node: Option<LogicalNode>,
) -> Home {
    if profile.is_in_page_cache(page) {
        return Home::Anywhere;
    }
    let main_user = || {
        let accesses = profile.pages().accesses(page).iter();
        let most = accesses.max_by_key(|access| access.total());
        most.map(|access| access.thread)
    };
    let of_toucher = || {
        let thread = page.first_touch.or_else(main_user)?;
        Some(topology.node_of(mapping.pu[thread.index()]))
    };
    node.or_else(of_toucher).map_or(Home::Anywhere, Home::Node)
}
