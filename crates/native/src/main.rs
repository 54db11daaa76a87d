//! Runs an unmodified x86-64 program from a code cache and records its accesses: the native frontend.
//!
//! `numaloc-native PROGRAM ARGUMENTS` becomes the program's process. It maps the program ([`loader`]), copies its code
//! block by block into a cache ([`cache`], [`translate`]) and runs it there ([`dispatch`], [`crossing`]). Registers,
//! stack and memory are the program's own, including return addresses on the stack, so unwinding and debugging
//! information remain valid. System calls go through [`syscalls`], signals through [`signals`]; threads are the
//! kernel's with additional state ([`state`], [`blocks`], [`threads`]), and programs that it executes run in the same
//! way. With `--record`, translated code reports the program's accesses to the tracing engine ([`record`]).
//!
//! The engine shares nothing with the program's C library: memory ([`heap`]), locks ([`lock`]) and thread-local storage
//! ([`tls`]) are its own. See `docs/native.md` for its limitations.

#![cfg_attr(not(test), no_main)]
#![cfg_attr(test, allow(dead_code))]
#![deny(unsafe_op_in_unsafe_fn)]

mod blocks;
mod cache;
mod call;
mod changes;
mod crossing;
mod description;
mod dispatch;
mod elf;
mod emit;
mod ending;
mod files;
mod filters;
mod fragment;
mod guest;
mod handover;
mod heap;
mod invalidate;
mod jump;
mod landings;
mod layout;
mod leaving;
mod loader;
mod lock;
#[cfg(not(test))]
mod memory;
mod options;
mod patch;
mod paths;
mod record;
mod regions;
mod signals;
mod singly;
mod stack;
mod state;
mod sys;
mod syscalls;
mod threads;
mod timestamp;
mod tls;
mod translate;
mod xstate;

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use options::Options;
use stack::aux;

#[cfg(not(test))]
#[global_allocator]
static HEAP: heap::Heap = heap::Heap;

/// Bytes of the first stack from the caller of [`begin`] down, below which the program's stack is built. The process's
/// limit of its stack may be small, so the engine starts on a stack of its own.
const ROOM: u64 = 4 << 10;

/// Called by the C library, without Rust's runtime, which would change signals.
///
/// # Safety
/// Called once, as C's `main`.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn main(
    _: c_int,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    /// Bytes of the stack on which the engine starts.
    const STACK: u64 = 512 << 10;
    let here = 0_u64;
    let top = (&raw const here as u64 - ROOM) & !0xfff;
    let Ok(bottom) = sys::map(0, STACK, libc::PROT_READ | libc::PROT_WRITE, 0) else {
        sys::give_up("no memory for a stack");
    };
    let status: c_int;
    // SAFETY: the stack is new; the function gets C's arguments, and r12 keeps this stack for its return.
    unsafe {
        std::arch::asm!("xchg rsp, r12", "call {start}", "mov rsp, r12", start = sym start,
            inout("r12") bottom + STACK => _, in("rdi") argv, in("rsi") envp, in("rdx") top,
            lateout("eax") status, clobber_abi("C"));
    }
    status
}

/// Starts the program, whose stack ends at `top`.
///
/// # Safety
/// Called once, with the arrays that C's `main` gets.
unsafe extern "C" fn start(
    argv: *const *const c_char,
    envp: *const *const c_char,
    top: u64,
) -> c_int {
    // SAFETY: C's main gets arrays of strings that live as long as the process.
    let (arguments, environment) = unsafe { (strings(argv), strings(envp)) };
    // SAFETY: the kernel places the vector after the environment.
    let auxiliary = unsafe { auxiliary(envp.add(environment.len() + 1).cast()) };
    let result = parse(&arguments, &environment).and_then(|(options, program)| {
        let successor = options.file.is_some().then(|| options.clone());
        let began = begin(options, program, &environment, &auxiliary, top);
        began.map_err(|(message, status)| {
            if let Some(options) = successor {
                let name = String::from_utf8_lossy(options.path.as_deref().unwrap_or_default());
                sys::complain(&format!(
                    "{name} cannot be recorded ({message}): it runs natively"
                ));
                // SAFETY: the arguments are this process's own.
                unsafe { handover::natively(&options, argv, &environment) };
            }
            (message, status)
        })
    });
    match result {
        Ok(never) => never,
        Err((message, status)) => {
            sys::complain(&message);
            // SAFETY: ends the process.
            unsafe { libc::_exit(status) }
        }
    }
}

/// # Safety
/// `array` is a null-terminated array of strings that live as long as the process.
unsafe fn strings(array: *const *const c_char) -> Vec<&'static [u8]> {
    let mut strings = Vec::new();
    loop {
        // SAFETY: not past the null pointer.
        let string = unsafe { array.add(strings.len()).read() };
        if string.is_null() {
            return strings;
        }
        // SAFETY: as the caller promises.
        strings.push(unsafe { CStr::from_ptr(string) }.to_bytes());
    }
}

/// # Safety
/// `at` is the process's auxiliary vector.
unsafe fn auxiliary(at: *const (u64, u64)) -> Vec<(u64, u64)> {
    let mut entries = Vec::new();
    loop {
        // SAFETY: not past its end.
        let entry = unsafe { at.add(entries.len()).read() };
        entries.push(entry);
        if entry.0 == aux::NULL {
            return entries;
        }
    }
}

/// The engine's options and the program's arguments, or an error message and exit status.
type Parsed = Result<(Options, Vec<Vec<u8>>), (String, i32)>;

/// The engine's options and the program's arguments: as the engine that executed this program has left them, or from
/// the command line.
fn parse(arguments: &[&'static [u8]], environment: &[&'static [u8]]) -> Parsed {
    let words = |words: &[&[u8]]| -> Vec<Vec<u8>> { words.iter().map(|w| w.to_vec()).collect() };
    if let Some(mut own) = handover::take(environment) {
        own.push(b"--".to_vec());
        own.extend(words(arguments));
        return Options::parse(&own).map_err(|message| (message, 125));
    }
    if handover::library_took_variables(environment) {
        return Err(execute_again(arguments, environment));
    }
    let own = words(arguments.get(1..).unwrap_or_default());
    Options::parse(&own).map_err(|message| (message, 2))
}

fn begin(
    options: Options,
    program: Vec<Vec<u8>>,
    environment: &[&'static [u8]],
    auxiliary: &[(u64, u64)],
    top: u64,
) -> Result<c_int, (String, i32)> {
    files::keep_engine(options.engine);
    let limits = options.limits.clone().unwrap_or_default();
    syscalls::filter::take(options.filters.as_deref().unwrap_or_default());
    numaloc_trace::reservation::announce(syscalls::limits::grow);
    sys::announce(syscalls::limits::grow);
    const FSGSBASE: u64 = 2;
    let capable = |&(kind, value): &(u64, u64)| kind == aux::HWCAP2 && value & FSGSBASE != 0;
    if !auxiliary.iter().any(capable) || xstate::Layout::of_processor().is_none() {
        let message = "needs Linux 5.9 and a processor with FSGSBASE and XSAVEOPT: record with --frontend qemu";
        return Err((message.to_owned(), 125));
    }
    let path = match (&options.path, program.first()) {
        (Some(path), _) => PathBuf::from(OsStr::from_bytes(path)),
        (None, Some(name)) => {
            let name = OsStr::from_bytes(name);
            // A name that is not found fails when it is opened, with the error a shell would name.
            numaloc_launch::find(name).unwrap_or_else(|_| name.into())
        }
        (None, None) => return Err((options::USAGE.to_owned(), 2)),
    };
    tls::learn();
    signals::host::prepare();
    {
        let mut engine = cache::ENGINE.lock();
        engine.heat.all = options.all_paths;
        if let Some(kib) = options.cache_kib {
            engine.limit = engine.limit.min(kib.saturating_mul(1024)).max(256 << 10);
        }
        engine.map(options.record.is_some()).map_err(|errno| {
            let error = std::io::Error::from_raw_os_error(errno);
            (
                format!("no room below 2 GiB for translated code: {error}"),
                125,
            )
        })?;
    }
    let given = loader::Given {
        environment,
        auxiliary,
        top,
    };
    let settings = options.record.clone();
    let check = options.check;
    let start = loader::load(options, &path, program, &given)?;
    syscalls::take_over();
    if check || settings.is_some() {
        loader::leaves_room().map_err(|why| (why, 126))?;
    }
    if check {
        return Ok(0);
    }
    if let Some(settings) = settings {
        numaloc_trace::sites::set_resolver(address_of);
        let program = loader::program();
        record::start(&settings, program, start.pc, sampled).map_err(|why| (why, 125))?;
    }
    syscalls::limits::take(&limits);
    syscalls::limits::again();
    let mask = threads::initial_mask();
    let process = signals::begin();
    threads::first(process, dispatch::start, start.pc, start.sp, mask)
}

/// The program's address of a place: itself, or what the code in the cache before it was translated from.
fn address_of(place: u64) -> u64 {
    match layout::CODE.contains(&place) {
        true => cache::ENGINE.lock().source_before(place).unwrap_or(0),
        false => place,
    }
}

/// A thread's quantum has ended at an address in the cache.
fn sampled(at: u64) {
    cache::ENGINE.lock().sampled(at);
}

/// Executes this program again, without the variables that its C library applied to itself. Returns an error.
fn execute_again(arguments: &[&'static [u8]], environment: &[&'static [u8]]) -> (String, i32) {
    let own = |bytes: &&[u8]| CString::new(*bytes).unwrap_or_default();
    let arguments: Vec<CString> = arguments.iter().map(own).collect();
    let hide =
        |variable: &&'static [u8]| handover::hidden(variable.to_vec()).unwrap_or(own(variable));
    let environment: Vec<CString> = environment.iter().map(hide).collect();
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        let pointers = strings.iter().map(|string| string.as_ptr());
        pointers.chain([std::ptr::null()]).collect()
    };
    let (argv, envp) = (pointers(&arguments), pointers(&environment));
    // SAFETY: null-terminated arrays of strings that live.
    unsafe { libc::execve(c"/proc/self/exe".as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    let error = std::io::Error::last_os_error();
    (format!("cannot execute itself: {error}"), 125)
}
