//! Memory of tasks (EDTs), their templates and their finish scopes.
//!
//! A task is one allocation: the fixed part, its parameters, its slots (the same array that its function receives).

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use numaloc_task_queues::Latch;

use super::block::Acquiring;
use super::header::Header;
use crate::guid::Guid;
use crate::scheduler::ready::Ready;

/// A slot of a task as its function sees it: `ocrEdtDep_t`. The slot's state is in what is padding for C.
#[repr(C)]
#[derive(Debug)]
pub struct Dep {
    /// The data block, or `NULL_GUID`.
    pub guid: Guid,
    /// Its memory, or null.
    pub ptr: *mut c_void,
    /// How the task wants to hold the block; see [`super::block::mode`].
    pub mode: u32,
    /// Slot state; padding in C.
    pub(crate) state: AtomicU32,
}

const _: () = assert!(size_of::<Dep>() == 24 && std::mem::offset_of!(Dep, mode) == 16);

/// `ocrEdt_t`, the function of a task: number of parameters, parameters, number of slots, slots.
pub type EdtFunction = unsafe extern "C" fn(u32, *mut u64, u32, *mut Dep) -> Guid;

/// Slot states, stored next to the mode.
pub(crate) mod slot_state {
    pub const FREE: u32 = 0;
    pub const CONNECTED: u32 = 1;
    pub const SATISFIED: u32 = 2;
    /// This slot represents the task's hold on its block; the hold's mode is in the bits above.
    pub const HELD: u32 = 4;
    pub const MODE_SHIFT: u32 = 8;
}

/// How far a task is.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It has not started.
    Created,
    /// As before; its creator has to end first, see [`crate::fit`].
    Held,
    Started,
    /// It has waited inside itself, and may have changed its thread.
    Waited,
}

/// Which node is a task's.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// The one that was chosen when it was created.
    Chosen,
    /// That of most of its bytes, if it has any, when it is ready.
    Data,
    /// As before; the blocks that it creates stay with it, whatever the plan says.
    DataAndBlocks,
}

/// A task; parameters and slots follow.
#[repr(C)]
pub struct Edt {
    pub(crate) ready: Ready,
    pub(crate) function: EdtFunction,
    /// Slots that are not satisfied yet, and 1 until the task may start.
    pub(crate) pending: AtomicU32,
    pub(crate) depc: u32,
    pub(crate) paramc: u32,
    /// Interned name of the template.
    pub(crate) name: u32,
    /// The scope the task counts in; may be null.
    pub(crate) scope: *mut Scope,
    /// The scope the task opened, if it is a FINISH task.
    pub(crate) own_scope: *mut Scope,
    pub(crate) output: Guid,
    /// Progress in acquiring its blocks, while it waits for one.
    pub(crate) acquiring: *mut Acquiring,
    /// Number in creation order; only while recording.
    pub(crate) id: u64,
    /// State of the plan's automaton.
    pub(crate) class: u32,
    /// Tasks this task has created so far.
    pub(crate) children: u32,
    /// Data blocks this task has created so far.
    pub(crate) blocks: u32,
    /// The node the program's hint asked for.
    pub(crate) hinted: u16,
    pub(crate) progress: Progress,
    pub(crate) home: Home,
}

const _: () = assert!(size_of::<Edt>() <= 112);

/// A task that may start when its creator ends.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub(crate) edt: *mut Edt,
    pub(crate) guid: Guid,
    /// Number among the tasks that its creator created.
    pub(crate) position: u32,
}

/// A template.
#[repr(C)]
pub struct Template {
    pub(crate) header: Header,
    // The free list's link uses this space while the object is free.
    _link: usize,
    pub(crate) function: EdtFunction,
    pub(crate) paramc: u32,
    pub(crate) depc: u32,
    pub(crate) name: u32,
    /// Node hinted for tasks made from it.
    pub(crate) hinted: u16,
}

/// A finish scope; see [`super::scopes`].
#[repr(C)]
pub struct Scope {
    pub(crate) header: Header,
    // The free list's link uses this space while the object is free.
    _link: usize,
    pub(crate) latch: Latch,
    pub(crate) parent: *mut Scope,
    /// Fires when the scope is complete; may be null.
    pub(crate) output: Guid,
}

impl Edt {
    /// # Safety
    /// `edt` is alive.
    pub(crate) unsafe fn params(edt: *mut Self) -> *mut u64 {
        // SAFETY: they follow the fixed part in the same allocation.
        unsafe { edt.add(1).cast() }
    }

    /// # Safety
    /// `edt` is alive and this thread's alone.
    pub(crate) unsafe fn params_of<'a>(edt: *mut Self) -> &'a mut [u64] {
        // SAFETY: as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(Self::params(edt), (*edt).paramc as usize) }
    }

    /// Calls the task's function.
    ///
    /// # Safety
    /// `edt` is ready, this thread's alone, and holds its blocks.
    pub(crate) unsafe fn call(edt: *mut Self) -> Guid {
        // SAFETY: as the caller promises.
        unsafe {
            ((*edt).function)(
                (*edt).paramc,
                Self::params(edt),
                (*edt).depc,
                Self::slots(edt),
            )
        }
    }

    /// # Safety
    /// `edt` is alive.
    pub(crate) unsafe fn slots(edt: *mut Self) -> *mut Dep {
        // SAFETY: they follow the parameters in the same allocation.
        unsafe { Self::params(edt).add((*edt).paramc as usize).cast() }
    }

    /// # Safety
    /// `edt` is alive, `at` below `depc`.
    pub(crate) unsafe fn slot(edt: *mut Self, at: u32) -> *mut Dep {
        // SAFETY: within the slots.
        unsafe { Self::slots(edt).add(at as usize) }
    }

    /// Sets up the slots of a new task.
    ///
    /// # Safety
    /// `edt` is fresh memory with the fixed part set up.
    pub(crate) unsafe fn clear_slots(edt: *mut Self) {
        // SAFETY: as the caller promises.
        unsafe {
            let slots = Self::slots(edt);
            for at in 0..(*edt).depc as usize {
                slots.add(at).write(Dep {
                    guid: Guid::NULL,
                    ptr: ptr::null_mut(),
                    mode: super::block::mode::RW,
                    state: AtomicU32::new(slot_state::FREE),
                });
            }
        }
    }

    /// The scope in which a task counts that this one creates, and in which this one counts after it has run.
    pub(crate) fn inner_scope(&self) -> *mut Scope {
        if self.own_scope.is_null() {
            self.scope
        } else {
            self.own_scope
        }
    }

    /// The slots that are not satisfied yet. Call only when nothing runs.
    pub(crate) fn open_slots(edt: *mut Self) -> Vec<u32> {
        // SAFETY: alive, and nothing runs that would change it.
        unsafe {
            (0..(*edt).depc)
                .filter(|&at| {
                    (*Self::slot(edt, at)).state.load(Ordering::Relaxed) & slot_state::SATISFIED
                        == 0
                })
                .collect()
        }
    }

    /// The slots through which a task holds a block, with the mode of the hold.
    ///
    /// # Safety
    /// `edt` is alive and this thread's; it stays so while the iterator is used.
    pub(crate) unsafe fn held_slots(edt: *mut Self) -> impl Iterator<Item = (u32, *mut Dep, u32)> {
        // SAFETY: as the caller promises.
        let depc = unsafe { (*edt).depc };
        (0..depc).filter_map(move |at| {
            // SAFETY: as the caller promises; within the slots.
            let (dep, state) = unsafe {
                let dep = Self::slot(edt, at);
                (dep, (*dep).state.load(Ordering::Relaxed))
            };
            (state & slot_state::HELD != 0).then_some((at, dep, state >> slot_state::MODE_SHIFT))
        })
    }
}

/// A task as its beginning.
#[inline]
pub(crate) fn ready(edt: *mut Edt) -> *mut Ready {
    edt.cast()
}

impl Scope {
    /// Sets up the memory of a scope whose FINISH task holds the first credit.
    ///
    /// # Safety
    /// `scope` is fresh memory from the arena, of this size.
    pub(crate) unsafe fn set_up(scope: *mut Self, parent: *mut Self, output: Guid) {
        // SAFETY: as the caller promises; the header stays.
        unsafe {
            (*scope).header.begin(super::header::Kind::Scope);
            ptr::addr_of_mut!((*scope).latch).write(Latch::new(1));
            (*scope).parent = parent;
            (*scope).output = output;
        }
    }
}
