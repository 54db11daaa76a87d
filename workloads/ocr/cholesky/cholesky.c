/*
 * Cholesky factorisation of a symmetric positive definite matrix, in tiles.
 *
 *   cholesky [SIDE [TILE]]      default 400 50
 *
 * Pattern to show: a task graph without repetition. A tile of step k goes on to step k + 1; a column's
 * tiles are read by a whole panel. Each version of a tile is announced by a labelled sticky event,
 * so that tasks can be created in any order.
 * Checks the factor: the matrix is L0 L0' for a known L0.
 */
#include "../common/workload.h"
#include <math.h>
#include <string.h>

typedef struct {
    u64 side, tile, tiles, k, i, j;
    u64 labels;
} Step;
#define PARAMS (sizeof(Step) / sizeof(u64))

/* The event that says tile (i, j) has gone through `version` steps. */
static ocrGuid_t version(const Step *s, u64 i, u64 j, u64 number) {
    ocrGuid_t event;
    ocrGuidFromIndex(&event, guid_of(s->labels), (number * s->tiles + i) * s->tiles + j);
    /* Whoever comes first creates it. */
    u8 error = ocrEventCreate(&event, OCR_EVENT_STICKY_T, GUID_PROP_CHECK | EVT_PROP_TAKES_ARG);
    ocrAssert(error == 0 || error == OCR_EGUIDEXISTS);
    return event;
}

static double known(u64 i, u64 j) {
    if (j > i) return 0;
    return i == j ? 2.0 + (double)(i % 3) : 1.0 / (1.0 + (double)(i - j));
}

static ocrGuid_t potrf(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Step *s = (Step *)paramv;
    s64 n = (s64)s->tile;
    double *a = depv[0].ptr;
    (void)paramc, (void)depc;
    for (s64 j = 0; j < n; j++) {
        for (s64 k = 0; k < j; k++) a[j * n + j] -= a[j * n + k] * a[j * n + k];
        a[j * n + j] = sqrt(a[j * n + j]);
        for (s64 i = j + 1; i < n; i++) {
            for (s64 k = 0; k < j; k++) a[i * n + j] -= a[i * n + k] * a[j * n + k];
            a[i * n + j] /= a[j * n + j];
        }
        for (s64 i = 0; i < j; i++) a[i * n + j] = 0;
    }
    ocrDbRelease(depv[0].guid);
    ocrEventSatisfy(version(s, s->k, s->k, s->k + 1), depv[0].guid);
    return NULL_GUID;
}

static ocrGuid_t trsm(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Step *s = (Step *)paramv;
    s64 n = (s64)s->tile;
    double *a = depv[0].ptr;
    const double *l = depv[1].ptr;
    (void)paramc, (void)depc;
    for (s64 i = 0; i < n; i++)
        for (s64 j = 0; j < n; j++) {
            for (s64 k = 0; k < j; k++) a[i * n + j] -= a[i * n + k] * l[j * n + k];
            a[i * n + j] /= l[j * n + j];
        }
    ocrDbRelease(depv[0].guid);
    ocrEventSatisfy(version(s, s->i, s->k, s->k + 1), depv[0].guid);
    return NULL_GUID;
}

static ocrGuid_t update(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Step *s = (Step *)paramv;
    s64 n = (s64)s->tile;
    double *a = depv[0].ptr;
    const double *left = depv[1].ptr, *right = depv[2].ptr;
    (void)paramc, (void)depc;
    for (s64 i = 0; i < n; i++)
        for (s64 j = 0; j < n; j++) {
            double sum = 0;
            for (s64 k = 0; k < n; k++) sum += left[i * n + k] * right[j * n + k];
            a[i * n + j] -= sum;
        }
    ocrDbRelease(depv[0].guid);
    ocrEventSatisfy(version(s, s->i, s->j, s->k + 1), depv[0].guid);
    return NULL_GUID;
}

static ocrGuid_t fill(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Step *s = (Step *)paramv;
    u64 n = s->tile;
    ocrGuid_t block;
    double *a;
    ocrHint_t hint;
    (void)paramc, (void)depc, (void)depv;
    ocrDbCreate(&block, (void **)&a, n * n * sizeof *a, DB_PROP_NONE,
                near_part(&hint, OCR_HINT_DB_T, s->i, s->tiles), NO_ALLOC);
    for (u64 y = 0; y < n; y++)
        for (u64 x = 0; x < n; x++) {
            u64 row = s->i * n + y, column = s->j * n + x;
            double sum = 0;
            for (u64 k = 0; k <= (row < column ? row : column); k++) sum += known(row, k) * known(column, k);
            a[y * n + x] = sum;
        }
    ocrDbRelease(block);
    ocrEventSatisfy(version(s, s->i, s->j, 0), block);
    return NULL_GUID;
}

static ocrGuid_t finish(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Step *s = (Step *)paramv;
    u64 n = s->tile;
    double worst = 0;
    u32 at = 0;
    (void)paramc;
    for (u64 i = 0; i < s->tiles; i++)
        for (u64 j = 0; j <= i; j++, at++) {
            const double *a = depv[at].ptr;
            for (u64 y = 0; y < n; y++)
                for (u64 x = 0; x < n; x++)
                    worst = fmax(worst, fabs(a[y * n + x] - known(i * n + y, j * n + x)));
            ocrDbDestroy(depv[at].guid);
        }
    PRINTF("cholesky side %" PRIu64 " tiles %u largest error %.2e\n", s->side, depc, worst);
    ocrAssert(worst < 1e-9);
    ocrShutdown();
    return NULL_GUID;
}

ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Step s = {0};
    ocrGuid_t fill_template, potrf_template, trsm_template, update_template, finish_template, edt, labels;
    ocrHint_t hint;
    u32 at = 0;
    (void)paramc, (void)paramv, (void)depc;
    s.side = argument(depv, 1, 400);
    s.tile = argument(depv, 2, 50);
    if (s.tile == 0 || s.side == 0 || s.side % s.tile != 0) {
        fprintf(stderr, "cholesky: the side must be a multiple of the tile\n");
        ocrAbort(2);
    }
    s.tiles = s.side / s.tile;
    ocrGuidRangeCreate(&labels, (s.tiles + 1) * s.tiles * s.tiles, GUID_USER_EVENT_STICKY);
    s.labels = (u64)labels.guid;
    ocrEdtTemplateCreate(&fill_template, fill, PARAMS, 0);
    ocrEdtTemplateCreate(&potrf_template, potrf, PARAMS, 1);
    ocrEdtTemplateCreate(&trsm_template, trsm, PARAMS, 2);
    ocrEdtTemplateCreate(&update_template, update, PARAMS, 3);
    ocrEdtTemplateCreate(&finish_template, finish, PARAMS, EDT_PARAM_UNK);
    ocrEdtCreate(&edt, finish_template, EDT_PARAM_DEF, (u64 *)&s, (u32)(s.tiles * (s.tiles + 1) / 2), NULL,
                 EDT_PROP_NONE, NULL_HINT, NULL);
    for (s.i = 0; s.i < s.tiles; s.i++)
        for (s.j = 0; s.j <= s.i; s.j++)
            ocrAddDependence(version(&s, s.i, s.j, s.j + 1), edt, at++, DB_MODE_RO);
    /* Last step first: no task may rely on the order of creation. */
    for (s.k = s.tiles; s.k-- > 0;) {
        for (s.i = s.k + 1; s.i < s.tiles; s.i++) {
            near_part(&hint, OCR_HINT_EDT_T, s.i, s.tiles);
            for (s.j = s.k + 1; s.j <= s.i; s.j++) {
                ocrEdtCreate(&edt, update_template, EDT_PARAM_DEF, (u64 *)&s, EDT_PARAM_DEF, NULL,
                             EDT_PROP_NONE, &hint, NULL);
                ocrAddDependence(version(&s, s.i, s.k, s.k + 1), edt, 1, DB_MODE_RO);
                ocrAddDependence(version(&s, s.j, s.k, s.k + 1), edt, 2, DB_MODE_RO);
                ocrAddDependence(version(&s, s.i, s.j, s.k), edt, 0, DB_MODE_EW);
            }
            ocrEdtCreate(&edt, trsm_template, EDT_PARAM_DEF, (u64 *)&s, EDT_PARAM_DEF, NULL, EDT_PROP_NONE,
                         &hint, NULL);
            ocrAddDependence(version(&s, s.k, s.k, s.k + 1), edt, 1, DB_MODE_RO);
            ocrAddDependence(version(&s, s.i, s.k, s.k), edt, 0, DB_MODE_EW);
        }
        ocrEdtCreate(&edt, potrf_template, EDT_PARAM_DEF, (u64 *)&s, EDT_PARAM_DEF, NULL, EDT_PROP_NONE,
                     near_part(&hint, OCR_HINT_EDT_T, s.k, s.tiles), NULL);
        ocrAddDependence(version(&s, s.k, s.k, s.k), edt, 0, DB_MODE_EW);
    }
    for (s.i = 0; s.i < s.tiles; s.i++)
        for (s.j = 0; s.j <= s.i; s.j++)
            ocrEdtCreate(&edt, fill_template, EDT_PARAM_DEF, (u64 *)&s, EDT_PARAM_DEF, NULL, EDT_PROP_NONE,
                         near_part(&hint, OCR_HINT_EDT_T, s.i, s.tiles), NULL);
    return NULL_GUID;
}
