//! Temporary control of the kernel's automatic NUMA balancing.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The setting of the kernel that switches it.
pub const SWITCH: &str = "/proc/sys/kernel/numa_balancing";

/// Whether automatic NUMA balancing is on; `None` if the kernel has none.
#[must_use]
pub fn is_on() -> Option<bool> {
    let setting = std::fs::read_to_string(SWITCH).ok()?;
    Some(setting.trim() != "0")
}

/// Why the switch cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BalancingError {
    /// Balancing has no effect here.
    #[error("this machine has one NUMA node")]
    OneNode,
    /// The switch cannot be read or written.
    #[error("{}: {source}", .switch.display())]
    Refused {
        /// Its file.
        switch: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The switch could be written before, but not now.
    #[error("cannot write {}: {source}", .switch.display())]
    Lost {
        /// Its file.
        switch: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The process that restores the old value cannot be started.
    #[error("sh: {0}")]
    Helper(io::Error),
}

/// Control of the switch until dropped. A helper process restores the old value when our end of its pipe closes, so
/// even SIGKILL of this process leaves the machine as it was.
#[derive(Debug)]
pub struct Balancing {
    switch: PathBuf,
    helper: Child,
}

impl Balancing {
    /// Checks that the switch of a machine with this many NUMA nodes can be written, and ensures that it will be
    /// restored.
    ///
    /// # Errors
    /// [`BalancingError`]
    pub fn take(nodes: usize) -> Result<Self, BalancingError> {
        if nodes < 2 {
            return Err(BalancingError::OneNode);
        }
        Self::take_at(Path::new(SWITCH))
    }

    fn take_at(switch: &Path) -> Result<Self, BalancingError> {
        let explain = |source| BalancingError::Refused {
            switch: switch.to_owned(),
            source,
        };
        let old = std::fs::read_to_string(switch).map_err(explain)?;
        write(switch, old.trim()).map_err(explain)?;
        let old = [(switch.to_owned(), old.trim().to_owned())];
        Ok(Self {
            switch: switch.to_owned(),
            helper: restorer(&old).map_err(BalancingError::Helper)?,
        })
    }

    /// Turns balancing on or off.
    ///
    /// # Errors
    /// [`BalancingError::Lost`]
    pub fn set(&self, on: bool) -> Result<(), BalancingError> {
        write(&self.switch, if on { "1" } else { "0" }).map_err(|source| BalancingError::Lost {
            switch: self.switch.clone(),
            source,
        })
    }
}

/// A process that writes these values to these files as soon as nobody has the other end of its standard input.
pub(crate) fn restorer(old: &[(PathBuf, String)]) -> io::Result<Child> {
    let script = "trap '' INT TERM HUP QUIT; cat >/dev/null; \
        while [ $# -gt 1 ]; do echo \"$1\" >\"$2\"; shift 2; done";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]);
    for (file, value) in old {
        command.arg(value).arg(file);
    }
    command
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

pub(crate) fn write(switch: &Path, value: &str) -> io::Result<()> {
    // Without O_CREAT and O_TRUNC: it is not an ordinary file.
    let mut file = std::fs::File::options().write(true).open(switch)?;
    file.write_all(value.as_bytes())
}

impl Drop for Balancing {
    fn drop(&mut self) {
        drop(self.helper.stdin.take());
        let _ = self.helper.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    const HOLD: &str = "NUMALOC_TEST_HOLD";

    fn value(switch: &Path) -> String {
        std::fs::read_to_string(switch).unwrap().trim().to_owned()
    }

    #[test]
    fn the_old_value_comes_back_when_we_are_done() {
        let folder = tempfile::tempdir().unwrap();
        let switch = folder.path().join("numa_balancing");
        std::fs::write(&switch, "1\n").unwrap();
        let taken = Balancing::take_at(&switch).unwrap();
        taken.set(false).unwrap();
        assert_eq!(value(&switch), "0");
        drop(taken);
        assert_eq!(value(&switch), "1");
        let missing = Balancing::take_at(&folder.path().join("none"));
        assert!(missing.is_err_and(|why| why.to_string().contains("No such file")));
        assert!(Balancing::take(1).is_err());
    }

    /// Not a test itself: the process that the next test kills.
    #[test]
    fn holder() {
        if let Some(switch) = std::env::var_os(HOLD) {
            let taken = Balancing::take_at(Path::new(&switch)).unwrap();
            taken.set(false).unwrap();
            // Until it is killed, or the test that started it has ended.
            let _ = std::io::stdin().read_line(&mut String::new());
        }
    }

    #[test]
    fn the_old_value_comes_back_when_we_are_killed() {
        let folder = tempfile::tempdir().unwrap();
        let switch = folder.path().join("numa_balancing");
        std::fs::write(&switch, "1\n").unwrap();
        let mut holder = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "balancing::tests::holder"])
            .env(HOLD, &switch)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let becomes = |wanted: &str| {
            let start = Instant::now();
            while value(&switch) != wanted {
                assert!(start.elapsed() < Duration::from_secs(300), "never {wanted}");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        becomes("0");
        holder.kill().unwrap();
        holder.wait().unwrap();
        becomes("1");
    }
}
