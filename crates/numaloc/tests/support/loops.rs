//! Hand-written loops whose accesses follow by arithmetic.

/// Every way of reaching memory that general registers have, in loops of known length; no C library, no start-up code.
pub const LOOPS: &str = r#"
.globl _start
.bss
.balign 4096
array:  .skip 4 * 4096
.text
_start: mov $array, %edi
        xor %ecx, %ecx
1:      mov %rcx, (%rdi,%rcx,8)         # 1,000 stores: 512 on page 0, 488 on page 1
        inc %rcx
        cmp $1000, %rcx
        jb 1b
        xor %ecx, %ecx
2:      movzbl 8192(%rdi,%rcx), %eax    # 3,000 loads on page 2
        inc %rcx
        cmp $3000, %rcx
        jb 2b
        xor %ecx, %ecx
3:      addl $1, 12288(%rdi,%rcx)       # 200 loads and stores on page 3
        add $16, %rcx
        cmp $3200, %rcx
        jb 3b
        mov $100, %ecx
        lea 4096(%rdi), %rsi
        lea 8192(%rdi), %rdi
        rep movsb                       # 100 bytes, 13 words, from page 1 to page 2
        mov $array, %edi
        mov $50, %ecx
4:      mov 60(%rdi), %rax              # 50 loads across lines of page 0
        mov 4092(%rdi), %rax            # 50 loads from page 0 on to page 1, which begin on page 0
        dec %ecx
        jnz 4b
        mov $10, %ecx
5:      lock xadd %rax, 4096(%rdi)      # 10 loads and stores on page 1
        cmpxchg %rax, 8192(%rdi)        # 10 on page 2: it always stores
        xchg %rax, 12288(%rdi)          # 10 on page 3
        dec %ecx
        jnz 5b
        mov $7, %ecx
6:      push %rcx                       # 7 x (3 stores, 3 loads) on the stack
        call 7f
        pop %rcx
        dec %ecx
        jnz 6b
        lea 12293(%rdi), %rdi
        mov $100, %ecx
        rep stosb                       # bytes 5 to 104 of page 3: words 0 to 13
        mov $array, %esi
        mov $array+4096, %edi
        mov $20, %ecx
        rep movsq                       # 20 words from page 0 to page 1
        mov $array+8192+79, %edi
        mov $80, %ecx
        mov $0xff, %al                  # which is not there
        std
        repne scasb                     # 80 bytes, 10 words of page 2, downward
        cld
        movdqa array, %xmm0             # 2 words of page 0
        mov $60, %eax
        xor %edi, %edi
        syscall
7:      push array(%rip)                # and 7 loads on page 0
        pop %rax
        ret
"#;

/// What [`LOOPS`] does to each page of its array, and to the stack, by arithmetic.
pub const EXPECTED: [(u64, u64); 4] = [
    (50 + 50 + 7 + 20 + 2, 512),
    (13 + 10, 488 + 10 + 20),
    (3000 + 10 + 10, 13 + 10),
    (200 + 10, 200 + 10 + 14),
];
pub const EXPECTED_STACK: (u64, u64) = (21, 21);
