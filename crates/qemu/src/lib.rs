//! A TCG plugin that records every load, store and system call of an unmodified program under qemu-user.
//!
//! `numaloc-follow` classifies instructions at translation (atomic ones, those of run-time libraries and of the
//! allocator) and follows threads, processes and mappings. [`blocks`] finds accesses that can be recorded with one call
//! per block, with addresses from [`numaloc_follow::affine`]. [`marks`] records the places that every run passes.
//! [`exec`] follows `execve`. `numaloc-trace` does the counting.
//!
//! The plugin runs in the program's process. It leaves the program's files, signals and results alone, and stops
//! recording rather than disturb it.

#![deny(unsafe_op_in_unsafe_fn)]

mod api;
mod blocks;
mod exec;
mod locks;
mod marks;
mod mnemonics;
mod paces;
mod syscalls;

use std::ffi::{CStr, OsStr, OsString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use std::ops::{Deref, DerefMut};

use numaloc_follow::calls::Traced;
use numaloc_follow::owners::Owner;
use numaloc_follow::usage::Use;
use numaloc_follow::{images, memory as guest, owners, sharing};
use numaloc_journal::Record;
use numaloc_journal::settings::Grouping;
use numaloc_trace::{Config, Engine, ThreadTracer};

use crate::api::{Info, Insn, MemInfo, PluginId, TranslationBlock};
use crate::blocks::{Translated, Translation};
use crate::paces::VcpuPace;

/// The API version requested; QEMU looks it up by name.
///
/// Debian 12's QEMU 7.2 has API version 1. Newer ones require a higher number but kept the functions we call, so
/// [`choose_version`] raises it while the library is loaded, before QEMU reads it.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: AtomicI32 = AtomicI32::new(1);

/// Runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static CHOOSE_VERSION: extern "C" fn() = choose_version;

extern "C" fn choose_version() {
    // A function introduced with a version shows which one is running. Version 2 (QEMU 9.0) raised
    // the lowest accepted version to 2 and introduced scoreboards.
    // SAFETY: dlsym with a constant name.
    let scoreboards = unsafe {
        libc::dlsym(
            libc::RTLD_DEFAULT,
            c"qemu_plugin_scoreboard_new".as_ptr().cast::<c_char>(),
        )
    };
    if !scoreboards.is_null() {
        qemu_plugin_version.store(2, Ordering::Relaxed);
    }
}

/// A guest thread, and the state of its present block and atomic instruction.
pub(crate) struct GuestThread {
    traced: Traced,
    /// Address of the atomic instruction of which only the load was reported so far.
    atomic_load: u64,
    /// Predictions for the current block, during validation.
    validation: blocks::Validation,
    /// Entry point of a parallel region whose function the thread has not entered yet.
    region: Option<&'static str>,
}

impl Deref for GuestThread {
    type Target = Traced;

    fn deref(&self) -> &Traced {
        &self.traced
    }
}

impl DerefMut for GuestThread {
    fn deref_mut(&mut self) -> &mut Traced {
        &mut self.traced
    }
}

/// Most bytes that count as one access.
const WORD: u8 = numaloc_trace::thread::WORD as u8;

/// Number of vCPU slots; threads beyond that are not counted.
const SLOTS: usize = 1 << 15;
/// The guest thread on each vCPU.
static THREADS: [AtomicPtr<GuestThread>; SLOTS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; SLOTS];
static ENGINE: AtomicPtr<Engine> = AtomicPtr::new(std::ptr::null_mut());
static VERSION: AtomicI32 = AtomicI32::new(1);
/// See [`api::info_is_plain`].
static PLAIN: AtomicBool = AtomicBool::new(false);
/// See [`Config::floor`].
static FLOOR: AtomicBool = AtomicBool::new(false);
static BEGUN: AtomicBool = AtomicBool::new(false);
/// Number of threads on vCPUs.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// The engine of this process, which exists once [`qemu_plugin_install`] has succeeded.
pub(crate) fn engine() -> &'static Engine {
    // SAFETY: set before any callback is registered, from a leaked box, and only ever replaced by another one.
    unsafe { &*ENGINE.load(Ordering::Acquire) }
}

pub(crate) fn set_engine(engine: Engine) {
    ENGINE.store(Box::into_raw(Box::new(engine)), Ordering::Release);
}

/// The guest thread on `vcpu`, which is the caller; created at its first event.
#[inline(always)]
fn thread(vcpu: c_uint) -> Option<&'static mut GuestThread> {
    let slot = THREADS.get(vcpu as usize)?;
    let known = slot.load(Ordering::Relaxed);
    if known.is_null() {
        return Some(first_event(vcpu));
    }
    // SAFETY: a slot holds a leaked box that only the thread on that vCPU uses; it is cleared by that thread when it
    // ends.
    Some(unsafe { &mut *known })
}

/// The guest thread on `vcpu`, unless this is its first event.
#[inline(always)]
fn known_thread(vcpu: c_uint) -> Option<&'static mut GuestThread> {
    let known = THREADS.get(vcpu as usize)?.load(Ordering::Relaxed);
    // SAFETY: as in `thread`.
    unsafe { known.as_mut() }
}

#[cold]
#[inline(never)]
fn first_event(vcpu: c_uint) -> &'static mut GuestThread {
    // SAFETY: these calls have no preconditions. The first one by number: glibc has the function since 2.30 only.
    let (tid, pid) = unsafe { (libc::syscall(libc::SYS_gettid) as i32, libc::getpid()) };
    let tracer = if tid == pid {
        engine().first_thread(tid as u32)
    } else {
        engine().adopt(tid as u32)
    };
    adopt(vcpu, *tracer)
}

/// Puts a thread on a vCPU.
pub(crate) fn adopt(vcpu: c_uint, tracer: ThreadTracer) -> &'static mut GuestThread {
    let thread = Box::leak(Box::new(GuestThread {
        traced: Traced::new(tracer),
        atomic_load: 0,
        validation: blocks::Validation::default(),
        region: None,
    }));
    if let Some(slot) = THREADS.get(vcpu as usize) {
        thread.tracer.set_pace(Box::new(VcpuPace::new(vcpu)));
        slot.store(thread, Ordering::Relaxed);
        LIVE.fetch_add(1, Ordering::Relaxed);
    }
    thread
}

/// Takes a thread that has ended off its vCPU.
pub(crate) fn leave(vcpu: c_uint) {
    if let Some(slot) = THREADS.get(vcpu as usize) {
        let thread = slot.swap(std::ptr::null_mut(), Ordering::Relaxed);
        if !thread.is_null() {
            LIVE.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: it came from `adopt`, and no one else uses it.
            drop(unsafe { Box::from_raw(thread) });
        }
    }
}

/// Forgets all threads in a forked child: they stayed in the parent.
pub(crate) fn forget_threads() {
    for slot in &THREADS {
        slot.store(std::ptr::null_mut(), Ordering::Relaxed);
    }
    LIVE.store(0, Ordering::Relaxed);
}

unsafe extern "C" fn on_access<const RUNTIME: bool>(
    vcpu: c_uint,
    info: MemInfo,
    address: u64,
    place: *mut c_void,
) {
    let Some(thread) = thread(vcpu) else { return };
    thread.tracer.set_place(place.addr() as u64);
    let kind = api::access_kind(info);
    let size = u64::from(kind & !api::STORE);
    // Some versions report more bytes at once; accesses count by word.
    for at in (0..size).step_by(WORD.into()) {
        let (address, size) = (address.wrapping_add(at), size.min(WORD.into()) as u32);
        if kind & api::STORE == 0 {
            thread.tracer.access::<false, RUNTIME>(address, size);
        } else {
            thread.tracer.access::<true, RUNTIME>(address, size);
            if RUNTIME {
                thread.tracer.store_recorded();
            }
        }
    }
}

/// Records a load or store of `1 << SHIFT` bytes by an instruction without other accesses: the usual case.
unsafe extern "C" fn on_plain<const WRITE: bool, const SHIFT: u32>(
    vcpu: c_uint,
    info: MemInfo,
    address: u64,
    data: *mut c_void,
) {
    if info & api::PLAIN_BITS == const { api::plain_info(WRITE, SHIFT) }
        && let Some(thread) = known_thread(vcpu)
    {
        thread
            .tracer
            .access_at::<WRITE>(address, const { 1 << SHIFT }, data.addr() as u64);
    } else {
        unplain(vcpu, info, address, data);
    }
}

#[cold]
#[inline(never)]
extern "C" fn unplain(vcpu: c_uint, info: MemInfo, address: u64, data: *mut c_void) {
    // SAFETY: as QEMU calls it.
    unsafe { on_access::<false>(vcpu, info, address, data) };
}

/// Records an access of 16 or 32 bytes, or a part of one.
unsafe extern "C" fn on_wide(vcpu: c_uint, info: MemInfo, address: u64, data: *mut c_void) {
    let (wide, place) = (data.addr() & WIDE, data.addr() >> WIDE.count_ones());
    blocks::learn(wide, WORD.min(api::access_kind(info) & !api::STORE));
    let place = std::ptr::without_provenance_mut(place);
    // SAFETY: as QEMU calls it.
    unsafe { on_access::<false>(vcpu, info, address, place) };
}

/// Records and compares an access in a block being validated.
unsafe extern "C" fn on_validated(vcpu: c_uint, info: MemInfo, address: u64, data: *mut c_void) {
    if let Some(thread) = thread(vcpu) {
        blocks::compare(&thread.validation, data, address, info);
    }
    let place = std::ptr::without_provenance_mut(blocks::place(data));
    // SAFETY: as QEMU calls it.
    unsafe { on_access::<false>(vcpu, info, address, place) };
}

/// Records an instruction that loads and then stores `1 << SHIFT` bytes; called for one of the two accesses.
unsafe extern "C" fn on_update<const SHIFT: u32>(
    vcpu: c_uint,
    _: MemInfo,
    address: u64,
    place: *mut c_void,
) {
    if let Some(thread) = thread(vcpu) {
        thread.tracer.set_place(place.addr() as u64);
        thread.tracer.update::<false>(address, const { 1 << SHIFT });
    }
}

/// Records a load or a store of one iteration of a string instruction.
unsafe extern "C" fn on_string(vcpu: c_uint, info: MemInfo, address: u64, place: *mut c_void) {
    let Some(thread) = thread(vcpu) else { return };
    thread.tracer.set_place(place.addr() as u64);
    let kind = api::access_kind(info);
    let size = u32::from(kind & !api::STORE);
    if kind & api::STORE == 0 {
        thread.tracer.string::<false>(address, size);
    } else {
        thread.tracer.string::<true>(address, size);
    }
}

/// Does nothing (`floor=1`).
unsafe extern "C" fn on_nothing(_: c_uint, _: MemInfo, _: u64, _: *mut c_void) {}

/// The size of an access of an atomic instruction at `address`, and whether its load and its store are to be recorded
/// now. QEMU reports the instruction as a store that is a load too, or (with a single thread) as a load and a store.
fn of_atomic(thread: &mut GuestThread, info: MemInfo, address: u64) -> (u32, bool, bool) {
    let kind = api::access_kind(info);
    let stores = kind & api::STORE != 0;
    let last = std::mem::replace(&mut thread.atomic_load, if stores { 0 } else { address });
    (
        u32::from(kind & !api::STORE),
        !stores || last != address,
        stores,
    )
}

/// Records an atomic instruction.
unsafe extern "C" fn on_atomic<const RUNTIME: bool>(
    vcpu: c_uint,
    info: MemInfo,
    address: u64,
    place: *mut c_void,
) {
    let Some(thread) = thread(vcpu) else { return };
    thread.tracer.set_place(place.addr() as u64);
    // The allocator waits for its lock by calling a run-time library.
    if RUNTIME && address == thread.allocator_word {
        return count_allocator(thread, info, address);
    }
    let (size, loads, stores) = of_atomic(thread, info, address);
    if stores {
        thread.tracer.hand_over(address);
    }
    if loads {
        thread.tracer.synchronise::<false, RUNTIME>(address, size);
    }
    if stores {
        thread.tracer.synchronise::<true, RUNTIME>(address, size);
    }
}

/// Records an atomic instruction of the allocator.
unsafe extern "C" fn on_allocator(vcpu: c_uint, info: MemInfo, address: u64, _: *mut c_void) {
    if let Some(thread) = thread(vcpu) {
        thread.allocator_word = address;
        count_allocator(thread, info, address);
    }
}

/// Counts an atomic instruction on a word of the allocator.
fn count_allocator(thread: &mut GuestThread, info: MemInfo, address: u64) {
    let (size, loads, stores) = of_atomic(thread, info, address);
    if loads {
        thread.tracer.count_only::<false>(address, size);
    }
    if stores {
        thread.tracer.store_recorded();
        thread.tracer.count_only::<true>(address, size);
    }
}

/// Called before an instruction whose store other threads may see at once: an atomic one, or one of a run-time
/// library.
unsafe extern "C" fn before_store(vcpu: c_uint, _: *mut c_void) {
    if LIVE.load(Ordering::Relaxed) > 1
        && let Some(thread) = known_thread(vcpu)
    {
        thread.tracer.announce();
    }
}

unsafe extern "C" fn on_translation(_: PluginId, block: *mut TranslationBlock) {
    let version = VERSION.load(Ordering::Relaxed);
    let floor = FLOOR.load(Ordering::Relaxed);
    // SAFETY: QEMU passes the block it is translating.
    let count = unsafe { api::qemu_plugin_tb_n_insns(block) };
    // SAFETY: `index` is below the block's count; the instruction lives as long as the block.
    let instruction = |index| unsafe { api::qemu_plugin_tb_get_insn(block, index) };
    // SAFETY: as above; a block has at least one instruction.
    let start = unsafe { api::qemu_plugin_insn_vaddr(instruction(0)) };
    if !BEGUN.swap(true, Ordering::Relaxed) {
        images::record(engine(), start);
    }
    let owner = owners::owner(start);
    if let Some(function) = sharing::reached(start) {
        engine().write(&Record::Sharing(function));
    }
    let runtime = owner == Owner::Runtime;
    let code = (0..count).map(|index| {
        let insn: *mut Insn = instruction(index);
        // SAFETY: as above.
        let (bytes, size) = unsafe { api::insn_bytes(insn, version) };
        (insn, bytes, size)
    });
    let translation = Translation::new(start, code);
    marks::register(block, start, &translation);
    let registration = translation.register(block, runtime);
    for one in &translation.instructions {
        // QEMU runs many vector instructions as helper calls and sets the callback up around each. Skipping those
        // without memory accesses makes floating-point code much cheaper.
        if one.usage == Use::None || registration.records(one) {
            continue;
        }
        let (callback, accesses, data) = match registration.expectation(one) {
            Some(expectation) => (
                on_validated as api::MemCallback,
                api::READ_AND_WRITE,
                expectation,
            ),
            None => callback(one, owner),
        };
        let callback = if floor { on_nothing } else { callback };
        if !floor
            && (one.usage == Use::Atomic && owner != Owner::Allocator || runtime && one.stores)
        {
            // SAFETY: as below.
            unsafe {
                api::qemu_plugin_register_vcpu_insn_exec_cb(
                    one.insn,
                    before_store,
                    api::NO_REGISTERS,
                    std::ptr::null_mut(),
                );
            }
        }
        // SAFETY: the callback is a function of this library, which QEMU does not unload.
        unsafe {
            api::qemu_plugin_register_vcpu_mem_cb(
                one.insn,
                callback,
                api::NO_REGISTERS,
                accesses,
                data,
            );
        }
    }
}

/// Bits of [`on_wide`]'s argument that hold the kind of wide access; those above hold the instruction's address.
const WIDE: usize = 3;

/// The callback for an instruction, the accesses it is called for, and its argument: the instruction's address.
fn callback(one: &Translated, owner: Owner) -> (api::MemCallback, c_int, *mut c_void) {
    let Translated { usage, address, .. } = *one;
    let runtime = owner == Owner::Runtime;
    let address = address as usize;
    if !runtime && let Some(wide) = blocks::wide(usage) {
        let data = std::ptr::without_provenance_mut(address << WIDE.count_ones() | wide);
        return (on_wide, api::READ_AND_WRITE, data);
    }
    let place = std::ptr::without_provenance_mut(address);
    let plain = !runtime && PLAIN.load(Ordering::Relaxed);
    let callback: api::MemCallback = match usage {
        Use::Atomic => match owner {
            Owner::Program => on_atomic::<false>,
            Owner::Runtime => on_atomic::<true>,
            Owner::Allocator => on_allocator,
        },
        Use::Update(size) if !runtime => {
            let callback: api::MemCallback = match size {
                1 => on_update::<0>,
                2 => on_update::<1>,
                4 => on_update::<2>,
                _ => on_update::<3>,
            };
            return (callback, api::ONE_OF_TWO, place);
        }
        Use::String if !runtime => on_string,
        Use::Load(1) if plain => on_plain::<false, 0>,
        Use::Load(2) if plain => on_plain::<false, 1>,
        Use::Load(4) if plain => on_plain::<false, 2>,
        Use::Load(_) if plain => on_plain::<false, 3>,
        Use::Store(1) if plain => on_plain::<true, 0>,
        Use::Store(2) if plain => on_plain::<true, 1>,
        Use::Store(4) if plain => on_plain::<true, 2>,
        Use::Store(_) if plain => on_plain::<true, 3>,
        _ if runtime => on_access::<true>,
        _ => on_access::<false>,
    };
    (callback, api::READ_AND_WRITE, place)
}

unsafe extern "C" fn on_exit(_: PluginId, _: *mut c_void) {
    // QEMU has stopped all vCPUs and removed our callbacks. Newer versions also come here when a signal kills the
    // program.
    let killed = !syscalls::ending() && LIVE.load(Ordering::Relaxed) > 0;
    for slot in &THREADS {
        let thread = slot.swap(std::ptr::null_mut(), Ordering::Relaxed);
        if !thread.is_null() {
            // SAFETY: from `adopt`; its own thread no longer runs callbacks.
            unsafe { (*thread).traced.tracer.end(0) };
        }
    }
    if engine().config().group == Grouping::Check {
        let (right, wrong) = blocks::validated();
        let found = format!("{right} accesses as predicted, {wrong} not");
        engine().write(&Record::Note(found));
    }
    if killed {
        engine().break_off();
    } else {
        engine().finish();
    }
}

/// Called by QEMU when it loads the plugin; 0 lets the program start.
///
/// # Safety
/// For QEMU only: `info` and the `count` strings at `arguments` are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    info: *const Info,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: the caller is QEMU (function contract).
    let info = unsafe { &*info };
    VERSION.store(info.version_current, Ordering::Relaxed);
    let mut given = OsString::new();
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: `count` valid C strings (function contract).
        let argument = unsafe { CStr::from_ptr(*arguments.add(index)) };
        given.push(OsStr::from_bytes(argument.to_bytes()));
        given.push(",");
    }
    // SAFETY: a C string of QEMU's own.
    let target = unsafe { CStr::from_ptr(info.target_name) }.to_string_lossy();
    if target != "x86_64" || info.system_emulation {
        eprintln!(
            "numaloc: the QEMU plugin works in qemu-x86_64 only, this is the {target} emulator"
        );
        return 1;
    }
    let mut config = Config {
        frontend: "qemu".to_owned(),
        ..Config::default()
    };
    if let Err(error) = config.decode(&given) {
        eprintln!("numaloc: {error}");
        return 1;
    }
    let program = config.program.to_string_lossy().into_owned();
    match Engine::start(config, &program) {
        Ok(engine) => set_engine(engine),
        Err(error) => {
            eprintln!("numaloc: cannot start recording: {error}");
            return 1;
        }
    }
    locks::replace();
    numaloc_follow::marks::record();
    PLAIN.store(api::info_is_plain(), Ordering::Relaxed);
    let config = engine().config();
    FLOOR.store(config.floor, Ordering::Relaxed);
    blocks::start(if config.floor {
        Grouping::Off
    } else {
        config.group
    });
    // SAFETY: registration with our own id, of functions of this library.
    unsafe {
        api::qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
        api::qemu_plugin_register_vcpu_syscall_cb(id, syscalls::on_call);
        api::qemu_plugin_register_vcpu_syscall_ret_cb(id, syscalls::on_return);
        api::qemu_plugin_register_atexit_cb(id, on_exit, std::ptr::null_mut());
    }
    0
}
