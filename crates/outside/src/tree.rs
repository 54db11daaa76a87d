//! The processes of a target and their threads, which come and go.

use std::collections::{BTreeMap, BTreeSet};

use crate::process;
use crate::target::{Target, TargetError};

/// A process of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// When it began: with its id, it names the process for ever.
    pub began: u64,
    /// The process that created it, if that is in the tree.
    pub parent: Option<i32>,
    /// Its threads.
    pub threads: BTreeSet<i32>,
}

/// What has changed since the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// New processes, creators first.
    pub entered: Vec<i32>,
    /// New threads of processes, those of new processes included: process and thread.
    pub threads: Vec<(i32, i32)>,
    /// Processes that have ended.
    pub left: Vec<i32>,
    /// Threads that have ended.
    pub ended: Vec<i32>,
}

/// The processes of a target.
#[derive(Debug)]
pub struct Tree {
    target: Target,
    processes: BTreeMap<i32, Process>,
    /// Processes that were found, ended ones included.
    seen: usize,
}

impl Tree {
    /// The tree of a target, as of now.
    ///
    /// # Errors
    /// There is no process.
    pub fn new(target: Target) -> Result<Self, TargetError> {
        target.roots()?;
        Ok(Self {
            target,
            processes: BTreeMap::new(),
            seen: 0,
        })
    }

    /// What is observed.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The processes that are there, by id.
    #[must_use]
    pub fn processes(&self) -> &BTreeMap<i32, Process> {
        &self.processes
    }

    /// Number of processes that were there.
    #[must_use]
    pub fn seen(&self) -> usize {
        self.seen
    }

    /// A process that is known to have been created by one of the tree.
    pub fn adopt(&mut self, pid: i32, parent: i32) {
        if let Some(stat) = process::stat(pid).filter(|stat| !stat.ended)
            && !self.processes.contains_key(&pid)
        {
            self.enter(pid, stat.began, Some(parent));
        }
    }

    fn enter(&mut self, pid: i32, began: u64, parent: Option<i32>) {
        self.seen += 1;
        let process = Process {
            began,
            parent,
            threads: BTreeSet::new(),
        };
        self.processes.insert(pid, process);
    }

    /// Looks again. A process whose creator has ended stays in the tree.
    pub fn look(&mut self) -> Change {
        let mut change = Change::default();
        let stats: BTreeMap<i32, process::Stat> = process::all()
            .into_iter()
            .filter_map(|pid| Some((pid, process::stat(pid)?)))
            .filter(|(_, stat)| !stat.ended)
            .collect();
        let is_there = |pid: &i32, began| stats.get(pid).is_some_and(|stat| stat.began == began);
        let gone = self.processes.iter();
        let gone: Vec<i32> = gone
            .filter(|(pid, process)| !is_there(pid, process.began))
            .map(|(pid, _)| *pid)
            .collect();
        for pid in gone {
            let process = self.processes.remove(&pid);
            change
                .ended
                .extend(process.into_iter().flat_map(|process| process.threads));
            change.left.push(pid);
        }
        for pid in self.members(&stats) {
            if let Some(stat) = stats.get(&pid) {
                let parent = Some(stat.parent).filter(|parent| self.processes.contains_key(parent));
                self.enter(pid, stat.began, parent);
                change.entered.push(pid);
            }
        }
        for (&pid, process) in &mut self.processes {
            let now: BTreeSet<i32> = process::threads(pid).into_iter().collect();
            let new = now.difference(&process.threads).map(|&tid| (pid, tid));
            change.threads.extend(new);
            change.ended.extend(process.threads.difference(&now));
            process.threads = now;
        }
        change
    }

    /// Processes that belong to the tree and are not in it yet, creators first.
    fn members(&self, stats: &BTreeMap<i32, process::Stat>) -> Vec<i32> {
        let mut found: BTreeSet<i32> = self.target.roots().unwrap_or_default();
        let mut ordered: Vec<i32> = Vec::new();
        let mut left: Vec<i32> = found.iter().copied().collect();
        left.extend(self.processes.keys().copied());
        found.extend(self.processes.keys().copied());
        let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for (&pid, stat) in stats {
            children.entry(stat.parent).or_default().push(pid);
        }
        left.reverse();
        while let Some(pid) = left.pop() {
            if !self.processes.contains_key(&pid) && !ordered.contains(&pid) {
                ordered.push(pid);
            }
            for &child in children.get(&pid).into_iter().flatten() {
                if found.insert(child) {
                    left.push(child);
                }
            }
        }
        // Members of a group come in the order of their ids: a creator with a higher one goes first too.
        let depth = |pid: &i32| {
            let above = |at: &i32| stats.get(at).map(|stat| stat.parent);
            let chain = std::iter::successors(Some(*pid), above);
            chain.take(64).take_while(|at| found.contains(at)).count()
        };
        ordered.sort_by_key(depth);
        ordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::{Command, Stdio};

    #[test]
    fn children_enter_and_leave() {
        let script = "sleep 60 & echo $!; read line; kill $!; wait; echo gone; read line";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut line = || {
            let mut text = String::new();
            let mut byte = [0];
            while out.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
                text.push(byte[0] as char);
            }
            text
        };
        let first = child.id() as i32;
        let second: i32 = line().parse().unwrap();
        let mut tree = Tree::new(Target::Process(first)).unwrap();
        let change = tree.look();
        assert_eq!(change.entered, [first, second]);
        assert_eq!(change.threads, [(first, first), (second, second)]);
        assert_eq!(tree.processes()[&second].parent, Some(first));
        let mut input = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, b"\n").unwrap();
        assert_eq!(line(), "gone");
        let change = tree.look();
        assert_eq!((change.left, change.ended), (vec![second], vec![second]));
        assert_eq!(tree.seen(), 2);
        drop(input);
        child.wait().unwrap();
        assert_eq!(tree.look().left, [first]);
        assert!(Tree::new(Target::Process(first)).is_err());
    }
}
