/*
 * Sweeps over a square of tiles, each after those above and to the left: wavefront [SIDE-OF-TILE [TILES [SWEEPS]]]
 *
 * A tile reads the tile above and the tile to the left whole, so the front moves along the diagonals. Hints put rows of tiles on nodes
 * in blocks. Checked against the same arithmetic without tasks.
 *
 * Pattern: two-dimensional neighbours with little work at the corners: balance and locality pull apart.
 */
#include "../common/workload.h"
#include <string.h>

static u64 side, tiles, sweeps;
static ocrGuid_t range;

static void sweep_tile(u64 *tile, const u64 *above, const u64 *left) {
    for (u64 row = 0; row < side; row++)
        for (u64 column = 0; column < side; column++) {
            u64 up = row > 0 ? tile[(row - 1) * side + column] : above ? above[(side - 1) * side + column] : 1;
            u64 before = column > 0 ? tile[row * side + column - 1] : left ? left[row * side + side - 1] : 1;
            tile[row * side + column] = (tile[row * side + column] ^ up) * 0x9e3779b97f4a7c15ull + before;
        }
}

/* Slot 0: the tile, 1 and 2: above and left, or nothing; 3 and 4: that these are done. Output: this one is. */
static ocrGuid_t tileEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)paramv, (void)depc;
    sweep_tile(depv[0].ptr, depv[1].ptr, depv[2].ptr);
    return NULL_GUID;
}

static ocrGuid_t sweepEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    ocrGuid_t done[tiles * tiles];
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    for (u64 at = 0; at < tiles * tiles; at++) ocrEventCreate(&done[at], OCR_EVENT_STICKY_T, EVT_PROP_NONE);
    for (u64 at = 0; at < tiles * tiles; at++) {
        u64 row = at / tiles, column = at % tiles;
        ocrGuid_t edt = TASK(tileEdt, 0, NULL, 5, EDT_PROP_OEVT_VALID, &done[at], row, tiles);
        ocrAddDependence(row > 0 ? done[at - tiles] : NULL_GUID, edt, 3, DB_MODE_NULL);
        ocrAddDependence(column > 0 ? done[at - 1] : NULL_GUID, edt, 4, DB_MODE_NULL);
        if (row > 0) needs(range, at - tiles, edt, 1, DB_MODE_RO);
        else ocrAddDependence(NULL_GUID, edt, 1, DB_MODE_NULL);
        if (column > 0) needs(range, at - 1, edt, 2, DB_MODE_RO);
        else ocrAddDependence(NULL_GUID, edt, 2, DB_MODE_NULL);
        needs(range, at, edt, 0, DB_MODE_RW);
    }
    return NULL_GUID;
}

static ocrGuid_t checkEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 *tile[tiles * tiles], wrong = 0;
    (void)paramc, (void)paramv, (void)depc;
    for (u64 at = 0; at < tiles * tiles; at++) {
        tile[at] = malloc(side * side * sizeof(u64));
        for (u64 i = 0; i < side * side; i++) tile[at][i] = at * i;
    }
    for (u64 t = 0; t < sweeps; t++)
        for (u64 at = 0; at < tiles * tiles; at++)
            sweep_tile(tile[at], at >= tiles ? tile[at - tiles] : NULL, at % tiles > 0 ? tile[at - 1] : NULL);
    for (u64 at = 0; at < tiles * tiles; at++) {
        wrong += memcmp(tile[at], depv[at].ptr, side * side * sizeof(u64)) != 0;
        free(tile[at]);
    }
    PRINTF("wavefront %" PRIu64 " %" PRIu64 " %" PRIu64 ": %s\n", side, tiles, sweeps, wrong ? "WRONG" : "correct");
    if (wrong) ocrAbort(1);
    ocrShutdown();
    return NULL_GUID;
}

static ocrGuid_t loopEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)depc, (void)depv;
    if (paramv[0] == 0) {
        ocrGuid_t edt = TASK(checkEdt, 0, NULL, (u32)(tiles * tiles), EDT_PROP_NONE, NULL, 0, 0);
        for (u64 at = 0; at < tiles * tiles; at++) needs(range, at, edt, (u32)at, DB_MODE_RO);
        return NULL_GUID;
    }
    u64 sweep[3] = {0, 0, 0}, left = paramv[0] - 1;
    ocrGuid_t done = PHASE(sweepEdt, sweep, NULL_GUID);
    ocrGuid_t next = TASK(loopEdt, 1, &left, 1, EDT_PROP_NONE, NULL, 0, 0);
    ocrAddDependence(done, next, 0, DB_MODE_NULL);
    return NULL_GUID;
}

static ocrGuid_t initEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 row = paramv[0];
    (void)paramc, (void)depc, (void)depv;
    for (u64 at = row * tiles; at < (row + 1) * tiles; at++) {
        u64 *tile = block_near(range, at, side * side * sizeof(u64), row, tiles);
        for (u64 i = 0; i < side * side; i++) tile[i] = at * i;
    }
    return NULL_GUID;
}

/* Blocks are shared with who fills them: everything else waits for all of these. */
static ocrGuid_t startEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    for (u64 row = 0; row < tiles; row++) TASK(initEdt, 1, &row, 0, EDT_PROP_NONE, NULL, row, tiles);
    return NULL_GUID;
}

ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)paramv, (void)depc;
    side = argument(&depv[0], 1, 16), tiles = argument(&depv[0], 2, 8), sweeps = argument(&depv[0], 3, 4);
    if (side == 0 || tiles == 0) {
        fprintf(stderr, "wavefront: sides must be at least 1\n");
        ocrAbort(2);
    }
    ocrGuidRangeCreate(&range, tiles * tiles, GUID_USER_DB);
    u64 none[3] = {0, 0, 0};
    ocrGuid_t ready = PHASE(startEdt, none, NULL_GUID);
    ocrGuid_t loop = TASK(loopEdt, 1, &sweeps, 1, EDT_PROP_NONE, NULL, 0, 0);
    ocrAddDependence(ready, loop, 0, DB_MODE_NULL);
    return NULL_GUID;
}
