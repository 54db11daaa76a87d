//! How long to wait for a guest that is not ready yet. Pure: the caller reads the clocks.

use std::time::Duration;

/// Longest time without output of the guest, in seconds of both the host's clock and QEMU's processor time. Its kernel
/// and its agent print something every two such seconds at least, on an idle host and on one with ten times more
/// threads than processors; ten times as much is left to slower processors and larger machines.
pub const QUIET: Duration = Duration::from_secs(20);
/// Longest time without output in which QEMU neither runs nor waits for a processor: a guest that hangs idle.
pub const IDLE: Duration = Duration::from_secs(60);
/// Longest time without output by the clock alone.
pub const LONGEST: Duration = Duration::from_secs(1200);

/// What is observed of a guest at some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Time since QEMU was started.
    pub elapsed: Duration,
    /// Processor time of QEMU.
    pub cpu: Duration,
    /// Time that QEMU's threads have waited for a processor, if the host counts it.
    pub delayed: Option<Duration>,
    /// Amount of output: bytes of the console, lines of the agent.
    pub output: (u64, u64),
}

/// Waits as long as the guest makes progress. On a busy host QEMU gets a part of the processors, and the guest needs
/// that much longer.
#[derive(Clone, Debug, Default)]
pub struct Patience {
    /// When the last output was seen.
    last: Seen,
}

impl Patience {
    /// Whether to give up.
    pub fn ends(&mut self, seen: Seen) -> bool {
        if seen.output != self.last.output {
            self.last = seen;
        }
        let waited = seen.elapsed.saturating_sub(self.last.elapsed);
        let used = seen.cpu.saturating_sub(self.last.cpu);
        let idle = seen.delayed.map_or(Duration::ZERO, |delayed| {
            let delayed = delayed.saturating_sub(self.last.delayed.unwrap_or_default());
            waited.saturating_sub(used + delayed)
        });
        waited.min(used) > QUIET || idle > IDLE || waited > LONGEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(elapsed: u64, cpu: u64, delayed: Option<u64>, output: u64) -> Seen {
        Seen {
            elapsed: Duration::from_secs(elapsed),
            cpu: Duration::from_secs(cpu),
            delayed: delayed.map(Duration::from_secs),
            output: (output, 0),
        }
    }

    #[test]
    fn a_guest_that_makes_progress_has_time() {
        let mut patience = Patience::default();
        // 19 s between outputs, on an idle host.
        for step in 1..50 {
            assert!(!patience.ends(seen(step * 19, step * 19, Some(0), step)));
        }
    }

    #[test]
    fn on_a_busy_host_its_processor_time_counts() {
        let mut patience = Patience::default();
        assert!(!patience.ends(seen(600, 19, Some(570), 0)));
        assert!(!patience.ends(seen(1199, 19, None, 0)));
        assert!(patience.ends(seen(1201, 19, Some(1182), 0)));
        let mut patience = Patience::default();
        assert!(patience.ends(seen(100, 21, Some(79), 0)));
    }

    #[test]
    fn a_guest_that_hangs_has_the_limit_whatever_its_processors_do() {
        let mut patience = Patience::default();
        assert!(!patience.ends(seen(5, 20, Some(0), 7)));
        // Four processors that wait for each other.
        assert!(!patience.ends(seen(24, 96, Some(9), 7)));
        assert!(patience.ends(seen(26, 104, Some(9), 7)));
    }

    #[test]
    fn a_guest_that_hangs_idle_is_noticed_in_a_minute() {
        let mut patience = Patience::default();
        assert!(!patience.ends(seen(5, 5, Some(3), 7)));
        // Interrupts of its timers alone, on a host without and with other work.
        assert!(!patience.ends(seen(64, 6, Some(3), 7)));
        assert!(patience.ends(seen(67, 6, Some(3), 7)));
        assert!(patience.clone().ends(seen(75, 7, Some(10), 7)));
        // Without the times of waiting it cannot be distinguished from a guest on a busy host.
        assert!(!patience.ends(seen(1000, 7, None, 7)));
    }
}
