//! `autopin`: tries mappings and keeps the one under which the program advances fastest (Klug et al. 2008; the baseline
//! of OPT section 7.6, whose constants these are: the compact mapping and four random ones, 150 ms each after 500 ms).
//!
//! Progress there is instructions per cycle; here it is passes of the program's marks, because not every machine counts
//! instructions, and threads that wait actively execute many. A mapping with fewer than [`LEAST_PASSES`] passes is
//! tried for longer. Nothing is known of communication, and pages stay where they are.
//!
//! Deliberately different: none of the trials is begun before there are two threads, and they begin again if threads
//! come or go meanwhile.

use numaloc_mapping::{Direction, MapInput};
use numaloc_model::{CommMatrix, LogicalPu};
use numaloc_topology::Topology;

use crate::error::PlanError;

/// The name that users choose it by.
pub const NAME: &str = "autopin";
/// Time before the first trial, in seconds.
pub const WARM_UP_S: f64 = 0.5;
/// Least length of a trial, in seconds.
pub const TRIAL_S: f64 = 0.15;
/// Longest trial, in least ones.
const LONGEST: f64 = 20.0;
/// Passes of marks after which a trial says something.
pub const LEAST_PASSES: u64 = 16;
/// Random mappings that are tried.
pub const RANDOM: u64 = 4;

/// The mapping that is tried now.
#[derive(Clone, Debug)]
struct Trial {
    number: usize,
    begun_s: f64,
    passes: u64,
}

/// Tries mappings; see the module. Times are in seconds.
#[derive(Clone, Debug)]
pub struct Autopin<'a> {
    machine: &'a Topology,
    seed: u64,
    threads: Vec<usize>,
    begun_s: Option<f64>,
    candidates: Vec<Vec<LogicalPu>>,
    trial: Option<Trial>,
    /// Passes per second under each mapping so far.
    rates: Vec<f64>,
    chosen: Option<usize>,
}

impl<'a> Autopin<'a> {
    /// No thread seen yet.
    #[must_use]
    pub fn new(machine: &'a Topology, seed: u64) -> Self {
        Self {
            machine,
            seed,
            threads: Vec::new(),
            begun_s: None,
            candidates: Vec::new(),
            trial: None,
            rates: Vec::new(),
            chosen: None,
        }
    }

    /// Passes per second under each mapping tried, and the number of the one that was kept.
    #[must_use]
    pub fn result(&self) -> (&[f64], Option<usize>) {
        (&self.rates, self.chosen)
    }

    /// Whether [`Self::step`] has something to do: the program has passed `passes` marks by now.
    #[must_use]
    pub fn is_due(&self, now_s: f64, passes: u64) -> bool {
        if self.chosen.is_some() || passes == 0 {
            return false;
        }
        match (&self.trial, self.begun_s) {
            (Some(trial), _) => is_over(trial, now_s, passes),
            (None, Some(begun_s)) => now_s - begun_s >= WARM_UP_S,
            (None, None) => true,
        }
    }

    /// The next step, with the threads that live now, in order. Returns threads and the PUs to which they are bound.
    ///
    /// # Errors
    /// [`PlanError`] if there is no mapping for these threads.
    pub fn step(
        &mut self,
        now_s: f64,
        threads: &[usize],
        passes: u64,
    ) -> Result<Option<Vec<(usize, LogicalPu)>>, PlanError> {
        if !self.is_due(now_s, passes) || threads.len() < 2 {
            return Ok(None);
        }
        let begun_s = *self.begun_s.get_or_insert(now_s);
        if now_s - begun_s < WARM_UP_S {
            return Ok(None);
        }
        if threads != self.threads {
            self.threads = threads.to_vec();
            self.candidates = self.mappings()?;
            self.rates.clear();
            self.trial = None;
        }
        let next = match self.trial.take() {
            None => 0,
            Some(trial) => {
                let passed = passes.saturating_sub(trial.passes);
                self.rates.push(passed as f64 / (now_s - trial.begun_s));
                trial.number + 1
            }
        };
        let number = if next < self.candidates.len() {
            self.trial = Some(Trial {
                number: next,
                begun_s: now_s,
                passes,
            });
            next
        } else {
            let best = self.best();
            self.chosen = Some(best);
            best
        };
        let pus = self.candidates[number].iter().copied();
        Ok(Some(self.threads.iter().copied().zip(pus).collect()))
    }

    /// The mapping with most passes per second; of equal ones the first.
    fn best(&self) -> usize {
        let rates = self.rates.iter().enumerate();
        let best = rates.max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
        best.map_or(0, |(at, _)| at)
    }

    /// The mappings to try, without equal ones.
    fn mappings(&self) -> Result<Vec<Vec<LogicalPu>>, PlanError> {
        let nothing = CommMatrix::from_cells(self.threads.len(), std::iter::empty())?;
        let mut found = Vec::new();
        let random = (0..RANDOM).map(|number| ("random", self.seed.wrapping_add(number)));
        for (name, seed) in std::iter::once(("compact", self.seed)).chain(random) {
            let Some(policy) = numaloc_mapping::by_name(name) else {
                continue;
            };
            let input = MapInput::directed(&nothing, Direction::Undirected, self.machine);
            let pu = numaloc_mapping::map(policy, &input.with_seed(seed))?
                .mapping
                .pu;
            if !found.contains(&pu) {
                found.push(pu);
            }
        }
        Ok(found)
    }
}

fn is_over(trial: &Trial, now_s: f64, passes: u64) -> bool {
    let length_s = now_s - trial.begun_s;
    let enough = passes.saturating_sub(trial.passes) >= LEAST_PASSES;
    length_s >= TRIAL_S && (enough || length_s >= LONGEST * TRIAL_S)
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_topology::resolve;

    /// Runs a program of 8 threads for `seconds`; its marks per second depend on the mapping. Returns the mappings that
    /// were bound.
    fn run(
        autopin: &mut Autopin,
        seconds: f64,
        rate: impl Fn(&[LogicalPu]) -> f64,
    ) -> Vec<Vec<LogicalPu>> {
        let (mut passes, mut bound): (f64, Vec<Vec<LogicalPu>>) = (1.0, Vec::new());
        let threads: Vec<usize> = (0..8).collect();
        for look in 0..(seconds / 0.02) as usize {
            let now_s = look as f64 * 0.02;
            passes += 0.02 * bound.last().map_or(100.0, |pu| rate(pu));
            if let Some(step) = autopin.step(now_s, &threads, passes as u64).unwrap() {
                bound.push(step.into_iter().map(|(_, pu)| pu).collect());
            }
        }
        bound
    }

    #[test]
    fn the_mapping_with_most_progress_is_kept() {
        let machine = resolve("numa:4 core:2 pu:1").unwrap();
        let mut autopin = Autopin::new(&machine, 1);
        // Fastest where thread 0 has the highest PU among those that are tried.
        let speed = |pu: &[LogicalPu]| 1000.0 + 1000.0 * f64::from(pu[0].0);
        let bound = run(&mut autopin, 5.0, speed);
        let (rates, chosen) = autopin.result();
        assert_eq!((rates.len(), bound.len()), (5, 6), "{rates:?}");
        let fastest = bound.iter().map(|pu| pu[0]).max().unwrap();
        assert_eq!(bound[5][0], fastest);
        assert_eq!(bound[chosen.unwrap()], bound[5]);
        // The compact mapping came first, and nothing moves afterwards.
        assert_eq!(bound[0], (0..8).map(LogicalPu).collect::<Vec<_>>());
        assert!(!autopin.is_due(100.0, 1_000_000));
    }

    #[test]
    fn of_equal_mappings_the_compact_one_is_kept_and_slow_programs_are_tried_for_longer() {
        let machine = resolve("numa:4 core:2 pu:1").unwrap();
        let mut autopin = Autopin::new(&machine, 7);
        // 20 marks a second: 16 of them take 0.8 s.
        let bound = run(&mut autopin, 3.0, |_| 20.0);
        assert!((2..5).contains(&bound.len()), "{}", bound.len());
        let mut autopin = Autopin::new(&machine, 7);
        let bound = run(&mut autopin, 20.0, |_| 1000.0);
        let rates = autopin.result().0.to_vec();
        let best = rates.iter().copied().fold(0.0, f64::max);
        let first = rates.iter().position(|rate| *rate == best);
        assert_eq!(bound.last(), first.map(|at| &bound[at]));
    }

    #[test]
    fn trials_begin_again_when_threads_come_or_go_and_none_begins_without_progress() {
        let machine = resolve("numa:4 core:2 pu:1").unwrap();
        let mut autopin = Autopin::new(&machine, 7);
        assert!(!autopin.is_due(9.0, 0));
        assert_eq!(autopin.step(0.0, &[0, 1], 5).unwrap(), None);
        assert_eq!(autopin.step(1.0, &[0, 1], 50).unwrap().unwrap().len(), 2);
        assert_eq!(
            autopin.step(2.0, &[0, 1, 4], 500).unwrap().unwrap().len(),
            3
        );
        assert!(autopin.result().0.is_empty());
        // A thread alone is not mapped.
        assert_eq!(autopin.step(9.0, &[1], 5000).unwrap(), None);
    }
}
