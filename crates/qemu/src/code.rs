//! What an instruction is: how it uses memory, and whether it belongs to a threading run-time library.

use std::sync::Mutex;

use iced_x86::{Instruction, InstructionInfo, Mnemonic, OpAccess, UsedMemory};

use crate::guest;

/// Base names of libraries that run threads for a program. What their code reads and writes (team and task descriptors, barrier
/// counters) is the run-time system talking to itself: it counts for pages, but is no communication of the program. The
/// loader is one of them: the first thread to call a function binds it for all, and which thread that is, the host decides.
const RUNTIMES: [&str; 6] = [
    "libgomp.",
    "libomp.",
    "libomp5.",
    "libiomp5.",
    "libtbb.",
    "ld-linux",
];

/// How an instruction uses memory, as far as it decides what is called for its accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Not at all.
    None,
    /// One load of 1, 2, 4 or 8 bytes.
    Load(u8),
    /// One store of as many.
    Store(u8),
    /// One load and one store of as many, at the same address: `add %rax,(%rdi)`.
    Update(u8),
    /// One load of 16 or 32 bytes.
    WideLoad(u8),
    /// One store of as many.
    WideStore(u8),
    /// An atomic read-modify-write.
    Atomic,
    /// Anything else.
    Other,
}

/// How `instruction`, of which `info` is known, uses memory.
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

/// What an instruction accesses.
pub fn accesses(info: &InstructionInfo) -> impl Iterator<Item = &UsedMemory> {
    let used = info.used_memory().iter();
    used.filter(|memory| !matches!(memory.access(), OpAccess::None | OpAccess::NoMemAccess))
}

/// Instructions of general registers that store what they have loaded and changed, whatever it was.
fn always_stores(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{Adc, Add, And, Dec, Inc, Neg, Not, Or, Sar, Sbb, Shl, Shr, Sub, Xor};
    matches!(
        mnemonic,
        Adc | Add | And | Dec | Inc | Neg | Not | Or | Sar | Sbb | Shl | Shr | Sub | Xor
    )
}

/// Executable ranges seen so far and whether each belongs to a run-time library.
static RANGES: Mutex<Vec<(u64, u64, bool)>> = Mutex::new(Vec::new());

/// Whether the code at `address` belongs to a threading run-time library.
pub fn is_runtime(address: u64) -> bool {
    let mut ranges = RANGES
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let find = |ranges: &[(u64, u64, bool)]| {
        ranges
            .iter()
            .find(|(start, end, _)| (*start..*end).contains(&address))
            .map(|range| range.2)
    };
    if let Some(runtime) = find(&ranges) {
        return runtime;
    }
    // Guest code need not be executable in the host, so take every file mapping.
    *ranges = guest::mappings()
        .into_iter()
        .filter(|mapped| mapped.file.starts_with('/'))
        .map(|mapped| {
            let name = mapped.file.rsplit('/').next().unwrap_or("");
            let runtime = RUNTIMES.iter().any(|runtime| name.starts_with(runtime));
            (mapped.start, mapped.end, runtime)
        })
        .collect();
    match find(&ranges) {
        Some(runtime) => runtime,
        None => {
            // Generated code: remember its page, so that the next block there costs no look at the mappings.
            ranges.push((address & !4095, (address | 4095) + 1, false));
            false
        }
    }
}

/// Whether `address` lies in a mapped file, as far as code has been seen.
pub fn is_in_file(address: u64) -> bool {
    let ranges = RANGES
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    ranges
        .iter()
        .any(|&(start, end, _)| (start..end).contains(&address))
}

/// Code was unmapped or replaced: ask again.
pub fn forget_ranges() {
    RANGES
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .clear();
}
