//! Which accesses an instruction makes, and how translated code records them: pure.

use iced_x86::{
    CodeSize, Instruction, InstructionInfo, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};
use numaloc_follow::owners::Owner;
use numaloc_follow::usage::{self, Use};

use super::descriptor::{Kind, LARGEST, Masked, WORD};
use super::flow::Flow;

/// An address that one instruction can compute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operand {
    /// A 64-bit register or [`Register::None`].
    pub base: Register,
    /// A 64-bit register or [`Register::None`].
    pub index: Register,
    /// Factor of the index.
    pub scale: u8,
    /// Constant part.
    pub displacement: u64,
    /// Whether the base of fs is added.
    pub fs: bool,
}

impl Operand {
    /// The address, if it depends on no register and lies below 2 GiB.
    pub fn constant(&self) -> Option<u64> {
        let fixed = self.base == Register::None && self.index == Register::None && !self.fs;
        (fixed && self.displacement < LOW).then_some(self.displacement)
    }
}

/// End of the addresses for which entries of the tables have absolute addresses.
const LOW: u64 = (1 << 31) - 64;

/// One access of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Its address.
    pub operand: Operand,
    /// Its kind: [`Kind::Read`], [`Kind::Write`], [`Kind::Update`] or [`Kind::Atomic`].
    pub kind: Kind,
    /// Bytes.
    pub size: u16,
    /// The registers that its address and value come from or go to, if there is an access trace.
    pub flow: Flow,
}

impl Access {
    /// Loads and stores that it counts as.
    pub fn counts(&self) -> (i32, i32) {
        let words = i32::from(self.size.div_ceil(WORD));
        self.for_both(words)
    }

    /// Bytes that it loads and stores.
    pub fn bytes(&self) -> (i32, i32) {
        self.for_both(self.size.into())
    }

    fn for_both(&self, amount: i32) -> (i32, i32) {
        let of = |counts: bool| if counts { amount } else { 0 };
        (of(self.kind != Kind::Write), of(self.kind != Kind::Read))
    }

    /// Whether translated code may count it: not in code that synchronises.
    pub fn is_plain(&self, owner: Owner) -> bool {
        owner != Owner::Runtime && self.kind != Kind::Atomic && self.size <= LARGEST
    }
}

/// The accesses of an instruction: few, in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accesses {
    all: [Access; Self::MOST],
    count: usize,
}

impl Accesses {
    const MOST: usize = 3;

    /// None.
    fn none() -> Self {
        let operand = Operand {
            base: Register::None,
            index: Register::None,
            scale: 1,
            displacement: 0,
            fs: false,
        };
        let none = Access {
            operand,
            kind: Kind::Read,
            size: 0,
            flow: Flow::default(),
        };
        Self {
            all: [none; Self::MOST],
            count: 0,
        }
    }

    /// Adds one; false if there are too many.
    fn push(&mut self, access: Access) -> bool {
        let free = self.all.get_mut(self.count);
        let fits = free.map(|place| *place = access).is_some();
        self.count += usize::from(fits);
        fits
    }
}

impl std::ops::DerefMut for Accesses {
    fn deref_mut(&mut self) -> &mut [Access] {
        &mut self.all[..self.count]
    }
}

impl std::ops::Deref for Accesses {
    type Target = [Access];

    fn deref(&self) -> &[Access] {
        &self.all[..self.count]
    }
}

/// How the accesses of an instruction are recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Plan {
    /// It makes none.
    Nothing,
    /// Before it is executed, in this order.
    Before(Accesses),
    /// After it was executed; `announce`: other threads may see its store before that.
    After {
        /// The access.
        access: Access,
        /// See [`Kind::Announce`].
        announce: bool,
    },
    /// Before it is executed: elements that a mask register selects.
    Masked {
        /// The address of the first element.
        operand: Operand,
        /// The elements.
        masked: Masked,
        /// Number of the mask register.
        mask: u8,
    },
    /// By the engine, before it is executed.
    Complex,
}

/// The address of an access; `None` if it takes more than one instruction.
fn operand(memory: &UsedMemory) -> Option<Operand> {
    let wide = |register: Register| register == Register::None || register.is_gpr64();
    let simple = wide(memory.base())
        && wide(memory.index())
        && memory.address_size() == CodeSize::Code64
        && memory.segment() != Register::GS;
    let fs = memory.segment() == Register::FS;
    let constant = memory.displacement() as i64;
    let reaches = i32::try_from(constant).is_ok()
        || (memory.base() == Register::None && memory.index() == Register::None);
    (simple && reaches).then_some(Operand {
        base: memory.base(),
        index: memory.index(),
        scale: memory.scale() as u8,
        displacement: memory.displacement(),
        fs,
    })
}

/// Whether an instruction takes a hint or manages caches, without accessing data.
fn is_hint(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{
        Cldemote, Clflush, Clflushopt, Clwb, Prefetch, Prefetchnta, Prefetcht0, Prefetcht1,
        Prefetcht2, Prefetchw, Prefetchwt1,
    };
    matches!(
        mnemonic,
        Cldemote
            | Clflush
            | Clflushopt
            | Clwb
            | Prefetch
            | Prefetchnta
            | Prefetcht0
            | Prefetcht1
            | Prefetcht2
            | Prefetchw
            | Prefetchwt1
    )
}

/// Whether the addresses of an instruction depend on more than its operand.
fn is_complex(instruction: &Instruction) -> bool {
    use Mnemonic::{Bt, Btc, Btr, Bts, Enter, Maskmovdqu, Maskmovq, Vmaskmovdqu, Xlatb};
    let bits = matches!(instruction.mnemonic(), Bt | Btc | Btr | Bts)
        && instruction.op1_register() != Register::None;
    let masked = matches!(
        instruction.mnemonic(),
        Mnemonic::Vmaskmovps
            | Mnemonic::Vmaskmovpd
            | Mnemonic::Vpmaskmovd
            | Mnemonic::Vpmaskmovq
            | Maskmovdqu
            | Maskmovq
            | Vmaskmovdqu
    );
    let repeated = instruction.is_string_instruction()
        && (instruction.has_rep_prefix() || instruction.has_repne_prefix());
    // `pop` with an operand relative to rsp uses its value after the instruction.
    let pops = instruction.mnemonic() == Mnemonic::Pop
        && (0..instruction.op_count()).any(|n| instruction.op_kind(n) == OpKind::Memory);
    bits || masked
        || repeated
        || pops
        || instruction.is_vsib()
        || instruction.has_op_mask()
        || matches!(instruction.mnemonic(), Xlatb | Enter)
}

/// [`Plan::Masked`] for an instruction with a mask register, if its elements are next to each other.
fn masked(instruction: &Instruction, info: &InstructionInfo) -> Option<Plan> {
    use Mnemonic::{
        Vcompresspd, Vcompressps, Vexpandpd, Vexpandps, Vpcompressb, Vpcompressd, Vpcompressq,
        Vpcompressw, Vpexpandb, Vpexpandd, Vpexpandq, Vpexpandw,
    };
    let dense = matches!(
        instruction.mnemonic(),
        Vcompresspd
            | Vcompressps
            | Vexpandpd
            | Vexpandps
            | Vpcompressb
            | Vpcompressd
            | Vpcompressq
            | Vpcompressw
            | Vpexpandb
            | Vpexpandd
            | Vpexpandq
            | Vpexpandw
    );
    if !instruction.has_op_mask() || instruction.is_vsib() || instruction.is_broadcast() || dense {
        return None;
    }
    let mut memories = usage::accesses(info);
    let (memory, None) = (memories.next()?, memories.next()) else {
        return None;
    };
    let stores = match memory.access() {
        OpAccess::Read | OpAccess::CondRead => false,
        OpAccess::Write | OpAccess::CondWrite => true,
        _ => return None,
    };
    let size = memory.memory_size();
    let masked = Masked {
        bytes: u8::try_from(size.size())
            .ok()
            .filter(|&bytes| bytes <= 64)?,
        element: u8::try_from(size.element_size()).ok()?,
        stores,
    };
    Some(Plan::Masked {
        operand: operand(memory)?,
        masked,
        mask: instruction.op_mask().number() as u8,
    })
}

/// How to record an instruction, described by `info`, of code that belongs to `owner`. `ends`: it is the last of its
/// block.
pub fn plan(instruction: &Instruction, info: &InstructionInfo, owner: Owner, ends: bool) -> Plan {
    let usage = usage::memory_use(instruction, info);
    if usage == Use::None || is_hint(instruction.mnemonic()) {
        return Plan::Nothing;
    }
    if let Some(plan) = masked(instruction, info) {
        return plan;
    }
    if is_complex(instruction) {
        return Plan::Complex;
    }
    let mut accesses = Accesses::none();
    for memory in usage::accesses(info) {
        let Some(operand) = operand(memory) else {
            return Plan::Complex;
        };
        let size = match memory.memory_size().size() {
            // State of the processor: its legacy part and header.
            0 => 576,
            size => size.min(4095) as u16,
        };
        let kind = match memory.access() {
            _ if usage == Use::Atomic => Kind::Atomic,
            OpAccess::Read | OpAccess::CondRead => Kind::Read,
            OpAccess::Write | OpAccess::CondWrite => Kind::Write,
            _ => Kind::Update,
        };
        let access = Access {
            operand,
            kind,
            size,
            flow: Flow::default(),
        };
        if !accesses.push(access) {
            return Plan::Complex;
        }
    }
    let [access] = accesses[..] else {
        return Plan::Before(accesses);
    };
    let on_stack = access.operand.base == Register::RSP;
    // Threads wait for each other by loads of run-time libraries: what was stored is known after them. A thread's own
    // stack is different.
    let waits = owner == Owner::Runtime && !on_stack && !ends;
    if usage == Use::Atomic {
        let announce = owner != Owner::Allocator;
        return Plan::After { access, announce };
    }
    if waits {
        let announce = access.kind != Kind::Read;
        return Plan::After { access, announce };
    }
    Plan::Before(accesses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    fn planned(code: &[u8], owner: Owner) -> Plan {
        let instruction = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).decode();
        let mut factory = InstructionInfoFactory::new();
        plan(&instruction, factory.info(&instruction), owner, false)
    }

    fn kinds(plan: Plan) -> Vec<(Kind, u16)> {
        match plan {
            Plan::Before(accesses) => accesses.iter().map(|one| (one.kind, one.size)).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn plain_accesses_are_recorded_before_they_are_made() {
        let of = |code: &[u8]| kinds(planned(code, Owner::Program));
        // mov rax, [rdi + 8 * rcx]; mov [rdi], eax; add [rdi], al; push rax; push [rdi]; call [rdi]
        assert_eq!(of(&[0x48, 0x8b, 0x04, 0xcf]), [(Kind::Read, 8)]);
        assert_eq!(of(&[0x89, 0x07]), [(Kind::Write, 4)]);
        assert_eq!(of(&[0x00, 0x07]), [(Kind::Update, 1)]);
        assert_eq!(of(&[0x50]), [(Kind::Write, 8)]);
        let mut both = of(&[0xff, 0x37]);
        both.sort_by_key(|one| one.0 as u8);
        assert_eq!(both, [(Kind::Read, 8), (Kind::Write, 8)]);
        assert_eq!(of(&[0xff, 0x17]).len(), 2);
        // vmovups ymm0, [rdi]
        assert_eq!(of(&[0xc5, 0xfc, 0x10, 0x07]), [(Kind::Read, 32)]);
    }

    #[test]
    fn a_call_stores_below_the_stack_pointer() {
        let Plan::Before(accesses) = planned(&[0xe8, 0, 0, 0, 0], Owner::Program) else {
            panic!("a store");
        };
        assert_eq!(accesses[0].operand.base, Register::RSP);
        assert_eq!(accesses[0].operand.displacement as i64, -8);
    }

    #[test]
    fn an_operand_relative_to_rip_has_a_constant_address() {
        // mov rax, [rip + 0x10], of 7 bytes at 0x1000
        let plan = planned(&[0x48, 0x8b, 0x05, 0x10, 0, 0, 0], Owner::Program);
        let Plan::Before(accesses) = plan else {
            panic!("a load");
        };
        assert_eq!(accesses[0].operand.base, Register::None);
        assert_eq!(accesses[0].operand.displacement, 0x1017);
    }

    #[test]
    fn atomic_instructions_and_loads_of_run_time_libraries_are_recorded_afterwards() {
        // lock xadd [rdi], rax; xchg [rdi], rax; mov rax, [rdi]; mov [rdi], rax; mov rax, [rsp]
        let lock = [0xf0, 0x48, 0x0f, 0xc1, 0x07];
        let after = |code: &[u8], owner| match planned(code, owner) {
            Plan::After { access, announce } => Some((access.kind, announce)),
            _ => None,
        };
        assert_eq!(after(&lock, Owner::Program), Some((Kind::Atomic, true)));
        assert_eq!(after(&lock, Owner::Allocator), Some((Kind::Atomic, false)));
        let xchg = after(&[0x48, 0x87, 0x07], Owner::Program);
        assert_eq!(xchg, Some((Kind::Atomic, true)));
        let load = [0x48, 0x8b, 0x07];
        assert_eq!(after(&load, Owner::Runtime), Some((Kind::Read, false)));
        assert_eq!(after(&load, Owner::Program), None);
        let store = [0x48, 0x89, 0x07];
        assert_eq!(after(&store, Owner::Runtime), Some((Kind::Write, true)));
        assert_eq!(after(&[0x48, 0x8b, 0x04, 0x24], Owner::Runtime), None);
    }

    #[test]
    fn addresses_that_depend_on_data_are_found_out_by_the_engine() {
        // rep movsb; bt [rdi], rax; vgatherdpd ymm0, [rdi + xmm1 * 8], ymm2; mov eax, [ecx]
        let code: [&[u8]; 4] = [
            &[0xf3, 0xa4],
            &[0x48, 0x0f, 0xa3, 0x07],
            &[0xc4, 0xe2, 0xed, 0x92, 0x04, 0xcf],
            &[0x67, 0x8b, 0x01],
        ];
        for code in code {
            assert_eq!(planned(code, Owner::Program), Plan::Complex, "{code:x?}");
        }
    }

    #[test]
    fn vectors_with_a_mask_are_recorded_by_elements_that_are_next_to_each_other() {
        // vmovups zmm0 {k1}, [rdi]; vpcompressd [rdi] {k1}, zmm0
        let plan = planned(&[0x62, 0xf1, 0x7c, 0x49, 0x10, 0x07], Owner::Program);
        let Plan::Masked { masked, mask, .. } = plan else {
            panic!("{plan:?}");
        };
        assert_eq!(
            (masked.bytes, masked.element, masked.stores, mask),
            (64, 4, false, 1)
        );
        let plan = planned(&[0x62, 0xf2, 0x7d, 0x49, 0x8b, 0x07], Owner::Program);
        assert_eq!(plan, Plan::Complex);
    }

    #[test]
    fn instructions_without_data_record_nothing() {
        // lea rax, [rdi]; nop [rax]; prefetcht0 [rdi]; add rax, rcx
        let code: [&[u8]; 4] = [
            &[0x48, 0x8d, 0x07],
            &[0x0f, 0x1f, 0x00],
            &[0x0f, 0x18, 0x0f],
            &[0x48, 0x01, 0xc8],
        ];
        for code in code {
            assert_eq!(planned(code, Owner::Program), Plan::Nothing, "{code:x?}");
        }
    }
}
