//! Paths of threads: `0`, `0.1`, `0/2.1`, and `r3.1` for a thread of an MPI rank.

use std::cmp::Ordering;
use std::fmt;

/// Path of the first thread of the started program.
pub const FIRST: &str = "0";

/// A step of a path: what the creator made, and its number among those of its kind.
///
/// Ordered by kind, threads before processes, then by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// The n-th thread, from 1.
    Thread(u64),
    /// The n-th process, from 1.
    Process(u64),
}

impl Step {
    /// The path of a thread or process that `creator` made in this step.
    #[must_use]
    pub fn from(self, creator: &str) -> String {
        match self {
            Self::Thread(number) => format!("{creator}.{number}"),
            Self::Process(number) => format!("{creator}/{number}"),
        }
    }
}

/// A thread's path, borrowed.
///
/// Ordered step by step by number: a thread before those it created, its threads before its processes. Texts that are
/// not paths are ordered after paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadPath<'a>(&'a str);

impl<'a> ThreadPath<'a> {
    /// The path in `text`, unchecked.
    #[must_use]
    pub const fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// The text.
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// The path of the thread that created this one; `None` for a first step.
    #[must_use]
    pub fn creator(self) -> Option<Self> {
        Some(Self(&self.0[..self.0.rfind(SEPARATORS)?]))
    }

    /// The step in which its creator made it; `None` for a first step, or if the last step is not a number.
    #[must_use]
    pub fn last_step(self) -> Option<Step> {
        let at = self.0.rfind(SEPARATORS)?;
        let number = self.0[at + 1..].parse().ok()?;
        Some(match self.0.as_bytes()[at] {
            b'/' => Step::Process(number),
            _ => Step::Thread(number),
        })
    }

    /// This path, its creator's, and so on up to the first step.
    pub fn ancestry(self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self), |path| path.creator())
    }

    /// The first step: the program, or the rank.
    #[must_use]
    pub fn root(self) -> &'a str {
        &self.0[..self.0.find(SEPARATORS).unwrap_or(self.0.len())]
    }

    /// The path of its process, that of the process's first thread: `0/1` of `0/1.2.3`.
    #[must_use]
    pub fn process(self) -> Self {
        let last = self.0.rfind('/').map_or(0, |at| at + 1);
        let end = self.0[last..]
            .find('.')
            .map_or(self.0.len(), |at| last + at);
        Self(&self.0[..end])
    }

    /// The MPI rank it belongs to: 12 of `r12`, `r12.1` and `r12/3`.
    #[must_use]
    pub fn rank(self) -> Option<u32> {
        let digits = self.root().strip_prefix('r')?;
        digits
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| digits.parse().ok())?
    }

    /// The path of a rank's first thread.
    #[must_use]
    pub fn of_rank(rank: u32) -> String {
        format!("r{rank}")
    }

    /// The first step's number, then the numbers of the further steps; a step that is not a number is ordered last.
    fn numbers(self) -> impl Iterator<Item = (bool, u64)> + use<'a> {
        let mut rest = self.0;
        let mut is_process = false;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let end = rest.find(SEPARATORS).unwrap_or(rest.len());
            let number = rest[..end].trim_start_matches('r');
            let step = (is_process, number.parse().unwrap_or(u64::MAX));
            is_process = rest[end..].starts_with('/');
            rest = rest.get(end + 1..).unwrap_or("");
            Some(step)
        })
    }
}

impl Ord for ThreadPath<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_number = self.numbers().cmp(other.numbers());
        by_number.then_with(|| self.0.cmp(other.0))
    }
}

impl PartialOrd for ThreadPath<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ThreadPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

const SEPARATORS: [char; 2] = ['.', '/'];

/// Assigns paths to the threads and processes that a thread creates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Creator {
    path: String,
    threads: u32,
    processes: u32,
}

impl Creator {
    /// A thread with that path that has not created anything.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            threads: 0,
            processes: 0,
        }
    }

    /// A thread with that path that has created this many threads and processes.
    #[must_use]
    pub fn after(path: impl Into<String>, threads: u32, processes: u32) -> Self {
        Self {
            path: path.into(),
            threads,
            processes,
        }
    }

    /// Its own path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Number of threads it has created.
    #[must_use]
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// Number of processes it has created.
    #[must_use]
    pub fn processes(&self) -> u32 {
        self.processes
    }

    /// The path of the next thread it creates, without counting it.
    #[must_use]
    pub fn upcoming_thread(&self) -> String {
        Step::Thread(u64::from(self.threads) + 1).from(&self.path)
    }

    /// The path of the next process it creates, without counting it.
    #[must_use]
    pub fn upcoming_process(&self) -> String {
        Step::Process(u64::from(self.processes) + 1).from(&self.path)
    }

    /// Counts a created thread whose path is known.
    pub fn count_thread(&mut self) {
        self.threads += 1;
    }

    /// Counts a created process whose path is known.
    pub fn count_process(&mut self) {
        self.processes += 1;
    }

    /// Counts a created thread; returns its path.
    pub fn next_thread(&mut self) -> String {
        let path = self.upcoming_thread();
        self.count_thread();
        path
    }

    /// Counts a created process; returns its path.
    pub fn next_process(&mut self) -> String {
        let path = self.upcoming_process();
        self.count_process();
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_compare_as_numbers_and_creators_come_first() {
        let mut paths = vec!["0/1", "0.10", "0.2", "0", "0.2/1", "0.2.1", "0/1.1"];
        paths.sort_by_key(|path| ThreadPath::new(path));
        assert_eq!(
            paths,
            ["0", "0.2", "0.2.1", "0.2/1", "0.10", "0/1", "0/1.1"]
        );
        let mut ranks = vec!["r10", "r2.1", "r2", "r2/1", "r0"];
        ranks.sort_by_key(|path| ThreadPath::new(path));
        assert_eq!(ranks, ["r0", "r2", "r2.1", "r2/1", "r10"]);
    }

    #[test]
    fn paths_follow_the_creator_not_the_clock() {
        let mut main = Creator::new(FIRST);
        assert_eq!(main.next_thread(), "0.1");
        assert_eq!(main.next_process(), "0/1");
        assert_eq!(main.upcoming_thread(), "0.2");
        assert_eq!(main.next_thread(), "0.2");
        assert_eq!(Creator::new("0.2").next_thread(), "0.2.1");
        assert_eq!(Creator::new("0/1").next_thread(), "0/1.1");
        assert_eq!(Creator::after("0", 3, 1).next_process(), "0/2");
    }

    #[test]
    fn parts_of_a_path() {
        let path = ThreadPath::new("0/1.2.3");
        assert_eq!(path.root(), "0");
        assert_eq!(path.process().as_str(), "0/1");
        assert_eq!(path.last_step(), Some(Step::Thread(3)));
        let ancestry: Vec<_> = path.ancestry().map(ThreadPath::as_str).collect();
        assert_eq!(ancestry, ["0/1.2.3", "0/1.2", "0/1", "0"]);
        assert_eq!(ThreadPath::new("0").creator(), None);
        assert_eq!(ThreadPath::new("0").process().as_str(), "0");
    }

    #[test]
    fn ranks_are_a_first_step_of_r_and_digits() {
        let rank = |text| ThreadPath::new(text).rank();
        assert_eq!(rank("r12"), Some(12));
        assert_eq!(rank("r12.1"), Some(12));
        assert_eq!(rank("r12/3.1"), Some(12));
        for other in ["0", "r", "rx1", "r1x", "0.r1", "r99999999999"] {
            assert_eq!(rank(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn created_paths_lead_back_to_their_creator(steps in prop::collection::vec((any::<bool>(), 0u32..12), 0..6)) {
            let mut path = FIRST.to_owned();
            for (is_process, before) in steps {
                let creator = Creator::after(path.clone(), before, before);
                let next = if is_process { creator.upcoming_process() } else { creator.upcoming_thread() };
                let number = u64::from(before) + 1;
                let step = if is_process { Step::Process(number) } else { Step::Thread(number) };
                prop_assert_eq!(ThreadPath::new(&next).creator(), Some(ThreadPath::new(&path)));
                prop_assert_eq!(ThreadPath::new(&next).last_step(), Some(step));
                prop_assert!(ThreadPath::new(&path) < ThreadPath::new(&next));
                path = next;
            }
        }

        #[test]
        fn the_order_is_total(a in "[0r./1-3]{0,6}", b in "[0r./1-3]{0,6}", c in "[0r./1-3]{0,6}") {
            let [a, b, c] = [&a, &b, &c].map(|text| ThreadPath::new(text));
            prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
            prop_assert!(!(a <= b && b <= c) || a <= c);
            prop_assert_eq!(a.cmp(&b) == Ordering::Equal, a == b);
        }
    }
}
