//! The end of a run: its profile and statistics are written.

use std::sync::atomic::Ordering;

use super::stats::{Counters, Stats};
use crate::error::RunError;
use crate::state::Runtime;

/// Writes the profile and the statistics.
///
/// # Errors
/// A file cannot be written.
pub fn conclude(rt: &Runtime, simulated_seconds: Option<f64>) -> Result<Stats, RunError> {
    if let Some(observer) = &rt.observer {
        observer.write()?;
    }
    let stats = Stats {
        counters: totals(rt),
        seconds: rt.started.elapsed().as_secs_f64(),
        simulated_seconds,
        workers: rt.queues.workers.len(),
        nodes: rt.machine.nodes(),
        machine: rt.machine.topology().name().to_owned(),
        object_bytes: rt.arena.used_bytes() as u64,
        bindings_refused: rt.memory.refused(),
        complaints: rt.complaints.load(Ordering::Relaxed),
    };
    if let Some(path) = &rt.config.stats {
        std::fs::write(path, stats.to_json()).map_err(|why| RunError::Statistics {
            path: path.clone(),
            why,
        })?;
    }
    Ok(stats)
}

/// The sum of all workers' counters.
fn totals(rt: &Runtime) -> Counters {
    let mut sum = Counters::default();
    let totals = rt.totals.lock().expect("no panic while locked");
    for counters in totals.values() {
        sum.add(counters);
    }
    sum
}
