//! What `numaloc` asks of this library, in the variable of the environment that it sets.

use std::ffi::CStr;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

const VARIABLE: &CStr = c"NUMALOC_DEAL";

const OFF: u8 = 0;
const HOME: u8 = 1;
const TAKE: u8 = 2;

static MODE: AtomicU8 = AtomicU8::new(OFF);

/// Runs when the library is loaded, before the program's own initialisation and while there is one thread.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    // SAFETY: a C string; no other thread changes the environment yet.
    let value = unsafe { libc::getenv(VARIABLE.as_ptr()) };
    if value.is_null() {
        return;
    }
    // SAFETY: values of the environment are C strings.
    let mode = match unsafe { CStr::from_ptr(value) }.to_bytes() {
        b"node" => TAKE,
        b"record" => HOME,
        _ => OFF,
    };
    if mode == TAKE {
        crate::nodes::read();
    }
    MODE.store(mode, Relaxed);
}

/// Whether loops are dealt.
#[inline]
pub fn deals() -> bool {
    MODE.load(Relaxed) != OFF
}

/// Whether threads that have finished take from others. Not while a recording is made, where the speed of threads is
/// not that of the program: the recording shows which iterations belong to which thread.
#[inline]
pub fn takes() -> bool {
    MODE.load(Relaxed) == TAKE
}
