/*
 * Jacobi iteration for a sparse, diagonally dominant system with irregular blocks.
 *
 *   sparse [UNKNOWNS [BLOCKS [ITERATIONS]]]      default 20000 12 40
 *
 * Rows are cut into blocks of different sizes. A row has entries near the diagonal, and block b also
 * reads one block far away, a different one for each b. An iteration has one task per block; it holds
 * its matrix block (CONST), all vector blocks it reads (RO, old half) and its own (RW, new half).
 *
 * Pattern to show: who reads whom is irregular and not a function of the order of creation, so that
 * placing blocks by affinity can beat placing them in blocks.
 * Checks the residual: the solution of the system is all ones.
 */
#include "../common/workload.h"
#include <math.h>
#include <string.h>

enum { NEAR = 4, FAR = 3 };

typedef struct {
    u64 unknowns, blocks, iterations, iteration;
    u64 loop, step, table, block;
} Params;
#define PARAMS (sizeof(Params) / sizeof(u64))

/* Sizes in the proportion 1 : 2 : 3, again and again. */
static u64 first_row(const Params *p, u64 block) {
    u64 part = 0, all = 0;
    for (u64 b = 0; b < p->blocks; b++) all += 1 + b % 3;
    for (u64 b = 0; b < block; b++) part += 1 + b % 3;
    return p->unknowns * part / all;
}

static u64 partner(const Params *p, u64 block) { return (block * 5 + p->blocks / 2) % p->blocks; }

/* A matrix block: for each row NEAR + FAR columns and values, then the diagonal. */
typedef struct {
    u32 column[NEAR + FAR];
    double value[NEAR + FAR], diagonal, right;
} Row;

static ocrGuid_t solve(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Params *p = (Params *)paramv;
    u64 first = first_row(p, p->block), rows = first_row(p, p->block + 1) - first;
    const Row *row = depv[0].ptr;
    const double *parts[4];
    double *mine = (double *)depv[1].ptr + ((p->iteration + 1) % 2) * rows;
    u64 near[4] = {p->block == 0 ? p->block : p->block - 1, p->block,
                   p->block + 1 == p->blocks ? p->block : p->block + 1, partner(p, p->block)};
    (void)paramc, (void)depc;
    for (int i = 0; i < 4; i++) {
        u64 size = first_row(p, near[i] + 1) - first_row(p, near[i]);
        const double *block = i == 1 || near[i] == p->block ? depv[1].ptr : depv[i < 1 ? 2 : i + 1].ptr;
        parts[i] = block + (p->iteration % 2) * size;
    }
    for (u64 i = 0; i < rows; i++, row++) {
        double sum = row->right;
        for (int e = 0; e < NEAR + FAR; e++)
            for (int q = 0; q < 4; q++) {
                u64 from = first_row(p, near[q]);
                if (row->column[e] >= from && row->column[e] < first_row(p, near[q] + 1)) {
                    sum -= row->value[e] * parts[q][row->column[e] - from];
                    break;
                }
            }
        mine[i] = sum / row->diagonal;
    }
    return NULL_GUID;
}

static ocrGuid_t step(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Params p = *(Params *)paramv;
    const ocrGuid_t *table = depv[0].ptr;
    ocrGuid_t template;
    ocrHint_t hint;
    (void)paramc, (void)depc;
    ocrEdtTemplateCreate(&template, solve, PARAMS, 5);
    for (p.block = 0; p.block < p.blocks; p.block++) {
        ocrGuid_t edt, *vectors = (ocrGuid_t *)table + p.blocks;
        u64 b = p.block, other = partner(&p, b);
        ocrEdtCreate(&edt, template, EDT_PARAM_DEF, (u64 *)&p, EDT_PARAM_DEF, NULL, EDT_PROP_NONE,
                     near_part(&hint, OCR_HINT_EDT_T, b, p.blocks), NULL);
        ocrAddDependence(b > 0 ? vectors[b - 1] : NULL_GUID, edt, 2, DB_MODE_RO);
        ocrAddDependence(b + 1 < p.blocks ? vectors[b + 1] : NULL_GUID, edt, 3, DB_MODE_RO);
        ocrAddDependence(other != b ? vectors[other] : NULL_GUID, edt, 4, DB_MODE_RO);
        ocrAddDependence(vectors[b], edt, 1, DB_MODE_RW);
        ocrAddDependence(table[b], edt, 0, DB_MODE_CONST);
    }
    ocrEdtTemplateDestroy(template);
    return NULL_GUID;
}

static ocrGuid_t finish(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Params *p = (Params *)paramv;
    double worst = 0;
    (void)paramc;
    for (u32 b = 0; b < depc; b++) {
        u64 rows = first_row(p, b + 1) - first_row(p, b);
        const double *x = (double *)depv[b].ptr + (p->iterations % 2) * rows;
        for (u64 i = 0; i < rows; i++) worst = fmax(worst, fabs(x[i] - 1));
    }
    PRINTF("sparse unknowns %" PRIu64 " blocks %" PRIu64 " iterations %" PRIu64 " largest error %.2e\n",
           p->unknowns, p->blocks, p->iterations, worst);
    ocrAssert(worst < pow(0.75, (double)p->iterations) * 1.01 + 1e-12);
    ocrShutdown();
    return NULL_GUID;
}

static ocrGuid_t loop(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Params p = *(Params *)paramv;
    ocrGuid_t edt, done, now;
    (void)paramc, (void)depc;
    if (p.iteration == p.iterations) {
        const ocrGuid_t *table = depv[1].ptr;
        ocrGuid_t template;
        ocrEdtTemplateCreate(&template, finish, PARAMS, EDT_PARAM_UNK);
        ocrEdtCreate(&edt, template, EDT_PARAM_DEF, (u64 *)&p, (u32)p.blocks, NULL, EDT_PROP_NONE, NULL_HINT,
                     NULL);
        for (u32 b = 0; b < p.blocks; b++) ocrAddDependence(table[p.blocks + b], edt, b, DB_MODE_RO);
        return NULL_GUID;
    }
    ocrEdtCreate(&now, guid_of(p.step), EDT_PARAM_DEF, (u64 *)&p, 1, NULL, EDT_PROP_FINISH, NULL_HINT, &done);
    p.iteration++;
    ocrEdtCreate(&edt, guid_of(p.loop), EDT_PARAM_DEF, (u64 *)&p, 2, NULL, EDT_PROP_NONE, NULL_HINT, NULL);
    ocrAddDependence(done, edt, 0, DB_MODE_NULL);
    ocrAddDependence(guid_of(p.table), edt, 1, DB_MODE_RO);
    ocrAddDependence(guid_of(p.table), now, 0, DB_MODE_RO);
    return NULL_GUID;
}

static ocrGuid_t init(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Params *p = (Params *)paramv;
    u64 first = first_row(p, p->block), rows = first_row(p, p->block + 1) - first;
    u64 other = first_row(p, partner(p, p->block)), size = first_row(p, partner(p, p->block) + 1) - other;
    ocrGuid_t matrix, vector, *table = depv[0].ptr;
    ocrHint_t hint;
    Row *row;
    double *x;
    (void)paramc, (void)depc;
    near_part(&hint, OCR_HINT_DB_T, p->block, p->blocks);
    ocrDbCreate(&matrix, (void **)&row, rows * sizeof *row, DB_PROP_NONE, &hint, NO_ALLOC);
    ocrDbCreate(&vector, (void **)&x, 2 * rows * sizeof *x, DB_PROP_NONE, &hint, NO_ALLOC);
    memset(x, 0, 2 * rows * sizeof *x);
    for (u64 i = 0; i < rows; i++, row++) {
        double sum = 0;
        for (int e = 0; e < NEAR + FAR; e++) {
            s64 shift = e < NEAR / 2 ? e - NEAR / 2 : e - NEAR / 2 + 1;
            s64 column = (s64)(first + i) + shift;
            bool inside = column >= 0 && column < (s64)p->unknowns;
            row->column[e] = (u32)(e >= NEAR ? other + (i * 7 + (u64)e * 13) % size : inside ? (u64)column : first + i);
            row->value[e] = -1.0 / (1.0 + e % 3) * (e >= NEAR || inside);
            sum += row->value[e];
        }
        row->diagonal = -sum / 0.75;
        row->right = row->diagonal + sum;
    }
    table[p->block] = matrix;
    table[p->blocks + p->block] = vector;
    return NULL_GUID;
}

static ocrGuid_t prepare(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Params p = *(Params *)paramv;
    ocrGuid_t template, edt, table = guid_of(p.table);
    ocrHint_t hint;
    (void)paramc, (void)depc, (void)depv;
    ocrEdtTemplateCreate(&template, init, PARAMS, 1);
    for (p.block = 0; p.block < p.blocks; p.block++)
        ocrEdtCreate(&edt, template, EDT_PARAM_DEF, (u64 *)&p, EDT_PARAM_DEF, &table, EDT_PROP_NONE,
                     near_part(&hint, OCR_HINT_EDT_T, p.block, p.blocks), NULL);
    return NULL_GUID;
}

ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Params p = {0};
    ocrGuid_t templates[3], table, now, first, ready, *guids;
    (void)paramc, (void)paramv, (void)depc;
    p.unknowns = argument(depv, 1, 20000);
    p.blocks = argument(depv, 2, 12);
    p.iterations = argument(depv, 3, 40);
    if (p.blocks == 0 || p.unknowns < 8 * p.blocks) {
        fprintf(stderr, "sparse: every block needs at least 8 unknowns\n");
        ocrAbort(2);
    }
    ocrEdtTemplateCreate(&templates[0], prepare, PARAMS, 1);
    ocrEdtTemplateCreate(&templates[1], loop, PARAMS, 2);
    ocrEdtTemplateCreate(&templates[2], step, PARAMS, 1);
    p.loop = (u64)templates[1].guid;
    p.step = (u64)templates[2].guid;
    ocrDbCreate(&table, (void **)&guids, 2 * p.blocks * sizeof *guids, DB_PROP_NONE, NULL_HINT, NO_ALLOC);
    memset(guids, 0, 2 * p.blocks * sizeof *guids);
    p.table = (u64)table.guid;
    ocrDbRelease(table);
    ocrEdtCreate(&now, templates[0], EDT_PARAM_DEF, (u64 *)&p, EDT_PARAM_DEF, NULL, EDT_PROP_FINISH, NULL_HINT,
                 &ready);
    ocrEdtCreate(&first, templates[1], EDT_PARAM_DEF, (u64 *)&p, EDT_PARAM_DEF, NULL, EDT_PROP_NONE, NULL_HINT,
                 NULL);
    ocrAddDependence(ready, first, 0, DB_MODE_NULL);
    ocrAddDependence(table, first, 1, DB_MODE_RO);
    ocrAddDependence(NULL_GUID, now, 0, DB_MODE_NULL);
    return NULL_GUID;
}
