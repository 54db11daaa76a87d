//! The registers that the address of an access comes from, and the one that its value goes to or comes from: pure.
//!
//! For access traces, which mark loads whose address comes from another load. The state of a thread has, for each
//! general register, the number of the last fetch that its value comes from; loads and stores that are recorded change
//! it by the [`Flow`] of their access, and translated code for other instructions: [`super::follow`].

/// The registers of an access, in one number: 0 if there is nothing to follow.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Flow(u32);

const REGISTER_BITS: u32 = 5;
const JOINS: u32 = 1 << (3 * REGISTER_BITS);
const FOLLOWED: u32 = JOINS << 1;

impl Flow {
    /// Of an access by `base` and `index`, whose value goes to or comes from `value`. `joins`: other values go there
    /// too.
    pub fn new([base, index, value]: [Option<usize>; 3], joins: bool) -> Self {
        let number = |register: Option<usize>, place: u32| {
            register.map_or(0, |register| register as u32 + 1) << (place * REGISTER_BITS)
        };
        let joins = if joins { JOINS } else { 0 };
        Self(number(base, 0) | number(index, 1) | number(value, 2) | joins | FOLLOWED)
    }

    /// As a number.
    pub fn encode(self) -> u32 {
        self.0
    }

    /// The inverse of [`Flow::encode`].
    pub fn decode(number: u32) -> Self {
        Self(number)
    }

    /// Whether there is anything to follow.
    #[inline(always)]
    pub fn is_followed(self) -> bool {
        self.0 & FOLLOWED != 0
    }

    #[inline(always)]
    fn register(self, place: u32) -> Option<usize> {
        let number = self.0 >> (place * REGISTER_BITS) & ((1 << REGISTER_BITS) - 1);
        (number as usize)
            .checked_sub(1)
            .filter(|&register| register < 16)
    }

    /// The fetch that the address comes from.
    #[inline(always)]
    pub fn address(self, fetches: &[u64; 16]) -> u64 {
        let of = |place| self.register(place).map_or(0, |register| fetches[register]);
        of(0).max(of(1))
    }

    /// The fetch that a stored value comes from.
    #[inline(always)]
    pub fn stored(self, fetches: &[u64; 16]) -> u64 {
        self.register(2).map_or(0, |register| fetches[register])
    }

    /// A value was loaded that comes from `fetch`.
    #[inline(always)]
    pub fn load(self, fetches: &mut [u64; 16], fetch: u64) {
        if let Some(register) = self.register(2) {
            let before = if self.0 & JOINS != 0 {
                fetches[register]
            } else {
                0
            };
            fetches[register] = before.max(fetch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAX: usize = 0;
    const RCX: usize = 1;

    #[test]
    fn a_flow_survives_its_encoding_and_takes_the_last_fetch() {
        let flow = Flow::decode(Flow::new([Some(RAX), Some(15), Some(RCX)], true).encode());
        let mut fetches = [0; 16];
        (fetches[RAX], fetches[15], fetches[RCX]) = (7, 9, 12);
        assert_eq!((flow.address(&fetches), flow.stored(&fetches)), (9, 12));
        flow.load(&mut fetches, 10);
        assert_eq!(fetches[RCX], 12, "joined");
        flow.load(&mut fetches, 13);
        assert_eq!(fetches[RCX], 13);
    }
}
