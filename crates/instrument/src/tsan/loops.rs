//! Loops that gcc announces with one call, before or after they run: `shims/gcc/loops.cc` inserts the calls,
//! `docs/formats/loop-calls.md` defines them.

use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use numaloc_trace::block::{Form, Kind, Piece, REGISTERS, Step, Strides};
use numaloc_trace::thread::{Loop, WORD, When};

use super::access;
use crate::current;

/// A loop as described in its compilation unit, followed by the words of its values and pieces.
#[repr(C)]
pub struct Description {
    /// The engine's form of the loop, null before its first run.
    known: AtomicPtr<Loop>,
    values: u64,
    pieces: u64,
}

impl Description {
    /// The counts, and the words after them.
    ///
    /// # Safety
    /// `this` was made by the compiler's plugin.
    unsafe fn words<'a>(this: *const Self) -> (&'a Self, &'a [u64]) {
        // SAFETY: as the caller guarantees: two words for each value and each piece, which are never written.
        unsafe {
            let counts = &*this;
            let count = 2 * (counts.values + counts.pieces) as usize;
            (
                counts,
                std::slice::from_raw_parts(this.add(1).cast(), count),
            )
        }
    }

    /// The engine's form of the loop, which is called at `caller`; created at its first run and kept.
    ///
    /// # Safety
    /// As for [`Description::words`].
    unsafe fn known<'a>(this: *const Self, caller: u64) -> &'a Loop {
        // SAFETY: as the caller guarantees.
        let (counts, words) = unsafe { Self::words(this) };
        let mut known = counts.known.load(Acquire);
        if known.is_null() {
            let (values, pieces) = words.split_at(2 * counts.values as usize);
            let mut made = described(values, pieces);
            made.set_place(caller);
            let made = Box::into_raw(Box::new(made));
            known = match counts
                .known
                .compare_exchange(null_mut(), made, Release, Acquire)
            {
                Ok(_) => made,
                Err(other) => {
                    // SAFETY: made above, and not shared yet.
                    drop(unsafe { Box::from_raw(made) });
                    other
                }
            };
        }
        // SAFETY: from a Box that is never freed.
        unsafe { &*known }
    }
}

/// The loop described by the words of its `values` and `pieces`.
fn described(values: &[u64], pieces: &[u64]) -> Loop {
    let mut strides: Strides = [Some(Step::default()); REGISTERS];
    for (stride, value) in strides.iter_mut().zip(values.chunks_exact(2)) {
        *stride = Some(Step {
            constant: value[0],
            register: value[1].checked_sub(1).map(|by| by as u8),
        });
    }
    // A piece wider than a word counts once per word.
    let parts = |words: &[u64]| {
        let (place, displacement) = (words[0], words[1]);
        let size = (place >> 8) as u8;
        let part = move |at: u8| Piece {
            form: Form {
                base: Some(place as u8),
                index: None,
            },
            displacement: displacement.wrapping_add(at.into()),
            size: (size - at).min(WORD as u8),
            kind: match place >> 16 {
                0 => Kind::Read,
                _ => Kind::Write,
            },
        };
        (0..size).step_by(WORD as usize).map(part)
    };
    let pieces: Vec<Piece> = pieces.chunks_exact(2).flat_map(parts).collect();
    Loop::new(&pieces, strides)
}

/// Called by instrumented code before a loop of `iterations`, the first with `values`.
///
/// # Safety
/// Called by code that the compiler's plugin has made, with as many values as the description states.
#[unsafe(no_mangle)]
#[cfg_attr(target_arch = "x86_64", unsafe(naked))]
pub unsafe extern "C" fn __numaloc_loop_1(
    description: *const Description,
    iterations: u64,
    values: *const u64,
) {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("mov rcx, rsp", "jmp {}", sym before);
    // SAFETY: as the caller guarantees.
    #[cfg(not(target_arch = "x86_64"))]
    unsafe {
        before(description, iterations, values, std::ptr::null());
    }
}

/// Called by instrumented code after a loop of which it has counted the `iterations`; the first had `values`.
///
/// # Safety
/// As for [`__numaloc_loop_1`].
#[unsafe(no_mangle)]
#[cfg_attr(target_arch = "x86_64", unsafe(naked))]
pub unsafe extern "C" fn __numaloc_looped_1(
    description: *const Description,
    iterations: u64,
    values: *const u64,
) {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("mov rcx, rsp", "jmp {}", sym after);
    // SAFETY: as the caller guarantees.
    #[cfg(not(target_arch = "x86_64"))]
    unsafe {
        after(description, iterations, values, std::ptr::null());
    }
}

/// [`__numaloc_loop_1`] with the place of its return address.
///
/// # Safety
/// As for [`__numaloc_loop_1`].
unsafe extern "C" fn before(
    description: *const Description,
    iterations: u64,
    values: *const u64,
    caller: *const u64,
) {
    // SAFETY: as the caller guarantees.
    unsafe { record(description, iterations, values, When::Before, caller) }
}

/// [`__numaloc_looped_1`] with the place of its return address.
///
/// # Safety
/// As for [`__numaloc_loop_1`].
unsafe extern "C" fn after(
    description: *const Description,
    iterations: u64,
    values: *const u64,
    caller: *const u64,
) {
    // SAFETY: as the caller guarantees.
    unsafe { record(description, iterations, values, When::After, caller) }
}

/// Records a loop.
///
/// # Safety
/// As for [`__numaloc_loop_1`].
#[inline(always)]
unsafe fn record(
    description: *const Description,
    iterations: u64,
    values: *const u64,
    when: When,
    caller: *const u64,
) {
    current::with(|tracer| {
        // SAFETY: as the caller guarantees.
        let known = unsafe { Description::known(description, access::place(caller)) };
        let mut registers = [0; REGISTERS];
        // SAFETY: as above.
        let count = unsafe { (*description).values as usize };
        for (at, register) in registers[..count].iter_mut().enumerate() {
            // SAFETY: as above. Volatile, because a call of `memcpy` would be recorded as the program's.
            *register = unsafe { values.add(at).read_volatile() };
        }
        tracer.recorded_loop(known, &registers, iterations, when);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_as_documented() {
        // Two addresses, one moving by 8 and the other by a third value; a store 16 bytes after a load, and a load of
        // two words.
        let values = [8, 0, 0, 3, 0, 0];
        let pieces = [8 << 8, 0, 8 << 8 | 1 << 16, 16, 1 | 16 << 8, 0];
        let form = |base| Form {
            base: Some(base),
            index: None,
        };
        let piece = |base, displacement, size, kind| Piece {
            form: form(base),
            displacement,
            size,
            kind,
        };
        let mut strides: Strides = [Some(Step::default()); REGISTERS];
        let step = |constant, register| Some(Step { constant, register });
        strides[0] = step(8, None);
        strides[1] = step(0, Some(2));
        let expected = [
            piece(0, 0, 8, Kind::Read),
            piece(0, 16, 8, Kind::Write),
            piece(1, 0, 8, Kind::Read),
            piece(1, 8, 8, Kind::Read),
        ];
        let found = described(&values, &pieces);
        assert_eq!(
            format!("{found:?}"),
            format!("{:?}", Loop::new(&expected, strides))
        );
    }
}
