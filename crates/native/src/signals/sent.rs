//! Signals that the program sends to itself with the code of a fault (`rt_sigqueueinfo`): pure.
//!
//! Our handler regards a signal of an instruction with a positive code as raised by one. A sent one travels with a
//! negative code that no one else uses, from which the handler finds the program's again.

/// Bits that distinguish these codes: the kernel's negative ones are small, so both their highest bits are set.
const MARK: u32 = 0b10 << 30;
const MASK: u32 = 0b11 << 30;

/// The code with which a signal of this code travels.
pub const fn disguised(code: i32) -> i32 {
    match code > 0 && code as u32 & MASK == 0 {
        true => (code as u32 | MARK) as i32,
        false => code,
    }
}

/// The code that the program gave a signal.
pub const fn original(code: i32) -> i32 {
    match code as u32 & MASK {
        MARK => (code as u32 & !MASK) as i32,
        _ => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_found_again_and_those_of_faults_are_negative() {
        for code in [1, 2, 0x80, 0x3fff_ffff] {
            assert!(disguised(code) < 0);
            assert_eq!(original(disguised(code)), code);
        }
        for code in [0, -1, -6, -60, 1 << 30] {
            assert_eq!((disguised(code), original(code)), (code, code));
        }
    }
}
