/*
 * A wave on a square membrane with fixed edges, in leapfrog steps. The rows are cut into N blocks,
 * each block into M strips. An iteration is a FINISH task that creates a task for each block, which
 * creates a task for each of its strips: a barrier between iterations, unlike stencil2d.
 *
 *   seismic [SIDE [BLOCKS [STRIPS [ITERATIONS]]]]      default 400 2 4 10
 *
 * Pattern to show: a strip's block (two time levels) is used by one task per iteration; two rows go to
 * each neighbour through a small block of edges. With hints (blocks of strips over the nodes) only the
 * edges between nodes are remote.
 * Checks the result against the exact solution of the discrete equation: the start is a mode of the
 * membrane, whose amplitude after n steps is cos(n * theta).
 */
#include "../common/workload.h"
#include <math.h>
#include <string.h>

static const double COURANT2 = 0.25; /* (wave speed * time step / mesh width) squared */

typedef struct {
    u64 side, blocks, strips, iterations, iteration;
    u64 loop, step, block, strip; /* templates */
    u64 table;                    /* block of GUIDs: all strips, then all edges */
    u64 part;                     /* number of the block, or of the strip */
} Params;
#define PARAMS (sizeof(Params) / sizeof(u64))

static double started;

static u64 first_row(const Params *p, u64 strip) {
    return strip * p->side / (p->blocks * p->strips);
}

static u64 rows_of(const Params *p, u64 strip) { return first_row(p, strip + 1) - first_row(p, strip); }

/* Edges: for each of two time levels the first and the last row of the strip. */
static double *edge(const Params *p, double *edges, u64 level, int last) {
    return edges + (2 * (level % 2) + (u64)last) * p->side;
}

static void write_edges(const Params *p, u64 strip, const double *now, double *edges, u64 level) {
    memcpy(edge(p, edges, level, 0), now, p->side * sizeof(double));
    memcpy(edge(p, edges, level, 1), now + (rows_of(p, strip) - 1) * p->side, p->side * sizeof(double));
}

static ocrGuid_t strip(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Params *p = (Params *)paramv;
    s64 side = (s64)p->side, rows = (s64)rows_of(p, p->part);
    /* Level t is in half t % 2: the step overwrites t - 1 by t + 1. */
    double *half = depv[0].ptr;
    const double *now = half + (p->iteration % 2) * (u64)(rows * side);
    double *old = half + ((p->iteration + 1) % 2) * (u64)(rows * side);
    const double *above = depv[2].ptr == NULL ? NULL : edge(p, depv[2].ptr, p->iteration, 1);
    const double *below = depv[3].ptr == NULL ? NULL : edge(p, depv[3].ptr, p->iteration, 0);
    (void)paramc, (void)depc;
    for (s64 y = 0; y < rows; y++) {
        const double *row = now + y * side;
        const double *up = y > 0 ? row - side : above, *down = y + 1 < rows ? row + side : below;
        double *next = old + y * side;
        for (s64 x = 0; x < side; x++) {
            double left = x > 0 ? row[x - 1] : 0, right = x + 1 < side ? row[x + 1] : 0;
            double laplacian = left + right + (up ? up[x] : 0) + (down ? down[x] : 0) - 4 * row[x];
            next[x] = 2 * row[x] - next[x] + COURANT2 * laplacian;
        }
    }
    write_edges(p, p->part, old, depv[1].ptr, p->iteration + 1);
    return NULL_GUID;
}

static ocrGuid_t block(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Params p = *(Params *)paramv;
    u64 strips = p.blocks * p.strips, from = p.part * p.strips;
    const ocrGuid_t *table = depv[0].ptr;
    ocrHint_t hint;
    (void)paramc, (void)depc;
    for (u64 at = from; at < from + p.strips; at++) {
        ocrGuid_t edt;
        p.part = at;
        ocrEdtCreate(&edt, guid_of(p.strip), EDT_PARAM_DEF, (u64 *)&p, EDT_PARAM_DEF, NULL, EDT_PROP_NONE,
                     near_part(&hint, OCR_HINT_EDT_T, at, strips), NULL);
        ocrAddDependence(table[strips + at], edt, 1, DB_MODE_RW);
        ocrAddDependence(at > 0 ? table[strips + at - 1] : NULL_GUID, edt, 2, DB_MODE_RO);
        ocrAddDependence(at + 1 < strips ? table[strips + at + 1] : NULL_GUID, edt, 3, DB_MODE_RO);
        ocrAddDependence(table[at], edt, 0, DB_MODE_RW);
    }
    return NULL_GUID;
}

static ocrGuid_t step(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Params p = *(Params *)paramv;
    ocrHint_t hint;
    (void)paramc, (void)depc, (void)depv;
    for (u64 at = 0; at < p.blocks; at++) {
        ocrGuid_t edt;
        p.part = at;
        ocrEdtCreate(&edt, guid_of(p.block), EDT_PARAM_DEF, (u64 *)&p, EDT_PARAM_DEF, NULL, EDT_PROP_NONE,
                     near_part(&hint, OCR_HINT_EDT_T, at, p.blocks), NULL);
        ocrAddDependence(guid_of(p.table), edt, 0, DB_MODE_RO);
    }
    return NULL_GUID;
}

/* Checks the strips and ends. */
static ocrGuid_t finish(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Params *p = (Params *)paramv;
    double elapsed = seconds() - started, worst = 0;
    double k = M_PI / (double)(p->side + 1);
    double theta = acos(1 - 2 * COURANT2 * (1 - cos(k)));
    double amplitude = cos((double)p->iterations * theta);
    (void)paramc;
    for (u32 at = 0; at < depc; at++) {
        u64 rows = rows_of(p, at);
        const double *now = (double *)depv[at].ptr + (p->iterations % 2) * rows * p->side;
        for (u64 y = 0; y < rows; y++)
            for (u64 x = 0; x < p->side; x++) {
                double exact = amplitude * sin(k * (double)(first_row(p, at) + y + 1)) *
                               sin(k * (double)(x + 1));
                worst = fmax(worst, fabs(now[y * p->side + x] - exact));
            }
        ocrDbDestroy(depv[at].guid);
    }
    PRINTF("seismic side %" PRIu64 " strips %" PRIu64 "x%" PRIu64 " iterations %" PRIu64
           " largest error %.2e\n",
           p->side, p->blocks, p->strips, p->iterations, worst);
    PRINTF("seconds %.6f\n", elapsed);
    ocrAssert(worst < 1e-9);
    ocrShutdown();
    return NULL_GUID;
}

static ocrGuid_t loop(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Params p = *(Params *)paramv;
    u64 strips = p.blocks * p.strips;
    ocrGuid_t edt, done;
    (void)paramc, (void)depc;
    if (p.iteration == p.iterations) {
        const ocrGuid_t *table = depv[1].ptr;
        ocrGuid_t template;
        ocrEdtTemplateCreate(&template, finish, PARAMS, EDT_PARAM_UNK);
        ocrEdtCreate(&edt, template, EDT_PARAM_DEF, (u64 *)&p, (u32)strips, NULL, EDT_PROP_NONE, NULL_HINT,
                     NULL);
        for (u32 at = 0; at < strips; at++) ocrAddDependence(table[at], edt, at, DB_MODE_RO);
        return NULL_GUID;
    }
    ocrGuid_t now;
    ocrEdtCreate(&now, guid_of(p.step), EDT_PARAM_DEF, (u64 *)&p, 1, NULL, EDT_PROP_FINISH, NULL_HINT,
                 &done);
    p.iteration++;
    ocrEdtCreate(&edt, guid_of(p.loop), EDT_PARAM_DEF, (u64 *)&p, 2, NULL, EDT_PROP_NONE, NULL_HINT, NULL);
    ocrAddDependence(done, edt, 0, DB_MODE_NULL);
    ocrAddDependence(guid_of(p.table), edt, 1, DB_MODE_RO);
    ocrAddDependence(NULL_GUID, now, 0, DB_MODE_NULL);
    return NULL_GUID;
}

/* Makes and fills a strip's two blocks, and writes their GUIDs into the table. */
static ocrGuid_t init_strip(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Params *p = (Params *)paramv;
    u64 strips = p->blocks * p->strips, rows = rows_of(p, p->part);
    ocrGuid_t *table = depv[0].ptr, data, edges;
    double *levels, *rim, k = M_PI / (double)(p->side + 1);
    double theta = acos(1 - 2 * COURANT2 * (1 - cos(k)));
    ocrHint_t hint;
    (void)paramc, (void)depc;
    near_part(&hint, OCR_HINT_DB_T, p->part, strips);
    ocrDbCreate(&data, (void **)&levels, 2 * rows * p->side * sizeof(double), DB_PROP_NONE, &hint, NO_ALLOC);
    ocrDbCreate(&edges, (void **)&rim, 4 * p->side * sizeof(double), DB_PROP_NONE, &hint, NO_ALLOC);
    for (u64 y = 0; y < rows; y++)
        for (u64 x = 0; x < p->side; x++) {
            double mode = sin(k * (double)(first_row(p, p->part) + y + 1)) * sin(k * (double)(x + 1));
            levels[y * p->side + x] = mode;
            levels[(rows + y) * p->side + x] = cos(theta) * mode;
        }
    memset(rim, 0, 4 * p->side * sizeof(double));
    write_edges(p, p->part, levels, rim, 0);
    table[p->part] = data;
    table[strips + p->part] = edges;
    return NULL_GUID;
}

static ocrGuid_t init(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Params p = *(Params *)paramv;
    u64 strips = p.blocks * p.strips;
    ocrGuid_t template;
    ocrHint_t hint;
    (void)paramc, (void)depc, (void)depv;
    ocrEdtTemplateCreate(&template, init_strip, PARAMS, 1);
    for (u64 at = 0; at < strips; at++) {
        ocrGuid_t edt, table = guid_of(p.table);
        p.part = at;
        ocrEdtCreate(&edt, template, EDT_PARAM_DEF, (u64 *)&p, EDT_PARAM_DEF, &table, EDT_PROP_NONE,
                     near_part(&hint, OCR_HINT_EDT_T, at, strips), NULL);
    }
    ocrEdtTemplateDestroy(template);
    return NULL_GUID;
}

ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Params p = {0};
    ocrGuid_t templates[5], table, initial, first, ready, *guids;
    (void)paramc, (void)paramv, (void)depc;
    p.side = argument(depv, 1, 400);
    p.blocks = argument(depv, 2, 2);
    p.strips = argument(depv, 3, 4);
    p.iterations = argument(depv, 4, 10);
    if (p.blocks * p.strips == 0 || p.side < p.blocks * p.strips || p.iterations == 0) {
        fprintf(stderr, "seismic: every strip needs a row, and there must be an iteration\n");
        ocrAbort(2);
    }
    ocrEdtTemplateCreate(&templates[0], init, PARAMS, 1);
    ocrEdtTemplateCreate(&templates[1], loop, PARAMS, 2);
    ocrEdtTemplateCreate(&templates[2], step, PARAMS, 1);
    ocrEdtTemplateCreate(&templates[3], block, PARAMS, 1);
    ocrEdtTemplateCreate(&templates[4], strip, PARAMS, 4);
    p.loop = (u64)templates[1].guid;
    p.step = (u64)templates[2].guid;
    p.block = (u64)templates[3].guid;
    p.strip = (u64)templates[4].guid;
    ocrDbCreate(&table, (void **)&guids, 2 * p.blocks * p.strips * sizeof *guids, DB_PROP_NONE, NULL_HINT,
                NO_ALLOC);
    memset(guids, 0, 2 * p.blocks * p.strips * sizeof *guids);
    p.table = (u64)table.guid;
    ocrDbRelease(table);
    started = seconds();
    ocrEdtCreate(&initial, templates[0], EDT_PARAM_DEF, (u64 *)&p, EDT_PARAM_DEF, NULL, EDT_PROP_FINISH,
                 NULL_HINT, &ready);
    ocrEdtCreate(&first, templates[1], EDT_PARAM_DEF, (u64 *)&p, EDT_PARAM_DEF, NULL, EDT_PROP_NONE,
                 NULL_HINT, NULL);
    ocrAddDependence(ready, first, 0, DB_MODE_NULL);
    ocrAddDependence(table, first, 1, DB_MODE_RO);
    ocrAddDependence(NULL_GUID, initial, 0, DB_MODE_NULL);
    return NULL_GUID;
}
