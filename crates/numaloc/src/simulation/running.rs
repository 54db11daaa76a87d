//! Runs simulations in parallel, except those that an earlier run finished.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use numaloc_sim::{Extras, Machine, Outcome, Sample, Setup, Trace};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Case;
use super::saved::{Digest, Saved};
use crate::error::CliError;
use crate::ui::{Ui, stderr};

/// A simulation.
pub struct Job<'a> {
    pub machine: &'a Machine,
    pub trace: &'a Trace,
    /// [`Trace::fingerprint`].
    pub fingerprint: u64,
    pub case: &'a Case,
    /// Bytes of the private caches with which the trace was recorded.
    pub filter_bytes: u64,
    /// Simulates a part of the records in detail.
    pub sample: Option<Sample>,
}

impl Job<'_> {
    fn digest(&self, kind: &str) -> String {
        let mut digest = Digest::new(kind);
        digest.add(&(self.fingerprint, self.filter_bytes));
        digest.add(self.machine);
        digest.add(&self.case.mapped);
        digest.add(&self.case.homes);
        digest.add(&(&self.case.moves, self.sample));
        digest.text()
    }

    fn run(&self) -> Result<Outcome, CliError> {
        let setup = Setup {
            threads: self.case.mapped.threads(),
            pages: &self.case.homes,
        };
        let extras = Extras {
            moves: &self.case.moves,
            sample: self.sample,
        };
        numaloc_sim::simulate_with(self.machine, self.trace, &setup, self.filter_bytes, &extras)
            .map_err(CliError::tool)
    }
}

/// Where results come from and go to.
pub struct Runner<'a> {
    /// Simulations at once.
    pub workers: usize,
    pub saved: &'a Saved,
    pub ui: &'a Ui,
}

impl Runner<'_> {
    /// Runs all jobs; the results, reduced by `keep`, in the order of the jobs. `kind` names the reduction.
    pub fn run<T: Serialize + DeserializeOwned + Send>(
        &self,
        jobs: &[Job<'_>],
        kind: &str,
        keep: impl Fn(Outcome) -> T + Sync,
    ) -> Result<Vec<T>, CliError> {
        let next = AtomicUsize::new(0);
        let progress = Progress::new(jobs.len(), self.ui);
        let found: Vec<Mutex<Option<Result<T, CliError>>>> =
            jobs.iter().map(|_| Mutex::new(None)).collect();
        let work = || {
            while let Some((job, found)) = {
                let at = next.fetch_add(1, Ordering::Relaxed);
                jobs.get(at).zip(found.get(at))
            } {
                let result = self.one(job, kind, &keep, &progress);
                if result.is_err() {
                    // No further jobs are started.
                    next.fetch_add(jobs.len(), Ordering::Relaxed);
                }
                if let Ok(mut found) = found.lock() {
                    *found = Some(result);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.workers.min(jobs.len()) {
                scope.spawn(work);
            }
            work();
        });
        progress.end();
        // What is finished is kept, also if a job failed.
        let flushed = self.saved.flush();
        // Jobs that were not started have no result; then another one has an error.
        let ended = found
            .into_iter()
            .filter_map(|found| found.into_inner().ok().flatten());
        let results = ended.collect::<Result<_, CliError>>()?;
        flushed.map(|()| results)
    }

    fn one<T: Serialize + DeserializeOwned>(
        &self,
        job: &Job<'_>,
        kind: &str,
        keep: impl Fn(Outcome) -> T,
        progress: &Progress<'_>,
    ) -> Result<T, CliError> {
        let digest = self.saved.is_kept().then(|| job.digest(kind));
        if let Some(result) = digest.as_ref().and_then(|digest| self.saved.take(digest)) {
            progress.count(false);
            return Ok(result);
        }
        let result = keep(job.run()?);
        if let Some(digest) = digest {
            self.saved.add(digest, &result)?;
        }
        progress.count(true);
        Ok(result)
    }
}

/// Progress on the terminal, with the estimated time to the end.
struct Progress<'a> {
    ui: &'a Ui,
    jobs: usize,
    start: Instant,
    /// Jobs done, and how many of them were simulated.
    done: Mutex<(usize, usize)>,
}

impl<'a> Progress<'a> {
    fn new(jobs: usize, ui: &'a Ui) -> Self {
        Self {
            ui,
            jobs,
            start: Instant::now(),
            done: Mutex::new((0, 0)),
        }
    }

    fn count(&self, is_simulated: bool) {
        let Ok(mut done) = self.done.lock() else {
            return;
        };
        done.0 += 1;
        done.1 += usize::from(is_simulated);
        if !self.ui.progress() {
            return;
        }
        stderr(&shown(*done, self.jobs, self.start.elapsed().as_secs_f64()));
    }

    fn end(&self) {
        if self.ui.progress() {
            stderr(&format!("\r{:<60}\r", ""));
        }
    }
}

/// Progress after `seconds`: of `jobs`, the first of `done` are finished, the second of them simulated.
fn shown(done: (usize, usize), jobs: usize, seconds: f64) -> String {
    let each = seconds / done.1.max(1) as f64;
    format!(
        "\rsimulated {} of {jobs}, about {:.0} s left   ",
        done.0,
        each * (jobs - done.0) as f64
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results that were kept take no time, so they do not shorten the estimate.
    #[test]
    fn the_estimated_end_follows_from_the_simulations_that_took_time() {
        assert_eq!(
            shown((6, 2), 10, 8.0),
            "\rsimulated 6 of 10, about 16 s left   "
        );
        assert_eq!(
            shown((3, 0), 10, 1.0),
            "\rsimulated 3 of 10, about 7 s left   "
        );
    }
}
