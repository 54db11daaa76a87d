//! The node preferred for a range of memory, and the nodes of pages.
#![allow(unsafe_code)]

use libc::{c_int, pid_t};
use std::io;
use std::time::Duration;

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

    /// The set of these nodes; of none, an empty set.
    #[must_use]
    pub fn of_all(nodes: &[u32]) -> Self {
        let most = nodes.iter().max().copied().unwrap_or(0);
        let mut words = vec![0; most as usize / 64 + 1];
        for node in nodes {
            words[*node as usize / 64] |= 1 << (node % 64);
        }
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

/// Status of a page that the kernel did not get to. Neither a node nor an errno.
const NOT_REACHED: i32 = i32::MIN;
/// Times that pages are tried again which could not be moved for the moment.
const ROUNDS: usize = 5;
/// Each time in groups that are this many times smaller, down to single pages.
const SMALLER: usize = 8;
/// Time between two tries of single pages.
const PAUSE: Duration = Duration::from_millis(1);

/// Moves `pages` (addresses) of process `pid` to `nodes`, one per page. Returns one status per page: its node now, or a
/// negative errno (`-ENOENT`: the page does not exist now; `-EBUSY`: it was in use each time that it was tried).
///
/// # Errors
/// The kernel's: `ESRCH` if there is no such process, `EPERM` if it may not be traced.
///
/// # Panics
/// If there are not as many nodes as pages.
pub fn move_pages(pid: pid_t, pages: &[u64], nodes: &[i32]) -> io::Result<Vec<i32>> {
    assert_eq!(nodes.len(), pages.len(), "one node per page");
    let call = |pages: &[u64], nodes: &[i32]| pages_call(pid, pages, Some(nodes));
    all_in_turn(pages, nodes, call, || std::thread::sleep(PAUSE))
}

/// Calls until every page has a status. Where a page is in use for the moment (a fault, a read by the kernel), the
/// kernel ends the call there: neither that page nor any after it gets a status, and those after it are not moved. So
/// the rest is tried again, in smaller groups, which one such page does not hold up.
fn all_in_turn(
    pages: &[u64],
    nodes: &[i32],
    mut call: impl FnMut(&[u64], &[i32]) -> io::Result<Vec<i32>>,
    mut pause: impl FnMut(),
) -> io::Result<Vec<i32>> {
    let mut status = call(pages, nodes)?;
    let mut group = pages.len();
    for _ in 0..ROUNDS {
        let left = (0..pages.len()).filter(|&at| status[at] == NOT_REACHED);
        let left: Vec<usize> = left.collect();
        if left.is_empty() {
            break;
        }
        if group == 1 {
            pause();
        }
        group = (group / SMALLER).max(1);
        for some in left.chunks(group) {
            let pages: Vec<u64> = some.iter().map(|&at| pages[at]).collect();
            let nodes: Vec<i32> = some.iter().map(|&at| nodes[at]).collect();
            for (&at, now) in some.iter().zip(call(&pages, &nodes)?) {
                status[at] = now;
            }
        }
    }
    let known = status.into_iter().map(|status| match status {
        NOT_REACHED => -libc::EBUSY,
        known => known,
    });
    Ok(known.collect())
}

/// The nodes of `pages` (addresses) of process `pid`: one status per page as of [`move_pages`]. Moves nothing.
///
/// # Errors
/// As of [`move_pages`].
pub fn locate_pages(pid: pid_t, pages: &[u64]) -> io::Result<Vec<i32>> {
    pages_call(pid, pages, None)
}

fn pages_call(pid: pid_t, pages: &[u64], nodes: Option<&[i32]>) -> io::Result<Vec<i32>> {
    let mut status = vec![NOT_REACHED; pages.len()];
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
    // A positive result is the number of pages that were not moved: they have no status.
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

/// Distributes new pages of the calling thread over `nodes`, one after the other, as `numactl --interleave` does.
/// Threads and processes created afterwards inherit this.
///
/// # Errors
/// The kernel's: `EINVAL` if there is none of these nodes, `EPERM` and `ENOSYS` in sandboxes.
pub fn interleave(nodes: &[u32]) -> io::Result<()> {
    if nodes.iter().any(|&node| node >= NODES) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mask = NodeMask::of_all(nodes);
    // SAFETY: the kernel reads `mask.bits() - 1` bits of the mask, which it has. The call sets the policy of new pages
    // only.
    check(unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            libc::MPOL_INTERLEAVE,
            mask.words().as_ptr(),
            mask.bits(),
        )
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_holds_its_node_and_one_bit_more_than_the_kernel_reads() {
        let mask = NodeMask::of(130);
        assert_eq!(mask.words(), [0, 0, 4]);
        assert_eq!(mask.bits(), 193);
        assert_eq!(NodeMask::of_all(&[1, 65, 0]).words(), [3, 2]);
    }

    /// A kernel whose calls end at a page that is in use: such pages and all after them keep no status. `in_use` says
    /// whether a page is in use at its n-th try.
    fn kernel(
        tries: &mut Vec<(u64, usize)>,
        in_use: impl Fn(u64, usize) -> bool,
    ) -> impl FnMut(&[u64], &[i32]) -> io::Result<Vec<i32>> {
        move |pages, nodes| {
            let mut status = vec![NOT_REACHED; pages.len()];
            for ((&page, &node), status) in pages.iter().zip(nodes).zip(&mut status) {
                let before = tries.iter().filter(|(tried, _)| *tried == page).count();
                tries.push((page, pages.len()));
                if in_use(page, before) {
                    break;
                }
                *status = if page == 0 { -libc::ENOENT } else { node };
            }
            Ok(status)
        }
    }

    #[test]
    fn a_page_that_is_in_use_holds_up_no_other_and_is_tried_again() {
        let pages: Vec<u64> = (0..100).collect();
        let nodes: Vec<i32> = pages.iter().map(|page| (page % 4) as i32).collect();
        let (mut tries, mut pauses) = (Vec::new(), 0);
        // Page 10 is in use for a moment, page 50 always.
        let call = kernel(&mut tries, |page, before| {
            page == 50 || page == 10 && before < 2
        });
        let status = all_in_turn(&pages, &nodes, call, || pauses += 1).unwrap();
        for (&page, status) in pages.iter().zip(status) {
            let expected = match page {
                0 => -libc::ENOENT,
                50 => -libc::EBUSY,
                _ => (page % 4) as i32,
            };
            assert_eq!(status, expected, "page {page}");
        }
        let tried = |of: u64| tries.iter().filter(|(page, _)| *page == of).count();
        assert_eq!((tried(3), tried(10), tried(50)), (1, 3, ROUNDS));
        assert!(pauses > 0 && pauses < ROUNDS);
    }

    #[test]
    fn pages_of_which_none_is_in_use_take_one_call() {
        let (pages, nodes) = ([4096, 8192], [1, 0]);
        let mut tries = Vec::new();
        let call = kernel(&mut tries, |_, _| false);
        let status = all_in_turn(&pages, &nodes, call, || panic!("nothing to wait for"));
        assert_eq!(status.unwrap(), nodes);
        assert_eq!(tries, [(4096, 2), (8192, 2)]);
    }

    #[test]
    fn an_error_of_the_whole_call_is_passed_on() {
        let call = |_: &[u64], _: &[i32]| Err(io::Error::from_raw_os_error(libc::ESRCH));
        let error = all_in_turn(&[0], &[0], call, || ()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn nodes_that_no_mask_holds_are_refused() {
        let error = prefer(0, 4096, NODES).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        let error = interleave(&[0, NODES]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
}
