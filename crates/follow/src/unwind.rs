//! Walks a thread's call stack by the tables that compilers leave for exceptions (`.eh_frame`).
//!
//! Only what usual code needs is interpreted: the caller's frame at a constant distance from rsp or rbp, and rbp saved
//! at a constant distance from there. Other frames end the walk. The tables of a file are read when the first address
//! in it is looked up; what was found for an address is kept, for at most [`KEPT`] addresses.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, LittleEndian, ParsedEhFrameHdr, RegisterRule,
    UnwindContext, UnwindSection, X86_64,
};
use object::{Object as _, ObjectSection as _};

use crate::symbols;

/// Most addresses whose frames are kept.
const KEPT: usize = 1 << 16;
/// Most bytes of a file's tables that are read.
const LARGEST: u64 = 32 << 20;

/// A file in memory.
struct Module {
    file: String,
    /// Address of its first byte.
    start: u64,
    /// `None` until it is needed.
    tables: Option<Tables>,
}

/// The tables of a file.
#[derive(Default)]
struct Tables {
    /// Address in the file of its first byte in memory.
    first: u64,
    frames: Vec<u8>,
    frames_at: u64,
    index: Vec<u8>,
    index_at: u64,
}

/// How to find the caller's frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Frame {
    /// Whether the frame is found from rbp, otherwise from rsp.
    from_rbp: bool,
    /// Distance to its upper end, below which is the return address.
    distance: i64,
    /// Where the caller's rbp is, relative to the upper end; `None` if it is still in rbp.
    rbp: Option<i64>,
}

#[derive(Default)]
struct Known {
    modules: Vec<Module>,
    frames: HashMap<u64, Option<Frame>>,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// Keeps the known files as they are until the result is dropped.
pub(crate) fn hold() -> impl Sized {
    known()
}

fn known() -> MutexGuard<'static, Option<Known>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes that `file` was mapped with its first byte at `start`.
pub(crate) fn mapped(file: &str, start: u64) {
    let mut known = known();
    let known = known.get_or_insert_default();
    if known
        .modules
        .iter()
        .any(|module| module.start == start && module.file == file)
    {
        return;
    }
    known.frames.clear();
    known.modules.retain(|module| module.start != start);
    known.modules.push(Module {
        file: file.to_owned(),
        start,
        tables: None,
    });
    known.modules.sort_by_key(|module| module.start);
}

/// Whether `address` is that of an instruction in a function of a mapped file, as far as its tables say.
pub(crate) fn is_code(address: u64) -> bool {
    known().get_or_insert_default().frame(address).is_some()
}

/// A thread's registers after it has returned from a function.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// The return address.
    pub pc: u64,
    /// Stack pointer, above the return address.
    pub rsp: u64,
    /// Frame pointer.
    pub rbp: u64,
}

/// The return addresses of the call stack, innermost first: that in `registers`, then those of its callers. `read`
/// reads a word of the program. Returns their number.
pub fn walk(
    mut registers: Registers,
    read: impl Fn(u64) -> Option<u64>,
    stack: &mut [u64],
) -> usize {
    for (at, slot) in stack.iter_mut().enumerate() {
        *slot = registers.pc;
        // A return address belongs to the instruction before. `read` may fault and take locks of its caller, so it is
        // called without ours.
        let frame = known()
            .get_or_insert_default()
            .frame(registers.pc.wrapping_sub(1));
        let Some(frame) = frame else {
            return at + 1;
        };
        let base = match frame.from_rbp {
            true => registers.rbp,
            false => registers.rsp,
        };
        let end = base.wrapping_add_signed(frame.distance);
        let Some(pc) = read(end.wrapping_sub(8)).filter(|&pc| pc != 0) else {
            return at + 1;
        };
        if let Some(saved) = frame.rbp {
            let Some(rbp) = read(end.wrapping_add_signed(saved)) else {
                return at + 1;
            };
            registers.rbp = rbp;
        }
        // Stacks grow downwards.
        if end <= registers.rsp {
            return at + 1;
        }
        (registers.pc, registers.rsp) = (pc, end);
    }
    stack.len()
}

impl Known {
    /// How the caller's frame is found from the code at `pc`.
    fn frame(&mut self, pc: u64) -> Option<Frame> {
        if let Some(&known) = self.frames.get(&pc) {
            return known;
        }
        let next = self.modules.partition_point(|module| module.start <= pc);
        let module = next.checked_sub(1).map(|at| &mut self.modules[at]);
        let found = module.and_then(|module| {
            let tables = module
                .tables
                .get_or_insert_with(|| Tables::read(&module.file));
            tables.frame(pc.wrapping_sub(module.start))
        });
        if self.frames.len() < KEPT {
            self.frames.insert(pc, found);
        }
        found
    }
}

impl Tables {
    /// The tables of a file; empty if it has none.
    fn read(file: &str) -> Self {
        let found = symbols::in_file(file, |image, first| {
            let section = |name| {
                let section = image.section_by_name(name)?;
                let fits = section.size() <= LARGEST;
                let data = section.data().ok().filter(|_| fits)?;
                Some((data.to_vec(), section.address()))
            };
            let (Some(frames), Some(index)) = (section(".eh_frame"), section(".eh_frame_hdr"))
            else {
                return Vec::new();
            };
            vec![Self {
                first,
                frames: frames.0,
                frames_at: frames.1,
                index: index.0,
                index_at: index.1,
            }]
        });
        found.into_iter().next().unwrap_or_default()
    }

    /// The frame of the code at an offset from the file's first byte.
    fn frame(&self, offset: u64) -> Option<Frame> {
        let bases = BaseAddresses::default()
            .set_eh_frame(self.frames_at)
            .set_eh_frame_hdr(self.index_at);
        let frames = EhFrame::new(&self.frames, LittleEndian);
        let index: ParsedEhFrameHdr<_> = EhFrameHdr::new(&self.index, LittleEndian)
            .parse(&bases, 8)
            .ok()?;
        let address = self.first.wrapping_add(offset);
        let mut context = UnwindContext::new();
        let row = index
            .table()?
            .unwind_info_for_address(
                &frames,
                &bases,
                &mut context,
                address,
                EhFrame::cie_from_offset,
            )
            .ok()?;
        let &CfaRule::RegisterAndOffset { register, offset } = row.cfa() else {
            return None;
        };
        if !matches!(row.register(X86_64::RA), RegisterRule::Offset(-8)) {
            return None;
        }
        Some(Frame {
            from_rbp: match register {
                X86_64::RBP => true,
                X86_64::RSP => false,
                _ => return None,
            },
            distance: offset,
            rbp: match row.register(X86_64::RBP) {
                RegisterRule::Offset(offset) => Some(offset),
                RegisterRule::Undefined | RegisterRule::SameValue => None,
                _ => return None,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function whose frame is 8 bytes at first and 24 after it has made room; its caller keeps rbp.
    const CODE: &str = "
.globl _start
.type _start, @function
_start:
    .cfi_startproc
    nop
    sub $16, %rsp
    .cfi_adjust_cfa_offset 16
    nop
    .cfi_endproc
.globl with_rbp
.type with_rbp, @function
with_rbp:
    .cfi_startproc
    push %rbp
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %rbp, 0
    mov %rsp, %rbp
    .cfi_def_cfa_register %rbp
    nop
    .cfi_endproc
";

    #[test]
    fn frames_are_those_that_the_tables_describe() {
        let folder = std::env::temp_dir().join(format!("numaloc-unwind-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, program) = (folder.join("frames.s"), folder.join("frames"));
        std::fs::write(&source, CODE).unwrap();
        let built = std::process::Command::new("cc")
            .args([
                "-nostdlib",
                "-static",
                "-no-pie",
                "-Wl,--eh-frame-hdr",
                "-o",
            ])
            .args([&program, &source])
            .status();
        assert!(built.unwrap().success());
        let file = program.to_str().unwrap();
        let starts = symbols::in_file(file, |image, first| {
            symbols::functions(image, first, |name| match name {
                "_start" => Some(0),
                "with_rbp" => Some(1),
                _ => None,
            })
        });
        let start = |which| starts.iter().find(|found| found.1 == which).unwrap().0;
        let base = 0x5000_0000;
        let mut known = Known {
            modules: vec![Module {
                file: file.to_owned(),
                start: base,
                tables: None,
            }],
            frames: HashMap::new(),
        };
        let mut at = |offset: u64| known.frame(base + offset);
        let frame = |from_rbp, distance, rbp| {
            Some(Frame {
                from_rbp,
                distance,
                rbp,
            })
        };
        assert_eq!(at(start(0)), frame(false, 8, None));
        assert_eq!(at(start(0) + 5), frame(false, 24, None));
        assert_eq!(at(start(1)), frame(false, 8, None));
        assert_eq!(at(start(1) + 4), frame(true, 16, Some(-16)));
        assert_eq!(at(start(1) + 4096), None);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_unknown_address_ends_the_walk() {
        let mut stack = [0; 4];
        let registers = Registers {
            pc: 0x10,
            rsp: 0x1000,
            rbp: 0,
        };
        assert_eq!(walk(registers, |_| None, &mut stack), 1);
        assert_eq!(stack[0], 0x10);
    }
}
