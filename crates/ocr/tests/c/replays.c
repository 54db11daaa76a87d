/* Tasks that hold a counter, one after the other, and make calls of every kind. A profiling run replays them: the counter
 * and the number of tasks that they create are as if each had run once. */
#include <ocr.h>

enum { STEPS = 12 };

static ocrGuid_t child(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[])
{
    (void)paramc, (void)paramv, (void)depc;
    ((u64 *)depv[0].ptr)[1]++;
    return NULL_GUID;
}

static ocrGuid_t last(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[])
{
    u64 *counts = depv[0].ptr;
    (void)paramc, (void)paramv, (void)depc;
    ocrPrintf("%lu steps, %lu children\n", (unsigned long)counts[0], (unsigned long)counts[1]);
    ocrShutdown();
    return NULL_GUID;
}

/* Parameter: the step. Slots: the counters, the end of the previous step. */
static ocrGuid_t step(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[])
{
    ocrGuid_t template, task, event, block, label, range;
    ocrHint_t hint;
    u64 nodes = 0, workers = ocrNbWorkers();
    u64 *memory;
    (void)paramc, (void)depc;
    ((u64 *)depv[0].ptr)[0]++;
    ocrAffinityCount(AFFINITY_PD, &nodes);
    if (nodes == 0 || workers == 0)
        ocrAbort(3);
    ocrDbCreate(&block, (void **)&memory, 64, DB_PROP_NONE, NULL_HINT, NO_ALLOC);
    memory[7] = paramv[0];
    ocrDbDestroy(block);
    ocrGuidRangeCreate(&range, 4, GUID_USER_EVENT_STICKY);
    ocrGuidFromIndex(&label, range, 3);
    ocrEventCreate(&label, OCR_EVENT_STICKY_T, GUID_PROP_IS_LABELED | GUID_PROP_CHECK | EVT_PROP_TAKES_ARG);
    ocrEventSatisfy(label, NULL_GUID);
    ocrEventDestroy(label);
    ocrGuidMapDestroy(range);
    ocrHintInit(&hint, OCR_HINT_EDT_T);
    ocrEdtTemplateCreate(&template, child, 0, 1);
    ocrEdtCreate(&task, template, EDT_PARAM_DEF, NULL, EDT_PARAM_DEF, NULL, EDT_PROP_NONE, &hint, NULL);
    ocrEdtTemplateDestroy(template);
    ocrEventCreate(&event, OCR_EVENT_ONCE_T, EVT_PROP_TAKES_ARG);
    ocrAddDependence(event, task, 0, DB_MODE_EW);
    ocrEventSatisfy(event, depv[0].guid);
    ocrDbRelease(depv[0].guid);
    return NULL_GUID;
}

ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[])
{
    ocrGuid_t template, finish, task, block, first = NULL_GUID, before = NULL_GUID;
    u64 *counts;
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    ocrDbCreate(&block, (void **)&counts, 64, DB_PROP_NONE, NULL_HINT, NO_ALLOC);
    counts[0] = counts[1] = 0;
    ocrDbRelease(block);
    ocrEdtTemplateCreate(&template, step, 1, 2);
    for (u64 at = 0; at < STEPS; at++) {
        ocrGuid_t done;
        ocrEdtCreate(&task, template, EDT_PARAM_DEF, &at, EDT_PARAM_DEF, NULL, EDT_PROP_FINISH, NULL_HINT, &done);
        ocrAddDependence(block, task, 0, DB_MODE_EW);
        if (at + 1 == STEPS) {
            ocrEdtTemplateCreate(&finish, last, 0, 2);
            ocrGuid_t end;
            ocrEdtCreate(&end, finish, EDT_PARAM_DEF, NULL, EDT_PARAM_DEF, NULL, EDT_PROP_NONE, NULL_HINT, NULL);
            ocrAddDependence(done, end, 1, DB_MODE_NULL);
            ocrAddDependence(block, end, 0, DB_MODE_RO);
        }
        if (at == 0)
            first = task;
        else
            ocrAddDependence(before, task, 1, DB_MODE_NULL);
        before = done;
    }
    /* Nothing runs before all dependences are there, because an output event ends when it fires. */
    ocrAddDependence(NULL_GUID, first, 1, DB_MODE_NULL);
    return NULL_GUID;
}
