//! What is observed of a QEMU whose guest is not ready yet.

use std::process::Child;
use std::time::{Duration, Instant};

use crate::patience::{Patience, Seen};

/// Interval of observations: each reads a file for each of QEMU's threads.
const PERIOD: Duration = Duration::from_millis(200);

/// Watches a guest since its start.
pub(crate) struct Watch {
    started: Instant,
    patience: Patience,
    /// Time since the start of the next observation.
    next: Duration,
}

impl Watch {
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
            patience: Patience::default(),
            next: Duration::ZERO,
        }
    }

    /// Whether the guest hangs. `output`: bytes of its console, lines of its agent.
    pub fn hangs(&mut self, qemu: &Child, output: impl FnOnce() -> (u64, u64)) -> bool {
        let elapsed = self.started.elapsed();
        if elapsed < self.next {
            return false;
        }
        self.next = elapsed + PERIOD;
        self.patience.ends(Seen {
            elapsed,
            cpu: processor_time(qemu.id()),
            delayed: delayed(qemu.id()),
            output: output(),
        })
    }

    /// Seconds since its start.
    pub fn seconds(&self) -> u64 {
        self.started.elapsed().as_secs()
    }
}

/// Processor time that a process has used so far.
fn processor_time(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // After the name, which is in parentheses: field 14 and 15, in hundredths of a second.
    let fields = text.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_ascii_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Time that the threads of a process have waited for a processor so far; `None` on a host that does not count it.
fn delayed(pid: u32) -> Option<Duration> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut sum = None;
    for thread in threads.flatten() {
        // Time it ran, time it waited, both in nanoseconds. A thread may have ended meanwhile.
        let text = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        let field = text.split_ascii_whitespace().nth(1);
        if let Some(waited) = field.and_then(|field| field.parse().ok()) {
            *sum.get_or_insert(Duration::ZERO) += Duration::from_nanos(waited);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_that_of_the_process() {
        let before = processor_time(std::process::id());
        let begun = Instant::now();
        while processor_time(std::process::id()) < before + Duration::from_millis(30) {
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
        assert_eq!(processor_time(u32::MAX), Duration::ZERO);
    }

    #[test]
    fn a_process_that_sleeps_does_not_wait_for_a_processor() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let begun = Instant::now();
        // On a busy host it waits until it has begun to sleep.
        let mut before = None;
        let settled = loop {
            let now = delayed(child.id());
            if now == before || begun.elapsed() > Duration::from_secs(60) {
                break now == before;
            }
            before = now;
            std::thread::sleep(Duration::from_millis(200));
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(settled, "{before:?}");
        assert_eq!(delayed(u32::MAX), None);
    }
}
