/* What the OCR workloads share: arguments, hints, a clock. */
#ifndef WORKLOAD_H
#define WORKLOAD_H
#include <ocr.h>
#include <time.h>

static inline u64 argument(ocrEdtDep_t *arguments, u64 at, u64 otherwise) {
    return ocrGetArgc(arguments->ptr) > at ? strtoull(ocrGetArgv(arguments->ptr, at), NULL, 10)
                                           : otherwise;
}

static inline double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The hint that puts part `at` of `of` equal parts on its node: blocks of parts in order. */
static inline ocrHint_t *near_part(ocrHint_t *hint, ocrHintType_t type, u64 at, u64 of) {
    ocrGuid_t affinity;
    u64 nodes;
    ocrAffinityCount(AFFINITY_PD, &nodes);
    ocrAffinityGetAt(AFFINITY_PD, at * nodes / of, &affinity);
    ocrHintInit(hint, type);
    ocrHintSetValue(hint, type == OCR_HINT_EDT_T ? OCR_HINT_EDT_AFFINITY : OCR_HINT_DB_AFFINITY,
                    ocrAffinityToHintValue(affinity));
    return hint;
}

/* A task of this function near part `at` of `of`, its slots still open; of 0: no hint. */
static inline ocrGuid_t task_near(ocrEdt_t function, const char *name, u32 paramc, u64 *paramv, u32 depc,
                                  u16 properties, ocrGuid_t *output, u64 at, u64 of) {
    ocrGuid_t template_guid, edt;
    ocrHint_t hint;
    ocrEdtTemplateCreate_internal(&template_guid, function, paramc, depc, name);
    ocrEdtCreate(&edt, template_guid, EDT_PARAM_DEF, paramv, EDT_PARAM_DEF, NULL, properties,
                 of > 0 ? near_part(&hint, OCR_HINT_EDT_T, at, of) : NULL_HINT, output);
    ocrEdtTemplateDestroy(template_guid);
    return edt;
}
#define TASK(function, paramc, paramv, depc, properties, output, at, of)                         \
    task_near(function, #function, paramc, paramv, depc, properties, output, at, of)

/* A data block under label `label` of a range, near part `at` of `of`. */
static inline void *block_near(ocrGuid_t range, u64 label, u64 bytes, u64 at, u64 of) {
    ocrGuid_t guid;
    ocrHint_t hint;
    void *memory = NULL;
    ocrGuidFromIndex(&guid, range, label);
    ocrDbCreate(&guid, &memory, bytes, GUID_PROP_CHECK, near_part(&hint, OCR_HINT_DB_T, at, of), NO_ALLOC);
    return memory;
}

/* The block under that label into a slot; it may be created later. */
static inline void needs(ocrGuid_t range, u64 label, ocrGuid_t edt, u32 slot, ocrDbAccessMode_t mode) {
    ocrGuid_t guid;
    ocrGuidFromIndex(&guid, range, label);
    ocrAddDependence(guid, edt, slot, mode);
}

/* A FINISH task with three parameters that starts when `after` is satisfied; gives the event that it satisfies when
 * all that it creates is done. */
static inline ocrGuid_t phase_after(ocrEdt_t phase, const char *name, u64 params[3], ocrGuid_t after) {
    ocrGuid_t template_guid, edt, output;
    ocrEdtTemplateCreate_internal(&template_guid, phase, 3, 1, name);
    ocrEventCreate(&output, OCR_EVENT_STICKY_T, EVT_PROP_NONE);
    ocrEdtCreate(&edt, template_guid, EDT_PARAM_DEF, params, EDT_PARAM_DEF, NULL,
                 EDT_PROP_FINISH | EDT_PROP_OEVT_VALID, NULL_HINT, &output);
    ocrEdtTemplateDestroy(template_guid);
    ocrAddDependence(after, edt, 0, DB_MODE_NULL);
    return output;
}
#define PHASE(function, params, after) phase_after(function, #function, params, after)

static inline ocrGuid_t guid_of(u64 word) {
    ocrGuid_t guid = {(intptr_t)word};
    return guid;
}
#endif
