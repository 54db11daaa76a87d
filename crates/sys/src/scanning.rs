//! Temporary control of how fast automatic NUMA balancing takes the right to access pages, which makes the next access
//! to each a page fault (a hint fault).
//!
//! The kernel visits the pages of a process once in one to sixty seconds of its threads' time. Its limits for that are
//! the machine's, not a process's, and belong to root.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Child;

use crate::balancing;

/// Beginnings of the limits' files: since Linux 5.13, and before.
const PREFIXES: [&str; 2] = [
    "/sys/kernel/debug/sched/numa_balancing/scan_",
    "/proc/sys/kernel/numa_balancing_scan_",
];
const DELAY: &str = "delay_ms";
const LEAST: &str = "period_min_ms";
const MOST: &str = "period_max_ms";

/// Control of the limits until dropped; a helper process restores the old values then, also after SIGKILL of this one.
#[derive(Debug)]
pub struct Scanning {
    prefix: PathBuf,
    helper: Child,
}

impl Scanning {
    /// Checks that the limits can be written, and ensures that they will be restored.
    ///
    /// # Errors
    /// The kernel's, of the newer files: `PermissionDenied` without root, `NotFound` without debugfs.
    pub fn take() -> io::Result<Self> {
        let [newer, older] = PREFIXES.map(Path::new);
        Self::take_at(newer).or_else(|error| Self::take_at(older).map_err(|_| error))
    }

    fn take_at(prefix: &Path) -> io::Result<Self> {
        let mut old = Vec::new();
        for name in [DELAY, LEAST, MOST] {
            let file = file(prefix, name);
            let value = std::fs::read_to_string(&file)?.trim().to_owned();
            balancing::write(&file, &value)?;
            old.push((file, value));
        }
        Ok(Self {
            prefix: prefix.to_owned(),
            helper: balancing::restorer(&old)?,
        })
    }

    /// Makes the kernel visit the pages of every process at most once in `period_ms`, and about that often while its
    /// threads run. The kernel goes not below 100 ms.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set(&self, period_ms: u64) -> io::Result<()> {
        for name in [DELAY, LEAST, MOST] {
            balancing::write(&file(&self.prefix, name), &period_ms.to_string())?;
        }
        Ok(())
    }
}

impl Drop for Scanning {
    fn drop(&mut self) {
        drop(self.helper.stdin.take());
        let _ = self.helper.wait();
    }
}

fn file(prefix: &Path, name: &str) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(name);
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_limits_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("scan_");
        let value = |name| std::fs::read_to_string(file(&prefix, name)).unwrap();
        let old = [(DELAY, "1000\n"), (LEAST, "1000\n"), (MOST, "60000\n")];
        for (name, value) in old {
            std::fs::write(file(&prefix, name), value).unwrap();
        }
        let taken = Scanning::take_at(&prefix).unwrap();
        taken.set(100).unwrap();
        for (name, _) in old {
            // An ordinary file keeps the rest of a longer text.
            assert!(value(name).starts_with("100"), "{}", value(name));
        }
        drop(taken);
        for (name, old) in old {
            assert!(value(name).starts_with(old), "{}", value(name));
        }
        let missing = Scanning::take_at(&folder.path().join("none"));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
