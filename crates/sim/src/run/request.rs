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
            // It was requested long before, so what is loaded from it waits no longer.
            window.arrives(now);
            let translated = memory.translate(at, line, now);
            match memory.read(at, line, translated) {
                Answer::Private(done) if translated == now => done,
                Answer::Private(done) => {
                    window.add_streamed(done);
                    now
                }
                Answer::At(done) => {
                    window.add_streamed(done);
                    now
                }
            }
        }
        Step::Read => {
            let (now, sent) = window.send_load(now, event.waits_for());
            let sent = memory.translate(at, line, sent);
            match memory.read(at, line, sent) {
                Answer::Private(done) if sent == now => {
                    window.load_sent(done, true);
                    done
                }
                Answer::Private(done) => {
                    window.load_sent(done, true);
                    window.add_load(done);
                    now
                }
                Answer::At(done) => {
                    window.load_sent(done, false);
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
            let sent = memory.translate(at, line, now);
            let answer = match step {
                Step::Write => memory.write(at, line, sent),
                _ => memory.own(at, line, sent),
            };
            if let Answer::At(done) = answer {
                window.add_store(done);
            }
            if step == Step::Write {
                let (Answer::Private(done) | Answer::At(done)) = answer;
                window.arrives(done);
            }
            now
        }
    };
    memory.resume(now)
}
