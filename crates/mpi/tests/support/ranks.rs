//! Synthetic rank files: ranks in a periodic 3-D grid that exchange halos with 26 neighbours.

use std::io::Write;
use std::path::Path;

/// A run to write down.
#[derive(Clone, Copy, Debug)]
pub struct Halo {
    /// Ranks in each dimension.
    pub grid: [u32; 3],
    /// Length of the run.
    pub seconds: u64,
    /// Milliseconds from one exchange to the next.
    pub period_ms: u64,
}

/// Bytes to a neighbour that differs in one, two or three dimensions.
const BYTES: [u64; 3] = [8192, 256, 8];
/// As the tracer does: slices double in length after this number of them.
const SLICES_PER_LENGTH: u64 = 4096;

impl Halo {
    pub fn ranks(&self) -> u32 {
        self.grid.iter().product()
    }

    /// The neighbours of a rank with the bytes of a message to them; a small grid has some of them twice.
    fn neighbours(&self, rank: u32) -> Vec<(u32, u64)> {
        let [_, y, z] = self.grid;
        let at = [rank / (y * z), rank / z % y, rank % z];
        let mut neighbours = Vec::new();
        for steps in 0..27u32 {
            let steps = [steps / 9, steps / 3 % 3, steps % 3];
            let moved = steps.iter().filter(|step| **step != 1).count();
            let place: Vec<u32> = (0..3)
                .map(|d| (at[d] + self.grid[d] + steps[d] - 1) % self.grid[d])
                .collect();
            let peer = (place[0] * y + place[1]) * z + place[2];
            if moved > 0 && peer != rank {
                neighbours.push((peer, BYTES[moved - 1]));
            }
        }
        neighbours.sort_unstable();
        neighbours
    }

    /// Writes the file of a rank.
    pub fn write(&self, rank: u32, folder: &Path) -> std::io::Result<()> {
        let file = std::fs::File::create(folder.join(format!("rank-{rank}-{rank}-0.nlmpi")))?;
        let mut file = std::io::BufWriter::with_capacity(1 << 20, file);
        file.write_all(&header(rank, self.ranks()))?;
        let neighbours = self.neighbours(rank);
        let mut entries = Vec::new();
        for (peer, bytes) in &neighbours {
            entries.extend(peer.to_le_bytes());
            entries.extend(0u32.to_le_bytes());
            entries.extend(1u64.to_le_bytes());
            entries.extend(bytes.to_le_bytes());
        }
        let (mut slice_ns, mut slices, mut last) = (1_000_000, 0, u64::MAX);
        let exchanges = self.seconds * 1000 / self.period_ms;
        for exchange in 0..exchanges {
            let now = exchange * self.period_ms * 1_000_000;
            let slice = now / slice_ns;
            // The tracer would add up what one slice has; the merge does.
            slices += u64::from(slice != last);
            last = slice;
            let (start, end) = (slice * slice_ns, (slice + 1) * slice_ns);
            file.write_all(&block(1, start, end, &entries))?;
            if slices >= SLICES_PER_LENGTH {
                (slice_ns, slices, last) = (slice_ns * 2, 0, u64::MAX);
            }
        }
        let mut totals = vec![0; 8 * 16 + 8];
        let bytes: u64 = neighbours.iter().map(|(_, bytes)| bytes).sum();
        totals[..8].copy_from_slice(&(exchanges * neighbours.len() as u64).to_le_bytes());
        totals[8..16].copy_from_slice(&(exchanges * bytes).to_le_bytes());
        let end = self.seconds * 1_000_000_000;
        file.write_all(&block(2, end, end, &totals))?;
        file.flush()
    }
}

fn header(rank: u32, size: u32) -> Vec<u8> {
    let (job, host) = ("synthetic", format!("n{}", rank / 64));
    let mut header = b"NLMPIRNK".to_vec();
    let whole = (64 + job.len() + host.len() + 1 + 4) as u32;
    for value in [1, whole, rank, size, rank + 1, 1] {
        header.extend(value.to_le_bytes());
    }
    header.extend(1_700_000_000_000_000_000u64.to_le_bytes());
    header.extend(1_000_000u64.to_le_bytes());
    for value in [job.len() as u32, host.len() as u32, 1, 0] {
        header.extend(value.to_le_bytes());
    }
    header.extend(job.bytes().chain(host.bytes()).chain([1]));
    let sum = crc32fast::hash(&header);
    header.extend(sum.to_le_bytes());
    header
}

fn block(kind: u32, start: u64, end: u64, payload: &[u8]) -> Vec<u8> {
    let mut block = Vec::with_capacity(payload.len() + 28);
    block.extend(kind.to_le_bytes());
    block.extend((payload.len() as u32).to_le_bytes());
    block.extend(start.to_le_bytes());
    block.extend(end.to_le_bytes());
    block.extend(payload);
    let sum = crc32fast::hash(&block);
    block.extend(sum.to_le_bytes());
    block
}
