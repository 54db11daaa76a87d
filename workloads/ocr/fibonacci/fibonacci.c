/*
 * Fibonacci numbers by brute force: fib(n) creates fib(n-1), fib(n-2) and a task that adds.
 *
 *   fibonacci [N]              default 20
 *
 * Pattern to show: a recursion. Tasks are tiny, data blocks of 8 bytes go from child to parent; all
 * calls of the recursion have the same path up to repetition, so classes by generalised paths do
 * not say where a task belongs, and `numaloc tasks analyse` must refuse to place them.
 */
#include <ocr.h>

/* params: template of fib, template of add, event for the result, n */
static ocrGuid_t add(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    ocrGuid_t result = {(intptr_t)paramv[0]};
    (void)paramc, (void)depc;
    *(u64 *)depv[0].ptr += *(u64 *)depv[1].ptr;
    ocrDbDestroy(depv[1].guid);
    ocrDbRelease(depv[0].guid);
    ocrEventSatisfy(result, depv[0].guid);
    return NULL_GUID;
}

static ocrGuid_t fib(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    ocrGuid_t fib_template = {(intptr_t)paramv[0]}, add_template = {(intptr_t)paramv[1]};
    ocrGuid_t result = {(intptr_t)paramv[2]}, parts[2], edt;
    u64 n = paramv[3];
    (void)paramc, (void)depc, (void)depv;
    if (n < 2) {
        ocrGuid_t block;
        u64 *value;
        ocrDbCreate(&block, (void **)&value, sizeof *value, DB_PROP_NONE, NULL_HINT, NO_ALLOC);
        *value = n;
        ocrDbRelease(block);
        ocrEventSatisfy(result, block);
        return NULL_GUID;
    }
    for (int i = 0; i < 2; i++) ocrEventCreate(&parts[i], OCR_EVENT_ONCE_T, EVT_PROP_TAKES_ARG);
    ocrEdtCreate(&edt, add_template, EDT_PARAM_DEF, &paramv[2], EDT_PARAM_DEF, parts, EDT_PROP_NONE,
                 NULL_HINT, NULL);
    for (u64 i = 0; i < 2; i++) {
        u64 params[4] = {paramv[0], paramv[1], (u64)parts[i].guid, n - 1 - i};
        ocrEdtCreate(&edt, fib_template, EDT_PARAM_DEF, params, EDT_PARAM_DEF, NULL, EDT_PROP_NONE,
                     NULL_HINT, NULL);
    }
    return NULL_GUID;
}

static ocrGuid_t report(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 n = paramv[0], a = 0, b = 1;
    (void)paramc, (void)depc;
    for (u64 i = 0; i < n; i++) {
        u64 next = a + b;
        a = b;
        b = next;
    }
    PRINTF("fib(%" PRIu64 ") = %" PRIu64 "\n", n, *(u64 *)depv[0].ptr);
    ocrAssert(*(u64 *)depv[0].ptr == a);
    ocrDbDestroy(depv[0].guid);
    ocrShutdown();
    return NULL_GUID;
}

ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 n = ocrGetArgc(depv[0].ptr) > 1 ? strtoull(ocrGetArgv(depv[0].ptr, 1), NULL, 10) : 20;
    ocrGuid_t fib_template, add_template, report_template, result, edt;
    (void)paramc, (void)paramv, (void)depc;
    ocrEdtTemplateCreate(&fib_template, fib, 4, 0);
    ocrEdtTemplateCreate(&add_template, add, 1, 2);
    ocrEdtTemplateCreate(&report_template, report, 1, 1);
    ocrEventCreate(&result, OCR_EVENT_ONCE_T, EVT_PROP_TAKES_ARG);
    ocrEdtCreate(&edt, report_template, EDT_PARAM_DEF, &n, EDT_PARAM_DEF, &result, EDT_PROP_NONE,
                 NULL_HINT, NULL);
    u64 params[4] = {(u64)fib_template.guid, (u64)add_template.guid, (u64)result.guid, n};
    ocrEdtCreate(&edt, fib_template, EDT_PARAM_DEF, params, EDT_PARAM_DEF, NULL, EDT_PROP_NONE,
                 NULL_HINT, NULL);
    return NULL_GUID;
}
