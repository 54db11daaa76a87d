//! The times at which there was communication, and how many clusters they form.

use numaloc_model::Layer;
use numaloc_model::profile::{Amount, Profile};

use crate::bic::bic;
use crate::kmeans;

/// A layer's communication by slice.
pub(super) struct SliceSums {
    pub(super) events: Vec<u64>,
    pub(super) bytes: Vec<u64>,
    /// Bytes, or events if there are no bytes.
    pub(super) amount: Amount,
}

impl SliceSums {
    pub(super) fn of(profile: &Profile, layer: Layer) -> Self {
        let slices = profile.slices().len();
        let (mut events, mut bytes) = (vec![0u64; slices], vec![0u64; slices]);
        let rows = profile.communication().iter();
        for row in rows.filter(|row| layer.holds(row.layer)) {
            if let Some(sum) = events.get_mut(row.slice.index()) {
                *sum += row.events;
                bytes[row.slice.index()] += row.bytes;
            }
        }
        let amount = if bytes.iter().any(|&b| b > 0) {
            Amount::Bytes
        } else {
            Amount::Events
        };
        Self {
            events,
            bytes,
            amount,
        }
    }

    /// Weights of the slices: events of shared memory; bytes of messages, unless all are empty.
    pub(super) fn weights(&self, layer: Layer) -> &[u64] {
        match Amount::of_layer(layer) {
            Amount::Bytes if self.amount == Amount::Bytes => &self.bytes,
            _ => &self.events,
        }
    }
}

/// The times at which there was communication, ascending.
pub(super) struct Timestamps {
    pub(super) points: Vec<f64>,
    pub(super) weights: Vec<f64>,
    /// First and last slice of each time.
    pub(super) slices: Vec<(u32, u32)>,
}

impl Timestamps {
    /// Middles of the slices with a weight. Slices that share a middle (empty ones do) are one point.
    pub(super) fn of(profile: &Profile, slice_weights: &[u64]) -> Self {
        let mut points: Vec<f64> = Vec::new();
        let mut weights: Vec<f64> = Vec::new();
        let mut slices: Vec<(u32, u32)> = Vec::new();
        let weighted = slice_weights.iter().enumerate();
        for (at, &count) in weighted.filter(|(_, count)| **count > 0) {
            let slice = profile.slices()[at];
            let middle = slice.start as f64 + (slice.end.saturating_sub(slice.start)) as f64 / 2.0;
            if points.last().is_some_and(|&last| last >= middle) {
                *weights.last_mut().expect("as many weights as points") += count as f64;
                slices.last_mut().expect("as many as points").1 = at as u32;
            } else {
                points.push(middle);
                weights.push(count as f64);
                slices.push((at as u32, at as u32));
            }
        }
        Self {
            points,
            weights,
            slices,
        }
    }

    /// BIC for 1, 2, ... clusters up to `most`, and the starts of the clusters of the largest.
    pub(super) fn clusters(&self, profile: &Profile, most: usize) -> (Vec<f64>, Vec<usize>) {
        let slices = profile.slices().iter();
        let lengths = slices.map(|slice| slice.end.saturating_sub(slice.start) as f64);
        let quantum = lengths.sum::<f64>() / profile.slices().len().max(1) as f64;
        let clusterings = kmeans::cluster(&self.points, &self.weights, most);
        let bic: Vec<f64> = (1..=clusterings.costs.len())
            .map(|k| bic(&self.points, &self.weights, &clusterings.starts(k), quantum))
            .collect();
        let mut k = 0;
        for (at, value) in bic.iter().enumerate() {
            if k == 0 || *value > bic[k - 1] {
                k = at + 1;
            }
        }
        let starts = if k == 0 {
            Vec::new()
        } else {
            clusterings.starts(k)
        };
        (bic, starts)
    }
}
