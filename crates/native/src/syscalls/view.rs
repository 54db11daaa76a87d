//! Handles calls in which the kernel would show the engine instead of the program.

use super::{error, maps, plain};
use crate::state::State;
use crate::{files, guest, loader, sys};

const PATH: usize = 4096;

/// Name of a file in this process's folder of /proc, if a path names one.
fn of_this_process(path: &[u8]) -> Option<&[u8]> {
    let rest = path.strip_prefix(b"/proc/")?;
    let slash = rest.iter().position(|&byte| byte == b'/')?;
    let (process, file) = (&rest[..slash], &rest[slash + 1..]);
    // SAFETY: no preconditions.
    let pid = unsafe { sys::call(libc::SYS_getpid, [0; 6]) };
    let own =
        process == b"self" || process == b"thread-self" || process == pid.to_string().as_bytes();
    own.then_some(file)
}

/// Whether a path refers to the running program through /proc.
pub fn is_own_program(path: &[u8]) -> bool {
    of_this_process(path) == Some(b"exe")
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
    let path = files::program().map(|file| format!("/proc/self/fd/{file}"));
    let found = path.and_then(|path| std::fs::read_link(path).ok());
    let found = found.map(|path| path.into_os_string().into_encoded_bytes());
    let program = found.as_deref().unwrap_or(loader::program());
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
    let Some(name) = guest::string(a[path], PATH) else {
        return plain(number, a);
    };
    let flags = a[path + 1];
    let list = of_this_process(&name) == Some(b"maps");
    if list && flags & libc::O_ACCMODE as u64 == libc::O_RDONLY as u64 {
        return maps::open(flags);
    }
    if !is_own_program(&name) {
        return plain(number, a);
    }
    of_program(number, a, path)
}

/// Makes a call for the program's file in place of the path that is its argument number `path`.
fn of_program(number: i64, a: [u64; 6], path: usize) -> i64 {
    let open = files::program().map(|file| format!("/proc/self/fd/{file}").into_bytes());
    let mut name = open.unwrap_or_else(|| loader::program().to_vec());
    name.push(0);
    let mut changed = a;
    changed[path] = name.as_ptr() as u64;
    plain(number, changed)
}

/// Calls that say what a file is without opening it: those about the program's own.
pub fn status(number: i64, a: [u64; 6]) -> Option<i64> {
    let (path, flags) = match number {
        libc::SYS_stat | libc::SYS_access => (0, 0),
        libc::SYS_faccessat => (1, 0),
        libc::SYS_newfstatat | libc::SYS_faccessat2 => (1, a[3]),
        libc::SYS_statx => (1, a[2]),
        _ => return None,
    };
    // Of the link itself, the kernel knows it all.
    let follows = flags & libc::AT_SYMLINK_NOFOLLOW as u64 == 0;
    let own = || guest::string(a[path], PATH).is_some_and(|name| is_own_program(&name));
    (follows && own()).then(|| of_program(number, a, path))
}
