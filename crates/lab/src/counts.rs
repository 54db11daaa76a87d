//! Reads the plugin's counts file (`crates/lab-plugin`).

use crate::error::LabError;

/// A time slice.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// Seconds of host time since the program's start.
    pub end_s: f64,
    /// Accesses below the private caches, `[vcpu][node]`.
    pub accesses: Vec<Vec<u64>>,
}

/// Accesses by vCPU and memory node; every table is `[vcpu][node]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// How QEMU numbers memory, as determined at boot.
    pub layout: String,
    /// Host seconds between the program's start and end.
    pub seconds: f64,
    /// Accesses to memory of no node (device memory, or a page that was unmapped meanwhile).
    pub unknown: u64,
    /// Loads.
    pub loads: Vec<Vec<u64>>,
    /// Stores.
    pub stores: Vec<Vec<u64>>,
    /// Loads that missed the private cache.
    pub fetched_loads: Vec<Vec<u64>>,
    /// Stores that missed the private cache.
    pub fetched_stores: Vec<Vec<u64>>,
    /// Growth of `fetched_loads` + `fetched_stores` over time.
    pub slices: Vec<Slice>,
}

impl Counts {
    /// Parses the file's text for a machine with `vcpus` vCPUs and `nodes` nodes.
    ///
    /// # Errors
    /// [`LabError::Counts`] with the plugin's own error, or with what is wrong with the file.
    pub fn parse(text: &str, vcpus: usize, nodes: usize) -> Result<Self, LabError> {
        let fail = |why: String| LabError::Counts(why);
        let mut lines = text.lines();
        if lines.next() != Some("numaloc-lab-counts 1") {
            return Err(fail("not a counts file of version 1".into()));
        }
        let table = || vec![vec![0; nodes]; vcpus];
        let mut counts = Self {
            loads: table(),
            stores: table(),
            fetched_loads: table(),
            fetched_stores: table(),
            ..Self::default()
        };
        let mut complete = false;
        for line in lines {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let bad = || fail(format!("invalid line {line:?}"));
            let numbers = |text: &str| -> Option<Vec<u64>> {
                text.split(' ').map(|field| field.parse().ok()).collect()
            };
            match word {
                "error" => return Err(fail(rest.to_owned())),
                "layout" => counts.layout = rest.to_owned(),
                "seconds" => counts.seconds = rest.parse().map_err(|_| bad())?,
                "unknown" => counts.unknown = rest.parse().map_err(|_| bad())?,
                "loads" | "stores" | "fetched-loads" | "fetched-stores" => {
                    let row = numbers(rest)
                        .filter(|row| row.len() == nodes + 1)
                        .ok_or_else(bad)?;
                    let table = match word {
                        "loads" => &mut counts.loads,
                        "stores" => &mut counts.stores,
                        "fetched-loads" => &mut counts.fetched_loads,
                        _ => &mut counts.fetched_stores,
                    };
                    *table.get_mut(row[0] as usize).ok_or_else(bad)? = row[1..].to_vec();
                }
                "slice" => {
                    let (end, row) = rest.split_once(' ').ok_or_else(bad)?;
                    let row = numbers(row)
                        .filter(|row| row.len() == vcpus * nodes)
                        .ok_or_else(bad)?;
                    counts.slices.push(Slice {
                        end_s: end.parse().map_err(|_| bad())?,
                        accesses: row.chunks(nodes).map(<[u64]>::to_vec).collect(),
                    });
                }
                "end" => complete = true,
                _ => return Err(bad()),
            }
        }
        if !complete {
            return Err(fail("the counts file is cut off".into()));
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "numaloc-lab-counts 1\nlayout doubled\nseconds 1.5\nunknown 2\nloads 0 1 2\n\
        loads 1 3 4\nstores 0 0 5\nfetched-loads 1 1 1\nslice 0.5 1 0 0 2\nend\n";

    #[test]
    fn a_valid_file_is_read() {
        let counts = Counts::parse(GOOD, 2, 2).unwrap();
        assert_eq!(counts.loads, [[1, 2], [3, 4]]);
        assert_eq!(counts.stores, [[0, 5], [0, 0]]);
        assert_eq!(counts.slices[0].accesses, [[1, 0], [0, 2]]);
        assert_eq!((counts.unknown, counts.layout.as_str()), (2, "doubled"));
    }

    #[test]
    fn errors_of_bad_files_are_one_line() {
        for (text, expected) in [
            ("", "version"),
            ("numaloc-lab-counts 2\n", "version"),
            (&GOOD.replace("end\n", ""), "cut off"),
            (&GOOD.replace("loads 1 3 4", "loads 1 3"), "loads 1 3"),
            (&GOOD.replace("loads 1 3 4", "loads 7 3 4"), "loads 7 3 4"),
            (
                &GOOD.replace("layout doubled", "error calibration: odd"),
                "calibration: odd",
            ),
            (&GOOD.replace("1.5", "x"), "seconds x"),
        ] {
            let error = Counts::parse(text, 2, 2).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
