/* Three tasks at a time, of which one holds a large block, and a task that waits for all three and holds it again. A run
 * takes at least as long as both take that hold it, whichever of the three begins first. */
#include <ocr.h>

enum { TASKS = 3, BYTES = 1 << 20 };

static ocrGuid_t part(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[])
{
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    return NULL_GUID;
}

static ocrGuid_t join(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[])
{
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    ocrShutdown();
    return NULL_GUID;
}

ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[])
{
    int largest = atoi(ocrGetArgv(depv[0].ptr, 1));
    ocrGuid_t template, last, block;
    void *memory;
    (void)paramc, (void)paramv, (void)depc;
    ocrDbCreate(&block, &memory, BYTES, DB_PROP_NONE, NULL_HINT, NO_ALLOC);
    ocrDbRelease(block);
    ocrEdtTemplateCreate(&template, join, 0, TASKS + 1);
    ocrEdtCreate(&last, template, EDT_PARAM_DEF, NULL, EDT_PARAM_DEF, NULL, EDT_PROP_NONE, NULL_HINT, NULL);
    ocrAddDependence(block, last, TASKS, DB_MODE_RO);
    ocrEdtTemplateCreate(&template, part, 0, 1);
    ocrGuid_t parts[TASKS], done[TASKS];
    for (int at = 0; at < TASKS; at++) {
        ocrEdtCreate(&parts[at], template, EDT_PARAM_DEF, NULL, EDT_PARAM_DEF, NULL, EDT_PROP_NONE, NULL_HINT, &done[at]);
        ocrAddDependence(done[at], last, at, DB_MODE_NULL);
    }
    for (int at = 0; at < TASKS; at++)
        ocrAddDependence(at == largest ? block : NULL_GUID, parts[at], 0, DB_MODE_RO);
    return NULL_GUID;
}
