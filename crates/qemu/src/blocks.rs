//! Records accesses by block, with one call for all whose addresses follow from the registers at the block's beginning
//! ([`numaloc_trace::block`]).
//!
//! QEMU's interface gives a plugin no registers. But its code keeps the address of the guest's processor state, which
//! begins with the general registers, in the host's frame pointer whenever it calls a plugin, and all registers are up
//! to date there when a block begins. We validate this before relying on it: for the first blocks of each process the
//! registers are read with a system call that cannot fault, and the addresses predicted from them are compared with
//! those that QEMU reports for each access. A single mismatch turns block counting off for this process; every access
//! is then reported individually. `group=check` validates all blocks.
//!
//! # Which accesses
//! Plain loads and stores of instructions that always make them ([`always_accesses`]), up to the first instruction
//! that synchronises: what follows it must not be recorded before it. An access that is not recorded with the block
//! has its own call later. After such a load only loads may be recorded with the block, after such a store nothing: no
//! load overtakes a store, no store overtakes anything, and a thread's counts are the same as without grouping.
//! Run-time libraries, whose threads wait for each other by plain loads, are recorded access by access.
//!
//! When an instruction faults, the accesses after it in its block have been counted although they were not made.

use std::collections::{HashMap, HashSet};
use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Register,
};
use numaloc_follow::affine::Registers;
use numaloc_follow::memory as guest;
use numaloc_follow::usage::{self, Use, synchronises};
use numaloc_journal::settings::Grouping;
use numaloc_trace::block::{Block, Kind, Piece, REGISTERS, Shape, Strides};

use crate::api::{self, Insn, MemInfo, TranslationBlock};
use crate::mnemonics::always_accesses;
use crate::{WORD, known_thread, paces, thread};

/// State: each access is reported by itself.
const SINGLE: u8 = 0;
/// State: blocks are being validated.
const VALIDATING: u8 = 1;
/// State: blocks are counted.
const GROUPED: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(SINGLE);
/// Never leave [`VALIDATING`].
static CHECK: AtomicBool = AtomicBool::new(false);

/// Accesses that must have been as predicted before blocks are counted.
const ENOUGH: u64 = 64;
static RIGHT: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);

/// Bytes that count as one access, for loads and stores of 16 and 32 bytes (see [`wide`]); 0 if not seen yet.
static WIDE: [AtomicU8; 4] = [const { AtomicU8::new(0) }; 4];

/// Most blocks and addresses kept; code beyond that is reported access by access.
const KEPT: usize = 1 << 20;

/// What distinguishes blocks: their pieces, the places of these in the program's code, and how the block repeats.
type Contents = (Vec<Piece>, Vec<u64>, Option<Strides>);

/// What is known about code.
#[derive(Default)]
struct Known {
    /// All blocks in use, so that code translated repeatedly takes no more memory.
    blocks: HashMap<Contents, &'static Block>,
    /// Addresses at which repeating blocks are left.
    exits: HashSet<u64>,
    /// Addresses of blocks without a call at their beginning.
    silent: HashSet<u64>,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// Sets the grouping of this process.
pub fn start(grouping: Grouping) {
    let possible = cfg!(target_arch = "x86_64");
    let state = if grouping == Grouping::Off || !possible {
        SINGLE
    } else {
        VALIDATING
    };
    CHECK.store(grouping == Grouping::Check, Relaxed);
    STATE.store(state, Relaxed);
}

/// Number of validated accesses that were as predicted, and of those that were not.
pub fn validated() -> (u64, u64) {
    (RIGHT.load(Relaxed), WRONG.load(Relaxed))
}

/// An instruction of the block being translated.
pub struct Translated {
    pub insn: *mut Insn,
    pub usage: Use,
    /// Its address.
    pub address: u64,
    /// Whether it stores anywhere but on the stack.
    pub stores: bool,
    /// Range of its pieces, if its accesses are recorded with the block.
    pieces: Option<(usize, usize)>,
}

/// The block being translated.
pub struct Translation {
    start: u64,
    pub instructions: Vec<Translated>,
    pieces: Vec<Piece>,
    /// Address of each piece's instruction.
    places: Vec<u64>,
    /// If it jumps back to its beginning: what an iteration adds to the registers, and the address after the loop.
    repeats: Option<(Strides, u64)>,
}

/// Accesses that may still be recorded at the block's beginning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Recordable {
    Nothing,
    Loads,
    All,
}

impl Translation {
    /// Analyses the instructions of the block at `start`.
    pub fn new(start: u64, code: impl Iterator<Item = (*mut Insn, [u8; 16], usize)>) -> Self {
        let mut factory = InstructionInfoFactory::new();
        let mut registers = Registers::first();
        let mut recordable = Recordable::All;
        let mut found = Self {
            start,
            instructions: Vec::new(),
            pieces: Vec::new(),
            places: Vec::new(),
            repeats: None,
        };
        let mut address = start;
        let mut last = Instruction::default();
        for (insn, bytes, size) in code {
            last = Decoder::with_ip(64, &bytes[..size], address, DecoderOptions::NONE).decode();
            address += size as u64;
            let info = factory.info(&last);
            let usage = usage::memory_use(&last, info);
            let kind = kind_of(usage);
            let place = kind
                .filter(|&kind| {
                    recordable == Recordable::All
                        || recordable == Recordable::Loads && kind == Kind::Read
                })
                .filter(|_| always_accesses(last.mnemonic()))
                .and_then(|_| registers.address(usage::accesses(info).next()?));
            let first = found.pieces.len();
            if let (Some(kind), Some((form, displacement))) = (kind, place) {
                let (size, part) = size_of_use(usage);
                for at in (0..size).step_by(usize::from(part.max(1))) {
                    if part > 0 {
                        found.pieces.push(Piece {
                            form,
                            displacement: displacement.wrapping_add(u64::from(at)),
                            size: part,
                            kind,
                        });
                    }
                }
            }
            let predicted = found.pieces.len() > first;
            found.places.resize(found.pieces.len(), last.ip());
            if !predicted {
                recordable = recordable.min(match usage {
                    Use::None if synchronises(&last) => Recordable::Nothing,
                    Use::None => Recordable::All,
                    Use::Load(_) | Use::WideLoad(_) => Recordable::Loads,
                    _ => Recordable::Nothing,
                });
            }
            found.instructions.push(Translated {
                insn,
                usage,
                address: last.ip(),
                stores: matches!(usage, Use::Store(_) | Use::Update(_))
                    && last.memory_base() != Register::RSP,
                pieces: predicted.then_some((first, found.pieces.len())),
            });
            registers.step(&last, info);
        }
        let all = found
            .instructions
            .iter()
            .all(|one| one.usage == Use::None || one.pieces.is_some());
        let back = last.flow_control() == FlowControl::ConditionalBranch
            && last.near_branch_target() == start;
        found.repeats = (all && back).then(|| (registers.strides(), address));
        found
    }

    /// Registers the callback at the block's beginning. `runtime` is for code of a threading run-time library.
    ///
    /// Returns how to register the accesses of its instructions.
    pub fn register(&self, block: *mut TranslationBlock, runtime: bool) -> Registration {
        let state = STATE.load(Relaxed);
        if state == SINGLE {
            return Registration::Single;
        }
        let mut guard = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = guard.get_or_insert_with(Known::default);
        if runtime || self.pieces.is_empty() || known.blocks.len() >= KEPT {
            self.no_block(known, block);
            return Registration::Single;
        }
        let strides = self
            .repeats
            .filter(|(_, exit)| {
                state == GROUPED && !known.silent.contains(exit) && known.silent.len() < KEPT
            })
            .map(|(strides, exit)| {
                known.exits.insert(exit);
                strides
            });
        let key = (self.pieces.clone(), self.places.clone(), strides);
        let counted: &'static Block =
            known
                .blocks
                .entry(key)
                .or_insert_with_key(|(pieces, places, strides)| {
                    let mut block = Block::new(pieces, strides.as_ref());
                    block.set_places(places);
                    Box::leak(Box::new(block))
                });
        if state == GROUPED && !counted.pays() {
            self.no_block(known, block);
            return Registration::Single;
        }
        if state == GROUPED && counted.shape().repeats {
            paces::register(block, counted);
            return Registration::Grouped;
        }
        let callback = if state == GROUPED {
            counter(counted.shape())
        } else {
            self.no_block(known, block);
            on_validation
        };
        // SAFETY: a callback of this library, and a block that is never freed.
        unsafe {
            api::qemu_plugin_register_vcpu_tb_exec_cb(
                block,
                callback,
                api::NO_REGISTERS,
                std::ptr::from_ref(counted).cast_mut().cast(),
            );
        }
        if state == GROUPED {
            Registration::Grouped
        } else {
            Registration::Validated(counted)
        }
    }

    /// Registers no counting at the block's beginning; but if it follows a loop, a run must end here.
    fn no_block(&self, known: &mut Known, block: *mut TranslationBlock) {
        if known.exits.contains(&self.start) {
            // SAFETY: a callback of this library.
            unsafe {
                api::qemu_plugin_register_vcpu_tb_exec_cb(
                    block,
                    on_exit_of_loop,
                    api::NO_REGISTERS,
                    std::ptr::null_mut(),
                );
            }
        } else if known.silent.len() < KEPT {
            known.silent.insert(self.start);
        }
    }
}

/// How the accesses of a block's instructions are recorded.
pub enum Registration {
    /// Each by itself.
    Single,
    /// Those in pieces with the block, others by themselves.
    Grouped,
    /// Each by itself; those in pieces are compared with the block's predictions.
    Validated(&'static Block),
}

impl Registration {
    /// Whether an instruction's accesses are recorded with the block.
    pub fn records(&self, one: &Translated) -> bool {
        matches!(self, Self::Grouped) && one.pieces.is_some()
    }

    /// The data for the callbacks of an instruction whose accesses are validated by [`compare`].
    pub fn expectation(&self, one: &Translated) -> Option<*mut c_void> {
        let (Self::Validated(block), Some(pieces)) = (self, one.pieces) else {
            return None;
        };
        let expectation = Expectation {
            block,
            pieces,
            place: one.address as usize,
        };
        Some(Box::into_raw(Box::new(expectation)).cast())
    }
}

/// The pieces of an instruction in a block being validated.
struct Expectation {
    block: &'static Block,
    pieces: (usize, usize),
    /// Address of the instruction.
    place: usize,
}

/// The address of an instruction with this expectation.
pub fn place(expectation: *mut c_void) -> usize {
    // SAFETY: from `Registration::expectation`, never freed.
    unsafe { (*expectation.cast_const().cast::<Expectation>()).place }
}

/// The addresses predicted for the block being validated.
#[derive(Default)]
pub struct Validation {
    block: Option<&'static Block>,
    addresses: Vec<u64>,
}

/// The kind of a plain access, `None` for others.
fn kind_of(usage: Use) -> Option<Kind> {
    match usage {
        Use::Load(_) | Use::WideLoad(_) => Some(Kind::Read),
        Use::Store(_) | Use::WideStore(_) => Some(Kind::Write),
        Use::Update(_) => Some(Kind::Update),
        Use::None | Use::String | Use::Atomic | Use::Other => None,
    }
}

/// Size of a plain access in bytes, and the size in which it is reported (0 if not known yet).
fn size_of_use(usage: Use) -> (u8, u8) {
    match usage {
        Use::Load(size) | Use::Store(size) | Use::Update(size) => (size, size),
        Use::WideLoad(size) | Use::WideStore(size) => {
            let part = wide(usage).map_or(0, |wide| WIDE[wide].load(Relaxed));
            let divides = part > 0 && size % part == 0;
            (size, if divides { part } else { 0 })
        }
        Use::None | Use::String | Use::Atomic | Use::Other => (0, 0),
    }
}

/// Index in [`WIDE`] of an access of more than 8 bytes.
pub fn wide(usage: Use) -> Option<usize> {
    match usage {
        Use::WideLoad(size) => Some(usize::from(size == 32)),
        Use::WideStore(size) => Some(2 + usize::from(size == 32)),
        _ => None,
    }
}

/// Notes that an access of kind `wide` was reported in parts of `size` bytes.
pub fn learn(wide: usize, size: u8) {
    WIDE[wide].store(size, Relaxed);
}

/// Called at the beginning of a counted block. Callbacks have two arguments; the third is QEMU's frame pointer.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn on_block<const N: usize, const WRITES: usize>(
    vcpu: c_uint,
    data: *mut c_void,
) {
    core::arch::naked_asm!("mov rdx, rbp", "jmp {}", sym count::<N, WRITES>)
}

/// Called at the beginning of a block being validated.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn on_validation(vcpu: c_uint, data: *mut c_void) {
    core::arch::naked_asm!("mov rdx, rbp", "jmp {}", sym predict)
}

// On other hosts `start` never lets a block be registered.
#[cfg(not(target_arch = "x86_64"))]
unsafe extern "C" fn on_block<const N: usize, const WRITES: usize>(_: c_uint, _: *mut c_void) {}
#[cfg(not(target_arch = "x86_64"))]
unsafe extern "C" fn on_validation(_: c_uint, _: *mut c_void) {}

/// The callback that counts a block that does not repeat.
fn counter(shape: Shape) -> api::ExecutionCallback {
    macro_rules! one_of {
        ($($n:literal: $($writes:literal)+;)+) => {
            match (shape.groups, shape.writes) {
                $($(($n, $writes) => on_block::<$n, $writes>,)+)+
                _ => on_block::<0, 0>,
            }
        };
    }
    one_of! {
        1: 0 1;
        2: 0 1 2 3;
        3: 0 1 2 3 4 5 6 7;
        4: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15;
    }
}

unsafe extern "C" fn count<const N: usize, const WRITES: usize>(
    vcpu: c_uint,
    data: *mut c_void,
    state: *const [u64; REGISTERS],
) {
    // SAFETY: `data` is the block that `register` passed; `state` holds the registers, as validation has shown.
    let (block, registers) = unsafe { (&*data.cast_const().cast::<Block>(), &*state) };
    if let Some(thread) = known_thread(vcpu) {
        thread.tracer.block::<N, WRITES>(block, registers);
    } else {
        first_block(vcpu, block, registers);
    }
}

#[cold]
#[inline(never)]
fn first_block(vcpu: c_uint, block: &'static Block, registers: &[u64; REGISTERS]) {
    if let Some(thread) = thread(vcpu) {
        thread.tracer.block::<0, 0>(block, registers);
    }
}

unsafe extern "C" fn on_exit_of_loop(vcpu: c_uint, _: *mut c_void) {
    if let Some(thread) = known_thread(vcpu) {
        thread.tracer.flush_pending();
    }
}

unsafe extern "C" fn predict(vcpu: c_uint, data: *mut c_void, state: *const [u64; REGISTERS]) {
    if STATE.load(Relaxed) != VALIDATING {
        return;
    }
    let Some(thread) = thread(vcpu) else { return };
    // SAFETY: `data` is the block that `register` passed.
    let block = unsafe { &*data.cast_const().cast::<Block>() };
    let mut bytes = [0; 8 * REGISTERS];
    if guest::read(state as u64, &mut bytes).is_none() {
        mismatch();
        return;
    }
    let mut registers = [0; REGISTERS];
    for (register, bytes) in registers.iter_mut().zip(bytes.chunks_exact(8)) {
        *register = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    }
    thread.validation.block = Some(block);
    thread.validation.addresses = block.addresses(&registers);
}

/// Compares an access with its block's prediction.
pub fn compare(validation: &Validation, data: *mut c_void, address: u64, info: MemInfo) {
    if STATE.load(Relaxed) != VALIDATING {
        return;
    }
    // SAFETY: from `expectation`, never freed.
    let Expectation { block, pieces, .. } = unsafe { &*data.cast_const().cast::<Expectation>() };
    let kind = api::access_kind(info);
    let (size, stores) = (kind & !api::STORE, kind & api::STORE != 0);
    let fits = |at: usize, part: u8| {
        let piece = &block.pieces[at];
        let other = if stores { Kind::Read } else { Kind::Write };
        let address = address.wrapping_add(part.into());
        piece.size == size.min(WORD)
            && piece.kind != other
            && validation.addresses.get(at) == Some(&address)
    };
    let mut parts = (0..size).step_by(WORD.into());
    let same = validation
        .block
        .is_some_and(|validated| std::ptr::eq(validated, *block));
    let predicted = same && parts.all(|part| (pieces.0..pieces.1).any(|at| fits(at, part)));
    if !predicted {
        mismatch();
    } else if RIGHT.fetch_add(1, Relaxed) >= ENOUGH
        && !CHECK.load(Relaxed)
        && WRONG.load(Relaxed) == 0
    {
        let _ = STATE.compare_exchange(VALIDATING, GROUPED, Relaxed, Relaxed);
    }
}

/// Turns block counting off in this process: an access was not as predicted.
#[cold]
fn mismatch() {
    WRONG.fetch_add(1, Relaxed);
    if !CHECK.load(Relaxed) {
        STATE.store(SINGLE, Relaxed);
    }
}
