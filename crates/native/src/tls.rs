//! Thread-local storage for the engine's side of the program's threads.
//!
//! The engine is an ordinary Rust program with a C library, whose code expects a thread control block at fs. The
//! program's threads are created by bare `clone`, so this module builds the block, as the dynamic linker does: the
//! initial image of each module's variables below fs, the header above it.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// Bytes above fs for the C library's description of a thread.
const ABOVE: usize = 4096;

struct Module {
    template: u64,
    file_len: usize,
    /// Distance below fs.
    offset: usize,
}

struct Layout {
    modules: Vec<Module>,
    /// Bytes below fs.
    below: usize,
    /// fs of the thread that called [`learn`].
    fs: u64,
}

static LAYOUT: OnceLock<Layout> = OnceLock::new();

/// The base of fs.
pub fn fs() -> u64 {
    let fs;
    // SAFETY: the processor has the instruction and the kernel allows it: `main` checked.
    unsafe {
        std::arch::asm!("rdfsbase {}", out(reg) fs, options(nomem, nostack, preserves_flags));
    }
    fs
}

/// Sets the base of fs.
///
/// # Safety
/// Code that uses thread-local storage runs only while fs points to a block of this module.
pub unsafe fn set_fs(fs: u64) {
    // SAFETY: as the caller promises.
    unsafe {
        std::arch::asm!("wrfsbase {}", in(reg) fs, options(nostack, preserves_flags));
    }
}

/// Collects the layout of the loaded modules. Called once by the first thread, whose block was made by the C library.
pub fn learn() {
    let mut layout = Layout {
        modules: Vec::new(),
        below: 0,
        fs: fs(),
    };
    // SAFETY: `collect` gets what `dl_iterate_phdr` promises, and the layout lives until it returns.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut layout).cast()) };
    layout.below = layout.below.next_multiple_of(64);
    let _ = LAYOUT.set(layout);
}

unsafe extern "C" fn collect(
    info: *mut libc::dl_phdr_info,
    _: usize,
    layout: *mut c_void,
) -> c_int {
    // SAFETY: both pointers are valid for the call.
    let (info, layout) = unsafe { (&*info, &mut *layout.cast::<Layout>()) };
    // SAFETY: the loader describes its headers.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    for header in headers {
        if header.p_type == libc::PT_TLS && !info.dlpi_tls_data.is_null() {
            let offset = (layout.fs - info.dlpi_tls_data as u64) as usize;
            layout.below = layout.below.max(offset);
            layout.modules.push(Module {
                template: info.dlpi_addr + header.p_vaddr,
                file_len: header.p_filesz as usize,
                offset,
            });
        }
    }
    0
}

/// Bytes that a block needs, a multiple of 64.
pub fn size() -> usize {
    LAYOUT.get().map_or(0, |layout| layout.below) + ABOVE
}

/// Builds a block in `size()` zeroed bytes from `at`, a multiple of 64; returns the value for fs.
///
/// # Safety
/// The bytes are writable, zero and unused.
pub unsafe fn build(at: u64) -> u64 {
    let Some(layout) = LAYOUT.get() else { return 0 };
    let fs = at + layout.below as u64;
    for module in &layout.modules {
        let to = (fs - module.offset as u64) as *mut u8;
        // SAFETY: the template is mapped for as long as the module; the block is big enough.
        unsafe { std::ptr::copy_nonoverlapping(module.template as *const u8, to, module.file_len) };
    }
    // The header: itself, the vector of dynamic modules, itself, and the two guards.
    for word in [0, 1, 2, 5, 6] {
        let value = match word {
            0 | 2 => fs,
            // SAFETY: the first thread's header, made by the C library.
            _ => unsafe { (layout.fs as *const u64).add(word).read() },
        };
        // SAFETY: within the block.
        unsafe { (fs as *mut u64).add(word).write(value) };
    }
    fs
}
