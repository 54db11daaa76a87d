//! What threads and processes are called, and which code they run, as far as roles depend on it.
//!
//! Own names come by `prctl`, which is intercepted, or through a file in `/proc`, which is not; titles are written into
//! the process's own memory without any call. So names are read again after a new thread's first milliseconds, and
//! then ever more rarely, up to once a second.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::Read;
use std::time::{Duration, Instant};

use numaloc_identity::object::base_name;
use numaloc_identity::{role, routine};
use numaloc_model::profile::Thread;

use crate::agent::functions;
use crate::image::{Map, maps};
use crate::roster::Called;
use crate::tracee::Memory;

/// Time to the second look at a name; each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
/// Longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Bytes of a title that are read.
const TITLE_BYTES: u64 = 256;

/// A thread whose names are read.
struct Watched {
    tgid: i32,
    /// The kernel's name of it when it was created or its program was executed: its creator's, or the program's.
    inherited: String,
    /// The same when it was last read.
    now: String,
    /// The first name of its own.
    own: Option<String>,
    /// Whether it is the first thread of a process that another one created.
    is_created: bool,
    /// Whether its process has executed a program since it was created.
    has_executed: bool,
    /// First argument of its process when its program was executed.
    argument: Vec<u8>,
    next: Instant,
    pause: Duration,
}

/// A function: offset from its file's lowest mapping, size and name.
type Routine = (u64, u64, String);

/// Names of the threads that are followed.
#[derive(Default)]
pub(super) struct Names {
    watched: HashMap<i32, Watched>,
    due: BTreeSet<(Instant, i32)>,
    /// Functions of files by device and inode, in the order of their offsets.
    routines: HashMap<(u64, u64), Vec<Routine>>,
}

impl Names {
    /// The program's first thread, before it executes the program.
    pub fn started(&mut self, tid: i32) {
        self.watch(tid, tid, kernels_name(tid), Vec::new(), false);
    }

    /// `creator` created `tid`, a thread of process `tgid` or a process.
    pub fn created(&mut self, creator: i32, tid: i32, tgid: i32) {
        // The creator may have named the thread already.
        let (name, argument) = match self.watched.get(&creator) {
            Some(creator) => (creator.now.clone(), creator.argument.clone()),
            None => (kernels_name(tid), first_argument(tgid)),
        };
        self.watch(tid, tgid, name, argument, tid == tgid);
    }

    /// Process `tid` has executed a program.
    pub fn executed(&mut self, tid: i32) {
        let is_created = self
            .watched
            .get(&tid)
            .is_some_and(|watched| watched.is_created);
        let gone: Vec<i32> = self
            .watched
            .iter()
            .filter(|(_, watched)| watched.tgid == tid)
            .map(|(&other, _)| other)
            .collect();
        gone.into_iter().for_each(|other| self.ended(other));
        self.watch(tid, tid, kernels_name(tid), first_argument(tid), is_created);
        if let Some(watched) = self.watched.get_mut(&tid) {
            watched.has_executed = true;
        }
    }

    fn watch(&mut self, tid: i32, tgid: i32, name: String, argument: Vec<u8>, is_created: bool) {
        self.ended(tid);
        let next = Instant::now() + FIRST_PAUSE;
        let watched = Watched {
            tgid,
            now: name.clone(),
            inherited: name,
            own: None,
            is_created,
            has_executed: false,
            argument,
            next,
            pause: FIRST_PAUSE,
        };
        self.due.insert((next, tid));
        self.watched.insert(tid, watched);
    }

    /// The thread is gone.
    pub fn ended(&mut self, tid: i32) {
        if let Some(watched) = self.watched.remove(&tid) {
            self.due.remove(&(watched.next, tid));
        }
    }

    /// A thread whose name should be read now.
    pub fn due(&mut self) -> Option<i32> {
        let &(at, tid) = self.due.first()?;
        let now = Instant::now();
        if at > now {
            return None;
        }
        self.due.remove(&(at, tid));
        let watched = self.watched.get_mut(&tid)?;
        watched.pause = (watched.pause * 2).min(LONGEST_PAUSE);
        watched.next = now + watched.pause;
        self.due.insert((watched.next, tid));
        Some(tid)
    }

    /// What a thread is called now; `None` if it is not followed.
    pub fn called(&mut self, tid: i32) -> Option<Called> {
        let watched = self.watched.get_mut(&tid)?;
        let now = kernels_name(tid);
        if watched.own.is_none() {
            watched.own = (now != watched.inherited && !now.is_empty()).then(|| now.clone());
        }
        watched.now = now;
        let is_first = tid == watched.tgid;
        let title = if is_first {
            title(tid, &watched.argument)
        } else {
            None
        };
        let is_own = watched.own.is_some() || title.is_some() || watched.has_executed;
        let program = || {
            let program = watched
                .is_created
                .then(|| fs::read_link(format!("/proc/{tid}/exe")));
            let program = program?.ok()?.to_string_lossy().into_owned();
            Some(base_name(program.trim_end_matches(" (deleted)")).to_owned())
        };
        let thread = Thread {
            name: watched.own.clone(),
            title: title.or_else(program),
            ..Thread::new("")
        };
        let name = thread.shown().map(|name| role::called(&name));
        Some(Called {
            is_own: is_own && name.is_some(),
            name,
        })
    }

    /// What a new thread of process `tgid` at this thread pointer runs, as the recorder names it: its start routine, or
    /// what a `std::thread` was given, by the name of the function, or of its file.
    pub fn routine(&mut self, tgid: i32, memory: &Memory, thread_pointer: u64) -> Option<String> {
        let maps = maps(tgid).ok()?;
        let word = |address: u64| {
            let mut word = [0; 8];
            memory.read(address, &mut word).ok()?;
            Some(u64::from_le_bytes(word))
        };
        let is_in_file = |address| file_at(&maps, address).is_some();
        let (started, argument) = routine::of_thread(thread_pointer, word, is_in_file)?;
        let library = file_at(&maps, started)?;
        let routines = RefCell::new(&mut self.routines);
        let function = |address| {
            let map = file_at(&maps, address)?;
            let lowest = maps.iter().find(|other| other.file == map.file)?;
            let mut routines = routines.borrow_mut();
            let known = routines
                .entry(map.file)
                .or_insert_with(|| functions_of(lowest));
            let at = address - lowest.start;
            let within = known.partition_point(|&(start, ..)| start <= at);
            let (start, bytes, name) = &known[within.checked_sub(1)?];
            (at - start < *bytes).then(|| name.clone())
        };
        let is_code = |address| function(address).is_some();
        let called = match routine::starts_states(base_name(&library.name)) {
            true => argument.and_then(|state| routine::called_by_state(state, word, is_code)),
            false => None,
        };
        let address = called.unwrap_or(started);
        let file = file_at(&maps, address)?;
        Some(match function(address) {
            Some(name) => shown(numaloc_names::routine(&name).as_bytes()),
            None => shown(base_name(&file.name).as_bytes()),
        })
    }
}

/// The mapping of a file that contains an address.
fn file_at(maps: &[Map], address: u64) -> Option<&Map> {
    let mut maps = maps.iter();
    maps.find(|map| (map.start..map.end).contains(&address) && map.name.starts_with('/'))
}

/// The functions of a file, by their offset from its lowest mapping.
fn functions_of(lowest: &Map) -> Vec<Routine> {
    let found = functions(lowest).into_iter();
    let mut found: Vec<Routine> = found
        .map(|(name, function)| (function.at - lowest.start, function.bytes, name))
        .collect();
    found.sort_unstable();
    found
}

/// The name that the kernel has of a thread.
fn kernels_name(tid: i32) -> String {
    let name = fs::read(format!("/proc/{tid}/comm")).unwrap_or_default();
    shown(name.strip_suffix(b"\n").unwrap_or(&name))
}

/// Text of a program as it is in plans and shown: names can hold anything, also what a terminal would obey.
fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).replace(char::is_control, "\u{fffd}")
}

/// The text where a process's first argument was, if it is another now. Read twice: the process may be writing it.
fn title(tgid: i32, argument: &[u8]) -> Option<String> {
    let now = first_argument(tgid);
    let is_title = !now.is_empty() && now != argument && !argument.is_empty();
    (is_title && first_argument(tgid) == now).then(|| shown(now.trim_ascii_end()))
}

/// The text up to the first NUL where a process's arguments are.
fn first_argument(tgid: i32) -> Vec<u8> {
    let mut text = Vec::new();
    if let Ok(file) = fs::File::open(format!("/proc/{tgid}/cmdline")) {
        let _ = file.take(TITLE_BYTES).read_to_end(&mut text);
    }
    let end = text.iter().position(|&byte| byte == 0);
    text.truncate(end.unwrap_or(text.len()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_called_what_they_call_themselves() {
        let mut names = Names::default();
        let own = std::process::id() as i32;
        names.created(0, own, own);
        // The program's name, until it has a title.
        let program = std::env::current_exe().unwrap();
        let program = base_name(program.to_str().unwrap()).to_owned();
        let called = names.called(own).unwrap();
        assert_eq!(
            (called.name, called.is_own),
            (Some(role::called(&program)), false)
        );
        // A thread that a pool has named, while others have their creator's name.
        let (send, receive) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("io_thd_7".to_owned());
        let thread = thread.spawn(move || {
            send.send(own_tid()).unwrap();
            let _ = ended.recv();
        });
        let tid = receive.recv().unwrap();
        names.created(own, tid, own);
        let watched = names.watched.get_mut(&tid).unwrap();
        watched.inherited = "other".to_owned();
        let called = names.called(tid).unwrap();
        assert_eq!(
            called,
            Called {
                name: Some("io_thd_N".to_owned()),
                is_own: true
            }
        );
        drop(end);
        thread.unwrap().join().unwrap();
        names.ended(tid);
        assert_eq!(names.called(tid), None);
        assert_eq!(names.due.len(), 1);
    }

    #[test]
    fn a_terminal_obeys_no_name() {
        let thread = std::thread::Builder::new().name("a\u{1b}[2Jb\n".to_owned());
        let name = thread.spawn(|| kernels_name(own_tid())).unwrap();
        assert_eq!(name.join().unwrap(), "a\u{fffd}[2Jb\u{fffd}");
    }

    /// The calling thread's id, from the link that the kernel has for it.
    fn own_tid() -> i32 {
        let link = fs::read_link("/proc/thread-self").unwrap();
        link.file_name().unwrap().to_str().unwrap().parse().unwrap()
    }
}
