//! Translates the program's code for the cache: decoding, and copying with the necessary changes.

mod copy;
mod decode;

use crate::cache::{Engine, Translation};

/// Translates the block at `pc` into code for the address `at`, with exits at `stubs_at`; `exit_code` numbers the
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
