//! What a thread runs: its start routine, or what a C++ `std::thread` was given.
//!
//! libstdc++ starts all threads of a `std::thread` with a routine of its own, whose argument is a state of the class
//! `std::thread::_State`: the pointer to its virtual functions (two destructors, `_M_run`), then what it calls and the
//! arguments, the last one first. A function to call is an address in code; otherwise `_M_run` names the type of what
//! is called.

/// Where the start routine may be in glibc's thread descriptor, from the thread pointer on: x86-64 glibc 2.36
/// (Debian 12) and similar versions. The word after it is the routine's argument and the word before it no address, so
/// the routine is the first that points into a mapped file.
const OFFSETS: [u64; 3] = [0x630, 0x638, 0x640];
/// Beginning of the name of the C++ library.
const CPP_LIBRARY: &str = "libstdc++.so.";
/// Words of a state that are searched for the function that it calls.
const SEARCHED: u64 = 16;
/// Place of `_M_run` among the virtual functions of a state.
const RUN: u64 = 2;

/// Whether a library of that name, without folders, starts threads by states.
#[must_use]
pub fn starts_states(library: &str) -> bool {
    library.starts_with(CPP_LIBRARY)
}

/// The start routine of the thread with this thread pointer and its argument, if they are found. `word` reads memory,
/// `is_in_file` says whether an address is in memory of a file.
pub fn of_thread(
    thread_pointer: u64,
    word: impl Fn(u64) -> Option<u64>,
    is_in_file: impl Fn(u64) -> bool,
) -> Option<(u64, Option<u64>)> {
    let at = |offset: u64| word(thread_pointer.checked_add(offset)?);
    let found = OFFSETS.into_iter().find_map(|offset| {
        let routine = at(offset).filter(|&address| address > 4096 && is_in_file(address))?;
        Some((routine, offset + 8))
    });
    found.map(|(routine, argument)| (routine, at(argument)))
}

/// What a `std::thread::_State` calls; `word` reads memory, `is_code` says whether an address is that of a function.
/// The word before a block of the C library's allocator has its size, with flags in the lowest bits.
pub fn called_by_state(
    state: u64,
    word: impl Fn(u64) -> Option<u64>,
    is_code: impl Fn(u64) -> bool,
) -> Option<u64> {
    let functions = word(state)?;
    let run = word(functions.checked_add(8 * RUN)?).filter(|&run| is_code(run))?;
    let size = state.checked_sub(8).and_then(&word).map(|size| size & !15);
    let size = size.filter(|size| (32..8 * SEARCHED).contains(size));
    let end = size.map_or(SEARCHED, |size| (size - 8) / 8);
    let mut words = (1..end).map_while(|at| word(state.checked_add(8 * at)?));
    Some(words.find(|&at| is_code(at)).unwrap_or(run))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_calls_the_function_that_it_has_or_else_its_own() {
        // Virtual functions at 1000, code below 100, states at 2000 (a function and its argument), at 3000 (something
        // else, before memory ends) and at 5000 (the same, in a block of 32 bytes before another one).
        let word = |at: u64| match at {
            4992 => Some(32 | 1),
            5000 => Some(1000),
            5008 | 5016 => Some(700),
            5024 => Some(40),
            1000 | 1008 => Some(10),
            1016 => Some(20),
            2000 | 3000 => Some(1000),
            2008 => Some(500),
            2016 => Some(30),
            3008 => Some(700),
            _ => None,
        };
        let called = |state| called_by_state(state, word, |at| at < 100);
        assert_eq!(called(2000), Some(30));
        assert_eq!(called(3000), Some(20));
        assert_eq!(called(5000), Some(20));
        // No state.
        assert_eq!(called(4000), None);
        assert_eq!(called(2008), None);
    }

    #[test]
    fn the_routine_is_the_first_word_in_a_file_and_its_argument_follows() {
        let word = |at: u64| match at {
            0x1630 => Some(5),
            0x1638 => Some(9000),
            0x1640 => Some(77),
            _ => None,
        };
        let is_in_file = |at: u64| at >= 9000;
        assert_eq!(of_thread(0x1000, word, is_in_file), Some((9000, Some(77))));
        assert_eq!(of_thread(0x1000, word, |_| false), None);
    }
}
