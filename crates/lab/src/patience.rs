//! How long to wait for a guest that is not ready yet. Pure: the caller reads the clocks.

use std::time::Duration;

/// Longest time without output of the guest, in seconds of both the host's clock and QEMU's processor time.
pub const QUIET: Duration = Duration::from_secs(120);
/// Longest time without output by the clock alone: a guest that hangs idle uses no processor time.
pub const IDLE: Duration = Duration::from_secs(1200);

/// What is observed of a guest at some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Time since QEMU was started.
    pub elapsed: Duration,
    /// Processor time of QEMU.
    pub cpu: Duration,
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
        waited.min(used) > QUIET || waited > IDLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(elapsed: u64, cpu: u64, output: u64) -> Seen {
        Seen {
            elapsed: Duration::from_secs(elapsed),
            cpu: Duration::from_secs(cpu),
            output: (output, 0),
        }
    }

    #[test]
    fn a_guest_that_makes_progress_has_time() {
        let mut patience = Patience::default();
        // 110 s between outputs, on an idle host.
        for step in 1..50 {
            assert!(!patience.ends(seen(step * 110, step * 110, step)));
        }
    }

    #[test]
    fn on_a_busy_host_its_processor_time_counts() {
        let mut patience = Patience::default();
        assert!(!patience.ends(seen(600, 60, 0)));
        assert!(!patience.ends(seen(1199, 119, 0)));
        assert!(patience.ends(seen(1201, 119, 0)));
        let mut patience = Patience::default();
        assert!(patience.ends(seen(700, 121, 0)));
    }

    #[test]
    fn a_guest_that_hangs_has_the_limit_whatever_its_processors_do() {
        let mut patience = Patience::default();
        assert!(!patience.ends(seen(5, 20, 7)));
        // Four processors that wait for each other.
        assert!(!patience.ends(seen(124, 500, 7)));
        assert!(patience.ends(seen(126, 500, 7)));
    }
}
