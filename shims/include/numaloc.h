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

/* The recorder recognises this function by its symbol, and its argument by the byte that it loads first. */
__attribute__((weak, noinline)) void numaloc_mark(const char *name)
{
    (void)*(const volatile char *)name;
    if (numaloc_mark_received)
        numaloc_mark_received(name);
}

#ifdef __cplusplus
}
#endif

#endif
