//! Follows system calls that create threads, processes and memory, or let threads wait for each other.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use numaloc_journal::Record;
use numaloc_trace::cross_process::Backing;
use numaloc_trace::identity::object;
use numaloc_trace::{Engine, pages};

pub use crate::traced::Traced;
use crate::{faults, memory, owners, routines, titles};

const WRITE: i64 = 1;
const OPEN: i64 = 2;
const CLOSE: i64 = 3;
const OPENAT: i64 = 257;
const MMAP: i64 = 9;
const MUNMAP: i64 = 11;
const BRK: i64 = 12;
const MREMAP: i64 = 25;
const SHMAT: i64 = 30;
const SHMDT: i64 = 67;
const CLONE: i64 = 56;
const FORK: i64 = 57;
const VFORK: i64 = 58;
const EXECVE: i64 = 59;
const EXECVEAT: i64 = 322;
const EXIT: i64 = 60;
const WAIT4: i64 = 61;
const WAITID: i64 = 247;
const EXIT_GROUP: i64 = 231;
const KILL: i64 = 62;
const TKILL: i64 = 200;
const PRCTL: i64 = 157;
const FUTEX: i64 = 202;
const SET_TID_ADDRESS: i64 = 218;
const TGKILL: i64 = 234;
const CLONE3: i64 = 435;

const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
/// Set in MAP_SHARED and MAP_SHARED_VALIDATE.
const MAP_SHARED: u64 = 0x1;
const MAP_PRIVATE: u64 = 0x2;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;

/// QEMU has no `clone3`, so the C library falls back to `clone`, which it does not use natively: it puts the new
/// thread's first words on that thread's stack, within this many bytes of its end.
const NEAR: u64 = 64;
const ENOSYS: i64 = -38;

static STACK_KNOWN: AtomicBool = AtomicBool::new(false);

/// What the frontend must do before a system call is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing.
    Nothing,
    /// Follow the program at `path`, with `arguments` and `environment` at these addresses.
    Execute {
        /// Its path.
        path: OsString,
        /// Address of its arguments.
        arguments: u64,
        /// Address of its environment.
        environment: u64,
    },
    /// Remove the thread, whose tracer has ended.
    EndThread,
    /// End all threads and the recording: the process ends itself.
    EndProcess,
}

impl Traced {
    /// Records what must be recorded before system call `number` is made.
    pub fn before(&mut self, engine: &Engine, number: i64, arguments: [u64; 6]) -> Then {
        self.tracer.flush_pending();
        self.arguments = arguments;
        let [a1, a2, a3, a4, a5, _] = arguments;
        // glibc's malloc maps memory when the break cannot grow, which under QEMU is soon: libraries lie above a
        // program's break. Natively the same blocks would be in the heap.
        self.extends_heap = std::mem::take(&mut self.break_refused)
            && number == MMAP
            && (a1, a3, a4) == (0, 3, MAP_PRIVATE | MAP_ANONYMOUS);
        let refused_stack = std::mem::take(&mut self.refused_stack);
        if number == CLONE && a1 & CLONE_THREAD != 0 && (a2..=a2 + NEAR).contains(&refused_stack) {
            self.tracer.take_back(a2, refused_stack);
        }
        match number {
            // Counts so far belong to the parent; the child starts from nothing.
            CLONE | FORK | VFORK | CLONE3 if clone_flags(number, self) & CLONE_THREAD == 0 => {
                self.tracer.flush();
            }
            // The program may be about to kill itself.
            KILL | TKILL | TGKILL => self.tracer.flush(),
            // Afterwards another thread may have mapped, and written, the same pages.
            MUNMAP if pages::are_unmapped(a1, a2) => {
                self.tracer.forget(a1, a2);
                owners::forget_ranges(a1, a2);
                engine.change_memory(|space, _| space.unmap(a1..a1.saturating_add(a2)));
                self.unmapped_at = Some(engine.sequence());
            }
            MMAP => self.cached = faults::cached_before(&arguments),
            FUTEX => futex_call(self, a1, a2, a5),
            SET_TID_ADDRESS => self.tracer.clear_tid = a1,
            PRCTL => self.named(engine, &arguments),
            CLOSE => titles::closed(a1),
            EXECVE => {
                if let Some(path) = memory::text(a1) {
                    return executing(path, a2, a3);
                }
            }
            EXECVEAT => {
                if let Some(path) = memory::text(a2).and_then(|path| path_at(a1, path, a5)) {
                    return executing(path, a3, a4);
                }
            }
            EXIT_GROUP => return Then::EndProcess,
            EXIT => {
                self.tracer.end(self.tracer.clear_tid);
                return Then::EndThread;
            }
            _ => {}
        }
        Then::Nothing
    }

    /// Records the name that a `prctl` call gives to the thread or to memory.
    fn named(&mut self, engine: &Engine, arguments: &[u64; 6]) {
        let record = if arguments[0] == libc::PR_SET_NAME as u64 {
            let thread = self.tracer.number();
            titles::thread_name(arguments[1]).map(|name| Record::ThreadName { thread, name })
        } else {
            titles::named_memory(engine, arguments)
        };
        if let Some(record) = record {
            self.tracer.record(&record);
        }
    }

    /// Records what the system call `number` has done. Returns whether the thread is the only one of a new process,
    /// whose recording the frontend must start ([`forked`]).
    #[must_use]
    pub fn after(&mut self, engine: &Engine, number: i64, result: i64) -> bool {
        self.tracer.flush_pending();
        engine.mark_written();
        let [a1, a2, a3, a4, a5, _] = self.arguments;
        let failed = (-4095..0).contains(&result);
        let unmapped_at = self.unmapped_at.take();
        let address = result as u64;
        match number {
            FUTEX => futex_return(self, a1, a2, result),
            // struct clone_args: the stack and its size are words 5 and 6, counted from 0.
            CLONE3 if result == ENOSYS => {
                let word = |index: u64| memory::word(a1 + index * 8).unwrap_or(0);
                self.refused_stack = word(5) + word(6);
            }
            _ if failed => {}
            OPEN => titles::opened(a1, result),
            OPENAT => titles::opened(a2, result),
            WRITE => {
                if let Some(record) = titles::written(a1, a2, a3) {
                    self.tracer.record(&record);
                }
            }
            MMAP => self.mapped_memory(engine, address, [a2, a3, a4, a5]),
            MREMAP => {
                let shared = engine.shared_at(a1);
                self.moved_area(engine, &self.arguments.clone(), address);
                mapped(self, engine, address, a3, 3, 0x22, String::new(), 0, a1);
                if let Some((object, offset)) = shared {
                    engine.map_shared(object, address, a3, offset);
                }
            }
            SHMAT => {
                let size = segment_size(address);
                self.tracer.forget(address, size);
                self.attached_area(engine, address, size);
                let name = object::SYSTEM_V.to_owned();
                mapped(self, engine, address, size, 3, 1, name, 0, 0);
                let writable = a3 & libc::SHM_RDONLY as u64 == 0;
                engine.shared(Backing::of_address(address), address, size, 0, writable);
            }
            SHMDT => engine.detached(a1),
            MUNMAP => {
                if let Some(sequence) = unmapped_at {
                    self.tracer.record(&Record::Unmap {
                        sequence,
                        address: a1,
                        length: a2,
                    });
                }
            }
            BRK => {
                self.break_refused = address < a1;
                let sequence = engine.sequence();
                self.tracer.record(&Record::Break { sequence, address });
                self.moved_break(engine, address);
                note_stack(self, engine);
            }
            CLONE | FORK | VFORK | CLONE3 => return created(self, engine, number, result),
            WAIT4 if result > 0 => self.tracer.process_ended(result as u32),
            // siginfo_t: the process is the fifth int; 0 if none has ended.
            WAITID if a3 != 0 => {
                let process = memory::word(a3 + 16).map_or(0, |word| word as u32);
                self.tracer.process_ended(process);
            }
            _ => self.changed_memory(engine, number, &self.arguments.clone(), result),
        }
        false
    }

    /// Records a mapping made by `mmap`; `rest` are its arguments from the length on.
    fn mapped_memory(&mut self, engine: &Engine, address: u64, rest: [u64; 4]) {
        let [length, protection, flags, descriptor] = rest;
        if flags & MAP_FIXED != 0 {
            self.tracer.forget(address, length);
            owners::forget_ranges(address, length);
        }
        let file = if self.extends_heap {
            object::HEAP.to_owned()
        } else if flags & MAP_ANONYMOUS != 0 {
            String::new()
        } else {
            memory::file_of(descriptor)
        };
        let offset = self.arguments[5];
        let call = faults::Mapped {
            address,
            length,
            protection,
            flags,
            descriptor,
            offset,
        };
        let cached = std::mem::take(&mut self.cached);
        self.mapped_area(engine, &call, &cached);
        mapped(
            self, engine, address, length, protection, flags, file, offset, 0,
        );
        if flags & MAP_SHARED != 0 {
            let (backing, offset) = if flags & MAP_ANONYMOUS != 0 {
                (Backing::of_address(address), 0)
            } else {
                (Backing::of_file(descriptor as i32, address), offset)
            };
            let writable = protection & libc::PROT_WRITE as u64 != 0;
            engine.shared(backing, address, length, offset, writable);
        }
    }
}

fn executing(path: OsString, arguments: u64, environment: u64) -> Then {
    Then::Execute {
        path,
        arguments,
        environment,
    }
}

/// The engine of a new process, whose only thread was created with the clock and numbering of `parent`.
///
/// # Errors
/// The system's error when the journal cannot be created.
pub fn forked(parent: &mut Traced, engine: &Engine) -> std::io::Result<Engine> {
    let path = parent.tracer.creator.upcoming_process();
    let clock = parent.tracer.time();
    let program = engine.config().program.to_string_lossy();
    engine.forked(path, clock, &program)
}

/// The path of the file that `execveat` runs; `None` if no path leads to it.
fn path_at(folder: u64, path: OsString, flags: u64) -> Option<OsString> {
    let at_folder = folder as i32 != libc::AT_FDCWD && !path.as_bytes().starts_with(b"/");
    match (path.is_empty(), at_folder) {
        (true, true) if flags & libc::AT_EMPTY_PATH as u64 != 0 => {
            // Not the file itself if it was deleted or never had a name (`memfd_create`); resolving the path then
            // fails.
            Some(memory::file_of(folder).into())
        }
        (true, _) => None,
        (false, true) => Some(Path::new(&memory::file_of(folder)).join(path).into()),
        (false, false) => Some(path),
    }
}
#[allow(clippy::too_many_arguments)]
fn mapped(
    thread: &mut Traced,
    engine: &Engine,
    address: u64,
    length: u64,
    protection: u64,
    flags: u64,
    file: String,
    offset: u64,
    moved_from: u64,
) {
    let record = Record::Map {
        sequence: engine.sequence(),
        thread: thread.tracer.number(),
        address,
        length,
        protection,
        flags,
        file,
        offset,
        moved_from,
    };
    thread.tracer.record(&record);
}

/// Size in bytes of the System V segment just attached at `address`.
fn segment_size(address: u64) -> u64 {
    memory::mappings()
        .iter()
        .find(|mapped| mapped.start == address)
        .map_or(4096, |mapped| mapped.end - mapped.start)
}

/// Records the first thread's stack, which was mapped without a system call of the program.
fn note_stack(thread: &mut Traced, engine: &Engine) {
    if thread.tracer.first_store() == 0 || STACK_KNOWN.swap(true, Ordering::Relaxed) {
        return;
    }
    // The first store of a process is the first push of the loader (or of _start).
    let at = thread.tracer.first_store();
    let mappings = memory::mappings();
    let mut stacks = mappings.iter();
    if let Some(stack) = stacks.find(|mapped| (mapped.start..mapped.end).contains(&at)) {
        let most = memory::stack_size();
        // The kernel's own stack grows down to its limit. QEMU's is whole: a guard page separates it below; above,
        // QEMU's own mappings may follow.
        let (start, length) = match stack.file.as_str() {
            object::STACK => (stack.end.saturating_sub(most), most.min(stack.end)),
            _ => (stack.start, (stack.end - stack.start).min(most)),
        };
        let name = object::STACK.to_owned();
        mapped(thread, engine, start, length, 3, 0x22, name, 0, 0);
        // What lies above has been stored by `execve`: arguments, environment, auxiliary vector.
        let above = (start + length).saturating_sub(at);
        thread.tracer.stored_by_kernel(at, above);
    }
}

/// Flags of a call that creates a thread or process; `clone3` has them in memory.
fn clone_flags(number: i64, thread: &Traced) -> u64 {
    match number {
        CLONE => thread.arguments[0],
        CLONE3 => memory::word(thread.arguments[0]).unwrap_or(0),
        _ => 0,
    }
}

/// Records a new thread or process. Returns true in the new process.
fn created(thread: &mut Traced, engine: &Engine, number: i64, result: i64) -> bool {
    let flags = clone_flags(number, thread);
    if result == 0 {
        return true;
    }
    if flags & CLONE_THREAD == 0 {
        let path = thread.tracer.creator.next_process();
        let program = engine.config().program.to_string_lossy().into_owned();
        engine.expect_process(path, 0, thread.tracer.time(), program);
        return false;
    }
    let block = thread.arguments[0];
    let (stack, clear_tid, tls) = if number == CLONE3 {
        // struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls
        let at = |index: u64| memory::word(block + index * 8).unwrap_or(0);
        (at(5) + at(6), at(2), at(7))
    } else {
        let [_, stack, _, child_tid, tls, _] = thread.arguments;
        (stack, child_tid, tls)
    };
    let clear_tid = if flags & CLONE_CHILD_CLEARTID != 0 {
        clear_tid
    } else {
        0
    };
    let path = thread.tracer.creator.upcoming_thread();
    let record = Record::Stack {
        sequence: engine.sequence(),
        path,
        pointer: stack,
    };
    thread.tracer.record(&record);
    thread
        .tracer
        .thread_created(result as u32, routines::of_thread(tls), clear_tid);
    false
}

fn futex_call(thread: &mut Traced, address: u64, operation: u64, second: u64) {
    if address == thread.allocator_word {
        return;
    }
    match operation & 0x7f {
        // WAKE, WAKE_OP, UNLOCK_PI, WAKE_BITSET
        1 | 5 | 7 | 10 => release(thread, address),
        // REQUEUE, CMP_REQUEUE, CMP_REQUEUE_PI
        3 | 4 | 12 => {
            release(thread, address);
            release(thread, second);
        }
        _ => {}
    }
}

fn release(thread: &mut Traced, address: u64) {
    thread.tracer.mark_sync(address);
    thread.tracer.release(address);
}

fn futex_return(thread: &mut Traced, address: u64, operation: u64, result: i64) {
    const EAGAIN: i64 = -11;
    if address == thread.allocator_word {
        return;
    }
    // WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI
    if matches!(operation & 0x7f, 0 | 6 | 9 | 11) && (result == 0 || result == EAGAIN) {
        thread.tracer.mark_sync(address);
        thread.tracer.acquire(address);
    }
}
