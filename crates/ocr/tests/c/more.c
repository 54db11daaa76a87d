/* Maps of labels, kinds of GUIDs, copies between data blocks, allocation inside data blocks. */
#include <ocr.h>
#include <unistd.h>

enum { ROWS = 3, COLUMNS = 5, WORDS = 100 };

static ocrGuid_t cell(ocrGuid_t start, u64 skip, s64 *params, s64 *tuple)
{
    if (tuple[0] < 0 || tuple[0] >= params[0] || tuple[1] < 0 || tuple[1] >= params[1])
        return NULL_GUID;
    start.guid += (intptr_t)skip * (tuple[0] * params[1] + tuple[1]);
    return start;
}

static ocrGuidUserKind kind_of(ocrGuid_t guid)
{
    ocrGuidUserKind kind = (ocrGuidUserKind)-1;
    ocrAssert(ocrGetGuidKind(&kind, guid) == 0);
    return kind;
}

/* Both events of the map were created, and the copy is done: words 10 to 19 are those of the source from 5 on. */
static ocrGuid_t check(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[])
{
    const u64 *copied = depv[2].ptr;
    (void)paramc, (void)paramv, (void)depc;
    for (u64 at = 0; at < WORDS; at++)
        ocrAssert(copied[at] == (at >= 10 && at < 20 ? 1000 + at - 5 : at));
    ocrPrintf("copied\n");
    ocrShutdown();
    return NULL_GUID;
}


static ocrGuid_t all(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[])
{
    s64 sides[2] = {ROWS, COLUMNS}, tuple[2];
    ocrGuid_t map, labels[ROWS * COLUMNS], again;
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    ocrAssert(ocrGuidMapCreate(&map, 2, NULL, sides, ROWS * COLUMNS, GUID_USER_EVENT_STICKY) == OCR_EINVAL);
    ocrAssert(ocrGuidMapCreate(&map, 2, cell, sides, ROWS * COLUMNS, GUID_USER_EVENT_STICKY) == 0);
    sides[0] = 0; /* the map has a copy */
    for (int at = 0; at < ROWS * COLUMNS; at++) {
        tuple[0] = at / COLUMNS, tuple[1] = at % COLUMNS;
        ocrAssert(ocrGuidFromLabel(&labels[at], map, tuple) == 0);
        ocrAssert(ocrGuidFromIndex(&again, map, (u64)at) == 0 && ocrGuidIsEq(labels[at], again));
        ocrAssert(kind_of(labels[at]) == GUID_USER_NONE);
    }
    tuple[0] = ROWS;
    ocrAssert(ocrGuidFromLabel(&again, map, tuple) == 0 && ocrGuidIsNull(again));

    ocrGuid_t template, last, from, to, done, latch;
    u64 *source, *destination;
    void *memory;
    ocrDbCreate(&from, (void **)&source, WORDS * sizeof *source, DB_PROP_NONE, NULL_HINT, NO_ALLOC);
    ocrDbCreate(&to, (void **)&destination, WORDS * sizeof *destination, DB_PROP_NONE, NULL_HINT, NO_ALLOC);
    for (u64 at = 0; at < WORDS; at++)
        source[at] = 1000 + at, destination[at] = at;
    ocrAssert(ocrDbMalloc(to, 8, &memory) == OCR_EINVAL && ocrDbFree(to, destination) == OCR_EINVAL);
    ocrAssert(ocrDbMallocOffset(to, 8, source) == OCR_EINVAL && ocrDbFreeOffset(to, 0) == OCR_EINVAL);
    ocrDbRelease(from);
    ocrDbRelease(to);
    ocrEdtTemplateCreate(&template, check, 0, 3);
    ocrEdtCreate(&last, template, EDT_PARAM_DEF, NULL, EDT_PARAM_DEF, NULL, EDT_PROP_NONE, NULL_HINT, NULL);
    ocrAssert(kind_of(from) == GUID_USER_DB && kind_of(last) == GUID_USER_EDT);
    ocrAssert(kind_of(template) == GUID_USER_EDT_TEMPLATE && kind_of(NULL_GUID) == GUID_USER_NONE);
    ocrEventCreate(&latch, OCR_EVENT_LATCH_T, EVT_PROP_NONE);
    ocrAssert(kind_of(latch) == GUID_USER_EVENT_LATCH);
    ocrEventDestroy(latch);
    ocrAssert(kind_of(latch) == GUID_USER_NONE);

    const u64 word = sizeof(u64);
    ocrAssert(ocrDbCopy(to, 0, to, 0, word, 0, NULL) == OCR_EPERM);
    ocrAssert(ocrDbCopy(to, 91 * word, from, 0, 10 * word, 0, NULL) == OCR_ENOMEM);
    ocrAssert(ocrDbCopy(to, 0, from, ~(u64)0, 10 * word, 0, NULL) == OCR_ENOMEM);
    ocrAssert(ocrDbCopy(to, 0, latch, 0, word, 0, NULL) == OCR_EINVAL);
    ocrAssert(ocrDbCopy(to, 10 * word, from, 5 * word, 10 * word, 0, &done) == 0);
    usleep(50000); /* With two workers the copy is done before the dependence on it is added. */
    ocrAssert(ocrAddDependence(done, last, 2, DB_MODE_RO) == 0);

    /* A dependence on a label, and the event created under it afterwards. */
    ocrAddDependence(labels[7], last, 0, DB_MODE_NULL);
    ocrAddDependence(labels[14], last, 1, DB_MODE_NULL);
    for (int at = 7; at <= 14; at += 7) {
        ocrAssert(ocrEventCreate(&labels[at], OCR_EVENT_STICKY_T, GUID_PROP_CHECK) == 0);
        ocrAssert(kind_of(labels[at]) == GUID_USER_EVENT_STICKY);
        ocrEventSatisfy(labels[at], NULL_GUID);
    }
    ocrGuid_t gone = map;
    ocrAssert(ocrGuidMapDestroy(map) == 0 && ocrGuidFromLabel(&again, gone, tuple) == OCR_EINVAL);
    return NULL_GUID;
}

ocrGuid_t mainEdt()
{
    ocrGuid_t template, edt;
    ocrEdtTemplateCreate(&template, all, 0, 0);
    ocrEdtCreate(&edt, template, EDT_PARAM_DEF, NULL, EDT_PARAM_DEF, NULL, EDT_PROP_NONE, NULL_HINT, NULL);
    return NULL_GUID;
}
