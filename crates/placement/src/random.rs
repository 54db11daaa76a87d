//! A small random generator with a fixed sequence: the same seed gives the same placement in every release.

/// SplitMix64 (Steele, Lea, Flood 2014): one 64-bit state, every output used once per period.
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0..below` (multiply-shift; the bias is below 2^-32 for any number of nodes).
    pub(crate) fn below(&mut self, below: usize) -> usize {
        let wide = u128::from(self.next()) * below as u128;
        usize::try_from(wide >> 64).expect("below `below`")
    }
}
