//! The program under study, a kernel of given sizes, as a command line.

use std::ffi::OsString;
use std::path::Path;

use numaloc_kernels::Kernel;

/// A kernel with its sizes.
#[derive(Clone, Copy)]
pub(super) struct Program<'a> {
    pub kernel: &'a Kernel,
    /// Our own executable.
    pub own: &'a Path,
    pub threads: usize,
    pub bytes: u64,
    pub iterations: u64,
}

impl Program<'_> {
    /// Its command line.
    pub fn words(&self) -> Vec<OsString> {
        let mut words = vec![
            self.own.into(),
            "validate".into(),
            super::kernel::KERNEL.into(),
        ];
        words.push(self.kernel.name.into());
        for (name, value) in [
            ("--threads", self.threads as u64),
            ("--size", self.bytes),
            ("--iterations", self.iterations),
        ] {
            words.push(name.into());
            words.push(value.to_string().into());
        }
        words
    }
}
