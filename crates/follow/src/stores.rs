//! Stores that the kernel makes for a thread: where system calls leave their results. The thread that calls `read` into
//! fresh memory places its pages.

use crate::memory;

/// Addresses and lengths of what a system call that returned `result`, not an error, has stored. Results of a few bytes
/// are left out: they lie on stacks, whose pages are in use.
pub fn by_kernel(number: i64, arguments: &[u64; 6], result: i64) -> Vec<(u64, u64)> {
    let [a1, a2, a3, a4, _, _] = *arguments;
    let count = result.max(0) as u64;
    match number {
        libc::SYS_read
        | libc::SYS_pread64
        | libc::SYS_recvfrom
        | libc::SYS_getdents
        | libc::SYS_getdents64
        | libc::SYS_readlink
        | libc::SYS_flistxattr
        | libc::SYS_listxattr
        | libc::SYS_mq_timedreceive => vec![(a2, count)],
        libc::SYS_readlinkat | libc::SYS_getxattr | libc::SYS_fgetxattr => vec![(a3, count)],
        libc::SYS_getrandom | libc::SYS_getcwd => vec![(a1, count)],
        libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2 => scattered(a2, a3, count),
        libc::SYS_process_vm_readv => scattered(a2, a3, count),
        libc::SYS_vmsplice => Vec::new(),
        libc::SYS_recvmsg => message(a2, count),
        libc::SYS_recvmmsg => (0..count.min(1024))
            .flat_map(|number| {
                let at = a2 + number * MESSAGE;
                message(
                    at,
                    memory::word(at + MESSAGE - 8).unwrap_or(0) & 0xffff_ffff,
                )
            })
            .collect(),
        libc::SYS_stat | libc::SYS_fstat | libc::SYS_lstat => vec![(a2, 144)],
        libc::SYS_newfstatat => vec![(a3, 144)],
        libc::SYS_msgrcv => vec![(a2, count + 8)],
        // struct epoll_event has 12 bytes, struct io_event 32.
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => {
            vec![(a2, count * 12)]
        }
        libc::SYS_io_getevents => vec![(a4, count * 32)],
        libc::SYS_mincore => vec![(a3, a2.div_ceil(4096))],
        _ => Vec::new(),
    }
}

/// Bytes of `struct mmsghdr`: `struct msghdr` and a length.
const MESSAGE: u64 = 64;

/// The parts of `count` bytes in the buffers of an array of `struct iovec`.
fn scattered(buffers: u64, number: u64, count: u64) -> Vec<(u64, u64)> {
    let mut left = count;
    let mut parts = Vec::new();
    for at in 0..number.min(1024) {
        let word = |index: u64| memory::word(buffers + at * 16 + index * 8);
        let (Some(base), Some(length)) = (word(0), word(1)) else {
            break;
        };
        let part = length.min(left);
        if part > 0 {
            parts.push((base, part));
        }
        left -= part;
        if left == 0 {
            break;
        }
    }
    parts
}

/// The parts of `count` bytes in the buffers of a `struct msghdr`.
fn message(header: u64, count: u64) -> Vec<(u64, u64)> {
    let word = |index: u64| memory::word(header + index * 8);
    match (word(2), word(3)) {
        (Some(buffers), Some(number)) => scattered(buffers, number, count),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_lie_where_the_call_has_left_them() {
        let read = by_kernel(libc::SYS_read, &[3, 0x5000, 100, 0, 0, 0], 60);
        assert_eq!(read, [(0x5000, 60)]);
        assert_eq!(
            by_kernel(libc::SYS_write, &[1, 0x5000, 100, 0, 0, 0], 60),
            []
        );
        let buffers = [[0x5000u64, 10], [0x7000, 20], [0x9000, 30]];
        let at = buffers.as_ptr() as u64;
        let parts = by_kernel(libc::SYS_readv, &[3, at, 3, 0, 0, 0], 15);
        assert_eq!(parts, [(0x5000, 10), (0x7000, 5)]);
        let header = [0u64, 0, at, 3, 0, 0, 0];
        let header = header.as_ptr() as u64;
        let parts = by_kernel(libc::SYS_recvmsg, &[3, header, 0, 0, 0, 0], 31);
        assert_eq!(parts, [(0x5000, 10), (0x7000, 20), (0x9000, 1)]);
    }
}
