/*
 * All ways to put N queens on a board: queens [N [LEVELS-OF-TASKS]]
 *
 * A task for each safe place in the first LEVELS rows; below that a task searches by itself and adds what it found to a block that all
 * share exclusively. A tree that depends on the data: there is nothing to place, and a plan must not pretend.
 */
#include "../common/workload.h"

static u64 queens, levels;
static const u64 SOLUTIONS[] = {1, 1, 0, 0, 2, 10, 4, 40, 92, 352, 724, 2680, 14200};

static u64 search(u64 row, u64 columns, u64 falling, u64 rising) {
    u64 found = 0, all = (1ull << queens) - 1;
    if (row == queens) return 1;
    for (u64 free = all & ~(columns | falling | rising); free != 0; free &= free - 1) {
        u64 place = free & -free;
        found += search(row + 1, columns | place, (falling | place) << 1, (rising | place) >> 1);
    }
    return found;
}

static ocrGuid_t countEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)depc;
    *(u64 *)depv[0].ptr += search(paramv[0], paramv[1], paramv[2], paramv[3]);
    return NULL_GUID;
}

/* params: row, attacked columns and diagonals, the sum's GUID. */
static ocrGuid_t placeEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 row = paramv[0], columns = paramv[1], falling = paramv[2], rising = paramv[3], all = (1ull << queens) - 1;
    (void)paramc, (void)depc, (void)depv;
    for (u64 free = all & ~(columns | falling | rising); free != 0; free &= free - 1) {
        u64 place = free & -free;
        u64 params[5] = {row + 1, columns | place, (falling | place) << 1, (rising | place) >> 1, paramv[4]};
        if (row + 1 < levels) {
            TASK(placeEdt, 5, params, 0, EDT_PROP_NONE, NULL, 0, 0);
        } else {
            ocrGuid_t edt = TASK(countEdt, 5, params, 1, EDT_PROP_NONE, NULL, 0, 0);
            ocrAddDependence(guid_of(paramv[4]), edt, 0, DB_MODE_EW);
        }
    }
    return NULL_GUID;
}

static ocrGuid_t checkEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 found = *(u64 *)depv[1].ptr;
    int wrong = found != SOLUTIONS[queens];
    (void)paramc, (void)paramv, (void)depc;
    PRINTF("queens %" PRIu64 " %" PRIu64 ": %" PRIu64 " solutions, %s\n", queens, levels, found, wrong ? "WRONG" : "correct");
    if (wrong) ocrAbort(1);
    ocrShutdown();
    return NULL_GUID;
}

/* params: the sum's GUID. */
static ocrGuid_t allEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 params[5] = {0, 0, 0, 0, paramv[0]};
    (void)paramc, (void)depc, (void)depv;
    TASK(placeEdt, 5, params, 0, EDT_PROP_NONE, NULL, 0, 0);
    return NULL_GUID;
}

ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    ocrGuid_t sum;
    u64 *memory;
    (void)paramc, (void)paramv, (void)depc;
    queens = argument(&depv[0], 1, 8), levels = argument(&depv[0], 2, 3);
    if (queens < 1 || queens > 12 || levels < 1 || levels > queens) {
        fprintf(stderr, "queens: 1 to 12 queens, and 1 to that many levels\n");
        ocrAbort(2);
    }
    ocrDbCreate(&sum, (void **)&memory, sizeof(u64), DB_PROP_NONE, NULL_HINT, NO_ALLOC);
    *memory = 0;
    ocrDbRelease(sum);
    u64 params[3] = {(u64)sum.guid, 0, 0};
    ocrGuid_t done = PHASE(allEdt, params, NULL_GUID);
    ocrGuid_t check = TASK(checkEdt, 0, NULL, 2, EDT_PROP_NONE, NULL, 0, 0);
    ocrAddDependence(sum, check, 1, DB_MODE_RO);
    ocrAddDependence(done, check, 0, DB_MODE_NULL);
    return NULL_GUID;
}
