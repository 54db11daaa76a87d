//! The node preferred for a range of memory, and the nodes of pages.
#![allow(unsafe_code)]

use libc::{c_int, pid_t};
use std::io;

use crate::check;

/// Kernel numbers of nodes are below this: `mbind` accepts no longer node mask (a page of 4 KiB, in bits).
pub const NODES: u32 = 32_768;

/// A set of one node as the kernel reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMask {
    words: Vec<u64>,
}

impl NodeMask {
    /// The set that holds `node` alone.
    #[must_use]
    pub fn of(node: u32) -> Self {
        let mut words = vec![0; node as usize / 64 + 1];
        words[node as usize / 64] = 1 << (node % 64);
        Self { words }
    }

    /// Its words, the lowest nodes first.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Its words as bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect()
    }

    /// Its length in bits as `mbind` wants it: the kernel reads one bit less than it is given.
    #[must_use]
    pub fn bits(&self) -> u64 {
        64 * self.words.len() as u64 + 1
    }
}

/// Prefers `node` for pages of `length` bytes at `start` that are not there yet. A full node spills over to others
/// instead of killing the program. Pages that exist stay where they are.
///
/// `start` is an address of this process, at the start of a page. What the memory contains is unaffected, whatever
/// the range is.
///
/// # Errors
/// The kernel's: `EINVAL` if there is no such node or `start` is not the start of a page, `EFAULT` if part of the range
/// is not mapped, `EPERM` and `ENOSYS` in sandboxes.
pub fn prefer(start: usize, length: usize, node: u32) -> io::Result<()> {
    if node >= NODES {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mask = NodeMask::of(node);
    // SAFETY: the kernel reads `mask.bits() - 1` bits of the mask, which it has. Without flags the call changes only
    // the policy for future pages of the range, never their contents; ranges that are not mapped are refused.
    check(unsafe {
        libc::syscall(
            libc::SYS_mbind,
            start,
            length,
            libc::MPOL_PREFERRED,
            mask.words().as_ptr(),
            mask.bits(),
            0,
        )
    })
    .map(drop)
}

/// `MPOL_MF_MOVE` of <linux/mempolicy.h>: move pages that only this process maps.
const MPOL_MF_MOVE: c_int = 2;

/// Moves `pages` (addresses) of process `pid` to `nodes`, one per page. Returns one status per page: its node now, or a
/// negative errno (`-ENOENT`: the page does not exist now).
///
/// # Errors
/// The kernel's: `ESRCH` if there is no such process, `EPERM` if it may not be traced.
///
/// # Panics
/// If there are not as many nodes as pages.
pub fn move_pages(pid: pid_t, pages: &[u64], nodes: &[i32]) -> io::Result<Vec<i32>> {
    assert_eq!(nodes.len(), pages.len(), "one node per page");
    pages_call(pid, pages, Some(nodes))
}

/// The nodes of `pages` (addresses) of process `pid`: one status per page as of [`move_pages`]. Moves nothing.
///
/// # Errors
/// As of [`move_pages`].
pub fn locate_pages(pid: pid_t, pages: &[u64]) -> io::Result<Vec<i32>> {
    pages_call(pid, pages, None)
}

fn pages_call(pid: pid_t, pages: &[u64], nodes: Option<&[i32]>) -> io::Result<Vec<i32>> {
    let mut status = vec![-libc::ENOENT; pages.len()];
    // SAFETY: `pages`, `nodes` and `status` have `pages.len()` entries each; addresses are only
    // looked up in the other process.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            pages.len(),
            pages.as_ptr(),
            nodes.map_or(std::ptr::null(), <[i32]>::as_ptr),
            status.as_mut_ptr(),
            if nodes.is_some() { MPOL_MF_MOVE } else { 0 },
        )
    };
    // A positive result is the number of pages that were not moved; their statuses give the reasons.
    check(result)?;
    Ok(status)
}

/// Keeps automatic NUMA balancing away from memory of the calling thread that has no policy of its own: the kernel
/// takes no hint faults in it and moves none of it. New pages go to the node on which they are touched first, as
/// before. Threads and processes created afterwards inherit this. An error (`ENOSYS`, `EPERM`) changes nothing.
pub fn keep_from_balancing() {
    // SAFETY: without a node mask the call reads no memory of this process; it sets the policy of new pages only.
    unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            libc::MPOL_LOCAL,
            std::ptr::null::<u64>(),
            0_u64,
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_holds_its_node_and_one_bit_more_than_the_kernel_reads() {
        let mask = NodeMask::of(130);
        assert_eq!(mask.words(), [0, 0, 4]);
        assert_eq!(mask.bits(), 193);
    }

    #[test]
    fn nodes_that_no_mask_holds_are_refused() {
        let error = prefer(0, 4096, NODES).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
}
