//! From switches by name to the tree above the hosts.

use std::collections::{BTreeMap, BTreeSet};

use super::branch::{Below, Branch, default_distance};
use super::error::ClusterError;
use crate::hostlist;
use crate::network::Switch;
use crate::tree::Topology;

/// Most levels of switches.
const MOST_LEVELS: usize = 32;

/// The tree above `hosts`: switches without a host are omitted, and where switches of different height have one parent,
/// the lower one gets single switches above it, so that all hosts have the same depth.
pub(super) fn root(
    switches: &[Switch],
    hosts: &[(String, &Topology)],
) -> Result<Branch, ClusterError> {
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, switch) in switches.iter().enumerate() {
        if known.insert(&switch.name, at).is_some() {
            return Err(ClusterError::SwitchTwice {
                switch: switch.name.clone(),
            });
        }
    }
    let wanted: BTreeSet<&str> = hosts.iter().map(|(name, _)| name.as_str()).collect();
    let mut free: BTreeMap<String, usize> = hosts
        .iter()
        .map(|(name, _)| name.clone())
        .zip(0..)
        .collect();
    let mut above: Vec<Option<usize>> = vec![None; switches.len()];
    let mut nested = Vec::with_capacity(switches.len());
    for (at, switch) in switches.iter().enumerate() {
        let mut mine = Vec::new();
        let mut below = Vec::new();
        for name in listed(switch.hosts.as_deref())? {
            if let Some(host) = free.remove(&name) {
                mine.push(host);
            } else if wanted.contains(&*name) {
                return Err(ClusterError::TwoSwitches { below: name });
            }
        }
        for name in listed(switch.switches.as_deref())? {
            let &child = known
                .get(&*name)
                .ok_or_else(|| ClusterError::NoSuchSwitch {
                    switch: switch.name.clone(),
                    below: name.clone(),
                })?;
            if above[child].replace(at).is_some() {
                return Err(ClusterError::TwoSwitches { below: name });
            }
            below.push(child);
        }
        nested.push((mine, below));
    }
    if let Some((host, _)) = free.pop_first() {
        return Err(ClusterError::NoSwitch { host });
    }
    let description = Description { switches, nested };
    let roots: Vec<usize> = (0..switches.len())
        .filter(|&at| above[at].is_none())
        .collect();
    let mut built = Vec::new();
    for root in roots {
        built.extend(description.branch(root, 0)?);
    }
    // A circle of switches has no root, and its hosts are missing.
    let found: usize = built.iter().map(|(_, branch)| branch.hosts().len()).sum();
    if found < hosts.len() {
        return Err(ClusterError::SwitchCircle);
    }
    Ok(match built.len() {
        1 => built.remove(0).1,
        _ => joined(built, Vec::new(), None).1,
    })
}

fn listed(list: Option<&str>) -> Result<Vec<String>, ClusterError> {
    Ok(list.map_or(Ok(Vec::new()), hostlist::expand)?)
}

/// Switches with the hosts and switches below each, as indexes.
struct Description<'a> {
    switches: &'a [Switch],
    nested: Vec<(Vec<usize>, Vec<usize>)>,
}

impl Description<'_> {
    /// The tree under a switch and its levels below the top one; `None` without hosts.
    fn branch(&self, at: usize, depth: usize) -> Result<Option<(usize, Branch)>, ClusterError> {
        if depth == MOST_LEVELS {
            return Err(ClusterError::DeepSwitches {
                switch: self.switches[at].name.clone(),
                levels: MOST_LEVELS,
            });
        }
        let (hosts, switches) = &self.nested[at];
        let mut below = Vec::new();
        for &switch in switches {
            below.extend(self.branch(switch, depth + 1)?);
        }
        let any = !below.is_empty() || !hosts.is_empty();
        Ok(any.then(|| joined(below, hosts.clone(), self.switches[at].distance)))
    }
}

/// One switch above others, each with its height, and above hosts; with its own height.
fn joined(
    below: Vec<(usize, Branch)>,
    hosts: Vec<usize>,
    distance: Option<f64>,
) -> (usize, Branch) {
    let height = below
        .iter()
        .map(|(height, _)| height + 1)
        .max()
        .unwrap_or(0);
    let raised = |mut thing: Below, from: usize| {
        for level in from..height {
            thing = Below::Switch(Branch {
                distance: default_distance(level),
                below: vec![thing],
            });
        }
        thing
    };
    let switches = below
        .into_iter()
        .map(|(height, branch)| raised(Below::Switch(branch), height + 1));
    let mut all: Vec<Below> = switches.collect();
    all.extend(hosts.into_iter().map(|host| raised(Below::Host(host), 0)));
    let branch = Branch {
        distance: distance.unwrap_or_else(|| default_distance(height)),
        below: all,
    };
    (height, branch)
}
