//! Temporary control of the kernel's automatic NUMA balancing.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const SWITCH: &str = "/proc/sys/kernel/numa_balancing";

/// Control of the switch until dropped. A helper process restores the old value when our end of its pipe closes, so
/// even SIGKILL of this process leaves the machine as it was.
pub struct Balancing(Child);

impl Balancing {
    /// Checks that the switch can be written, and ensures that it will be restored.
    pub fn take(nodes: usize) -> Result<Self, String> {
        if nodes < 2 {
            return Err("this machine has one NUMA node".to_owned());
        }
        Self::take_at(Path::new(SWITCH))
    }

    fn take_at(switch: &Path) -> Result<Self, String> {
        let shown = switch.display();
        let explain = |error: std::io::Error| format!("{shown}: {error}");
        let old = std::fs::read_to_string(switch).map_err(explain)?;
        write(switch, old.trim()).map_err(explain)?;
        let script = "trap '' INT TERM HUP QUIT; cat >/dev/null; echo \"$1\" >\"$2\"";
        let helper = Command::new("sh")
            .args(["-c", script, "sh", old.trim()])
            .arg(switch)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Ok(Self(helper.map_err(|error| format!("sh: {error}"))?))
    }

    /// Sets it to `0` or `1`.
    pub fn set(value: &str) -> Result<(), String> {
        write(Path::new(SWITCH), value).map_err(|error| format!("cannot write {SWITCH}: {error}"))
    }
}

fn write(switch: &Path, value: &str) -> std::io::Result<()> {
    // Without O_CREAT and O_TRUNC: it is not an ordinary file.
    let mut file = std::fs::File::options().write(true).open(switch)?;
    file.write_all(value.as_bytes())
}

impl Drop for Balancing {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
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
        write(&switch, "0").unwrap();
        assert_eq!(value(&switch), "0");
        drop(taken);
        assert_eq!(value(&switch), "1");
        let missing = Balancing::take_at(&folder.path().join("none"));
        assert!(missing.is_err_and(|why| why.contains("No such file")));
        assert!(Balancing::take(1).is_err());
    }

    /// Not a test itself: the process that the next test kills.
    #[test]
    fn holder() {
        if let Some(switch) = std::env::var_os(HOLD) {
            let _taken = Balancing::take_at(Path::new(&switch)).unwrap();
            write(Path::new(&switch), "0").unwrap();
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
            .args(["--exact", "commands::compare::balancing::tests::holder"])
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
