//! Follows `execve` and `execveat`: the new program also starts under QEMU with this plugin.
//!
//! qemu-user would start the new program natively, unrecorded. So before the call goes through, this process replaces
//! itself with a QEMU that runs the same file with the same arguments and environment. For a file that cannot be
//! followed (missing, another architecture) the call proceeds as usual, with its usual errors.

use std::ffi::{CString, OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use numaloc_launch::Interpreter;
use numaloc_launch::emulator::{HIDES_ALLOCATOR, allocator};
use numaloc_launch::script::{HEAD_BYTES, MAX_DEPTH};
use numaloc_trace::{Config, Record, station};

use crate::{GuestThread, engine, guest};

/// Replaces this process with a QEMU for the program at `path`, or returns. `arguments` and `environment` are guest
/// addresses.
pub fn follow(thread: &mut GuestThread, path: OsString, arguments: u64, environment: u64) {
    let (Some(arguments), Some(mut environment)) =
        (guest::texts(arguments), guest::texts(environment))
    else {
        return;
    };
    let path = if path == "/proc/self/exe" {
        engine().config().program.clone().into()
    } else {
        path
    };
    let Some((program, arguments)) = resolve(path, arguments) else {
        return;
    };
    let Ok(emulator) = std::fs::read_link("/proc/self/exe") else {
        return;
    };
    let before = engine().config();
    let config = Config {
        program: std::fs::canonicalize(&program).unwrap_or_else(|_| program.clone().into()),
        image: before.image + 1,
        clock: thread.tracer.time(),
        created_threads: thread.tracer.creator.threads(),
        created_processes: thread.tracer.creator.processes(),
        ..before.clone()
    };
    let mut command: Vec<OsString> = vec![emulator.clone().into()];
    if let Some(entry) = allocator(environment.iter().map(OsString::as_os_str)) {
        command.extend(HIDES_ALLOCATOR.map(OsString::from));
        environment.push(entry);
    }
    command.extend([
        "-plugin".into(),
        config.plugin_option(),
        "-0".into(),
        arguments.first().cloned().unwrap_or_default(),
        program,
    ]);
    command.extend(arguments.into_iter().skip(1));
    let Ok(emulator) = CString::new(emulator.into_os_string().into_vec()) else {
        return;
    };
    let (command, environment) = (c_strings(command), c_strings(environment));
    let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
        list.iter()
            .map(|text| text.as_ptr())
            .chain([std::ptr::null()])
            .collect()
    };
    thread.tracer.flush();
    let program = config.program.to_string_lossy().into_owned();
    engine().expect_process(config.path.clone(), config.image, config.clock, program);
    engine().finish();
    station::pass_on(&config, true);
    // SAFETY: NULL-terminated arrays of C strings that live until the call returns, which it does only on failure.
    unsafe {
        libc::execve(
            emulator.as_ptr(),
            pointers(&command).as_ptr(),
            pointers(&environment).as_ptr(),
        );
    }
    let error = std::io::Error::last_os_error();
    station::pass_on(&config, false);
    engine().write(&Record::Withdrawn {
        path: config.path.clone(),
        image: config.image,
    });
    if matches!(
        error.raw_os_error(),
        Some(libc::E2BIG | libc::EAGAIN | libc::ENOMEM)
    ) {
        // So it will be natively.
        return;
    }
    let name = config.program.display();
    eprintln!("numaloc: {name} cannot be recorded ({error}): it runs natively");
    engine().write(&Record::Note(format!(
        "{name} could not be recorded ({error}): it ran natively"
    )));
}

fn c_strings(list: Vec<OsString>) -> Vec<CString> {
    list.into_iter()
        .filter_map(|text| CString::new(text.into_vec()).ok())
        .collect()
}

/// The ELF file to run and its arguments including `argv[0]`, with interpreters of scripts resolved; `None` if it
/// cannot run here.
fn resolve(mut path: OsString, mut arguments: Vec<OsString>) -> Option<(OsString, Vec<OsString>)> {
    for _ in 0..MAX_DEPTH {
        let c_path = CString::new(path.as_bytes()).ok()?;
        // SAFETY: a C string; access only checks.
        if unsafe { libc::access(c_path.as_ptr(), libc::X_OK) } != 0 {
            return None;
        }
        let mut head = Vec::new();
        std::fs::File::open(Path::new(&path))
            .ok()?
            .take(HEAD_BYTES as u64)
            .read_to_end(&mut head)
            .ok()?;
        if let Some(script) = Interpreter::of(&head) {
            let interpreter = script.file.to_owned();
            let mut with = vec![interpreter.clone()];
            with.extend(script.argument.map(OsStr::to_owned));
            with.push(path);
            with.extend(arguments.into_iter().skip(1));
            (path, arguments) = (interpreter, with);
            continue;
        }
        // ELF, 64 bits, little endian, x86-64.
        let ours = head.get(..6)? == b"\x7fELF\x02\x01" && head.get(18..20)? == [62, 0];
        // A leading dash would be taken for an option.
        if path.as_bytes().starts_with(b"-") {
            let mut dotted = OsString::from("./");
            dotted.push(&path);
            path = dotted;
        }
        return ours.then_some((path, arguments));
    }
    None
}
