//! A stopped thread of the program: its memory, and system calls injected into it.

use numaloc_sys::inject;
use numaloc_sys::memory::NodeMask;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::ptrace::{self, Regs, Resume, Wait};

/// Bytes of the `syscall` instruction.
pub const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// The breakpoint instruction.
pub const INT3: u8 = 0xcc;

/// Memory of a process, accessed through `/proc/PID/mem` (text included).
#[derive(Debug)]
pub struct Memory(File);

impl Memory {
    /// Opens the current memory of process `tgid`; after `execve` it must be opened again.
    pub fn open(tgid: i32) -> io::Result<Self> {
        let path = format!("/proc/{tgid}/mem");
        Ok(Self(File::options().read(true).write(true).open(path)?))
    }

    /// Fills `buffer` from `address`.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buffer, address)
    }

    /// Writes `bytes` at `address`.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, address)
    }
}

/// A thread in a ptrace stop in which its registers may be changed: a system-call exit, a signal or
/// breakpoint stop, or a new thread's first stop. A `PTRACE_EVENT_CLONE` or `_EXEC` stop is none of these: the kernel
/// still has to write its return value.
#[derive(Debug)]
pub struct Stopped {
    tid: i32,
    saved: Regs,
    /// Signals that arrived during an injected call, to be sent again.
    late: Vec<i32>,
}

impl Stopped {
    /// Saves the registers that [`Self::finish`] restores.
    pub fn new(tid: i32) -> io::Result<Self> {
        Ok(Self {
            tid,
            saved: ptrace::registers(tid)?,
            late: Vec::new(),
        })
    }

    /// The thread's id.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// The registers the thread will be resumed with.
    pub fn regs(&mut self) -> &mut Regs {
        &mut self.saved
    }

    /// Makes the thread execute a system call at `gadget` (the address of a `syscall` instruction in
    /// its address space). Returns the kernel's result: a value or a negative errno. It stops at entry
    /// and return of the call, because a single step would send the program a SIGTRAP by force ([`crate::gate`]).
    pub fn call(&mut self, gadget: u64, number: i64, args: [u64; 6]) -> io::Result<i64> {
        let mut regs = self.saved;
        regs.rip = gadget;
        regs.rax = number as u64;
        // -1: not inside a system call, nothing to restart.
        regs.orig_rax = u64::MAX;
        [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = args;
        ptrace::set_registers(self.tid, &regs)?;
        self.until(Resume::Syscall, |wait, _| wait == Wait::Syscall)?;
        let now = self.until(Resume::Syscall, |wait, _| wait == Wait::Syscall)?;
        Ok(now.rax as i64)
    }

    /// Runs injected code from `start` to its breakpoint, after which rip is `trap`, with `rbx` and `r12` set. Returns
    /// rax and r12 at that point.
    pub fn run(&mut self, start: u64, trap: u64, rbx: u64, r12: u64) -> io::Result<(i64, u64)> {
        let mut regs = self.saved;
        regs.rip = start;
        regs.orig_rax = u64::MAX;
        (regs.rbx, regs.r12) = (rbx, r12);
        ptrace::set_registers(self.tid, &regs)?;
        let now = self.until(Resume::Cont, |wait, now| {
            wait == Wait::Signal(libc::SIGTRAP) && now.rip == trap
        })?;
        Ok((now.rax as i64, now.r12))
    }

    /// Resumes the thread until `arrived` holds for a stop and the registers then, and returns these.
    fn until(&mut self, how: Resume, arrived: impl Fn(Wait, &Regs) -> bool) -> io::Result<Regs> {
        loop {
            ptrace::resume(self.tid, how, 0)?;
            let wait = ptrace::wait(self.tid)?.1;
            match wait {
                // Killed meanwhile: the caller gets ESRCH, as from any request on a dead thread.
                Wait::Event(libc::PTRACE_EVENT_EXIT, _) | Wait::Exited(_) | Wait::Killed(_) => {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
                Wait::Event(libc::PTRACE_EVENT_STOP, libc::SIGTRAP) => {}
                // A signal or group stop: sent again by `finish`. A queued signal can stop the
                // thread before its first instruction.
                Wait::Event(libc::PTRACE_EVENT_STOP, signal) => self.late.push(signal),
                Wait::Signal(_) | Wait::Event(..) | Wait::Syscall => {
                    let now = ptrace::registers(self.tid)?;
                    if arrived(wait, &now) {
                        return Ok(now);
                    }
                    if let Wait::Signal(signal) = wait {
                        self.late.push(signal);
                    }
                }
            }
        }
    }

    /// Binds `start..end` to a node, as preferred: a full node must not kill the program.
    pub fn bind(
        &mut self,
        memory: &Memory,
        gadget: u64,
        range: (u64, u64, u32),
    ) -> io::Result<i64> {
        let (start, end, node) = range;
        let mask = NodeMask::of(node);
        let address = self.write_mask(memory, &mask)?;
        let call = inject::prefer(start, end - start, &mask, address);
        self.call(gadget, call.number, call.arguments)
    }

    /// Distributes new pages of a range over nodes as `call` has it: evenly, or by the system's weights.
    pub fn distribute(
        &mut self,
        memory: &Memory,
        gadget: u64,
        (start, end): (u64, u64),
        nodes: &[u32],
        call: fn(u64, u64, &NodeMask, u64) -> inject::Call,
    ) -> io::Result<i64> {
        let mask = NodeMask::of_all(nodes);
        let address = self.write_mask(memory, &mask)?;
        let call = call(start, end - start, &mask, address);
        self.call(gadget, call.number, call.arguments)
    }

    /// Sets the thread's memory policy: interleaved over nodes, or local if there are none.
    pub fn own_policy(&mut self, memory: &Memory, gadget: u64, nodes: &[u32]) -> io::Result<i64> {
        let call = if nodes.is_empty() {
            inject::own_policy(None)
        } else {
            let mask = NodeMask::of_all(nodes);
            let address = self.write_mask(memory, &mask)?;
            inject::own_policy(Some((&mask, address)))
        };
        self.call(gadget, call.number, call.arguments)
    }

    /// Writes a mask below the red zone, where only signal handlers write. Returns its address.
    fn write_mask(&self, memory: &Memory, mask: &NodeMask) -> io::Result<u64> {
        let bytes = mask.bytes();
        let address = (self.saved.rsp - 256 - bytes.len() as u64) & !15;
        memory.write(address, &bytes)?;
        Ok(address)
    }

    /// Restores the registers and sends deferred signals, so that the thread continues undisturbed.
    pub fn finish(self) -> io::Result<()> {
        ptrace::set_registers(self.tid, &self.saved)?;
        for signal in self.late {
            // The order of pending signals is undefined anyway; the sender's data is lost.
            let _ = ptrace::kill_thread(self.tid, signal);
        }
        Ok(())
    }
}

/// The auxiliary vector's entries that are used here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Auxiliary {
    /// The program's entry point: where the dynamic linker jumps when everything is loaded.
    pub entry: u64,
    /// Load address of the dynamic linker; 0 if there is none.
    pub linker: u64,
    /// Address of the kernel's vdso.
    pub vdso: u64,
}

impl Auxiliary {
    /// Reads the vector of process `tgid`; missing entries are 0.
    pub fn of(tgid: i32) -> io::Result<Self> {
        const AT_BASE: u64 = 7;
        const AT_ENTRY: u64 = 9;
        const AT_SYSINFO_EHDR: u64 = 33;
        let bytes = std::fs::read(format!("/proc/{tgid}/auxv"))?;
        let mut found = Self::default();
        let words = bytes.as_chunks::<8>().0;
        for [name, value] in words.as_chunks::<2>().0 {
            let value = u64::from_le_bytes(*value);
            match u64::from_le_bytes(*name) {
                AT_BASE => found.linker = value,
                AT_ENTRY => found.entry = value,
                AT_SYSINFO_EHDR => found.vdso = value,
                _ => {}
            }
        }
        Ok(found)
    }
}

/// The address of a `syscall` instruction that every process has: one in the kernel's vdso.
pub fn gadget(vdso: u64, memory: &Memory) -> io::Result<u64> {
    let mut image = vec![0; 4096];
    for page in 0..4 {
        let at = vdso + page * 4096;
        if vdso == 0 || memory.read(at, &mut image).is_err() {
            break;
        }
        if let Some(offset) = image.windows(2).position(|pair| pair == SYSCALL) {
            return Ok(at + offset as u64);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        "the process has no vdso",
    ))
}
