//! Tracks thread creation: derives stable thread paths (docs/identity.md) from fork, name and exit events.
//!
//! The kernel reuses thread ids, so a fork always begins a new thread under its id. Processes that started
//! before the recording have no fork event: such a process is a root, and its threads are
//! numbered in the order in which the recorder listed them (ascending ids).

use std::collections::HashMap;

use numaloc_identity::Step;

/// Position in [`Lineage::nodes`].
pub type NodeIdx = usize;

/// A thread as known from the events.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Name given by `execve` or `prctl`.
    pub name: String,
    /// Whether the program has set this name: it is neither that of its file nor its creator's.
    pub is_named: bool,
    /// Creation time in the recording's clock; 0 if before the recording.
    pub start: u64,
    /// Time of its last event.
    pub end: u64,
    /// Number of the process image it runs, over the whole recording; `execve` begins a new one.
    pub image: u32,
    /// Whether it, or an ancestor, is the process the user asked for.
    pub wanted: bool,
    creator: Option<NodeIdx>,
    is_process: bool,
    number: u32,
    threads: u32,
    processes: u32,
}

/// All threads of a recording.
#[derive(Debug, Default)]
pub struct Lineage {
    nodes: Vec<Node>,
    by_tid: HashMap<u32, NodeIdx>,
    images: u32,
    /// Name or id of the process the user asked for; `None` selects all.
    filter: Option<String>,
}

impl Lineage {
    /// Selects the processes called `filter` (name or id) and their descendants; all processes if `None`.
    #[must_use]
    pub fn new(filter: Option<String>) -> Self {
        Self {
            filter,
            ..Self::default()
        }
    }

    /// The threads, in the order of their first event.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The process the user asked for, if no event belongs to it.
    #[must_use]
    pub fn missing(&self) -> Option<&str> {
        let filter = self.filter.as_deref()?;
        (!self.nodes.iter().any(|node| node.wanted)).then_some(filter)
    }

    fn matches(&self, pid: u32, name: &str) -> bool {
        match &self.filter {
            None => true,
            Some(filter) => filter == name || filter.parse() == Ok(pid),
        }
    }

    fn add(&mut self, node: Node) -> NodeIdx {
        let index = self.nodes.len();
        self.by_tid.insert(node.tid, index);
        self.nodes.push(node);
        index
    }

    fn next_image(&mut self) -> u32 {
        self.images += 1;
        self.images - 1
    }

    /// Adds a process whose creation was not recorded.
    fn root(&mut self, pid: u32, time: u64) -> NodeIdx {
        let image = self.next_image();
        let wanted = self.matches(pid, "");
        self.add(Node {
            pid,
            tid: pid,
            start: time,
            end: time,
            image,
            wanted,
            is_process: true,
            ..Node::default()
        })
    }

    /// The thread `tid` of process `pid`; added if no event has introduced it.
    pub fn thread(&mut self, pid: u32, tid: u32, time: u64) -> NodeIdx {
        if let Some(&known) = self.by_tid.get(&tid)
            && self.nodes[known].pid == pid
        {
            let node = &mut self.nodes[known];
            node.end = node.end.max(time);
            return known;
        }
        if tid == pid {
            return self.root(pid, time);
        }
        let leader = self.thread(pid, pid, time);
        self.child(leader, pid, tid, false, time)
    }

    fn child(&mut self, creator: NodeIdx, pid: u32, tid: u32, process: bool, time: u64) -> NodeIdx {
        let image = if process {
            self.next_image()
        } else {
            self.nodes[creator].image
        };
        let by_id = self.filter.is_some() && self.matches(pid, "");
        let parent = &mut self.nodes[creator];
        let counter = if process {
            &mut parent.processes
        } else {
            &mut parent.threads
        };
        *counter += 1;
        let number = *counter;
        let (name, wanted) = (parent.name.clone(), parent.wanted || by_id);
        self.add(Node {
            pid,
            tid,
            name,
            start: time,
            end: time,
            image,
            wanted,
            creator: Some(creator),
            is_process: process,
            number,
            ..Node::default()
        })
    }

    /// Thread `ptid` of process `ppid` created thread `tid` of process `pid`.
    pub fn fork(&mut self, pid: u32, ppid: u32, tid: u32, ptid: u32, time: u64) {
        // The listing of threads from before the recording may follow the first name event of a thread.
        if time == 0 && self.by_tid.contains_key(&tid) {
            return;
        }
        if pid != ppid && !self.by_tid.contains_key(&ptid) {
            // Its creator is not part of the recording.
            self.root(pid, time);
            return;
        }
        let creator = self.thread(ppid, ptid, time);
        self.child(creator, pid, tid, pid != ppid, time);
    }

    /// A thread ended.
    pub fn exit(&mut self, tid: u32, time: u64) {
        if let Some(&node) = self.by_tid.get(&tid) {
            self.nodes[node].end = self.nodes[node].end.max(time);
        }
    }

    /// Records a thread's new name; by `execve` it also gets a new image.
    pub fn name(&mut self, pid: u32, tid: u32, name: &str, exec: bool, time: u64) {
        let node = self.thread(pid, tid, time);
        if exec {
            self.nodes[node].image = self.next_image();
        }
        let wanted = self.matches(pid, name);
        let node = &mut self.nodes[node];
        // Threads from before the recording have set their name if it differs from their creator's.
        let is_other = name != node.name && (time > 0 || node.creator.is_some());
        node.is_named = !exec && (node.is_named || is_other);
        name.clone_into(&mut node.name);
        node.wanted |= wanted;
    }

    /// The path of a thread from its [top](Self::top), which itself is numbered by the caller.
    #[must_use]
    pub fn steps(&self, mut at: NodeIdx) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Some(creator) = self.above(at) {
            let node = &self.nodes[at];
            let number = u64::from(node.number);
            steps.push(match node.is_process {
                true => Step::Process(number),
                false => Step::Thread(number),
            });
            at = creator;
        }
        steps.reverse();
        steps
    }

    /// The process at which a thread's path begins: its root, or its highest ancestor that the user asked for.
    #[must_use]
    pub fn top(&self, mut at: NodeIdx) -> NodeIdx {
        while let Some(creator) = self.above(at) {
            at = creator;
        }
        at
    }

    /// The creator, within the paths.
    fn above(&self, at: NodeIdx) -> Option<NodeIdx> {
        self.nodes[at]
            .creator
            .filter(|&creator| self.nodes[creator].wanted)
    }
}

/// A path as text: `0`, `0.3`, `0.3/1`.
#[must_use]
pub fn text(top: u32, steps: &[Step]) -> String {
    let mut text = top.to_string();
    for step in steps {
        text = step.from(&text);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(lineage: &Lineage, node: NodeIdx) -> String {
        text(0, &lineage.steps(node))
    }

    #[test]
    fn threads_and_processes_are_counted_apart_by_their_creator() {
        let mut lineage = Lineage::new(None);
        lineage.name(10, 10, "app", true, 5);
        lineage.fork(10, 10, 11, 10, 6); // 0.1
        lineage.fork(20, 10, 20, 10, 7); // 0/1
        lineage.fork(10, 10, 12, 11, 8); // 0.1.1
        lineage.fork(10, 10, 13, 10, 9); // 0.2
        lineage.fork(20, 20, 21, 20, 9); // 0/1.1
        let paths: Vec<String> = (0..6).map(|node| path(&lineage, node)).collect();
        assert_eq!(paths, ["0", "0.1", "0/1", "0.1.1", "0.2", "0/1.1"]);
        assert_eq!(lineage.nodes()[1].image, lineage.nodes()[0].image);
        assert_ne!(lineage.nodes()[2].image, lineage.nodes()[0].image);
    }

    #[test]
    fn names_that_the_program_sets_are_distinguished_from_its_files_and_its_creators() {
        let mut lineage = Lineage::new(None);
        lineage.name(10, 10, "app", false, 0);
        lineage.name(10, 10, "app", true, 5);
        lineage.fork(10, 10, 11, 10, 6);
        lineage.fork(10, 10, 12, 10, 7);
        lineage.name(10, 11, "io_thd_1", false, 8);
        let named = lineage.nodes().iter().map(|node| node.is_named);
        assert_eq!(named.collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn a_reused_id_is_another_thread() {
        let mut lineage = Lineage::new(None);
        lineage.name(10, 10, "app", true, 5);
        lineage.fork(10, 10, 11, 10, 6);
        lineage.exit(11, 7);
        lineage.fork(10, 10, 11, 10, 8);
        let again = lineage.thread(10, 11, 9);
        assert_eq!(path(&lineage, again), "0.2");
    }

    #[test]
    fn the_selected_process_is_a_top() {
        let mut lineage = Lineage::new(Some("app".to_owned()));
        lineage.name(1, 1, "init", false, 0);
        lineage.fork(10, 1, 10, 1, 5);
        lineage.name(10, 10, "app", true, 6);
        lineage.fork(10, 10, 11, 10, 7);
        assert!(!lineage.nodes()[0].wanted);
        assert_eq!(path(&lineage, 2), "0.1");
        assert_eq!(lineage.top(2), 1);
    }

    #[test]
    fn a_thread_without_a_fork_event_belongs_to_its_process() {
        let mut lineage = Lineage::new(None);
        let thread = lineage.thread(10, 12, 4);
        assert_eq!(path(&lineage, thread), "0.1");
        assert_eq!(lineage.nodes().len(), 2);
    }
}
