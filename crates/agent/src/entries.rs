//! The entry points that are counted: each continues in the real function, with all its arguments.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::board::{ENTRIES, numaloc_marks_board};

/// The real functions, looked up at the first call: a look-up that fails would allocate memory.
static REAL: [AtomicUsize; ENTRIES] = [const { AtomicUsize::new(0) }; ENTRIES];

/// What the arguments of an entry point say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arguments {
    /// Nothing that identifies the place.
    Any,
    /// The first is the function of a region of libgomp.
    First,
    /// The third is the function of a region of libomp.
    Third,
}

/// Counts a call and returns the address of the real function.
extern "C" fn count(entry: usize, first: u64, third: u64) -> usize {
    let Some(&(name, arguments, counted)) = NAMES.get(entry) else {
        // No function below has such a number.
        std::process::abort();
    };
    match arguments {
        Arguments::Any => {}
        Arguments::First => numaloc_marks_board.region(first),
        Arguments::Third => numaloc_marks_board.region(third),
    }
    numaloc_marks_board.entry(counted);
    match REAL[entry].load(Relaxed) {
        0 => look_up(entry, name),
        known => known,
    }
}

#[cold]
fn look_up(entry: usize, name: &str) -> usize {
    let name = name.as_ptr().cast::<c_char>();
    // SAFETY: dlsym with a C string: the names below end in NUL.
    let mut found = unsafe { libc::dlsym(libc::RTLD_NEXT, name) };
    if found.is_null() {
        // A library that was loaded for another one alone (`RTLD_LOCAL`) does not come next.
        found = loaded_alone(name);
    }
    if found.is_null() {
        // Nothing that the caller expects could be done in its place.
        std::process::abort();
    }
    REAL[entry].store(found as usize, Relaxed);
    found as usize
}

/// Base names of the libraries that have entry points; wheels of Python add a number to them.
const RUNTIMES: [&[u8]; 3] = [b"libgomp", b"libomp", b"libiomp"];
/// Longest path of a library.
const PATH: usize = 4096;

/// The function `name` of the first run-time library that is loaded; null if there is none.
fn loaded_alone(name: *const c_char) -> *mut c_void {
    let mut path = [0_u8; PATH];
    // SAFETY: the callback gets this array, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(find_runtime), path.as_mut_ptr().cast()) };
    if path[0] == 0 {
        return null_mut();
    }
    // SAFETY: a C string; the library is loaded already and only its handle is wanted. It stays open, because the
    // function found is called from now on.
    let library =
        unsafe { libc::dlopen(path.as_ptr().cast(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    if library.is_null() {
        return null_mut();
    }
    // SAFETY: a handle and a C string.
    unsafe { libc::dlsym(library, name) }
}

/// Copies the path of a run-time library to `path`, an array of [`PATH`] bytes, and ends the search.
///
/// # Safety
/// For `dl_iterate_phdr`: `library` is valid during the call.
unsafe extern "C" fn find_runtime(
    library: *mut libc::dl_phdr_info,
    _: usize,
    path: *mut c_void,
) -> c_int {
    // SAFETY: valid (function contract); the name is null or a C string.
    let name = unsafe {
        match (*library).dlpi_name {
            name if name.is_null() => return 0,
            name => CStr::from_ptr(name).to_bytes_with_nul(),
        }
    };
    let base = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    if name.len() > PATH || !RUNTIMES.iter().any(|runtime| base.starts_with(runtime)) {
        return 0;
    }
    // SAFETY: the array of the caller has room for the name.
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), path.cast::<u8>(), name.len()) };
    1
}

/// The functions by number: each saves the registers with arguments, counts, and jumps to the real function.
macro_rules! entries {
    ($($number:literal $name:ident $arguments:ident $counted:literal;)*) => {
        /// Name, arguments, and the entry point that it counts for: those of libgomp's regions have one count.
        const NAMES: [(&str, Arguments, usize); ENTRIES - 1] =
            [$((concat!(stringify!($name), "\0"), Arguments::$arguments, $counted),)*];

        $(
            /// Counts, and continues in the function of the same name.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() {
                std::arch::naked_asm!(
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "push rcx",
                    "push r8",
                    "push r9",
                    "push rax",
                    "mov rsi, rdi",
                    concat!("mov edi, ", stringify!($number)),
                    "call {count}",
                    "mov r11, rax",
                    "pop rax",
                    "pop r9",
                    "pop r8",
                    "pop rcx",
                    "pop rdx",
                    "pop rsi",
                    "pop rdi",
                    "jmp r11",
                    count = sym count,
                )
            }
        )*
    };
}

entries! {
    0 GOMP_parallel First 0;
    1 GOMP_parallel_sections First 0;
    2 GOMP_parallel_reductions First 0;
    3 GOMP_parallel_loop_static First 0;
    4 GOMP_parallel_loop_dynamic First 0;
    5 GOMP_parallel_loop_guided First 0;
    6 GOMP_parallel_loop_nonmonotonic_dynamic First 0;
    7 GOMP_parallel_loop_nonmonotonic_guided First 0;
    8 GOMP_parallel_loop_runtime First 0;
    9 GOMP_parallel_loop_nonmonotonic_runtime First 0;
    10 GOMP_parallel_loop_maybe_nonmonotonic_runtime First 0;
    11 __kmpc_fork_call Third 11;
    12 __kmpc_fork_call_if Third 12;
    13 __kmpc_fork_teams Third 13;
    14 GOMP_barrier Any 14;
    15 GOMP_barrier_cancel Any 15;
    16 GOMP_loop_end Any 16;
    17 GOMP_loop_end_cancel Any 17;
    18 GOMP_sections_end Any 18;
    19 GOMP_sections_end_cancel Any 19;
    20 __kmpc_barrier Any 20;
    21 pthread_barrier_wait Any 21;
    22 pthread_create Any 22;
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_model::marks::{ENTRY_POINTS, region_entry};

    #[test]
    fn the_entry_points_are_those_of_the_recorder() {
        // All but `numaloc_mark`, which a program defines itself.
        for (at, (name, _)) in ENTRY_POINTS.iter().enumerate().take(ENTRIES - 1) {
            let (ours, _, counted) = NAMES[at];
            assert_eq!(ours.trim_end_matches('\0'), *name);
            assert_eq!(ENTRY_POINTS[counted].0, region_entry(name));
        }
    }
}
