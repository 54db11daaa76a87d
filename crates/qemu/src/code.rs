//! What an instruction is: an atomic one, one of a threading run-time library.

use std::sync::Mutex;

use crate::guest;

/// Base names of libraries that run threads for a program. What their code reads and writes (team and task descriptors, barrier
/// counters) is the run-time system talking to itself: it counts for pages, but is no communication of the program.
const RUNTIMES: [&str; 5] = ["libgomp.", "libomp.", "libomp5.", "libiomp5.", "libtbb."];

/// Whether these instruction bytes are an atomic read-modify-write: a `lock` prefix, or `xchg` with memory.
pub fn is_atomic(bytes: &[u8]) -> bool {
    let mut rest = bytes.iter().copied();
    let mut opcode = loop {
        match rest.next() {
            Some(0xf0) => return true,
            Some(0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x66 | 0x67 | 0xf2 | 0xf3) => {}
            Some(other) => break other,
            None => return false,
        }
    };
    if (0x40..0x50).contains(&opcode) {
        opcode = rest.next().unwrap_or(0);
    }
    // Mod 3 of the ModRM byte names a register, anything else memory.
    matches!(opcode, 0x86 | 0x87) && rest.next().is_some_and(|modrm| modrm < 0xc0)
}

/// Whether these instruction bytes are an SSE or AVX operation on registers alone.
///
/// QEMU runs most of these as helper calls, and around a helper that might touch memory it sets up the memory callback:
/// leaving the callback off where there is no memory operand makes floating-point code much cheaper. Says no when in doubt.
pub fn is_register_vector(bytes: &[u8]) -> bool {
    let mut at = 0;
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    while matches!(byte(at), 0x66 | 0xf2 | 0xf3) {
        at += 1;
    }
    // Which opcode map, and where the opcode is.
    let (map, opcode_at) = match byte(at) {
        0xc5 => (1, at + 2),
        0xc4 => (byte(at + 1) & 0x1f, at + 3),
        first => {
            if (0x40..0x50).contains(&first) {
                at += 1;
            }
            match (byte(at), byte(at + 1)) {
                (0x0f, 0x38) => (2, at + 2),
                (0x0f, 0x3a) => (3, at + 2),
                (0x0f, _) => (1, at + 1),
                _ => return false,
            }
        }
    };
    let has_operands = match map {
        1 => {
            // 0xf7 (maskmov) stores through a register.
            matches!(byte(opcode_at),
                0x10..=0x17 | 0x28..=0x2f | 0x50..=0x76 | 0x7c..=0x7f | 0xc2 | 0xc4..=0xc6 | 0xd0..=0xf6 | 0xf8..=0xfe)
        }
        2 | 3 => true,
        _ => false,
    };
    has_operands && byte(opcode_at + 1) >= 0xc0
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
