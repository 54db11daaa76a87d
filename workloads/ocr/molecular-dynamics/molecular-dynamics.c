/*
 * Molecular dynamics in cells: molecular-dynamics [ATOMS-PER-CELL [SIDE [STEPS]]]
 *
 * SIDE x SIDE cells, periodic; atoms stay near their cell. A step has two phases over all cells: forces from the own and the
 * eight neighbouring cells' positions, then motion. Checked: momentum is kept, to rounding.
 *
 * Pattern: two-dimensional neighbours; a cell's motion is its own business.
 */
#include "../common/workload.h"
#include <math.h>

static u64 atoms, side, steps;
static ocrGuid_t range;

static u64 positions_of(u64 cell) { return 2 * cell; }
static u64 motion_of(u64 cell) { return 2 * cell + 1; }
static u64 neighbour(u64 cell, u64 which) {
    u64 row = (cell / side + side + which / 3 - 1) % side, column = (cell % side + side + which % 3 - 1) % side;
    return row * side + column;
}

/* Slot 0: velocities and forces; slots 1 to 9: positions around. */
static ocrGuid_t forcesEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    double *motion = depv[0].ptr, *own = depv[5].ptr, *force = motion + 2 * atoms;
    (void)paramc, (void)paramv, (void)depc;
    for (u64 i = 0; i < 2 * atoms; i++) force[i] = 0;
    for (u64 which = 0; which < 9; which++) {
        const double *other = depv[1 + which].ptr;
        double shift[2] = {(double)(which % 3) - 1, (double)(which / 3) - 1};
        for (u64 i = 0; i < atoms; i++)
            for (u64 j = 0; j < atoms; j++) {
                double dx = own[2 * i] - other[2 * j] - shift[0], dy = own[2 * i + 1] - other[2 * j + 1] - shift[1];
                double square = dx * dx + dy * dy;
                if (square == 0 || square > 1) continue;
                double strength = (1 - square) * (1 - square);
                force[2 * i] += strength * dx, force[2 * i + 1] += strength * dy;
            }
    }
    return NULL_GUID;
}

static ocrGuid_t motionEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    double *velocity = depv[0].ptr, *force = velocity + 2 * atoms, *position = depv[1].ptr;
    (void)paramc, (void)paramv, (void)depc;
    for (u64 i = 0; i < 2 * atoms; i++) velocity[i] += 1e-4 * force[i], position[i] += 1e-4 * velocity[i];
    return NULL_GUID;
}

static ocrGuid_t phaseEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 cells = side * side;
    (void)paramc, (void)depc, (void)depv;
    for (u64 cell = 0; cell < cells; cell++) {
        if (paramv[0] == 0) {
            ocrGuid_t edt = TASK(forcesEdt, 0, NULL, 10, EDT_PROP_NONE, NULL, cell, cells);
            needs(range, motion_of(cell), edt, 0, DB_MODE_RW);
            for (u32 which = 0; which < 9; which++)
                needs(range, positions_of(neighbour(cell, which)), edt, 1 + which, DB_MODE_RO);
        } else {
            ocrGuid_t edt = TASK(motionEdt, 0, NULL, 2, EDT_PROP_NONE, NULL, cell, cells);
            needs(range, motion_of(cell), edt, 0, DB_MODE_RW);
            needs(range, positions_of(cell), edt, 1, DB_MODE_RW);
        }
    }
    return NULL_GUID;
}

static ocrGuid_t checkEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    double sum[2] = {0, 0}, moved = 0;
    (void)paramc, (void)paramv;
    for (u64 cell = 0; cell < depc; cell++)
        for (u64 i = 0; i < 2 * atoms; i++) {
            double v = ((double *)depv[cell].ptr)[i];
            sum[i % 2] += v, moved += fabs(v);
        }
    int wrong = !(fabs(sum[0]) + fabs(sum[1]) <= 1e-9 * (1 + moved)) || !(moved > 0);
    PRINTF("molecular-dynamics %" PRIu64 " %" PRIu64 " %" PRIu64 ": momentum %g of %g, %s\n", atoms, side, steps,
           fabs(sum[0]) + fabs(sum[1]), moved, wrong ? "WRONG" : "correct");
    if (wrong) ocrAbort(1);
    ocrShutdown();
    return NULL_GUID;
}

static ocrGuid_t stepEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)depc, (void)depv;
    if (paramv[0] == 0) {
        ocrGuid_t edt = TASK(checkEdt, 0, NULL, (u32)(side * side), EDT_PROP_NONE, NULL, 0, 0);
        for (u64 cell = 0; cell < side * side; cell++) needs(range, motion_of(cell), edt, (u32)cell, DB_MODE_RO);
        return NULL_GUID;
    }
    u64 forces[3] = {0, 0, 0}, motion[3] = {1, 0, 0}, left = paramv[0] - 1;
    ocrGuid_t done = PHASE(phaseEdt, forces, NULL_GUID);
    done = PHASE(phaseEdt, motion, done);
    ocrGuid_t next = TASK(stepEdt, 1, &left, 1, EDT_PROP_NONE, NULL, 0, 0);
    ocrAddDependence(done, next, 0, DB_MODE_NULL);
    return NULL_GUID;
}

static ocrGuid_t initEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 cell = paramv[0], cells = side * side, seed = cell * 2654435761u + 12345;
    double *position = block_near(range, positions_of(cell), 2 * atoms * sizeof(double), cell, cells);
    double *motion = block_near(range, motion_of(cell), 4 * atoms * sizeof(double), cell, cells);
    (void)paramc, (void)depc, (void)depv;
    for (u64 i = 0; i < 2 * atoms; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        position[i] = (double)(seed >> 40) / (double)(1 << 24);
        motion[i] = motion[2 * atoms + i] = 0;
    }
    return NULL_GUID;
}

/* Blocks are shared with who fills them: everything else waits for all of these. */
static ocrGuid_t startEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    for (u64 cell = 0; cell < side * side; cell++) TASK(initEdt, 1, &cell, 0, EDT_PROP_NONE, NULL, cell, side * side);
    return NULL_GUID;
}

ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)paramv, (void)depc;
    atoms = argument(&depv[0], 1, 64), side = argument(&depv[0], 2, 4), steps = argument(&depv[0], 3, 4);
    if (side < 3 || atoms == 0) {
        fprintf(stderr, "molecular-dynamics: needs at least 3 x 3 cells and an atom in each\n");
        ocrAbort(2);
    }
    ocrGuidRangeCreate(&range, 2 * side * side, GUID_USER_DB);
    u64 none[3] = {0, 0, 0};
    ocrGuid_t ready = PHASE(startEdt, none, NULL_GUID);
    ocrGuid_t step = TASK(stepEdt, 1, &steps, 1, EDT_PROP_NONE, NULL, 0, 0);
    ocrAddDependence(ready, step, 0, DB_MODE_NULL);
    return NULL_GUID;
}
