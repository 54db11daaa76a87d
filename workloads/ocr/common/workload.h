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

static inline ocrGuid_t guid_of(u64 word) {
    ocrGuid_t guid = {(intptr_t)word};
    return guid;
}
#endif
