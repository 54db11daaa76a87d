//! A request, from the core's window to memory and back.

use crate::event::{Packed, Step};
use crate::machine::Place;
use crate::memory::{Answer, Memory};
use crate::window::Window;

/// Sends a request to memory; returns when the core continues.
#[inline(always)]
pub(crate) fn ask(
    memory: &mut Memory<'_>,
    window: &mut Window,
    at: Place,
    event: Packed,
    now: u64,
) -> u64 {
    let line = event.line(memory.knows_private);
    let now = match event.step() {
        Step::Read if event.is_streamed() && window.prefetches() => {
            let now = window.admit_streamed(now);
            match memory.read(at, line, now) {
                Answer::Private(done) => done,
                Answer::At(done) => {
                    window.add_streamed(done);
                    now
                }
            }
        }
        Step::Read => {
            let now = window.admit_load(now);
            match memory.read(at, line, now) {
                Answer::Private(done) => done,
                Answer::At(done) => {
                    window.add_load(done);
                    now
                }
            }
        }
        Step::WriteBack => {
            memory.write_back(at, line, now);
            now
        }
        step => {
            let now = window.admit_store(now);
            let answer = match step {
                Step::Write => memory.write(at, line, now),
                _ => memory.own(at, line, now),
            };
            if let Answer::At(done) = answer {
                window.add_store(done);
            }
            now
        }
    };
    memory.resume(now)
}
