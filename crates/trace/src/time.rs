//! The clocks of the system, from which wall times count.

/// Nanoseconds of the system's monotonic clock, the same for all processes.
#[must_use]
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970, on all hosts.
#[must_use]
pub fn realtime_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

/// [`numaloc_journal::settings::Config::origin_ns`] on this host for a recording that began at
/// `realtime`, perhaps on another.
pub(crate) fn origin_since(realtime: u64) -> u64 {
    let elapsed = realtime_ns().saturating_sub(realtime);
    monotonic_ns().saturating_sub(elapsed).max(1)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call fills the structure it is given.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
