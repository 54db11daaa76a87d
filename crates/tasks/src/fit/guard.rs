//! The guard: whether the plan, in a run that is not divided as the profile was, does what it is for.

use std::sync::atomic::{AtomicU64, Ordering};

/// Tasks after which the guard looks at what the plan did.
pub const WINDOW: u64 = 128;
/// By chance, `1 - 1 / nodes` of the bytes are remote; with a plan that is worth it, at most this share of that.
const REMOTE: f64 = 0.8;
/// A plan that saves at most this share of the time of tasks loses more than that where a node has nothing to do.
const SAVED: f64 = 1.0 / 16.0;

/// What the guard has counted.
#[derive(Default)]
pub struct Window {
    tasks: AtomicU64,
    unplanned: AtomicU64,
    with_data: AtomicU64,
    local_bytes: AtomicU64,
    remote_bytes: AtomicU64,
}

impl Window {
    /// Counts a task that is about to run, and its bytes. `nodes`: those of the plan. `longer`: how much longer a task
    /// takes far from its data, by bytes.
    ///
    /// # Errors
    /// The plan does not do what it is for: why.
    pub fn count(
        &self,
        nodes: usize,
        planned: bool,
        local: u64,
        remote: u64,
        longer: impl Fn(f64) -> f64,
    ) -> Result<(), String> {
        self.unplanned
            .fetch_add(u64::from(!planned), Ordering::Relaxed);
        self.with_data
            .fetch_add(u64::from(local + remote > 0), Ordering::Relaxed);
        self.local_bytes.fetch_add(local, Ordering::Relaxed);
        self.remote_bytes.fetch_add(remote, Ordering::Relaxed);
        if !(self.tasks.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(WINDOW) {
            return Ok(());
        }
        // Other workers may add to either window meanwhile: a few tasks more or less.
        let unplanned = self.unplanned.swap(0, Ordering::Relaxed);
        let with_data = self.with_data.swap(0, Ordering::Relaxed);
        let local = self.local_bytes.swap(0, Ordering::Relaxed) as f64;
        let remote = self.remote_bytes.swap(0, Ordering::Relaxed) as f64;
        if 2 * unplanned > WINDOW {
            return Err(format!("{unplanned} of {WINDOW} tasks are not in it"));
        }
        let share = remote / (local + remote).max(1.0);
        let by_chance = 1.0 - 1.0 / nodes.max(1) as f64;
        if share > REMOTE * by_chance {
            let percent = 100.0 * share;
            return Err(format!(
                "{percent:.0} % of the bytes of {WINDOW} tasks are remote with it"
            ));
        }
        let saved = by_chance * longer((local + remote) / with_data.max(1) as f64);
        // Where most tasks have no data, others will have it.
        if saved <= SAVED && 2 * with_data > WINDOW {
            let percent = 100.0 * saved;
            return Err(format!(
                "tasks have little data, it saves {percent:.0} % of their time at most"
            ));
        }
        Ok(())
    }
}
