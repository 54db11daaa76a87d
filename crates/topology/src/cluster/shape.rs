//! What a network is to the tree of a cluster: levels of switches, or a table of the distances of hosts.

use super::branch::{Branch, default_distance};
use super::error::ClusterError;
use super::limits::{MAX_FIGURE, TABLE_LIMIT};
use super::switches;
use crate::network::{Network, ONE_SWITCH};
use crate::tree::Topology;

/// Idle memory latency assumed for hosts that state none, for converting latencies to distances.
const MEMORY_LATENCY_NS: f64 = 100.0;

/// Checks figures of a network for plausibility; `field` names their place.
fn check(field: &'static str, values: &[f64]) -> Result<(), ClusterError> {
    match values.iter().position(|v| !(0.0..=MAX_FIGURE).contains(v)) {
        Some(at) => Err(ClusterError::Figure {
            field,
            value: values[at],
            number: at + 1,
            of: values.len(),
        }),
        None => Ok(()),
    }
}

/// The network as levels of switches, or as a matrix.
pub(super) struct Shape {
    /// The switches above the hosts.
    pub root: Branch,
    /// Hosts x hosts, if levels do not determine the distances.
    pub matrix: Option<Vec<f64>>,
}

impl Shape {
    /// The shape of a network of `hosts`.
    pub fn of(network: &Network, hosts: &[(String, &Topology)]) -> Result<Self, ClusterError> {
        let count = hosts.len();
        match network {
            Network::Tree {
                arities,
                distances,
                latency_ns,
                bandwidth_bytes_per_s,
            } => {
                for (field, values) in [
                    ("distances", distances),
                    ("latency_ns", latency_ns),
                    ("bandwidth_bytes_per_s", bandwidth_bytes_per_s),
                ] {
                    if !values.is_empty() && values.len() != arities.len() {
                        return Err(ClusterError::Levels {
                            field,
                            found: values.len(),
                            levels: arities.len(),
                        });
                    }
                    check(field, values)?;
                }
                let memory_ns = hosts[0]
                    .1
                    .hardware()
                    .map_or(MEMORY_LATENCY_NS, |h| h.memory_latency_ns);
                tree(arities, distances, latency_ns, memory_ns, count)
            }
            Network::Dragonfly {
                groups,
                routers,
                hosts,
                distances,
            } => {
                if !distances.is_empty() && distances.len() != 3 {
                    return Err(ClusterError::Dragonfly {
                        found: distances.len(),
                    });
                }
                check("distances", distances)?;
                tree(&[*groups, *routers, *hosts], distances, &[], 0.0, count)
            }
            Network::Torus {
                dims,
                first_hop,
                per_hop,
            } => torus(dims, *first_hop, *per_hop, count),
            Network::Switches { switches } => {
                for switch in switches {
                    check("distance", switch.distance.as_slice())?;
                }
                Ok(Self {
                    root: switches::root(switches, hosts)?,
                    matrix: None,
                })
            }
            Network::Matrix { distances } => {
                check("distances", distances)?;
                if distances.len() != count * count {
                    return Err(ClusterError::Matrix {
                        found: distances.len(),
                        hosts: count,
                    });
                }
                Ok(one_switch(distances.clone(), ONE_SWITCH, count))
            }
        }
    }
}

/// A table of the distances of `count` hosts.
fn one_switch(matrix: Vec<f64>, distance: f64, count: usize) -> Shape {
    Shape {
        root: Branch::one_switch(distance, count),
        matrix: Some(matrix),
    }
}

/// The product, unless it overflows.
fn product(factors: &[usize]) -> Option<usize> {
    factors
        .iter()
        .try_fold(1_usize, |product, &factor| product.checked_mul(factor))
}

/// Levels of switches with these distances, or those of the latencies, or the defaults, filled with `hosts` in order.
fn tree(
    arities: &[usize],
    distances: &[f64],
    latency_ns: &[f64],
    memory_ns: f64,
    hosts: usize,
) -> Result<Shape, ClusterError> {
    let distances = if !distances.is_empty() {
        distances.to_vec()
    } else if !latency_ns.is_empty() {
        latency_ns.iter().map(|ns| 10.0 * ns / memory_ns).collect()
    } else {
        let levels = 0..arities.len();
        levels.rev().map(default_distance).collect()
    };
    // Latencies relative to the memory's.
    check("the network", &distances)?;
    let room = product(arities);
    if arities.is_empty() || arities.contains(&0) || room.is_none_or(|room| room < hosts) {
        return Err(ClusterError::FewSwitches {
            arities: arities.to_vec(),
            hosts,
        });
    }
    let levels: Vec<_> = arities.iter().copied().zip(distances).collect();
    Ok(Shape {
        root: Branch::filled(&levels, &mut (0..hosts).peekable()),
        matrix: None,
    })
}

/// A torus of `count` hosts in row-major order: the distances of all hosts.
fn torus(
    dims: &[usize],
    first_hop: f64,
    per_hop: f64,
    count: usize,
) -> Result<Shape, ClusterError> {
    if dims.contains(&0) || product(dims).is_none_or(|size| size < count) {
        return Err(ClusterError::SmallTorus {
            dims: dims.to_vec(),
            hosts: count,
        });
    }
    if count > TABLE_LIMIT {
        return Err(ClusterError::LargeTorus { hosts: count });
    }
    for (field, value) in [("first_hop", first_hop), ("per_hop", per_hop)] {
        check(field, &[value])?;
    }
    let at = |mut host: usize| {
        let mut place = vec![0; dims.len()];
        for (d, &length) in dims.iter().enumerate().rev() {
            place[d] = host % length;
            host /= length;
        }
        place
    };
    let matrix = matrix_of(count, |a, b| {
        let (a, b) = (at(a), at(b));
        let along = a.iter().zip(&b).zip(dims);
        let hops: usize = along
            .map(|((&a, &b), &length)| a.abs_diff(b).min(length - a.abs_diff(b)))
            .sum();
        if hops == 0 {
            0.0
        } else {
            first_hop + per_hop * (hops - 1) as f64
        }
    });
    // Sums of hops.
    check("the network", &matrix)?;
    Ok(one_switch(matrix, first_hop, count))
}

/// A table of `count` x `count` distances, row after row.
pub(super) fn matrix_of(count: usize, distance: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    (0..count * count)
        .map(|at| distance(at / count, at % count))
        .collect()
}
