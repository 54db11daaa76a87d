//! The memory behind a shared mapping, as the kernel identifies it.

use numaloc_model::maps::{self, MapsLine};
use std::mem::MaybeUninit;

/// Identity of a file, a memory file, a System V segment or a piece of anonymous shared memory: equal in all processes
/// that map it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backing {
    /// Device, inode, time of birth (ns; inode numbers are reused), and the source: 0 for `statx`, 1 or 2 (System V)
    /// for `/proc/self/maps`.
    key: [u64; 4],
}

impl Backing {
    /// The backing of a mapping of file `descriptor` at `address`.
    #[must_use]
    pub fn of_file(descriptor: i32, address: u64) -> Option<Self> {
        let mut found = MaybeUninit::<libc::statx>::zeroed();
        // SAFETY: an empty path with AT_EMPTY_PATH is the descriptor's file; the call fills the structure it is given.
        let found = unsafe {
            let status = libc::statx(
                descriptor,
                c"".as_ptr(),
                libc::AT_EMPTY_PATH,
                libc::STATX_BASIC_STATS | libc::STATX_BTIME,
                found.as_mut_ptr(),
            );
            if status != 0 {
                return None;
            }
            found.assume_init()
        };
        // A mapping of /dev/zero is anonymous memory; each has its own inode.
        if u32::from(found.stx_mode) & libc::S_IFMT == libc::S_IFCHR {
            return Self::of_address(address);
        }
        let device = u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor);
        let birth = if found.stx_mask & libc::STATX_BTIME == 0 {
            0
        } else {
            found.stx_btime.tv_sec as u64 * 1_000_000_000 + u64::from(found.stx_btime.tv_nsec)
        };
        Some(Self {
            key: [device, found.stx_ino, birth, 0],
        })
    }

    /// The backing of the anonymous or System V memory mapped at `address`, behind which the kernel keeps a file.
    #[must_use]
    pub fn of_address(address: u64) -> Option<Self> {
        let maps = maps::text(std::fs::read("/proc/self/maps").ok()?);
        maps.lines().find_map(|line| of_line(line, address))
    }

    /// A hash of the backing, unique except for a chance of 2^-64; never 0.
    pub(crate) fn digest(&self) -> u64 {
        let mixed = self.key.iter().fold(0x6e75_6d61_6c6f_6363, |sum, &part| {
            // The mixing function of SplitMix64 (Steele, Lea, Flood, OOPSLA'14).
            let mut z = (sum ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        });
        mixed.max(1)
    }
}

/// The backing on a line of `/proc/self/maps`, if the mapping is shared and holds `address`.
fn of_line(line: &str, address: u64) -> Option<Backing> {
    let found = MapsLine::parse(line)?;
    if !(found.start..found.end).contains(&address) || !found.is_shared() {
        return None;
    }
    // The inode of a System V segment is its id, which may equal that of anonymous memory.
    let kind = if found.name.starts_with("/SYSV") {
        2
    } else {
        1
    };
    Some(Backing {
        key: [found.device, found.inode, 0, kind],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn lines_of_maps_are_distinguished() {
        let anonymous =
            "7f11-7f22 rw-s 00000000 00:01 77                         /dev/zero (deleted)";
        let segment =
            "7f11-7f22 rw-s 00000000 00:01 77                         /SYSV00000000 (deleted)";
        let private =
            "7f11-7f22 rw-p 00000000 00:01 77                         /dev/zero (deleted)";
        let of = |line| of_line(line, 0x7f11);
        assert!(of(anonymous).is_some() && of(segment).is_some());
        assert_ne!(of(anonymous), of(segment));
        assert_eq!(of(private), None);
        assert_eq!(of_line(anonymous, 0x7f22), None);
    }

    #[test]
    fn a_file_has_one_identity_under_any_name_and_descriptor() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("a"), "a").unwrap();
        std::fs::write(at("b"), "b").unwrap();
        std::fs::hard_link(at("a"), at("c")).unwrap();
        let of = |name: &str| {
            let file = std::fs::File::open(at(name)).unwrap();
            Backing::of_file(file.as_raw_fd(), 0).unwrap()
        };
        assert_eq!(of("a"), of("c"));
        assert_ne!(of("a"), of("b"));
        assert_ne!(of("a").digest(), of("b").digest());
        assert_eq!(Backing::of_file(-1, 0), None);
    }
}
