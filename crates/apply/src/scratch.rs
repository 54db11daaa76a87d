//! Pages injected into the program's address space, with code that saves ptrace stops: one routine binds many
//! ranges at once, another handles `brk` while the heap grows within memory that is already bound.
//!
//! | offset | holds |
//! |---|---|
//! | 0 | binding loop |
//! | 64 | `brk` handler |
//! | 512 | [gates](crate::gate) |
//! | 4096 | table of ranges to bind ([`inject::row`]) |
//! | 12288 | node masks |
//! | 16384 | the program break as the program sees it, and as the kernel has it (the only writable page) |
//!
//! Code and tables are written through `/proc/PID/mem`, so no page is ever both writable and executable.
//! A forked child has its own copy; `execve` removes them.

use numaloc_model::plan::OS_NODES;
use numaloc_sys::inject::{self, PREFER_LOOP, PREFER_LOOP_TRAP, ROW_BYTES};
use numaloc_sys::memory::{self, NodeMask};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;

use crate::gate::{self, distance};
use crate::image::{Map, Site};
use crate::tracee::{INT3, Memory, SYSCALL, Stopped};

/// Size of the mapping in bytes.
pub const BYTES: u64 = DATA + 4096;
const BRK_HANDLER: u64 = 64;
const GATES: u64 = 512;
const TABLE: u64 = 4096;
const MASKS: u64 = 12288;
const DATA: u64 = 16384;
/// The mask of any node must fit, or its ranges would never be bound.
const _: () = assert!(OS_NODES == memory::NODES && OS_NODES as u64 / 8 <= DATA - MASKS);
/// Bytes of the `mov $number, %eax` before a `syscall`.
const MOV: u64 = 5;
/// Ranges bound at once.
const ROWS: usize = (MASKS - TABLE) as usize / ROW_BYTES;

/// The injected `brk` handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrkHandler {
    /// Address of the breakpoint at which it calls the tracer.
    pub trap: u64,
}

/// The program break as the program sees it, and as the kernel has it. The kernel's is ahead, so that not every
/// growth needs an injected call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Break {
    /// As the program sees it.
    pub program: u64,
    /// As the kernel has it.
    pub kernel: u64,
}

impl Break {
    /// Not queried yet: every call traps.
    pub const UNKNOWN: Self = Self {
        program: u64::MAX,
        kernel: 0,
    };
}

/// The injected pages of one process; see the module.
#[derive(Clone, Copy, Debug)]
pub struct Scratch {
    base: u64,
    brk_handler: Option<BrkHandler>,
    gates: u64,
}

impl Scratch {
    /// Maps the pages in the stopped thread's process, below `near` if there is room. `None` if the kernel
    /// refuses.
    pub fn map(
        stopped: &mut Stopped,
        memory: &Memory,
        gadget: u64,
        maps: &[Map],
        near: u64,
    ) -> io::Result<Option<Self>> {
        let readable = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        let writable = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let hint = gap_below(maps, near, BYTES).unwrap_or(0);
        let flags = if hint == 0 {
            flags & !libc::MAP_FIXED_NOREPLACE
        } else {
            flags
        };
        let args = [hint, BYTES, readable, flags as u64, u64::MAX, 0];
        let base = stopped.call(gadget, libc::SYS_mmap, args)?;
        if base <= 0 {
            return Ok(None);
        }
        let base = base as u64;
        let protect = [base + DATA, 4096, writable, 0, 0, 0];
        if stopped.call(gadget, libc::SYS_mprotect, protect)? != 0 {
            stopped.call(gadget, libc::SYS_munmap, [base, BYTES, 0, 0, 0, 0])?;
            return Ok(None);
        }
        memory.write(base, &PREFER_LOOP)?;
        Ok(Some(Self {
            base,
            brk_handler: None,
            gates: 0,
        }))
    }

    /// Binds `(start, end, node)` ranges. Returns the kernel's result for each.
    pub fn bind(
        &self,
        stopped: &mut Stopped,
        memory: &Memory,
        ranges: &[(u64, u64, u32)],
    ) -> io::Result<Vec<i64>> {
        let mut answers = Vec::with_capacity(ranges.len());
        while answers.len() < ranges.len() {
            let (rows, masks) = self.rows(&ranges[answers.len()..]);
            memory.write(self.base + TABLE, &rows)?;
            memory.write(self.base + MASKS, &masks)?;
            let count = rows.len() / ROW_BYTES;
            let mut done = 0;
            while done < count {
                let row = self.base + TABLE + (ROW_BYTES * done) as u64;
                let remaining = count - done;
                let (answer, still) = stopped.run(
                    self.base,
                    self.base + PREFER_LOOP_TRAP,
                    row,
                    remaining as u64,
                )?;
                let ran = remaining - still as usize;
                answers.extend(std::iter::repeat_n(0, ran - 1));
                answers.push(answer);
                done += ran;
            }
        }
        Ok(answers)
    }

    /// Encodes as many of `ranges` as fit: the table and the masks.
    fn rows(&self, ranges: &[(u64, u64, u32)]) -> (Vec<u8>, Vec<u8>) {
        let mut masks: Vec<u8> = Vec::new();
        let mut known: HashMap<u32, (NodeMask, u64)> = HashMap::new();
        let mut rows = Vec::new();
        for &(start, end, node) in ranges.iter().take(ROWS) {
            let (mask, at) = match known.entry(node) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let mask = NodeMask::of(node);
                    let bytes = mask.bytes();
                    if masks.len() + bytes.len() > (DATA - MASKS) as usize {
                        break;
                    }
                    let at = self.base + MASKS + masks.len() as u64;
                    masks.extend(bytes);
                    entry.insert((mask, at))
                }
            };
            rows.extend(inject::row(start, end - start, mask, *at));
        }
        (rows, masks)
    }

    /// Patches the `mov $SYS_brk, %eax; syscall` at `mov` to jump to the handler. `None` if that is too far away.
    pub fn install_brk_handler(
        &mut self,
        memory: &Memory,
        mov: u64,
    ) -> io::Result<Option<BrkHandler>> {
        let start = self.base + BRK_HANDLER;
        let Some(code) = brk_handler(start, self.base + DATA, mov + 7) else {
            return Ok(None);
        };
        let Some(jump) = distance(mov + 5, start) else {
            return Ok(None);
        };
        self.set_break(memory, Break::UNKNOWN)?;
        memory.write(start, &code.bytes)?;
        let [a, b, c, d] = jump.to_le_bytes();
        memory.write(mov, &[0xe9, a, b, c, d, INT3, INT3])?;
        self.brk_handler = Some(BrkHandler { trap: code.trap });
        Ok(self.brk_handler)
    }

    /// Replaces the `mov $number, %eax` of the `site`, whose `syscall` instruction is at `at`, by a jump to a gate.
    /// Returns the address of the gate's breakpoint; `None` if there is no room for it near enough, or the instructions
    /// between cannot be moved there.
    pub fn install_gate(
        &mut self,
        memory: &Memory,
        at: u64,
        site: &Site,
    ) -> io::Result<Option<u64>> {
        let start = self.base + GATES + self.gates * gate::BYTES as u64;
        if start + gate::BYTES as u64 > self.base + TABLE {
            return Ok(None);
        }
        let mut between = vec![0; site.between];
        memory.read(at - site.between as u64, &mut between)?;
        let from = at - site.between as u64 - MOV;
        let code = gate::gate(start, site.number, &between, at + SYSCALL.len() as u64);
        let (Some(code), Some(jump)) = (code, distance(from + MOV, start)) else {
            return Ok(None);
        };
        memory.write(start, &code.bytes)?;
        let [a, b, c, d] = jump.to_le_bytes();
        memory.write(from, &[0xe9, a, b, c, d])?;
        self.gates += 1;
        Ok(Some(code.trap))
    }

    /// Replaces the jump to a gate by the instruction that was there; the gate stays for threads that are in it.
    pub fn remove_gate(&self, memory: &Memory, at: u64, site: &Site) -> io::Result<()> {
        let [a, b, c, d] = site.number.to_le_bytes();
        memory.write(at - site.between as u64 - MOV, &[0xb8, a, b, c, d])
    }

    /// The handler, if it is installed.
    pub fn brk_handler(&self) -> Option<BrkHandler> {
        self.brk_handler
    }

    /// The break as stored for the handler.
    pub fn current_break(&self, memory: &Memory) -> io::Result<Break> {
        let mut bytes = [0; 16];
        memory.read(self.base + DATA, &mut bytes)?;
        let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes);
        Ok(Break {
            program: word(0).unwrap_or(0),
            kernel: word(8).unwrap_or(0),
        })
    }

    /// Sets the break up to which the handler may grow the heap.
    pub fn set_break(&self, memory: &Memory, at: Break) -> io::Result<()> {
        let words = [at.program.to_le_bytes(), at.kernel.to_le_bytes()];
        memory.write(self.base + DATA, words.as_flattened())
    }

    /// Disables the handler: from now on the kernel handles every `brk`.
    pub fn remove_brk_handler(&mut self, memory: &Memory) -> io::Result<()> {
        if let Some(brk_handler) = self.brk_handler.take() {
            let none = Break {
                program: 0,
                kernel: 0,
            };
            self.set_break(memory, none)?;
            memory.write(brk_handler.trap, &SYSCALL)?;
        }
        Ok(())
    }
}

struct Code {
    bytes: Vec<u8>,
    trap: u64,
}

/// Code that grants breaks between the program's and the kernel's and traps for all others; continues at `back`.
fn brk_handler(start: u64, data: u64, back: u64) -> Option<Code> {
    let mut bytes = Vec::new();
    // Instructions whose last four bytes are a displacement from their end.
    let mut relative = |instruction: &[u8], target: u64| {
        bytes.extend(instruction);
        let end = start + bytes.len() as u64 + 4;
        bytes.extend(distance(end, target)?.to_le_bytes());
        Some(bytes.len())
    };
    relative(&[0x48, 0x3b, 0x3d], data)?; // cmp rdi, [program]
    relative(&[0x0f, 0x82], start + 44)?; // jb slow
    relative(&[0x48, 0x3b, 0x3d], data + 8)?; // cmp rdi, [kernel]
    relative(&[0x0f, 0x87], start + 44)?; // ja slow
    relative(&[0x48, 0x89, 0x3d], data)?; // mov [program], rdi
    relative(&[0x48, 0x89, 0xf8, 0xe9], back)?; // mov rax, rdi; jmp back
    bytes.resize(44, 0x90);
    let slow = gate::gate(start + 44, libc::SYS_brk as u32, &[], back)?;
    bytes.extend(slow.bytes);
    let trap = slow.trap;
    Some(Code { bytes, trap })
}

/// The highest free range of `bytes` bytes below `near`, within 1 GiB, one page away from its neighbours.
pub(crate) fn gap_below(maps: &[Map], near: u64, bytes: u64) -> Option<u64> {
    let lowest = near.saturating_sub(1 << 30).max(1 << 20);
    let mut ceiling = near;
    for map in maps.iter().rev().filter(|map| map.start < near) {
        if map.end + bytes + 8192 <= ceiling {
            break;
        }
        ceiling = ceiling.min(map.start);
    }
    let start = ceiling.checked_sub(bytes + 4096)?;
    (start >= lowest).then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(start: u64, end: u64) -> Map {
        Map {
            start,
            end,
            writable: false,
            executable: false,
            offset: 0,
            file: (0, 0),
            name: String::new(),
        }
    }

    #[test]
    fn the_nearest_gap_that_is_large_enough() {
        let page = 4096;
        // Free: below 0x40000000, and 4 pages below 0x50000000: too small.
        let maps = [
            map(0x4000_0000, 0x5000_0000 - 4 * page),
            map(0x5000_0000, 0x6000_0000),
        ];
        let found = gap_below(&maps, 0x5000_0000, BYTES);
        assert_eq!(found, Some(0x4000_0000 - BYTES - page));
        let alone = [map(0x10_0000, 0x20_0000)];
        assert_eq!(gap_below(&alone, 0x10_0000, BYTES), None);
    }

    #[test]
    fn jumps_reach_two_gigabytes() {
        assert_eq!(distance(10, 4), Some(-6));
        assert_eq!(distance(0, 1 << 31), None);
        assert!(brk_handler(1 << 32, (1 << 32) + 8192, 0).is_none());
    }
}
