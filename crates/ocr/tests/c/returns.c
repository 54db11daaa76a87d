/* A task that returns an event, a block in a slot of mode NULL, and parameters that nobody takes. */
#include <ocr.h>

static ocrGuid_t satisfier(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    ocrGuid_t event = {(intptr_t)paramv[0]}, block;
    u64 *memory;
    (void)paramc, (void)depc, (void)depv;
    ocrDbCreate(&block, (void **)&memory, 64, DB_PROP_NONE, NULL_HINT, NO_ALLOC);
    memory[0] = 42;
    ocrDbRelease(block);
    ocrEventSatisfy(event, block);
    return NULL_GUID;
}

static ocrGuid_t returner(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    ocrGuid_t event, template, edt;
    u64 param;
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    ocrEventCreate(&event, OCR_EVENT_STICKY_T, EVT_PROP_TAKES_ARG);
    param = (u64)event.guid;
    ocrEdtTemplateCreate(&template, satisfier, 1, 0);
    ocrEdtCreate(&edt, template, EDT_PARAM_DEF, &param, EDT_PARAM_DEF, NULL, EDT_PROP_NONE, NULL_HINT, NULL);
    return event;
}

static ocrGuid_t last(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)paramv, (void)depc;
    ocrAssert(((u64 *)depv[0].ptr)[0] == 42);
    ocrAssert(ocrGuidIsNull(depv[1].guid) && depv[1].ptr == NULL);
    ocrPrintf("returned\n");
    ocrShutdown();
    return NULL_GUID;
}

ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    ocrGuid_t template, edt, output, end, block;
    void *memory;
    u64 param = 0;
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    ocrEdtTemplateCreate(&template, last, 0, 2);
    ocrAssert(ocrEdtCreate(&end, template, 0, &param, 2, NULL, EDT_PROP_NONE, NULL_HINT, NULL) == OCR_EINVAL);
    ocrAssert(ocrEdtCreate(&end, template, EDT_PARAM_DEF, &param, 2, NULL, EDT_PROP_NONE, NULL_HINT, NULL) == OCR_EINVAL);
    ocrEdtCreate(&end, template, 0, NULL, 2, NULL, EDT_PROP_NONE, NULL_HINT, NULL);
    ocrDbCreate(&block, &memory, 64, DB_PROP_NONE, NULL_HINT, NO_ALLOC);
    ocrDbRelease(block);
    ocrAddDependence(block, end, 1, DB_MODE_NULL);
    ocrEdtTemplateCreate(&template, returner, 0, 1);
    ocrEdtCreate(&edt, template, 0, NULL, 1, NULL, EDT_PROP_NONE, NULL_HINT, &output);
    ocrAddDependence(output, end, 0, DB_MODE_RW);
    ocrAddDependence(NULL_GUID, edt, 0, DB_MODE_NULL);
    return NULL_GUID;
}
