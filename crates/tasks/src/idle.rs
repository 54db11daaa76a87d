//! Who has nothing to do, on the scheduler `numa`.
//!
//! A worker is idle when it is parked, or when a task on it waits inside itself and there is nothing to run
//! meanwhile. An idle worker has no task in hand: a worker that goes to sleep first announces itself (it can be
//! woken from then on), looks once more, and only then counts as idle; a waiting one looks at the queues
//! without taking anything. So when all are idle and all queues are empty, nothing will happen any more, unless
//! what a task waits for has come meanwhile. Therefore every waiting worker looks once more at what it waits for and confirms
//! that it has not come; every change of who is idle makes these confirmations void.

/// See the module's text. Lives behind a lock; touched on the slow path only.
#[derive(Debug)]
pub struct Idle {
    /// Whom to wake, by node: announced or parked.
    asleep: Vec<Vec<usize>>,
    parked: Vec<bool>,
    idle: usize,
    waiting: usize,
    version: u64,
    confirmed: usize,
}

impl Idle {
    /// Nobody is idle.
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

    /// From now on the worker can be woken; it still looks for work once more.
    pub fn announce(&mut self, worker: usize, node: usize) {
        self.asleep[node].push(worker);
    }

    /// The worker parks, having found nothing. False: somebody is waking it.
    pub fn park(&mut self, worker: usize, node: usize) -> bool {
        if !self.asleep[node].contains(&worker) {
            return false;
        }
        self.parked[worker] = true;
        self.idle += 1;
        self.changed();
        true
    }

    /// The worker found work before it parked. False: somebody is waking it.
    pub fn rise(&mut self, worker: usize, node: usize) -> bool {
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

    /// A task on some worker waits, and there is nothing to run meanwhile.
    pub fn begin_wait(&mut self) {
        self.idle += 1;
        self.waiting += 1;
        self.changed();
    }

    /// That worker goes on.
    pub fn end_wait(&mut self) {
        self.idle -= 1;
        self.waiting -= 1;
        self.changed();
    }

    /// Changes whenever somebody becomes idle or ceases to be.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether nobody has anything to do.
    pub fn all(&self) -> bool {
        self.idle == self.parked.len()
    }

    /// Whether no task waits inside itself.
    pub fn no_waits(&self) -> bool {
        self.waiting == 0
    }

    /// One waiting worker has seen, in this version, that what it waits for has not come.
    pub fn confirm(&mut self) {
        self.confirmed += 1;
    }

    /// Whether all waiting workers have.
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
        assert!(idle.rise(1, 0));
        idle.announce(1, 0);
        assert!(idle.park(1, 0));
        assert!(idle.all() && idle.no_waits());
        assert_eq!(idle.wake(0), Some(1));
        assert!(!idle.all());
        assert!(!idle.rise(1, 0), "it is being woken");
    }

    #[test]
    fn a_change_makes_confirmations_void() {
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
            "one of the two confirmed before the other went on"
        );
        idle.confirm();
        assert!(idle.all_confirmed());
    }
}
