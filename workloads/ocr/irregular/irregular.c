/*
 * Damped iteration on an irregular graph cut into parts of different sizes: irregular [NODES-PER-PART [PARTS [ITERATIONS]]]
 *
 * Part p has 1 to 4 times NODES-PER-PART nodes and reads 1 to 5 other parts, which ones a hash says. Old and new values lie in two
 * blocks, whose roles change each iteration. Hints put parts on nodes in blocks, which for a graph without order is only a
 * guess. Checked against the same arithmetic without tasks.
 *
 * Pattern: irregular; who reads whom does not follow the numbers of the parts.
 */
#include "../common/workload.h"
#include <string.h>

enum { MOST = 5 };
static u64 unit, parts, iterations;
static ocrGuid_t range;

static u64 hash(u64 x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}
static u64 size_of(u64 part) { return unit * (1 + hash(part + 1) % 4); }
static u32 degree(u64 part) { return 1 + (u32)(hash(part + 1000) % MOST); }
static u64 partner(u64 part, u32 at) { return hash(part * MOST + at + 77) % parts; }

static void update(u64 *out, const u64 *own, u64 n, const u64 **other, const u64 *sizes, u32 count) {
    for (u64 i = 0; i < n; i++) {
        u64 sum = 3 * own[i];
        for (u32 k = 0; k < count; k++) sum += other[k][hash(i) % sizes[k]];
        out[i] = hash(sum);
    }
}

/* params: part, iterations left. Slot 0: new, 1: own old, then the others' old. */
static ocrGuid_t updateEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    const u64 *other[MOST];
    u64 sizes[MOST];
    (void)paramc;
    for (u32 k = 2; k < depc; k++) other[k - 2] = depv[k].ptr, sizes[k - 2] = size_of(partner(paramv[0], k - 2));
    update(depv[0].ptr, depv[1].ptr, size_of(paramv[0]), other, sizes, depc - 2);
    return NULL_GUID;
}

static ocrGuid_t phaseEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 old = paramv[0];
    (void)paramc, (void)depc, (void)depv;
    for (u64 part = 0; part < parts; part++) {
        ocrGuid_t edt = TASK(updateEdt, 1, &part, 2 + degree(part), EDT_PROP_NONE, NULL, part, parts);
        needs(range, 2 * part + !old, edt, 0, DB_MODE_RW);
        needs(range, 2 * part + old, edt, 1, DB_MODE_RO);
        for (u32 k = 0; k < degree(part); k++) needs(range, 2 * partner(part, k) + old, edt, 2 + k, DB_MODE_RO);
    }
    return NULL_GUID;
}

static ocrGuid_t checkEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 *value[2][parts], wrong = 0;
    (void)paramc, (void)paramv;
    for (u64 p = 0; p < parts; p++)
        for (u64 half = 0; half < 2; half++) {
            value[half][p] = malloc(size_of(p) * sizeof(u64));
            for (u64 i = 0; i < size_of(p); i++) value[half][p][i] = hash(p << 32 | i);
        }
    for (u64 t = 0; t < 2 * iterations; t++)
        for (u64 p = 0; p < parts; p++) {
            const u64 *other[MOST];
            u64 sizes[MOST];
            for (u32 k = 0; k < degree(p); k++) other[k] = value[t % 2][partner(p, k)], sizes[k] = size_of(partner(p, k));
            update(value[1 - t % 2][p], value[t % 2][p], size_of(p), other, sizes, degree(p));
        }
    for (u64 p = 0; p < depc; p++) wrong += memcmp(depv[p].ptr, value[0][p], size_of(p) * sizeof(u64)) != 0;
    for (u64 p = 0; p < parts; p++) free(value[0][p]), free(value[1][p]);
    PRINTF("irregular %" PRIu64 " %" PRIu64 " %" PRIu64 ": %s\n", unit, parts, iterations, wrong ? "WRONG" : "correct");
    if (wrong) ocrAbort(1);
    ocrShutdown();
    return NULL_GUID;
}

static ocrGuid_t loopEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)depc, (void)depv;
    if (paramv[0] == 0) {
        ocrGuid_t edt = TASK(checkEdt, 0, NULL, (u32)parts, EDT_PROP_NONE, NULL, 0, 0);
        for (u64 p = 0; p < parts; p++) needs(range, 2 * p, edt, (u32)p, DB_MODE_RO);
        return NULL_GUID;
    }
    u64 there[3] = {0, 0, 0}, back[3] = {1, 0, 0}, left = paramv[0] - 1;
    ocrGuid_t done = PHASE(phaseEdt, there, NULL_GUID);
    done = PHASE(phaseEdt, back, done);
    ocrGuid_t next = TASK(loopEdt, 1, &left, 1, EDT_PROP_NONE, NULL, 0, 0);
    ocrAddDependence(done, next, 0, DB_MODE_NULL);
    return NULL_GUID;
}

static ocrGuid_t initEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 part = paramv[0];
    (void)paramc, (void)depc, (void)depv;
    for (u64 half = 0; half < 2; half++) {
        u64 *value = block_near(range, 2 * part + half, size_of(part) * sizeof(u64), part, parts);
        for (u64 i = 0; i < size_of(part); i++) value[i] = hash(part << 32 | i);
    }
    return NULL_GUID;
}

/* Blocks are shared with who fills them: everything else waits for all of these. */
static ocrGuid_t startEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    for (u64 part = 0; part < parts; part++) TASK(initEdt, 1, &part, 0, EDT_PROP_NONE, NULL, part, parts);
    return NULL_GUID;
}

ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)paramv, (void)depc;
    unit = argument(&depv[0], 1, 256), parts = argument(&depv[0], 2, 16), iterations = argument(&depv[0], 3, 4);
    if (unit == 0 || parts == 0) {
        fprintf(stderr, "irregular: nodes and parts must be at least 1\n");
        ocrAbort(2);
    }
    ocrGuidRangeCreate(&range, 2 * parts, GUID_USER_DB);
    u64 none[3] = {0, 0, 0};
    ocrGuid_t ready = PHASE(startEdt, none, NULL_GUID);
    ocrGuid_t loop = TASK(loopEdt, 1, &iterations, 1, EDT_PROP_NONE, NULL, 0, 0);
    ocrAddDependence(ready, loop, 0, DB_MODE_NULL);
    return NULL_GUID;
}
