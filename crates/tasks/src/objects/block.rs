//! Memory of data blocks (their headers; the contents are stored elsewhere), and which holds exclude each other.
//!
//! | held \ wanted | RW, RO | CONST | EW |
//! |---|---|---|---|
//! | RW, RO | together | waits | waits |
//! | CONST | waits | together | waits |
//! | EW | waits | waits | waits |

use std::sync::atomic::{AtomicU16, Ordering};

use super::header::Header;
use crate::machine::NO_NODE;
use crate::scheduler::ready::Ready;

/// `ocrDbAccessMode_t`.
pub mod mode {
    /// No access: the slot only orders tasks.
    pub const NULL: u32 = 0;
    /// Read; the contents do not change meanwhile.
    pub const CONST: u32 = 1;
    /// Read and write, together with others.
    pub const RW: u32 = 2;
    /// Read and write, alone.
    pub const EW: u32 = 4;
    /// Read; others may write meanwhile.
    pub const RO: u32 = 8;
}

/// The word for a mode.
pub(crate) fn mode_name(mode: u32) -> &'static str {
    match mode {
        mode::CONST => "CONST",
        mode::EW => "EW",
        mode::RO => "RO",
        _ => "RW",
    }
}

/// The weakest mode that includes both.
pub(crate) fn merged(a: u32, b: u32) -> u32 {
    match (a.min(b), a.max(b)) {
        (a, b) if a == b => a,
        (_, mode::EW) | (mode::EW, _) => mode::EW,
        (mode::CONST, mode::RW) => mode::EW,
        (mode::CONST, _) => mode::CONST,
        _ => mode::RW,
    }
}

/// A data block's header.
#[repr(C)]
pub struct Block {
    pub(crate) header: Header,
    // The free list's link uses this space while the object is free.
    _link: usize,
    pub(crate) data: *mut u8,
    pub(crate) size: u64,
    /// Waiting tasks, oldest first, as an intrusive list.
    pub(crate) first_waiting: *mut Ready,
    pub(crate) last_waiting: *mut Ready,
    /// Number in creation order; only while recording.
    pub(crate) id: u64,
    pub(crate) shared: u32,
    pub(crate) constant: u32,
    pub(crate) exclusive: bool,
    pub(crate) destroyed: bool,
    /// The node whose pool the memory came from, for freeing it.
    pub(crate) home: u16,
    /// Node of the memory; `NO_NODE` until first touch.
    pub(crate) node: AtomicU16,
}

/// A block that a task has to acquire.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub(crate) block: *mut Block,
    pub(crate) slot: u32,
    pub(crate) mode: u32,
}

/// How far a waiting task is in acquiring its blocks.
pub struct Acquiring {
    pub(crate) wanted: Vec<Wanted>,
    pub(crate) at: usize,
}

impl Block {
    /// Whether a hold in that mode is possible now.
    pub(crate) fn admits(&self, mode: u32) -> bool {
        !self.exclusive
            && match mode {
                mode::EW => self.shared == 0 && self.constant == 0,
                mode::CONST => self.shared == 0,
                _ => self.constant == 0,
            }
    }

    /// Records a hold.
    pub(crate) fn admit(&mut self, mode: u32) {
        match mode {
            mode::EW => self.exclusive = true,
            mode::CONST => self.constant += 1,
            _ => self.shared += 1,
        }
    }

    /// Records the end of a hold.
    pub(crate) fn dismiss(&mut self, mode: u32) {
        match mode {
            mode::EW => self.exclusive = false,
            mode::CONST => self.constant -= 1,
            _ => self.shared -= 1,
        }
    }

    /// Whether no task holds the block or waits for it.
    pub(crate) fn is_free(&self) -> bool {
        !self.exclusive && self.shared == 0 && self.constant == 0 && self.first_waiting.is_null()
    }

    /// The node of the memory, if known.
    pub(crate) fn place(&self) -> Option<u16> {
        let node = self.node.load(Ordering::Relaxed);
        (node != NO_NODE).then_some(node)
    }
}
