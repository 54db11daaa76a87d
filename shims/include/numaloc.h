/* numaloc.h: marks places of a program, by which `numaloc run` recognises its phases.
 *
 *     #include <numaloc.h>
 *     ...
 *     numaloc_mark("solve");      a C string; its first 63 bytes are the name
 *
 * Nothing needs to be linked: without numaloc a call does nothing. A place that every run passes in the same order
 * is a good mark: the beginning of a step, of a time step, of a stage.
 */
#ifndef NUMALOC_H
#define NUMALOC_H

#ifdef __cplusplus
extern "C" {
#endif

/* Defined by numaloc's libraries; null without them. */
extern void numaloc_mark_received(const char *name) __attribute__((weak));

/* A probe (USDT) numaloc:mark with the name as its argument: `numaloc run` counts marks by it in static programs, stripped
 * ones too, and perf, bpftrace and gdb know it. It is an instruction of five bytes that does nothing. */
#if defined(__x86_64__) && defined(__ELF__)
#define NUMALOC_PROBE(name)                                                                                            \
    __asm__ __volatile__("990: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n"                                                  \
                         ".pushsection .note.stapsdt,\"?\",\"note\"\n"                                                \
                         ".balign 4\n"                                                                               \
                         ".4byte 992f-991f, 994f-993f, 3\n"                                                          \
                         "991: .asciz \"stapsdt\"\n"                                                                 \
                         "992: .balign 4\n"                                                                          \
                         "993: .8byte 990b\n"                                                                        \
                         ".8byte _.stapsdt.base\n"                                                                   \
                         ".8byte 0\n"                                                                                \
                         ".asciz \"numaloc\"\n"                                                                      \
                         ".asciz \"mark\"\n"                                                                         \
                         ".asciz \"8@%%rdi\"\n"                                                                      \
                         "994: .balign 4\n"                                                                          \
                         ".popsection\n"                                                                             \
                         ".ifndef _.stapsdt.base\n"                                                                  \
                         ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"                     \
                         ".weak _.stapsdt.base\n"                                                                    \
                         ".hidden _.stapsdt.base\n"                                                                  \
                         "_.stapsdt.base: .space 1\n"                                                                \
                         ".size _.stapsdt.base, 1\n"                                                                 \
                         ".popsection\n"                                                                             \
                         ".endif\n"                                                                                  \
                         :                                                                                           \
                         : "D"(name)                                                                                 \
                         : "memory")
#else
#define NUMALOC_PROBE(name) (void)0
#endif

/* The recorder recognises this function by its symbol, and its argument by the byte that it loads first. */
__attribute__((weak, noinline)) void numaloc_mark(const char *name)
{
    (void)*(const volatile char *)name;
    NUMALOC_PROBE(name);
    if (numaloc_mark_received)
        numaloc_mark_received(name);
}

#ifdef __cplusplus
}
#endif

#endif
