//! Parses the lines that the guest's agent writes to the control port (`guest/agent.c`).

use std::collections::BTreeMap;

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this status.
    Exited(u8),
    /// It was killed by this signal.
    Killed(u8),
    /// The guest ended before it could report how.
    Unreported,
}

impl Ended {
    /// The status as in a shell: 128 + signal if killed; 0 if it is not known.
    #[must_use]
    pub fn status(self) -> u8 {
        match self {
            Self::Exited(status) => status,
            Self::Unreported => 0,
            Self::Killed(signal) => numaloc_launch::status_of_signal(signal.into()),
        }
    }
}

/// Everything the agent reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    /// Number of lines so far.
    pub lines: u64,
    /// The agent runs and has opened its ports.
    pub ready: bool,
    /// Calibration is complete.
    pub calibrated: bool,
    /// The agent's error, if it failed.
    pub failed: Option<String>,
    /// Why the program could not be started: errno and message.
    pub not_started: Option<(i32, String)>,
    /// How the program ended.
    pub ended: Option<Ended>,
    /// Seconds the program took in the guest's clock; present if the transcript is complete.
    pub seconds: Option<f64>,
    /// Growth of the kernel's counters (`/proc/vmstat`: `numa_*`, `pgmigrate_*`) during the run.
    pub counters: BTreeMap<String, u64>,
    /// Growth of each node's `numastat` during the run: `[node][name]`.
    pub node_counters: Vec<BTreeMap<String, u64>>,
    /// Samples of where the pages of all programs were: seconds since the start, 4 KiB pages on each node.
    pub pages: Vec<(f64, Vec<u64>)>,
    /// `/proc/PID/numa_maps` of the last sample: process id and line.
    pub maps: Vec<(u32, String)>,
}

fn minus(after: u64, before: Option<u64>) -> u64 {
    after.saturating_sub(before.unwrap_or(0))
}

impl Transcript {
    /// Parses one line. Unknown lines are ignored, because kernels differ in their counters.
    pub fn parse_line(&mut self, line: &str) {
        self.lines += 1;
        let _ = self.parse_known(line);
    }

    fn parse_known(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ')?;
        let mut fields = rest.split(' ');
        match word {
            "ready" => self.ready = true,
            "calibrated" => self.calibrated = true,
            "failed" => self.failed = Some(rest.to_owned()),
            "not-started" => {
                let (errno, words) = rest.split_once(' ')?;
                self.not_started = Some((errno.parse().ok()?, words.to_owned()));
            }
            "exited" => self.ended = Some(Ended::Exited(rest.parse().ok()?)),
            "killed" => self.ended = Some(Ended::Killed(rest.parse().ok()?)),
            "end" => self.seconds = Some(rest.parse().ok()?),
            // `before` is stored and then replaced by the difference.
            "counter" => {
                let (when, name) = (fields.next()?, fields.next()?);
                let value: u64 = fields.next()?.parse().ok()?;
                let value = match when {
                    "before" => value,
                    _ => minus(value, self.counters.get(name).copied()),
                };
                self.counters.insert(name.to_owned(), value);
            }
            "node-counter" => {
                let when = fields.next()?;
                let node: usize = fields.next()?.parse().ok().filter(|&node| node < 1024)?;
                let name = fields.next()?;
                let value: u64 = fields.next()?.parse().ok()?;
                if self.node_counters.len() <= node {
                    self.node_counters.resize_with(node + 1, BTreeMap::new);
                }
                let counters = &mut self.node_counters[node];
                let value = match when {
                    "before" => value,
                    _ => minus(value, counters.get(name).copied()),
                };
                counters.insert(name.to_owned(), value);
            }
            "pages" => {
                let seconds = fields.next()?.parse().ok()?;
                let pages = fields.map(|n| n.parse().ok()).collect::<Option<_>>()?;
                self.pages.push((seconds, pages));
            }
            "map" => {
                let (pid, line) = rest.split_once(' ')?;
                self.maps.push((pid.parse().ok()?, line.to_owned()));
            }
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_transcript() {
        let mut transcript = Transcript::default();
        for line in "ready 1\ncalibrated 0.5\ncounter before numa_hit 10\nnode-counter before 1 numa_hit 4\n\
            pages 0.25 100 7\nmap 33 7f00 default anon=3 N0=3\ncounter after numa_hit 25\n\
            node-counter after 1 numa_hit 9\nexited 3\nnonsense\nend 1.5"
            .lines()
        {
            transcript.parse_line(line);
        }
        assert!(transcript.ready && transcript.calibrated && transcript.failed.is_none());
        assert_eq!(transcript.counters["numa_hit"], 15);
        assert_eq!(transcript.node_counters[1]["numa_hit"], 5);
        assert_eq!(transcript.pages, [(0.25, vec![100, 7])]);
        assert_eq!(
            transcript.maps,
            [(33, "7f00 default anon=3 N0=3".to_owned())]
        );
        assert_eq!(transcript.ended, Some(Ended::Exited(3)));
        assert_eq!(transcript.seconds, Some(1.5));
        assert_eq!(Ended::Killed(9).status(), 137);
    }

    proptest::proptest! {
        #[test]
        fn no_line_makes_it_panic(line in "(counter|node-counter|pages|map|exited|end)? ?.{0,40}") {
            Transcript::default().parse_line(&line);
        }
    }
}
