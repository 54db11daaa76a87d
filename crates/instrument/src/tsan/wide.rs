//! 16-byte atomics, which stable Rust does not have: every operation is a loop around `cmpxchg16b`.

use std::sync::atomic::Ordering;

/// Sixteen bytes of the program's memory.
pub(crate) struct AtomicU128(*mut u128);

impl AtomicU128 {
    /// # Safety
    /// `address` is valid and aligned to 16 for as long as the result is used.
    pub(crate) unsafe fn from_ptr(address: *mut u128) -> Self {
        Self(address)
    }

    /// Replaces `old` by `new` if the value is `old`; returns the value found.
    ///
    /// In assembly: the standard library's own intrinsic becomes a call into libatomic unless the whole crate is
    /// compiled for newer CPUs.
    fn replace(&self, old: u128, new: u128) -> u128 {
        let (mut low, mut high) = (old as u64, (old >> 64) as u64);
        // SAFETY: `from_ptr`'s caller guarantees a valid address aligned to 16; programs with 16-byte atomics are
        // compiled for CPUs with cmpxchg16b; rbx, which the compiler reserves, is restored.
        unsafe {
            std::arch::asm!(
                "xchg rbx, rsi",
                "lock cmpxchg16b [rdi]",
                "mov rbx, rsi",
                in("rdi") self.0,
                inout("rsi") new as u64 => _,
                in("rcx") (new >> 64) as u64,
                inout("rax") low,
                inout("rdx") high,
                options(nostack),
            );
        }
        u128::from(high) << 64 | u128::from(low)
    }

    fn update(&self, change: impl Fn(u128) -> u128) -> u128 {
        let mut old = 0;
        loop {
            let found = self.replace(old, change(old));
            if found == old {
                return old;
            }
            old = found;
        }
    }

    pub(crate) fn load(&self, _: Ordering) -> u128 {
        self.update(|value| value)
    }

    pub(crate) fn store(&self, value: u128, _: Ordering) {
        self.update(|_| value);
    }

    pub(crate) fn swap(&self, value: u128, _: Ordering) -> u128 {
        self.update(|_| value)
    }

    pub(crate) fn fetch_add(&self, value: u128, _: Ordering) -> u128 {
        self.update(|old| old.wrapping_add(value))
    }

    pub(crate) fn fetch_sub(&self, value: u128, _: Ordering) -> u128 {
        self.update(|old| old.wrapping_sub(value))
    }

    pub(crate) fn fetch_and(&self, value: u128, _: Ordering) -> u128 {
        self.update(|old| old & value)
    }

    pub(crate) fn fetch_or(&self, value: u128, _: Ordering) -> u128 {
        self.update(|old| old | value)
    }

    pub(crate) fn fetch_xor(&self, value: u128, _: Ordering) -> u128 {
        self.update(|old| old ^ value)
    }

    pub(crate) fn fetch_nand(&self, value: u128, _: Ordering) -> u128 {
        self.update(|old| !(old & value))
    }

    pub(crate) fn compare_exchange(
        &self,
        old: u128,
        new: u128,
        _: Ordering,
        _: Ordering,
    ) -> Result<u128, u128> {
        let found = self.replace(old, new);
        if found == old { Ok(found) } else { Err(found) }
    }
}
