//! The PUs that a thread may run on.
#![allow(unsafe_code)]

use libc::pid_t;
use std::io;

use crate::check;

/// Number of the system call that sets an affinity, for tracers that watch a program's calls.
pub const SET_CALL: i64 = libc::SYS_sched_setaffinity;
/// Number of the system call that reads an affinity.
pub const GET_CALL: i64 = libc::SYS_sched_getaffinity;

/// Largest kernel number of a PU + 1 that masks hold here; Linux builds go up to 8192.
const MAX_PUS: usize = 8192;

/// The PUs that thread `tid` may run on, ascending; 0 is the calling thread.
///
/// # Errors
/// The kernel's: `ESRCH` if there is no such thread.
pub fn get(tid: pid_t) -> io::Result<Vec<u32>> {
    let mut mask = [0_u64; MAX_PUS / 64];
    let bytes = size_of_val(&mask);
    // SAFETY: the kernel writes at most `bytes` bytes into `mask`.
    let got = unsafe { libc::syscall(GET_CALL, tid, bytes, mask.as_mut_ptr()) };
    check(got)?;
    Ok(bits(&mask))
}

/// Restricts thread `tid` to `pus`; 0 is the calling thread.
///
/// # Errors
/// The kernel's: `EINVAL` if none of the PUs is one that the thread may use, `EPERM` for a thread of another user.
pub fn set(tid: pid_t, pus: &[u32]) -> io::Result<()> {
    let mut mask = [0_u64; MAX_PUS / 64];
    for &pu in pus {
        let word = mask
            .get_mut(pu as usize / 64)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        *word |= 1 << (pu % 64);
    }
    let bytes = size_of_val(&mask);
    // SAFETY: the kernel reads at most `bytes` bytes of `mask`.
    check(unsafe { libc::syscall(SET_CALL, tid, bytes, mask.as_ptr()) }).map(drop)
}

/// The NUMA node of the PU on which the calling thread runs; it may be another one a moment later. 0 where the kernel
/// does not say.
#[must_use]
pub fn node() -> u32 {
    let mut node = 0_u32;
    // SAFETY: the kernel writes one number to `node`; null pointers for the PU and the unused cache are permitted.
    unsafe {
        libc::syscall(
            libc::SYS_getcpu,
            std::ptr::null_mut::<u32>(),
            &raw mut node,
            std::ptr::null_mut::<u8>(),
        )
    };
    node
}

/// The set bits of a mask, ascending.
#[must_use]
pub fn bits(mask: &[u64]) -> Vec<u32> {
    (0..mask.len() as u32 * 64)
        .filter(|bit| mask[*bit as usize / 64] >> (bit % 64) & 1 == 1)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_where_it_was_put() {
        std::thread::spawn(|| {
            let allowed = get(0).unwrap();
            let last = *allowed.last().expect("a thread may run somewhere");
            set(0, &[last]).unwrap();
            assert_eq!(get(0).unwrap(), [last]);
            let path = format!("/sys/devices/system/cpu/cpu{last}/node{}", node());
            let known = std::path::Path::new("/sys/devices/system/node/node0").exists();
            assert_eq!(std::path::Path::new(&path).exists(), known, "{path}");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn pus_that_no_kernel_has_are_refused() {
        let error = set(0, &[MAX_PUS as u32]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        assert_eq!(
            set(0, &[]).unwrap_err().raw_os_error(),
            Some(libc::EINVAL),
            "no PU at all"
        );
    }

    #[test]
    fn bits_of_a_mask_are_numbered_across_words() {
        assert_eq!(bits(&[0b101, 1 << 63]), [0, 2, 127]);
    }
}
