/* Errors that checked mode has to report: misuse CASE */
#include <ocr.h>
#include <string.h>

static const char *what;

static ocrGuid_t culprit(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    ocrGuid_t event;
    (void)paramc, (void)paramv, (void)depc;
    if (strcmp(what, "stale") == 0) {
        ocrEventCreate(&event, OCR_EVENT_ONCE_T, EVT_PROP_NONE);
        ocrEventSatisfy(event, NULL_GUID);
        ocrEventSatisfy(event, NULL_GUID);
        PRINTF("0x%lx\n", (unsigned long)event.guid);
    } else if (strcmp(what, "slot") == 0) {
        ocrEventCreate(&event, OCR_EVENT_STICKY_T, EVT_PROP_NONE);
        ocrAddDependence(depv[0].guid, event, 3, DB_MODE_RO);
        PRINTF("0x%lx\n", (unsigned long)event.guid);
    } else if (strcmp(what, "crash") == 0) {
        PRINTF("0x%lx\n", (unsigned long)depv[0].guid.guid);
        fflush(stdout);
        *(volatile char *)(uintptr_t)(8 * depc) = 1;
    } else if (strcmp(what, "deep") == 0) {
        volatile char frame[1 << 16];
        frame[0] = (char)depc;
        culprit(paramc, paramv, depc + (u32)frame[0], depv);
        frame[1] = frame[0];
    }
    ocrShutdown();
    return NULL_GUID;
}

ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    ocrGuid_t template, edt, block;
    void *memory;
    (void)paramc, (void)paramv, (void)depc;
    what = strdup(ocrGetArgv(depv[0].ptr, 1));
    ocrDbCreate(&block, &memory, 100, DB_PROP_NONE, NULL_HINT, NO_ALLOC);
    ocrDbRelease(block);
    ocrEdtTemplateCreate(&template, culprit, 0, 1);
    ocrEdtCreate(&edt, template, EDT_PARAM_DEF, NULL, EDT_PARAM_DEF, NULL, EDT_PROP_NONE, NULL_HINT, NULL);
    ocrAddDependence(block, edt, 0, DB_MODE_RO);
    return NULL_GUID;
}
