//! Affinities: the seconds that a task of a class loses when the block in a slot is far.
//!
//! The paper says that measurements of equivalent tasks are combined, without giving the formula. Ours: the time of
//! replay r of task j is T = a_j + sum_i b_i x_jri + e, with x = 1 where slot i was far and a_j the task's own share
//! (its size, its data). b is found by least squares within tasks, its standard error s from the residuals. Bytes are a
//! good prior, so b is shrunk towards beta * bytes, where beta (seconds per far byte) is fitted over all classes, by
//! empirical Bayes: b' = (b/s^2 + beta*B/t^2) / (1/s^2 + 1/t^2), t = tau * B, tau by the method of moments; never below
//! 0. A slot without measurements gets beta * B. b is additive and in seconds, so classes can be compared, which a
//! ranking within each class does not allow.
//!
//! *Deciding.* Nodes are chosen by [`Affinity::weight`], which is less sensitive to noise than the estimates: it is the
//! bytes, unless the measurements of all classes with the same template and number of slots contradict them. They do if
//! in three quarters of them a far byte costs less than an eighth of what it costs elsewhere (the tasks hardly touch
//! the block) and the noise is below that price; bytes then count a sixty-fourth. Far bytes that cost more than others
//! are no contradiction: streaming and waiting for each line differ by a factor of ten, and if that counted, noise
//! would decide. So profiles that differ by noise lead to the same plan.
//!
//! If the profile was made on one node, far means *out of the caches* (method `evict`): b is then the cost of memory
//! over cache, which stands in for the cost of far memory over near.

use std::collections::BTreeMap;

use crate::classes::ClassId;
use crate::data::Data;
use crate::noise::CONTRADICTION_FACTOR;

/// Seconds per far byte without any measurement: 5 GB/s.
const DEFAULT_SECONDS_PER_BYTE: f64 = 2e-10;

/// The affinity estimate for one slot of one class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Seconds lost per task when the slot's block is far.
    pub seconds: f64,
    /// Standard error of `seconds`.
    pub standard_error: f64,
    /// The estimate from measurements alone, if there are enough.
    pub measured: Option<f64>,
    /// Mean bytes of the block.
    pub bytes: f64,
}

/// Affinities of all classes.
#[derive(Clone, Debug, Default)]
pub struct Affinity {
    /// By class, then slot.
    pub estimates: Vec<BTreeMap<u32, Estimate>>,
    /// Seconds per far byte, over all classes.
    pub seconds_per_byte: f64,
    /// Relative spread of the slots' prices around `seconds_per_byte`.
    pub spread: f64,
    /// Replays used.
    pub replays: usize,
    /// Template and number of slots of each class, as a number.
    kinds: Vec<usize>,
    /// By kind and slot: factor applied to bytes.
    factors: BTreeMap<(usize, u32), f64>,
}

struct Fit {
    class: usize,
    slot: u32,
    b: f64,
    variance: f64,
    bytes: f64,
}

impl Affinity {
    pub(crate) fn new(data: &Data) -> Self {
        let fits = fit_all(data);
        // Slots with more bytes give more information about the price of a byte.
        let (mut up, mut down) = (0.0, 0.0);
        for fit in &fits {
            up += fit.b * fit.bytes / fit.variance;
            down += fit.bytes * fit.bytes / fit.variance;
        }
        let seconds_per_byte = if down > 0.0 && up > 0.0 {
            up / down
        } else {
            DEFAULT_SECONDS_PER_BYTE
        };
        let (mut excess, mut weight) = (0.0, 0.0);
        for fit in &fits {
            let expected = seconds_per_byte * fit.bytes;
            let precision = fit.bytes * fit.bytes / fit.variance;
            excess += precision * ((fit.b - expected).powi(2) - fit.variance) / fit.bytes.powi(2);
            weight += precision;
        }
        // Bounded from below, so that measurements keep their influence; a tenth without measurements.
        let tau = if weight > 0.0 {
            (excess / weight)
                .max(0.0)
                .sqrt()
                .max(0.1 * seconds_per_byte)
        } else {
            seconds_per_byte
        };
        let mut estimates: Vec<BTreeMap<u32, Estimate>> = data
            .class_data
            .iter()
            .map(|class| {
                let unmeasured = |(&slot, &bytes): (&u32, &f64)| {
                    let estimate = Estimate {
                        seconds: seconds_per_byte * bytes,
                        standard_error: tau * bytes,
                        measured: None,
                        bytes,
                    };
                    (slot, estimate)
                };
                class.slot_bytes.iter().map(unmeasured).collect()
            })
            .collect();
        for fit in &fits {
            let prior = (tau * fit.bytes).powi(2).max(f64::MIN_POSITIVE);
            let precision = 1.0 / fit.variance + 1.0 / prior;
            let mean = (fit.b / fit.variance + seconds_per_byte * fit.bytes / prior) / precision;
            estimates[fit.class].insert(
                fit.slot,
                Estimate {
                    seconds: mean.max(0.0),
                    standard_error: precision.recip().sqrt(),
                    measured: Some(fit.b),
                    bytes: fit.bytes,
                },
            );
        }
        let mut affinity = Self {
            estimates,
            seconds_per_byte,
            spread: tau / seconds_per_byte,
            replays: data.profile.replays.len(),
            ..Self::default()
        };
        affinity.decide(data, &fits);
        affinity
    }
}

/// A block costs at least as much as one cache line.
const LINE_BYTES: f64 = 64.0;

/// Factor for bytes that cost hardly any time.
const UNTOUCHED_FACTOR: f64 = 1.0 / 64.0;

/// No core reads memory faster than 40 GB/s: a lower price is noise.
const LEAST_SECONDS_PER_BYTE: f64 = 2.5e-11;

/// Number of agreeing classes required for a contradiction.
const MIN_CLASSES: usize = 8;

impl Affinity {
    /// The weight of a far block in that slot when nodes are chosen, in bytes; see the module documentation.
    #[must_use]
    pub fn weight(&self, class: usize, slot: u32) -> Option<f64> {
        let estimate = self.estimates[class].get(&slot)?;
        let factor = self.factors.get(&(self.kinds[class], slot));
        Some(estimate.bytes.max(LINE_BYTES) * factor.copied().unwrap_or(1.0))
    }

    /// Computes the factors used by [`Affinity::weight`].
    fn decide(&mut self, data: &Data, fits: &[Fit]) {
        let mut numbers: BTreeMap<(&str, u32), usize> = BTreeMap::new();
        self.kinds = (0..data.class_data.len())
            .map(|class| {
                let id = ClassId(class as u32);
                let next = numbers.len();
                *numbers
                    .entry((data.classes.template(id), data.classes.slots(id)))
                    .or_insert(next)
            })
            .collect();
        let price = self.seconds_per_byte.max(LEAST_SECONDS_PER_BYTE);
        let mut ratios: BTreeMap<(usize, u32), Vec<f64>> = BTreeMap::new();
        for fit in fits {
            let all = ratios.entry((self.kinds[fit.class], fit.slot)).or_default();
            all.push(fit.b / (price * fit.bytes.max(LINE_BYTES)));
        }
        self.factors = ratios
            .into_iter()
            .filter(|(_, all)| all.len() >= MIN_CLASSES)
            .filter_map(|(key, mut all)| {
                all.sort_by(f64::total_cmp);
                // Three quarters have to agree, and noise must stay below the price.
                let (low, high) = (all[all.len() / 4], all[all.len() * 3 / 4]);
                (high < CONTRADICTION_FACTOR.recip() && low > -1.0)
                    .then_some((key, UNTOUCHED_FACTOR))
            })
            .collect();
    }
}

/// Least squares within tasks, for every class that has enough replays.
fn fit_all(data: &Data) -> Vec<Fit> {
    let mut by_task: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, replay) in data.profile.replays.iter().enumerate() {
        by_task.entry(replay.task).or_default().push(at);
    }
    let mut by_class: BTreeMap<usize, Vec<&Vec<usize>>> = BTreeMap::new();
    for (task, replays) in &by_task {
        let class = data.class_of[*task as usize].index();
        by_class.entry(class).or_default().push(replays);
    }
    let mut fits = Vec::new();
    for (class, tasks) in by_class {
        let bytes = &data.class_data[class].slot_bytes;
        let slots: Vec<u32> = bytes
            .iter()
            .filter(|&(_, &bytes)| bytes > 0.0)
            .map(|(&slot, _)| slot)
            .collect();
        let k = slots.len();
        let (mut normal, mut right, mut squares) = (vec![0.0; k * k], vec![0.0; k], 0.0);
        let (mut observations, mut instances) = (0, 0);
        for replays in tasks {
            if replays.len() < 2 {
                continue;
            }
            let n = replays.len() as f64;
            let rows: Vec<(Vec<f64>, f64)> = replays
                .iter()
                .map(|&at| {
                    let replay = &data.profile.replays[at];
                    let far = |slot| f64::from(u8::from(replay.far.contains(slot)));
                    (slots.iter().map(far).collect(), replay.seconds)
                })
                .collect();
            let mean_y = rows.iter().map(|row| row.1).sum::<f64>() / n;
            let mean_x: Vec<f64> = (0..k)
                .map(|i| rows.iter().map(|row| row.0[i]).sum::<f64>() / n)
                .collect();
            for (x, y) in &rows {
                let dy = y - mean_y;
                squares += dy * dy;
                for i in 0..k {
                    let dx = x[i] - mean_x[i];
                    right[i] += dx * dy;
                    for j in 0..k {
                        normal[i * k + j] += dx * (x[j] - mean_x[j]);
                    }
                }
            }
            observations += replays.len();
            instances += 1;
        }
        let Some(inverse) = inverse(&normal, k) else {
            continue;
        };
        let Some(freedom) = observations
            .checked_sub(instances + k)
            .filter(|&freedom| freedom > 0)
        else {
            continue;
        };
        let b: Vec<f64> = (0..k)
            .map(|i| (0..k).map(|j| inverse[i * k + j] * right[j]).sum())
            .collect();
        let explained: f64 = b.iter().zip(&right).map(|(b, r)| b * r).sum();
        let noise = ((squares - explained) / freedom as f64).max(1e-18);
        for (i, &slot) in slots.iter().enumerate() {
            fits.push(Fit {
                class,
                slot,
                b: b[i],
                variance: noise * inverse[i * k + i],
                bytes: bytes[&slot],
            });
        }
    }
    fits
}

/// The inverse of a symmetric positive definite matrix; `None` if it is not.
fn inverse(matrix: &[f64], k: usize) -> Option<Vec<f64>> {
    if k == 0 {
        return None;
    }
    let mut a = matrix.to_vec();
    let mut out: Vec<f64> = (0..k * k)
        .map(|at| f64::from(u8::from(at / k == at % k)))
        .collect();
    for column in 0..k {
        let pivot = (column..k)
            .max_by(|&p, &q| a[p * k + column].abs().total_cmp(&a[q * k + column].abs()))?;
        if a[pivot * k + column].abs() < 1e-9 {
            return None;
        }
        for j in 0..k {
            a.swap(column * k + j, pivot * k + j);
            out.swap(column * k + j, pivot * k + j);
        }
        let scale = a[column * k + column];
        for j in 0..k {
            a[column * k + j] /= scale;
            out[column * k + j] /= scale;
        }
        for row in (0..k).filter(|&row| row != column) {
            let factor = a[row * k + column];
            for j in 0..k {
                a[row * k + j] -= factor * a[column * k + j];
                out[row * k + j] -= factor * out[column * k + j];
            }
        }
    }
    Some(out)
}
