//! POSIX synchronisation: executed by the real functions, and moves the virtual clock.
//!
//! A thread that unlocks, signals, posts or arrives leaves its clock at the object's address; one that locks, wakes or
//! leaves takes it. A thread is therefore never earlier than what it waited for, whichever thread the host ran first.
//! Accesses to the object itself are the C library's and count as no communication. Objects that libomp uses
//! internally are not recorded: its entry points are ([`crate::openmp::kmpc`]).

use std::cell::RefCell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::AtomicUsize;

use crate::clocks::{acquire, release};
use crate::marks;
use crate::openmp::team;
use crate::real::{self, real};

/// Functions with one object as argument that acquire after success, or release before.
macro_rules! wrap {
    ($($name:ident: $how:ident;)*) => {$(
        /// The real function, recorded for the virtual clock.
        ///
        /// # Safety
        /// As the real one.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(object: *mut c_void) -> c_int {
            let real = real!($name: fn(*mut c_void) -> c_int);
            wrap!(@$how real, object)
        }
    )*};
    (@acquires $real:ident, $object:ident) => {{
        // SAFETY: guaranteed by the caller.
        let status = unsafe { $real($object) };
        if status == 0 && !team::is_inside() {
            acquire($object as u64);
        }
        status
    }};
    (@releases $real:ident, $object:ident) => {{
        if !team::is_inside() {
            release($object as u64);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { $real($object) }
    }};
}

wrap! {
    pthread_mutex_lock: acquires;
    pthread_mutex_trylock: acquires;
    pthread_mutex_unlock: releases;
    pthread_rwlock_rdlock: acquires;
    pthread_rwlock_tryrdlock: acquires;
    pthread_rwlock_wrlock: acquires;
    pthread_rwlock_trywrlock: acquires;
    pthread_rwlock_unlock: releases;
    pthread_spin_lock: acquires;
    pthread_spin_trylock: acquires;
    pthread_spin_unlock: releases;
    sem_wait: acquires;
    sem_trywait: acquires;
    sem_post: releases;
}

/// Condition variables exist in two versions; an unversioned look-up finds the old one.
fn condition(cache: &AtomicUsize, name: &CStr) -> usize {
    use std::sync::atomic::Ordering::Relaxed;
    if cache.load(Relaxed) == 0 {
        // SAFETY: dlvsym with valid C strings.
        let found =
            unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), c"GLIBC_2.3.2".as_ptr()) };
        cache.store(found as usize, Relaxed);
    }
    real::address(cache, name)
}

macro_rules! conditions {
    ($($name:ident($($argument:ident: $type:ty),*): $before:block, $after:block;)*) => {$(
        /// The real function, recorded for the virtual clock.
        ///
        /// # Safety
        /// As the real one.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            static CACHE: AtomicUsize = AtomicUsize::new(0);
            let name = concat!(stringify!($name), "\0");
            let name = CStr::from_bytes_with_nul(name.as_bytes()).expect("ends in NUL");
            let address = condition(&CACHE, name);
            // SAFETY: the address is that of the C function `name`, whose type this is.
            let real = unsafe {
                std::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> c_int>(address)
            };
            let ours = !team::is_inside();
            if ours $before
            // SAFETY: guaranteed by the caller.
            let status = unsafe { real($($argument),*) };
            if ours $after
            status
        }
    )*};
}

conditions! {
    pthread_cond_signal(condition: *mut c_void): { release(condition as u64); }, {};
    pthread_cond_broadcast(condition: *mut c_void): { release(condition as u64); }, {};
    pthread_cond_wait(condition: *mut c_void, mutex: *mut c_void):
        { release(mutex as u64); }, { acquire(condition as u64); acquire(mutex as u64); };
    pthread_cond_timedwait(condition: *mut c_void, mutex: *mut c_void, until: *const c_void):
        { release(mutex as u64); }, { acquire(mutex as u64); };
}

thread_local! {
    /// How often this thread has used each barrier: even and odd rounds have separate clocks, so that a fast thread's
    /// next arrival is not mistaken for the present one.
    static ROUNDS: RefCell<Vec<(u64, u64)>> = const { RefCell::new(Vec::new()) };
}

/// Waits at a barrier.
///
/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_wait(barrier: *mut c_void) -> c_int {
    let wait = real!(pthread_barrier_wait: fn(*mut c_void) -> c_int);
    marks::barrier("pthread_barrier_wait");
    let address = barrier as u64;
    let mut round = 0;
    crate::current::ours(|_| {
        ROUNDS.with_borrow_mut(|rounds| {
            match rounds.iter_mut().find(|(known, _)| *known == address) {
                Some((_, known)) => {
                    *known += 1;
                    round = *known;
                }
                None => rounds.push((address, 0)),
            }
        });
    });
    // Two lines of the clock table: the barrier's own and the next one.
    let token = address + (round & 1) * 64;
    release(token);
    // SAFETY: guaranteed by the caller.
    let status = unsafe { wait(barrier) };
    acquire(token);
    status
}
