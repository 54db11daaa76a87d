//! Filters of system calls (seccomp). The kernel's would apply to the engine's calls too, so the engine applies them to
//! those of the program ([`crate::filters`]). A program that runs natively gets them from the kernel ([`for_native`]).

use super::error;
use crate::filters::bpf::{self, Data, Instruction};
use crate::filters::{self, Filter};
use crate::state::State;
use crate::{blocks, guest, signals, sys};

const STRICT: u64 = 1;
const FILTER: u64 = 2;

const SYS_SET_STRICT: u64 = 0;
const SYS_SET_FILTER: u64 = 1;

const ALL_THREADS: u64 = 1;
/// Flags that change nothing here: logging, speculation, and how a listener waits.
const PLAIN: u64 = 2 | 4;

/// `seccomp_data::arch`.
const ARCHITECTURE: u32 = 0xc000_003e;

// Results, after that which kills the process: the most severe first, as signed numbers.
const KILL_THREAD: u32 = 0;
const TRAP: u32 = 0x0003_0000;
const ERRNO: u32 = 0x0005_0000;
const LISTENER: u32 = 0x7fc0_0000;
const TRACER: u32 = 0x7ff0_0000;
const LOG: u32 = 0x7ffc_0000;
const ALLOW: u32 = 0x7fff_0000;

/// Applies the thread's filters to a call. The result of a call that is not made; the thread may end here.
pub fn before(state: &mut State, number: i64, a: [u64; 6]) -> Option<i64> {
    let filters = state.filters?;
    let mut data: Data = [0; 16];
    (data[0], data[1]) = (number as u32, ARCHITECTURE);
    let words = [state.pc].into_iter().chain(a);
    for (pair, word) in data[2..].chunks_exact_mut(2).zip(words) {
        (pair[0], pair[1]) = (word as u32, (word >> 32) as u32);
    }
    let mut result = ALLOW;
    let mut strict = false;
    for filter in filters.all() {
        let found = bpf::run(&filter.program, &data);
        let severity = |result: u32| (result & 0xffff_0000) as i32;
        if severity(found) < severity(result) {
            (result, strict) = (found, filter.strict);
        }
    }
    let value = result & 0xffff;
    match result & 0xffff_0000 {
        ALLOW | LOG => None,
        ERRNO => Some(error(value.min(4095) as i32)),
        TRAP => {
            trap(state, number, value);
            Some(number)
        }
        // No tracer and no listener.
        TRACER | LISTENER => Some(error(libc::ENOSYS)),
        _ if strict => signals::deliver::die(state, libc::SIGKILL),
        // To kill the thread or the process, and what is unknown.
        _ => signals::deliver::die(state, libc::SIGSYS),
    }
}

/// Sends the signal for a call that was not made.
fn trap(state: &State, number: i64, value: u32) {
    let mut info = [0_u32; 32];
    // Signal, value and code; the address, number and architecture.
    (info[0], info[1], info[2]) = (libc::SIGSYS as u32, value, 1);
    (info[4], info[5]) = (state.pc as u32, (state.pc >> 32) as u32);
    (info[6], info[7]) = (number as u32, ARCHITECTURE);
    // SAFETY: no preconditions; the structure lives.
    unsafe {
        let pid = sys::call(libc::SYS_getpid, [0; 6]) as u64;
        let tid = sys::call(libc::SYS_gettid, [0; 6]) as u64;
        let call = [pid, tid, libc::SIGSYS as u64, info.as_ptr() as u64, 0, 0];
        sys::call(libc::SYS_rt_tgsigqueueinfo, call);
    }
}

/// `seccomp`.
pub fn seccomp(state: &mut State, a: [u64; 6]) -> i64 {
    let [operation, flags, argument, ..] = a;
    match operation {
        SYS_SET_STRICT if flags == 0 && argument == 0 => strict(state),
        SYS_SET_FILTER => add(state, flags, argument),
        SYS_SET_STRICT => error(libc::EINVAL),
        // What the kernel knows of actions and structures.
        _ => super::plain(libc::SYS_seccomp, a),
    }
}

/// Whether a call of `seccomp` adds a filter that asks a listener: its filter would see the engine's calls.
pub fn asks_for_listener(a: [u64; 6]) -> bool {
    const NEW_LISTENER: u64 = 8;
    a[0] == SYS_SET_FILTER && a[1] & NEW_LISTENER != 0
}

/// `prctl(PR_SET_SECCOMP)`.
pub fn set(state: &mut State, a: [u64; 6]) -> i64 {
    match a[1] {
        STRICT => strict(state),
        FILTER => add(state, 0, a[2]),
        _ => error(libc::EINVAL),
    }
}

/// `prctl(PR_GET_SECCOMP)`.
pub fn mode(state: &State) -> i64 {
    state.filters.map_or(0, |_| FILTER as i64)
}

fn strict(state: &mut State) -> i64 {
    const EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let instruction = |code, yes, no, k| Instruction { code, yes, no, k };
    let allowed = [
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_exit,
        libc::SYS_rt_sigreturn,
    ];
    let mut program = vec![instruction(0x20, 0, 0, 0)];
    for (at, number) in allowed.into_iter().enumerate() {
        program.push(instruction(
            EQUAL,
            (allowed.len() - at) as u8,
            0,
            number as u32,
        ));
    }
    program.push(instruction(RETURN, 0, 0, KILL_THREAD));
    program.push(instruction(RETURN, 0, 0, ALLOW));
    state.filters = Some(Filter::after(state.filters, program, true));
    0
}

fn add(state: &mut State, flags: u64, at: u64) -> i64 {
    if flags & !(ALL_THREADS | PLAIN) != 0 {
        return error(libc::EINVAL);
    }
    // struct sock_fprog: a length of 16 bits, and a pointer.
    let Some([length, program]) = guest::read::<[u64; 2]>(at) else {
        return error(libc::EFAULT);
    };
    let length = usize::from(length as u16);
    if length == 0 || length > bpf::MOST {
        return error(libc::EINVAL);
    }
    if !may_filter() {
        return error(libc::EACCES);
    }
    let Some(bytes) = guest::bytes(program, length * size_of::<Instruction>()) else {
        return error(libc::EFAULT);
    };
    let program = decoded(&bytes);
    if !bpf::is_valid(&program) {
        return error(libc::EINVAL);
    }
    let before = state.filters;
    let filter = Some(Filter::after(before, program, false));
    state.filters = filter;
    if flags & ALL_THREADS != 0 {
        for other in blocks::all() {
            // SAFETY: blocks are never unmapped; the thread reads the pointer before its next call.
            unsafe { (&raw mut (*other.cast_mut()).filters).write_volatile(filter) };
        }
    }
    0
}

/// Whether the kernel would let the thread filter its calls.
fn may_filter() -> bool {
    const SYS_ADMIN: u32 = 21;
    let get = [libc::PR_GET_NO_NEW_PRIVS as u64, 0, 0, 0, 0, 0];
    // SAFETY: reads a flag.
    unsafe { sys::call(libc::SYS_prctl, get) == 1 || super::limits::is_capable(SYS_ADMIN) }
}

fn decoded(bytes: &[u8]) -> Vec<Instruction> {
    let instructions = bytes.chunks_exact(size_of::<Instruction>());
    let decode = |b: &[u8]| Instruction {
        code: u16::from_le_bytes([b[0], b[1]]),
        yes: b[2],
        no: b[3],
        k: u32::from_le_bytes([b[4], b[5], b[6], b[7]]),
    };
    instructions.map(decode).collect()
}

fn encoded(program: &[Instruction]) -> Vec<u8> {
    let encode = |i: &Instruction| {
        let ([a, b], [c, d, e, f]) = (i.code.to_le_bytes(), i.k.to_le_bytes());
        [a, b, i.yes, i.no, c, d, e, f]
    };
    program.iter().flat_map(encode).collect()
}

/// The thread's filters as text, for the engine of an executed program.
pub fn passed(state: &State) -> String {
    let Some(filters) = state.filters else {
        return String::new();
    };
    let mut all: Vec<String> = filters
        .all()
        .map(|filter| {
            let bytes = encoded(&filter.program);
            let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
            format!(
                "{}{}",
                if filter.strict { "s" } else { "f" },
                digits.collect::<String>()
            )
        })
        .collect();
    all.reverse();
    all.join(",")
}

/// Takes over what the engine that executed this program had [`passed`].
pub fn take(text: &[u8]) {
    let text = std::str::from_utf8(text).unwrap_or_default();
    let mut last = None;
    for part in text.split(',').filter(|part| part.len() > 1) {
        let bytes: Option<Vec<u8>> = part.as_bytes()[1..]
            .chunks_exact(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        let program = decoded(&bytes.unwrap_or_default());
        last = Some(Filter::after(last, program, part.starts_with('s')));
    }
    if let Some(filters) = last {
        filters::begin_with(filters);
    }
}

/// Gives the kernel the filters: the next program runs natively. They apply to the engine from then on.
pub fn for_native(filters: Option<&'static Filter>) {
    let mut all: Vec<&Filter> = filters.into_iter().flat_map(Filter::all).collect();
    all.reverse();
    for filter in all {
        let program = encoded(&filter.program);
        let request = [filter.program.len() as u64, program.as_ptr() as u64];
        let set = [SYS_SET_FILTER, 0, request.as_ptr() as u64, 0, 0, 0];
        // SAFETY: the program lives; what it forbids is what the next program may not do.
        unsafe { sys::call(libc::SYS_seccomp, set) };
    }
}
