//! Writes a [`RankMap`](crate::RankMap) in the notation of each launcher. Pure text; one file per launcher.

pub mod hydra;
pub mod rankfile;
pub mod slurm;
pub mod wrapper;

/// Numbers as `0-3,7`.
pub(crate) fn ranges(numbers: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &n in numbers {
        match parts.last_mut() {
            Some((_, end)) if *end + 1 == n => *end = n,
            _ => parts.push((n, n)),
        }
    }
    let shown = parts.iter().map(|&(a, b)| {
        if a == b {
            a.to_string()
        } else {
            format!("{a}-{b}")
        }
    });
    shown.collect::<Vec<_>>().join(",")
}
