//! The order of thread paths (`0`, `0.1`, `0.1/2.3`): docs/identity.md.

use std::cmp::Ordering;

/// Orders paths step by step by number: a thread before what it created, its threads before its processes.
#[must_use]
pub fn order(a: &str, b: &str) -> Ordering {
    steps(a).cmp(steps(b)).then_with(|| a.cmp(b))
}

/// (is a process, number) of each step; what is no number comes last.
fn steps(path: &str) -> impl Iterator<Item = (bool, u64)> + '_ {
    let mut rest = path;
    let mut process = false;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.find(['.', '/']).unwrap_or(rest.len());
        // The first step of a rank's threads is `r` and the rank.
        let number = rest[..end].trim_start_matches('r');
        let step = (process, number.parse().unwrap_or(u64::MAX));
        process = rest[end..].starts_with('/');
        rest = rest.get(end + 1..).unwrap_or("");
        Some(step)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_count_as_numbers_and_creators_come_first() {
        let mut paths = vec!["0/1", "0.10", "0.2", "0", "0.2/1", "0.2.1", "0/1.1"];
        paths.sort_by(|a, b| super::order(a, b));
        let mut ranks = vec!["r10", "r2.1", "r2", "r2/1", "r0"];
        ranks.sort_by(|a, b| super::order(a, b));
        assert_eq!(ranks, ["r0", "r2", "r2.1", "r2/1", "r10"]);
        assert_eq!(
            paths,
            ["0", "0.2", "0.2.1", "0.2/1", "0.10", "0/1", "0/1.1"]
        );
    }
}
