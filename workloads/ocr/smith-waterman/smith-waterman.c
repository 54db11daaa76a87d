/*
 * Local alignment of two random DNA sequences (Smith and Waterman, linear gap), in tiles.
 *
 *   smith-waterman [LENGTH [TILE]]      default 2000 100
 *
 * Pattern to show: a wavefront. A tile needs the bottom row of the tile above and the right column of the
 * tile on its left, each a small block used once; parallelism grows and shrinks along the diagonal.
 * Every tile is created by mainEdt: no repetition, one class per tile.
 * Checks the score against a sequential run.
 */
#include "../common/workload.h"
#include <string.h>

enum { MATCH = 2, MISMATCH = -1, GAP = -1 };

typedef struct {
    u64 length, tile, row, column, tiles;
    u64 below, right;       /* events for the neighbours; NULL_GUID at the edge */
    u64 best;               /* event for the final task */
} Tile;
#define PARAMS (sizeof(Tile) / sizeof(u64))

static char base(u64 sequence, u64 at) {
    u64 x = (at + 1) * 0x9e3779b97f4a7c15ull + sequence * 0xbf58476d1ce4e5b9ull;
    x ^= x >> 31;
    x *= 0x94d049bb133111ebull;
    return "ACGT"[(x >> 40) & 3];
}

static s64 largest(s64 a, s64 b) { return a > b ? a : b; }

static s64 cell(char a, char b, s64 corner, s64 up, s64 left) {
    s64 score = corner + (a == b ? MATCH : MISMATCH);
    return largest(largest(0, score), largest(up, left) + GAP);
}

/* Slot 0: row above with the corner first; slot 1: column on the left; 2: best so far by the row. */
static ocrGuid_t tile(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Tile *t = (Tile *)paramv;
    u64 n = t->tile;
    const s64 *above = depv[0].ptr, *before = depv[1].ptr;
    s64 best = 0, *row, *column, *cells = malloc((n + 1) * (n + 1) * sizeof *cells);
    ocrGuid_t below, right, result;
    (void)paramc, (void)depc;
    for (u64 i = 0; i <= n; i++) {
        cells[i] = above ? above[i] : 0;
        cells[i * (n + 1)] = i == 0 ? cells[0] : before ? before[i - 1] : 0;
    }
    for (u64 y = 1; y <= n; y++)
        for (u64 x = 1; x <= n; x++) {
            s64 *here = &cells[y * (n + 1) + x];
            *here = cell(base(1, t->row * n + y - 1), base(2, t->column * n + x - 1), here[-(s64)n - 2],
                         here[-(s64)n - 1], here[-1]);
            best = largest(best, *here);
        }
    if (t->below) {
        /* The corner of the tile below is the last cell of the column on my left. */
        ocrDbCreate(&below, (void **)&row, (n + 1) * sizeof *row, DB_PROP_NONE, NULL_HINT, NO_ALLOC);
        memcpy(row, &cells[n * (n + 1)], (n + 1) * sizeof *row);
        ocrDbRelease(below);
        ocrEventSatisfy(guid_of(t->below), below);
    }
    if (t->right) {
        ocrDbCreate(&right, (void **)&column, n * sizeof *column, DB_PROP_NONE, NULL_HINT, NO_ALLOC);
        for (u64 y = 0; y < n; y++) column[y] = cells[(y + 1) * (n + 1) + n];
        ocrDbRelease(right);
        ocrEventSatisfy(guid_of(t->right), right);
    }
    free(cells);
    for (u32 i = 0; i < 2; i++)
        if (depv[i].ptr) ocrDbDestroy(depv[i].guid);
    ocrDbCreate(&result, (void **)&row, sizeof *row, DB_PROP_NONE, NULL_HINT, NO_ALLOC);
    *row = best;
    ocrDbRelease(result);
    ocrEventSatisfy(guid_of(t->best), result);
    return NULL_GUID;
}

static ocrGuid_t finish(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 length = paramv[0];
    s64 best = 0, expected = 0, *row = calloc(length + 1, sizeof *row);
    (void)paramc;
    for (u32 i = 0; i < depc; i++) {
        best = largest(best, *(s64 *)depv[i].ptr);
        ocrDbDestroy(depv[i].guid);
    }
    for (u64 y = 0; y < length; y++) {
        s64 corner = 0;
        for (u64 x = 1; x <= length; x++) {
            s64 up = row[x];
            row[x] = cell(base(1, y), base(2, x - 1), corner, up, row[x - 1]);
            corner = up;
            expected = largest(expected, row[x]);
        }
    }
    free(row);
    PRINTF("smith-waterman length %" PRIu64 " tiles %u score %" PRId64 " expected %" PRId64 "\n", length,
           depc, best, expected);
    ocrAssert(best == expected);
    ocrShutdown();
    return NULL_GUID;
}

ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Tile t = {0};
    ocrGuid_t tile_template, finish_template, finisher, *down, *across;
    (void)paramc, (void)paramv, (void)depc;
    t.length = argument(depv, 1, 2000);
    t.tile = argument(depv, 2, 100);
    if (t.tile == 0 || t.length == 0 || t.length % t.tile != 0) {
        fprintf(stderr, "smith-waterman: the length must be a multiple of the tile\n");
        ocrAbort(2);
    }
    t.tiles = t.length / t.tile;
    ocrEdtTemplateCreate(&tile_template, tile, PARAMS, 2);
    ocrEdtTemplateCreate(&finish_template, finish, 1, EDT_PARAM_UNK);
    ocrEdtCreate(&finisher, finish_template, EDT_PARAM_DEF, &t.length, (u32)(t.tiles * t.tiles), NULL,
                 EDT_PROP_NONE, NULL_HINT, NULL);
    down = malloc(t.tiles * t.tiles * sizeof *down);
    across = malloc(t.tiles * t.tiles * sizeof *across);
    for (u64 i = 0; i < t.tiles * t.tiles; i++) {
        ocrEventParams_t once;
        once.EVENT_COUNTED.nbDeps = 1;
        ocrEventCreateParams(&down[i], OCR_EVENT_COUNTED_T, EVT_PROP_TAKES_ARG, &once);
        ocrEventCreateParams(&across[i], OCR_EVENT_COUNTED_T, EVT_PROP_TAKES_ARG, &once);
    }
    for (t.row = 0; t.row < t.tiles; t.row++)
        for (t.column = 0; t.column < t.tiles; t.column++) {
            u64 at = t.row * t.tiles + t.column;
            ocrGuid_t edt, best;
            ocrHint_t hint;
            ocrEventCreate(&best, OCR_EVENT_ONCE_T, EVT_PROP_TAKES_ARG);
            ocrAddDependence(best, finisher, (u32)at, DB_MODE_RO);
            t.best = (u64)best.guid;
            t.below = t.row + 1 < t.tiles ? (u64)down[at].guid : 0;
            t.right = t.column + 1 < t.tiles ? (u64)across[at].guid : 0;
            ocrGuid_t sources[2] = {t.row > 0 ? down[at - t.tiles] : NULL_GUID,
                                    t.column > 0 ? across[at - 1] : NULL_GUID};
            ocrEdtCreate(&edt, tile_template, EDT_PARAM_DEF, (u64 *)&t, EDT_PARAM_DEF, sources,
                         EDT_PROP_NONE, near_part(&hint, OCR_HINT_EDT_T, t.row, t.tiles), NULL);
        }
    free(down);
    free(across);
    return NULL_GUID;
}
