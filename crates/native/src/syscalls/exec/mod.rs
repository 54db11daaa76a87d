//! Executing other programs: each runs in an engine of its own, which needs no path: its executable, its arguments and
//! the program's file are open files. The program's arguments and environment are passed as they are.
//!
//! What cannot be recorded runs natively, with one line on standard error.

mod target;

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;

use numaloc_trace::descriptors::{self, Lifted};
use numaloc_trace::{Config, station};

use super::filter;
use super::{all_memory, emulated, error, limits};
use crate::crossing::INTERRUPTED;
use crate::filters::Filter;
use crate::signals::{self, OURS, bit, host_action};
use crate::state::State;
use crate::{files, guest, handover, invalidate, loader, record, sys};
use target::{How, Target};

/// Longest path of the kernel, with its NUL.
const PATH: usize = 4096;
/// Longest string that the kernel passes on, with its NUL.
const STRING: usize = 128 << 10;

/// A call of the program.
struct Request {
    folder: RawFd,
    path: CString,
    /// Addresses of arrays of the program.
    argv: u64,
    envp: u64,
    flags: i32,
}

/// `execve`.
pub fn execve(state: &mut State, a: [u64; 6]) -> i64 {
    let [path, argv, envp, ..] = a;
    execveat(state, [libc::AT_FDCWD as u64, path, argv, envp, 0, 0])
}

/// `execveat`.
pub fn execveat(state: &mut State, a: [u64; 6]) -> i64 {
    let [folder, path, argv, envp, flags, _] = a;
    const KNOWN: i32 = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
    let flags = flags as i32;
    if flags & !KNOWN != 0 {
        // It executes nothing: a check, or an error.
        return super::plain(libc::SYS_execveat, a);
    }
    let path = match name(path) {
        Ok(path) => path,
        Err(errno) => return error(errno),
    };
    let request = Request {
        folder: folder as RawFd,
        path,
        argv,
        envp,
        flags,
    };
    // The program may have reached its limit.
    let lifted = Lifted::for_descriptors();
    let target = match Target::of(&request) {
        Err(libc::EMFILE | libc::ENFILE) => Target::unopened(&request),
        found => found,
    };
    match target {
        Ok(target) => execute(state, &request, target, lifted),
        Err(errno) => error(errno),
    }
}

/// The path at an address.
fn name(at: u64) -> Result<CString, i32> {
    let too_long = || match guest::read::<u8>(at + PATH as u64 - 1) {
        Some(_) => libc::ENAMETOOLONG,
        None => libc::EFAULT,
    };
    let name = guest::string(at, PATH).ok_or_else(too_long)?;
    match name.len() < PATH {
        true => CString::new(name).map_err(|_| libc::ENOENT),
        false => Err(libc::ENAMETOOLONG),
    }
}

/// The program's strings, for an emulator, which gets others before them.
fn strings(at: u64) -> Option<Vec<CString>> {
    guest::pointers(at)?
        .into_iter()
        .map(|at| CString::new(guest::string(at, STRING)?).ok())
        .collect()
}

/// A way to execute the program, with what it refers to.
enum Way {
    Engine {
        engine: RawFd,
        /// Number of the program's file and of the arguments' are in the arguments.
        #[expect(dead_code, reason = "inherited")]
        arguments: OwnedFd,
        #[expect(dead_code, reason = "the environment points to it")]
        variables: Vec<CString>,
        environment: Vec<u64>,
    },
    Emulator {
        file: CString,
        arguments: Vec<CString>,
        environment: Vec<CString>,
    },
    /// For this reason.
    Natively(String),
}

fn pointers(strings: &[CString]) -> Vec<u64> {
    let pointers = strings.iter().map(|string| string.as_ptr() as u64);
    pointers.chain([0]).collect()
}

fn execute(state: &mut State, request: &Request, target: Target, lifted: Lifted) -> i64 {
    let settings = record::successor(state);
    let (way, note) = match choose(state, request, &target, settings.clone()) {
        Ok(chosen) => chosen,
        Err(libc::EMFILE | libc::ENFILE) => natively(target::no_descriptor(&target.name)),
        Err(errno) => return error(errno),
    };
    signals::block_all(state);
    if state.pending != 0 {
        return INTERRUPTED;
    }
    let recorded = !matches!(way, Way::Natively(_));
    if let Way::Natively(why) = &way {
        sys::complain(&format!("{why}: it runs natively"));
    }
    let next = settings
        .as_ref()
        .filter(|_| recorded)
        .map(|settings| Config {
            program: OsStr::from_bytes(&target.name).into(),
            ..settings.clone()
        });
    record::replaced(state, next.as_ref(), note);
    drop(lifted);
    let actions = *state.process.actions.lock();
    // The kernel passes ignored signals and the mask on.
    for number in [libc::SIGSEGV, libc::SIGTRAP] {
        let action = actions[number as usize];
        if OURS & bit(number) != 0 && action.handler == libc::SIG_IGN as u64 {
            host_action(number, Some(&action), None);
        }
    }
    sys::set_signal_mask(state.mask);
    all_memory::pass_on(true);
    let result = call(request, &target, &way, settings.as_ref(), state.filters);
    all_memory::pass_on(false);
    if let Some(next) = &settings {
        record::continued(next);
    }
    for number in [libc::SIGSEGV, libc::SIGTRAP] {
        signals::install(number, &actions[number as usize]);
    }
    result
}

/// How the program is executed, and a note for the profile.
fn choose(
    state: &State,
    request: &Request,
    target: &Target,
    settings: Option<Config>,
) -> Result<(Way, Option<String>), i32> {
    let name = String::from_utf8_lossy(&target.name).into_owned();
    let reason = match &target.how {
        How::Native(why) => return Ok(natively(format!("{name} is {why}"))),
        How::Unopened => return Ok(natively(target::no_descriptor(&target.name))),
        How::Emulated => Some(loader::COLLIDES),
        How::Translated if invalidate::is_frequent() => Some(emulated::WRITES_CODE),
        How::Translated => None,
    };
    if let Some(reason) = reason
        && let Some((file, config)) = emulated::available(settings.as_ref())
    {
        let arguments = strings(request.argv).ok_or(libc::EFAULT)?;
        let mut environment = strings(request.envp).ok_or(libc::EFAULT)?;
        let path = CString::new(target.name.clone()).map_err(|_| libc::ENOENT)?;
        let arguments = emulated::command(&file, config, &path, arguments, &mut environment);
        let note = format!("{name}: recorded under QEMU, because {reason}");
        let way = Way::Emulator {
            file,
            arguments,
            environment,
        };
        return Ok((way, Some(note)));
    }
    let Some(engine) = files::engine() else {
        return Ok(natively(format!(
            "{name} cannot be recorded: the program has closed the recorder's files"
        )));
    };
    let settings =
        settings.and_then(|config| CString::new(config.encode().into_encoded_bytes()).ok());
    let file = (&target.name[..], target.descriptor());
    let mut arguments = loader::command(file, engine, settings);
    let own = |text: Vec<u8>| CString::new(text).unwrap_or_default();
    let filters = filter::passed(state).into_bytes();
    arguments.extend([c"--limits".to_owned(), own(limits::passed())]);
    arguments.extend([c"--filters".to_owned(), own(filters)]);
    let (arguments, variable) = handover::leave(&arguments)?;
    let mut environment = guest::pointers(request.envp).ok_or(libc::EFAULT)?;
    let mut variables = Vec::new();
    for pointer in &mut environment {
        if let Some(hidden) = guest::string(*pointer, STRING).and_then(handover::hidden) {
            *pointer = hidden.as_ptr() as u64;
            variables.push(hidden);
        }
    }
    environment.extend([variable.as_ptr() as u64, 0]);
    variables.push(variable);
    let way = Way::Engine {
        engine,
        arguments,
        variables,
        environment,
    };
    Ok((way, None))
}

fn natively(why: String) -> (Way, Option<String>) {
    let note = format!("{why}: it was not recorded");
    (Way::Natively(why), Some(note))
}

/// Executes the program, or returns an error.
fn call(
    request: &Request,
    target: &Target,
    way: &Way,
    settings: Option<&Config>,
    filters: Option<&'static Filter>,
) -> i64 {
    let file = target.descriptor();
    let execute = |folder: RawFd, path: &CStr, argv: u64, envp: u64, flags: i32| {
        let arguments = [
            folder as u64,
            path.as_ptr() as u64,
            argv,
            envp,
            flags as u64,
            0,
        ];
        // SAFETY: strings and arrays live, or are the program's.
        unsafe { sys::call(libc::SYS_execveat, arguments) }
    };
    let pass_on = |passed| {
        if let Some(settings) = settings {
            station::pass_on(settings, passed);
        }
    };
    let failed = match way {
        Way::Natively(_) => return run(request, file, filters),
        Way::Engine {
            engine,
            environment,
            ..
        } => {
            descriptors::pass_on(*engine, true);
            descriptors::pass_on(file, true);
            pass_on(true);
            limits::set_aside();
            let envp = environment.as_ptr() as u64;
            let failed = execute(*engine, c"", request.argv, envp, libc::AT_EMPTY_PATH);
            descriptors::pass_on(*engine, false);
            failed
        }
        Way::Emulator {
            file,
            arguments,
            environment,
        } => {
            pass_on(true);
            limits::set_aside();
            let (argv, envp) = (pointers(arguments), pointers(environment));
            let (argv, envp) = (argv.as_ptr() as u64, envp.as_ptr() as u64);
            execute(libc::AT_FDCWD, file, argv, envp, 0)
        }
    };
    pass_on(false);
    limits::again();
    // The kernel's errors for the program itself, as far as they do not depend on the file.
    const OWN: [i32; 4] = [libc::E2BIG, libc::EAGAIN, libc::ENOMEM, libc::EFAULT];
    if OWN.iter().any(|&errno| failed == error(errno)) {
        return failed;
    }
    let name = String::from_utf8_lossy(&target.name);
    let why = std::io::Error::from_raw_os_error(-failed as i32);
    sys::complain(&format!(
        "{name} cannot be recorded ({why}): it runs natively"
    ));
    run(request, file, filters)
}

/// Executes the program natively, as it was asked for.
fn run(request: &Request, file: RawFd, filters: Option<&'static Filter>) -> i64 {
    let Request {
        folder,
        ref path,
        argv,
        envp,
        flags,
    } = *request;
    let path = path.as_ptr() as u64;
    let (number, arguments) = if super::view::is_own_program(request.path.to_bytes()) {
        let (empty, flags) = (c"".as_ptr() as u64, libc::AT_EMPTY_PATH as u64);
        (
            libc::SYS_execveat,
            [file as u64, empty, argv, envp, flags, 0],
        )
    } else if folder == libc::AT_FDCWD && flags == 0 {
        // Filters may know this call only.
        (libc::SYS_execve, [path, argv, envp, 0, 0, 0])
    } else {
        (
            libc::SYS_execveat,
            [folder as u64, path, argv, envp, flags as u64, 0],
        )
    };
    limits::for_native();
    filter::for_native(filters);
    // SAFETY: strings and arrays live, or are the program's.
    let failed = unsafe { sys::call(number, arguments) };
    limits::again();
    failed
}
