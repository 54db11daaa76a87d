//! Searches the code of functions that are called with the program's vector registers in place.
//!
//! What the compiler makes of them depends on its version and on the profile: the cache calls those only whose code has
//! been searched, and lets the whole engine record the accesses of the others.
#![allow(unsafe_code)]

use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Register};

use super::descriptor::Light;
use super::light;
use crate::state::State;

/// Most bytes of one of the functions.
const LONGEST: usize = 8192;

/// The function that records the accesses of a kind.
pub fn function(kind: Light) -> unsafe extern "C" fn(*mut State) -> bool {
    match kind {
        Light::Load => light::load,
        Light::Store => light::store,
        Light::Update => light::update,
        Light::Announce => light::announce,
        Light::Atomic => light::atomic,
        Light::Allocator => light::allocator,
        Light::RuntimeLoad => light::runtime_load,
        Light::RuntimeStore => light::runtime_store,
        Light::RuntimeUpdate => light::runtime_update,
        Light::RuntimeAtomic => light::runtime_atomic,
        Light::Repeated => light::repeated,
        Light::Masked => light::masked,
        Light::Call => light::call,
    }
}

/// Whether the function of a kind calls nothing and uses general registers only.
pub fn is_light(kind: Light) -> bool {
    searched(function(kind) as *const () as u64).is_ok()
}

/// Follows the code from `start` on and returns the number of its instructions, or what is not allowed in it.
fn searched(start: u64) -> Result<usize, String> {
    // SAFETY: code of this program, followed by at least that much more of it.
    let code = unsafe { std::slice::from_raw_parts(start as *const u8, LONGEST) };
    let mut factory = InstructionInfoFactory::new();
    let (mut ahead, mut seen) = (vec![start], vec![false; LONGEST]);
    let mut count = 0;
    while let Some(at) = ahead.pop() {
        let offset = at.wrapping_sub(start) as usize;
        let bytes = code.get(offset..).ok_or("a jump far away")?;
        if std::mem::replace(seen.get_mut(offset).ok_or("a jump far away")?, true) {
            continue;
        }
        count += 1;
        let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
        for used in factory.info(&instruction).used_registers() {
            let register = used.register();
            if register.is_vector_register() || matches!(register, Register::FS | Register::GS) {
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
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_light_functions_call_nothing_and_use_general_registers_only() {
        for kind in Light::ALL {
            let instructions = searched(function(kind) as *const () as u64);
            assert!(
                instructions.as_ref().is_ok_and(|&count| count > 10),
                "{kind:?}: {instructions:?}"
            );
        }
    }

    #[test]
    fn a_function_with_a_call_is_found() {
        #[inline(never)]
        extern "C" fn prints() {
            println!();
        }
        assert!(searched(prints as *const () as u64).is_err());
    }

    #[test]
    fn a_function_that_uses_a_vector_register_is_found() {
        #[inline(never)]
        extern "C" fn halves(number: f64) -> f64 {
            number / 2.0
        }
        let found = searched(halves as *const () as u64).unwrap_err();
        assert!(found.contains("XMM0"), "{found}");
    }
}
