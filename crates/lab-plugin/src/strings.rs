//! Counts string instructions (`rep movsb` and similar), which QEMU reports iteration by iteration: each word of
//! 8 bytes counts once, as in a recording (docs/tracing.md), so that predictions and counts are comparable.

/// log2 of the largest number of bytes that count as one access.
const WORD_BITS: u32 = 3;

/// Whether an instruction of 64-bit code is a string instruction with a repeat prefix.
pub fn repeats(code: &[u8]) -> bool {
    let mut repeated = false;
    for &byte in code {
        match byte {
            0xf2 | 0xf3 => repeated = true,
            // Other prefixes: sizes, segments, REX.
            0x66 | 0x67 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x40..=0x4f => {}
            0xa4..=0xa7 | 0xaa..=0xaf => return repeated,
            _ => return false,
        }
    }
    false
}

/// The words that a vCPU's string instruction loaded and stored last.
#[derive(Default)]
pub struct Words([Option<u64>; 2]);

impl Words {
    /// Whether an access at `vaddr` is to another word than the previous one.
    pub fn is_next(&mut self, vaddr: u64, store: bool) -> bool {
        let word = Some(vaddr >> WORD_BITS);
        self.0[usize::from(store)].replace(vaddr >> WORD_BITS) != word
    }

    /// Resets the state after another instruction has accessed memory.
    pub fn forget(&mut self) {
        self.0 = [None; 2];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_instructions_are_recognised_by_their_bytes() {
        // rep movsb, rep stosq, repne scasb, rep movsw, rep lods with an address of 32 bits.
        for code in [
            &[0xf3, 0xa4][..],
            &[0xf3, 0x48, 0xab],
            &[0xf2, 0xae],
            &[0x66, 0xf3, 0xa5],
            &[0x67, 0xf3, 0xac],
        ] {
            assert!(repeats(code), "{code:x?}");
        }
        // movsb alone, movss, ret with a prefix, test al, nothing.
        for code in [
            &[0xa4][..],
            &[0xf3, 0x0f, 0x10, 0x00],
            &[0xf3, 0xc3],
            &[0xf3, 0xa8, 0x01],
            &[],
        ] {
            assert!(!repeats(code), "{code:x?}");
        }
    }

    #[test]
    fn a_word_counts_once_for_loads_and_once_for_stores() {
        let mut words = Words::default();
        let mut count = |range: std::ops::Range<u64>, store| {
            range.filter(|&at| words.is_next(at, store)).count()
        };
        assert_eq!(count(0x1004..0x1020, true), 4);
        assert_eq!(count(0x1004..0x1020, false), 4);
        words.forget();
        assert!(words.is_next(0x101f, true));
    }
}
