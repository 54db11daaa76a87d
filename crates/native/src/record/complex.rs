//! The accesses of instructions whose addresses depend on registers in a way of their own: repeated string
//! instructions, masked and gathered vectors, bit strings.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use numaloc_follow::calls::Traced;
use numaloc_follow::owners::Owner;
use numaloc_follow::usage;

use numaloc_trace::block::REGISTERS;
use numaloc_trace::thread::{Loop, WORD, When};

use crate::guest;
use crate::state::{RCX, RDI, RSI, State};
use crate::xstate::Layout;

/// Records accesses of the program or of a run-time library.
struct To<'a> {
    thread: &'a mut Traced,
    runtime: bool,
}

impl To<'_> {
    fn one(&mut self, address: u64, size: u64, write: bool) {
        let mut at = 0;
        while at < size {
            let (address, part) = (address.wrapping_add(at), (size - at).min(WORD) as u32);
            let tracer = &mut self.thread.tracer;
            match (write, self.runtime) {
                (false, false) => tracer.access::<false, false>(address, part),
                (true, false) => tracer.access::<true, false>(address, part),
                (false, true) => tracer.access::<false, true>(address, part),
                (true, true) => tracer.access::<true, true>(address, part),
            }
            at += WORD;
        }
    }

    /// Part of a string, within a word.
    fn string(&mut self, address: u64, size: u64, write: bool) {
        if self.runtime {
            return self.one(address, size, write);
        }
        if write {
            self.thread.tracer.string::<true>(address, size as u32);
        } else {
            self.thread.tracer.string::<false>(address, size as u32);
        }
    }
}

impl To<'_> {
    /// Whole words from `address` on.
    fn whole_words(&mut self, address: u64, count: u64, write: bool) {
        if self.runtime {
            for n in 0..count {
                self.one(address.wrapping_add(WORD * n), WORD, write);
            }
            return;
        }
        let mut registers = [0; REGISTERS];
        registers[0] = address;
        let words = Loop::over_words(write);
        let tracer = &mut self.thread.tracer;
        tracer.recorded_loop(words, &registers, count, When::Before);
    }

    /// Strings of `bytes` bytes from each start on, upward, in elements that lie in one word: one access for each word.
    /// Loads and stores alternate every few pages.
    fn words(&mut self, accesses: &[(u64, bool)], bytes: u64) {
        const PART: u64 = 1 << 12;
        let mut reached: Vec<u64> = accesses.iter().map(|access| access.0).collect();
        let mut progress = 0;
        while progress < bytes {
            progress = (progress + PART).min(bytes);
            for (&(start, write), at) in accesses.iter().zip(&mut reached) {
                let last = start.wrapping_add(bytes);
                let end = match progress == bytes {
                    true => last,
                    false => start.wrapping_add(progress) & !(WORD - 1),
                };
                while *at < end {
                    // The string before, or after, may continue in the same word.
                    let len = (WORD - *at % WORD).min(end - *at);
                    let whole = end.saturating_sub(WORD).saturating_sub(*at) / WORD;
                    if *at != start && whole > 0 {
                        self.whole_words(*at, whole, write);
                        *at += whole * WORD;
                    } else if *at == start || *at + len == last {
                        self.string(*at, len, write);
                        *at += len;
                    } else {
                        self.one(*at, len, write);
                        *at += len;
                    }
                }
            }
        }
    }
}

/// Records the accesses that `instruction` is about to make with the registers in `state`.
pub fn record(thread: &mut Traced, state: &State, instruction: &Instruction, owner: Owner) {
    let runtime = owner == Owner::Runtime;
    let mut to = To { thread, runtime };
    if instruction.is_string_instruction() {
        return strings(&mut to, state, instruction);
    }
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    for memory in usage::accesses(info) {
        let read = |register, element, size| Some(value(state, register, element, size));
        let Some(address) = memory.virtual_address(0, read) else {
            continue;
        };
        let (reads, writes) = match memory.access() {
            OpAccess::Read | OpAccess::CondRead => (true, false),
            OpAccess::Write | OpAccess::CondWrite => (false, true),
            _ => (true, true),
        };
        let explicit = (0..instruction.op_count())
            .any(|n| instruction.op_kind(n) == OpKind::Memory)
            && memory.base() == instruction.memory_base();
        let size = memory.memory_size().size() as u64;
        let vector = explicit || memory.base() == Register::RDI;
        let parts = match instruction.mnemonic() {
            Mnemonic::Bt | Mnemonic::Btc | Mnemonic::Btr | Mnemonic::Bts if explicit => {
                vec![(bit_string(state, instruction, address, size), size)]
            }
            Mnemonic::Pop if explicit && memory.base() == Register::RSP => {
                vec![(address.wrapping_add(size), size)]
            }
            _ if instruction.is_vsib() => gathered(state, instruction, memory),
            _ if vector && (instruction.has_op_mask() || masks(instruction).is_some()) => {
                masked(state, instruction, address, size)
            }
            _ => vec![(address, size)],
        };
        for (address, size) in parts {
            if reads {
                to.one(address, size, false);
            }
            if writes {
                to.one(address, size, true);
            }
        }
    }
}

/// The value of a register for an address, or an element of `size` bytes of a vector register.
fn value(state: &State, register: Register, element: usize, size: usize) -> u64 {
    if register == Register::FS {
        return state.guest_fs;
    }
    if register == Register::GS {
        return state.guest_gs;
    }
    if register.is_segment_register() {
        return 0;
    }
    if register.is_vector_register() {
        let bytes = vector(state, register);
        let mut word = [0; 8];
        let from = element * size;
        if let Some(part) = bytes.get(from..from + size) {
            word[..size].copy_from_slice(part);
        }
        let word = i64::from_le_bytes(word);
        // Indices are signed.
        return if size == 4 {
            i64::from(word as i32)
        } else {
            word
        } as u64;
    }
    let full = state.regs[register.full_register().number() & 15];
    match register.size() {
        1 => full & 0xff,
        2 => full & 0xffff,
        4 => full & 0xffff_ffff,
        _ => full,
    }
}

/// The bytes of a vector register.
fn vector(state: &State, register: Register) -> [u8; 64] {
    Layout::of_processor().map_or([0; 64], |layout| layout.vector(&state.xstate, register))
}

/// The vector register whose sign bits select elements.
fn masks(instruction: &Instruction) -> Option<Register> {
    match instruction.mnemonic() {
        Mnemonic::Vmaskmovps
        | Mnemonic::Vmaskmovpd
        | Mnemonic::Vpmaskmovd
        | Mnemonic::Vpmaskmovq
        | Mnemonic::Maskmovdqu
        | Mnemonic::Maskmovq
        | Mnemonic::Vmaskmovdqu => (0..instruction.op_count())
            .filter(|&n| instruction.op_kind(n) == OpKind::Register)
            .map(|n| instruction.op_register(n))
            .nth(match instruction.op0_kind() {
                // A load: its target comes first. A store, or the implicit operand of the legacy forms: the mask does.
                OpKind::Register
                    if instruction.op_count() == 3 && instruction.op_kind(2) == OpKind::Memory =>
                {
                    1
                }
                OpKind::Register if instruction.op_count() == 3 => 1,
                OpKind::Memory => 0,
                _ => 1,
            }),
        _ => None,
    }
}

/// Whether element `n` of `size` bytes is selected by the instruction's mask.
fn selected(state: &State, instruction: &Instruction, n: usize, size: usize) -> bool {
    if instruction.has_op_mask() {
        let layout = Layout::of_processor();
        let mask = layout.map_or(0, |it| {
            it.mask_register(&state.xstate, instruction.op_mask())
        });
        return mask >> n & 1 != 0;
    }
    let register = match masks(instruction) {
        Some(register) => register,
        None => instruction.op2_register(),
    };
    let bytes = vector(state, register);
    let last = n * size + size - 1;
    bytes.get(last).is_some_and(|byte| byte & 0x80 != 0)
}

/// The elements of a gather or scatter that are selected.
fn gathered(
    state: &State,
    instruction: &Instruction,
    memory: &iced_x86::UsedMemory,
) -> Vec<(u64, u64)> {
    let element = memory.memory_size().size();
    let index = memory.vsib_size() as usize;
    let data = (0..instruction.op_count())
        .filter(|&n| instruction.op_kind(n) == OpKind::Register)
        .map(|n| instruction.op_register(n).size())
        .next()
        .unwrap_or(0);
    if element == 0 || index == 0 {
        return Vec::new();
    }
    let count = (data / element).min(memory.index().size() / index);
    let read = |register, element, size| Some(value(state, register, element, size));
    (0..count)
        .filter(|&n| selected(state, instruction, n, element))
        .filter_map(|n| Some((memory.virtual_address(n, read)?, element as u64)))
        .collect()
}

/// The words of a masked vector in memory with a selected element, and their selected bytes.
fn masked(state: &State, instruction: &Instruction, address: u64, size: u64) -> Vec<(u64, u64)> {
    let element = match instruction.mnemonic() {
        Mnemonic::Maskmovdqu | Mnemonic::Maskmovq | Mnemonic::Vmaskmovdqu => 1,
        _ => instruction.memory_size().element_size().max(1),
    };
    let name = format!("{:?}", instruction.mnemonic());
    let dense = name.contains("compress") || name.contains("expand");
    if instruction.is_broadcast() {
        return vec![(address, size)];
    }
    let count = size as usize / element;
    let mut words: Vec<(u64, u64)> = Vec::new();
    let chosen = (0..count).filter(|&n| selected(state, instruction, n, element));
    for (next, n) in chosen.enumerate() {
        let at = address.wrapping_add((element * if dense { next } else { n }) as u64);
        match words.last_mut() {
            Some((start, len)) if at.wrapping_sub(*start) < WORD => {
                *len = at.wrapping_sub(*start) + element as u64;
            }
            _ => words.push((at, element as u64)),
        }
    }
    words
}

/// The address of the part of a bit string that a bit of a register's number lies in.
fn bit_string(state: &State, instruction: &Instruction, address: u64, size: u64) -> u64 {
    let register = instruction.op1_register();
    let number = value(state, register, 0, 0);
    let bits = size.max(1) * 8;
    let number = match size {
        2 => i64::from(number as i16),
        4 => i64::from(number as i32),
        _ => number as i64,
    };
    address.wrapping_add_signed(number.div_euclid(bits as i64) * size as i64)
}

/// Records a string instruction, repeated or not.
fn strings(to: &mut To, state: &State, instruction: &Instruction) {
    const DIRECTION: u64 = 0x400;
    let name = format!("{:?}", instruction.mnemonic());
    let size = match name.as_bytes().last() {
        Some(b'b') => 1,
        Some(b'w') => 2,
        Some(b'd') => 4,
        _ => 8,
    };
    let down = state.rflags & DIRECTION != 0;
    let short = (0..instruction.op_count()).any(|n| {
        matches!(
            instruction.op_kind(n),
            OpKind::MemorySegESI | OpKind::MemoryESEDI
        )
    });
    let narrow = |value: u64| if short { value & 0xffff_ffff } else { value };
    let repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    let most = if repeated { narrow(state.regs[RCX]) } else { 1 };
    let (from, at) = (narrow(state.regs[RSI]), narrow(state.regs[RDI]));
    let (loads, stores) = match name.as_bytes() {
        [b'M', b'o', ..] => (vec![from], Some(at)),
        [b'S', b't', ..] => (vec![], Some(at)),
        [b'L', ..] => (vec![from], None),
        [b'S', b'c', ..] => (vec![at], None),
        [b'C', ..] => (vec![from, at], None),
        // Input and output ports.
        _ => return,
    };
    let count = match name.as_bytes() {
        [b'S', b'c', ..] | [b'C', ..] if repeated => {
            let until = instruction.has_repne_prefix();
            let accumulator = state.regs[crate::state::RAX];
            compared(&loads, accumulator, size, most, down, until)
        }
        _ => most,
    };
    let accesses = loads.iter().map(|&start| (start, false));
    let accesses: Vec<(u64, bool)> = accesses.chain(stores.map(|start| (start, true))).collect();
    let aligned = accesses.iter().all(|(start, _)| start % size == 0);
    if aligned && !down {
        return to.words(&accesses, count * size);
    }
    let step = if down { size.wrapping_neg() } else { size };
    for n in 0..count {
        for &(start, write) in &accesses {
            to.string(start.wrapping_add(step.wrapping_mul(n)), size, write);
        }
    }
}

/// Number of iterations of a repeated comparison: of memory with the accumulator, or of two strings.
fn compared(
    strings: &[u64],
    accumulator: u64,
    size: u64,
    most: u64,
    down: bool,
    until: bool,
) -> u64 {
    let mask = u64::MAX >> (64 - 8 * size);
    let load = |start: u64, n: u64| -> Option<u64> {
        let offset = n.wrapping_mul(size);
        let at = if down {
            start.wrapping_sub(offset)
        } else {
            start.wrapping_add(offset)
        };
        Some(match size {
            1 => guest::read::<u8>(at)?.into(),
            2 => guest::read::<u16>(at)?.into(),
            4 => guest::read::<u32>(at)?.into(),
            _ => guest::read::<u64>(at)?,
        })
    };
    for n in 0..most {
        let other = match strings {
            [_, other] => load(*other, n),
            _ => Some(accumulator & mask),
        };
        let (Some(one), Some(other)) = (load(strings[0], n), other) else {
            return n;
        };
        if (one == other) == until {
            return n + 1;
        }
    }
    most
}
