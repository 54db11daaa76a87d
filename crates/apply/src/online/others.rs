//! The processes that the followed one has created: they are not followed, and the report says so.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use numaloc_outside::{Target, Tree, process};

/// Time between two looks: each reads a file for every process of the machine.
const PAUSE: Duration = Duration::from_secs(1);
/// Names that are listed.
const NAMES: usize = 4;

/// Counts the descendants of a process.
#[derive(Debug)]
pub(super) struct Others {
    pid: i32,
    tree: Option<Tree>,
    due: Instant,
    /// Names of those that were seen.
    names: BTreeSet<String>,
}

impl Others {
    /// The descendants of process `pid`.
    pub(super) fn of(pid: i32) -> Self {
        Self {
            pid,
            tree: Tree::new(Target::Process(pid)).ok(),
            due: Instant::now(),
            names: BTreeSet::new(),
        }
    }

    /// Looks for new ones, if it is time.
    pub(super) fn look(&mut self) {
        if Instant::now() < self.due {
            return;
        }
        let Some(tree) = &mut self.tree else {
            return;
        };
        let begun = Instant::now();
        for pid in tree
            .look()
            .entered
            .into_iter()
            .filter(|pid| *pid != self.pid)
        {
            let name = process::stat(pid).map(|stat| stat.name);
            self.names.extend(process::title(pid).or(name));
        }
        // On a machine with very many processes, at most a hundredth of the time.
        self.due = Instant::now() + PAUSE.max(begun.elapsed() * 100);
    }

    /// Which process was followed, and how many others were there; `None` if there was no other.
    pub(super) fn remark(&self) -> Option<String> {
        let others = self.tree.as_ref()?.seen().saturating_sub(1);
        let names: Vec<&str> = self.names.iter().take(NAMES).map(String::as_str).collect();
        let processes = if others == 1 { "process" } else { "processes" };
        (others > 0).then(|| {
            format!(
                "only process {} was followed: {others} other {processes} that it created ({}{}) stayed at the kernel's \
                 placement; numaloc record --attach and numaloc top look at all",
                self.pid,
                names.join(", "),
                if self.names.len() > NAMES { ", ..." } else { "" }
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn created_processes_are_counted_with_their_names() {
        let pid = std::process::id() as i32;
        let mut others = Others::of(pid);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        others.look();
        let remark = others.remark().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(
            remark.contains(&format!("only process {pid} was followed")),
            "{remark}"
        );
        assert!(remark.contains("sleep"), "{remark}");
        assert_eq!(Others::of(i32::MAX).remark(), None);
    }
}
