//! Executing other programs, and requests that would interfere with the engine.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::{all_memory, emulated, error, plain, view};
use crate::crossing::INTERRUPTED;
use crate::elf::{self, Kind};
use crate::signals::{self, OURS, bit, host_action, set_host_mask};
use crate::state::State;
use crate::{guest, invalidate, loader, record, sys, timestamp};
use numaloc_launch::Interpreter;
use numaloc_trace::Config;

const STRING: usize = 128 << 10;

/// How a file is executed.
enum How {
    /// By another engine.
    Translated,
    /// By another engine, from a script.
    Script,
    /// By the emulator, if there is one, because a recording needs addresses of the program.
    Emulated,
    /// Natively, because it cannot be translated, for this reason.
    Native(&'static str),
}

fn examine(path: &Path) -> Result<How, i32> {
    let errno = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EIO);
    let metadata = path.metadata().map_err(errno)?;
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| libc::ENOENT)?;
    let arguments = [name.as_ptr() as u64, libc::X_OK as u64, 0, 0, 0, 0];
    // SAFETY: the name lives.
    if unsafe { sys::call(libc::SYS_access, arguments) } < 0 || !metadata.is_file() {
        return Err(libc::EACCES);
    }
    let mode = metadata.permissions().mode();
    // SAFETY: no preconditions.
    let user = unsafe { sys::call(libc::SYS_geteuid, [0; 6]) };
    if mode & 0o4000 != 0 && i64::from(metadata.uid()) != user {
        return Ok(How::Native("set-user-id"));
    }
    let Ok(mut file) = File::open(path) else {
        return Ok(How::Native("not readable"));
    };
    let mut head = Vec::new();
    let len = elf::HEAD as u64;
    file.by_ref()
        .take(len)
        .read_to_end(&mut head)
        .map_err(errno)?;
    match elf::kind(&head) {
        Kind::Program if loader::collides(&file, &head) => Ok(How::Emulated),
        Kind::Program => Ok(How::Translated),
        Kind::Script => {
            let script = Interpreter::of(&head).filter(|script| !script.file.is_empty());
            let interpreter = script.ok_or(libc::ENOEXEC)?.file;
            Path::new(interpreter).metadata().map_err(errno)?;
            Ok(How::Script)
        }
        Kind::OtherProgram => Ok(How::Native("not an x86-64 program")),
        Kind::Neither => Err(libc::ENOEXEC),
    }
}

/// `execve`: the new program runs in another engine.
pub fn execve(state: &mut State, path: u64, argv: u64, envp: u64) -> i64 {
    let Some(path) = guest::string(path, 4096) else {
        return error(libc::EFAULT);
    };
    execute(state, path, argv, envp)
}

/// `execveat`: the same for a file given by a descriptor.
pub fn execveat(state: &mut State, a: [u64; 6]) -> i64 {
    let [folder, path, argv, envp, flags, _] = a;
    let Some(path) = guest::string(path, 4096) else {
        return error(libc::EFAULT);
    };
    let folder = folder as i32;
    if flags & libc::AT_SYMLINK_NOFOLLOW as u64 != 0 {
        return error(libc::EINVAL);
    }
    let path = if path.is_empty() && flags & libc::AT_EMPTY_PATH as u64 != 0 {
        // By name, because the descriptor may be closed by the exec.
        match std::fs::read_link(format!("/proc/self/fd/{folder}")) {
            Ok(path) => path.as_os_str().as_bytes().to_vec(),
            Err(_) => return error(libc::EBADF),
        }
    } else if path.starts_with(b"/") || folder == libc::AT_FDCWD {
        path
    } else {
        let mut whole = format!("/proc/self/fd/{folder}/").into_bytes();
        whole.extend(path);
        whole
    };
    execute(state, path, argv, envp)
}

/// Strings and the null-terminated array of their addresses.
struct Strings {
    #[expect(dead_code, reason = "the pointers point into them")]
    strings: Vec<CString>,
    pointers: Vec<u64>,
}

impl Strings {
    fn new(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|string| string.as_ptr() as u64);
        let pointers = pointers.chain([0]).collect();
        Self { strings, pointers }
    }

    fn read(at: u64) -> Option<Vec<CString>> {
        guest::pointers(at)?
            .into_iter()
            .map(|at| CString::new(guest::string(at, STRING)?).ok())
            .collect()
    }
}

fn encoded(settings: Config) -> Option<CString> {
    CString::new(settings.encode().into_vec()).ok()
}

fn execute(state: &mut State, path: Vec<u8>, argv: u64, envp: u64) -> i64 {
    let path = if view::is_own_program(&path) {
        loader::program().to_vec()
    } else {
        path
    };
    let how = match examine(Path::new(std::ffi::OsStr::from_bytes(&path))) {
        Ok(how) => how,
        Err(errno) => return error(errno),
    };
    let (Some(arguments), Some(mut environment)) = (Strings::read(argv), Strings::read(envp))
    else {
        return error(libc::EFAULT);
    };
    let Ok(path) = CString::new(path) else {
        return error(libc::ENOENT);
    };
    let mut note = None;
    let settings = record::successor(state);
    let reason = match how {
        How::Emulated => Some(loader::COLLIDES),
        How::Translated if invalidate::is_frequent() => Some(emulated::WRITES_CODE),
        _ => None,
    };
    let emulator =
        reason.and_then(|reason| Some((reason, emulated::available(settings.as_ref())?)));
    let (program, arguments, environment) = match (how, emulator) {
        (_, Some((reason, (emulator, config)))) => {
            let name = path.to_string_lossy();
            note = Some(format!("{name}: recorded under QEMU, because {reason}"));
            let command = emulated::command(&emulator, config, &path, arguments, &mut environment);
            (emulator, command, environment)
        }
        (How::Translated | How::Emulated | How::Script, _) => (
            c"/proc/self/exe".to_owned(),
            loader::command(&path, arguments, settings.and_then(encoded)),
            environment.into_iter().map(loader::hide).collect(),
        ),
        (How::Native(why), _) => {
            let name = path.to_string_lossy();
            sys::complain(&format!("{name} is {why}: it runs natively"));
            note = Some(format!("{name} is {why}: it was not recorded"));
            (path, arguments, environment)
        }
    };
    let (arguments, environment) = (Strings::new(arguments), Strings::new(environment));
    signals::block_all(state);
    if state.pending != 0 {
        return INTERRUPTED;
    }
    record::replaced(state, note);
    let actions = *state.process.actions.lock();
    // The kernel passes ignored signals and the mask on.
    for number in [libc::SIGSEGV, libc::SIGTRAP] {
        let action = actions[number as usize];
        if OURS & bit(number) != 0 && action.handler == libc::SIG_IGN as u64 {
            host_action(number, Some(&action), None);
        }
    }
    set_host_mask(state.mask);
    let words = [
        program.as_ptr() as u64,
        arguments.pointers.as_ptr() as u64,
        environment.pointers.as_ptr() as u64,
        0,
        0,
        0,
    ];
    all_memory::pass_on(true);
    // SAFETY: strings and arrays live.
    let result = unsafe { sys::call(libc::SYS_execve, words) };
    all_memory::pass_on(false);
    for number in [libc::SIGSEGV, libc::SIGTRAP] {
        signals::install(number, &actions[number as usize]);
    }
    result
}

/// `arch_prctl`: fs is the program's outside the engine, gs is not available.
pub fn arch_prctl(state: &mut State, a: [u64; 6]) -> i64 {
    const SET_GS: u64 = 0x1001;
    const SET_FS: u64 = 0x1002;
    const GET_FS: u64 = 0x1003;
    const GET_GS: u64 = 0x1004;
    match a[0] {
        SET_FS if a[1] >> 47 != 0 => error(libc::EPERM),
        SET_FS => {
            state.guest_fs = a[1];
            0
        }
        GET_FS if guest::write(a[1], &state.guest_fs) => 0,
        GET_GS if guest::write(a[1], &0_u64) => 0,
        GET_FS | GET_GS => error(libc::EFAULT),
        SET_GS => {
            sys::give_up("the program uses gs: not for this recorder, record with --frontend qemu")
        }
        // Shadow stacks, 0x5000 and above: return addresses in the cache are not on them.
        0x5000.. => error(libc::EINVAL),
        _ => plain(libc::SYS_arch_prctl, a),
    }
}

/// `prctl`.
pub fn prctl(state: &mut State, a: [u64; 6]) -> i64 {
    if let Some(result) = all_memory::prctl(a) {
        return result;
    }
    let tsc = |forbidden| match forbidden {
        true => libc::PR_TSC_SIGSEGV,
        false => libc::PR_TSC_ENABLE,
    };
    match a[0] as i32 {
        libc::PR_SET_SECCOMP => {
            refuse_filter();
            error(libc::EINVAL)
        }
        libc::PR_GET_TSC => match guest::write(a[1], &tsc(state.no_timestamp)) {
            true => 0,
            false => error(libc::EFAULT),
        },
        libc::PR_SET_TSC => {
            let Some(forbidden) = [false, true].into_iter().find(|&f| tsc(f) as u64 == a[1]) else {
                return error(libc::EINVAL);
            };
            state.no_timestamp = forbidden;
            if forbidden && timestamp::guard() {
                invalidate::drop_all(state);
            }
            0
        }
        _ => plain(libc::SYS_prctl, a),
    }
}

/// A filter for the program's calls would also apply to the engine's.
fn refuse_filter() {
    sys::complain(
        "seccomp filters are refused: they would also apply to the recorder, record with --frontend qemu",
    );
}

/// `seccomp`: only questions are answered.
pub fn seccomp(a: [u64; 6]) -> i64 {
    const GET_ACTION_AVAIL: u64 = 2;
    const GET_NOTIF_SIZES: u64 = 3;
    if matches!(a[0], GET_ACTION_AVAIL | GET_NOTIF_SIZES) {
        return plain(libc::SYS_seccomp, a);
    }
    // Libraries ask whether there are filters at all by a filter at address 0.
    if a[2] != 0 {
        refuse_filter();
    }
    error(libc::EINVAL)
}

/// `ptrace` is rejected: a debugger would see the registers of translated code.
pub fn ptrace(_: [u64; 6]) -> i64 {
    sys::complain("ptrace is refused: a debugger would see translated code");
    error(libc::EPERM)
}
