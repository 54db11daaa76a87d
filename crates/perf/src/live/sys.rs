//! The system calls of live sampling: the only unsafe code of this crate.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::ring::{self, RawRecord};
use crate::events::MemoryEvent;

/// Pages of a ring's data, a power of two: with 32, two events per CPU stay within the default
/// `perf_event_mlock_kb` of 516 for unprivileged users.
pub const DATA_PAGES: usize = 32;
/// Fields of `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
const DATA_OFFSET: usize = 1040;
const DATA_SIZE: usize = 1048;

/// Bits of the attribute's flag word.
mod flag {
    pub const DISABLED: u64 = 1;
    pub const INHERIT: u64 = 1 << 1;
    pub const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub const EXCLUDE_HV: u64 = 1 << 6;
    pub const COMM: u64 = 1 << 9;
    pub const ENABLE_ON_EXEC: u64 = 1 << 12;
    pub const TASK: u64 = 1 << 13;
    pub const WATERMARK: u64 = 1 << 14;
    pub const PRECISE: u32 = 15;
    pub const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub const COMM_EXEC: u64 = 1 << 24;
    pub const USE_CLOCKID: u64 = 1 << 25;
}

/// `struct perf_event_attr`, version 5 (112 bytes), which every kernel since 4.1 accepts.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const _: () = assert!(size_of::<Attr>() == 112);

impl Attr {
    /// An event that counts and leads a group.
    pub fn counting(kind: u32, config: [u64; 3]) -> Self {
        Self {
            kind,
            size: size_of::<Self>() as u32,
            config: config[0],
            config1: config[1],
            config2: config[2],
            flags: flag::DISABLED
                | flag::INHERIT
                | flag::ENABLE_ON_EXEC
                | flag::EXCLUDE_KERNEL
                | flag::EXCLUDE_HV,
            ..Self::default()
        }
    }

    /// An event that samples; `tasks` also makes it report threads and names.
    pub fn sampling(event: &MemoryEvent, period: u64, sample_type: u64, tasks: bool) -> Self {
        let mut attr = Self::counting(event.kind, event.config);
        attr.sample_period = period;
        attr.sample_type = sample_type;
        attr.flags |= flag::SAMPLE_ID_ALL
            | flag::WATERMARK
            | flag::USE_CLOCKID
            | u64::from(event.precise & 3) << flag::PRECISE;
        if event.leader.is_some() {
            // A group is enabled and disabled with its leader.
            attr.flags &= !(flag::DISABLED | flag::ENABLE_ON_EXEC);
        }
        if tasks {
            attr.flags |= flag::COMM | flag::COMM_EXEC | flag::TASK;
        }
        attr.clockid = libc::CLOCK_MONOTONIC;
        attr.wakeup_watermark = (DATA_PAGES * page_size() / 4) as u32;
        attr
    }

    /// An event that starts counting at once, system-wide: uncore PMUs belong to no process and do not support
    /// exclusion.
    pub fn of_the_machine(kind: u32, config: [u64; 3]) -> Self {
        const TOTAL_TIME_ENABLED: u64 = 1;
        const TOTAL_TIME_RUNNING: u64 = 1 << 1;
        Self {
            kind,
            size: size_of::<Self>() as u32,
            config: config[0],
            config1: config[1],
            config2: config[2],
            read_format: TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING,
            ..Self::default()
        }
    }

    /// The same for a single thread that runs already: it counts at once, and the threads that this one creates have
    /// events of their own.
    pub fn of_a_thread(mut self) -> Self {
        self.flags &= !(flag::DISABLED | flag::INHERIT | flag::ENABLE_ON_EXEC);
        self
    }

    /// Includes the kernel, for PMUs that cannot exclude it.
    pub fn include_kernel(&mut self) {
        self.flags &= !(flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV);
    }
}

fn page_size() -> usize {
    // SAFETY: sysconf takes no pointer.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// `CLOCK_MONOTONIC`, the clock of the records, in ns.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds for which the calling thread has run.
#[must_use]
pub fn thread_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec to write to; the clocks given always exist.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// `perf_event_open` for a process on one CPU.
pub fn open(attr: &Attr, pid: u32, cpu: u32, group: Option<RawFd>) -> io::Result<OwnedFd> {
    open_event(attr, pid as libc::pid_t, cpu as libc::c_int, group)
}

/// `perf_event_open` for a thread, on whatever CPU it runs.
pub fn open_thread(attr: &Attr, tid: i32, group: Option<RawFd>) -> io::Result<OwnedFd> {
    open_event(attr, tid, -1, group)
}

/// `perf_event_open` for everything that runs on the package of this CPU.
pub fn open_system_wide(attr: &Attr, cpu: u32, group: Option<RawFd>) -> io::Result<OwnedFd> {
    open_event(attr, -1, cpu as libc::c_int, group)
}

fn open_event(
    attr: &Attr,
    pid: libc::pid_t,
    cpu: libc::c_int,
    group: Option<RawFd>,
) -> io::Result<OwnedFd> {
    const CLOEXEC: u64 = 8;
    // SAFETY: `attr` is a valid attribute of the size it states and outlives the call; the rest are numbers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attr),
            pid,
            cpu,
            group.unwrap_or(-1),
            CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// An event's ring buffer.
#[derive(Debug)]
pub struct Ring {
    fd: OwnedFd,
    /// The event's id, which its samples contain.
    pub id: u64,
    base: NonNull<u8>,
    length: usize,
    /// Offset and size of the data, checked once against `length`.
    data: (usize, usize),
    record: Vec<u8>,
}

impl Ring {
    /// Maps the buffer of an event: `pages` of data, a power of two.
    pub fn map(fd: OwnedFd, pages: usize) -> io::Result<Self> {
        const PERF_EVENT_IOC_ID: u64 = 0x8008_2407;
        let mut id = 0_u64;
        // SAFETY: the request writes one u64 to `id`.
        if unsafe { libc::ioctl(fd.as_raw_fd(), PERF_EVENT_IOC_ID as _, &mut id) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let length = (1 + pages) * page_size();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        let mut ring = Self {
            fd,
            id,
            base,
            length,
            data: (0, 0),
            record: Vec::new(),
        };
        // Kernels before 4.1 leave these fields 0: the data then follows the first page.
        let (offset, size) = match (ring.word(DATA_OFFSET), ring.word(DATA_SIZE)) {
            (0, _) | (_, 0) => (page_size(), pages * page_size()),
            (offset, size) => (offset as usize, size as usize),
        };
        if !size.is_power_of_two() || offset.checked_add(size).is_none_or(|end| end > length) {
            return Err(io::Error::other("the kernel's buffer has an invalid size"));
        }
        ring.data = (offset, size);
        Ok(ring)
    }

    fn atomic(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the first page is mapped for as long as `self`, the offsets are constants below its size
        // and multiples of 8, and the kernel accesses these words atomically.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    fn word(&self, offset: usize) -> u64 {
        self.atomic(offset).load(Ordering::Relaxed)
    }

    /// Passes every complete record to `take` and frees its space. Returns the number of bytes that were no record.
    pub fn drain(&mut self, take: impl FnMut(RawRecord<'_>)) -> u64 {
        // Acquire: the records before the head are complete.
        let head = self.atomic(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.word(DATA_TAIL);
        let mut record = std::mem::take(&mut self.record);
        let copy = |at: usize, to: &mut [u8]| self.copy(at, to);
        let drained = ring::drain(self.data.1 as u64, tail, head, &mut record, copy, take);
        self.record = record;
        // Release: our copies are complete before the kernel may overwrite the records.
        self.atomic(DATA_TAIL)
            .store(drained.tail, Ordering::Release);
        drained.broken
    }

    /// Copies data from offset `at` on.
    fn copy(&self, at: usize, to: &mut [u8]) {
        let (offset, size) = self.data;
        let end = at.checked_add(to.len());
        assert!(end.is_some_and(|end| end <= size), "beyond the ring's end");
        // SAFETY: the range lies in the data (checked above), which lies in the mapping (`map` checked offset + size);
        // the kernel does not write between tail and head before the tail is moved; `to` is our own memory.
        unsafe {
            let data = self.base.as_ptr().add(offset + at);
            std::ptr::copy_nonoverlapping(data, to.as_mut_ptr(), to.len());
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// Waits until a ring is a quarter full, for at most `most`.
pub fn wait_for_records<'a>(rings: impl Iterator<Item = &'a Ring>, most: Duration) {
    let mut fds: Vec<libc::pollfd> = rings
        .map(|ring| libc::pollfd {
            fd: ring.fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // SAFETY: `fds` is an array with that number of entries.
    let ready = unsafe {
        libc::poll(
            fds.as_mut_ptr(),
            fds.len() as libc::nfds_t,
            most.as_millis() as libc::c_int,
        )
    };
    // Hang-ups of ended threads would make this return immediately every time.
    if ready > 0 && fds.iter().all(|fd| fd.revents & libc::POLLIN == 0) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Makes `command`'s child send its process id and wait for a byte before it executes the program.
pub fn hold(
    command: &mut Command,
    pid_to_parent: &io::PipeWriter,
    wait: &io::PipeReader,
    go: &io::PipeWriter,
) {
    let (pid_to_parent, wait, go) = (pid_to_parent.as_raw_fd(), wait.as_raw_fd(), go.as_raw_fd());
    let held = move || {
        // SAFETY: async-signal-safe calls only, on descriptors that the child has copies of until `execve`
        // closes them, and on local buffers.
        unsafe {
            libc::close(go);
            let pid = libc::getpid().to_ne_bytes();
            if libc::write(pid_to_parent, pid.as_ptr().cast(), pid.len()) != pid.len() as isize {
                return Err(io::Error::last_os_error());
            }
            let mut byte = 0_u8;
            loop {
                match libc::read(wait, std::ptr::from_mut(&mut byte).cast(), 1) {
                    1 => return Ok(()),
                    // The parent closed the pipe because the events could not be opened.
                    0 => return Err(io::Error::from_raw_os_error(libc::ECANCELED)),
                    _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                    _ => return Err(io::Error::last_os_error()),
                }
            }
        }
    };
    // SAFETY: `held` allocates nothing and takes no lock.
    unsafe { command.pre_exec(held) };
}
