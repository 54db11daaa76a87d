//! Reads the text files of `map` other than the matrix: loads and groups.

use std::io::Read;
use std::path::Path;

use numaloc_formats::FormatError;
use numaloc_model::{CommMatrix, GroupPair, TaskGroup, ThreadIdx};

use crate::error::CliError;

/// Maximum size of a file of loads or groups.
const MOST_BYTES: u64 = 256 << 20;

fn text(path: &Path) -> Result<String, CliError> {
    let io = |error| FormatError::io("read", path, error);
    let mut text = String::new();
    let file = numaloc_files::input::open(path).map_err(io)?;
    let read = file
        .take(MOST_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(io)?;
    if read as u64 > MOST_BYTES {
        let most = format!("at most {} MiB", MOST_BYTES >> 20);
        return Err(FormatError::corrupt(path, "content", "a longer file", most).into());
    }
    Ok(text)
}

fn number(path: &Path, line: usize, word: &str) -> Result<f64, CliError> {
    let known = word
        .parse()
        .ok()
        .filter(|value: &f64| value.is_finite() && *value >= 0.0);
    known.ok_or_else(|| {
        let shown: String = word.chars().take(24).collect();
        let expected = "a finite number of at least 0";
        FormatError::corrupt(path, format!("line {line}"), format!("{shown:?}"), expected).into()
    })
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    let line = line.split('#').next().unwrap_or("");
    line.split([',', ' ', '\t', '\r'])
        .filter(|word| !word.is_empty())
}

/// Numbers of at least 0, separated by commas, blanks or lines.
pub(super) fn numbers(path: &Path) -> Result<Vec<f64>, CliError> {
    let text = text(path)?;
    let lines = text.lines().enumerate();
    lines
        .flat_map(|(at, line)| words(line).map(move |word| number(path, at + 1, word)))
        .collect()
}

/// One load per task.
pub(super) fn load(path: &Path, tasks: usize) -> Result<Vec<f64>, CliError> {
    let load = numbers(path)?;
    if load.len() != tasks {
        let found = format!("{} numbers", load.len());
        let expected = format!("{tasks}, one per task of the matrix");
        return Err(FormatError::corrupt(path, "content", found, expected).into());
    }
    Ok(load)
}

/// `group task task amount` lines; groups are numbered from 0 in any order.
pub(super) fn groups(path: &Path, matrix: &CommMatrix) -> Result<Vec<TaskGroup>, CliError> {
    let tasks = matrix.threads();
    let text = text(path)?;
    let mut cells: Vec<(usize, usize, usize, f64)> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let fault = |found: &str| -> CliError {
            let place = format!("line {}", at + 1);
            let expected = format!(
                "group task task amount, tasks from 0 to {}",
                tasks.saturating_sub(1)
            );
            FormatError::corrupt(path, place, found, expected).into()
        };
        let words: Vec<&str> = words(line).collect();
        let &[group, a, b, amount] = &words[..] else {
            if words.is_empty() {
                continue;
            }
            return Err(fault(&format!("{} words", words.len())));
        };
        let whole = |word: &str, below: usize| word.parse().ok().filter(|n: &usize| *n < below);
        let (Some(group), Some(a), Some(b)) =
            (whole(group, 1 << 20), whole(a, tasks), whole(b, tasks))
        else {
            return Err(fault(&format!("{:?}", words[..3].join(" "))));
        };
        let amount = number(path, at + 1, amount)?;
        if a != b {
            cells.push((group, a.min(b), a.max(b), amount));
        }
    }
    cells.sort_by_key(|&(group, a, b, _)| (group, a, b));
    let mut groups: Vec<(usize, TaskGroup)> = Vec::new();
    for (group, a, b, amount) in cells {
        if groups.last().is_none_or(|(last, _)| *last != group) {
            groups.push((group, TaskGroup::default()));
        }
        let pairs = &mut groups.last_mut().expect("just pushed").1.pairs;
        let (a, b) = (ThreadIdx::from_index(a), ThreadIdx::from_index(b));
        match pairs.last_mut() {
            Some(last) if (last.a, last.b) == (a, b) => last.in_group += amount,
            _ => pairs.push(GroupPair {
                a,
                b,
                in_group: amount,
                in_run: matrix.get(a.index(), b.index()) + matrix.get(b.index(), a.index()),
            }),
        }
    }
    Ok(groups.into_iter().map(|(_, group)| group).collect())
}
