//! Handles calls in which the kernel would show the engine instead of the program.

use super::{error, plain};
use crate::state::State;
use crate::{guest, loader, sys};

const PATH: usize = 4096;

/// Whether a path refers to the running program through /proc.
pub fn is_own_program(path: &[u8]) -> bool {
    let Some(rest) = path.strip_prefix(b"/proc/") else {
        return false;
    };
    let Some(name) = rest.strip_suffix(b"/exe") else {
        return false;
    };
    if name == b"self" || name == b"thread-self" {
        return true;
    }
    // SAFETY: no preconditions.
    let pid = unsafe { sys::call(libc::SYS_getpid, [0; 6]) };
    name == pid.to_string().as_bytes()
}

/// `readlink` and `readlinkat`.
pub fn readlink(_: &State, folder: Option<u64>, path: u64, to: u64, len: u64) -> i64 {
    let own = guest::string(path, PATH).is_some_and(|path| is_own_program(&path));
    if !own {
        return match folder {
            None => plain(libc::SYS_readlink, [path, to, len, 0, 0, 0]),
            Some(folder) => plain(libc::SYS_readlinkat, [folder, path, to, len, 0, 0]),
        };
    }
    let program = loader::program();
    let len = program.len().min(len as usize);
    if len == 0 {
        return error(libc::EINVAL);
    }
    if !guest::write_bytes(to, &program[..len]) {
        return error(libc::EFAULT);
    }
    len as i64
}

/// `open` and `openat`.
pub fn open(_: &State, number: i64, a: [u64; 6]) -> i64 {
    let path = if number == libc::SYS_open { 0 } else { 1 };
    let own = guest::string(a[path], PATH).is_some_and(|path| is_own_program(&path));
    if !own {
        return plain(number, a);
    }
    let mut name = loader::program().to_vec();
    name.push(0);
    let mut changed = a;
    changed[path] = name.as_ptr() as u64;
    plain(number, changed)
}
