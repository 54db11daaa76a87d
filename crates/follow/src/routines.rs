//! What a thread of the program runs ([`numaloc_trace::identity::routine`]).

use numaloc_trace::identity::routine;

use crate::{memory, owners, unwind};

/// The start routine of a new thread, by its thread pointer, or what that calls for the program; 0 if it is not found.
pub(crate) fn of_thread(thread_pointer: u64) -> u64 {
    let found = routine::of_thread(thread_pointer, memory::word, owners::is_in_file);
    let Some((routine, argument)) = found else {
        return 0;
    };
    let called = || routine::called_by_state(argument?, memory::word, unwind::is_code);
    match owners::starts_states(routine) {
        true => called().unwrap_or(routine),
        false => routine,
    }
}
