//! Limits that the program sets for itself, as if the engine were not in its process.
//!
//! | limit | in the kernel |
//! |---|---|
//! | address space, data | the program's and what the engine has mapped, so that the kernel refuses what it would refuse |
//! | number of descriptors, size of files | the program's; the engine sets it aside while it opens or writes its own |
//!
//! The kernel's hard limits stay as they were, and what the program reads is what it has set. A program that runs
//! natively gets its limits in full ([`for_native`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use numaloc_trace::descriptors;

use super::{error, maps};
use crate::{guest, sys};

/// No limit.
const NONE: u64 = u64::MAX;

/// A limit that the program has set.
struct Limit {
    resource: u32,
    /// Whether what the engine maps counts too.
    memory: bool,
    set: AtomicBool,
    soft: AtomicU64,
    hard: AtomicU64,
    /// The kernel's soft limit.
    kernel: AtomicU64,
}

impl Limit {
    const fn of(resource: u32, memory: bool) -> Self {
        Self {
            resource,
            memory,
            set: AtomicBool::new(false),
            soft: AtomicU64::new(NONE),
            hard: AtomicU64::new(NONE),
            kernel: AtomicU64::new(NONE),
        }
    }

    /// Soft and hard limit as the program sees them.
    fn get(&self) -> (u64, u64) {
        match self.set.load(Relaxed) {
            true => (self.soft.load(Relaxed), self.hard.load(Relaxed)),
            false => real(self.resource),
        }
    }

    fn set(&self, soft: u64, hard: u64) -> i64 {
        if soft > hard {
            return error(libc::EINVAL);
        }
        let (_, most) = self.get();
        if hard > most && !is_capable(SYS_RESOURCE) {
            return error(libc::EPERM);
        }
        self.soft.store(soft, Relaxed);
        self.hard.store(hard, Relaxed);
        self.set.store(true, Relaxed);
        self.apply()
    }

    /// Sets the kernel's limit.
    fn apply(&self) -> i64 {
        let (soft, hard) = self.get();
        // The kernel takes the hard limit for data if the soft one is 0.
        let soft = match (self.resource, soft) {
            (libc::RLIMIT_DATA, 0) => hard,
            _ => soft,
        };
        let own = match self.memory && soft != NONE {
            true => maps::own_memory().map(|(all, data)| match self.resource {
                libc::RLIMIT_DATA => data,
                _ => all,
            }),
            false => Some(0),
        };
        // Without /proc, what is the engine's is not known.
        let soft = own.map_or(NONE, |own| soft.saturating_add(own));
        let (_, most) = real(self.resource);
        let result = set_real(self.resource, soft.min(most.max(hard)), most.max(hard));
        self.kernel.store(soft, Relaxed);
        result
    }

    /// The engine maps memory.
    fn grow(&self, bytes: u64) {
        let before = self.kernel.load(Relaxed);
        if !self.memory || !self.set.load(Relaxed) || before == NONE {
            return;
        }
        let soft = before.saturating_add(bytes);
        let (_, hard) = real(self.resource);
        set_real(self.resource, soft.min(hard), hard);
        self.kernel.store(soft, Relaxed);
    }
}

static LIMITS: [Limit; 4] = [
    Limit::of(libc::RLIMIT_AS, true),
    Limit::of(libc::RLIMIT_DATA, true),
    Limit::of(libc::RLIMIT_NOFILE, false),
    Limit::of(libc::RLIMIT_FSIZE, false),
];

/// The kernel's soft and hard limit.
fn real(resource: u32) -> (u64, u64) {
    let limits = descriptors::program_limits(resource);
    (limits.rlim_cur, limits.rlim_max)
}

fn set_real(resource: u32, soft: u64, hard: u64) -> i64 {
    match descriptors::set_limits(resource, soft, hard) {
        true => 0,
        false => error(libc::EPERM),
    }
}

/// The capability to raise hard limits.
const SYS_RESOURCE: u32 = 24;

/// Whether the thread has a capability, of the first 32.
pub fn is_capable(capability: u32) -> bool {
    const VERSION_3: u32 = 0x2008_0522;
    let head = [VERSION_3, 0];
    // Effective, permitted, inheritable; twice.
    let mut sets = [0_u32; 6];
    let arguments = [head.as_ptr() as u64, sets.as_mut_ptr() as u64, 0, 0, 0, 0];
    // SAFETY: reads one array and fills the other.
    let known = unsafe { sys::call(libc::SYS_capget, arguments) };
    known == 0 && sets[0] & 1 << capability != 0
}

/// Answers a call about one of these limits of this process.
pub fn before(number: i64, a: [u64; 6]) -> Option<i64> {
    let (process, resource, new, old) = match number {
        libc::SYS_getrlimit => (0, a[0], 0, a[1]),
        libc::SYS_setrlimit => (0, a[0], a[1], 0),
        libc::SYS_prlimit64 => (a[0] as u32, a[1], a[2], a[3]),
        _ => return None,
    };
    let own = process == 0 || process == std::process::id();
    let limit = LIMITS
        .iter()
        .find(|limit| u64::from(limit.resource) == resource)?;
    if !own {
        return None;
    }
    let wanted = match new {
        0 => None,
        at => match guest::read::<[u64; 2]>(at) {
            Some(wanted) => Some(wanted),
            None => return Some(error(libc::EFAULT)),
        },
    };
    let (soft, hard) = limit.get();
    if number == libc::SYS_setrlimit && wanted.is_none() {
        return Some(error(libc::EFAULT));
    }
    if let Some([soft, hard]) = wanted {
        let result = limit.set(soft, hard);
        if result < 0 {
            return Some(result);
        }
    }
    if (old != 0 || number == libc::SYS_getrlimit) && !guest::write(old, &[soft, hard]) {
        return Some(error(libc::EFAULT));
    }
    Some(0)
}

/// The engine is about to map memory, which does not count for the program.
pub fn grow(bytes: u64) {
    for limit in &LIMITS {
        limit.grow(bytes);
    }
}

/// The limits that are set, for the engine of an executed program, which needs room before it knows them.
pub fn passed() -> Vec<u8> {
    let set = LIMITS.iter().filter(|limit| limit.set.load(Relaxed));
    let text: Vec<String> = set
        .map(|limit| {
            let (soft, hard) = limit.get();
            format!("{}:{soft}:{hard}", limit.resource)
        })
        .collect();
    text.join(",").into_bytes()
}

/// Sets limits of memory aside until [`again`], so that another engine can start.
pub fn set_aside() {
    for limit in LIMITS
        .iter()
        .filter(|limit| limit.memory && limit.set.load(Relaxed))
    {
        let (_, hard) = real(limit.resource);
        set_real(limit.resource, hard, hard);
    }
}

/// Applies the limits again after a failed attempt to execute a program.
pub fn again() {
    for limit in LIMITS.iter().filter(|limit| limit.set.load(Relaxed)) {
        limit.apply();
    }
}

/// Gives the kernel the limits as the program has set them: the next program runs natively.
pub fn for_native() {
    for limit in LIMITS.iter().filter(|limit| limit.set.load(Relaxed)) {
        let (soft, hard) = limit.get();
        set_real(limit.resource, soft, hard);
    }
}

/// Takes over what the engine that executed this program had [`passed`]; `apply` when this engine has its memory.
pub fn take(text: &[u8]) {
    let text = std::str::from_utf8(text).unwrap_or_default();
    for entry in text.split(',') {
        let numbers: Vec<u64> = entry
            .split(':')
            .filter_map(|word| word.parse().ok())
            .collect();
        let &[resource, soft, hard] = &numbers[..] else {
            continue;
        };
        if let Some(limit) = LIMITS
            .iter()
            .find(|limit| u64::from(limit.resource) == resource)
        {
            limit.soft.store(soft, Relaxed);
            limit.hard.store(hard, Relaxed);
            limit.set.store(true, Relaxed);
        }
    }
}
