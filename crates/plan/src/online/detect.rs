//! Recognises a new phase of a running program from windows of what was observed.
//!
//! | detector | a phase begins where |
//! |---|---|
//! | [`Detector::Pattern`] | communication partners change: `1 - cos` between the last windows and those before them exceeds its median in this phase by [`LEAST_CHANGE`], and chance does not explain it |
//! | [`Detector::Heterogeneity`] | the mean heterogeneity changes by a share `diff_min` (OPT eq. 4) |
//! | [`Detector::Load`] | the load falls to the mean of the lowest twentieth of the series so far, after a least length (CMLB Algorithm 1) |
//!
//! The rules are those of the analysis of whole runs (`numaloc_analysis::{pattern_phases, phases, load}`), which look
//! ahead. Here a change is seen after the windows that are compared: with `n` windows, `n` of them too late.

use std::collections::VecDeque;

use numaloc_analysis::communication::heterogeneity;
use numaloc_model::{CommMatrix, Layer};

pub use numaloc_analysis::pattern_phases::LEAST_CHANGE;

/// Windows of the load series that are remembered.
const SERIES: usize = 4096;
/// Windows without which the lowest twentieth of them says nothing.
const LEAST_SERIES: usize = 40;
/// Distances within a phase of which the median is taken.
const USUAL: usize = 64;
/// Distances that are taken over from the phase before: a program whose windows always differ has no phases.
const KEPT: usize = 4;
/// Events without which a silence has not ended.
const LEAST_EVENTS: f64 = 64.0;
/// Standard deviations by which counts must differ more than two random samples of the same pattern do.
const CHANCE: f64 = 4.0;

/// How a new phase is recognised; see the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detector {
    /// By communication partners.
    #[default]
    Pattern,
    /// By heterogeneity.
    Heterogeneity,
    /// By load.
    Load,
}

impl Detector {
    /// Every detector, with the name that users choose it by.
    pub const ALL: [(&'static str, Self); 3] = [
        ("pattern", Self::Pattern),
        ("heterogeneity", Self::Heterogeneity),
        ("load", Self::Load),
    ];
}

/// What was observed in a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// Threads x threads.
    cells: Vec<f64>,
    threads: usize,
    /// Observed accesses.
    load: f64,
    /// Set when the window is closed, if the detector needs it.
    heterogeneity: Option<f64>,
}

impl Window {
    /// Adds an access of `thread` to memory that each of `others` used before, with the weight of each.
    pub fn add(&mut self, thread: usize, others: &[(usize, f64)]) {
        let highest = others.iter().map(|(other, _)| *other).max().unwrap_or(0);
        self.grow(thread.max(highest) + 1);
        for &(other, weight) in others {
            self.cells[thread * self.threads + other] += weight;
        }
        self.load += 1.0;
    }

    /// Accesses in it.
    #[must_use]
    pub fn load(&self) -> f64 {
        self.load
    }

    fn grow(&mut self, threads: usize) {
        if threads <= self.threads {
            return;
        }
        let mut larger = vec![0.0; threads * threads];
        for row in 0..self.threads {
            let from = &self.cells[row * self.threads..(row + 1) * self.threads];
            larger[row * threads..row * threads + self.threads].copy_from_slice(from);
        }
        self.cells = larger;
        self.threads = threads;
    }

    fn plus(&mut self, other: &Self) {
        self.grow(other.threads);
        for row in 0..other.threads {
            for column in 0..other.threads {
                self.cells[row * self.threads + column] +=
                    other.cells[row * other.threads + column];
            }
        }
        self.load += other.load;
    }

    fn close(&mut self) {
        self.heterogeneity = self.computed();
    }

    fn computed(&self) -> Option<f64> {
        let matrix = CommMatrix::from_dense(self.threads, &self.cells).ok()?;
        (matrix.total() > 0.0).then(|| heterogeneity(&matrix, Layer::WriteRead))
    }
}

/// Watches for changes; see the module.
#[derive(Clone, Debug)]
pub struct Changes {
    detector: Detector,
    /// Windows that are compared with as many before them.
    windows: usize,
    /// `diff_min`.
    least_difference: f64,
    recent: VecDeque<Window>,
    /// Distances in the present phase.
    usual: VecDeque<f64>,
    loads: VecDeque<f64>,
    /// Windows since the present phase began.
    length: usize,
    /// Whether there was communication before.
    communicated: bool,
}

impl Changes {
    /// Compares `windows` with as many before them.
    ///
    /// # Panics
    /// If `windows` is 0.
    #[must_use]
    pub fn new(detector: Detector, windows: usize, least_difference: f64) -> Self {
        assert!(windows > 0, "a window is compared");
        Self {
            detector,
            windows,
            least_difference,
            recent: VecDeque::new(),
            usual: VecDeque::new(),
            loads: VecDeque::new(),
            length: 0,
            communicated: false,
        }
    }

    /// Takes the next window. `Some(n)`: a phase began `n` windows ago, the one given included.
    pub fn push(&mut self, mut window: Window) -> Option<usize> {
        self.length += 1;
        if self.detector == Detector::Load {
            return self.by_load(window.load);
        }
        if self.detector == Detector::Heterogeneity {
            window.close();
        }
        self.recent.push_back(window);
        if self.recent.len() > 2 * self.windows {
            self.recent.pop_front();
        }
        if self.recent.len() < 2 * self.windows {
            return None;
        }
        let changed = match self.detector {
            Detector::Heterogeneity => self.by_heterogeneity(),
            _ => self.by_pattern(),
        };
        if !changed {
            return None;
        }
        match self.detector {
            // A mean is off as soon as a part of its windows is: that part would be found once more.
            Detector::Heterogeneity => self.recent.clear(),
            // The last windows are the first ones of the new phase.
            _ => drop(self.recent.drain(..self.windows)),
        }
        drop(self.usual.drain(..self.usual.len().saturating_sub(KEPT)));
        self.length = self.windows;
        Some(self.windows)
    }

    fn sum(&self, of: std::ops::Range<usize>) -> Window {
        let mut sum = Window::default();
        self.recent.range(of).for_each(|window| sum.plus(window));
        sum
    }

    fn by_pattern(&mut self) -> bool {
        let n = self.windows;
        let (mut before, mut now) = (self.sum(0..n), self.sum(n..2 * n));
        let threads = before.threads.max(now.threads);
        before.grow(threads);
        now.grow(threads);
        let dot = |a: &Window, b: &Window| -> f64 {
            a.cells.iter().zip(&b.cells).map(|(a, b)| a * b).sum()
        };
        let lengths = (dot(&before, &before) * dot(&now, &now)).sqrt();
        if lengths == 0.0 {
            // Silence is no pattern, but its end is a new phase: partners on one package make no transfers that some
            // sources show.
            let events: f64 = now.cells.iter().sum();
            return self.communicated && events >= LEAST_EVENTS;
        }
        self.communicated = true;
        let distance = 1.0 - dot(&before, &now) / lengths;
        let mut sorted: Vec<f64> = self.usual.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let usual = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
        let changed = distance - usual >= LEAST_CHANGE && differ(&before.cells, &now.cells);
        self.usual.push_back(distance);
        if self.usual.len() > USUAL {
            self.usual.pop_front();
        }
        changed
    }

    fn by_heterogeneity(&self) -> bool {
        let n = self.windows;
        let mean = |of: std::ops::Range<usize>| {
            let windows = self.recent.range(of);
            let found: Vec<f64> = windows.filter_map(|window| window.heterogeneity).collect();
            (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64)
        };
        let (Some(before), Some(now)) = (mean(0..n), mean(n..2 * n)) else {
            return false;
        };
        match now == 0.0 {
            true => before > 0.0,
            false => (now - before).abs() / now >= self.least_difference,
        }
    }

    fn by_load(&mut self, load: f64) -> Option<usize> {
        self.loads.push_back(load);
        if self.loads.len() > SERIES {
            self.loads.pop_front();
        }
        let mut sorted: Vec<f64> = self.loads.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let low = &sorted[..(sorted.len() / 20).max(1)];
        let low = low.iter().sum::<f64>() / low.len() as f64;
        if load > low || self.length <= self.windows || sorted.len() < LEAST_SERIES {
            return None;
        }
        self.length = 1;
        Some(1)
    }
}

/// Whether the counts of two samples differ by more than chance: their χ² exceeds its mean, the degrees of freedom, by
/// [`CHANCE`] standard deviations.
fn differ(before: &[f64], now: &[f64]) -> bool {
    let (n, m): (f64, f64) = (before.iter().sum(), now.iter().sum());
    if n <= 0.0 || m <= 0.0 {
        return false;
    }
    let (up, down) = ((m / n).sqrt(), (n / m).sqrt());
    let (mut statistic, mut freedom) = (0.0_f64, -1.0_f64);
    for (a, b) in before.iter().zip(now).filter(|(a, b)| **a + **b > 0.0) {
        statistic += (a * up - b * down).powi(2) / (a + b);
        freedom += 1.0;
    }
    statistic > freedom + CHANCE * (2.0 * freedom).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A generator of equally likely numbers, the same in each run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (self.0 >> 33) % limit
        }
    }

    const THREADS: usize = 8;

    /// Windows that are compared: OPT's mean of values that scatter needs more of them.
    fn windows(detector: Detector) -> usize {
        match detector {
            Detector::Heterogeneity => 25,
            _ => 4,
        }
    }

    /// What changes from phase to phase.
    #[derive(Clone, Copy, PartialEq)]
    enum Kind {
        /// Who the partner of each thread is.
        Partners,
        /// Pairs, or groups of four.
        Width,
        /// A short dip of the load separates phases of the same pattern.
        Dips,
    }

    /// Windows of 100 or more events, and the numbers of those at which a phase begins: phases of 5 to 15 times as many
    /// windows as are compared. One event in ten is noise.
    fn series(kind: Kind, compared: usize, seed: u64) -> (Vec<Window>, Vec<usize>) {
        let mut random = Random(seed);
        let (mut windows, mut starts) = (Vec::new(), Vec::new());
        let mut partner: Vec<usize> = (0..THREADS).map(|thread| thread ^ 1).collect();
        for phase in 0..20 {
            if phase > 0 {
                starts.push(windows.len());
            }
            if kind == Kind::Partners && phase > 0 {
                // Another distance than before.
                let before = partner[0];
                let other = [1, 2, 4].into_iter().filter(|&distance| distance != before);
                let other: Vec<usize> = other.collect();
                let other = other[random.below(2) as usize];
                partner = (0..THREADS).map(|thread| thread ^ other).collect();
            }
            let length = 5 * compared + random.below(10 * compared as u64) as usize;
            for at in 0..length {
                let mut window = Window::default();
                let dip = kind == Kind::Dips && at == 0 && phase > 0;
                let events = if dip { 10 } else { 100 + random.below(100) };
                for _ in 0..events {
                    let thread = random.below(THREADS as u64) as usize;
                    let by_chance = random.below(10) == 0;
                    let other = if by_chance {
                        (thread + 1 + random.below(THREADS as u64 - 1) as usize) % THREADS
                    } else if kind == Kind::Width && phase % 2 == 1 {
                        thread ^ (1 + random.below(3) as usize)
                    } else {
                        partner[thread]
                    };
                    window.add(thread, &[(other, 1.0)]);
                }
                windows.push(window);
            }
        }
        (windows, starts)
    }

    /// Precision and recall over ten series; a change counts as found if a phase is said to begin within the windows
    /// that are compared.
    fn quality(detector: Detector, kind: Kind) -> (f64, f64) {
        let (mut right, mut found, mut all) = (0, 0, 0);
        for seed in 0..10 {
            let compared = windows(detector);
            let (windows, starts) = series(kind, compared, seed);
            let mut changes = Changes::new(detector, compared, 0.2);
            let mut said = Vec::new();
            for (at, window) in windows.into_iter().enumerate() {
                if let Some(ago) = changes.push(window) {
                    said.push(at + 1 - ago);
                }
            }
            found += said.len();
            all += starts.len();
            let near = |start: &&usize| said.iter().any(|at| at.abs_diff(**start) <= compared);
            right += starts.iter().filter(near).count();
        }
        let share = |of: usize| {
            if of == 0 {
                0.0
            } else {
                right as f64 / of as f64
            }
        };
        (share(found).min(1.0), share(all))
    }

    #[test]
    fn each_detector_finds_the_changes_that_it_is_made_for() {
        for (detector, kind) in [
            (Detector::Pattern, Kind::Partners),
            (Detector::Pattern, Kind::Width),
            (Detector::Heterogeneity, Kind::Width),
            (Detector::Load, Kind::Dips),
        ] {
            let (precision, recall) = quality(detector, kind);
            assert!(
                precision >= 0.95 && recall >= 0.95,
                "{detector:?}: precision {precision:.3}, recall {recall:.3}"
            );
        }
    }

    /// The table of docs/online.md.
    #[test]
    fn a_detector_does_not_see_what_it_is_not_made_for() {
        for (name, detector) in Detector::ALL {
            for (what, kind) in [
                ("partners", Kind::Partners),
                ("width", Kind::Width),
                ("dips", Kind::Dips),
            ] {
                let (precision, recall) = quality(detector, kind);
                println!("{name} {what}: precision {precision:.2}, recall {recall:.2}");
            }
        }
        assert!(quality(Detector::Heterogeneity, Kind::Partners).1 < 0.5);
        assert!(quality(Detector::Pattern, Kind::Dips).1 < 0.5);
    }

    /// A few events in a window, of partners that do not change, are another sample each time.
    #[test]
    fn windows_of_few_events_are_no_phases() {
        let mut random = Random(3);
        let mut changes = Changes::new(Detector::Pattern, 4, 0.2);
        let mut said = 0;
        for _ in 0..2000 {
            let mut window = Window::default();
            for _ in 0..4 {
                let thread = random.below(8) as usize;
                let other = (thread + 1 + random.below(7) as usize) % 8;
                window.add(thread, &[(other, 1.0)]);
            }
            said += usize::from(changes.push(window).is_some());
        }
        assert!(said <= 2, "{said} phases");
    }

    #[test]
    fn communication_after_a_silence_is_a_phase_but_for_the_first() {
        let mut changes = Changes::new(Detector::Pattern, 4, 0.2);
        let talk = |distance: usize| {
            let mut window = Window::default();
            for thread in (0..8).cycle().take(64) {
                window.add(thread, &[(thread ^ distance, 1.0)]);
            }
            window
        };
        let mut found = Vec::new();
        let windows = [(0, 20), (1, 20), (0, 20), (4, 20)];
        for (at, distance) in windows
            .into_iter()
            .flat_map(|(d, n)| vec![d; n])
            .enumerate()
        {
            let window = if distance == 0 {
                Window::default()
            } else {
                talk(distance)
            };
            found.extend(changes.push(window).map(|ago| at + 1 - ago));
        }
        // The windows that are compared must be silent alone.
        assert!(
            matches!(found[..], [at] if at.abs_diff(60) < 4),
            "{found:?}"
        );
    }

    #[test]
    fn silence_and_a_steady_program_have_no_phases() {
        for (_, detector) in Detector::ALL {
            if detector == Detector::Load {
                continue;
            }
            let mut changes = Changes::new(detector, windows(detector), 0.2);
            for _ in 0..100 {
                assert_eq!(changes.push(Window::default()), None);
            }
            let mut random = Random(1);
            for _ in 0..1000 {
                let mut window = Window::default();
                for _ in 0..50 {
                    let thread = random.below(8) as usize;
                    window.add(thread, &[(thread ^ 1, 1.0)]);
                }
                assert_eq!(changes.push(window), None, "{detector:?}");
            }
        }
    }
}
