//! Descriptors of ours in the table of a traced process, and the limits that the process sets for itself.
//!
//! The program may expect low numbers for its own files, may close descriptors that it never opened, and may limit
//! their number or the size of files for itself. So ours have high numbers, [`kept`] lists them for frontends that hide
//! them from the program, and [`Lifted`] sets a limit aside while we work.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};

/// Our descriptors: -1 for a free entry.
static KEPT: [AtomicI32; 16] = [const { AtomicI32::new(-1) }; 16];
/// See [`beyond_the_limit`].
static BEYOND: AtomicBool = AtomicBool::new(false);

/// Lowest number for descriptors of ours beyond the limit, and the highest that is looked for: the kernel's table of
/// descriptors, copied at each fork, is as long as the highest number.
const NUMBERS: std::ops::Range<u64> = 1000..1 << 16;

/// From now on ours get numbers that the program's limit does not allow it, so that it finds all numbers below free.
pub fn beyond_the_limit() {
    BEYOND.store(true, Relaxed);
}

/// The limits of a resource.
fn limits(resource: libc::__rlimit_resource_t) -> libc::rlimit {
    let mut limits = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call fills the structure it is given.
    unsafe { libc::getrlimit(resource, &raw mut limits) };
    limits
}

fn set(resource: libc::__rlimit_resource_t, soft: u64, hard: u64) -> bool {
    let limits = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    // SAFETY: reads the structure.
    unsafe { libc::setrlimit(resource, &raw const limits) == 0 }
}

/// A soft limit that is set aside: how many threads need that, and what it is.
struct Aside {
    resource: libc::__rlimit_resource_t,
    locked: AtomicBool,
    users: AtomicU32,
    soft: AtomicU64,
}

static ASIDE: [Aside; 2] = [
    Aside::of(libc::RLIMIT_NOFILE),
    Aside::of(libc::RLIMIT_FSIZE),
];

/// How often a thread tries to get the lock. A signal handler may interrupt the thread that has it.
const TRIES: u32 = 1000;

impl Aside {
    const fn of(resource: libc::__rlimit_resource_t) -> Self {
        Self {
            resource,
            locked: AtomicBool::new(false),
            users: AtomicU32::new(0),
            soft: AtomicU64::new(0),
        }
    }

    fn get(resource: libc::__rlimit_resource_t) -> Option<&'static Self> {
        ASIDE.iter().find(|aside| aside.resource == resource)
    }

    /// Runs `action` alone.
    fn alone<T>(&self, action: impl FnOnce() -> T) -> T {
        let mut tries = 0;
        while self.locked.swap(true, Acquire) && tries < TRIES {
            tries += 1;
            std::thread::yield_now();
        }
        let result = action();
        self.locked.store(false, Release);
        result
    }

    /// Sets the limit aside for one more thread, so that `needed` is allowed; whether that is necessary, and possible.
    fn take(&self, needed: u64) -> Result<bool, ()> {
        self.alone(|| {
            let found = limits(self.resource);
            if needed > found.rlim_max {
                return Err(());
            }
            if self.users.load(Relaxed) > 0 {
                self.users.fetch_add(1, Relaxed);
                return Ok(true);
            }
            if needed <= found.rlim_cur {
                return Ok(false);
            }
            self.soft.store(found.rlim_cur, Relaxed);
            if !set(self.resource, found.rlim_max, found.rlim_max) {
                return Err(());
            }
            self.users.store(1, Relaxed);
            Ok(true)
        })
    }

    fn give_back(&self) {
        self.alone(|| {
            if self.users.fetch_sub(1, Relaxed) == 1 {
                let hard = limits(self.resource).rlim_max;
                set(self.resource, self.soft.load(Relaxed).min(hard), hard);
            }
        });
    }
}

/// Sets the limits of a resource for the program, also if they are set aside now. Whether the kernel takes them.
pub fn set_limits(resource: libc::__rlimit_resource_t, soft: u64, hard: u64) -> bool {
    let Some(aside) = Aside::get(resource) else {
        return set(resource, soft, hard);
    };
    aside.alone(|| {
        if aside.users.load(Relaxed) == 0 {
            return set(resource, soft, hard);
        }
        aside.soft.store(soft, Relaxed);
        set(resource, hard, hard)
    })
}

/// The limits of a resource as the program has them, also if they are set aside now.
pub fn program_limits(resource: libc::__rlimit_resource_t) -> libc::rlimit {
    let Some(aside) = Aside::get(resource) else {
        return limits(resource);
    };
    aside.alone(|| {
        let found = limits(resource);
        match aside.users.load(Relaxed) {
            0 => found,
            _ => libc::rlimit {
                rlim_cur: aside.soft.load(Relaxed),
                ..found
            },
        }
    })
}

/// In a forked child, of which the calling thread is the only one: limits that other threads had set aside apply again.
pub fn forked() {
    for aside in &ASIDE {
        aside.locked.store(false, Relaxed);
        if aside.users.swap(0, Relaxed) > 0 {
            let hard = limits(aside.resource).rlim_max;
            set(aside.resource, aside.soft.load(Relaxed).min(hard), hard);
        }
    }
}

/// A limit of the process that is set aside, as far as the hard limit allows, while this lives.
pub struct Lifted(Option<&'static Aside>);

impl Lifted {
    /// Sets the limit of the number of descriptors aside.
    #[must_use]
    pub fn for_descriptors() -> Self {
        let aside = Aside::get(libc::RLIMIT_NOFILE);
        let needed = limits(libc::RLIMIT_NOFILE).rlim_max;
        Self(aside.filter(|aside| aside.take(needed) == Ok(true)))
    }

    /// Sets the limit of the size of files aside if it is below `bytes`. `None` if it cannot be: writing more would
    /// raise a signal that kills the program.
    #[must_use]
    pub fn for_file(bytes: u64) -> Option<Self> {
        let aside = Aside::get(libc::RLIMIT_FSIZE)?;
        match aside.take(bytes) {
            Ok(taken) => Some(Self(taken.then_some(aside))),
            Err(()) => None,
        }
    }
}

impl Drop for Lifted {
    fn drop(&mut self) {
        if let Some(aside) = self.0 {
            aside.give_back();
        }
    }
}

/// Moves a file of ours to a high descriptor number if one is free, and lists it; closed when a program is executed.
pub fn out_of_the_way(file: OwnedFd) -> OwnedFd {
    let before = program_limits(libc::RLIMIT_NOFILE);
    let lifted = BEYOND.load(Relaxed).then(Lifted::for_descriptors);
    let beyond = before.rlim_cur.clamp(NUMBERS.start, NUMBERS.end);
    // Below a low limit too, the first numbers are the program's.
    let below = |limit: u64| {
        let limit = limit.min(NUMBERS.end);
        limit - (limit / 2).min(64)
    };
    let from = match lifted.is_some() && beyond < before.rlim_max {
        true => beyond,
        false if lifted.is_some() => below(before.rlim_max),
        false => below(before.rlim_cur),
    };
    // SAFETY: duplicates a descriptor that `file` keeps open.
    let high = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, from as RawFd) };
    if high < 0 {
        list(file.as_raw_fd());
        return file;
    }
    list(high);
    // SAFETY: a new descriptor with no other owner.
    unsafe { OwnedFd::from_raw_fd(high) }
}

/// Lists a descriptor as ours.
pub fn list(descriptor: RawFd) {
    if is_kept(descriptor) {
        return;
    }
    // One that finds no entry is not hidden: a process has few, except in tests with many engines.
    let _ = KEPT.iter().find(|entry| {
        let found = entry.compare_exchange(-1, descriptor, Relaxed, Relaxed);
        found.is_ok()
    });
}

/// A descriptor that was [`list`]ed is not ours any more.
pub fn unlist(descriptor: RawFd) {
    for entry in &KEPT {
        let _ = entry.compare_exchange(descriptor, -1, Relaxed, Relaxed);
    }
}

/// The descriptors that are ours.
pub fn kept() -> impl Iterator<Item = RawFd> {
    let entries = KEPT.iter().map(|entry| entry.load(Relaxed));
    entries.filter(|&descriptor| descriptor >= 0)
}

/// Whether a descriptor is ours.
pub fn is_kept(descriptor: RawFd) -> bool {
    descriptor >= 0 && KEPT.iter().any(|entry| entry.load(Relaxed) == descriptor)
}

/// Closes a descriptor of ours.
pub fn close(descriptor: RawFd) {
    unlist(descriptor);
    // SAFETY: ours, and not used any more.
    unsafe { libc::close(descriptor) };
}

/// Whether the programs that this process executes have a descriptor too.
pub fn pass_on(descriptor: RawFd, passed: bool) {
    let flags = if passed { 0 } else { libc::FD_CLOEXEC };
    // SAFETY: changes a flag of a descriptor of ours.
    unsafe { libc::fcntl(descriptor, libc::F_SETFD, flags) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_ours_gets_a_high_number_and_is_listed() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let moved = out_of_the_way(file.into());
        assert!(moved.as_raw_fd() >= 64);
        assert!(is_kept(moved.as_raw_fd()));
        assert!(kept().any(|descriptor| descriptor == moved.as_raw_fd()));
        unlist(moved.as_raw_fd());
        assert!(!is_kept(moved.as_raw_fd()));
    }

    #[test]
    fn a_limit_is_set_aside_for_as_long_as_a_thread_needs_it() {
        let before = limits(libc::RLIMIT_NOFILE);
        let lifted = [(); 2].map(|()| Lifted::for_descriptors());
        assert_eq!(limits(libc::RLIMIT_NOFILE).rlim_cur, before.rlim_max);
        assert_eq!(
            program_limits(libc::RLIMIT_NOFILE).rlim_cur,
            before.rlim_cur
        );
        let [one, other] = lifted;
        drop(one);
        assert_eq!(limits(libc::RLIMIT_NOFILE).rlim_cur, before.rlim_max);
        // The program sets another one meanwhile.
        assert!(set_limits(libc::RLIMIT_NOFILE, 500, before.rlim_max));
        drop(other);
        assert_eq!(limits(libc::RLIMIT_NOFILE).rlim_cur, 500);
        assert!(set_limits(
            libc::RLIMIT_NOFILE,
            before.rlim_cur,
            before.rlim_max
        ));
    }
}
