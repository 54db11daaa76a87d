//! Trees of switches, even or not.

use std::collections::BTreeMap;

use numaloc_topology::hostlist;
use numaloc_topology::links::Links;
use numaloc_topology::network::Switch;

use super::{FabricError, MOST_LINKS, by_level};

/// What is above a host or switch.
#[derive(Clone, Copy)]
struct Above {
    /// The next switch; `None` for a root.
    parent: Option<usize>,
    /// Number of switches above.
    depth: usize,
}

/// Hosts first, then switches. Link `2 k` leads from place `k` up, link `2 k + 1` down to it.
pub(super) struct Tree {
    above: Vec<Above>,
    /// Of switches.
    names: Vec<String>,
    hosts: usize,
    /// Time of the first byte by level of the common switch, root first; empty if not stated.
    latency_s: Vec<f64>,
}

impl Tree {
    /// Levels of `arities`, root first, filled with hosts in order. Without figures no switch is tapered: it has as
    /// many links up as hosts below.
    pub fn even(
        arities: &[usize],
        hosts: usize,
        latency_s: Vec<f64>,
        stated: &[f64],
        links: &Links,
    ) -> Result<(Self, Vec<f64>), FabricError> {
        let levels = arities.len();
        let speed = links.figures().host_bytes_per_s;
        let stated = match links.bytes_per_s.is_empty() {
            true => stated,
            false => &links.bytes_per_s,
        };
        let speeds = by_level("bytes_per_s", stated, |_| speed, levels)?;
        // Hosts below what hangs at each level; more than there are means all of them.
        let below: Vec<usize> = (0..levels)
            .map(|level| {
                let deeper = arities[level + 1..].iter();
                let room = deeper.fold(1_usize, |room, arity| room.saturating_mul(*arity));
                room.clamp(1, hosts)
            })
            .collect();
        let parallel = by_level(
            "parallel",
            &links.parallel,
            |level| below[level] as f64,
            levels,
        )?;
        let counts: Vec<usize> = below.iter().map(|below| hosts.div_ceil(*below)).collect();
        let places: usize = 1 + counts.iter().sum::<usize>();
        if 2 * places > MOST_LINKS {
            return Err(FabricError::TooLarge);
        }
        // Places of a level below the root begin where those of the levels above end; hosts are the last level.
        let mut above = vec![
            Above {
                parent: None,
                depth: 0
            };
            places
        ];
        let mut speeds_of = vec![f64::INFINITY; 2 * places];
        let mut names = vec!["root".to_owned()];
        let mut starts = vec![hosts];
        for (level, &count) in (1..levels).zip(&counts) {
            starts.push(hosts + names.len());
            names.extend((0..count).map(|at| format!("switch {level}.{at}")));
        }
        for level in 0..levels {
            let is_last = level + 1 == levels;
            let start = if is_last { 0 } else { starts[level + 1] };
            for at in 0..counts[level] {
                let parent = match level {
                    0 => starts[0],
                    _ => starts[level] + at * below[level] / below[level - 1],
                };
                above[start + at] = Above {
                    parent: Some(parent),
                    depth: level + 1,
                };
                let speed = speeds[level] * parallel[level];
                speeds_of[2 * (start + at)] = speed;
                speeds_of[2 * (start + at) + 1] = speed;
            }
        }
        let tree = Self {
            above,
            names,
            hosts,
            latency_s,
        };
        Ok((tree, speeds_of))
    }

    /// Switches by name. What has no switch above it is under one root. A switch has as many links up as hosts below,
    /// unless stated.
    pub fn named(
        switches: &[Switch],
        hosts: &[String],
        links: &Links,
    ) -> Result<(Self, Vec<f64>), FabricError> {
        let root = hosts.len() + switches.len();
        let mut at: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, switch) in switches.iter().enumerate() {
            at.insert(&switch.name, hosts.len() + index);
        }
        let of_host: BTreeMap<&str, usize> = hosts.iter().map(String::as_str).zip(0..).collect();
        let mut parents: Vec<Option<usize>> = vec![None; root + 1];
        for (index, switch) in switches.iter().enumerate() {
            let lists = [(&switch.hosts, &of_host), (&switch.switches, &at)];
            for (list, known) in lists {
                let Some(list) = list else { continue };
                for name in hostlist::expand(list)? {
                    if let Some(&below) = known.get(&*name) {
                        parents[below] = Some(hosts.len() + index);
                    }
                }
            }
        }
        for parent in &mut parents[..root] {
            parent.get_or_insert(root);
        }
        let mut below = vec![0.0_f64; root + 1];
        let mut above = Vec::with_capacity(root + 1);
        for place in 0..=root {
            let (mut depth, mut next) = (0, parents[place]);
            // A description with a circle is refused before; this ends anyway.
            while let Some(switch) = next.filter(|_| depth <= root) {
                depth += 1;
                if place < hosts.len() {
                    below[switch] += 1.0;
                }
                next = parents[switch];
            }
            above.push(Above {
                parent: parents[place],
                depth,
            });
        }
        let speed = links.figures().host_bytes_per_s;
        let mut speeds = vec![speed; 2 * (root + 1)];
        for switch in hosts.len()..=root {
            speeds[2 * switch] = speed * below[switch].max(1.0);
            speeds[2 * switch + 1] = speeds[2 * switch];
        }
        for link in &links.uplinks {
            let place = at.get(&*link.switch).or_else(|| of_host.get(&*link.switch));
            let Some(&place) = place else {
                return Err(FabricError::NoSuchSwitch {
                    switch: link.switch.clone(),
                });
            };
            let stated = link.links * link.bytes_per_s.unwrap_or(speed);
            speeds[2 * place] = stated;
            speeds[2 * place + 1] = stated;
        }
        let names = switches
            .iter()
            .map(|switch| format!("switch {}", switch.name));
        let tree = Self {
            above,
            names: names.chain(["root".to_owned()]).collect(),
            hosts: hosts.len(),
            latency_s: Vec::new(),
        };
        Ok((tree, speeds))
    }

    /// Climbs from both places to their common switch; calls `on` for each place that is left, and whether it is on the
    /// way up. Returns the depth of the common switch.
    fn climb(&self, from: usize, to: usize, mut on: impl FnMut(usize, bool)) -> usize {
        let (mut up, mut down) = (from, to);
        while up != down {
            let (a, b) = (self.above[up], self.above[down]);
            if a.depth >= b.depth {
                on(up, true);
                match a.parent {
                    Some(parent) => up = parent,
                    None => return 0,
                }
            }
            if b.depth >= a.depth {
                on(down, false);
                match b.parent {
                    Some(parent) => down = parent,
                    None => return 0,
                }
            }
        }
        self.above[up].depth
    }

    pub fn each_link(&self, from: usize, to: usize, mut on: impl FnMut(usize)) {
        self.climb(from, to, |place, is_up| {
            on(2 * place + usize::from(!is_up));
        });
    }

    /// The stated time of the first byte between two hosts.
    pub fn latency_s(&self, from: usize, to: usize) -> Option<f64> {
        if self.latency_s.is_empty() {
            return None;
        }
        self.latency_s.get(self.climb(from, to, |_, _| {})).copied()
    }

    /// Switches on the way beyond the first.
    pub fn further_switches(&self, from: usize, to: usize) -> usize {
        let mut left = 0;
        self.climb(from, to, |_, _| left += 1);
        left.max(2) - 2
    }

    pub fn name(&self, link: usize, hosts: &[String]) -> String {
        let place = link / 2;
        let name = match place.checked_sub(self.hosts) {
            None => &hosts[place],
            Some(switch) => &self.names[switch],
        };
        let direction = if link.is_multiple_of(2) { "out" } else { "in" };
        format!("{name}, {direction}")
    }
}
