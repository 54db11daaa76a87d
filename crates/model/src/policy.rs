//! Memory policies of the kernel under which pages are placed.

use std::fmt;
use std::str::FromStr;

/// How a policy chooses nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyMode {
    /// The first node of the mask while it has memory.
    Preferred,
    /// Only nodes of the mask, the nearest first.
    Bind,
    /// Pages alternately on the nodes of the mask.
    Interleave,
    /// Nodes of the mask while they have memory, the nearest first.
    PreferredMany,
    /// Pages on the nodes of the mask by their weights.
    Weighted,
}

impl PolicyMode {
    const NAMES: [(Self, &str); 5] = [
        (Self::Preferred, "preferred"),
        (Self::Bind, "bind"),
        (Self::Interleave, "interleave"),
        (Self::PreferredMany, "preferred-many"),
        (Self::Weighted, "weighted-interleave"),
    ];

    /// The mode with the kernel's number (`MPOL_*`); `None` for first touch and unknown modes.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Preferred,
            2 => Self::Bind,
            3 => Self::Interleave,
            5 => Self::PreferredMany,
            6 => Self::Weighted,
            _ => return None,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let known = Self::NAMES.iter().find(|known| known.0 == self);
        known.map_or("", |known| known.1)
    }
}

/// A policy that the program, or who started it, set for a page: not first touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemoryPolicy {
    /// How it chooses.
    pub mode: PolicyMode,
    /// Mask of the nodes, by index; [`MemoryPolicy::ALL`] for all of any machine.
    pub nodes: u64,
}

impl MemoryPolicy {
    /// All nodes.
    pub const ALL: u64 = u64::MAX;

    /// The node of a page with this number in its object, on a machine with `nodes` nodes; `toucher` is the node of the
    /// thread that placed it. Of several nodes that `Bind` allows, the lowest if that one is not among them: the
    /// nearest is not known here.
    #[must_use]
    pub fn node(&self, page: u64, nodes: usize, toucher: Option<usize>) -> Option<usize> {
        let is_chosen = |node: usize| node < 64 && self.nodes >> node & 1 != 0;
        let count = (0..nodes).filter(|&node| is_chosen(node)).count() as u64;
        if count == 0 {
            return toucher;
        }
        let lowest = (0..nodes).find(|&node| is_chosen(node));
        match self.mode {
            PolicyMode::Interleave | PolicyMode::Weighted => {
                let at = (page % count) as usize;
                (0..nodes).filter(|&node| is_chosen(node)).nth(at)
            }
            PolicyMode::Preferred => lowest,
            PolicyMode::Bind | PolicyMode::PreferredMany => {
                toucher.filter(|&node| is_chosen(node)).or(lowest)
            }
        }
    }
}

impl fmt::Display for MemoryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.mode.name())?;
        if self.nodes == Self::ALL {
            return f.write_str("all");
        }
        let mut separator = "";
        for node in (0..64).filter(|node| self.nodes >> node & 1 != 0) {
            write!(f, "{separator}{node}")?;
            separator = "+";
        }
        Ok(())
    }
}

/// Text that is not a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPolicy;

impl FromStr for MemoryPolicy {
    type Err = NoPolicy;

    fn from_str(text: &str) -> Result<Self, NoPolicy> {
        let (name, nodes) = text.split_once(':').ok_or(NoPolicy)?;
        let known = PolicyMode::NAMES.iter().find(|known| known.1 == name);
        let mode = known.ok_or(NoPolicy)?.0;
        if nodes == "all" {
            let nodes = Self::ALL;
            return Ok(Self { mode, nodes });
        }
        let mut mask = 0;
        for node in nodes.split('+').filter(|node| !node.is_empty()) {
            let node: u32 = node.parse().map_err(|_| NoPolicy)?;
            mask |= 1u64.checked_shl(node).ok_or(NoPolicy)?;
        }
        Ok(Self { mode, nodes: mask })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(mode: PolicyMode, nodes: u64) -> MemoryPolicy {
        MemoryPolicy { mode, nodes }
    }

    #[test]
    fn policies_are_read_as_they_are_written() {
        for (mode, _) in PolicyMode::NAMES {
            for nodes in [0, 1, 0b1010, MemoryPolicy::ALL] {
                let policy = policy(mode, nodes);
                assert_eq!(policy.to_string().parse(), Ok(policy));
            }
        }
        assert_eq!("interleave:70".parse::<MemoryPolicy>(), Err(NoPolicy));
        assert_eq!("else:1".parse::<MemoryPolicy>(), Err(NoPolicy));
    }

    #[test]
    fn pages_are_where_the_policy_allows() {
        let spread = policy(PolicyMode::Interleave, 0b1010);
        assert_eq!(spread.node(0, 4, Some(0)), Some(1));
        assert_eq!(spread.node(3, 4, Some(0)), Some(3));
        let all = policy(PolicyMode::Interleave, MemoryPolicy::ALL);
        assert_eq!(all.node(7, 4, None), Some(3));
        let bound = policy(PolicyMode::Bind, 0b1100);
        assert_eq!(bound.node(0, 4, Some(3)), Some(3));
        assert_eq!(bound.node(0, 4, Some(0)), Some(2));
        // The machine has none of the nodes.
        assert_eq!(bound.node(0, 2, Some(1)), Some(1));
        let preferred = policy(PolicyMode::Preferred, 0b10);
        assert_eq!(preferred.node(0, 4, Some(0)), Some(1));
    }
}
