//! Tracks idle workers of the scheduler `numa`, to wake them and to detect that a run cannot continue.
//!
//! A worker is idle when it is parked, or when a task on it waits inside itself and there is nothing else to run. An
//! idle worker holds no task: before parking, a worker announces itself (from then on it can be woken), looks for work
//! once more, and only then counts as idle; a waiting worker checks the queues without taking anything. So when all
//! workers are idle and all queues are empty, nothing can happen any more, unless an event that a task waits for has
//! fired meanwhile. Therefore every waiting worker checks its event once more and confirms that it has not fired; any
//! change of the set of idle workers invalidates these confirmations.

/// The idle state; see the module documentation. Protected by a lock; used on the slow path only.
#[derive(Debug)]
pub struct Idle {
    /// Workers to wake, by node: announced or parked.
    asleep: Vec<Vec<usize>>,
    parked: Vec<bool>,
    idle: usize,
    waiting: usize,
    version: u64,
    confirmed: usize,
}

impl Idle {
    /// Initial state: no worker is idle.
    pub fn new(nodes: usize, workers: usize) -> Self {
        Self {
            asleep: vec![Vec::new(); nodes],
            parked: vec![false; workers],
            idle: 0,
            waiting: 0,
            version: 0,
            confirmed: 0,
        }
    }

    fn changed(&mut self) {
        self.version += 1;
        self.confirmed = 0;
    }

    /// Announces a worker that is about to park: it can be woken from now on, and looks for work once more.
    pub fn announce(&mut self, worker: usize, node: usize) {
        self.asleep[node].push(worker);
    }

    /// Parks a worker that found nothing. False: it is being woken.
    pub fn park(&mut self, worker: usize, node: usize) -> bool {
        if !self.asleep[node].contains(&worker) {
            return false;
        }
        self.parked[worker] = true;
        self.idle += 1;
        self.changed();
        true
    }

    /// Withdraws the announcement of a worker that found work. False: it is being woken.
    pub fn withdraw(&mut self, worker: usize, node: usize) -> bool {
        let Some(at) = self.asleep[node].iter().position(|&other| other == worker) else {
            return false;
        };
        self.asleep[node].swap_remove(at);
        true
    }

    /// Picks a worker of the node to wake.
    pub fn wake(&mut self, node: usize) -> Option<usize> {
        let worker = self.asleep[node].pop()?;
        if std::mem::take(&mut self.parked[worker]) {
            self.idle -= 1;
            self.changed();
        }
        Some(worker)
    }

    /// Records that a task waits inside itself on a worker with nothing else to run.
    pub fn begin_wait(&mut self) {
        self.idle += 1;
        self.waiting += 1;
        self.changed();
    }

    /// Records that such a worker continues.
    pub fn end_wait(&mut self) {
        self.idle -= 1;
        self.waiting -= 1;
        self.changed();
    }

    /// Version number; changes whenever a worker becomes idle or busy.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether all workers are idle.
    pub fn all(&self) -> bool {
        self.idle == self.parked.len()
    }

    /// Whether no task waits inside itself.
    pub fn no_waits(&self) -> bool {
        self.waiting == 0
    }

    /// Confirms, for one waiting worker and in this version, that its event has not fired.
    pub fn confirm(&mut self) {
        self.confirmed += 1;
    }

    /// Whether all waiting workers have confirmed.
    pub fn all_confirmed(&self) -> bool {
        self.waiting > 0 && self.confirmed == self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_has_announced_itself_is_not_idle_until_it_parks() {
        let mut idle = Idle::new(1, 2);
        idle.announce(0, 0);
        assert!(idle.park(0, 0));
        idle.announce(1, 0);
        assert!(!idle.all(), "worker 1 may still find a task");
        assert!(idle.withdraw(1, 0));
        idle.announce(1, 0);
        assert!(idle.park(1, 0));
        assert!(idle.all() && idle.no_waits());
        assert_eq!(idle.wake(0), Some(1));
        assert!(!idle.all());
        assert!(!idle.withdraw(1, 0), "it is being woken");
    }

    #[test]
    fn a_change_invalidates_confirmations() {
        let mut idle = Idle::new(1, 2);
        idle.begin_wait();
        idle.begin_wait();
        assert!(idle.all() && !idle.all_confirmed());
        idle.confirm();
        idle.end_wait();
        idle.begin_wait();
        idle.confirm();
        assert!(
            !idle.all_confirmed(),
            "one of the two confirmed before the other continued"
        );
        idle.confirm();
        assert!(idle.all_confirmed());
    }
}
