//! Marks of a program into which no library can be preloaded (a static one): before it begins, the first instructions
//! of the functions that are marks are replaced by a jump to injected code, which counts as the agent does.
//!
//! | offset | holds |
//! |---|---|
//! | 0 | the breakpoint that calls the controller |
//! | 16 | for each function: counting, its first instructions, and a jump back |
//! | 16384 | the [board] (the only writable pages) |
//!
//! A breakpoint or uprobe at the function itself would stop the program at every pass (microseconds each), this only at
//! those where something moves; and it needs no privileges.

use std::collections::BTreeMap;
use std::io;

use iced_x86::{Decoder, DecoderOptions, Encoder, FlowControl};
use numaloc_model::marks::{ENTRY_POINTS, board, region_entry};
use numaloc_model::{MarkKind, MarkPlace};

use super::Space;
use crate::agent::{Function, functions, probes};
use crate::gate::distance;
use crate::image::Map;
use crate::scratch::gap_below;
use crate::tracee::{INT3, Memory, Stopped};

/// Offset of the board, and the size of the whole.
const BOARD: u64 = 16384;
const BYTES: u64 = BOARD + board::BYTES.next_multiple_of(4096);
const FIRST: usize = 16;
/// Length of a jump.
const JUMP: usize = 5;
/// Longest function that is searched for jumps to its own beginning.
const LONGEST: u64 = 1 << 16;

/// The injected pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patches {
    base: u64,
}

/// A count in the code: where it is, its number, and what must hold.
#[derive(Clone, Copy, Debug)]
struct Count {
    number: usize,
    when: When,
}

#[derive(Clone, Copy, Debug)]
enum When {
    Always,
    /// The region's function (first argument) is that of this slot.
    First(usize),
    /// The same for the third argument.
    Third(usize),
    /// The name (first argument) is that of this slot.
    Named(usize),
}

impl Patches {
    /// Maps the pages near the program `image` in the stopped thread's process.
    pub fn map(
        stopped: &mut Stopped,
        space: &Space,
        maps: &[Map],
        image: &Map,
    ) -> Result<Self, String> {
        let failed = |error: io::Error| format!("cannot map memory in the program: {error}");
        let gadget = space.gadget.ok_or("the process has no vdso")?;
        let near = gap_below(maps, image.start, BYTES).ok_or("no memory is free near its code")?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let code = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        let data = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        for (at, bytes, protection) in [(near, BOARD, code), (near + BOARD, BYTES - BOARD, data)] {
            let arguments = [at, bytes, protection, flags as u64, u64::MAX, 0];
            let answer = stopped
                .call(gadget, libc::SYS_mmap, arguments)
                .map_err(failed)?;
            if answer as u64 != at {
                return Err(failed(
                    io::Error::from_raw_os_error((-answer).max(0) as i32),
                ));
            }
        }
        let patches = Self { base: near };
        let memory = &space.memory;
        let head = [INT3, 0xc3];
        memory.write(near, &head).map_err(failed)?;
        let magic = board::MAGIC.to_le_bytes();
        memory.write(patches.board(), &magic).map_err(failed)?;
        Ok(patches)
    }

    /// Address of the board.
    pub fn board(&self) -> u64 {
        self.base + BOARD
    }

    /// Address of the breakpoint.
    pub fn reached(&self) -> u64 {
        self.base
    }

    /// Patches the functions of the program `image` whose calls are passes of `places` (with their numbers on the
    /// board). Returns how many, and the names of those that cannot be patched.
    pub fn install(
        &self,
        memory: &Memory,
        image: &Map,
        places: &[(MarkPlace, usize)],
    ) -> io::Result<(usize, Vec<String>)> {
        let (mut patched, mut refused) = (0, Vec::new());
        let mut free = FIRST as u64;
        for (name, function) in wanted(image) {
            let counts = counts(name, places);
            if counts.is_empty() {
                continue;
            }
            let start = self.base + free;
            match self.thunk(memory, function, start, &counts)? {
                Some((code, jump)) if free + code.len() as u64 <= BOARD => {
                    memory.write(start, &code)?;
                    memory.write(function.at, &jump)?;
                    free += (code.len() as u64).next_multiple_of(16);
                    patched += 1;
                }
                _ => refused.push(name.to_owned()),
            }
        }
        Ok((patched, refused))
    }

    /// The code for a function at `start`, and the bytes that replace its first instructions.
    fn thunk(
        &self,
        memory: &Memory,
        function: Function,
        start: u64,
        counts: &[Count],
    ) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
        let mut text = vec![0; function.bytes.min(LONGEST) as usize];
        memory.read(function.at, &mut text)?;
        let mut code = counting(self.board(), self.reached(), start, counts);
        let here = start + code.len() as u64;
        let Some((moved, displaced)) = displaced(&text, function.at, here) else {
            return Ok(None);
        };
        code.extend(moved);
        let end = start + code.len() as u64 + JUMP as u64;
        let back = distance(end, function.at + displaced as u64);
        let to = distance(function.at + JUMP as u64, start);
        let (Some(back), Some(to)) = (back, to) else {
            return Ok(None);
        };
        code.push(0xe9);
        code.extend(back.to_le_bytes());
        let mut jump = vec![0xe9];
        jump.extend(to.to_le_bytes());
        jump.resize(displaced, INT3);
        Ok(Some((code, jump)))
    }
}

/// The functions of a program that are marks, each address once. Where there is a probe (`numaloc.h`), it stands for
/// `numaloc_mark`: it is there in stripped programs too.
fn wanted(image: &Map) -> Vec<(&'static str, Function)> {
    let known = functions(image);
    let probes = probes(image, "numaloc", "mark");
    let mut found: BTreeMap<u64, (&'static str, Function)> = BTreeMap::new();
    for (name, kind) in ENTRY_POINTS {
        if kind == MarkKind::User && !probes.is_empty() {
            for &probe in &probes {
                found.insert(probe.at, (name, probe));
            }
        } else if let Some(&function) = known.get(name) {
            found.entry(function.at).or_insert((name, function));
        }
    }
    found.into_values().collect()
}

/// What a call of the entry point `name` counts.
fn counts(name: &'static str, places: &[(MarkPlace, usize)]) -> Vec<Count> {
    let entries = ENTRY_POINTS.len();
    let counted = region_entry(name);
    let of = |(place, number): &(MarkPlace, usize)| {
        let number = *number;
        let when = match place.kind {
            _ if number < entries => (place.name == counted).then_some(When::Always),
            MarkKind::Region if counted == "GOMP_parallel" => Some(When::First(number - entries)),
            MarkKind::Region if counted.starts_with("__kmpc_fork") => {
                Some(When::Third(number - entries))
            }
            MarkKind::User if name == "numaloc_mark" => {
                Some(When::Named(number - entries - board::SLOTS))
            }
            _ => None,
        };
        when.map(|when| Count { number, when })
    };
    places.iter().filter_map(of).collect()
}

/// Code at `start` that counts and changes no register, no flag and nothing below the stack pointer that is in use.
fn counting(at: u64, reached: u64, start: u64, counts: &[Count]) -> Vec<u8> {
    let mut code = Vec::new();
    // lea rsp, [rsp - 128]; pushfq; push rax, rcx, rdx, rsi, rdi, r11
    code.extend([0x48, 0x8d, 0x64, 0x24, 0x80, 0x9c]);
    code.extend([0x50, 0x51, 0x52, 0x56, 0x57, 0x41, 0x53]);
    let load_r11 = |code: &mut Vec<u8>, value: u64| {
        code.extend([0x49, 0xbb]);
        code.extend(value.to_le_bytes());
    };
    for count in counts {
        // Displacements to the end of this count.
        let mut ends = Vec::new();
        let not_equal = |code: &mut Vec<u8>, ends: &mut Vec<usize>| {
            code.extend([0x75, 0]);
            ends.push(code.len());
        };
        match count.when {
            When::Always => {}
            When::First(slot) | When::Third(slot) => {
                load_r11(&mut code, at + board::function(slot));
                // cmp rdi or rdx, [r11]
                let third = matches!(count.when, When::Third(_));
                code.extend([0x49, 0x3b, if third { 0x13 } else { 0x3b }]);
                not_equal(&mut code, &mut ends);
            }
            When::Named(slot) => {
                load_r11(&mut code, at + board::name(slot));
                // mov rsi, rdi; mov ecx, NAME_BYTES
                code.extend([0x48, 0x89, 0xfe, 0xb9]);
                code.extend((numaloc_model::marks::NAME_BYTES as u32).to_le_bytes());
                // again: mov al, [rsi]; cmp al, [r11]; jne end
                code.extend([0x8a, 0x06, 0x41, 0x3a, 0x03]);
                not_equal(&mut code, &mut ends);
                // test al, al; je same; inc rsi; inc r11; dec ecx; jne again; same:
                code.extend([0x84, 0xc0, 0x74, 0x0a, 0x48, 0xff, 0xc6, 0x49, 0xff, 0xc3]);
                code.extend([0xff, 0xc9, 0x75, (-21_i8) as u8]);
            }
        }
        load_r11(&mut code, at + board::passes(count.number));
        // mov eax, 1; lock xadd [r11], rax; inc rax; cmp rax, [r11 + TARGET]; jne end
        code.extend([0xb8, 1, 0, 0, 0, 0xf0, 0x49, 0x0f, 0xc1, 0x03]);
        code.extend([0x48, 0xff, 0xc0, 0x49, 0x3b, 0x43, board::TARGET as u8]);
        not_equal(&mut code, &mut ends);
        // push rdi; mov edi, number; call reached; pop rdi
        code.extend([0x57, 0xbf]);
        code.extend((count.number as u32).to_le_bytes());
        let next = start + code.len() as u64 + JUMP as u64;
        code.push(0xe8);
        // Both are in the same 16 KiB.
        code.extend(distance(next, reached).unwrap_or(0).to_le_bytes());
        code.push(0x5f);
        for end in ends {
            code[end - 1] = (code.len() - end) as u8;
        }
    }
    // pop r11, rdi, rsi, rdx, rcx, rax; popfq; lea rsp, [rsp + 128]
    code.extend([0x41, 0x5b, 0x5f, 0x5e, 0x5a, 0x59, 0x58, 0x9d]);
    code.extend([0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]);
    code
}

/// The first instructions of a function at `at` that a jump replaces, encoded for `here`, and their length there.
/// `None` if they cannot be moved: a branch, or one that another branch of the function leads to.
fn displaced(text: &[u8], at: u64, here: u64) -> Option<(Vec<u8>, usize)> {
    let mut decoder = Decoder::with_ip(64, text, at, DecoderOptions::NONE);
    let (mut moved, mut bytes) = (Vec::new(), 0);
    while bytes < JUMP {
        let instruction = decoder.decode();
        if instruction.is_invalid() || instruction.flow_control() != FlowControl::Next {
            return None;
        }
        let mut encoder = Encoder::new(64);
        encoder
            .encode(&instruction, here + moved.len() as u64)
            .ok()?;
        moved.extend(encoder.take_buffer());
        bytes += instruction.len();
    }
    let within = at + 1..at + bytes as u64;
    let mut rest = decoder.into_iter();
    let leads_there = rest.any(|instruction| within.contains(&instruction.near_branch_target()));
    (!leads_there).then_some((moved, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_moved_unless_a_branch_is_among_them_or_leads_there() {
        // endbr64; push rbx; ret
        let plain = [0xf3, 0x0f, 0x1e, 0xfa, 0x53, 0xc3];
        assert_eq!(
            displaced(&plain, 0x1000, 0x9000),
            Some((plain[..5].to_vec(), 5))
        );
        // mov rax, [rip + 16]; ret
        let relative = [0x48, 0x8b, 0x05, 16, 0, 0, 0, 0xc3];
        let moved = displaced(&relative, 0x1000, 0x1100).unwrap();
        assert_eq!(moved, (vec![0x48, 0x8b, 0x05, 16, 0xff, 0xff, 0xff], 7));
        // push rbx; nop; nop; nop; nop; jmp to the second instruction
        let looped = [0x53, 0x90, 0x90, 0x90, 0x90, 0xeb, 0xfa];
        assert_eq!(displaced(&looped, 0x1000, 0x9000), None);
        // xor eax, eax; ret
        assert_eq!(displaced(&[0x31, 0xc0, 0xc3], 0x1000, 0x9000), None);
    }

    #[test]
    fn counting_code_is_valid_and_its_branches_stay_within_it() {
        let place = |kind, name: &str| MarkPlace {
            kind,
            name: name.to_owned(),
        };
        let places = [
            (place(MarkKind::Region, "GOMP_parallel"), 0),
            (
                place(MarkKind::Region, "main._omp_fn.0"),
                ENTRY_POINTS.len(),
            ),
            (
                place(MarkKind::User, "step"),
                ENTRY_POINTS.len() + board::SLOTS,
            ),
        ];
        assert_eq!(counts("GOMP_parallel_loop_static", &places).len(), 2);
        assert_eq!(counts("__kmpc_fork_call", &places).len(), 1);
        assert_eq!(counts("GOMP_barrier", &places).len(), 0);
        for name in ["GOMP_parallel", "__kmpc_fork_call", "numaloc_mark"] {
            let code = counting(0x5000, 0x1000, 0x1010, &counts(name, &places));
            let decoder = Decoder::with_ip(64, &code, 0x1010, DecoderOptions::NONE);
            let all: Vec<_> = decoder.into_iter().collect();
            let starts: Vec<u64> = all.iter().map(|instruction| instruction.ip()).collect();
            for instruction in all {
                assert!(!instruction.is_invalid());
                let to = instruction.near_branch_target();
                assert!(to == 0 || to == 0x1000 || starts.contains(&to), "{to:x}");
            }
        }
    }
}
