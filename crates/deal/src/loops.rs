//! The loops in which each thread is, innermost last.
//!
//! Compiled code asks for the next iterations with the addresses of two variables in its frame. The address of the
//! first identifies the loop: a thread may be in several loops (nested regions), on several stacks (coroutines), and
//! may have left one without a call (`cancel`), whose entry stays until its address is used again.

use std::cell::UnsafeCell;
use std::ptr::null_mut;

use crate::bounds::Bounds;
use crate::ranges::{Parts, Portion, Share, Team};
use crate::{nodes, settings};

/// What a loop is dealt from. Its memory outlives the loop: the run-time system, or the team, frees it after all
/// threads have left.
#[derive(Clone, Copy)]
pub struct Dealt {
    /// The first of `threads` shares.
    pub shares: *const Share,
    /// Threads of the team.
    pub threads: u32,
    /// Position of this thread.
    pub rank: u32,
    /// How much it takes at a time.
    pub portion: Portion,
    /// The iterations.
    pub bounds: Bounds,
    /// For libgomp: the loop's end.
    pub end: u64,
}

/// A loop of a thread.
#[derive(Clone, Copy)]
pub enum Loop {
    /// Dealt by this library.
    Dealt(Dealt),
    /// Left to the run-time system.
    Left,
    /// Dealt; the thread has had the last iteration. It gets no earlier ones after that, because compilers take the
    /// values of `lastprivate` variables from what the thread with the last iteration executed last.
    Done,
}

impl Dealt {
    /// The thread begins the loop: others learn on which node it runs.
    pub fn begin(&self) {
        if settings::takes()
            && let Some(node) = nodes::here()
        {
            self.team().shares[self.rank as usize].on(node);
        }
    }

    fn team(&self) -> Team<'_> {
        Team {
            // SAFETY: that many shares, which live until the thread has left the loop (see the type).
            shares: unsafe { std::slice::from_raw_parts(self.shares, self.threads as usize) },
            rank: self.rank,
            parts: self.bounds.parts(),
            portion: self.portion,
        }
    }

    /// The next iterations of this thread in the loop that asks with `key`.
    #[inline]
    pub fn next(&self, key: usize) -> Option<Parts> {
        let team = self.team();
        let parts = self.parts(&team)?;
        if parts.to == team.parts {
            with(|stack| {
                let entries = stack.entries().iter_mut().rev();
                if let Some(entry) = entries.into_iter().find(|entry| entry.key == key) {
                    entry.of = Loop::Done;
                }
            });
        }
        Some(parts)
    }

    #[inline]
    fn parts(&self, team: &Team<'_>) -> Option<Parts> {
        if let Some(parts) = team.own() {
            return Some(parts);
        }
        if !settings::takes() {
            return None;
        }
        loop {
            team.take(nodes::distance)?;
            // Others may have taken all of it.
            if let Some(parts) = team.own() {
                return Some(parts);
            }
        }
    }
}

/// An entry: a loop and what identifies it; 0 until the first request.
#[derive(Clone, Copy)]
struct Entry {
    key: usize,
    of: Loop,
}

/// Entries of a thread that need no further memory.
const INLINE: usize = 8;

struct Stack {
    inline: [Entry; INLINE],
    /// All entries, once there are more.
    more: *mut Entry,
    capacity: usize,
    length: usize,
}

thread_local! {
    static LOOPS: UnsafeCell<Stack> = const {
        UnsafeCell::new(Stack {
            inline: [Entry { key: 0, of: Loop::Left }; INLINE],
            more: null_mut(),
            capacity: INLINE,
            length: 0,
        })
    };
}

impl Stack {
    #[inline]
    fn entries(&mut self) -> &mut [Entry] {
        match self.more.is_null() {
            true => &mut self.inline[..self.length],
            // SAFETY: `capacity` entries of this thread, of which `length` are set.
            false => unsafe { std::slice::from_raw_parts_mut(self.more, self.length) },
        }
    }

    fn push(&mut self, entry: Entry) {
        if self.length == self.capacity {
            self.grow();
        }
        self.length += 1;
        if let Some(last) = self.entries().last_mut() {
            *last = entry;
        }
    }

    /// Removes the entry at `at`; those above it move down.
    fn remove(&mut self, at: usize) {
        let entries = self.entries();
        entries.copy_within(at + 1.., at);
        self.shrink_to(self.length - 1);
    }

    fn shrink_to(&mut self, length: usize) {
        self.length = self.length.min(length);
        if self.length <= INLINE / 2 && !self.more.is_null() {
            let kept = self.length;
            let (more, capacity) = (self.more, self.capacity);
            // SAFETY: `more` has `kept` entries; it was mapped with this size, and nothing refers to it afterwards.
            unsafe {
                std::ptr::copy_nonoverlapping(more, self.inline.as_mut_ptr(), kept);
                libc::munmap(more.cast(), capacity * size_of::<Entry>());
            }
            self.more = null_mut();
            self.capacity = INLINE;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let capacity = (self.capacity * 2).max(4096 / size_of::<Entry>());
        let bytes = capacity * size_of::<Entry>();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: fresh memory at an address of the kernel's choice.
        let memory = unsafe { libc::mmap(null_mut(), bytes, access, kind, -1, 0) };
        if memory == libc::MAP_FAILED {
            // A loop that is not remembered would be executed twice or not at all.
            std::process::abort();
        }
        let memory = memory.cast::<Entry>();
        let entries = self.entries();
        // SAFETY: the fresh memory has room for all entries and more; the old mapping is of the size given.
        unsafe {
            std::ptr::copy_nonoverlapping(entries.as_ptr(), memory, entries.len());
            if !self.more.is_null() {
                libc::munmap(self.more.cast(), self.capacity * size_of::<Entry>());
            }
        }
        self.more = memory;
        self.capacity = capacity;
    }
}

#[inline]
fn with<T>(action: impl FnOnce(&mut Stack) -> T) -> T {
    LOOPS.with(|stack| {
        // SAFETY: of this thread, and nothing in this module calls back while it is borrowed.
        action(unsafe { &mut *stack.get() })
    })
}

/// The thread begins a loop that `key` identifies, 0 if that is not known before the first request.
pub fn begin(key: usize, of: Loop) {
    if key != 0 {
        forget(key);
    }
    with(|stack| stack.push(Entry { key, of }));
}

/// Removes a loop that the thread has left without a call.
pub fn forget(key: usize) {
    with(|stack| {
        while let Some(at) = stack.entries().iter().position(|entry| entry.key == key) {
            stack.remove(at);
        }
    });
}

/// The loop that asks with `key`; `None` if it is not one of ours.
#[inline]
pub fn asking(key: usize) -> Option<Loop> {
    with(|stack| {
        let top = stack.entries().last()?;
        if top.key == key {
            return Some(top.of);
        }
        find(stack, key)
    })
}

#[cold]
fn find(stack: &mut Stack, key: usize) -> Option<Loop> {
    let entries = stack.entries();
    let last = entries.len() - 1;
    if entries[last].key == 0 {
        entries[last].key = key;
        let of = entries[last].of;
        // Another loop in the same place of the frame was left without a call.
        let is_old = |entry: &Entry| entry.key == key;
        while let Some(at) = stack.entries().iter().position(is_old) {
            if at + 1 == stack.length {
                break;
            }
            stack.remove(at);
        }
        return Some(of);
    }
    let found = entries.iter().rev().find(|entry| entry.key == key)?;
    Some(found.of)
}

/// The loop that asks with `key` has no more iterations for the thread.
pub fn end(key: usize) {
    with(|stack| {
        let position = stack.entries().iter().rposition(|entry| entry.key == key);
        if let Some(at) = position {
            stack.remove(at);
        }
    });
}

/// Whether the innermost loop of the thread is dealt; it is removed if so.
pub fn end_dealt() -> bool {
    with(|stack| {
        let is_dealt = stack
            .entries()
            .last()
            .is_some_and(|entry| !matches!(entry.of, Loop::Left));
        if is_dealt {
            stack.shrink_to(stack.length - 1);
        }
        is_dealt
    })
}

/// Number of loops of the thread.
pub fn depth() -> usize {
    with(|stack| stack.length)
}

/// Removes the loops above `depth`: a region has ended.
pub fn cut(depth: usize) {
    with(|stack| stack.shrink_to(depth));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_left(key: usize) -> bool {
        matches!(asking(key), Some(Loop::Left))
    }

    #[test]
    fn loops_nest_end_in_any_order_and_are_many() {
        begin(10, Loop::Left);
        begin(20, Loop::Left);
        assert!(is_left(10) && is_left(20) && !is_left(30));
        end(10);
        assert!(!is_left(10) && is_left(20));
        for key in 100..200 {
            begin(key, Loop::Left);
        }
        assert!((100..200).all(is_left));
        for key in 100..200 {
            end(key);
        }
        assert!(is_left(20));
        assert_eq!(depth(), 1);
        // A loop at the same place, after one that was cancelled.
        begin(20, Loop::Left);
        assert_eq!(depth(), 1);
        begin(0, Loop::Left);
        assert!(is_left(20));
        assert_eq!(depth(), 1);
        cut(0);
        assert!(asking(20).is_none());
    }
}
