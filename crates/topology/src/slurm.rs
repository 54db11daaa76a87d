//! Slurm's view of the network: the text of `scontrol show topology` or `topology.conf`, for the plugins tree
//! (switches) and block (blocks and aggregated blocks).

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::default_distance;
use crate::hostlist::expand;
use crate::network::{Network, Switch};

/// Most levels of switches.
const MOST_LEVELS: usize = 16;

/// A switch or block of the text.
struct Record {
    name: String,
    /// Hosts anywhere below it.
    hosts: Vec<String>,
    /// Names of switches directly below it.
    below: Vec<String>,
}

/// The hosts of `hosts` in the order of the switches above them, and these switches as a network: levels, if all
/// switches of a level are equal, else by name. Which switch is above which follows from the hosts below each; several
/// roots, and hosts that the text does not name, get one more switch above all. `None` if the text names none of the
/// hosts, or switches form a cycle.
#[must_use]
pub fn network(text: &str, hosts: &[String]) -> Option<(Vec<String>, Network)> {
    let mut records = records(text)?;
    let heights = resolve(&mut records)?;
    // From the largest to the smallest: the parent of a switch is the last one before it that has its hosts.
    let mut order: Vec<usize> = (0..records.len())
        .filter(|&at| !records[at].hosts.is_empty())
        .collect();
    order.sort_by_key(|&at| std::cmp::Reverse((records[at].hosts.len(), heights[at])));
    let mut owner: BTreeMap<&str, usize> = BTreeMap::new();
    let mut above: Vec<Option<usize>> = vec![None; records.len()];
    let mut kept = Vec::new();
    for at in order {
        let of = |host: &String| owner.get(host.as_str()).copied();
        let parent = of(&records[at].hosts[0]);
        // Switches that share some of their hosts are no tree; the larger one stays.
        if records[at].hosts.iter().all(|host| of(host) == parent) {
            owner.extend(records[at].hosts.iter().map(|host| (host.as_str(), at)));
            above[at] = parent;
            kept.push(at);
        }
    }
    let wanted: BTreeSet<&str> = hosts.iter().map(String::as_str).collect();
    let mut tree = Tree {
        names: names(&records),
        hosts: vec![Vec::new(); records.len()],
        below: vec![Vec::new(); records.len()],
        height: vec![0; records.len()],
    };
    let mut roots = Vec::new();
    for &at in kept.iter().rev() {
        let mine = records[at]
            .hosts
            .iter()
            .filter(|host| owner[host.as_str()] == at);
        let mine = mine.filter(|host| wanted.contains(host.as_str()));
        tree.hosts[at] = mine.cloned().collect();
        tree.below[at].sort_unstable();
        let is_used = !tree.hosts[at].is_empty() || !tree.below[at].is_empty();
        if let Some(parent) = above[at] {
            tree.height[parent] = tree.height[parent].max(tree.height[at] + 1);
        }
        let siblings = above[at].map_or(&mut roots, |parent| &mut tree.below[parent]);
        siblings.extend(is_used.then_some(at));
    }
    roots.sort_unstable();
    let lost = hosts
        .iter()
        .filter(|host| !owner.contains_key(host.as_str()));
    let lost: Vec<String> = lost.cloned().collect();
    (!roots.is_empty()).then(|| tree.described(roots, lost))
}

/// The records of the text. Keys are compared without case; `#` starts a comment.
fn records(text: &str) -> Option<Vec<Record>> {
    let mut records: Vec<Record> = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or("");
        let field = |keys: &[&str]| {
            line.split_whitespace().find_map(|word| {
                let (key, value) = word.split_once('=')?;
                let known = keys.iter().any(|known| key.eq_ignore_ascii_case(known));
                (known && !value.is_empty() && value != "(null)").then_some(value)
            })
        };
        let Some(name) = field(&["SwitchName", "BlockName", "AggregatedBlock"]) else {
            continue;
        };
        let list = |list: Option<&str>| list.map_or(Some(Vec::new()), |list| expand(list).ok());
        records.push(Record {
            name: name.to_owned(),
            hosts: list(field(&["Nodes"]))?,
            below: list(field(&["Switches"]))?,
        });
    }
    Some(records)
}

/// Adds to each record the hosts of the switches below it, which the configuration file does not repeat. The levels
/// below each record; `None` for a cycle.
fn resolve(records: &mut [Record]) -> Option<Vec<usize>> {
    let known: BTreeMap<String, usize> = records.iter().map(|r| r.name.clone()).zip(0..).collect();
    let below = |record: &Record| -> Vec<usize> {
        let names = record.below.iter();
        names.filter_map(|name| known.get(name).copied()).collect()
    };
    let below: Vec<Vec<usize>> = records.iter().map(below).collect();
    let mut heights = vec![0; records.len()];
    // Each round resolves one level more.
    for round in 0..=MOST_LEVELS {
        let higher = |at: usize| {
            below[at]
                .iter()
                .map(|&child| heights[child] + 1)
                .max()
                .unwrap_or(0)
        };
        let next: Vec<usize> = (0..records.len()).map(higher).collect();
        if next == heights {
            break;
        }
        if round == MOST_LEVELS {
            return None;
        }
        heights = next;
    }
    let mut order: Vec<usize> = (0..records.len()).collect();
    order.sort_by_key(|&at| heights[at]);
    for at in order {
        let mut have: BTreeSet<String> = records[at].hosts.iter().cloned().collect();
        for &child in &below[at] {
            for host in records[child].hosts.clone() {
                if have.insert(host.clone()) {
                    records[at].hosts.push(host);
                }
            }
        }
    }
    Some(heights)
}

/// Switches as a tree, by index of their records.
struct Tree {
    names: Vec<String>,
    /// Hosts of the allocation directly below.
    hosts: Vec<Vec<String>>,
    /// Switches directly below that have such hosts, in the order of the text.
    below: Vec<Vec<usize>>,
    /// Levels of switches below, of the whole machine.
    height: Vec<usize>,
}

/// The description of a tree, as far as it is walked.
#[derive(Default)]
struct Found {
    hosts: Vec<String>,
    switches: Vec<Switch>,
}

/// What is below a switch.
struct Below {
    /// Levels of switches that have hosts.
    levels: usize,
    /// Children by level, if all switches of a level are equal and the levels give their distances.
    arities: Option<Vec<usize>>,
}

impl Tree {
    /// The hosts in the order of the tree, and the tree; `lost`: hosts that no switch is above of.
    fn described(mut self, mut roots: Vec<usize>, lost: Vec<String>) -> (Vec<String>, Network) {
        // What is above all hosts and has one child separates nothing.
        while let ([root], true) = (&roots[..], lost.is_empty()) {
            if !self.hosts[*root].is_empty() || self.below[*root].len() > 1 {
                break;
            }
            roots = self.below[*root].clone();
        }
        if roots.len() > 1 || !lost.is_empty() {
            let heights = roots.iter().map(|&root| self.height[root] + 1);
            self.height.push(heights.max().unwrap_or(0));
            self.names.push(unused(&self.names, "all"));
            self.hosts.push(lost);
            self.below.push(roots);
            roots = vec![self.names.len() - 1];
        }
        let mut found = Found::default();
        let below = self.describe(roots[0], &mut found);
        let network = match below.arities {
            Some(arities) => Network::Tree {
                arities,
                distances: Vec::new(),
                latency_ns: Vec::new(),
                bandwidth_bytes_per_s: Vec::new(),
            },
            None => Network::Switches {
                switches: found.switches,
            },
        };
        (found.hosts, network)
    }

    /// Adds a switch and all below it.
    fn describe(&self, at: usize, found: &mut Found) -> Below {
        let (hosts, children) = (&self.hosts[at], &self.below[at]);
        let below: Vec<Below> = children
            .iter()
            .map(|&child| self.describe(child, found))
            .collect();
        let levels = below
            .iter()
            .map(|below| below.levels + 1)
            .max()
            .unwrap_or(0);
        let height = self.height[at];
        let distance = (height != levels).then(|| default_distance(height));
        let arities = match &below[..] {
            [] => Some(vec![hosts.len()]),
            [first, others @ ..] => first
                .arities
                .clone()
                .filter(|_| {
                    hosts.is_empty() && others.iter().all(|other| other.arities == first.arities)
                })
                .map(|deeper| [vec![children.len()], deeper].concat()),
        };
        found.hosts.extend(hosts.iter().cloned());
        let names: Vec<&str> = children
            .iter()
            .map(|&child| self.names[child].as_str())
            .collect();
        found.switches.push(Switch {
            name: self.names[at].clone(),
            hosts: (!hosts.is_empty()).then(|| hosts.join(",")),
            switches: (!names.is_empty()).then(|| names.join(",")),
            distance,
        });
        Below {
            levels,
            arities: arities.filter(|_| distance.is_none()),
        }
    }
}

/// A name for each record that is a single name in lists, and unique: aggregated blocks are called `b[1-4]`.
fn names(records: &[Record]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(records.len());
    for record in records {
        let plain = record.name.replace(['[', ']'], "").replace(',', "+");
        names.push(unused(&names, &plain));
    }
    names
}

/// `name`, or with a number if it is one of `names`.
fn unused(names: &[String], name: &str) -> String {
    let is_free = |name: &String| !names.contains(name);
    let numbered = (2..).map(|n| format!("{name}-{n}"));
    std::iter::once(name.to_owned())
        .chain(numbered)
        .find(is_free)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
