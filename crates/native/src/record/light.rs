//! Records accesses with most of the program's state in place.
//!
//! Storing and loading the state of vector units, flags and thread-local storage takes longer than recording an access.
//! The functions here are called with only those general registers stored that functions may change. They call
//! nothing, and use neither vector registers nor thread-local storage; [`super::callable`] searches their code for
//! that. Each returns false if it has not recorded the access, and [`super::native_record_access`] must.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering::Relaxed;

use numaloc_follow::calls::Traced;
use numaloc_trace::thread::WORD;

use super::descriptor::{Masked, Repeated};
use super::entry::Entry;
use super::{LIVE, passing, room};
use crate::state::{RCX, RDI, RSI, State};

/// Records by the tracer of a thread, which has left the cache for this; returns what `record` does, and true if
/// nothing is recorded.
#[inline(always)]
fn recorded(state: &mut State, record: impl FnOnce(&mut Traced) -> bool) -> bool {
    if !state.recording {
        return true;
    }
    room::take(state);
    let place = state.resume;
    // SAFETY: initialised while the flag is set.
    let thread: &mut Traced = unsafe { state.seat.0.assume_init_mut() };
    thread.tracer.set_place(place);
    let recorded = record(thread);
    room::grant(state);
    recorded
}

/// Defines a function that records the access in the state.
macro_rules! light {
    ($($(#[$doc:meta])* $name:ident = |$thread:ident, $address:ident, $size:ident| $result:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// `state` is that of the calling thread, which has left the cache for this.
        pub unsafe extern "C" fn $name(state: *mut State) -> bool {
            // SAFETY: as the caller promises.
            let state = unsafe { &mut *state };
            let ($address, $size) = (state.address, u32::from(state.access as u16));
            recorded(state, |$thread| $result)
        }
    )*};
}

light! {
    /// A load of the program.
    load = |thread, address, size| thread.tracer.light_load(address, size);
    /// A store of the program.
    store = |thread, address, size| thread.tracer.light_store(address, size);
    /// A load and a store by one instruction of the program.
    update = |thread, address, size| thread.tracer.light_update(address, size);
    /// A store that other threads may see before it is recorded.
    announce = |thread, address, _size| {
        LIVE.load(Relaxed) <= 1 || thread.tracer.light_announce(address)
    };
    /// An atomic instruction of the program.
    atomic = |thread, address, size| thread.tracer.light_atomic::<false>(address, size);
    /// An atomic instruction of the allocator.
    allocator = |thread, address, size| {
        let light = thread.tracer.light_allocator(address, size);
        if light {
            thread.allocator_word = address;
        }
        light
    };
    /// A load of a run-time library.
    runtime_load = |thread, address, size| thread.tracer.light_runtime_load(address, size);
    /// A store of a run-time library.
    runtime_store = |thread, address, size| thread.tracer.light_runtime_store(address, size);
    /// A load and a store by one instruction of a run-time library.
    runtime_update = |thread, address, size| thread.tracer.light_runtime_update(address, size);
    /// An atomic instruction of a run-time library, which the allocator may have called to wait for its lock.
    runtime_atomic = |thread, address, size| {
        if address == thread.allocator_word {
            thread.tracer.light_allocator(address, size)
        } else {
            thread.tracer.light_atomic::<true>(address, size)
        }
    };
}

/// Most iterations of a string instruction that are recorded here, so that its bytes are a number; the tracer limits
/// its words.
const ITERATIONS: u64 = 1 << 32;

/// A repeated string instruction that stores whole words, upward, from an address that is a multiple of a word on.
///
/// # Safety
/// `state` is that of the calling thread, which has left the cache for this.
pub unsafe extern "C" fn repeated(state: *mut State) -> bool {
    // SAFETY: as the caller promises.
    let state = unsafe { &mut *state };
    if !state.recording {
        return true;
    }
    let Repeated { element, loads } = Repeated::decode(state.access as u16);
    let (from, to) = (state.regs[RSI], state.regs[RDI]);
    let count = state.regs[RCX];
    let bytes = count.wrapping_mul(u64::from(element));
    let starts = if loads { from | to } else { to };
    if count > ITERATIONS || (starts | bytes) % WORD != 0 || goes_down() {
        return false;
    }
    let from = loads.then_some(from);
    recorded(state, |thread| {
        thread.tracer.light_words(from, Some(to), bytes / WORD)
    })
}

/// Bytes that a mask register selects.
///
/// # Safety
/// `state` is that of the calling thread, which has left the cache for this.
pub unsafe extern "C" fn masked(state: *mut State) -> bool {
    // SAFETY: as the caller promises.
    let state = unsafe { &mut *state };
    let Masked { bytes, stores, .. } = Masked::decode(state.access as u16);
    let all = u64::MAX >> ((64 - u32::from(bytes)) & 63);
    let (address, selected) = (state.address, state.selected & all);
    recorded(state, |thread| match stores {
        true => thread.tracer.light_selected::<true>(address, selected),
        false => thread.tracer.light_selected::<false>(address, selected),
    })
}

/// Whether the program's string instructions go to lower addresses: the flag is still the program's.
#[inline(always)]
fn goes_down() -> bool {
    const DIRECTION: u64 = 0x400;
    let flags: u64;
    // SAFETY: pushes a word and takes it back.
    unsafe { std::arch::asm!("pushfq", "pop {}", out(reg) flags, options(preserves_flags)) };
    flags & DIRECTION != 0
}

/// A place in the program's code at which the engine has nothing to do: an allocation that is not recorded.
///
/// # Safety
/// `state` is that of the calling thread, which has left the cache for this.
pub unsafe extern "C" fn call(state: *mut State) -> bool {
    // SAFETY: as the caller promises.
    let state = unsafe { &mut *state };
    let Entry { mark, place } = Entry::decode(state.access as u16);
    !state.recording || !mark && passing::passes(state, place)
}
