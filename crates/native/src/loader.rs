//! Loads a program as the kernel's `execve` would: image, dynamic linker, stack.
//!
//! The stack is the process's own, below the part that the engine started on; the engine moves to its own stacks. The
//! break is also the process's own: the engine does not use it.
#![allow(unsafe_code)]

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::cache::ENGINE;
use crate::elf::{self, Headers, Kind, Segment};
use crate::layout::{IMAGES, LINES, TAKEN};
use crate::options::Options;
use crate::stack::{self, aux};
use crate::sys::{self, PAGE, page_down, page_up};
use crate::syscalls::{images_from, room_below};
use crate::{description, files, handover};
use numaloc_launch::Interpreter;
use numaloc_launch::script::MAX_DEPTH;

static PROGRAM: OnceLock<Vec<u8>> = OnceLock::new();
static OPTIONS: OnceLock<Options> = OnceLock::new();

/// Full path of the running program's file.
pub fn program() -> &'static [u8] {
    PROGRAM.get().map_or(&[], Vec::as_slice)
}

/// The emulator, and its plugin, for programs that are not for this recorder.
pub fn emulator() -> Option<&'static (Vec<u8>, Vec<u8>)> {
    OPTIONS.get()?.emulator.as_ref()
}

/// The arguments of an engine for a program executed by this one, whose file is open, recorded with these settings.
pub fn command(
    (name, file): (&[u8], RawFd),
    engine: RawFd,
    record: Option<CString>,
) -> Vec<CString> {
    let own = |bytes: &[u8]| CString::new(bytes).unwrap_or_default();
    let number = |number: RawFd| own(number.to_string().as_bytes());
    let mut command = OPTIONS
        .get()
        .map_or_else(Vec::new, |options| options.to_arguments(record));
    command.extend([c"--path".to_owned(), own(name)]);
    command.extend([c"--file".to_owned(), number(file)]);
    command.extend([c"--engine".to_owned(), number(engine)]);
    command
}

/// An image in memory.
struct Image {
    entry: u64,
    headers: u64,
    count: u16,
    base: u64,
    end: u64,
    interpreter: Option<PathBuf>,
    executable_stack: bool,
    movable: bool,
}

/// The program's initial state.
pub struct Start {
    /// Its first instruction, usually the dynamic linker's.
    pub pc: u64,
    /// Its stack pointer.
    pub sp: u64,
}

/// The process's initial state.
pub struct Given<'a> {
    /// Variables, terminated by NUL in memory.
    pub environment: &'a [&'static [u8]],
    /// The auxiliary vector.
    pub auxiliary: &'a [(u64, u64)],
    /// The stack below this address is free.
    pub top: u64,
}

/// Loads `path` with `arguments`.
///
/// # Errors
/// A message that says why the program cannot run, and the exit status.
pub fn load(
    options: Options,
    path: &Path,
    arguments: Vec<Vec<u8>>,
    given: &Given,
) -> Result<Start, (String, i32)> {
    // SAFETY: the predecessor's descriptor, which it has left for this.
    let file = options.file.map(|file| unsafe { File::from_raw_fd(file) });
    let _ = OPTIONS.set(options);
    let name = path;
    let (file, path, arguments) = interpreted(file, path.to_owned(), arguments)?;
    let whole = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .or_else(|_| path.canonicalize())
        .unwrap_or_else(|_| path.clone());
    let image = map(&path, &file)?;
    files::keep_program(file.into());
    let own = whole.as_os_str().as_bytes();
    let _ = PROGRAM.set(own.to_vec());
    images_from(image.end + (1 << 20));
    let linker = match &image.interpreter {
        Some(linker) => {
            let file = File::open(linker).map_err(|error| failed(linker, &error))?;
            Some(map(linker, &file)?)
        }
        None => None,
    };
    if let Some(linker) = &linker {
        images_from(linker.end + (1 << 20));
    }
    allow_vdso(given.auxiliary);
    let own = [
        (aux::PHDR, image.headers),
        (aux::PHENT, elf::ENTRY),
        (aux::PHNUM, u64::from(image.count)),
        (aux::BASE, linker.as_ref().map_or(0, |linker| linker.base)),
        (aux::ENTRY, image.entry),
    ];
    let variables = given
        .environment
        .iter()
        .filter(|v| !handover::is_variable(v));
    let environment: Vec<&[u8]> = variables
        .map(|variable| handover::shown_text(variable))
        .collect();
    let name = name.as_os_str().as_bytes();
    let stack = stack::build(
        given.top,
        name,
        &arguments,
        &environment,
        given.auxiliary,
        &own,
    );
    // SAFETY: the stack below `top` is free, and grows.
    unsafe {
        let to = stack.sp as *mut u8;
        std::ptr::copy_nonoverlapping(stack.bytes.as_ptr(), to, stack.bytes.len());
    }
    if image.executable_stack {
        let bottom = page_down(stack.sp.saturating_sub(8 << 20));
        let bottom = room_below(stack.sp).unwrap_or(bottom);
        let end = page_down(given.top + (1 << 20));
        ENGINE.lock().source.regions.insert(bottom, end, true);
    }
    let shown = match name.starts_with(b"/dev/fd/") {
        true => whole.as_path(),
        false => Path::new(OsStr::from_bytes(name)),
    };
    // Natively, the heap of a program with fixed addresses follows it; some rely on that where addresses are fixed.
    let heap = (!image.movable && description::is_fixed()).then_some(image.end);
    description::set(shown, &stack, heap);
    numaloc_follow::titles::arguments_at(stack.arguments.0);
    Ok(Start {
        pc: linker.map_or(image.entry, |linker| linker.entry),
        sp: stack.sp,
    })
}

/// Makes the vDSO executable.
fn allow_vdso(auxiliary: &[(u64, u64)]) {
    let Some(&(_, at)) = auxiliary.iter().find(|entry| entry.0 == aux::VDSO) else {
        return;
    };
    // SAFETY: the kernel mapped it, a page at least.
    let head = unsafe { std::slice::from_raw_parts(at as *const u8, PAGE as usize) };
    let headers = elf::header_range(head).and_then(|(offset, len)| {
        let end = offset.checked_add(len)?;
        elf::headers(head, head.get(offset as usize..end as usize)?)
    });
    let Some((start, end)) = headers.as_ref().and_then(bounds) else {
        return;
    };
    let end = at.wrapping_add(end - start);
    ENGINE.lock().source.regions.insert(at, end, false);
}

/// A program, its name and its arguments, or an error message and exit status.
type Found = Result<(File, PathBuf, Vec<Vec<u8>>), (String, i32)>;

/// Resolves `#!` lines to a program. The first file may be open already.
fn interpreted(mut open: Option<File>, mut path: PathBuf, mut arguments: Vec<Vec<u8>>) -> Found {
    // The last one is the program.
    for _ in 0..=MAX_DEPTH {
        let file = match open.take() {
            Some(file) => file,
            None => File::open(&path).map_err(|error| failed(&path, &error))?,
        };
        let mut head = [0; elf::HEAD];
        let len = file
            .read_at(&mut head, 0)
            .map_err(|error| failed(&path, &error))?;
        match elf::kind(&head[..len]) {
            Kind::Program => return Ok((file, path, arguments)),
            Kind::Script => {}
            Kind::OtherProgram => {
                return Err((format!("{}: not an x86-64 program", path.display()), 126));
            }
            Kind::Neither => {
                return Err((format!("{}: not a program", path.display()), 126));
            }
        }
        let script = Interpreter::of(&head[..len]).filter(|script| !script.file.is_empty());
        let Some(Interpreter { file, argument }) = script else {
            return Err((format!("{}: no interpreter", path.display()), 126));
        };
        let interpreter = file.as_bytes().to_vec();
        let script = path.as_os_str().as_bytes().to_vec();
        let mut all = vec![interpreter.clone()];
        all.extend(argument.map(|text| text.as_bytes().to_vec()));
        all.push(script);
        all.extend(arguments.into_iter().skip(1));
        arguments = all;
        path = PathBuf::from(OsStr::from_bytes(&interpreter));
    }
    Err((format!("{}: too many interpreters", path.display()), 126))
}

fn failed(path: &Path, error: &std::io::Error) -> (String, i32) {
    let status = match error.kind() {
        std::io::ErrorKind::NotFound => 127,
        _ => 126,
    };
    (format!("{}: {error}", path.display()), status)
}

/// Maps an image.
fn map(path: &Path, file: &File) -> Result<Image, (String, i32)> {
    let refused = |why: &str| (format!("{}: {why}", path.display()), 126);
    let id = file.metadata().ok().map(|found| (found.dev(), found.ino()));
    let mut head = vec![0; 64];
    file.read_exact_at(&mut head, 0)
        .map_err(|error| failed(path, &error))?;
    let headers = read_headers(file, &head).ok_or_else(|| refused("broken headers"))?;
    let (start, end) = bounds(&headers).ok_or_else(|| refused("broken headers"))?;
    let at = reserve(&headers, start, end - start)
        .ok_or_else(|| refused("its addresses are taken: record with --frontend qemu"))?;
    {
        let mut engine = ENGINE.lock();
        engine.source.mapped.insert(at..at + (end - start));
        let changes = &mut engine.source.changes;
        changes.replaced(at..at + (end - start), false, id);
    }
    let base = at.wrapping_sub(start);
    for segment in &headers.segments {
        if !place(file, segment, base) {
            return Err(refused("cannot be mapped"));
        }
    }
    let mut image = Image {
        entry: base.wrapping_add(headers.entry),
        headers: 0,
        count: headers.count,
        base,
        end: base.wrapping_add(end),
        interpreter: None,
        executable_stack: headers.executable_stack,
        movable: headers.movable,
    };
    let within = |segment: &&Segment| {
        segment.offset <= headers.offset && headers.offset < segment.offset + segment.file_len
    };
    if let Some(segment) = headers.segments.iter().find(within) {
        image.headers = base.wrapping_add(segment.address + headers.offset - segment.offset);
    }
    image.interpreter = named(file, &headers)
        .map_err(|error| failed(path, &error))?
        .map(|name| PathBuf::from(OsStr::from_bytes(&name)));
    Ok(image)
}

/// The name of the dynamic linker.
fn named(file: &File, headers: &Headers) -> std::io::Result<Option<Vec<u8>>> {
    let Some((offset, len)) = headers.interpreter else {
        return Ok(None);
    };
    let mut name = vec![0; len.min(4096) as usize];
    file.read_exact_at(&mut name, offset)?;
    while name.last() == Some(&0) {
        name.pop();
    }
    Ok(Some(name))
}

/// The name of an x86-64 program's dynamic linker, if it has one; `None` if its headers cannot be read.
pub fn interpreter(file: &File, head: &[u8]) -> Option<Option<Vec<u8>>> {
    let headers = read_headers(file, head)?;
    named(file, &headers).ok()
}

/// Why a program that [`collides`] cannot be recorded.
pub const COLLIDES: &str = "it is linked to addresses that the recorder needs";

/// Checks that the loaded program leaves the addresses free that a recording needs.
///
/// # Errors
/// A message for the user.
pub fn leaves_room() -> Result<(), String> {
    let len = TAKEN.end - LINES;
    sys::map(LINES, len, libc::PROT_NONE, libc::MAP_FIXED_NOREPLACE).map_err(
        |errno| match errno {
            libc::EEXIST => COLLIDES.to_owned(),
            _ => format!(
                "no address space for the table of lines: {}",
                std::io::Error::from_raw_os_error(errno)
            ),
        },
    )?;
    // SAFETY: nothing uses the mapping, which was just made.
    unsafe { sys::call(libc::SYS_munmap, [LINES, len, 0, 0, 0, 0]) };
    Ok(())
}

/// Whether an x86-64 program has fixed addresses that a recording needs; false if its headers cannot be read.
pub fn collides(file: &File, head: &[u8]) -> bool {
    let headers = read_headers(file, head).filter(|headers| !headers.movable);
    let bounds = headers.as_ref().and_then(bounds);
    bounds.is_some_and(|(start, end)| start < TAKEN.end && end > TAKEN.start)
}

fn read_headers(file: &File, head: &[u8]) -> Option<Headers> {
    let (offset, len) = elf::header_range(head)?;
    let mut table = vec![0; len as usize];
    file.read_exact_at(&mut table, offset).ok()?;
    elf::headers(head, &table)
}

/// First page and end address of an image.
fn bounds(headers: &Headers) -> Option<(u64, u64)> {
    let first = headers.segments.first()?;
    let last = headers.segments.last()?;
    Some((
        page_down(first.address),
        page_up(last.address + last.memory_len)?,
    ))
}

/// Reserves addresses for an image: its preferred ones, or low ones.
fn reserve(headers: &Headers, start: u64, len: u64) -> Option<u64> {
    let try_at = |at: u64| sys::map(at, len, libc::PROT_NONE, libc::MAP_FIXED_NOREPLACE).ok();
    if !headers.movable {
        return try_at(start);
    }
    const STEP: u64 = 2 << 20;
    let mut at = IMAGES.start;
    while at + len < IMAGES.end {
        if let Some(place) = try_at(at) {
            return Some(place);
        }
        at += STEP;
    }
    None
}

/// Maps a segment over its reservation.
fn place(file: &File, segment: &Segment, base: u64) -> bool {
    let address = base.wrapping_add(segment.address);
    let start = page_down(address);
    let file_end = address + segment.file_len;
    let end = address + segment.memory_len;
    let (Some(file_pages), Some(pages)) = (page_up(file_end), page_up(end)) else {
        return false;
    };
    let executable = segment.prot & libc::PROT_EXEC != 0;
    let mut prot = segment.prot & !libc::PROT_EXEC;
    if executable {
        prot |= libc::PROT_READ;
    }
    let private = libc::MAP_PRIVATE | libc::MAP_FIXED;
    let map = |at: u64, end: u64, flags: i32, fd: u64, offset: u64| {
        let arguments = [at, end - at, prot as u64, flags as u64, fd, offset];
        // SAFETY: within the image's reserved room.
        unsafe { sys::call(libc::SYS_mmap, arguments) as u64 == at }
    };
    let offset = page_down(segment.offset);
    let fd = file.as_raw_fd() as u64;
    if segment.file_len > 0 && !map(start, file_pages, private, fd, offset) {
        return false;
    }
    let zero_from = if segment.file_len > 0 {
        file_pages
    } else {
        start
    };
    if end > file_end && segment.file_len > 0 && prot & libc::PROT_WRITE != 0 {
        let len = (file_pages - file_end) as usize;
        // SAFETY: the rest of the last page, just mapped writable.
        unsafe { (file_end as *mut u8).write_bytes(0, len) };
    }
    let anonymous = private | libc::MAP_ANONYMOUS;
    if pages > zero_from && !map(zero_from, pages, anonymous, u64::MAX, 0) {
        return false;
    }
    if executable {
        let writable = prot & libc::PROT_WRITE != 0;
        ENGINE.lock().source.regions.insert(start, pages, writable);
    }
    true
}
