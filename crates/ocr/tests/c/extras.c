/* Names that programs use beyond the core: older spellings, VERIFY, the interface for runtimes on top, sizes of
 * blocks. mainEdt has no parameters. */
#include <extensions/ocr-affinity.h>
#include <extensions/ocr-db-info.h>
#include <extensions/ocr-legacy.h>
#include <extensions/ocr-runtime-itf.h>
#include <ocr-version.h>
#include <ocr.h>

#define TASKS 50

static ocrGuid_t inner(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    /* A task starts with empty storage, whatever the waiting task has stored. */
    ocrAssert(ocrGuidIsNull(ocrElsUserGet(0)));
    ocrElsUserSet(0, currentEdtUserGet());
    ocrAssert(IS_GUID_EQUAL(ocrElsUserGet(0), currentEdtUserGet()));
    return NULL_GUID;
}

static ocrGuid_t outer(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    ocrGuid_t template, edt, output, me = currentEdtUserGet(), mine;
    (void)paramc, (void)depc;
    mine.guid = (intptr_t)paramv[0] + 1;
    ocrAssert(IS_GUID_NULL(ocrElsUserGet(7)));
    ocrElsUserSet(7, mine);
    ocrElsUserSet(255, me);
    ocrEventCreate(&output, OCR_EVENT_STICKY_T, EVT_PROP_NONE);
    ocrEdtTemplateCreate(&template, inner, 0, 0);
    ocrEdtCreate(&edt, template, 0, NULL, 0, NULL, EDT_PROP_OEVT_VALID, PICK_1_1(NULL_HINT, NULL_GUID), &output);
    ocrWait(output);
    ocrEventDestroy(output);
    ocrAssert(ocrGuidIsEq(ocrElsUserGet(7), mine));
    ocrAssert(ocrGuidIsEq(ocrElsUserGet(255), me) && ocrGuidIsEq(currentEdtUserGet(), me));
    ocrAssert(!ocrGuidIsNull(ocrCurrentWorkerGuid()));
    ocrGuid_t got = NULL_GUID;
    ocrAssert(ocrCurrentEdtGet(&got) == 0 && ocrGuidIsEq(got, me));
    u64 size = 0;
    ocrAssert(ocrDbGetSize(depv[0].guid, &size) == 0 && size == 24);
    return NULL_GUID;
}

static ocrGuid_t last(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    VERIFY(1 + 1 == 2, "arithmetic holds, workers: %" PRIu64 "\n", ocrNbWorkers());
    VERIFY(1 + 1 == 3, "and is told apart\n");
    ocrShutdown();
    return NULL_GUID;
}

static ocrGuid_t all(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    ocrGuid_t template, edt, block;
    ocrHint_t lazy;
    u64 value = 0, size;
    void *memory;
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    ocrHintInit(&lazy, OCR_HINT_DB_T);
    ocrAssert(ocrHintSetValue(&lazy, OCR_HINT_DB_LAZY, 5) == 0);
    ocrAssert(ocrHintGetValue(&lazy, OCR_HINT_DB_LAZY, &value) == 0 && value == 5);
    ocrAssert(ocrHintSetValue(&lazy, OCR_HINT_DB_PROP_END, 5) == OCR_EINVAL);
    ocrDbCreate(&block, &memory, 24, DB_PROP_NONE, &lazy, NO_ALLOC);
    ocrDbRelease(block);
    ocrAssert(ocrDbGetSize(block, &size) == OCR_EACCES);
    ocrEdtTemplateCreate(&template, outer, 1, 1);
    for (u64 i = 0; i < TASKS; i++) {
        ocrEdtCreate(&edt, template, EDT_PARAM_DEF, &i, EDT_PARAM_DEF, NULL, EDT_PROP_NONE, NULL_HINT, NULL);
        ocrAddDependence(block, edt, 0, DB_MODE_RO);
    }
    return NULL_GUID;
}

ocrGuid_t mainEdt() {
    ocrGuid_t template, finish, first, end, done, copy;
    ocrEdtTemplateCreate(&template, all, 0, 1);
    ocrEdtCreate(&first, template, 0, NULL, 1, NULL, EDT_PROP_FINISH, NULL_HINT, &done);
    ocrEdtTemplateCreate(&finish, last, 0, 1);
    ocrEdtCreate(&end, finish, 0, NULL, 1, &done, EDT_PROP_NONE, NULL_HINT, NULL);
    GUID_ASSIGN_VALUE(copy, first);
    ocrAssert(GUID_SIZE(copy) == 64 && !IS_GUID_ERROR(copy) && !IS_GUID_UNINITIALIZED(copy));
    ocrAddDependence(NULL_GUID, copy, 0, DB_MODE_NULL);
    return NULL_GUID;
}
