//! Follows system calls that create threads, processes and memory, or let threads wait for each other.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicBool, Ordering};

use numaloc_journal::Record;
use numaloc_trace::cross_process::Backing;
use numaloc_trace::identity::object;

use crate::api::PluginId;
use crate::{
    GuestThread, adopt, code, engine, exec, forget_threads, guest, leave, options, set_engine,
    thread,
};

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
static ENDING: AtomicBool = AtomicBool::new(false);

/// Whether the program has requested its own exit.
pub fn ending() -> bool {
    ENDING.load(Ordering::Relaxed)
}

/// Called before the system call.
pub unsafe extern "C" fn on_call(
    _: PluginId,
    vcpu: c_uint,
    number: i64,
    a1: u64,
    a2: u64,
    a3: u64,
    a4: u64,
    a5: u64,
    a6: u64,
    _: u64,
    _: u64,
) {
    let Some(thread) = thread(vcpu) else { return };
    thread.tracer.flush_pending();
    thread.arguments = [a1, a2, a3, a4, a5, a6];
    // glibc's malloc maps memory when the break cannot grow, which under QEMU is soon: libraries lie above a program's
    // break. Natively the same blocks would be in the heap.
    thread.extends_heap = std::mem::take(&mut thread.break_refused)
        && number == MMAP
        && (a1, a3, a4) == (0, 3, MAP_PRIVATE | MAP_ANONYMOUS);
    let refused_stack = std::mem::take(&mut thread.refused_stack);
    if number == CLONE && a1 & CLONE_THREAD != 0 && (a2..=a2 + NEAR).contains(&refused_stack) {
        thread.tracer.take_back(a2, refused_stack);
    }
    match number {
        // Counts so far belong to the parent; the child starts from nothing.
        CLONE | FORK | VFORK | CLONE3 if clone_flags(number, thread) & CLONE_THREAD == 0 => {
            thread.tracer.flush();
        }
        // The program may be about to kill itself.
        KILL | TKILL | TGKILL => thread.tracer.flush(),
        FUTEX => futex_call(thread, a1, a2, a5),
        SET_TID_ADDRESS => thread.tracer.clear_tid = a1,
        PRCTL if a1 == libc::PR_SET_NAME as u64 => {
            if let Some(name) = guest::text(a2) {
                let mut name = name.to_string_lossy().into_owned();
                name.truncate(name.floor_char_boundary(15));
                let thread_number = thread.tracer.number();
                thread.tracer.record(&Record::ThreadName {
                    thread: thread_number,
                    name,
                });
            }
        }
        EXECVE => {
            if let Some(path) = guest::text(a1) {
                exec::follow(thread, path, a2, a3);
            }
        }
        EXECVEAT => {
            if let Some(path) = guest::text(a2).and_then(|path| exec::path_at(a1, path, a5)) {
                exec::follow(thread, path, a3, a4);
            }
        }
        EXIT_GROUP => ENDING.store(true, Ordering::Relaxed),
        EXIT => {
            thread.tracer.end(thread.tracer.clear_tid);
            leave(vcpu);
        }
        _ => {}
    }
}

/// Called after the system call.
pub unsafe extern "C" fn on_return(_: PluginId, vcpu: c_uint, number: i64, result: i64) {
    let Some(thread) = thread(vcpu) else { return };
    thread.tracer.flush_pending();
    let [a1, a2, a3, a4, a5, _] = thread.arguments;
    let failed = (-4095..0).contains(&result);
    match number {
        FUTEX => futex_return(thread, a1, a2, result),
        // struct clone_args: the stack and its size are words 5 and 6, counted from 0.
        CLONE3 if result == ENOSYS => {
            let word = |index: u64| guest::word(a1 + index * 8).unwrap_or(0);
            thread.refused_stack = word(5) + word(6);
        }
        _ if failed => {}
        MMAP => {
            if a4 & MAP_FIXED != 0 {
                thread.tracer.forget(result as u64, a2);
                code::forget_ranges();
            }
            let file = if thread.extends_heap {
                object::HEAP.to_owned()
            } else if a4 & MAP_ANONYMOUS != 0 {
                String::new()
            } else {
                guest::file_of(a5)
            };
            let offset = thread.arguments[5];
            mapped(thread, result as u64, a2, a3, a4, file, offset, 0);
            if a4 & MAP_SHARED != 0 {
                let (backing, offset) = if a4 & MAP_ANONYMOUS != 0 {
                    (Backing::of_address(result as u64), 0)
                } else {
                    (Backing::of_file(a5 as i32, result as u64), offset)
                };
                engine().shared(backing, result as u64, a2, offset);
            }
        }
        MREMAP => {
            let shared = engine().shared_at(a1);
            if result as u64 != a1 {
                thread.tracer.forget(a1, a2);
            }
            mapped(thread, result as u64, a3, 3, 0x22, String::new(), 0, a1);
            if let Some((object, offset)) = shared {
                engine().map_shared(object, result as u64, a3, offset);
            }
        }
        SHMAT => {
            let size = segment_size(result as u64);
            thread.tracer.forget(result as u64, size);
            mapped(
                thread,
                result as u64,
                size,
                3,
                1,
                object::SYSTEM_V.to_owned(),
                0,
                0,
            );
            engine().shared(Backing::of_address(result as u64), result as u64, size, 0);
        }
        SHMDT => engine().detached(a1),
        MUNMAP => {
            thread.tracer.forget(a1, a2);
            code::forget_ranges();
            let sequence = engine().sequence();
            thread.tracer.record(&Record::Unmap {
                sequence,
                address: a1,
                length: a2,
            });
        }
        BRK => {
            thread.break_refused = (result as u64) < a1;
            let sequence = engine().sequence();
            thread.tracer.record(&Record::Break {
                sequence,
                address: result as u64,
            });
            note_stack(thread);
        }
        CLONE | FORK | VFORK | CLONE3 => created(vcpu, thread, number, result),
        _ => {}
    }
}

#[allow(clippy::too_many_arguments)]
fn mapped(
    thread: &mut GuestThread,
    address: u64,
    length: u64,
    protection: u64,
    flags: u64,
    file: String,
    offset: u64,
    moved_from: u64,
) {
    let record = Record::Map {
        sequence: engine().sequence(),
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
    guest::mappings()
        .iter()
        .find(|mapped| mapped.start == address)
        .map_or(4096, |mapped| mapped.end - mapped.start)
}

/// Records the first thread's stack, which QEMU mapped without a system call of the guest.
fn note_stack(thread: &mut GuestThread) {
    if thread.tracer.first_store() == 0 || STACK_KNOWN.swap(true, Ordering::Relaxed) {
        return;
    }
    // The first store of a process is the first push of the loader (or of _start).
    let at = thread.tracer.first_store();
    if let Some(stack) = guest::mappings()
        .iter()
        .find(|mapped| (mapped.start..mapped.end).contains(&at))
    {
        // A guard page separates it below; above, QEMU's own mappings may follow.
        let length = (stack.end - stack.start).min(guest::stack_size());
        mapped(
            thread,
            stack.start,
            length,
            3,
            0x22,
            object::STACK.to_owned(),
            0,
            0,
        );
    }
}

/// Flags of a call that creates a thread or process; `clone3` has them in memory.
fn clone_flags(number: i64, thread: &GuestThread) -> u64 {
    match number {
        CLONE => thread.arguments[0],
        CLONE3 => guest::word(thread.arguments[0]).unwrap_or(0),
        _ => 0,
    }
}

fn created(vcpu: c_uint, thread: &mut GuestThread, number: i64, result: i64) {
    let flags = clone_flags(number, thread);
    if result == 0 {
        forked(vcpu, thread);
    } else if flags & CLONE_THREAD != 0 {
        let block = thread.arguments[0];
        let (stack, clear_tid, tls) = if number == CLONE3 {
            // struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls
            let at = |index: u64| guest::word(block + index * 8).unwrap_or(0);
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
            sequence: engine().sequence(),
            path,
            pointer: stack,
        };
        thread.tracer.record(&record);
        thread
            .tracer
            .thread_created(result as u32, start_routine(tls), clear_tid);
    } else {
        thread.tracer.creator.count_process();
        engine().expect_process(result as u32);
    }
}

/// The start routine in glibc's thread descriptor, at the thread pointer; 0 if it is not found.
fn start_routine(thread_pointer: u64) -> u64 {
    // Offsets in x86-64 glibc 2.36 (Debian 12) and similar versions. The word after it is the routine's argument and
    // the word before it no address, so the routine is the first that points into a mapped file.
    const OFFSETS: [u64; 3] = [0x630, 0x638, 0x640];
    OFFSETS
        .into_iter()
        .filter_map(|offset| guest::word(thread_pointer + offset))
        .find(|&address| address > 4096 && code::is_in_file(address))
        .unwrap_or(0)
}

/// Starts recording a forked process, of which the calling thread is the only one.
fn forked(vcpu: c_uint, thread: &mut GuestThread) {
    let path = thread.tracer.creator.upcoming_process();
    let clock = thread.tracer.time();
    forget_threads();
    let program = options::get().program;
    match engine().forked(path, clock, &program) {
        Ok(engine) => set_engine(engine),
        // The child continues with an engine whose journal is the parent's, so stop it here.
        Err(_) => engine().stop(),
    }
    // SAFETY: getpid has no preconditions.
    let tid = unsafe { libc::getpid() } as u32;
    adopt(vcpu, *engine().first_thread(tid));
}

fn futex_call(thread: &mut GuestThread, address: u64, operation: u64, second: u64) {
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

fn release(thread: &mut GuestThread, address: u64) {
    thread.tracer.mark_sync(address);
    thread.tracer.release(address);
}

fn futex_return(thread: &mut GuestThread, address: u64, operation: u64, result: i64) {
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
