//! The functions of the run-time systems that this library stands in front of.
//!
//! A process may contain several run-time systems: each wheel of Python brings its own, loaded for its users alone. The
//! one that a call is meant for is the one that the dynamic linker would have given to the caller: that of the program
//! and its libraries if they have one, else that of the caller's own dependencies.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicUsize};

/// Most functions of a run-time system that are called.
const FUNCTIONS: usize = 40;
/// Callers with run-time systems of their own that are remembered; further ones are looked up at each call.
const CALLERS: usize = 32;
/// Longest path of a library.
const PATH: usize = 4096;

/// Makes a number other than 0 of each handle: `RTLD_NEXT` is -1.
const OFFSET: usize = 2;

/// A run-time system: where its functions are searched, and those found.
pub struct Runtime {
    /// A handle of the dynamic linker, plus [`OFFSET`]: 0 means that this entry is free.
    handle: AtomicUsize,
    functions: [AtomicUsize; FUNCTIONS],
    /// Whether it is libgomp: 0 not known, 1 no, 2 yes.
    is_libgomp: AtomicUsize,
}

impl Runtime {
    const fn none() -> Self {
        Self {
            handle: AtomicUsize::new(0),
            functions: [const { AtomicUsize::new(0) }; FUNCTIONS],
            is_libgomp: AtomicUsize::new(0),
        }
    }

    /// The function `name`, which has this number; 0 if there is none.
    #[inline]
    pub fn find(&self, number: usize, name: &CStr) -> usize {
        match self.functions[number].load(Relaxed) {
            0 => self.look_up(number, name),
            known => known,
        }
    }

    #[cold]
    fn look_up(&self, number: usize, name: &CStr) -> usize {
        let handle = self.handle.load(Relaxed).wrapping_sub(OFFSET) as *mut c_void;
        // SAFETY: a handle of the dynamic linker and a C string.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) } as usize;
        self.functions[number].store(found, Relaxed);
        found
    }

    /// Whether `function`, one of this run-time system, belongs to libgomp.
    pub fn is_libgomp(&self, function: usize) -> bool {
        match self.is_libgomp.load(Relaxed) {
            0 => {
                let name = file_of(function, |name, _| base(name).starts_with(b"libgomp"));
                let is_libgomp = name.unwrap_or(false);
                self.is_libgomp.store(1 + usize::from(is_libgomp), Relaxed);
                is_libgomp
            }
            known => known == 2,
        }
    }
}

/// The run-time systems of one interface (libgomp's or libomp's).
pub struct Runtimes {
    /// A function that each has.
    probe: &'static CStr,
    /// That of the program and its libraries.
    global: Runtime,
    /// Those of libraries that were loaded for their users alone.
    own: [Runtime; CALLERS],
    /// By caller: start of the library that calls, and its run-time system.
    callers: [(AtomicUsize, AtomicPtr<Runtime>); CALLERS],
}

impl Runtimes {
    /// Those that have the function `probe`.
    pub const fn with(probe: &'static CStr) -> Self {
        Self {
            probe,
            global: Runtime::none(),
            own: [const { Runtime::none() }; CALLERS],
            callers: [const { (AtomicUsize::new(0), AtomicPtr::new(null_mut())) }; CALLERS],
        }
    }

    /// The one for calls from the library that contains `address`.
    #[inline]
    pub fn of(&'static self, address: usize) -> &'static Runtime {
        match self.global.handle.load(Relaxed) {
            0 => self.search(address),
            _ => &self.global,
        }
    }

    #[cold]
    fn search(&'static self, address: usize) -> &'static Runtime {
        // SAFETY: a C string.
        let next = unsafe { libc::dlsym(libc::RTLD_NEXT, self.probe.as_ptr()) };
        if !next.is_null() {
            let handle = (libc::RTLD_NEXT as usize).wrapping_add(OFFSET);
            self.global.handle.store(handle, Release);
            return &self.global;
        }
        let start = file_of(address, |_, start| start).unwrap_or(0);
        for (known, runtime) in &self.callers {
            let runtime = runtime.load(Acquire);
            if known.load(Acquire) == start && !runtime.is_null() {
                // SAFETY: points to an entry of this table, which is static.
                return unsafe { &*runtime };
            }
        }
        let runtime = self.runtime(self.handle_for(address));
        for (known, place) in &self.callers {
            if known.compare_exchange(0, start, Release, Relaxed).is_ok() {
                place.store(std::ptr::from_ref(runtime).cast_mut(), Release);
                break;
            }
        }
        runtime
    }

    /// A handle of the library with the function that a call from `address` is meant for.
    fn handle_for(&self, address: usize) -> usize {
        let mut found = null_mut();
        if let Some(caller) = handle_of(address) {
            // SAFETY: a handle and a C string; the caller's dependencies are searched.
            found = unsafe { libc::dlsym(caller, self.probe.as_ptr()) };
        }
        let own = handle_of(found as usize).or_else(|| loaded_alone(self.probe));
        match own {
            Some(handle) => (handle as usize).wrapping_add(OFFSET),
            // Nothing that the caller expects could be done in its place.
            None => std::process::abort(),
        }
    }

    /// The entry of a handle.
    fn runtime(&'static self, handle: usize) -> &'static Runtime {
        for runtime in &self.own {
            match runtime.handle.compare_exchange(0, handle, Release, Acquire) {
                Ok(_) => return runtime,
                Err(known) if known == handle => return runtime,
                Err(_) => {}
            }
        }
        // More run-time systems than any process has.
        std::process::abort()
    }
}

/// The part of a path behind the last slash.
fn base(name: &[u8]) -> &[u8] {
    name.rsplit(|&byte| byte == b'/').next().unwrap_or(name)
}

/// Calls `use_it` with the path and start of the file that contains `address`.
fn file_of<T>(address: usize, use_it: impl FnOnce(&[u8], usize) -> T) -> Option<T> {
    // SAFETY: all zeroes is a value of this type.
    let mut info = unsafe { std::mem::zeroed::<libc::Dl_info>() };
    // SAFETY: any address may be asked for.
    let found = unsafe { libc::dladdr(address as *const c_void, &raw mut info) } != 0;
    if !found || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a C string of the dynamic linker.
    let name = unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes();
    Some(use_it(name, info.dli_fbase as usize))
}

/// A handle of the loaded library that contains `address`. It stays open: its functions are called from now on.
fn handle_of(address: usize) -> Option<*mut c_void> {
    if address == 0 {
        return None;
    }
    file_of(address, |name, _| open_loaded(name)).flatten()
}

fn open_loaded(name: &[u8]) -> Option<*mut c_void> {
    let mut path = [0_u8; PATH];
    path.get_mut(..name.len())?.copy_from_slice(name);
    let end = *path.last()?;
    if end != 0 {
        return None;
    }
    // SAFETY: a C string; the library is loaded already.
    let found = unsafe { libc::dlopen(path.as_ptr().cast(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    (!found.is_null()).then_some(found)
}

/// What [`loaded_alone`] looks for, and the path found.
struct Search {
    probe: *const c_char,
    found: *mut c_void,
}

/// A handle of the first library that is loaded and has the function `probe`, other than this one.
fn loaded_alone(probe: &CStr) -> Option<*mut c_void> {
    let mut search = Search {
        probe: probe.as_ptr(),
        found: null_mut(),
    };
    // SAFETY: the callback gets this value, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(has_probe), (&raw mut search).cast()) };
    (!search.found.is_null()).then_some(search.found)
}

/// # Safety
/// For `dl_iterate_phdr`: `library` is valid during the call, `search` is a [`Search`].
unsafe extern "C" fn has_probe(
    library: *mut libc::dl_phdr_info,
    _: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: valid (function contract).
    let (library, search) = unsafe { (&*library, &mut *search.cast::<Search>()) };
    if library.dlpi_name.is_null() {
        return 0;
    }
    // SAFETY: a C string (function contract).
    let name = unsafe { CStr::from_ptr(library.dlpi_name) }.to_bytes();
    let runtimes: [&[u8]; 3] = [b"libgomp", b"libomp", b"libiomp"];
    if !runtimes
        .iter()
        .any(|runtime| base(name).starts_with(runtime))
    {
        return 0;
    }
    let Some(handle) = open_loaded(name) else {
        return 0;
    };
    // SAFETY: a handle and a C string.
    if unsafe { libc::dlsym(handle, search.probe) }.is_null() {
        return 0;
    }
    search.found = handle;
    1
}
