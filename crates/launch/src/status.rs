//! Exit statuses as a shell reports them.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The status with which tools that start programs (`env`, `timeout`) report a failure of their own.
pub const OWN_FAILURE: u8 = 125;

/// The status of a program that ended by itself, or 128 + the number of the signal that killed it.
#[must_use]
pub fn exit_status(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => status_of_signal(signal),
        (None, None) => OWN_FAILURE,
    }
}

/// The status of a program that `signal` killed: 128 + its number.
#[must_use]
pub fn status_of_signal(signal: i32) -> u8 {
    128_u8.wrapping_add(signal as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_were_killed_have_statuses_above_128() {
        // The encoding of wait(2): the status in the second byte, or a signal in the first.
        assert_eq!(exit_status(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(exit_status(ExitStatus::from_raw(9)), 137);
        assert_eq!(status_of_signal(2), 130);
    }
}
