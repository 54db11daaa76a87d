//! The switches above the hosts of a cluster, as one tree in which all hosts have the same depth.

use crate::network::{ONE_SWITCH, PER_LEVEL};

/// A switch.
pub(super) struct Branch {
    /// Distance of two PUs whose paths separate here.
    pub distance: f64,
    /// What is below, in the order of the hosts.
    pub below: Vec<Below>,
}

/// What is connected to a switch from below.
pub(super) enum Below {
    /// Another switch.
    Switch(Branch),
    /// The host with this index.
    Host(usize),
}

impl Branch {
    /// One switch for all hosts.
    pub fn one_switch(distance: f64, hosts: usize) -> Self {
        Self {
            distance,
            below: (0..hosts).map(Below::Host).collect(),
        }
    }

    /// Levels of switches, each (children, distance), root first, filled with `hosts` in order.
    pub fn filled(
        levels: &[(usize, f64)],
        hosts: &mut std::iter::Peekable<std::ops::Range<usize>>,
    ) -> Self {
        let ((arity, distance), deeper) = (levels[0], &levels[1..]);
        let mut below = Vec::new();
        while below.len() < arity
            && let Some(&host) = hosts.peek()
        {
            below.push(if deeper.is_empty() {
                hosts.next();
                Below::Host(host)
            } else {
                Below::Switch(Self::filled(deeper, hosts))
            });
        }
        Self { distance, below }
    }

    /// The hosts, in the order of the tree.
    pub fn hosts(&self) -> Vec<usize> {
        let below = self.below.iter().flat_map(|below| match below {
            Below::Switch(branch) => branch.hosts(),
            Below::Host(host) => vec![*host],
        });
        below.collect()
    }
}

/// Distance of two hosts whose paths separate at a switch with this many levels of switches below it.
pub(crate) fn default_distance(below: usize) -> f64 {
    ONE_SWITCH + PER_LEVEL * below as f64
}
