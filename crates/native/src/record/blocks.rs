//! Records the blocks of memory that the program allocates, with the call stack of each.
//!
//! The first instruction of an allocator's function leaves the cache to [`called`], which notes the arguments and walks
//! the stack: at a function's first instruction the return address is on top of it. The code at the return address
//! leaves the cache to [`returned`], where rax has the address of the block. That code is usually translated after the
//! first call; where it was before, the block is not recorded.
//!
//! As in programs built by `numaloc cc`, the number of blocks is bounded: at first all are recorded, then only those
//! that fill pages, then only those that the C library maps on their own ([`STEPS`]).
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use numaloc_follow::allocators::{self, Allocator};
use numaloc_follow::unwind::{self, Registers};
use numaloc_journal::Record;

use crate::call::Call;
use crate::guest;
use crate::lock::Lock;
use crate::record::entry::Place;
use crate::record::passing::LEAST;
use crate::record::{engine, traced};
use crate::state::{RAX, RBP, RDI, RDX, RSI, RSP, State};
use numaloc_follow::address_map::{self, AddressSet};

/// Steps (blocks, bytes): after this many blocks only larger ones are recorded.
const STEPS: [(u64, u64); 3] = [(1 << 14, 4096), (1 << 16, 1 << 17), (1 << 18, u64::MAX)];
/// Most return addresses of calls that are known.
const KNOWN: usize = 1 << 16;

/// Number of blocks recorded so far.
static BLOCKS: AtomicU64 = AtomicU64::new(0);
/// Return addresses of calls of allocators.
static RETURNS: Lock<AddressSet> = Lock::new(address_map::set());
/// Numbers of the call stacks recorded so far.
static SITES: Lock<Option<HashMap<Vec<u64>, u32>>> = Lock::new(None);

/// The place in a call of an allocator at `pc`, if the code there leaves the cache before its first instruction.
pub fn place(pc: u64) -> Option<Place> {
    if LEAST.load(Relaxed) == u64::MAX {
        return None;
    }
    let called = allocators::at(pc).map(Place::Called);
    called.or_else(|| RETURNS.lock().contains(&pc).then_some(Place::Returned))
}

/// The thread is at the first instruction of an allocator, or where a call of one returns.
pub fn reached(state: &mut State, place: Place) {
    match place {
        Place::Called(allocator) => called(state, allocator),
        Place::Returned => returned(state),
    }
}

/// Keeps what is known here as it is until the result is dropped: a process that is forked meanwhile finds it complete.
pub fn hold() -> impl Sized {
    (RETURNS.lock(), SITES.lock())
}

fn called(state: &mut State, allocator: Allocator) {
    state.call.rsp = 0;
    let regs = &state.regs;
    let arguments = [regs[RDI], regs[RSI], regs[RDX]];
    let (length, rsp) = (allocator.size(arguments), regs[RSP]);
    if length < LEAST.load(Relaxed) {
        return;
    }
    let Some(pc) = guest::read::<u64>(rsp) else {
        return;
    };
    let mut returns = RETURNS.lock();
    if returns.len() < KNOWN {
        returns.insert(pc);
    }
    drop(returns);
    let call = &mut state.call;
    let from = Registers {
        pc,
        rsp: rsp + 8,
        rbp: regs[RBP],
    };
    // As if the function itself had called: it names the stack.
    call.frames[0] = state.address + 1;
    call.depth = 1 + unwind::walk(from, guest::read, &mut call.frames[1..]);
    call.rsp = rsp + 8;
    call.length = length;
    call.result = match allocator {
        Allocator::PosixMemalign => arguments[0],
        _ => 0,
    };
}

fn returned(state: &mut State) {
    let call = std::mem::replace(&mut state.call, Call::NONE);
    if call.rsp != state.regs[RSP] {
        // Another function has returned here, or the thread has jumped.
        state.call = call;
        return;
    }
    let address = match call.result {
        0 => state.regs[RAX],
        result => match (state.regs[RAX], guest::read::<u64>(result)) {
            (0, Some(address)) => address,
            _ => 0,
        },
    };
    let (Some(engine), Some(thread)) = (engine(), traced(state)) else {
        return;
    };
    if address == 0 {
        return;
    }
    let count = BLOCKS.fetch_add(1, Relaxed) + 1;
    if let Some((_, least)) = STEPS.iter().find(|step| step.0 == count) {
        LEAST.fetch_max(*least, Relaxed);
    }
    let frames = call.frames[..call.depth].to_vec();
    let site = {
        let mut sites = SITES.lock();
        let sites = sites.get_or_insert_default();
        let new = sites.len() as u32;
        *sites.entry(frames).or_insert_with_key(|frames| {
            engine.write(&Record::Site {
                site: new,
                frames: frames.clone(),
            });
            new
        })
    };
    thread.tracer.record(&Record::Block {
        sequence: engine.sequence(),
        thread: thread.tracer.number(),
        address,
        length: call.length,
        site,
    });
}

/// Forgets the call stacks in a forked process, whose journal has none yet.
pub fn forget() {
    SITES.lock().take();
}
