//! Communication by slice: the data of DeLoc's Fig. 3 and OPT's Fig. 5.
//!
//! Cost: O(rows); memory O(slices + T²).

use numaloc_model::Layer;
use numaloc_model::profile::{Amount, Profile};

/// One value per slice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Communication events (rows as stored).
    pub events: Vec<u64>,
    /// Their bytes.
    pub bytes: Vec<u64>,
    /// `C_H` (OPT eq. 2) of the slice's own matrix, `None` without communication.
    pub heterogeneity: Vec<Option<f64>>,
}

impl Timeline {
    /// The weights of communication by slice: bytes of messages, events of memory.
    #[must_use]
    pub fn weighed(&self, layer: Layer) -> &[u64] {
        match Amount::of_layer(layer) {
            Amount::Bytes => &self.bytes,
            Amount::Events => &self.events,
        }
    }
}

/// Events, bytes and heterogeneity of every slice of a layer. Rows must be sorted by slice.
#[must_use]
pub fn timeline(profile: &Profile, layer: Layer) -> Timeline {
    let threads = profile.threads().len();
    let mut found = Timeline {
        events: vec![0; profile.slices().len()],
        bytes: vec![0; profile.slices().len()],
        heterogeneity: vec![None; profile.slices().len()],
    };
    let mut pairs: Vec<(u32, u32, f64)> = Vec::new();
    let mut row_sum = vec![0.0; threads];
    let rows = profile.communication();
    let mut at = 0;
    while at < rows.len() {
        let slice = rows[at].slice;
        let end = at + rows[at..].partition_point(|row| row.slice == slice);
        if let Some(events) = found.events.get_mut(slice.index()) {
            pairs.clear();
            for row in rows[at..end].iter().filter(|row| layer.holds(row.layer)) {
                *events += row.events;
                found.bytes[slice.index()] += row.bytes;
                if row.src != row.dst && row.events > 0 {
                    let amount = Amount::of_layer(layer).of(row);
                    if amount > 0 {
                        pairs.push((row.src.0, row.dst.0, amount as f64));
                    }
                }
            }
            found.heterogeneity[slice.index()] =
                slice_heterogeneity(&mut pairs, layer, threads, &mut row_sum);
        }
        at = end;
    }
    found
}

/// `C_H` of a few cells in O(cells): mean over rows of `E[x²] - E[x]²`, x scaled to a maximum of 100.
/// (Counts of one slice are small integers: the two-pass form is not needed here.)
fn slice_heterogeneity(
    cells: &mut Vec<(u32, u32, f64)>,
    layer: Layer,
    threads: usize,
    row_sum: &mut [f64],
) -> Option<f64> {
    if cells.is_empty() || threads == 0 {
        return None;
    }
    if layer.is_directed() {
        for at in 0..cells.len() {
            let (src, dst, value) = cells[at];
            cells.push((dst, src, value));
        }
        cells.sort_unstable_by_key(|&(src, dst, _)| (src, dst));
        cells.dedup_by(|cell, kept| {
            let same = (cell.0, cell.1) == (kept.0, kept.1);
            if same {
                kept.2 += cell.2;
            }
            same
        });
    }
    let max = cells.iter().map(|cell| cell.2).fold(0.0, f64::max);
    let mut squares = 0.0;
    for &(src, _, value) in cells.iter() {
        let scaled = value / max * 100.0;
        squares += scaled * scaled;
        if let Some(sum) = row_sum.get_mut(src as usize) {
            *sum += scaled;
        }
    }
    let mut squared_sums = 0.0;
    for &(src, _, _) in cells.iter() {
        if let Some(sum) = row_sum.get_mut(src as usize) {
            squared_sums += *sum * *sum;
            *sum = 0.0;
        }
    }
    let n = threads as f64;
    Some(((squares - squared_sums / n) / (n * n)).max(0.0))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use numaloc_model::profile::{Amount, Clock, CommRow, Meta, ProfileBuilder, Slice, Thread};
    use numaloc_model::{SliceIdx, ThreadIdx};

    /// A profile of `threads` threads and `slices` slices of 10, with `(slice, src, dst, events)` rows.
    pub(crate) fn profile_of(
        threads: usize,
        slices: u64,
        rows: &[(u32, u32, u32, u64)],
    ) -> Profile {
        let mut tables = ProfileBuilder::new(
            Meta {
                command: vec!["test".into()],
                ..Meta::new("test", Clock::Virtual)
            },
            4096,
        );
        tables.threads = (0..threads)
            .map(|at| Thread {
                pid: 1,
                tid: at as u32 + 1,
                end: slices * 10,
                accesses: 1000,
                read_bytes: 6000,
                write_bytes: 2000,
                ..Thread::new(format!("0.{at}"))
            })
            .collect();
        tables.slices = (0..slices)
            .map(|at| Slice {
                start: at * 10,
                end: at * 10 + 10,
            })
            .collect();
        tables.communication = rows
            .iter()
            .map(|&(slice, src, dst, events)| CommRow {
                slice: SliceIdx(slice),
                src: ThreadIdx(src),
                dst: ThreadIdx(dst),
                layer: Layer::WriteRead,
                events,
                bytes: events * 8,
            })
            .collect();
        tables.build().unwrap()
    }

    #[test]
    fn a_slice_alone_has_the_heterogeneity_of_its_matrix() {
        let rows = [(0, 0, 1, 5), (0, 2, 1, 7), (0, 3, 0, 1), (2, 1, 3, 4)];
        let profile = profile_of(4, 3, &rows);
        let line = timeline(&profile, Layer::WriteRead);
        assert_eq!(line.events, [13, 0, 4]);
        assert_eq!(line.heterogeneity[1], None);
        for slice in [0u32, 2] {
            let matrix = profile
                .matrix_of_slices(Layer::WriteRead, Amount::Events, slice..slice + 1)
                .unwrap();
            let whole = crate::communication::heterogeneity(&matrix, Layer::WriteRead);
            assert!((line.heterogeneity[slice as usize].unwrap() - whole).abs() < 1e-9);
        }
    }
}
