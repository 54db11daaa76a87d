//! Bytes per second that memory of every node delivers while threads read from all nodes at once.

use numaloc_topology::Topology;

use crate::links::{BYTES_PER_S, Links};

/// Bytes of a request, and of the header of a line, on a link.
const HEADER_BYTES: f64 = 16.0;
/// A controller or link is full at this share of its bandwidth that is left.
const FULL: f64 = 1e-9;

/// A memory controller or link.
struct Part {
    bytes_per_s: f64,
    /// By memory node: bytes that pass for each byte read from this node.
    load: Vec<f64>,
}

/// Bytes per second from every node, by logical index; `None` if the machine states no bandwidths. `readers[n]` is the
/// share (0..=1) of all reads that threads on node n make; they read from each node in these shares.
///
/// The rates are max-min fair: all grow equally until a controller or link is full, those that pass it stay, and the
/// others grow on. Memory-only nodes, which are further from every thread, grow last and get what controllers and links
/// have left. A node that some reader cannot reach has the rate 0.
pub(crate) fn rates(topology: &Topology, readers: &[f64]) -> Option<Vec<f64>> {
    let hardware = topology.hardware()?;
    let nodes = topology.nodes().len();
    let links = Links::of(topology, BYTES_PER_S, hardware.memory_latency_ns * 1e-9);
    let reachable = |node: usize| {
        let mut from = (0..nodes).filter(|&reader| reader != node && readers[reader] > 0.0);
        from.all(|reader| !links.route(node, reader).is_empty())
    };
    let header = HEADER_BYTES / hardware.line_bytes as f64;
    let mut parts: Vec<Part> = (0..nodes)
        .map(|node| hardware.memory_of(node).1)
        .chain(links.bytes_per_s().iter().copied())
        .map(|bytes_per_s| Part {
            bytes_per_s,
            load: vec![0.0; nodes],
        })
        .collect();
    for memory in 0..nodes {
        parts[memory].load[memory] = 1.0;
        for (reader, share) in readers.iter().enumerate() {
            for &link in links.route(memory, reader) {
                parts[nodes + link].load[memory] += share * (1.0 + header);
            }
            for &link in links.route(reader, memory) {
                parts[nodes + link].load[memory] += share * header;
            }
        }
    }
    let mut rates = vec![0.0; nodes];
    for of_memory_alone in [false, true] {
        let is_one = |node: usize| topology.nodes()[node].pus.is_empty() == of_memory_alone;
        let growing = (0..nodes).map(|node| is_one(node) && reachable(node));
        fill(&mut rates, growing.collect(), &parts);
    }
    Some(rates)
}

/// Grows the rates of the `growing` nodes.
fn fill(rates: &mut [f64], mut growing: Vec<bool>, parts: &[Part]) {
    while growing.contains(&true) {
        let left = |part: &Part, rates: &[f64]| {
            let used = part.load.iter().zip(rates).map(|(load, rate)| load * rate);
            part.bytes_per_s - used.sum::<f64>()
        };
        let more = parts
            .iter()
            .map(|part| {
                let loads = part.load.iter().zip(&growing);
                let load: f64 = loads
                    .filter(|(_, grows)| **grows)
                    .map(|(load, _)| load)
                    .sum();
                left(part, rates).max(0.0) / load
            })
            .filter(|more| more.is_finite())
            .fold(f64::INFINITY, f64::min);
        for (rate, _) in rates.iter_mut().zip(&growing).filter(|(_, grows)| **grows) {
            *rate += more;
        }
        for part in parts {
            if left(part, rates) > FULL * part.bytes_per_s {
                continue;
            }
            for (grows, load) in growing.iter_mut().zip(&part.load) {
                *grows &= *load == 0.0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_topology::resolve;

    fn gigabytes(machine: &str, readers: &[f64]) -> Vec<f64> {
        let rates = rates(&resolve(machine).unwrap(), readers).unwrap();
        rates
            .iter()
            .map(|rate| (rate / 1e8).round() / 10.0)
            .collect()
    }

    #[test]
    fn from_one_node_near_memory_is_bound_by_its_controller_and_far_memory_by_the_link() {
        // cxl-2s: 215 GB/s a socket, 24 an expander, 96 between sockets with 80 bytes for a line of 64. The link to
        // node 0 carries 96 / 1.25 = 76.8, of which the far socket's memory leaves nothing to its expander.
        assert_eq!(
            gigabytes("cxl-2s", &[1.0, 0.0, 0.0, 0.0]),
            [215.0, 24.0, 76.8, 0.0]
        );
    }

    #[test]
    fn readers_on_both_sockets_share_the_links_between_them() {
        // Half of each rate crosses: a direction carries 0.5 x 1.25 of one rate, and requests of the other, 0.5 x 0.25.
        // 0.75 x = 96 gives x = 128, and nothing is left to the expanders, half of whose lines would cross too.
        assert_eq!(
            gigabytes("cxl-2s", &[0.5, 0.0, 0.5, 0.0]),
            [128.0, 0.0, 128.0, 0.0]
        );
    }

    #[test]
    fn a_machine_without_bandwidths_has_no_rates() {
        assert_eq!(
            rates(&resolve("numa:2 core:1 pu:1").unwrap(), &[0.5, 0.5]),
            None
        );
    }
}
