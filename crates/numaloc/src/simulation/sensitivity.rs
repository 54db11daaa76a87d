//! The uncertainty of the model: how much a comparison of two rows changes when presets vary within their ranges.
//!
//! One preset is changed at a time, to both ends of its range. A row's uncertainty is the largest change of its time
//! relative to that of the best row; a row whose time exceeds the best by no more than that is not different.

use numaloc_sim::Machine;

/// A preset at one end of its range.
pub struct Variant {
    /// The preset, as users know it.
    pub preset: &'static str,
    /// The end of its range.
    pub value: String,
    pub machine: Machine,
}

/// Presets with factors or values at the ends of their ranges, and what they change.
type Change = fn(&mut Machine, f64);

const FACTORS: &[(&str, [f64; 2], Change)] = &[
    // 1 to 2.25 cycles.
    ("cycles per access", [2.0 / 3.0, 1.5], |machine, factor| {
        machine.parameters.cycles_per_access *= factor;
        machine.access *= factor;
    }),
    ("accesses in the window", [0.5, 2.0], |machine, factor| {
        scale(&mut machine.parameters.window_accesses, factor);
    }),
    // Server cores from 2008 to today have 10 to 16 line fill buffers.
    ("outstanding misses", [0.8, 1.6], |machine, factor| {
        let mut outstanding = machine.parameters.outstanding as u64;
        scale(&mut outstanding, factor);
        machine.parameters.outstanding = outstanding as usize;
    }),
    ("prefetched lines", [0.5, 1.6], |machine, factor| {
        let mut prefetched = machine.parameters.prefetched as u64;
        scale(&mut prefetched, factor);
        machine.parameters.prefetched = prefetched as usize;
    }),
    ("write-back entries", [0.5, 2.0], |machine, factor| {
        let mut entries = machine.parameters.write_backs as u64;
        scale(&mut entries, factor);
        machine.parameters.write_backs = entries as usize;
    }),
    ("slowdown by SMT", [0.8, 1.2], |machine, factor| {
        machine.parameters.smt_slowdown *= factor;
    }),
    ("latency of memory", [0.9, 1.1], |machine, factor| {
        machine
            .memory_latency
            .iter_mut()
            .for_each(|latency| scale(latency, factor));
    }),
    (
        "bandwidth of memory",
        [1.0 / 1.2, 1.2],
        |machine, factor| {
            machine
                .service
                .iter_mut()
                .for_each(|service| scale(service, 1.0 / factor));
        },
    ),
    ("latency of links", [0.75, 1.25], |machine, factor| {
        machine
            .links
            .iter_mut()
            .for_each(|link| scale(&mut link.hop, factor));
    }),
    ("bandwidth of links", [1.0 / 1.2, 1.2], |machine, factor| {
        machine
            .links
            .iter_mut()
            .for_each(|link| link.ps_per_byte /= factor);
    }),
];

/// The same where address translation takes time.
const TRANSLATION: &[(&str, [f64; 2], Change)] =
    &[("entries of the TLB", [0.67, 1.33], |machine, factor| {
        if let Some(tlb) = &mut machine.parameters.tlb {
            scale(&mut tlb.lines, factor);
        }
    })];

fn scale(value: &mut u64, factor: f64) {
    *value = ((*value as f64 * factor).round() as u64).max(1);
}

/// The machine with each preset at both ends of its range.
pub fn variants(machine: &Machine) -> Vec<Variant> {
    let translation = match machine.parameters.tlb {
        Some(_) => TRANSLATION,
        None => &[],
    };
    FACTORS
        .iter()
        .chain(translation)
        .flat_map(|&(preset, ends, change)| {
            ends.map(|factor| {
                let mut machine = machine.clone();
                change(&mut machine, factor);
                Variant {
                    preset,
                    value: format!("x {factor:.2}"),
                    machine,
                }
            })
        })
        .collect()
}

/// How sure it is that a row is slower than the best one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uncertainty {
    /// Largest change of the row's time over the best row's.
    pub change: f64,
    /// Index of the variant with that change.
    pub by: usize,
}

impl Uncertainty {
    /// From the times of a row and of the best row: with all presets as they are, and for each variant.
    pub fn of((row, best): (u64, u64), varied: impl Iterator<Item = (u64, u64)>) -> Self {
        let ratio = |row: u64, best: u64| row as f64 / best.max(1) as f64;
        let base = ratio(row, best);
        let changes = varied.map(|(row, best)| (ratio(row, best) - base).abs());
        let mut largest = Self { change: 0.0, by: 0 };
        for (by, change) in changes.enumerate() {
            if change > largest.change {
                largest = Self { change, by };
            }
        }
        largest
    }

    /// Whether a row with `ratio` times the best row's time is slower by more than the uncertainty.
    pub fn is_different(self, ratio: f64) -> bool {
        ratio - 1.0 > self.change
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_sim::Parameters;

    #[test]
    fn every_variant_changes_the_machine_and_nothing_else_than_one_preset() {
        let topology = numaloc_topology::resolve("purple").unwrap();
        let machine = Machine::new(&topology, Parameters::default()).unwrap();
        let variants = variants(&machine);
        assert_eq!(variants.len(), 2 * FACTORS.len());
        for pair in variants.chunks(2) {
            assert_eq!(pair[0].preset, pair[1].preset);
            assert!(pair.iter().all(|variant| variant.machine != machine));
            assert_ne!(pair[0].machine, pair[1].machine);
        }
    }

    #[test]
    fn a_gain_below_the_change_by_a_preset_is_no_difference() {
        // 10 % slower, but between 2 % faster and 15 % slower with other presets.
        let varied = [(98, 100), (230, 200)];
        let found = Uncertainty::of((110, 100), varied.into_iter());
        assert_eq!(found.by, 0);
        assert!((found.change - 0.12).abs() < 1e-12);
        assert!(!found.is_different(1.10) && found.is_different(1.13));
    }
}
