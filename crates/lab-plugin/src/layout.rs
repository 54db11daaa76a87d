//! Maps reported physical addresses to nodes.
//!
//! QEMU 7.2 reports `offset in RAM space + offset in the machine's memory` for a page. With memory in one
//! piece the first term is 0; with one backend per node both terms are the node's offset, so that a node
//! that starts at A is reported at 2 A. Other versions report the guest-physical address. Neither is
//! documented, so neither is assumed: at boot a prober touches memory bound to each node, and the layout is
//! the only hypothesis that explains all probes.

/// Granularity of the table in bytes; every node's size is a multiple.
pub const CHUNK_BYTES: u64 = 2 << 20;
const CHUNK_BITS: u32 = CHUNK_BYTES.trailing_zeros();
/// Number of probed pages required per node.
pub const MIN_SAMPLES: usize = 64;

/// How reported addresses depend on a page's offset in the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hypothesis {
    /// Offset in the guest's memory, without the hole below 4 GiB.
    Offset,
    /// Twice the node's offset plus the offset in the node.
    Doubled,
    /// Guest-physical address: memory beyond `low` bytes continues at 4 GiB.
    Hole {
        /// Bytes of memory below 4 GiB.
        low: u64,
    },
}

impl std::fmt::Display for Hypothesis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Offset => f.write_str("offset"),
            Self::Doubled => f.write_str("doubled"),
            Self::Hole { low } => write!(f, "hole-{low:#x}"),
        }
    }
}

/// A chunk of reported addresses.
#[derive(Clone, Copy)]
struct Chunk {
    /// Node + 1; 0 if the chunk holds no node's memory.
    node: u8,
    /// First byte of the chunk in the dense numbering (node 0 first, no gaps).
    dense: u64,
}

/// Maps reported addresses to nodes.
pub struct Layout {
    chunks: Vec<Chunk>,
    /// The confirmed hypothesis.
    pub hypothesis: Hypothesis,
}

impl Layout {
    /// The reported ranges of all nodes under a hypothesis: (node, reported start, dense start, bytes).
    fn pieces(sizes: &[u64], hypothesis: Hypothesis) -> Vec<(usize, u64, u64, u64)> {
        const FOUR_GIB: u64 = 4 << 30;
        let mut pieces = Vec::new();
        let mut start = 0;
        for (node, &size) in sizes.iter().enumerate() {
            match hypothesis {
                Hypothesis::Offset => pieces.push((node, start, start, size)),
                Hypothesis::Doubled => pieces.push((node, 2 * start, start, size)),
                Hypothesis::Hole { low } => {
                    let below = low.saturating_sub(start).min(size);
                    if below > 0 {
                        pieces.push((node, start, start, below));
                    }
                    if below < size {
                        let at = start + below;
                        pieces.push((node, at - low + FOUR_GIB, at, size - below));
                    }
                }
            }
            start += size;
        }
        pieces
    }

    fn new(sizes: &[u64], hypothesis: Hypothesis) -> Self {
        let pieces = Self::pieces(sizes, hypothesis);
        let end = pieces.iter().map(|p| p.1 + p.3).max().unwrap_or(0);
        let mut chunks = vec![Chunk { node: 0, dense: 0 }; (end >> CHUNK_BITS) as usize];
        for (node, reported, dense, bytes) in pieces {
            for at in 0..bytes >> CHUNK_BITS {
                chunks[((reported >> CHUNK_BITS) + at) as usize] = Chunk {
                    node: node as u8 + 1,
                    dense: dense + (at << CHUNK_BITS),
                };
            }
        }
        Self { chunks, hypothesis }
    }

    /// Node and dense address of a reported address; `None` if there is no guest memory.
    pub fn find(&self, reported: u64) -> Option<(usize, u64)> {
        let chunk = self.chunks.get((reported >> CHUNK_BITS) as usize)?;
        let node = usize::from(chunk.node).checked_sub(1)?;
        Some((node, chunk.dense + (reported & (CHUNK_BYTES - 1))))
    }

    /// The only layout that maps every sample to the node on which it was taken.
    ///
    /// `sizes`: bytes per node. `samples`: per node, reported page addresses of memory bound to it.
    ///
    /// # Errors
    /// A one-line message if a node has too few samples, or if no hypothesis or several different ones fit.
    pub fn fit(sizes: &[u64], samples: &[Vec<u64>]) -> Result<Self, String> {
        for (node, seen) in samples.iter().enumerate() {
            if sizes[node] > 0 && seen.len() < MIN_SAMPLES {
                return Err(format!(
                    "node {node}: {} probed pages seen, {MIN_SAMPLES} needed",
                    seen.len()
                ));
            }
        }
        let mut hypotheses = vec![Hypothesis::Offset, Hypothesis::Doubled];
        // Where QEMU's PC machine types put the hole.
        hypotheses
            .extend([2 << 30, 11 << 28, 3 << 30, 7 << 29].map(|low| Hypothesis::Hole { low }));
        let fitting: Vec<Self> = hypotheses
            .into_iter()
            .map(|hypothesis| Self::new(sizes, hypothesis))
            .filter(|layout| {
                samples.iter().enumerate().all(|(node, seen)| {
                    seen.iter()
                        .all(|&page| layout.find(page).is_some_and(|(found, _)| found == node))
                })
            })
            .collect();
        let total: u64 = sizes.iter().sum();
        // Two hypotheses that agree on all nodes' addresses are equivalent: an address in only one is reported when
        // met.
        let differs = |a: &Self, b: &Self| {
            (0..(2 * total + (4 << 30)) >> CHUNK_BITS)
                .filter_map(|at| Some((a.find(at << CHUNK_BITS)?, b.find(at << CHUNK_BITS)?)))
                .any(|(one, other)| one.0 != other.0)
        };
        match fitting.as_slice() {
            [] => Err(format!(
                "no known address layout fits the probes: {}",
                describe(samples)
            )),
            [first, rest @ ..] if rest.iter().all(|other| !differs(first, other)) => {
                Ok(fitting.into_iter().next().expect("there is a first"))
            }
            several => Err(format!(
                "ambiguous: {} fit the probes: {}",
                several
                    .iter()
                    .map(|layout| layout.hypothesis.to_string())
                    .collect::<Vec<_>>()
                    .join(" and "),
                describe(samples)
            )),
        }
    }
}

fn describe(samples: &[Vec<u64>]) -> String {
    let ranges: Vec<String> = samples
        .iter()
        .enumerate()
        .filter_map(|(node, seen)| {
            let (low, high) = (seen.iter().min()?, seen.iter().max()?);
            Some(format!("node {node} at {low:#x}..={high:#x}"))
        })
        .collect();
    ranges.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: u64 = 1 << 20;

    /// 64 pages from `start`.
    fn pages(start: u64) -> Vec<u64> {
        (0..64).map(|i| start + i * 4096).collect()
    }

    #[test]
    fn equal_backends_are_found_at_twice_their_offset() {
        let sizes = [512 * M; 4];
        let samples: Vec<_> = (0..4).map(|n| pages(n * 1024 * M + 300 * M)).collect();
        let layout = Layout::fit(&sizes, &samples).unwrap();
        assert_eq!(layout.hypothesis, Hypothesis::Doubled);
        assert_eq!(layout.find(1024 * M + 5), Some((1, 512 * M + 5)));
        assert_eq!(layout.find(600 * M), None);
    }

    #[test]
    fn guest_physical_addresses_are_found_too() {
        let sizes = [512 * M, 256 * M];
        let samples = [pages(8 * M), pages(700 * M)];
        assert_eq!(
            Layout::fit(&sizes, &samples).unwrap().hypothesis,
            Hypothesis::Offset
        );
        // 4 x 1 GiB: the fourth gigabyte is beyond the hole, at 4 GiB.
        let sizes = [1024 * M; 4];
        let samples: Vec<_> = [0, 1024, 2048, 4096].map(|at| pages(at * M)).into();
        let layout = Layout::fit(&sizes, &samples).unwrap();
        assert_eq!(layout.hypothesis, Hypothesis::Hole { low: 3 << 30 });
        assert_eq!(layout.find(4096 * M), Some((3, 3072 * M)));
    }

    #[test]
    fn no_or_several_fitting_layouts_are_an_error() {
        let sizes = [512 * M; 2];
        let error = |samples: &[Vec<u64>]| Layout::fit(&sizes, samples).err().unwrap();
        assert!(error(&[pages(0), pages(1600 * M)]).contains("no known address layout"));
        assert!(error(&[pages(0), vec![0; 3]]).contains("node 1: 3 probed pages"));
        // Nodes of 512, 1024 and 2048 MiB start at 512 and 1536 MiB, or doubled at 1024 and 3072 MiB: probes at
        // 1200 and 3200 MiB fit both layouts, which disagree about 1600 MiB.
        let sizes = [512 * M, 1024 * M, 2048 * M];
        let both = Layout::fit(&sizes, &[pages(0), pages(1200 * M), pages(3200 * M)]);
        let both = both.err().unwrap();
        assert!(both.contains("ambiguous"), "{both}");
    }
}
