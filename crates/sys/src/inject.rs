//! Preferring a node for memory of another process. Linux has no call for that, so a tracer makes a stopped thread of
//! the process execute `mbind`: one call ([`prefer`]), or a table of them by the machine code [`PREFER_LOOP`].
//!
//! Everything here is numbers and bytes; the tracer writes them into the process.

use crate::memory::NodeMask;

/// A system call: its number and its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Number (x86-64).
    pub number: i64,
    /// Arguments in the kernel's order.
    pub arguments: [u64; 6],
}

/// The call that prefers a node for `length` bytes at `start`. `mask` is the node's, and lies at `mask_address` in the
/// other process.
#[must_use]
pub fn prefer(start: u64, length: u64, mask: &NodeMask, mask_address: u64) -> Call {
    mbind(libc::MPOL_PREFERRED, (start, length), mask, mask_address)
}

/// The call that interleaves new pages of `length` bytes at `start` over the nodes of `mask`, which lies at
/// `mask_address`.
#[must_use]
pub fn interleave(start: u64, length: u64, mask: &NodeMask, mask_address: u64) -> Call {
    mbind(libc::MPOL_INTERLEAVE, (start, length), mask, mask_address)
}

/// `MPOL_WEIGHTED_INTERLEAVE` of <linux/mempolicy.h>.
const MPOL_WEIGHTED_INTERLEAVE: i32 = 6;

/// The call that distributes new pages of `length` bytes at `start` over the nodes of `mask` by the system's
/// [weights](crate::weights); the node of a page follows from its address. `mask` lies at `mask_address`. Kernels
/// before Linux 6.9 answer `EINVAL`.
#[must_use]
pub fn interleave_by_weights(start: u64, length: u64, mask: &NodeMask, mask_address: u64) -> Call {
    mbind(
        MPOL_WEIGHTED_INTERLEAVE,
        (start, length),
        mask,
        mask_address,
    )
}

fn mbind(policy: i32, (start, length): (u64, u64), mask: &NodeMask, mask_address: u64) -> Call {
    Call {
        number: libc::SYS_mbind,
        arguments: [start, length, policy as u64, mask_address, mask.bits(), 0],
    }
}

/// The call that sets the policy of the calling thread's new pages: interleaved over the nodes of `mask`, which lies at
/// `mask_address`, or local without one.
#[must_use]
pub fn own_policy(mask: Option<(&NodeMask, u64)>) -> Call {
    let (policy, address, bits) = match mask {
        Some((mask, address)) => (libc::MPOL_INTERLEAVE, address, mask.bits()),
        None => (libc::MPOL_LOCAL, 0, 0),
    };
    Call {
        number: libc::SYS_set_mempolicy,
        arguments: [policy as u64, address, bits, 0, 0, 0],
    }
}

/// Bytes of a row of the table that [`PREFER_LOOP`] reads.
pub const ROW_BYTES: usize = 32;

/// A row of that table; parameters as of [`prefer`].
#[must_use]
pub fn row(start: u64, length: u64, mask: &NodeMask, mask_address: u64) -> [u8; ROW_BYTES] {
    let mut bytes = [0; ROW_BYTES];
    let words = [start, length, mask_address, mask.bits()];
    for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    bytes
}

/// For each of the r12 rows at rbx: mbind(start, length, MPOL_PREFERRED, mask, bits, 0). Traps after the
/// first failure (rax < 0) and after the last row (r12 = 0).
pub const PREFER_LOOP: [u8; 53] = [
    0x48, 0x8b, 0x3b, // mov rdi, [rbx]
    0x48, 0x8b, 0x73, 0x08, // mov rsi, [rbx+8]
    0xba, 0x01, 0x00, 0x00, 0x00, // mov edx, MPOL_PREFERRED
    0x4c, 0x8b, 0x53, 0x10, // mov r10, [rbx+16]
    0x4c, 0x8b, 0x43, 0x18, // mov r8, [rbx+24]
    0x45, 0x31, 0xc9, // xor r9d, r9d
    0xb8, 0xed, 0x00, 0x00, 0x00, // mov eax, SYS_mbind
    0x0f, 0x05, // syscall
    0x48, 0x83, 0xc3, 0x20, // add rbx, 32
    0x49, 0xff, 0xcc, // dec r12
    0x48, 0x85, 0xc0, // test rax, rax
    0x78, 0x05, // js trap
    0x4d, 0x85, 0xe4, // test r12, r12
    0x75, 0xd1, // jnz start
    0xcc, // trap: int3
    0x90, 0x90, 0x90, 0x90, 0x90,
];
/// Value of rip after the loop's `int3`, relative to its start.
pub const PREFER_LOOP_TRAP: u64 = 48;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_makes_the_call_that_is_made_alone() {
        let mask = NodeMask::of(65);
        let call = prefer(0x1000, 0x2000, &mask, 0x3000);
        let number = u32::from_le_bytes(PREFER_LOOP[24..28].try_into().unwrap());
        assert_eq!(i64::from(number), call.number);
        let policy = u32::from_le_bytes(PREFER_LOOP[8..12].try_into().unwrap());
        let [start, length, kind, address, bits, flags] = call.arguments;
        assert_eq!((u64::from(policy), flags), (kind, 0));
        let bytes = row(0x1000, 0x2000, &mask, 0x3000);
        let words: Vec<u64> = bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word))
            .collect();
        assert_eq!(words, [start, length, address, bits]);
        assert_eq!(PREFER_LOOP[PREFER_LOOP_TRAP as usize - 1], 0xcc);
    }
}
