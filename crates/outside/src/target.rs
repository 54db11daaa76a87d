//! What is observed: a process with what it creates, a control group, or a unit of systemd.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::process;

/// Where control groups are, for each layout of the hierarchy: the second version, or the first with the one that
/// systemd sorts services in.
const HIERARCHIES: [&str; 3] = [
    "/sys/fs/cgroup",
    "/sys/fs/cgroup/unified",
    "/sys/fs/cgroup/systemd",
];
/// Folders below one another that are searched for a unit.
const DEPTH: usize = 8;

/// What is observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process and its descendants.
    Process(i32),
    /// The processes of a control group and of those below it.
    Cgroup(PathBuf),
}

/// Why there is nothing to look at.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetError {
    /// No such process, or it has ended.
    #[error("there is no process {0}")]
    NoProcess(i32),
    /// No such group.
    #[error("there is no control group {}, as a path or below /sys/fs/cgroup", .0.display())]
    NoCgroup(PathBuf),
    /// A group without processes.
    #[error("no process is in control group {}", .0.display())]
    Empty(PathBuf),
    /// No such unit.
    #[error(
        "unit {0} has no control group below /sys/fs/cgroup: it does not run, or systemd is not here"
    )]
    NoUnit(String),
}

impl Target {
    /// A control group by its path, or by its path below `/sys/fs/cgroup`.
    ///
    /// # Errors
    /// [`TargetError::NoCgroup`].
    pub fn cgroup(path: &Path) -> Result<Self, TargetError> {
        let below = path.strip_prefix("/").unwrap_or(path);
        let places = HIERARCHIES.iter().map(|root| Path::new(root).join(below));
        std::iter::once(path.to_owned())
            .chain(places)
            .find(|folder| folder.join("cgroup.procs").is_file())
            .map(Self::Cgroup)
            .ok_or_else(|| TargetError::NoCgroup(path.to_owned()))
    }

    /// The control group of a unit; `.service` may be left out.
    ///
    /// # Errors
    /// [`TargetError::NoUnit`].
    pub fn unit(name: &str) -> Result<Self, TargetError> {
        let folder = match name.contains('.') {
            true => name.to_owned(),
            false => format!("{name}.service"),
        };
        let mut roots = HIERARCHIES.iter().map(Path::new);
        let found = roots.find_map(|root| folder_named(root, &folder, DEPTH));
        found
            .map(Self::Cgroup)
            .ok_or_else(|| TargetError::NoUnit(name.to_owned()))
    }

    /// Its processes: of a process it alone, of a group all.
    ///
    /// # Errors
    /// There is none.
    pub fn roots(&self) -> Result<BTreeSet<i32>, TargetError> {
        match self {
            Self::Process(pid) => match process::stat(*pid) {
                // The id of a thread has a file `stat` too.
                Some(stat) if !stat.ended && process::of_thread(*pid) == Some(*pid) => {
                    Ok(BTreeSet::from([*pid]))
                }
                _ => Err(TargetError::NoProcess(*pid)),
            },
            Self::Cgroup(folder) => {
                let mut found = BTreeSet::new();
                members(folder, DEPTH, &mut found);
                match found.is_empty() {
                    true => Err(TargetError::Empty(folder.clone())),
                    false => Ok(found),
                }
            }
        }
    }

    /// What it is, in words.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Process(pid) => format!("process {pid}"),
            Self::Cgroup(folder) => format!("control group {}", folder.display()),
        }
    }

    /// The name of an output for it.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Process(pid) => process::stat(*pid).map_or_else(String::new, |stat| stat.name),
            Self::Cgroup(folder) => {
                let name = folder.file_stem().unwrap_or_default();
                name.to_string_lossy().into_owned()
            }
        }
    }
}

/// The folders in `folder`, in the order of their names; links are not followed.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

fn folder_named(folder: &Path, name: &str, depth: usize) -> Option<PathBuf> {
    let below = folders(folder);
    let is_it = |path: &&PathBuf| {
        path.file_name().is_some_and(|found| found == name) && path.join("cgroup.procs").is_file()
    };
    if let Some(found) = below.iter().find(is_it) {
        return Some(found.clone());
    }
    let deeper = depth.checked_sub(1)?;
    below
        .iter()
        .find_map(|path| folder_named(path, name, deeper))
}

fn members(folder: &Path, depth: usize, found: &mut BTreeSet<i32>) {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    // Processes of other namespaces are listed as 0.
    found.extend(
        text.lines()
            .filter_map(|line| line.parse().ok())
            .filter(|pid: &i32| *pid > 0),
    );
    if let Some(deeper) = depth.checked_sub(1) {
        for path in folders(folder) {
            members(&path, deeper, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_found_by_its_folder_and_its_processes_in_all_folders_below() {
        let root = tempfile::tempdir().unwrap();
        let unit = root.path().join("system.slice/app.service");
        fs::create_dir_all(unit.join("worker")).unwrap();
        fs::write(unit.join("cgroup.procs"), "12\n0\n").unwrap();
        fs::write(unit.join("worker/cgroup.procs"), "13\n").unwrap();
        assert_eq!(
            folder_named(root.path(), "app.service", 4),
            Some(unit.clone())
        );
        assert_eq!(folder_named(root.path(), "app.service", 0), None);
        let roots = Target::Cgroup(unit.clone()).roots().unwrap();
        assert_eq!(roots, BTreeSet::from([12, 13]));
        assert_eq!(Target::Cgroup(unit).name(), "app");
        assert_eq!(
            Target::unit("numaloc-no-such"),
            Err(TargetError::NoUnit("numaloc-no-such".to_owned()))
        );
        let empty = Target::Cgroup(root.path().to_owned().join("none"));
        assert!(matches!(empty.roots(), Err(TargetError::Empty(_))));
        assert!(Target::cgroup(Path::new("/no/such")).is_err());
    }

    #[test]
    fn a_process_is_its_own_root_and_a_missing_one_is_an_error() {
        let pid = std::process::id() as i32;
        assert_eq!(Target::Process(pid).roots(), Ok(BTreeSet::from([pid])));
        let missing = Target::Process(i32::MAX).roots();
        assert_eq!(missing, Err(TargetError::NoProcess(i32::MAX)));
        let (send, receive) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let link = fs::read_link("/proc/thread-self").unwrap();
            let tid = link.file_name().unwrap().to_str().unwrap().parse();
            send.send(tid.unwrap()).unwrap();
            let _ = ended.recv();
        });
        let tid: i32 = receive.recv().unwrap();
        assert_eq!(
            Target::Process(tid).roots(),
            Err(TargetError::NoProcess(tid))
        );
        drop(end);
        thread.join().unwrap();
    }
}
