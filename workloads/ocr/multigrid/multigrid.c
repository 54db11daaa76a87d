/*
 * A multigrid W-cycle over a line of P parts: multigrid [POINTS-PER-PART [PARTS [LEVELS [CYCLES]]]]
 *
 * Each part has on each level a block of values and a block of its two edge values. cycle(level) publishes the edges, smooths
 * with the neighbours' edges, restricts to the next level, runs two cycles there, and prolongs: a recursion whose depth is the
 * number of levels, in a loop. Checked against the same arithmetic without tasks.
 *
 * Pattern: a part's blocks are used by its own tasks; edges (16 bytes) by the neighbours'.
 */
#include "../common/workload.h"
#include <string.h>

static u64 points, parts, levels, cycles;
static ocrGuid_t range;

static u64 values_of(u64 level, u64 part) { return (level * parts + part) * 2; }
static u64 edges_of(u64 level, u64 part) { return values_of(level, part) + 1; }

/* The arithmetic; integers, so that the order of tasks cannot show. */
static void smooth_part(u64 *u, u64 n, u64 left, u64 right) {
    u64 before = left;
    for (u64 i = 0; i < n; i++) {
        u64 here = u[i], after = i + 1 < n ? u[i + 1] : right;
        u[i] = (before + 2 * here + after) * 0x9e3779b97f4a7c15ull >> 3;
        before = here;
    }
}

static void restrict_part(const u64 *fine, u64 *coarse, u64 n) {
    for (u64 i = 0; i < n; i++) coarse[i] += fine[2 * i] + fine[2 * i + 1];
}

static void prolong_part(u64 *fine, const u64 *coarse, u64 n) {
    for (u64 i = 0; i < n; i++) fine[2 * i] ^= coarse[i], fine[2 * i + 1] += coarse[i];
}

static ocrGuid_t publishEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 n = points >> paramv[0], *u = depv[0].ptr, *edges = depv[1].ptr;
    (void)paramc, (void)depc;
    edges[0] = u[0], edges[1] = u[n - 1];
    return NULL_GUID;
}

static ocrGuid_t smoothEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)depc;
    smooth_part(depv[0].ptr, points >> paramv[0], ((u64 *)depv[1].ptr)[1], ((u64 *)depv[2].ptr)[0]);
    return NULL_GUID;
}

static ocrGuid_t restrictEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)depc;
    restrict_part(depv[0].ptr, depv[1].ptr, points >> (paramv[0] + 1));
    return NULL_GUID;
}

static ocrGuid_t prolongEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)depc;
    prolong_part(depv[0].ptr, depv[1].ptr, points >> (paramv[0] + 1));
    return NULL_GUID;
}

/* params: level, which phase. */
static ocrGuid_t phaseEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 level = paramv[0];
    (void)paramc, (void)depc, (void)depv;
    for (u64 part = 0; part < parts; part++) {
        ocrGuid_t edt;
        switch (paramv[1]) {
        case 0:
            edt = TASK(publishEdt, 1, &level, 2, EDT_PROP_NONE, NULL, part, parts);
            needs(range, values_of(level, part), edt, 0, DB_MODE_RO);
            needs(range, edges_of(level, part), edt, 1, DB_MODE_RW);
            break;
        case 1:
            edt = TASK(smoothEdt, 1, &level, 3, EDT_PROP_NONE, NULL, part, parts);
            needs(range, values_of(level, part), edt, 0, DB_MODE_RW);
            needs(range, edges_of(level, (part + parts - 1) % parts), edt, 1, DB_MODE_RO);
            needs(range, edges_of(level, (part + 1) % parts), edt, 2, DB_MODE_RO);
            break;
        case 2:
            edt = TASK(restrictEdt, 1, &level, 2, EDT_PROP_NONE, NULL, part, parts);
            needs(range, values_of(level, part), edt, 0, DB_MODE_RO);
            needs(range, values_of(level + 1, part), edt, 1, DB_MODE_RW);
            break;
        default:
            edt = TASK(prolongEdt, 1, &level, 2, EDT_PROP_NONE, NULL, part, parts);
            needs(range, values_of(level, part), edt, 0, DB_MODE_RW);
            needs(range, values_of(level + 1, part), edt, 1, DB_MODE_RO);
        }
    }
    return NULL_GUID;
}

/* params: level. */
static ocrGuid_t cycleEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 level = paramv[0];
    ocrGuid_t done = NULL_GUID;
    (void)paramc, (void)depc, (void)depv;
    for (u64 phase = 0; phase < 4; phase++) {
        u64 params[3] = {level, phase, 0}, below[3] = {level + 1, 0, 0};
        if (level + 1 == levels && phase > 1) break;
        if (phase == 3) {
            done = PHASE(cycleEdt, below, done);
            done = PHASE(cycleEdt, below, done);
        }
        done = PHASE(phaseEdt, params, done);
    }
    return NULL_GUID;
}

static u64 start_value(u64 level, u64 part, u64 i) { return (level * 1000003 + part * 10007 + i) * 2654435761ull; }

static void cycle_without_tasks(u64 **u, u64 level) {
    u64 n = points >> level, edges[2 * parts];
    for (u64 p = 0; p < parts; p++) edges[2 * p] = u[level * parts + p][0], edges[2 * p + 1] = u[level * parts + p][n - 1];
    for (u64 p = 0; p < parts; p++)
        smooth_part(u[level * parts + p], n, edges[2 * ((p + parts - 1) % parts) + 1], edges[2 * ((p + 1) % parts)]);
    if (level + 1 == levels) return;
    for (u64 p = 0; p < parts; p++) restrict_part(u[level * parts + p], u[(level + 1) * parts + p], n / 2);
    cycle_without_tasks(u, level + 1);
    cycle_without_tasks(u, level + 1);
    for (u64 p = 0; p < parts; p++) prolong_part(u[level * parts + p], u[(level + 1) * parts + p], n / 2);
}

static ocrGuid_t checkEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 *u[levels * parts], wrong = 0;
    (void)paramc, (void)paramv, (void)depc;
    for (u64 l = 0; l < levels; l++)
        for (u64 p = 0; p < parts; p++) {
            u[l * parts + p] = malloc((points >> l) * sizeof(u64));
            for (u64 i = 0; i < points >> l; i++) u[l * parts + p][i] = start_value(l, p, i);
        }
    for (u64 c = 0; c < cycles; c++) cycle_without_tasks(u, 0);
    for (u64 p = 0; p < parts; p++) wrong += memcmp(u[p], depv[p].ptr, points * sizeof(u64)) != 0;
    for (u64 i = 0; i < levels * parts; i++) free(u[i]);
    PRINTF("multigrid %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 ": %s\n", points, parts, levels, cycles, wrong ? "WRONG" : "correct");
    if (wrong) ocrAbort(1);
    ocrShutdown();
    return NULL_GUID;
}

/* params: cycles left. */
static ocrGuid_t loopEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)depc, (void)depv;
    if (paramv[0] == 0) {
        ocrGuid_t edt = TASK(checkEdt, 0, NULL, (u32)parts, EDT_PROP_NONE, NULL, 0, 0);
        for (u64 p = 0; p < parts; p++) needs(range, values_of(0, p), edt, (u32)p, DB_MODE_RO);
        return NULL_GUID;
    }
    u64 top[3] = {0, 0, 0}, left = paramv[0] - 1;
    ocrGuid_t done = PHASE(cycleEdt, top, NULL_GUID);
    ocrGuid_t next = TASK(loopEdt, 1, &left, 1, EDT_PROP_NONE, NULL, 0, 0);
    ocrAddDependence(done, next, 0, DB_MODE_NULL);
    return NULL_GUID;
}

static ocrGuid_t initEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 part = paramv[0];
    (void)paramc, (void)depc, (void)depv;
    for (u64 l = 0; l < levels; l++) {
        u64 *u = block_near(range, values_of(l, part), (points >> l) * sizeof(u64), part, parts);
        for (u64 i = 0; i < points >> l; i++) u[i] = start_value(l, part, i);
        block_near(range, edges_of(l, part), 2 * sizeof(u64), part, parts);
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
    points = argument(&depv[0], 1, 1024), parts = argument(&depv[0], 2, 8);
    levels = argument(&depv[0], 3, 4), cycles = argument(&depv[0], 4, 4);
    if (points >> levels == 0 || parts == 0 || levels == 0) {
        fprintf(stderr, "multigrid: needs at least 2^LEVELS points per part\n");
        ocrAbort(2);
    }
    ocrGuidRangeCreate(&range, 2 * levels * parts, GUID_USER_DB);
    u64 none[3] = {0, 0, 0};
    ocrGuid_t ready = PHASE(startEdt, none, NULL_GUID);
    ocrGuid_t loop = TASK(loopEdt, 1, &cycles, 1, EDT_PROP_NONE, NULL, 0, 0);
    ocrAddDependence(ready, loop, 0, DB_MODE_NULL);
    return NULL_GUID;
}
