//! What an engine passes to that of the program which it executes: its arguments, in a memory file whose number is in
//! the environment. So the program's own arguments and variables reach the kernel as they are, which checks their
//! length and shows them as the process's.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;

use numaloc_trace::descriptors;

use crate::options::Options;
use crate::syscalls::{filter, limits};
use crate::{files, filters, sys};

/// Beginning of the variable with the number of the memory file.
const VARIABLE: &[u8] = b"NUMALOC_NATIVE_HANDOVER=";

/// Writes arguments to a memory file that the executed program inherits; returns it, and the variable.
pub fn leave(arguments: &[CString]) -> Result<(OwnedFd, CString), i32> {
    let name = c"numaloc".as_ptr() as u64;
    // SAFETY: the string lives.
    let file = unsafe { sys::call(libc::SYS_memfd_create, [name, 0, 0, 0, 0, 0]) };
    if file < 0 {
        return Err(-file as i32);
    }
    // SAFETY: a new descriptor with no other owner.
    let file = unsafe { OwnedFd::from_raw_fd(file as RawFd) };
    let mut bytes: Vec<u8> = Vec::new();
    for argument in arguments {
        bytes.extend(argument.as_bytes_with_nul());
    }
    let _lifted = descriptors::Lifted::for_file(bytes.len() as u64).ok_or(libc::EFBIG)?;
    let (number, at, length) = (file.as_raw_fd() as u64, bytes.as_ptr() as u64, bytes.len());
    // SAFETY: the bytes live.
    let written = unsafe { sys::call(libc::SYS_write, [number, at, length as u64, 0, 0, 0]) };
    if written != length as i64 {
        return Err(libc::ENOSPC);
    }
    let mut variable = VARIABLE.to_vec();
    variable.extend(number.to_string().into_bytes());
    let variable = CString::new(variable).map_err(|_| libc::EINVAL)?;
    Ok((file, variable))
}

/// Whether a variable is that of the handover.
pub fn is_variable(variable: &[u8]) -> bool {
    variable.starts_with(VARIABLE)
}

/// The arguments that the predecessor has left, if there is one.
pub fn take(environment: &[&'static [u8]]) -> Option<Vec<Vec<u8>>> {
    let variable = environment.iter().find(|variable| is_variable(variable))?;
    let number = std::str::from_utf8(&variable[VARIABLE.len()..]).ok()?;
    let number: RawFd = number.parse().ok()?;
    // SAFETY: the predecessor's descriptor, meant for us.
    let file = unsafe { OwnedFd::from_raw_fd(number) };
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        let (number, to) = (file.as_raw_fd() as u64, part.as_mut_ptr() as u64);
        let call = [number, to, part.len() as u64, bytes.len() as u64, 0, 0];
        // SAFETY: writes into the array.
        match unsafe { sys::call(libc::SYS_pread64, call) } {
            0 => break,
            length @ 1.. => bytes.extend(&part[..length as usize]),
            _ => {
                // Not a file of ours.
                let _ = file.into_raw_fd();
                return None;
            }
        }
    }
    let strings = bytes.split_inclusive(|&byte| byte == 0);
    let text = |string: &[u8]| {
        CStr::from_bytes_until_nul(string)
            .ok()
            .map(CStr::to_bytes)
            .map(<[u8]>::to_vec)
    };
    strings.map(text).collect()
}

/// Prefix for the names of variables that the C library would otherwise apply to the engine.
const HIDDEN: &[u8] = b"NUMALOC_NATIVE_HIDDEN_";

fn meant_for_library(variable: &[u8]) -> bool {
    variable.starts_with(b"GLIBC_TUNABLES=")
}

/// A variable of the program's environment as stored in the engine's environment, if it differs.
pub fn hidden(variable: Vec<u8>) -> Option<CString> {
    let meant = meant_for_library(&variable);
    meant.then(|| CString::new([HIDDEN, &variable].concat()).unwrap_or_default())
}

/// A variable of the engine's environment as the program sees it.
pub fn shown_text(variable: &[u8]) -> &[u8] {
    variable.strip_prefix(HIDDEN).unwrap_or(variable)
}

/// Its address.
fn shown(variable: &[u8]) -> u64 {
    shown_text(variable).as_ptr() as u64
}

/// Whether the C library may have applied variables of the program to the engine.
pub fn library_took_variables(environment: &[&'static [u8]]) -> bool {
    environment
        .iter()
        .any(|variable| meant_for_library(variable))
}

/// Executes the program of this successor natively, because it cannot be recorded. Returns if that fails too.
///
/// # Safety
/// `argv` and `envp` are null-terminated arrays of strings.
pub unsafe fn natively(options: &Options, argv: *const *const i8, variables: &[&'static [u8]]) {
    let name = options.path.clone().unwrap_or_default();
    limits::take(options.limits.as_deref().unwrap_or_default());
    limits::for_native();
    filter::for_native(filters::initial());
    let mut pointers: Vec<u64> = Vec::new();
    for variable in variables.iter().filter(|variable| !is_variable(variable)) {
        pointers.push(shown(variable));
    }
    pointers.push(0);
    let environment = pointers.as_ptr() as u64;
    let execute = |folder: i32, path: &CStr, flags: i32| {
        let (path, argv) = (path.as_ptr() as u64, argv as u64);
        let arguments = [folder as u64, path, argv, environment, flags as u64, 0];
        // SAFETY: strings and arrays live; nothing of this process is left if it succeeds.
        unsafe { sys::call(libc::SYS_execveat, arguments) }
    };
    // By its name only if it is a script: of others, the name may lead to the engine.
    let mut mark = [0; 2];
    let named = std::fs::File::open(OsStr::from_bytes(&name));
    let script = named
        .and_then(|file| file.read_exact_at(&mut mark, 0))
        .is_ok()
        && mark == *b"#!";
    if !script && let Some(file) = files::program().or(options.file) {
        execute(file, c"", libc::AT_EMPTY_PATH);
    } else if let Ok(name) = CString::new(name) {
        execute(libc::AT_FDCWD, &name, 0);
    }
}
