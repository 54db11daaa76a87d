//! What the kernel knows of the process, in place of the engine's: its name, its arguments and where its heap begins.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::stack::Stack;
use crate::sys;

/// `struct prctl_mm_map` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Map {
    code: (u64, u64),
    data: (u64, u64),
    heap: (u64, u64),
    stack: u64,
    arguments: (u64, u64),
    environment: (u64, u64),
    /// Unchanged where it is 0.
    auxiliary: u64,
    auxiliary_bytes: u32,
    /// Unchanged where it is no descriptor.
    executable: u32,
}

impl Map {
    /// What `/proc/self/stat` says, with an empty heap.
    fn of(stat: &str) -> Option<Self> {
        // The name before it, in parentheses, may have any bytes; the field after it is the third.
        let fields = stat.rsplit_once(')')?.1;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse().ok();
        Some(Self {
            code: (field(26)?, field(27)?),
            data: (field(45)?, field(46)?),
            heap: (field(47)?, field(47)?),
            stack: field(28)?,
            arguments: (field(48)?, field(49)?),
            environment: (field(50)?, field(51)?),
            auxiliary: 0,
            auxiliary_bytes: 0,
            executable: u32::MAX,
        })
    }
}

/// Whether the kernel gives memory the addresses that programs are linked for, and no random ones.
pub fn is_fixed() -> bool {
    const ASK: u64 = u32::MAX as u64;
    // SAFETY: only asks.
    let set = unsafe { sys::call(libc::SYS_personality, [ASK, 0, 0, 0, 0, 0]) };
    set >= 0 && set & i64::from(libc::ADDR_NO_RANDOMIZE) != 0
}

/// Sets the process's name, its stack with the addresses of arguments and auxiliary vector, and, if given, where its
/// empty heap is.
pub fn set(path: &Path, stack: &Stack, heap: Option<u64>) {
    let arguments = stack.arguments;
    if let Some(name) = path.file_name()
        && let Ok(name) = CString::new(name.as_bytes())
    {
        let set = libc::PR_SET_NAME as u64;
        // SAFETY: the name lives; the kernel truncates it.
        unsafe { sys::call(libc::SYS_prctl, [set, name.as_ptr() as u64, 0, 0, 0, 0]) };
    }
    let set = |what: i32, value: u64, bytes: u64| {
        let arguments = [libc::PR_SET_MM as u64, what as u64, value, bytes, 0, 0];
        // SAFETY: addresses of mapped memory, for tools alone; the heap before, which is the C library's, stays mapped.
        unsafe { sys::call(libc::SYS_prctl, arguments) }
    };
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    if let Some(mut map) = Map::of(&stat) {
        map.stack = stack.sp;
        map.arguments = arguments;
        (map.auxiliary, map.auxiliary_bytes) = (stack.auxiliary.0, stack.auxiliary.1 as u32);
        // SAFETY: asks where the heap ends.
        let end = unsafe { sys::call(libc::SYS_brk, [0; 6]) } as u64;
        map.heap = heap.map_or((map.heap.0, end), |at| (at, at));
        let bytes = size_of::<Map>() as u64;
        if set(libc::PR_SET_MM_MAP, (&raw const map) as u64, bytes) >= 0 {
            return;
        }
    }
    // A kernel without that call: needs a capability; without it, tools show the engine's arguments.
    set(libc::PR_SET_MM_ARG_START, arguments.0, 0);
    set(libc::PR_SET_MM_ARG_END, arguments.1, 0);
}

#[cfg(test)]
mod tests {
    use super::Map;

    #[test]
    fn the_name_of_a_process_may_look_like_fields() {
        let numbers: Vec<String> = (4..=52).map(|number| number.to_string()).collect();
        let map = Map::of(&format!("1 (a) S 7) R {}\n", numbers.join(" "))).unwrap();
        assert_eq!((map.code, map.stack), ((26, 27), 28));
        assert_eq!((map.data, map.heap), ((45, 46), (47, 47)));
        assert_eq!((map.arguments, map.environment), ((48, 49), (50, 51)));
        assert_eq!(Map::of("1 (a) R 4 5"), None);
        assert_eq!(Map::of(""), None);
    }
}
