//! Nodes of the machine, by the kernel's numbers: where the calling thread runs, and how far nodes are from each other.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize};

/// Nodes whose distances are kept; others are equally far.
const NODES: usize = 64;
/// Distances as the kernel reports them; 0 where it does not.
static DISTANCES: [[AtomicU8; NODES]; NODES] =
    [const { [const { AtomicU8::new(0) }; NODES] }; NODES];
static SEVERAL: AtomicBool = AtomicBool::new(false);
/// The C library's `getcpu`, which makes no system call; 0 if it has none.
static GETCPU: AtomicUsize = AtomicUsize::new(0);

type Getcpu = unsafe extern "C" fn(*mut c_uint, *mut c_uint, *mut c_void) -> c_int;

/// Reads the distances. Called once, while there is one thread.
pub fn read() {
    // SAFETY: a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"getcpu".as_ptr()) };
    GETCPU.store(found as usize, Relaxed);
    let mut known = 0;
    for (node, row) in DISTANCES.iter().enumerate() {
        let mut text = [0; 4 * NODES + 1];
        let Some(length) = file_of(node, &mut text) else {
            continue;
        };
        known += 1;
        let words = text[..length].split(u8::is_ascii_whitespace);
        let words = words.filter(|word| !word.is_empty());
        for (cell, word) in row.iter().zip(words) {
            cell.store(number(word), Relaxed);
        }
    }
    SEVERAL.store(known > 1, Relaxed);
}

/// Reads the file with the distances of a node.
fn file_of(node: usize, text: &mut [u8]) -> Option<usize> {
    let mut path = *b"/sys/devices/system/node/node00/distance\0";
    let digits = &mut path[29..];
    let shift = match node {
        0..10 => {
            digits[0] = b'0' + node as u8;
            1
        }
        _ => {
            digits[0] = b'0' + (node / 10) as u8;
            digits[1] = b'0' + (node % 10) as u8;
            0
        }
    };
    let end = path.len();
    if shift == 1 {
        path.copy_within(31..end, 30);
    }
    // SAFETY: a path that ends in NUL, and a buffer of the given length; the descriptor is closed.
    unsafe {
        let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        let got = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        usize::try_from(got).ok()
    }
}

/// A decimal number; 255 for what does not fit.
fn number(word: &[u8]) -> u8 {
    let digit = |sum: u32, byte: &u8| {
        let sum = sum.saturating_mul(10);
        sum.saturating_add(u32::from(byte.saturating_sub(b'0')))
    };
    u8::try_from(word.iter().fold(0, digit)).unwrap_or(u8::MAX)
}

/// The node on which the calling thread runs; `None` on machines with one.
#[inline]
pub fn here() -> Option<u32> {
    if !SEVERAL.load(Relaxed) {
        return None;
    }
    let mut node = 0;
    let (cpu, node_at) = (std::ptr::null_mut(), &raw mut node);
    let failed = match GETCPU.load(Relaxed) {
        // SAFETY: takes pointers that are null or to a number.
        0 => unsafe { libc::syscall(libc::SYS_getcpu, cpu, node_at, 0) != 0 },
        at => {
            // SAFETY: the C library's function of this type.
            let getcpu = unsafe { std::mem::transmute::<usize, Getcpu>(at) };
            // SAFETY: takes pointers that are null or to a number.
            unsafe { getcpu(cpu, node_at, std::ptr::null_mut()) != 0 }
        }
    };
    (!failed).then_some(node)
}

/// How far two nodes are from each other; 10 is the same node.
pub fn distance(from: u32, to: u32) -> u32 {
    if from == to {
        return 10;
    }
    let cell = DISTANCES.get(from as usize);
    let cell = cell.and_then(|row| row.get(to as usize));
    match cell.map_or(0, |cell| cell.load(Relaxed)) {
        0 => 255,
        known => u32::from(known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_bounded() {
        assert_eq!(number(b"21"), 21);
        assert_eq!(number(b"255"), 255);
        assert_eq!(number(b"1000"), 255);
    }

    #[test]
    fn a_node_is_10_from_itself_and_far_from_an_unknown_one() {
        assert_eq!(distance(3, 3), 10);
        assert_eq!(distance(3, 1_000), 255);
    }
}
