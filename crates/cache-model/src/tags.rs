//! Tags of sixteen slots, compared at once.

/// The tags of sixteen slots: one byte each, different for most lines.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(super) struct Tags([u8; 16]);

/// Number of tags.
pub(super) const TAGS: usize = 16;

impl Tags {
    pub const EMPTY: Self = Self([0; 16]);

    #[inline(always)]
    pub fn set(&mut self, at: usize, number: u64) {
        self.0[at % TAGS] = tag(number);
    }

    /// The slots that may hold line `number`, one bit each.
    #[inline(always)]
    pub fn find(&self, number: u64) -> u32 {
        self.equal(tag(number))
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn equal(&self, tag: u8) -> u32 {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_load_si128, _mm_movemask_epi8, _mm_set1_epi8};
        // SAFETY: every x86-64 processor has SSE2; the load is of 16 bytes, aligned as the type says.
        unsafe {
            let tags = _mm_load_si128(self.0.as_ptr().cast());
            _mm_movemask_epi8(_mm_cmpeq_epi8(tags, _mm_set1_epi8(tag as i8))) as u32
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    fn equal(&self, tag: u8) -> u32 {
        let bits = self.0.iter().enumerate();
        bits.fold(0, |found, (at, &byte)| found | u32::from(byte == tag) << at)
    }
}

/// A hash that differs for neighbours and for lines at equal distances.
#[inline(always)]
fn tag(number: u64) -> u8 {
    // 2^64 divided by the golden ratio.
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}
