//! Hardware counters around a run: energy (RAPL) and memory events (`perf stat`), if the machine has them.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use numaloc_perf::uncore::counted;
use tempfile::NamedTempFile;

/// Energy counters of all processor packages.
pub struct Energy(Vec<PathBuf>);

const POWERCAP: &str = "/sys/class/powercap";

/// Why energy cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum EnergyError {
    /// A file or folder of the counters cannot be read.
    #[error("{}: {source}", .path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The machine has no such counters.
    #[error("{POWERCAP} has no intel-rapl package")]
    NoPackage,
}

impl Energy {
    /// Finds the counters of this machine.
    ///
    /// # Errors
    /// [`EnergyError`]: the reason why there are none.
    pub fn of_this_machine() -> Result<Self, EnergyError> {
        let unreadable = |path: &Path, source| EnergyError::Unreadable {
            path: path.to_owned(),
            source,
        };
        let mut packages: Vec<PathBuf> = std::fs::read_dir(POWERCAP)
            .map_err(|error| unreadable(Path::new(POWERCAP), error))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| is_package(path))
            .collect();
        packages.sort();
        let first = packages.first().ok_or(EnergyError::NoPackage)?;
        let counter = first.join("energy_uj");
        std::fs::read_to_string(&counter).map_err(|error| unreadable(&counter, error))?;
        Ok(Self(packages))
    }

    /// Microjoules so far, for each package.
    pub fn read(&self) -> Vec<Option<u64>> {
        let read = |package: &PathBuf| number(&package.join("energy_uj"));
        self.0.iter().map(read).collect()
    }

    /// Joules of all packages since `before`.
    pub fn joules_since(&self, before: &[Option<u64>]) -> Option<f64> {
        let mut sum = 0.0;
        for ((package, before), after) in self.0.iter().zip(before).zip(self.read()) {
            let range = number(&package.join("max_energy_range_uj"));
            sum += counted((*before)?, after?, range)? as f64 * 1e-6;
        }
        Some(sum)
    }
}

/// `intel-rapl:0`; `intel-rapl:0:1` is a part of it.
fn is_package(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.strip_prefix("intel-rapl:")
        .is_some_and(|rest| rest.parse::<u32>().is_ok())
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Events to count, by perf's names. Machines support different subsets.
const EVENTS: [&str; 4] = [
    "LLC-load-misses",
    "node-loads",
    "node-load-misses",
    "offcore_requests.all_data_rd",
];

/// Hardware events counted around a run.
pub struct Counters(Result<Vec<String>, String>);

impl Counters {
    /// Finds the events that `perf stat` can count here by trying each on an empty program.
    pub fn of_this_machine() -> Self {
        let tried = EVENTS
            .iter()
            .filter(|event| count_nothing(event).is_ok_and(|counted| counted));
        let found: Vec<String> = tried.map(|event| (*event).to_owned()).collect();
        if !found.is_empty() {
            return Self(Ok(found));
        }
        Self(Err(match Command::new("perf").arg("--version").output() {
            Err(_) => "perf is not installed".to_owned(),
            Ok(_) if !Path::new("/sys/bus/event_source/devices/cpu").exists() => {
                "this machine offers no hardware events".to_owned()
            }
            Ok(_) => {
                let path = "/proc/sys/kernel/perf_event_paranoid";
                let level = std::fs::read_to_string(path).unwrap_or_default();
                let level = level.trim().to_owned();
                format!("perf stat counts none of the events here ({path} is {level})")
            }
        }))
    }

    /// Names of the events that are counted.
    pub fn names(&self) -> &[String] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Why none is counted.
    pub fn why_not(&self) -> Option<String> {
        self.0.as_ref().err().cloned()
    }

    /// Wraps a command so that events are counted during its run.
    pub fn around(&self, words: Vec<OsString>) -> io::Result<Counted<'_>> {
        let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let names = self.names();
        if names.is_empty() {
            let mut command = Command::new(program);
            command.args(arguments);
            let output = None;
            return Ok(Counted {
                command,
                output,
                names,
            });
        }
        let output = NamedTempFile::new()?;
        let mut command = Command::new("perf");
        command.args(["stat", "-x", ";", "-e", &names.join(","), "-o"]);
        command.arg(output.path()).arg("--");
        command.arg(program).args(arguments);
        let output = Some(output);
        Ok(Counted {
            command,
            output,
            names,
        })
    }
}

fn count_nothing(event: &str) -> io::Result<bool> {
    let output = Command::new("perf")
        .args(["stat", "-x", ";", "-e", event, "--", "true"])
        .stdin(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    Ok(output.status.success() && count(&text, event).is_some())
}

/// A command, possibly wrapped for counting.
pub struct Counted<'a> {
    /// What to run.
    pub command: Command,
    output: Option<NamedTempFile>,
    names: &'a [String],
}

impl Counted<'_> {
    /// After the run: the count of each event.
    pub fn read(&self) -> Vec<Option<f64>> {
        let text = match &self.output {
            Some(file) => std::fs::read_to_string(file.path()).unwrap_or_default(),
            None => String::new(),
        };
        self.names.iter().map(|name| count(&text, name)).collect()
    }
}

/// The count of an event in the output of `perf stat -x ;`: `COUNT;UNIT;EVENT;...`, where COUNT is
/// `<not supported>` or `<not counted>` if there is none.
fn count(text: &str, event: &str) -> Option<f64> {
    text.lines().find_map(|line| {
        let mut fields = line.split(';');
        let count = fields.next()?;
        let name = fields.nth(1)?;
        // perf appends modifiers: `node-loads:u` where only user space may be counted.
        let same = name.split(':').next() == Some(event);
        same.then(|| count.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_perf_stat() {
        let text = "# started on Sat Nov 21\n\n\
            18442;;LLC-load-misses;1021;100.00;;\n\
            <not supported>;;node-loads;0;100.00;;\n\
            77;;node-load-misses:u;1021;50.00;;\n";
        assert_eq!(count(text, "LLC-load-misses"), Some(18442.0));
        assert_eq!(count(text, "node-loads"), None);
        assert_eq!(count(text, "node-load-misses"), Some(77.0));
        assert_eq!(count("", "node-loads"), None);
    }

    #[test]
    fn energy_counters_wrap_around() {
        assert_eq!(counted(10, 25, None), Some(15));
        // 100 - 90 to the end of the range, 5 from there.
        assert_eq!(counted(90, 5, Some(100)), Some(15));
        assert_eq!(counted(90, 5, None), None);
        assert!(is_package(Path::new("/x/intel-rapl:1")));
        assert!(!is_package(Path::new("/x/intel-rapl:0:0")));
    }

    #[test]
    fn what_is_missing_has_a_reason() {
        let counters = Counters::of_this_machine();
        assert_eq!(counters.names().is_empty(), counters.why_not().is_some());
    }
}
