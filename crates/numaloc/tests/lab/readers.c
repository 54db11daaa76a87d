/* Four tasks one after the other, each with a data block that it reads eight times. The program begins on the machine's
 * last PU, and may use all: whoever wants its thread on the first node has to bind it. */
#define _GNU_SOURCE
#include <sched.h>
#include <unistd.h>

#include <ocr.h>

enum { TASKS = 4, WORDS = 1 << 16, PASSES = 8 };

__attribute__((constructor)) static void begin_on_the_last_pu(void)
{
    cpu_set_t all, last;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&last);
    CPU_SET(sysconf(_SC_NPROCESSORS_ONLN) - 1, &last);
    sched_setaffinity(0, sizeof last, &last);
    sched_setaffinity(0, sizeof all, &all);
}

static ocrGuid_t reader(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[])
{
    const volatile u64 *words = depv[0].ptr;
    u64 left = paramv[0], sum = 0;
    for (int pass = 0; pass < PASSES; pass++)
        for (int at = 0; at < WORDS; at++)
            sum += words[at];
    if (sum != (u64)PASSES * WORDS)
        ocrAbort(3);
    if (left == 1) {
        ocrPrintf("all tasks read right\n");
        ocrShutdown();
        return NULL_GUID;
    }
    ocrGuid_t template, next;
    left--;
    ocrEdtTemplateCreate(&template, reader, 1, 1);
    ocrEdtCreate(&next, template, EDT_PARAM_DEF, &left, EDT_PARAM_DEF, NULL, EDT_PROP_NONE, NULL_HINT, NULL);
    ocrAddDependence(depv[0].guid, next, 0, DB_MODE_RO);
    (void)paramc, (void)depc;
    return NULL_GUID;
}

ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[])
{
    u64 *words, left = TASKS;
    ocrGuid_t block, template, first;
    ocrDbCreate(&block, (void **)&words, WORDS * sizeof *words, DB_PROP_NONE, NULL_HINT, NO_ALLOC);
    for (int at = 0; at < WORDS; at++)
        words[at] = 1;
    ocrDbRelease(block);
    ocrEdtTemplateCreate(&template, reader, 1, 1);
    ocrEdtCreate(&first, template, EDT_PARAM_DEF, &left, EDT_PARAM_DEF, NULL, EDT_PROP_NONE, NULL_HINT, NULL);
    ocrAddDependence(block, first, 0, DB_MODE_RO);
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    return NULL_GUID;
}
