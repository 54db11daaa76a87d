//! Records the program's accesses and system calls with the tracing engine.
//!
//! Translated code reports each access ([`access`]) through [`native_record_access`]; addresses that it cannot compute
//! by itself are found out by [`complex`]; [`light`] records the usual ones at less cost, [`turns`] those of loops. A
//! thread's tracer lies in its [`State`]. System calls are followed by `numaloc-follow`.
#![allow(unsafe_code)]

pub mod access;
pub mod blocks;
pub mod callable;
mod complex;
pub mod descriptor;
pub mod entry;
pub mod flow;
pub mod follow;
pub mod light;
mod marks;
mod passing;
pub mod room;
pub mod turns;

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};

use iced_x86::Instruction;
use numaloc_follow::calls::{self, Then, Traced};
use numaloc_follow::owners::Owner;
use numaloc_follow::{allocators, images, owners, sharing, titles};
use numaloc_journal::Record;
use numaloc_trace::identity::{Creator, ThreadPath};
use numaloc_trace::pages::PageCounters;
use numaloc_trace::{Config, Engine, pages, reservation};

use crate::layout::{LINES, MASKS};
use crate::patch;
use crate::paths::{BETWEEN_LOOKS, EARLY, LOOKS};
use crate::state::State;
use crate::{blocks as threads, ending};
use descriptor::{Descriptor, Kind, Masked};
use entry::Entry;
use flow::Flow;

static ENGINE: AtomicPtr<Engine> = AtomicPtr::new(std::ptr::null_mut());
/// Number of threads with a tracer.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// See [`is_alone`].
static ALONE: AtomicBool = AtomicBool::new(true);

/// The engine of this process, if it is recorded.
pub fn engine() -> Option<&'static Engine> {
    // SAFETY: null, or a leaked box.
    unsafe { ENGINE.load(Acquire).as_ref() }
}

/// Number of threads with a tracer.
pub fn threads() -> usize {
    LIVE.load(Relaxed)
}

/// Whether the process is recorded.
pub fn is_on() -> bool {
    !ENGINE.load(Relaxed).is_null()
}

/// Chooses between code that records and code that only counts accesses, for the time between bursts. The latter
/// counts by the path, which may be more than remained in the quantum. At first it leaves the cache often, to show
/// what is hot: bursts are short.
pub fn choose_version(state: &mut State) {
    let looks = state.looks < LOOKS;
    state.counting = false;
    if let Some(thread) = traced(state) {
        thread.tracer.give_back();
        thread.tracer.end_overrun();
        let counting = thread.tracer.sample_threshold() == Some(0);
        if counting && looks && thread.tracer.time() >= EARLY {
            thread.tracer.hold_back(BETWEEN_LOOKS);
        }
        state.counting = counting;
    }
}

/// The thread has left code that only counts accesses, at the address of the cache in its state.
pub fn counted(state: &mut State) {
    if state.looks < LOOKS && quantum_ended(state, state.address) {
        state.looks += 1;
    }
}

/// Shows where in the cache a quantum has ended, except at the thread's beginning. Returns whether it did.
fn quantum_ended(state: &mut State, at: u64) -> bool {
    let late = traced(state).is_some_and(|thread| thread.tracer.time() >= EARLY);
    let sampled = SAMPLED.get().filter(|_| late);
    sampled.inspect(|sampled| sampled(at)).is_some()
}

/// Whether accesses are recorded in bursts, and only counted between them.
pub fn in_bursts() -> bool {
    engine().is_some_and(|engine| engine.config().bursts().is_some())
}

/// Whether there is an access trace, which follows values through registers.
pub fn is_traced() -> bool {
    engine().is_some_and(Engine::is_traced)
}

/// Whether translated code may count accesses wherever they fit into the quantum: see [`Engine::is_steady`].
pub fn is_steady() -> bool {
    engine().is_some_and(Engine::is_steady)
}

/// Whether the process has had one thread and shares no memory with others: loads then change the state of no line.
pub fn is_alone() -> bool {
    ALONE.load(Relaxed) && is_steady()
}

/// The process will have another thread, or share memory. Returns whether code has been made for the time before.
pub fn join_others() -> bool {
    pages::keep_apart(false);
    ALONE.swap(false, Relaxed) && is_steady()
}

fn set_engine(engine: Engine) {
    ENGINE.store(Box::into_raw(Box::new(engine)), Release);
}

/// Shows translated code the masks of the bytes written, while they are kept.
fn show_masks() {
    let at = engine().and_then(Engine::masks).unwrap_or_default();
    if patch::read64(MASKS) != at {
        patch::write64(MASKS, at);
    }
}

/// Called with the address in the cache at which a thread's quantum has ended.
static SAMPLED: OnceLock<fn(u64)> = OnceLock::new();

/// Starts recording this process with encoded settings. `program` is its file, `entry` its first instruction; `sampled`
/// is called where quanta end, with the address in the cache.
///
/// # Errors
/// A message for the user.
pub fn start(settings: &[u8], program: &[u8], entry: u64, sampled: fn(u64)) -> Result<(), String> {
    SAMPLED.get_or_init(|| sampled);
    let mut config = Config {
        frontend: "native".to_owned(),
        ..Config::default()
    };
    config
        .decode(OsStr::from_bytes(settings))
        .map_err(|error| error.to_string())?;
    if let Some(filter) = &mut config.trace {
        filter.marks_loads = true;
    }
    config.program = PathBuf::from(OsStr::from_bytes(program));
    let name = config.program.to_string_lossy().into_owned();
    reservation::prefer(LINES);
    allocators::record();
    numaloc_follow::marks::record();
    let engine =
        Engine::start(config, &name).map_err(|error| format!("cannot start recording: {error}"))?;
    pages::keep_apart(engine.is_steady());
    set_engine(engine);
    if let Some(engine) = self::engine() {
        images::record(engine, entry);
    }
    Ok(())
}

/// Writes a note for the user.
pub fn note(text: &str) {
    if let Some(engine) = engine() {
        engine.write(&Record::Note(text.to_owned()));
    }
}

/// Replaces places in the cache for which `renamed` has the program's address: other code will be there.
pub fn rename_places(renamed: impl FnMut(u64) -> Option<u64>) {
    if let Some(engine) = engine() {
        engine.rename_places(renamed);
    }
}

/// Keeps what recording knows of the program's code as it is until the result is dropped: a process that is forked
/// meanwhile finds it complete, and its locks free.
pub fn hold() -> impl Sized {
    (numaloc_follow::hold(), blocks::hold())
}

/// What begins at `pc`, if the program's code there leaves the cache before its first instruction, for [`reached`].
pub fn entry(pc: u64) -> Option<Entry> {
    let entry = Entry {
        mark: numaloc_follow::marks::at(pc).is_some(),
        place: blocks::place(pc),
    };
    (entry.mark || entry.place.is_some()).then_some(entry)
}

/// The thread is at the first instruction of a function that is a mark or allocates, or where an allocation returns.
fn reached(state: &mut State, entry: Entry) {
    let pc = state.address;
    if entry.mark
        && let Some(function) = numaloc_follow::marks::at(pc)
    {
        marks::reached(state, function, pc);
    }
    if let Some(place) = entry.place {
        blocks::reached(state, place);
    }
}

/// Whose code is at `pc`; records the functions with which the program hands work to threads.
pub fn owner(pc: u64) -> Owner {
    let owner = owners::owner(pc);
    if let (Some(engine), Some(function)) = (engine(), sharing::reached(pc)) {
        engine.write(&Record::Sharing(function));
    }
    owner
}

/// Gives the calling thread, whose state it is, a tracer.
pub fn attach(state: &mut State) {
    let Some(engine) = engine() else { return };
    let tid = state.tid;
    let mut tracer = match state.pending_thread.take() {
        Some(pending_thread) => engine.attach(*pending_thread, tid),
        None if tid == std::process::id() => engine.first_thread(tid),
        None => engine.adopt(tid),
    };
    tracer.set_counters(PageCounters::in_table(threads::counters(state)));
    state.seat.0 = MaybeUninit::new(Traced::new(*tracer));
    LIVE.fetch_add(1, Relaxed);
    state.recording = true;
    show_masks();
}

/// The tracer of a thread.
fn traced(state: &mut State) -> Option<&mut Traced> {
    // SAFETY: initialised before the flag was set.
    state
        .recording
        .then(|| unsafe { state.seat.0.assume_init_mut() })
}

/// Removes a tracer that has ended.
fn detach(state: &mut State) {
    // The tracer of a process that runs in place of its parent remains its parent's.
    if state.lent || !std::mem::replace(&mut state.recording, false) {
        return;
    }
    // SAFETY: initialised while the flag was set.
    unsafe { state.seat.0.assume_init_drop() };
    clear(state);
    if LIVE.fetch_sub(1, Relaxed) == 1
        && let Some(engine) = engine()
    {
        engine.finish();
    }
}

/// A new process will share the address space: prepares its first thread, whose state is `child`.
pub fn share(state: &mut State, child: &mut State) {
    if let Some(thread) = traced(state) {
        child.pending_thread = Some(Box::new(thread.tracer.pending_process()));
    }
}

/// The process that [`share`] or [`lend`] prepared has been created.
pub fn shared(state: &mut State) {
    if let Some(thread) = traced(state) {
        thread.tracer.creator.count_process();
    }
}

/// A child of vfork will run in place of the thread: what it creates is its own. Returns what [`take_back`] needs.
pub fn lend(state: &mut State) -> Option<Creator> {
    let creator = &mut traced(state)?.tracer.creator;
    let child = Creator::new(creator.upcoming_process());
    Some(std::mem::replace(creator, child))
}

/// The child has ended, or executes another program.
pub fn take_back(state: &mut State, creator: Option<Creator>) {
    if let (Some(thread), Some(creator)) = (traced(state), creator) {
        thread.tracer.creator = creator;
    }
}

/// Makes inline code record nothing.
fn clear(state: &mut State) {
    (state.room, state.granted) = (0, 0);
    state.seat.0 = MaybeUninit::zeroed();
}

/// Called before a system call of the program.
pub fn before_call(state: &mut State, number: i64, arguments: [u64; 6]) {
    let (Some(engine), Some(thread)) = (engine(), traced(state)) else {
        return;
    };
    match thread.before(engine, number, arguments) {
        // The call itself starts the new program: [`successor`].
        Then::Nothing | Then::Execute { .. } => {}
        Then::EndThread => detach(state),
        Then::EndProcess => end_process(state, false),
    }
}

/// Called after a system call of the program.
pub fn after_call(state: &mut State, number: i64, result: i64) {
    let (Some(engine), Some(thread)) = (engine(), traced(state)) else {
        return;
    };
    if thread.after(engine, number, result) {
        forked(state, engine);
    }
}

/// Starts recording a forked process, of which the calling thread is the only one.
fn forked(state: &mut State, engine: &'static Engine) {
    let Some(thread) = traced(state) else { return };
    match calls::forked(thread, engine) {
        Ok(engine) => set_engine(engine),
        // The child continues with an engine whose journal is the parent's, so stop it here.
        Err(_) => engine.stop(),
    }
    // The parent's tracer is not dropped: what it owns belongs to the parent's tables.
    state.recording = false;
    clear(state);
    LIVE.store(0, Relaxed);
    blocks::forget();
    attach(state);
}

/// Ends the process's threads, and the recording unless other processes use the address space. `killed`: by a signal.
/// All signals are blocked.
pub fn end_process(state: &mut State, killed: bool) {
    let Some(engine) = engine().filter(|_| state.recording) else {
        return;
    };
    ending::claim(state);
    for other in ending::stop_others(state, false) {
        // SAFETY: the thread has stopped outside its tracer.
        end_thread(unsafe { &mut *other });
    }
    if !state.lent {
        end_thread(state);
    }
    if state.lent || ending::is_shared(state) {
        return;
    }
    titles::record_title(engine);
    if killed {
        engine.break_off();
    } else {
        engine.finish();
    }
}

/// Writes the counts of a thread, which may have made more accesses than remained in its quantum.
pub fn end_thread(state: &mut State) {
    room::take(state);
    if let Some(thread) = traced(state) {
        thread.tracer.give_back();
        thread.tracer.end_overrun();
        thread.tracer.end(0);
        state.recording = false;
        LIVE.fetch_sub(1, Relaxed);
    }
    clear(state);
}

/// Settings for the recording of a program that replaces this one; `None` if nothing is recorded.
pub fn successor(state: &mut State) -> Option<Config> {
    let before = engine()?.config();
    let thread = traced(state)?;
    let path = ThreadPath::new(thread.tracer.path()).process();
    // A process that shared the address space has had no image of its own, which counts as one.
    let image = match path.as_str() == before.path {
        true => before.image + 1,
        false => 1,
    };
    Some(Config {
        image,
        path: path.as_str().to_owned(),
        clock: thread.tracer.time(),
        created_threads: thread.tracer.creator.threads(),
        created_processes: thread.tracer.creator.processes(),
        ..before.clone()
    })
}

/// Completes the journal before another program replaces this one: `next` will have a journal too, or `note` says why
/// it has none.
pub fn replaced(state: &mut State, next: Option<&Config>, note: Option<String>) {
    let (Some(engine), Some(thread)) = (engine(), traced(state)) else {
        return;
    };
    thread.tracer.flush();
    let path = ThreadPath::new(thread.tracer.path()).process();
    let own = path.as_str() == engine.config().path;
    if let Some(next) = next {
        let program = next.program.to_string_lossy().into_owned();
        engine.expect_process(next.path.clone(), next.image, next.clock, program);
    }
    if let Some(note) = note {
        engine.write(&Record::Note(note));
    }
    // Otherwise the recording goes on in those with whom the process shares the address space.
    if own {
        engine.finish();
    }
}

/// No program has replaced this one after all: `next` is not expected any more.
pub fn continued(next: &Config) {
    if let Some(engine) = engine() {
        engine.write(&Record::Withdrawn {
            path: next.path.clone(),
            image: next.image,
        });
    }
}

/// Records the access in the state: called by translated code, through [`crate::crossing`].
///
/// # Safety
/// `state` is that of the calling thread, which has left the cache for this.
pub unsafe extern "C" fn native_record_access(state: *mut State) {
    // SAFETY: as the caller promises.
    let state = unsafe { &mut *state };
    room::take(state);
    if let Some(thread) = traced(state) {
        thread.tracer.give_back();
    }
    let before = traced(state).map(|thread| thread.tracer.remaining());
    record_access(state);
    // A burst has begun or ended: the thread leaves this version of the code.
    let counting = state.counting;
    if let Some(thread) = traced(state)
        && counting != (thread.tracer.sample_threshold() == Some(0))
    {
        thread.tracer.hold_back(1);
    }
    let after = traced(state).map(|thread| thread.tracer.remaining());
    if after > before {
        // The engine checks its bound on memory at the end of a slice, and may give up the masks then.
        show_masks();
        if is_steady() {
            quantum_ended(state, state.resume);
        }
    }
    room::grant(state);
}

fn record_access(state: &mut State) {
    let (address, place) = (state.address, state.resume);
    if let Some(thread) = traced(state) {
        thread.tracer.set_place(place);
    }
    let descriptor = Descriptor::decode(state.access);
    if descriptor.kind == Kind::Turns {
        turns::record(state, 0);
        return flush(state);
    }
    if descriptor.kind == Kind::Call {
        return reached(state, Entry::decode(descriptor.size));
    }
    if descriptor.kind == Kind::Masked {
        let mask = state.selected;
        let after = Flow::decode((state.access >> 32) as u32).address(&state.fetches);
        if let Some(thread) = traced(state) {
            thread.tracer.wait_for(after);
            masked(thread, address, descriptor, mask);
            thread.tracer.wait_for(0);
        }
        return;
    }
    if matches!(descriptor.kind, Kind::Complex | Kind::Repeated) {
        // SAFETY: the fragment that is being executed owns the instruction.
        let instruction = unsafe { &*(state.instruction as *const Instruction) };
        if !state.recording {
            return;
        }
        // The tracer and the registers are different parts of the state.
        let seat = (&raw mut state.seat.0).cast::<Traced>();
        // SAFETY: as in `traced`; nothing else refers to it meanwhile.
        let thread = unsafe { &mut *seat };
        complex::record(thread, state, instruction, descriptor.owner);
        return flush(state);
    }
    let flow = Flow::decode((state.access >> 32) as u32);
    let (after, stored) = (flow.address(&state.fetches), flow.stored(&state.fetches));
    let Some(thread) = traced(state) else { return };
    if !flow.is_followed() {
        return record(thread, address, descriptor);
    }
    thread.tracer.wait_for(after);
    record(thread, address, descriptor);
    if matches!(descriptor.kind, Kind::Read | Kind::Atomic) {
        let fetch = thread.tracer.loaded(address);
        flow.load(&mut state.fetches, fetch);
    } else {
        thread.tracer.stored(address, stored);
    }
}

/// Records what is pending: translated code may count accesses without looking at it.
fn flush(state: &mut State) {
    if let Some(thread) = traced(state) {
        thread.tracer.flush_made();
    }
}

fn record(thread: &mut Traced, address: u64, descriptor: Descriptor) {
    let Descriptor { size, kind, owner } = descriptor;
    if kind == Kind::Nothing {
        return;
    }
    if kind == Kind::Announce {
        if LIVE.load(Relaxed) > 1 {
            thread.tracer.announce_at(address);
        }
        return;
    }
    if kind == Kind::Atomic {
        return atomic(thread, address, size.into(), owner);
    }
    const WORD: u64 = numaloc_trace::thread::WORD;
    let runtime = owner == Owner::Runtime;
    for at in (0..u64::from(size)).step_by(WORD as usize) {
        let (address, size) = (
            address.wrapping_add(at),
            (u64::from(size) - at).min(WORD) as u32,
        );
        let tracer = &mut thread.tracer;
        match (kind, runtime) {
            (Kind::Read, false) => tracer.access::<false, false>(address, size),
            (Kind::Read, true) => tracer.access::<false, true>(address, size),
            (Kind::Write, false) => tracer.access::<true, false>(address, size),
            (Kind::Write, true) => {
                tracer.access::<true, true>(address, size);
                tracer.store_recorded();
            }
            (_, false) => tracer.update::<false>(address, size),
            (_, true) => {
                tracer.access::<false, true>(address, size);
                tracer.access::<true, true>(address, size);
                tracer.store_recorded();
            }
        }
    }
}

/// Records the elements of a vector that are selected by `mask`.
fn masked(thread: &mut Traced, address: u64, descriptor: Descriptor, mask: u64) {
    let Descriptor { size, owner, .. } = descriptor;
    let masked = Masked::decode(size);
    let kind = match masked.stores {
        true => Kind::Write,
        false => Kind::Read,
    };
    for (offset, size) in masked.words(mask) {
        let descriptor = Descriptor {
            size: size as u16,
            kind,
            owner,
        };
        record(thread, address.wrapping_add(offset), descriptor);
    }
}

/// Records an atomic instruction that has been executed.
fn atomic(thread: &mut Traced, address: u64, size: u32, owner: Owner) {
    // The allocator waits for its lock by calling a run-time library.
    let allocator =
        owner == Owner::Allocator || owner == Owner::Runtime && address == thread.allocator_word;
    if allocator {
        thread.allocator_word = address;
        thread.tracer.count_only::<false>(address, size);
        thread.tracer.store_recorded();
        thread.tracer.count_only::<true>(address, size);
        return;
    }
    thread.tracer.hand_over(address);
    if owner == Owner::Runtime {
        thread.tracer.synchronise::<false, true>(address, size);
        thread.tracer.synchronise::<true, true>(address, size);
    } else {
        thread.tracer.synchronise::<false, false>(address, size);
        thread.tracer.synchronise::<true, false>(address, size);
    }
}
