//! Records accesses with most of the program's state in place.
//!
//! Storing and loading the state of vector units, flags and thread-local storage takes longer than recording an access.
//! The functions here are called with only those general registers stored that functions may change. They call
//! nothing, and use neither vector registers nor thread-local storage; [`super::callable`] searches their code for
//! that. Each returns false if it has not recorded the access, and [`super::native_record_access`] must.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering::Relaxed;

use numaloc_follow::calls::Traced;

use super::LIVE;
use crate::state::State;

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
            if !state.recording {
                return true;
            }
            let ($address, $size) = (state.address, u32::from(state.access as u16));
            let place = state.resume;
            // SAFETY: initialised while the flag is set.
            let $thread: &mut Traced = unsafe { state.seat.0.assume_init_mut() };
            $thread.tracer.set_place(place);
            $result
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
    announce = |thread, _address, _size| LIVE.load(Relaxed) <= 1 || thread.tracer.light_announce();
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
    /// An atomic instruction of a run-time library, which the allocator may have called to wait for its lock.
    runtime_atomic = |thread, address, size| {
        if address == thread.allocator_word {
            thread.tracer.light_allocator(address, size)
        } else {
            thread.tracer.light_atomic::<true>(address, size)
        }
    };
}
