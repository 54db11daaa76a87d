/*
 * What a task costs: a million empty tasks in four shapes, all inside one FINISH task.
 *
 *   overhead CASE [TASKS [STEPS]]      prints: CASE TASKS ns-per-task peak-bytes-per-task
 *
 *   chain        each task creates the next
 *   independent  one task creates them all
 *   warm         as independent, the second time in this process: memory of tasks is used again, so no page faults;
 *                each task makes STEPS (0) dependent multiplications, a nanosecond or so each
 *   tree         a binary creation tree
 *   fork-join    a binary tree of tasks; two events and a join task per fork
 *   live         as independent, each task with an output event and a slot nobody satisfies until
 *                all exist: memory per live task (one worker shows it best)
 *
 * No data is touched: communication and page patterns are those of the runtime itself.
 */
#include <ocr.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static u64 resident(void) {
    unsigned long size = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL || fscanf(f, "%lu %lu", &size, &pages) != 2) pages = 0;
    if (f != NULL) fclose(f);
    return (u64)pages * (u64)sysconf(_SC_PAGESIZE);
}

static double started;
static u64 resident_before, resident_all;
static const char *name;
static u64 tasks, steps;
static ocrGuid_t template_guid, join_template, gate;

static ocrGuid_t report(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    double ns = now() - started;
    struct rusage usage;
    u64 peak;
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    getrusage(RUSAGE_SELF, &usage);
    peak = (u64)usage.ru_maxrss * 1024;
    if (resident_all > 0) peak = resident_all;
    PRINTF("%s %" PRIu64 " %.1f %.1f\n", name, tasks, ns / (double)tasks,
           ((double)peak - (double)resident_before) / (double)tasks);
    ocrShutdown();
    return NULL_GUID;
}

static ocrGuid_t nothing(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    return NULL_GUID;
}

static ocrGuid_t multiply(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    volatile u64 result;
    u64 value = 1;
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    for (u64 i = 0; i < steps; i++) {
        value = value * 6364136223846793005u + 1;
        __asm__ volatile("" : "+r"(value)); /* no closed form */
    }
    result = value;
    (void)result;
    return NULL_GUID;
}

/* Creates all tasks; the second one is measured. */
static ocrGuid_t round_of_tasks(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    ocrGuid_t edt;
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    started = now();
    for (u64 i = 0; i < tasks; i++)
        ocrEdtCreate(&edt, template_guid, EDT_PARAM_DEF, NULL, EDT_PARAM_DEF, NULL, EDT_PROP_NONE, NULL_HINT,
                     NULL);
    return NULL_GUID;
}

static ocrGuid_t chain(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 left = paramv[0] - 1;
    ocrGuid_t edt;
    (void)paramc, (void)depc, (void)depv;
    if (left > 0)
        ocrEdtCreate(&edt, template_guid, EDT_PARAM_DEF, &left, EDT_PARAM_DEF, NULL, EDT_PROP_NONE,
                     NULL_HINT, NULL);
    return NULL_GUID;
}

static ocrGuid_t tree(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 depth = paramv[0] - 1;
    ocrGuid_t edt;
    (void)paramc, (void)depc, (void)depv;
    for (int i = 0; i < 2 && depth > 0; i++)
        ocrEdtCreate(&edt, template_guid, EDT_PARAM_DEF, &depth, EDT_PARAM_DEF, NULL, EDT_PROP_NONE,
                     NULL_HINT, NULL);
    return NULL_GUID;
}

static ocrGuid_t join(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    ocrGuid_t done = {(intptr_t)paramv[0]};
    (void)paramc, (void)depc, (void)depv;
    if (!ocrGuidIsNull(done)) ocrEventSatisfy(done, NULL_GUID);
    return NULL_GUID;
}

static ocrGuid_t fork_join(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 depth = paramv[0] - 1;
    ocrGuid_t done = {(intptr_t)paramv[1]};
    (void)paramc, (void)depc, (void)depv;
    if (depth == 0) {
        if (!ocrGuidIsNull(done)) ocrEventSatisfy(done, NULL_GUID);
        return NULL_GUID;
    }
    ocrGuid_t edt, events[2], joiner;
    ocrEventCreate(&events[0], OCR_EVENT_ONCE_T, EVT_PROP_NONE);
    ocrEventCreate(&events[1], OCR_EVENT_ONCE_T, EVT_PROP_NONE);
    ocrEdtCreate(&joiner, join_template, EDT_PARAM_DEF, &paramv[1], EDT_PARAM_DEF, events,
                 EDT_PROP_NONE, NULL_HINT, NULL);
    for (int i = 0; i < 2; i++) {
        u64 params[2] = {depth, (u64)events[i].guid};
        ocrEdtCreate(&edt, template_guid, EDT_PARAM_DEF, params, EDT_PARAM_DEF, NULL, EDT_PROP_NONE,
                     NULL_HINT, NULL);
    }
    return NULL_GUID;
}

static ocrGuid_t driver(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    ocrGuid_t edt;
    u64 depth = 0;
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    while ((2ull << depth) - 1 < tasks) depth++;
    started = now();
    if (strcmp(name, "chain") == 0) {
        ocrEdtTemplateCreate(&template_guid, chain, 1, 0);
        ocrEdtCreate(&edt, template_guid, EDT_PARAM_DEF, &tasks, EDT_PARAM_DEF, NULL, EDT_PROP_NONE,
                     NULL_HINT, NULL);
    } else if (strcmp(name, "independent") == 0) {
        ocrEdtTemplateCreate(&template_guid, nothing, 0, 0);
        for (u64 i = 0; i < tasks; i++)
            ocrEdtCreate(&edt, template_guid, EDT_PARAM_DEF, NULL, EDT_PARAM_DEF, NULL, EDT_PROP_NONE,
                         NULL_HINT, NULL);
    } else if (strcmp(name, "warm") == 0) {
        ocrGuid_t round, first, second, done;
        ocrEdtTemplateCreate(&template_guid, multiply, 0, 0);
        ocrEdtTemplateCreate(&round, round_of_tasks, 0, 1);
        ocrEdtCreate(&first, round, 0, NULL, 1, NULL, EDT_PROP_FINISH, NULL_HINT, &done);
        ocrEdtCreate(&second, round, 0, NULL, 1, &done, EDT_PROP_NONE, NULL_HINT, NULL);
        ocrAddDependence(NULL_GUID, first, 0, DB_MODE_NULL);
    } else if (strcmp(name, "live") == 0) {
        ocrGuid_t output;
        ocrEdtTemplateCreate(&template_guid, nothing, 0, 1);
        for (u64 i = 0; i < tasks; i++) {
            ocrEdtCreate(&edt, template_guid, EDT_PARAM_DEF, NULL, EDT_PARAM_DEF, NULL, EDT_PROP_NONE,
                         NULL_HINT, &output);
            ocrAddDependence(gate, edt, 0, DB_MODE_NULL);
        }
        resident_all = resident();
        ocrEventSatisfy(gate, NULL_GUID);
    } else if (strcmp(name, "tree") == 0) {
        u64 levels = depth + 1;
        tasks = (1ull << levels) - 1;
        ocrEdtTemplateCreate(&template_guid, tree, 1, 0);
        ocrEdtCreate(&edt, template_guid, EDT_PARAM_DEF, &levels, EDT_PARAM_DEF, NULL, EDT_PROP_NONE,
                     NULL_HINT, NULL);
    } else if (strcmp(name, "fork-join") == 0) {
        u64 params[2] = {depth + 1, 0};
        tasks = ((1ull << (depth + 1)) - 1) + ((1ull << depth) - 1);
        ocrEdtTemplateCreate(&template_guid, fork_join, 2, 0);
        ocrEdtTemplateCreate(&join_template, join, 1, 2);
        ocrEdtCreate(&edt, template_guid, EDT_PARAM_DEF, params, EDT_PARAM_DEF, NULL, EDT_PROP_NONE,
                     NULL_HINT, NULL);
    } else {
        fprintf(stderr, "unknown case %s; expected chain, independent, warm, tree, fork-join or live\n", name);
        ocrAbort(2);
    }
    return NULL_GUID;
}

ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    ocrGuid_t edt, template, done;
    (void)paramc, (void)paramv, (void)depc;
    name = ocrGetArgc(depv[0].ptr) > 1 ? strdup(ocrGetArgv(depv[0].ptr, 1)) : "chain";
    tasks = ocrGetArgc(depv[0].ptr) > 2 ? strtoull(ocrGetArgv(depv[0].ptr, 2), NULL, 10) : 1000000;
    steps = ocrGetArgc(depv[0].ptr) > 3 ? strtoull(ocrGetArgv(depv[0].ptr, 3), NULL, 10) : 0;
    resident_before = resident();
    ocrEventCreate(&gate, OCR_EVENT_STICKY_T, EVT_PROP_NONE);
    ocrEdtTemplateCreate(&template, driver, 0, 1);
    ocrEdtCreate(&edt, template, 0, NULL, 1, NULL, EDT_PROP_FINISH, NULL_HINT, &done);
    ocrGuid_t reporter, report_template;
    ocrEdtTemplateCreate(&report_template, report, 0, 1);
    ocrEdtCreate(&reporter, report_template, 0, NULL, 1, &done, EDT_PROP_NONE, NULL_HINT, NULL);
    ocrAddDependence(NULL_GUID, edt, 0, DB_MODE_NULL);
    return NULL_GUID;
}
