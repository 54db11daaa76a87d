//! Decodes a block: instructions from one address on, past branches not taken and along jumps, until the next address
//! is unknown.
#![allow(unsafe_code)]

use iced_x86::{
    Code, Decoder, DecoderError, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind,
    Register,
};

use super::checks::{Checks, LONGEST};
use crate::changes::Changes;
use crate::regions::Regions;
use crate::sys;
use crate::timestamp;
use numaloc_follow::memory;
use rangemap::RangeSet;

use numaloc_follow::address_map::{self, AddressSet};

/// The program's executable memory.
pub struct Source {
    /// Executable regions.
    pub regions: Regions,
    /// What the program has mapped, by its loader or by calls.
    pub mapped: RangeSet<u64>,
    /// Pages that the program may write to, but that are read-only at present because code was translated from them.
    pub protected: AddressSet,
    /// How changes of code are noticed.
    pub changes: Changes,
}

impl Source {
    /// No regions.
    pub const fn new() -> Self {
        Self {
            regions: Regions::new(),
            mapped: RangeSet::new(),
            protected: address_map::set(),
            changes: Changes::new(),
        }
    }

    /// Whether code from an instruction at an address compares itself with memory.
    pub fn is_checked(&self, at: u64) -> bool {
        self.checks(at) || self.checks(at + LONGEST as u64 - 1)
    }

    fn checks(&self, at: u64) -> bool {
        self.changes.is_shared(at)
            || self.changes.is_written_often(at)
                && self.regions.find(at).is_some_and(|region| region.writable)
    }

    /// Whether code at an address is on the stack of the thread for which it is translated.
    pub fn is_on_stack(&self, at: u64) -> bool {
        let region = self.regions.find(at).filter(|region| region.writable);
        region.is_some() && region == self.regions.find(self.changes.stack_pointer)
    }

    /// Reads executable bytes at an address: at least those of one instruction, unless the executable addresses end.
    /// Returns their number.
    fn read(
        &mut self,
        at: u64,
        checked: bool,
        to: &mut [u8; WINDOW],
        pages: &mut Vec<u64>,
    ) -> Option<usize> {
        let end = self.regions.end(at, WINDOW as u64)?;
        let mut len = (end - at).min(WINDOW as u64);
        // Writable pages are made read-only, so no more of them than necessary.
        let page_end = sys::page_down(at) + sys::PAGE;
        if at + len > page_end {
            len = len.min((page_end - at).max(LONGEST as u64));
        }
        Self::record(at, pages);
        if checked {
            // Such memory may be gone, or not there yet.
            memory::read(at, &mut to[..len as usize])?;
            return Some(len as usize);
        }
        for page in (sys::page_down(at)..at + len).step_by(sys::PAGE as usize) {
            self.protect(page.max(at));
        }
        // SAFETY: the program's memory maps these bytes as executable, hence readable.
        unsafe { std::ptr::copy_nonoverlapping(at as *const u8, to.as_mut_ptr(), len as usize) };
        Some(len as usize)
    }

    /// Reads code at an address that nothing writes to, within a page. Returns the number of bytes.
    pub fn peek(&self, at: u64, to: &mut Bytes) -> usize {
        let region = self.regions.find(at);
        let region = region.filter(|region| !region.writable && !self.changes.is_shared(at));
        let Some(region) = region else { return 0 };
        let end = region.end.min(sys::page_down(at) + sys::PAGE);
        let len = ((end - at) as usize).min(to.len());
        // SAFETY: the program's memory maps these bytes as executable, hence readable.
        unsafe { std::ptr::copy_nonoverlapping(at as *const u8, to.as_mut_ptr(), len) };
        len
    }

    /// Where the executable memory ends, if it does so within the instruction at an address.
    pub fn cut_off(&self, at: u64) -> Option<u64> {
        let end = self.regions.end(at, LONGEST as u64)?;
        let len = (end - at).min(LONGEST as u64);
        let code = crate::guest::bytes(at, len as usize)?;
        let mut decoder = Decoder::with_ip(64, &code, at, DecoderOptions::NONE);
        let _ = decoder.decode();
        let more = decoder.last_error() == DecoderError::NoMoreBytes;
        (more && len < LONGEST as u64).then_some(end)
    }

    /// Records the page of an address.
    fn record(at: u64, pages: &mut Vec<u64>) {
        let page = sys::page_down(at);
        if pages.last() != Some(&page) && !pages.contains(&page) {
            pages.push(page);
        }
    }

    /// Makes the page of an address read-only if the program may write to it.
    fn protect(&mut self, at: u64) {
        let writable = self.regions.find(at).is_some_and(|region| region.writable);
        let page = sys::page_down(at);
        if writable && self.protected.insert(page) {
            let arguments = [page, sys::PAGE, libc::PROT_READ as u64, 0, 0, 0];
            // SAFETY: the program's page; a write to it makes it writable again.
            unsafe { sys::call(libc::SYS_mprotect, arguments) };
        }
    }

    /// Makes a page writable that was made read-only.
    pub fn unprotect(&mut self, page: u64) {
        self.protected.remove(&page);
        let prot = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        // SAFETY: the program asked for a writable page.
        unsafe { sys::call(libc::SYS_mprotect, [page, sys::PAGE, prot, 0, 0, 0]) };
    }
}

/// Some code, for [`Source::peek`].
pub type Bytes = [u8; 64];

/// A decoded instruction and the position of its displacement.
#[derive(Clone)]
pub struct Decoded {
    /// The instruction.
    pub instruction: Instruction,
    /// Its bytes.
    pub bytes: [u8; LONGEST],
    /// Offset of the displacement of a rip-relative operand.
    pub displacement: usize,
    /// Where the block goes on after a call, a return or an indirect branch that does not end it.
    pub next: Option<u64>,
    /// Whether a conditional branch follows: the processor executes a comparison together with it.
    pub before_branch: bool,
}

#[cfg(test)]
impl Decoded {
    /// Instructions from [`Block::AT`] on, without their bytes.
    pub fn all(code: &[u8]) -> Vec<Self> {
        let decoder = Decoder::with_ip(64, code, Block::AT, DecoderOptions::NONE);
        let decoded = |instruction| Self {
            instruction,
            bytes: [0; LONGEST],
            displacement: 0,
            next: None,
            before_branch: false,
        };
        decoder.into_iter().map(decoded).collect()
    }
}

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It continues at an address.
    Jump(u64),
    /// A direct call, the last instruction.
    Call(u64),
    /// An indirect call, the last instruction.
    CallIndirect,
    /// An indirect jump, the last instruction.
    JumpIndirect,
    /// A return, the last instruction.
    Return,
    /// A system call, the last instruction.
    SystemCall,
    /// `int3`, the last instruction.
    Breakpoint,
    /// There is no instruction at an address.
    NoCode(u64),
    /// An instruction that cannot be translated.
    Unsupported(u64),
}

/// A block.
pub struct Block {
    /// Its address.
    pub pc: u64,
    /// Its instructions in order of execution.
    pub instructions: Vec<Decoded>,
    /// How it ends.
    pub end: End,
    /// Pages it was decoded from.
    pub pages: Vec<u64>,
    /// Whether it is a path of several blocks.
    pub is_path: bool,
    /// What its code compares with memory when it begins, if it does.
    pub checks: Option<Checks>,
}

#[cfg(test)]
impl Block {
    /// Where blocks of tests begin.
    pub const AT: u64 = 0x1000;

    /// A block of some code.
    pub fn of(code: &[u8], end: End) -> Self {
        Self {
            pc: Self::AT,
            instructions: Decoded::all(code),
            end,
            pages: Vec::new(),
            is_path: false,
            checks: None,
        }
    }
}

/// Largest number of instructions in a block.
const INSTRUCTIONS: usize = 192;
/// Largest number of conditional branches in a block.
pub const BRANCHES: usize = 4;
/// The same in code that only counts accesses: it counts once for a block.
pub const BRANCHES_COUNTED: usize = 8;
/// The same in code that records each branch's side by itself: shorter blocks are translated faster.
pub const BRANCHES_RECORDED: usize = 2;

/// Bytes that are read at once.
const WINDOW: usize = 96;

/// Decodes the block at `pc`, with at most this many conditional branches, after making pages read-only that the
/// program may write to. `instructions` and `pages` are empty memory for what it contains.
pub fn decode(
    source: &mut Source,
    pc: u64,
    branches: usize,
    instructions: Vec<Decoded>,
    pages: Vec<u64>,
) -> Block {
    let mut block = Block {
        pc,
        instructions,
        end: End::Jump(pc),
        pages,
        is_path: false,
        checks: source
            .is_checked(pc)
            .then(|| Checks::new(source.is_on_stack(pc))),
    };
    let checked = block.checks.is_some();
    let mut window = [0; WINDOW];
    let mut walk = Walk {
        at: pc,
        from: pc,
        parts: Vec::new(),
        branches: 0,
        most: branches,
    };
    loop {
        if source.is_checked(walk.at) != checked {
            block.end = End::Jump(walk.at);
            return block;
        }
        let found = source.read(walk.at, checked, &mut window, &mut block.pages);
        let Some(len) = found else {
            block.end = End::NoCode(walk.at);
            return block;
        };
        if let Some(end) = decode_window(&window[..len], &mut walk, &mut block) {
            block.end = end;
            return block;
        }
    }
}

/// Progress through a block.
struct Walk {
    /// Address of the next instruction.
    at: u64,
    /// Begin of the current part: instructions one after the other in memory.
    from: u64,
    /// Earlier parts.
    parts: Vec<(u64, u64)>,
    /// Number of conditional branches so far.
    branches: usize,
    /// Largest number of them.
    most: usize,
}

impl Walk {
    /// Continues at the target of a jump. False if the block has been there.
    fn jump(&mut self, end: u64, target: u64) -> bool {
        self.parts.push((self.from, end));
        self.at = target;
        self.from = target;
        let been = |&(from, end): &(u64, u64)| (from..end).contains(&target);
        !self.parts.iter().any(been)
    }

    /// Whether the block has been at the next instruction, as the beginning of a part.
    fn returned(&self) -> bool {
        self.parts.iter().any(|part| part.0 == self.at)
    }
}

/// Decodes instructions from bytes of the program at `walk.at`. Returns the end of the block, or `None` if more bytes
/// are necessary, from another address.
fn decode_window(window: &[u8], walk: &mut Walk, block: &mut Block) -> Option<End> {
    let base = walk.at;
    let mut decoder = Decoder::with_ip(64, window, base, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    loop {
        let start = decoder.position();
        if start > 0 && window.len() - start < LONGEST {
            return None;
        }
        if block.instructions.len() >= INSTRUCTIONS || walk.returned() {
            return Some(End::Jump(walk.at));
        }
        decoder.decode_out(&mut instruction);
        let last = match &mut block.checks {
            Some(checks) => checks.add(walk.at, &instruction, &window[start..]),
            None => false,
        };
        if instruction.is_invalid() {
            return Some(End::NoCode(walk.at));
        }
        Source::record(instruction.next_ip() - 1, &mut block.pages);
        let end = special(&instruction);
        if let Some(End::Unsupported(_)) = end {
            return end;
        }
        let next = instruction.next_ip();
        if end.is_none() && instruction.flow_control() == FlowControl::UnconditionalBranch {
            let target = instruction.near_branch_target();
            if !walk.jump(next, target) || walk.branches >= walk.most || block.checks.is_some() {
                return Some(End::Jump(target));
            }
            return None;
        }
        let mut decoded = Decoded {
            instruction,
            bytes: [0; LONGEST],
            displacement: 0,
            next: None,
            before_branch: false,
        };
        let len = instruction.len();
        decoded.bytes[..len].copy_from_slice(&window[start..start + len]);
        if instruction.is_ip_rel_memory_operand() {
            let offsets = decoder.get_constant_offsets(&instruction);
            decoded.displacement = offsets.displacement_offset();
        }
        if let Some(before) = block.instructions.last_mut() {
            before.before_branch = instruction.is_jcc_short_or_near();
        }
        block.instructions.push(decoded);
        walk.at = next;
        let end = end.or_else(|| end_after(&instruction, walk));
        let end = end.or(last.then_some(End::Jump(next)));
        if end.is_some() {
            return end;
        }
    }
}

/// The end of the block after an instruction, by its control flow.
fn end_after(instruction: &Instruction, walk: &mut Walk) -> Option<End> {
    match instruction.flow_control() {
        FlowControl::Next => None,
        FlowControl::ConditionalBranch => {
            walk.branches += 1;
            let counts =
                instruction.is_loop() || instruction.is_loopcc() || instruction.is_jcx_short();
            (walk.branches >= walk.most || counts).then_some(End::Jump(walk.at))
        }
        FlowControl::Call => Some(End::Call(instruction.near_branch_target())),
        FlowControl::IndirectCall => Some(End::CallIndirect),
        FlowControl::IndirectBranch => Some(End::JumpIndirect),
        FlowControl::Return => Some(End::Return),
        // A fault, so the code after it is rarely reached.
        FlowControl::Exception
        | FlowControl::Interrupt
        | FlowControl::XbeginXabortXend
        | FlowControl::UnconditionalBranch => Some(End::Jump(walk.at)),
    }
}

/// Instructions that end a block independent of their control flow.
fn special(instruction: &Instruction) -> Option<End> {
    let at = instruction.ip();
    let unsupported = Some(End::Unsupported(at));
    match instruction.code() {
        Code::Syscall => return Some(End::SystemCall),
        Code::Rdtsc | Code::Rdtscp if timestamp::is_guarded() => return unsupported,
        Code::Int3 => return Some(End::Breakpoint),
        Code::Int_imm8 if instruction.immediate8() != 0x80 => return None,
        Code::Int_imm8 | Code::Sysenter => return unsupported,
        Code::Jmp_rel32_64 | Code::Jmp_rel8_64 | Code::Call_rel32_64 => return None,
        _ => {}
    }
    if means_gs(instruction) {
        return unsupported;
    }
    match instruction.mnemonic() {
        Mnemonic::Rdgsbase | Mnemonic::Wrgsbase | Mnemonic::Xbegin | Mnemonic::Iretq => unsupported,
        _ => match instruction.flow_control() {
            FlowControl::Return if instruction.mnemonic() != Mnemonic::Ret => unsupported,
            FlowControl::Call if !instruction.is_call_near() => unsupported,
            FlowControl::IndirectCall if !instruction.is_call_near_indirect() => unsupported,
            FlowControl::IndirectBranch if !instruction.is_jmp_near_indirect() => unsupported,
            FlowControl::UnconditionalBranch if !instruction.is_jmp_short_or_near() => unsupported,
            _ => None,
        },
    }
}

/// Whether an instruction uses gs in a way that copies cannot take over: another operand than that of
/// [`has_gs_operand`], or the register itself, except for reading it: it is 0, as it is for the engine.
fn means_gs(instruction: &Instruction) -> bool {
    let reads = matches!(
        instruction.code(),
        Code::Mov_rm16_Sreg
            | Code::Mov_r32m16_Sreg
            | Code::Mov_r64m16_Sreg
            | Code::Pushw_GS
            | Code::Pushq_GS
    );
    let register = (0..instruction.op_count()).any(|n| {
        instruction.op_kind(n) == OpKind::Register && instruction.op_register(n) == Register::GS
    });
    let implicit = (0..instruction.op_count()).any(|n| {
        let kind = instruction.op_kind(n);
        matches!(
            kind,
            OpKind::MemorySegSI
                | OpKind::MemorySegESI
                | OpKind::MemorySegRSI
                | OpKind::MemorySegDI
                | OpKind::MemorySegEDI
                | OpKind::MemorySegRDI
        )
    });
    let changes_flow = !matches!(instruction.flow_control(), FlowControl::Next);
    let other = match instruction.mnemonic() {
        Mnemonic::Xlatb => true,
        Mnemonic::Pop => instruction.memory_base() == Register::RSP,
        _ => changes_flow,
    };
    register && !reads
        || instruction.segment_prefix() == Register::GS
            && (implicit || other && has_gs_operand(instruction))
}

/// Whether an instruction accesses memory that gs addresses, by an operand of its own.
pub fn has_gs_operand(instruction: &Instruction) -> bool {
    instruction.segment_prefix() == Register::GS
        && instruction.mnemonic() != Mnemonic::Lea
        && (0..instruction.op_count()).any(|n| instruction.op_kind(n) == OpKind::Memory)
}
