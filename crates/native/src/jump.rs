//! Jumps whose target changes while threads execute them.
//!
//! A processor takes instructions from a cache line in parts, of 16 or 32 bytes, and may take one part before another
//! processor's store and the next one after it: of 10^8 jumps whose displacement lay across the middle of a line, up to
//! 570 went to an address made of both targets (AMD EPYC, one store after the other by a second processor). Therefore a
//! displacement lies in an aligned word of eight bytes, the most that all processors change at once for those that
//! execute it.

use crate::emit::Buffer;

impl Buffer {
    /// Emits a jump, conditional or not. Returns the address of its displacement, for
    /// [`retarget`](crate::patch::retarget).
    pub fn jump(&mut self, condition: Option<u8>, to: u64) -> u64 {
        self.align_jump(if condition.is_some() { 2 } else { 1 });
        match condition {
            Some(condition) => self.put(&[0x0f, 0x80 | condition]),
            None => self.put(&[0xe9]),
        }
        let at = self.pc();
        self.put32(to.wrapping_sub(at + 4) as i32);
        at
    }

    /// Emits what has no effect, so that a displacement this many bytes later lies in one word.
    pub fn align_jump(&mut self, later: u64) {
        match 8 - (self.pc() + later) % 8 {
            1 => self.put(&[0x90]),
            2 => self.put(&[0x66, 0x90]),
            3 => self.put(&[0x0f, 0x1f, 0x00]),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::emit::{Buffer, EQUAL};

    #[test]
    fn displacements_lie_in_words() {
        for before in 0..64 {
            for condition in [None, Some(EQUAL)] {
                let mut code = Buffer::new(0x1000);
                code.put_all(&vec![0x90; before]);
                let displacement = code.jump(condition, 0x2000);
                let [first, last] = [displacement, displacement + 3].map(|byte| byte / 8);
                assert_eq!(first, last, "{before} bytes before {condition:?}");
            }
        }
    }
}
