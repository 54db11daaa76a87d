//! `mlockall` of the guest: QEMU makes the host's call, which would lock the tables as well. Its references to the C
//! library's functions are led to ours.

use std::ffi::{CStr, c_char, c_int, c_void};

use numaloc_trace::locked;

/// An entry of the dynamic section, of the symbol table, and a relocation with an addend, as the ABI lays them out.
type Dynamic = (i64, u64);
#[repr(C)]
struct Symbol {
    name: u32,
    rest: [u32; 5],
}
#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

const JUMP_SLOTS: i64 = 23;
const JUMP_SLOT_BYTES: i64 = 2;
const RELOCATIONS: i64 = 7;
const RELOCATION_BYTES: i64 = 8;
const STRINGS: i64 = 5;
const SYMBOLS: i64 = 6;
/// Kinds of relocations that are addresses of functions: `R_X86_64_GLOB_DAT`, `R_X86_64_JUMP_SLOT`.
const ADDRESSES: [u32; 2] = [6, 7];

fn status(result: Result<(), i32>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            // SAFETY: the thread's own word.
            unsafe { *libc::__errno_location() = errno };
            -1
        }
    }
}

extern "C" fn mlockall(flags: c_int) -> c_int {
    status(locked::lock_all(flags))
}

extern "C" fn munlockall() -> c_int {
    status(locked::unlock_all())
}

/// Leads QEMU's calls of the two functions to ours.
pub fn replace() {
    // SAFETY: the callback takes the structure as it is defined; no data.
    unsafe { libc::dl_iterate_phdr(Some(in_program), std::ptr::null_mut()) };
}

/// Called for each loaded object, of which the first is the program.
unsafe extern "C" fn in_program(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    _: *mut c_void,
) -> c_int {
    // SAFETY: a valid structure, with as many program headers as it says.
    let (base, headers) = unsafe {
        let info = &*info;
        let count = usize::from(info.dlpi_phnum);
        (
            info.dlpi_addr,
            std::slice::from_raw_parts(info.dlpi_phdr, count),
        )
    };
    let section = headers
        .iter()
        .find(|header| header.p_type == libc::PT_DYNAMIC);
    let read_only = headers
        .iter()
        .find(|header| header.p_type == libc::PT_GNU_RELRO);
    if let Some(section) = section {
        let sealed = read_only.map_or(0..0, |header| {
            let start = base + header.p_vaddr;
            start & !4095..start + header.p_memsz
        });
        // SAFETY: the program's own headers say that its dynamic section is there.
        unsafe { replace_in(base, (base + section.p_vaddr) as *const Dynamic, &sealed) };
    }
    // No other object.
    1
}

/// # Safety
/// `section` is the dynamic section of an object that is loaded at `base`.
unsafe fn replace_in(base: u64, section: *const Dynamic, sealed: &std::ops::Range<u64>) {
    let find = |kind: i64| {
        // SAFETY: the section ends with an entry of kind 0.
        let entries = (0..).map(|n| unsafe { section.add(n).read() });
        let mut entries = entries.take_while(|entry| entry.0 != 0);
        entries.find(|entry| entry.0 == kind).map(|entry| entry.1)
    };
    // The loader may have replaced addresses of the file by those in memory.
    let address = |kind: i64| find(kind).map(|at| if at < base { base + at } else { at });
    let (Some(strings), Some(symbols)) = (address(STRINGS), address(SYMBOLS)) else {
        return;
    };
    for (table, bytes) in [
        (JUMP_SLOTS, JUMP_SLOT_BYTES),
        (RELOCATIONS, RELOCATION_BYTES),
    ] {
        let (Some(table), Some(bytes)) = (address(table), find(bytes)) else {
            continue;
        };
        // SAFETY: the section says how many there are.
        let relocations = unsafe {
            let count = bytes as usize / size_of::<Relocation>();
            std::slice::from_raw_parts(table as *const Relocation, count)
        };
        for relocation in relocations {
            if !ADDRESSES.contains(&(relocation.info as u32)) {
                continue;
            }
            // SAFETY: the number of a symbol, which has a name.
            let name = unsafe {
                let symbol = (symbols as *const Symbol).add((relocation.info >> 32) as usize);
                CStr::from_ptr((strings + u64::from((*symbol).name)) as *const c_char)
            };
            let ours = match name.to_bytes() {
                b"mlockall" => mlockall as *const () as u64,
                b"munlockall" => munlockall as *const () as u64,
                _ => continue,
            };
            // SAFETY: the word in which the program has the function's address.
            unsafe { set(base + relocation.offset, ours, sealed) };
        }
    }
}

/// # Safety
/// `at` is a word of the program that contains the address of a function.
unsafe fn set(at: u64, function: u64, sealed: &std::ops::Range<u64>) {
    let page = (at & !4095) as *mut c_void;
    let protect = |protection: c_int| {
        // SAFETY: a page of the program's data, which has been relocated.
        unsafe { libc::mprotect(page, 4096, protection) == 0 }
    };
    if protect(libc::PROT_READ | libc::PROT_WRITE) {
        // SAFETY: as the caller promises; the page is writable.
        unsafe { (at as *mut u64).write(function) };
        if sealed.contains(&at) {
            protect(libc::PROT_READ);
        }
    }
}
