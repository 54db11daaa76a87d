//! Looks up the functions that this library replaces: the next definitions in link order.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The address of the next definition of `name`, looked up on first use.
pub(crate) fn address(cache: &AtomicUsize, name: &CStr) -> usize {
    let known = cache.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: dlsym with a valid C string; the result is an address or null.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    cache.store(found, Ordering::Relaxed);
    found
}

/// `real_address!(name)`: the address of the real function `name`. Aborts the program if no library has it, which
/// cannot happen: the program has called it.
macro_rules! real_address {
    ($name:ident) => {{
        static CACHE: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
            concat!(stringify!($name), "\0").as_bytes(),
        ) {
            Ok(name) => name,
            Err(_) => unreachable!(),
        };
        let address = $crate::real::address(&CACHE, NAME);
        if address == 0 {
            std::process::abort();
        }
        address
    }};
}
pub(crate) use real_address;

/// `real!(name: fn(types) -> type)`: the real function `name` as a function pointer.
macro_rules! real {
    ($name:ident: fn($($type:ty),*) $(-> $result:ty)?) => {{
        let address = $crate::real::real_address!($name);
        // SAFETY: the address is that of the C function `name`, whose type this is.
        unsafe { std::mem::transmute::<usize, unsafe extern "C" fn($($type),*) $(-> $result)?>(address) }
    }};
}
pub(crate) use real;
