//! Removes this library from the variable that preloads it, before the program begins.

use std::ffi::{CStr, c_char, c_int};

/// Runs when the library is loaded, before the program's own initialisation.
#[used]
#[unsafe(link_section = ".init_array")]
static RESTORE: unsafe extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) = restore;

const VARIABLE: &[u8] = b"LD_PRELOAD=";
/// Base name of this library.
const FILE: &[u8] = b"libnumaloc_marks.so";

/// The value of the variable without its first entry, if that is this library: `Some(None)` if nothing remains.
fn without_us(value: &[u8]) -> Option<Option<&[u8]>> {
    let (first, rest) = match value.iter().position(|&byte| byte == b':') {
        Some(at) => (&value[..at], Some(&value[at + 1..])),
        None => (value, None),
    };
    let file = first.rsplit(|&byte| byte == b'/').next();
    (file == Some(FILE)).then_some(rest)
}

/// Restores the variable as it was before `numaloc run` put this library in front.
///
/// # Safety
/// For the dynamic linker: `environment` is the program's NULL-terminated environment.
unsafe extern "C" fn restore(_: c_int, _: *mut *mut c_char, environment: *mut *mut c_char) {
    if environment.is_null() {
        return;
    }
    let mut at = environment;
    // SAFETY: the array ends with NULL (function contract).
    while let Some(entry) = unsafe { at.read().as_mut() } {
        // SAFETY: entries of an environment are C strings.
        let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
        let Some(value) = text.strip_prefix(VARIABLE) else {
            // SAFETY: this entry was not NULL, so another follows.
            at = unsafe { at.add(1) };
            continue;
        };
        match without_us(value) {
            Some(Some(rest)) => {
                let from = rest.as_ptr();
                // SAFETY: the rest, with its end, is moved towards the beginning of the same string.
                unsafe {
                    let to = std::ptr::from_mut(entry).cast::<u8>().add(VARIABLE.len());
                    std::ptr::copy(from, to, rest.len() + 1);
                }
            }
            // SAFETY: all entries from the next to the NULL move by one.
            Some(None) => unsafe {
                let mut to = at;
                while !to.read().is_null() {
                    to.write(to.add(1).read());
                    to = to.add(1);
                }
            },
            None => {}
        }
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_entry_is_removed_and_only_if_it_is_ours() {
        let of = |value: &'static str| without_us(value.as_bytes());
        assert_eq!(of("/opt/numaloc/libnumaloc_marks.so"), Some(None));
        assert_eq!(
            of("/opt/libnumaloc_marks.so:a.so:b.so"),
            Some(Some(&b"a.so:b.so"[..]))
        );
        assert_eq!(of("/opt/libnumaloc_marks.so:"), Some(Some(&b""[..])));
        assert_eq!(of("a.so:/opt/libnumaloc_marks.so"), None);
        assert_eq!(of(""), None);
    }

    #[test]
    fn the_environment_is_as_the_user_set_it() {
        let restored = |entries: &[&str]| {
            let owned = entries
                .iter()
                .map(|e| std::ffi::CString::new(*e).unwrap().into_raw());
            let mut array: Vec<*mut c_char> = owned.chain([std::ptr::null_mut()]).collect();
            // SAFETY: an array of C strings that ends with NULL; both are leaked.
            unsafe { restore(0, std::ptr::null_mut(), array.as_mut_ptr()) };
            let left = array.iter().take_while(|entry| !entry.is_null());
            let text = |&entry: &*mut c_char| {
                // SAFETY: a C string.
                let text = unsafe { CStr::from_ptr(entry) };
                text.to_str().unwrap().to_owned()
            };
            left.map(text).collect::<Vec<String>>()
        };
        let ours = "LD_PRELOAD=/x/libnumaloc_marks.so";
        assert_eq!(restored(&["A=1", ours, "B=2"]), ["A=1", "B=2"]);
        let both = format!("{ours}:/y/theirs.so");
        assert_eq!(
            restored(&[&both, "B=2"]),
            ["LD_PRELOAD=/y/theirs.so", "B=2"]
        );
        assert_eq!(
            restored(&["LD_PRELOAD=/y/theirs.so"]),
            ["LD_PRELOAD=/y/theirs.so"]
        );
    }
}
