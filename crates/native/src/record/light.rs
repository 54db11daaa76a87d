//! Records accesses with most of the program's state in place.
//!
//! Storing and loading the state of vector units, flags and thread-local storage takes longer than recording an access.
//! The functions here are called with only those general registers stored that functions may change. They call
//! nothing, and use neither vector registers nor thread-local storage; a test searches their code for that. Each
//! returns false if it has not recorded the access, and [`super::native_record_access`] must.
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
            // SAFETY: initialised while the flag is set.
            let $thread: &mut Traced = unsafe { state.seat.0.assume_init_mut() };
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

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Register};

    /// Most bytes of one of the functions.
    const LONGEST: usize = 4096;

    /// Follows the code from `start` on and returns the number of its instructions, or what is not allowed in it.
    fn checked(start: u64) -> Result<usize, String> {
        // SAFETY: code of this program, followed by at least that much more of it.
        let code = unsafe { std::slice::from_raw_parts(start as *const u8, LONGEST) };
        let mut factory = InstructionInfoFactory::new();
        let (mut ahead, mut seen) = (vec![start], std::collections::BTreeSet::new());
        while let Some(at) = ahead.pop() {
            if !seen.insert(at) {
                continue;
            }
            let offset = at.wrapping_sub(start) as usize;
            let bytes = code.get(offset..).ok_or("a jump far away")?;
            let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
            for used in factory.info(&instruction).used_registers() {
                let register = used.register();
                if register.is_vector_register() || matches!(register, Register::FS | Register::GS)
                {
                    return Err(format!("{:?} uses {register:?}", instruction.code()));
                }
            }
            match instruction.flow_control() {
                FlowControl::Next => ahead.push(instruction.next_ip()),
                FlowControl::UnconditionalBranch => ahead.push(instruction.near_branch_target()),
                FlowControl::ConditionalBranch => {
                    ahead.extend([instruction.near_branch_target(), instruction.next_ip()]);
                }
                FlowControl::Return => {}
                other => return Err(format!("{:?}: {other:?}", instruction.code())),
            }
        }
        Ok(seen.len())
    }

    #[test]
    fn these_functions_call_nothing_and_use_general_registers_only() {
        let functions: [unsafe extern "C" fn(*mut State) -> bool; 9] = [
            load,
            store,
            update,
            announce,
            atomic,
            allocator,
            runtime_load,
            runtime_store,
            runtime_atomic,
        ];
        for (n, function) in functions.into_iter().enumerate() {
            let instructions = checked(function as *const () as u64);
            assert!(
                instructions.as_ref().is_ok_and(|&count| count > 10),
                "function {n}: {instructions:?}"
            );
        }
    }

    #[test]
    fn a_function_with_a_call_is_found() {
        #[inline(never)]
        extern "C" fn prints() {
            println!();
        }
        assert!(checked(prints as *const () as u64).is_err());
    }
}
