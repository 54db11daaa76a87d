//! What translated code counts with one instruction: the accesses that it takes from a thread's quantum, and their
//! bytes, in one word.
//!
//! The word is [`State::room`]: the accesses taken, minus those granted, times 2^[`SHIFT`], plus the bytes loaded and
//! stored. It is negative while there is room for more. Bytes stored are counted in the tracer as well, so those loaded
//! are the difference. The engine takes both over whenever the thread leaves the cache ([`take`]), and grants what
//! remains of the quantum before it goes back ([`grant`]). Code that has counted accesses before it makes them gives
//! back those that the engine records instead, perhaps after the engine took them over: both numbers may be negative.

use crate::state::State;

/// Number of bits for bytes.
const SHIFT: u32 = 21;
/// Most accesses granted at once: each has at most eight bytes, whose sum is below half of 2^[`SHIFT`].
const MOST: u64 = 1 << 16;

/// Room for these accesses.
const fn empty(granted: u64) -> i64 {
    -((granted as i64) << SHIFT)
}

/// What accesses and all their bytes add to the word.
pub const fn amount(accesses: i32, bytes: i32) -> i64 {
    ((accesses as i64) << SHIFT) + bytes as i64
}

/// The accesses and bytes that have been added to a word in which `granted` accesses had room.
const fn added(word: i64, granted: u64) -> (i64, i64) {
    let bytes = word << (64 - SHIFT) >> (64 - SHIFT);
    let accesses = ((word - bytes) >> SHIFT) + granted as i64;
    (accesses, bytes)
}

/// Takes over what the thread has counted since [`grant`].
#[inline(always)]
pub fn take(state: &mut State) {
    if !state.recording || state.room == empty(state.granted) {
        return;
    }
    let (accesses, bytes) = added(state.room, state.granted);
    state.room = empty(state.granted);
    // SAFETY: initialised while the flag is set.
    let tracer = unsafe { &mut state.seat.0.assume_init_mut().tracer };
    let stored = tracer.bytes_written().wrapping_sub(state.written) as i64;
    tracer.add_counted(accesses, bytes - stored);
}

/// Grants what remains of the quantum.
#[inline(always)]
pub fn grant(state: &mut State) {
    if !state.recording {
        return;
    }
    // SAFETY: initialised while the flag is set.
    let tracer = unsafe { &state.seat.0.assume_init_ref().tracer };
    // Below 0 where code that only counts accesses went beyond the quantum's end.
    let remaining = (tracer.remaining() as i64).max(0) as u64;
    state.granted = remaining.min(MOST);
    state.room = empty(state.granted);
    state.written = tracer.bytes_written();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_negative_while_there_is_room() {
        let word = empty(10);
        assert!(word + amount(9, 72) < 0);
        assert!(word + amount(10, 0) >= 0 && word + amount(10, 80) >= 0);
        assert!(empty(0) >= 0);
    }

    #[test]
    fn accesses_and_bytes_are_found_again() {
        for granted in [1, 7, MOST] {
            let mut word = empty(granted);
            for (accesses, bytes) in [(1, 8), (1, 1), (3, 24), (2, 0)] {
                word += amount(accesses, bytes);
            }
            word -= amount(1, 8);
            assert_eq!(added(word, granted), (6, 25));
        }
        let most = empty(MOST) + amount(MOST as i32, 8 * MOST as i32);
        assert_eq!(added(most, MOST), (MOST as i64, 8 * MOST as i64));
    }

    #[test]
    fn more_may_be_given_back_than_was_added() {
        let word = empty(5) - amount(2, 16);
        assert_eq!(added(word, 5), (-2, -16));
        assert_eq!(added(word + amount(1, 24), 5), (-1, 8));
    }
}
