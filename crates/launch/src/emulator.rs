//! How qemu-user is started, so that programs with threads can fork.
//!
//! Its library GLib (before 2.76) has a lock around small blocks that is not free in a forked child if another thread
//! of the emulator, such as one that ends, holds it at that moment: the child waits without end. With the allocator of
//! the C library, which is prepared for forks, it does not. The program's own environment stays as it is.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// The variable that chooses GLib's allocator, and the value for that of the C library.
pub const ALLOCATOR: (&str, &str) = ("G_SLICE", "always-malloc");

/// The emulator's options that take [`ALLOCATOR`] out of the program's environment.
pub const HIDES_ALLOCATOR: [&str; 2] = ["-U", ALLOCATOR.0];

/// The entry to add to an environment of `NAME=value`, unless it has one by that name.
#[must_use]
pub fn allocator<'a>(mut environment: impl Iterator<Item = &'a OsStr>) -> Option<OsString> {
    let (name, value) = ALLOCATOR;
    let is_set = environment.any(|entry| {
        let rest = entry.as_bytes().strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| rest.starts_with(b"="))
    });
    (!is_set).then(|| format!("{name}={value}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_the_program_is_kept() {
        let entry = |environment: &[&str]| allocator(environment.iter().map(OsStr::new));
        let added = Some(OsString::from("G_SLICE=always-malloc"));
        assert_eq!(entry(&["A=G_SLICE=1", "G_SLICES=2"]), added);
        assert_eq!(entry(&["A=1", "G_SLICE=debug-blocks"]), None);
    }
}
