//! Counts of passes, and the passes at which the controller is called. The layout is that of
//! `numaloc_model::marks::board`.

use std::ffi::{CStr, c_char};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

/// Number of entry points (`numaloc_model::marks::ENTRY_POINTS`).
pub const ENTRIES: usize = 24;
/// Functions of regions and user marks that can be awaited.
pub const SLOTS: usize = 16;
/// Longest name of a user mark in bytes, and its end.
pub const NAME: usize = 64;
/// The first word of the board.
pub const MAGIC: u64 = 0x3130_6b72_616d_6c6e;

/// Passes of a place so far, and the pass at which the controller is called; 0 for none.
#[repr(C)]
pub struct Count {
    passes: AtomicU64,
    target: AtomicU64,
}

/// A region's function and its passes.
#[repr(C)]
pub struct Region {
    function: AtomicU64,
    count: Count,
}

/// A user mark's name, ended by NUL, and its passes.
#[repr(C)]
pub struct User {
    name: [AtomicU8; NAME],
    count: Count,
}

/// The board of a process. The controller writes the functions and names before the program begins, then their number.
#[repr(C)]
pub struct Board {
    magic: u64,
    regions: AtomicU64,
    users: AtomicU64,
    reserved: u64,
    entries: [Count; ENTRIES],
    region: [Region; SLOTS],
    user: [User; SLOTS],
}

impl Count {
    const fn none() -> Self {
        Self {
            passes: AtomicU64::new(0),
            target: AtomicU64::new(0),
        }
    }

    /// Counts a pass; calls the controller at the one it waits for. `place` is the number of the count on the board.
    #[inline(always)]
    fn pass(&self, place: usize) {
        let passes = self.passes.fetch_add(1, Relaxed) + 1;
        if passes == self.target.load(Relaxed) {
            numaloc_marks_reached(place as u64);
        }
    }
}

/// The board of this process.
#[unsafe(no_mangle)]
#[used]
pub static numaloc_marks_board: Board = Board {
    magic: MAGIC,
    regions: AtomicU64::new(0),
    users: AtomicU64::new(0),
    reserved: 0,
    entries: [const { Count::none() }; ENTRIES],
    region: [const {
        Region {
            function: AtomicU64::new(0),
            count: Count::none(),
        }
    }; SLOTS],
    user: [const {
        User {
            name: [const { AtomicU8::new(0) }; NAME],
            count: Count::none(),
        }
    }; SLOTS],
};

impl Board {
    /// Counts a call of the entry point with that number.
    #[inline(always)]
    pub(crate) fn entry(&self, entry: usize) {
        if let Some(count) = self.entries.get(entry) {
            count.pass(entry);
        }
    }

    /// Counts an entry of the region with that function, if the controller waits for it.
    #[inline(always)]
    pub(crate) fn region(&self, function: u64) {
        let regions = self.regions.load(Relaxed) as usize;
        for (at, region) in self.region.iter().take(regions).enumerate() {
            if region.function.load(Relaxed) == function {
                region.count.pass(ENTRIES + at);
            }
        }
    }

    /// Counts a user mark, if the controller waits for one of that name.
    fn user(&self, name: &[u8]) {
        let users = self.users.load(Relaxed) as usize;
        for (at, user) in self.user.iter().take(users).enumerate() {
            let known = user.name.iter().map(|byte| byte.load(Relaxed));
            let known = known.take_while(|&byte| byte != 0);
            if known.eq(name.iter().copied().take(NAME - 1)) {
                user.count.pass(ENTRIES + SLOTS + at);
            }
        }
    }
}

/// Receives the program's user marks (`shims/include/numaloc.h`).
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numaloc_mark_received(name: *const c_char) {
    if !name.is_null() && numaloc_marks_board.users.load(Relaxed) != 0 {
        // SAFETY: guaranteed by the caller.
        numaloc_marks_board.user(unsafe { CStr::from_ptr(name) }.to_bytes());
    }
}

/// Calls the controller: the place with this number on the board was passed as often as it waits for.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn numaloc_marks_reached(place: u64) {
    std::arch::naked_asm!("int3", "ret")
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_model::marks::{ENTRY_POINTS, NAME_BYTES, board};
    use std::mem::offset_of;

    #[test]
    fn the_layout_is_the_one_that_the_controller_uses() {
        assert_eq!(MAGIC, board::MAGIC);
        assert_eq!(ENTRIES, ENTRY_POINTS.len());
        assert_eq!((SLOTS, NAME), (board::SLOTS, NAME_BYTES + 1));
        assert_eq!(offset_of!(Board, regions) as u64, board::REGIONS);
        assert_eq!(offset_of!(Board, users) as u64, board::USERS);
        assert_eq!(size_of::<Board>() as u64, board::BYTES);
        for (at, _) in ENTRY_POINTS.iter().enumerate() {
            let passes = offset_of!(Board, entries) + at * size_of::<Count>();
            assert_eq!(board::passes(at), passes as u64);
        }
        for at in 0..SLOTS {
            let region = offset_of!(Board, region) + at * size_of::<Region>();
            assert_eq!(board::function(at), region as u64);
            let passes = region + offset_of!(Region, count);
            assert_eq!(board::passes(ENTRIES + at), passes as u64);
            let user = offset_of!(Board, user) + at * size_of::<User>();
            assert_eq!(board::name(at), user as u64);
            let passes = user + offset_of!(User, count);
            assert_eq!(board::passes(ENTRIES + SLOTS + at), passes as u64);
        }
        assert_eq!(offset_of!(Count, target) as u64, board::TARGET);
    }

    #[test]
    fn passes_are_counted_by_place() {
        let board = &numaloc_marks_board;
        board.regions.store(1, Relaxed);
        board.region[0].function.store(0x40, Relaxed);
        for function in [0x40, 0x80, 0x40] {
            board.region(function);
        }
        assert_eq!(board.region[0].count.passes.load(Relaxed), 2);
        board.users.store(1, Relaxed);
        for (at, byte) in b"step".iter().enumerate() {
            board.user[0].name[at].store(*byte, Relaxed);
        }
        for name in [&b"step"[..], b"ste", b"steps", b"step"] {
            board.user(name);
        }
        assert_eq!(board.user[0].count.passes.load(Relaxed), 2);
    }
}
