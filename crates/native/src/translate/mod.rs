//! From the program's code to the cache: decoding, and copying with what must differ.

mod copy;
mod decode;

use crate::cache::{Engine, Translation};

/// Translates what begins at `pc` into code that will stand at `at`, with exits at `stubs_at`; `exit_code` numbers the
/// exits.
pub fn translate(
    engine: &mut Engine,
    pc: u64,
    at: u64,
    stubs_at: u64,
    exit_code: &dyn Fn(usize) -> u64,
) -> Translation {
    let block = decode::decode(engine, pc);
    copy::emit(&block, at, stubs_at, exit_code)
}
