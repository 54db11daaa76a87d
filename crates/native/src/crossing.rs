//! Transitions between engine and code cache, and the code addresses at which a signal needs special handling:
//! assembly.
//!
//! Inside the cache all registers are the program's, including fs; gs always holds the address of the thread's
//! [`State`].

use std::arch::global_asm;
use std::mem::offset_of;

use crate::record::descriptor::Light;
use crate::record::light;
use crate::state::{Start, State, exit};

// The assembly uses some fields at fixed offsets; the others are Rust's.
#[expect(improper_ctypes, reason = "states are passed on, not looked into")]
unsafe extern "C" {
    /// Runs the program from `code` until it leaves the cache; [`State::exit`] gives the reason.
    pub fn native_enter(state: *mut State, code: u64);
    static native_enter_begin: u8;
    static native_enter_end: u8;
    static native_leave: u8;
    static native_exit: u8;
    static native_missed_jump: u8;
    static native_missed_return: u8;
    static native_call_begin: u8;
    static native_call_instruction: u8;
    static native_call_interrupted: u8;
    static native_copy_instruction: u8;
    static native_copy_fault: u8;
    static native_restorer: u8;
    static native_record: u8;
    static native_record_returning: u8;
    static native_record_end: u8;
    static native_record_plain: u8;
    static native_plain_returning: u8;
    static native_plain_end: u8;
    static native_light_returning: u8;
    static native_light_end: u8;
    static native_light_load: u8;
    static native_light_store: u8;
    static native_light_update: u8;
    static native_light_announce: u8;
    static native_light_atomic: u8;
    static native_light_allocator: u8;
    static native_light_runtime_load: u8;
    static native_light_runtime_store: u8;
    static native_light_runtime_update: u8;
    static native_light_runtime_atomic: u8;
    static native_light_repeated: u8;
    static native_light_masked: u8;
    static native_light_call: u8;
    /// Makes a system call of the program: number and six arguments. Returns [`INTERRUPTED`] if a signal was pending
    /// before the call.
    pub fn native_call(arguments: *const [u64; 7]) -> i64;
    /// Copies bytes; returns the number of bytes not copied because of a fault.
    pub fn native_copy(to: *mut u8, from: *const u8, len: usize) -> usize;
    /// `clone` or `clone3`, by number and six arguments. The child continues in `start` with `child`; if that is null,
    /// it returns here, as after a fork.
    pub fn native_clone(
        number: i64,
        arguments: *const [u64; 6],
        child: *mut State,
        start: Start,
    ) -> i64;
}

/// Result of [`native_call`] if a signal must be delivered first; not a result of the kernel.
pub const INTERRUPTED: i64 = -512;

/// Code addresses in the assembly.
pub struct Places {
    /// Between the check for signals and the cache: the program's state is still complete.
    pub entering: std::ops::Range<u64>,
    /// Leaves for the engine with the state in [`State`].
    pub leave: u64,
    /// Target of direct exits.
    pub exit: u64,
    /// Target of indirect jumps and calls to unknown addresses.
    pub missed_jump: u64,
    /// Target of returns to unknown addresses.
    pub missed_return: u64,
    /// The system call has not been made yet.
    pub calling: std::ops::RangeInclusive<u64>,
    /// The instruction after the system call.
    pub called: u64,
    /// Where an interrupted system call is abandoned.
    pub interrupted: u64,
    /// The copying instruction.
    pub copy: u64,
    /// Target of its faults.
    pub copy_fault: u64,
    /// Return address of our signal handlers.
    pub restorer: u64,
    /// Target of the code that records an access.
    pub record: u64,
    /// Target of the code that records an access without changing the upper parts of vector registers.
    pub record_plain: u64,
    /// After recording: from the check for signals to the cache. Each can begin again anywhere.
    pub returning: [std::ops::Range<u64>; 2],
    /// The same after recording with most of the program's state in place.
    pub light_returning: std::ops::Range<u64>,
    /// Targets of the code that records an access of each [`Light`] kind.
    pub light: [u64; Light::COUNT],
}

/// Returns the [`Places`].
pub fn places() -> Places {
    let at = |place: *const u8| place as u64;
    Places {
        entering: at(&raw const native_enter_begin)..at(&raw const native_enter_end),
        leave: at(&raw const native_leave),
        exit: at(&raw const native_exit),
        missed_jump: at(&raw const native_missed_jump),
        missed_return: at(&raw const native_missed_return),
        calling: at(&raw const native_call_begin)..=at(&raw const native_call_instruction),
        called: at(&raw const native_call_interrupted) - 1,
        record: at(&raw const native_record),
        record_plain: at(&raw const native_record_plain),
        returning: [
            at(&raw const native_record_returning)..at(&raw const native_record_end),
            at(&raw const native_plain_returning)..at(&raw const native_plain_end),
        ],
        light_returning: at(&raw const native_light_returning)..at(&raw const native_light_end),
        light: Light::ALL.map(|light| at(light_entry(light))),
        interrupted: at(&raw const native_call_interrupted),
        copy: at(&raw const native_copy_instruction),
        copy_fault: at(&raw const native_copy_fault),
        restorer: at(&raw const native_restorer),
    }
}

fn light_entry(light: Light) -> *const u8 {
    match light {
        Light::Load => &raw const native_light_load,
        Light::Store => &raw const native_light_store,
        Light::Update => &raw const native_light_update,
        Light::Announce => &raw const native_light_announce,
        Light::Atomic => &raw const native_light_atomic,
        Light::Allocator => &raw const native_light_allocator,
        Light::RuntimeLoad => &raw const native_light_runtime_load,
        Light::RuntimeStore => &raw const native_light_runtime_store,
        Light::RuntimeUpdate => &raw const native_light_runtime_update,
        Light::RuntimeAtomic => &raw const native_light_runtime_atomic,
        Light::Repeated => &raw const native_light_repeated,
        Light::Masked => &raw const native_light_masked,
        Light::Call => &raw const native_light_call,
    }
}

global_asm!(
    r#"
    .text
    .globl native_enter, native_enter_begin, native_enter_end, native_leave, native_exit, native_missed_jump, native_missed_return
    .globl native_call, native_call_begin, native_call_instruction, native_call_interrupted
    .globl native_record, native_record_returning, native_record_end, native_light_returning, native_light_end
    .globl native_record_plain, native_plain_returning, native_plain_end
    .globl native_light_load, native_light_store, native_light_update
    .globl native_light_announce, native_light_atomic, native_light_allocator
    .globl native_light_runtime_load, native_light_runtime_store
    .globl native_light_runtime_update, native_light_runtime_atomic
    .globl native_light_repeated, native_light_masked, native_light_call
    .globl native_copy, native_copy_instruction, native_copy_fault, native_restorer, native_clone

# Registers that functions may change, and the stack pointer.
.macro store_changing
    mov gs:[0], rax
    mov gs:[8], rcx
    mov gs:[16], rdx
    mov gs:[32], rsp
    mov gs:[48], rsi
    mov gs:[56], rdi
    mov gs:[64], r8
    mov gs:[72], r9
    mov gs:[80], r10
    mov gs:[88], r11
.endm

# Except for the stack pointer.
.macro load_changing
    mov rax, gs:[0]
    mov rcx, gs:[8]
    mov rdx, gs:[16]
    mov rsi, gs:[48]
    mov rdi, gs:[56]
    mov r8, gs:[64]
    mov r9, gs:[72]
    mov r10, gs:[80]
    mov r11, gs:[88]
.endm

# Registers that functions keep.
.macro store_kept
    mov gs:[24], rbx
    mov gs:[40], rbp
    mov gs:[96], r12
    mov gs:[104], r13
    mov gs:[112], r14
    mov gs:[120], r15
.endm

.macro load_kept
    mov rbx, gs:[24]
    mov rbp, gs:[40]
    mov r12, gs:[96]
    mov r13, gs:[104]
    mov r14, gs:[112]
    mov r15, gs:[120]
.endm

# The part of vector registers that code for all processors changes.
.macro store_vectors
    stmxcsr gs:[{mxcsr}]
    movaps gs:[{vectors} + 0], xmm0
    movaps gs:[{vectors} + 16], xmm1
    movaps gs:[{vectors} + 32], xmm2
    movaps gs:[{vectors} + 48], xmm3
    movaps gs:[{vectors} + 64], xmm4
    movaps gs:[{vectors} + 80], xmm5
    movaps gs:[{vectors} + 96], xmm6
    movaps gs:[{vectors} + 112], xmm7
    movaps gs:[{vectors} + 128], xmm8
    movaps gs:[{vectors} + 144], xmm9
    movaps gs:[{vectors} + 160], xmm10
    movaps gs:[{vectors} + 176], xmm11
    movaps gs:[{vectors} + 192], xmm12
    movaps gs:[{vectors} + 208], xmm13
    movaps gs:[{vectors} + 224], xmm14
    movaps gs:[{vectors} + 240], xmm15
.endm

.macro load_vectors
    ldmxcsr gs:[{mxcsr}]
    movaps xmm0, gs:[{vectors} + 0]
    movaps xmm1, gs:[{vectors} + 16]
    movaps xmm2, gs:[{vectors} + 32]
    movaps xmm3, gs:[{vectors} + 48]
    movaps xmm4, gs:[{vectors} + 64]
    movaps xmm5, gs:[{vectors} + 80]
    movaps xmm6, gs:[{vectors} + 96]
    movaps xmm7, gs:[{vectors} + 112]
    movaps xmm8, gs:[{vectors} + 128]
    movaps xmm9, gs:[{vectors} + 144]
    movaps xmm10, gs:[{vectors} + 160]
    movaps xmm11, gs:[{vectors} + 176]
    movaps xmm12, gs:[{vectors} + 192]
    movaps xmm13, gs:[{vectors} + 208]
    movaps xmm14, gs:[{vectors} + 224]
    movaps xmm15, gs:[{vectors} + 240]
.endm

# Stores the program's state; the instruction `save` stores the extended part.
.macro store_program save
    store_changing
    store_kept
    mov rsp, gs:[{engine_rsp}]
    pushfq
    pop qword ptr gs:[{rflags}]
    mov eax, gs:[{xmask}]
    xor edx, edx
    \save gs:[{xstate}]
    rdfsbase rax
    mov gs:[{guest_fs}], rax
.endm

# Loads the program's state and continues at the address in a field.
.macro continue_program field
    mov eax, gs:[{xmask}]
    xor edx, edx
    xrstor64 gs:[{xstate}]
    continue_general \field
.endm

# The same without the extended state.
.macro continue_general field
    mov rax, gs:[{guest_fs}]
    wrfsbase rax
    load_changing
    load_kept
    push qword ptr gs:[{rflags}]
    popfq
    mov rsp, gs:[32]
    jmp qword ptr gs:[\field]
.endm

# Flags and thread-local storage as compiled code expects them; leaves one word on the stack.
.macro begin_engine
    mov rax, gs:[{engine_fs}]
    wrfsbase rax
    push 0x202
    popfq
    push 0x1f80
    ldmxcsr [rsp]
.endm

# Calls a function that changes no other register: see record/light.rs.
.macro light name, function, done=native_light_done
\name:
    store_changing
    lahf
    seto al
    mov gs:[{light_flags}], rax
    mov rsp, gs:[{engine_rsp}]
    push rax
    mov rdi, gs:[{this}]
    call \function
    jmp \done
.endm

.macro end_light
    mov rax, gs:[{light_flags}]
    add al, 127
    sahf
    load_changing
    mov rsp, gs:[32]
.endm

native_enter:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    mov gs:[{engine_rsp}], rsp
    mov gs:[{entry}], rsi
native_enter_begin:
    mov rsp, gs:[{engine_rsp}]
    cmp qword ptr gs:[{pending}], 0
    jne native_leave
    continue_program {entry}
native_enter_end:
    ud2

native_leave:
    mov qword ptr gs:[{exit}], {signal}
    jmp 2f

native_missed_return:
    mov qword ptr gs:[{exit}], {missed_return}
    jmp 4f
native_missed_jump:
    mov qword ptr gs:[{exit}], {missed_jump}
4:
    mov gs:[{pc}], rcx
    mov rcx, gs:[{slots}]
native_exit:
    store_program xsave64
2:
    mov rsp, gs:[{engine_rsp}]
    begin_engine
    pop rax
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret

native_record:
    store_program xsaveopt64
    begin_engine
    mov rdi, gs:[{this}]
    call {record}
native_record_returning:
    mov rsp, gs:[{engine_rsp}]
    cmp qword ptr gs:[{pending}], 0
    je 6f
    mov byte ptr gs:[{stepping}], {to_point}
    or qword ptr gs:[{rflags}], 0x100
6:
    continue_program {resume}
native_record_end:
    ud2

native_record_plain:
    store_changing
    store_kept
    mov rsp, gs:[{engine_rsp}]
    pushfq
    pop qword ptr gs:[{rflags}]
    store_vectors
    rdfsbase rax
    mov gs:[{guest_fs}], rax
    begin_engine
    mov rdi, gs:[{this}]
    call {record}
native_plain_returning:
    mov rsp, gs:[{engine_rsp}]
    cmp qword ptr gs:[{pending}], 0
    je 6f
    mov byte ptr gs:[{stepping}], {to_point}
    or qword ptr gs:[{rflags}], 0x100
6:
    load_vectors
    continue_general {resume}
native_plain_end:
    ud2

    light native_light_load, {light_load}
    light native_light_store, {light_store}
    light native_light_update, {light_update}
    light native_light_announce, {light_announce}
    light native_light_atomic, {light_atomic}
    light native_light_allocator, {light_allocator}
    light native_light_runtime_load, {light_runtime_load}
    light native_light_runtime_store, {light_runtime_store}
    light native_light_runtime_update, {light_runtime_update}
    light native_light_runtime_atomic, {light_runtime_atomic}
    light native_light_repeated, {light_repeated}
    light native_light_masked, {light_masked}
    light native_light_call, {light_call}, native_light_called
native_light_called:
    test al, al
    jnz native_light_returning
    end_light
    jmp native_record
native_light_done:
    test al, al
    jz 7f
native_light_returning:
    cmp qword ptr gs:[{pending}], 0
    jne 8f
    end_light
    jmp qword ptr gs:[{resume}]
native_light_end:
    ud2
8:
    mov qword ptr gs:[{access}], {nothing}
7:
    end_light
    jmp native_record_plain

native_call:
    mov rax, [rdi]
    mov rsi, [rdi+16]
    mov rdx, [rdi+24]
    mov r10, [rdi+32]
    mov r8, [rdi+40]
    mov r9, [rdi+48]
    mov rdi, [rdi+8]
native_call_begin:
    cmp qword ptr gs:[{pending}], 0
    jne native_call_interrupted
native_call_instruction:
    syscall
    ret
native_call_interrupted:
    mov rax, {interrupted}
    ret

native_copy:
    mov rcx, rdx
native_copy_instruction:
    rep movsb
native_copy_fault:
    mov rax, rcx
    ret

native_restorer:
    mov eax, 15
    syscall

native_clone:
    push r12
    push r13
    mov r12, rdx
    mov r13, rcx
    mov rax, rdi
    mov rdi, [rsi]
    mov rdx, [rsi+16]
    mov r10, [rsi+24]
    mov r8, [rsi+32]
    mov r9, [rsi+40]
    mov rsi, [rsi+8]
    syscall
    test rax, rax
    jnz 3f
    test r12, r12
    jz 3f
    xor ebp, ebp
    and rsp, -16
    mov rdi, r12
    call r13
    ud2
3:
    pop r13
    pop r12
    ret
"#,
    engine_rsp = const offset_of!(State, engine_rsp),
    entry = const offset_of!(State, entry),
    pending = const offset_of!(State, pending),
    xmask = const offset_of!(State, xmask),
    xstate = const offset_of!(State, xstate),
    guest_fs = const offset_of!(State, guest_fs),
    engine_fs = const offset_of!(State, engine_fs),
    rflags = const offset_of!(State, rflags),
    exit = const offset_of!(State, exit),
    pc = const offset_of!(State, pc),
    slots = const offset_of!(State, slots),
    this = const offset_of!(State, this),
    stepping = const offset_of!(State, stepping),
    to_point = const crate::state::Stepping::ToPoint as u8,
    resume = const offset_of!(State, resume),
    record = sym crate::record::native_record_access,
    mxcsr = const offset_of!(State, mxcsr),
    vectors = const offset_of!(State, vectors),
    light_flags = const offset_of!(State, light_flags),
    access = const offset_of!(State, access),
    nothing = const crate::record::descriptor::NOTHING,
    light_load = sym light::load,
    light_store = sym light::store,
    light_update = sym light::update,
    light_announce = sym light::announce,
    light_atomic = sym light::atomic,
    light_allocator = sym light::allocator,
    light_runtime_load = sym light::runtime_load,
    light_runtime_store = sym light::runtime_store,
    light_runtime_update = sym light::runtime_update,
    light_runtime_atomic = sym light::runtime_atomic,
    light_repeated = sym light::repeated,
    light_masked = sym light::masked,
    light_call = sym light::call,
    signal = const exit::SIGNAL,
    missed_jump = const exit::MISSED_JUMP,
    missed_return = const exit::MISSED_RETURN,
    interrupted = const INTERRUPTED,
);
const _: () = assert!(offset_of!(State, regs) == 0);
