//! Classifies instructions by how they use memory.

use iced_x86::{Instruction, InstructionInfo, Mnemonic, OpAccess, UsedMemory};

/// How an instruction uses memory, as far as its callbacks depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// No access.
    None,
    /// One load of 1, 2, 4 or 8 bytes.
    Load(u8),
    /// One store of 1, 2, 4 or 8 bytes.
    Store(u8),
    /// One load and one store of 1, 2, 4 or 8 bytes at the same address: `add %rax,(%rdi)`.
    Update(u8),
    /// One load of 16 or 32 bytes.
    WideLoad(u8),
    /// One store of 16 or 32 bytes.
    WideStore(u8),
    /// Repeated loads, stores or both: `rep movsb`.
    String,
    /// An atomic read-modify-write.
    Atomic,
    /// Anything else.
    Other,
}

/// How `instruction`, described by `info`, uses memory.
pub fn memory_use(instruction: &Instruction, info: &InstructionInfo) -> Use {
    if instruction.is_invalid() {
        return Use::Other;
    }
    let mut accesses = accesses(info);
    let Some(first) = accesses.next() else {
        return Use::None;
    };
    if instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg {
        return Use::Atomic;
    }
    if instruction.is_string_instruction()
        && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
    {
        return Use::String;
    }
    let size = first.memory_size().size();
    if accesses.next().is_some() {
        return Use::Other;
    }
    match (first.access(), size) {
        (OpAccess::Read, 1 | 2 | 4 | 8) => Use::Load(size as u8),
        (OpAccess::Write, 1 | 2 | 4 | 8) => Use::Store(size as u8),
        (OpAccess::ReadWrite, 1 | 2 | 4 | 8) if always_stores(instruction.mnemonic()) => {
            Use::Update(size as u8)
        }
        (OpAccess::Read, 16 | 32) => Use::WideLoad(size as u8),
        (OpAccess::Write, 16 | 32) => Use::WideStore(size as u8),
        _ => Use::Other,
    }
}

/// The accesses of an instruction.
pub fn accesses(info: &InstructionInfo) -> impl Iterator<Item = &UsedMemory> {
    let used = info.used_memory().iter();
    used.filter(|memory| !matches!(memory.access(), OpAccess::None | OpAccess::NoMemAccess))
}

/// Whether an instruction orders memory accesses without making one.
pub fn synchronises(instruction: &Instruction) -> bool {
    use Mnemonic::{Cpuid, Lfence, Mfence, Pause, Sfence, Syscall};
    matches!(
        instruction.mnemonic(),
        Mfence | Lfence | Sfence | Pause | Cpuid | Syscall
    ) || instruction.is_invalid()
}

/// Whether instructions on general registers always store the value they loaded and changed.
fn always_stores(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{Adc, Add, And, Dec, Inc, Neg, Not, Or, Sar, Sbb, Shl, Shr, Sub, Xor};
    matches!(
        mnemonic,
        Adc | Add | And | Dec | Inc | Neg | Not | Or | Sar | Sbb | Shl | Shr | Sub | Xor
    )
}
