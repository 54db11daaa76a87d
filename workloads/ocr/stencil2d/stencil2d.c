/*
 * A star-shaped stencil of radius 2 on a square grid (the arithmetic of the Parallel Research
 * Kernels' Stencil): out += W * in, then in += 1, again and again. The grid is cut into rectangles,
 * one for each worker; each has a strand of tasks of its own, two per iteration:
 *
 *   exchange   packs the rectangle's borders into four small blocks and sends them
 *   update     needs the four borders of the neighbours; computes; creates the next exchange
 *
 *   stencil2d [SIDE [COLUMNS [ROWS [ITERATIONS]]]]      default 512 2 2 8
 *
 * Pattern to show: a rectangle's block is used by its own strand only, all the time; between
 * strands go borders, smaller by a factor of the rectangle's side over 4. With hints (rectangles
 * in blocks over the nodes) only borders of rectangles on different nodes are remote.
 * Checks the result: in is i + j plus a constant at every time, whose stencil is 2, so after n iterations
 * every inner point of out is 2 n.
 */
#include "../common/workload.h"
#include <math.h>
#include <string.h>

enum { RADIUS = 2, SIDES = 4, LEFT = 0, RIGHT, UP, DOWN };

/* A strand's parameters; what is needed of them is in the tasks' params. */
typedef struct {
    u64 side, columns, rows, iterations, iteration, strand;
    u64 exchange, update;        /* templates */
    u64 in[SIDES], out[SIDES];   /* channels; NULL_GUID at the edge of the grid */
    u64 done;                    /* event for the strand's last task */
    u64 block;
} Strand;
#define PARAMS (sizeof(Strand) / sizeof(u64))

typedef struct {
    u64 x0, x1, y0, y1, width, height;
} Rectangle;

static Rectangle rectangle(const Strand *s) {
    u64 column = s->strand % s->columns, row = s->strand / s->columns;
    Rectangle r = {column * s->side / s->columns, (column + 1) * s->side / s->columns,
                   row * s->side / s->rows, (row + 1) * s->side / s->rows, 0, 0};
    r.width = r.x1 - r.x0;
    r.height = r.y1 - r.y0;
    return r;
}

static double started;

static ocrGuid_t finish(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 side = paramv[0], iterations = paramv[1];
    double sum = 0, elapsed = seconds() - started;
    (void)paramc;
    for (u32 i = 0; i < depc; i++) {
        sum += *(double *)depv[i].ptr;
        ocrDbDestroy(depv[i].guid);
    }
    double points = (double)(side - 2 * RADIUS) * (double)(side - 2 * RADIUS);
    double norm = sum / points, expected = 2.0 * (double)iterations;
    PRINTF("stencil2d side %" PRIu64 " strands %u iterations %" PRIu64 " norm %.6f expected %.6f\n", side,
           depc, iterations, norm, expected);
    PRINTF("MFLOPS %.1f seconds %.6f\n",
           (4.0 * RADIUS + 1) * 2 * points * (double)iterations / elapsed * 1e-6, elapsed);
    ocrAssert(fabs(norm - expected) < 1e-6 * expected);
    ocrShutdown();
    return NULL_GUID;
}

/* Border `side` of the rectangle, depth RADIUS, row by row. */
static void pack(const double *in, const Rectangle *r, int side, double *border) {
    u64 x0 = side == RIGHT ? r->width - RADIUS : 0, x1 = side == LEFT ? RADIUS : r->width;
    u64 y0 = side == DOWN ? r->height - RADIUS : 0, y1 = side == UP ? RADIUS : r->height;
    for (u64 y = y0; y < y1; y++)
        for (u64 x = x0; x < x1; x++) *border++ = in[y * r->width + x];
}

static ocrGuid_t exchange(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Strand *s = (Strand *)paramv;
    Rectangle r = rectangle(s);
    const double *in = depv[0].ptr;
    ocrGuid_t update;
    ocrHint_t hint;
    (void)paramc, (void)depc;
    for (int side = 0; side < SIDES; side++) {
        ocrGuid_t border;
        double *data;
        if (s->out[side] == 0) continue;
        ocrDbCreate(&border, (void **)&data,
                    RADIUS * (side < UP ? r.height : r.width) * sizeof(double), DB_PROP_NONE,
                    near_part(&hint, OCR_HINT_DB_T, s->strand, s->columns * s->rows), NO_ALLOC);
        pack(in, &r, side, data);
        ocrDbRelease(border);
        ocrEventSatisfy(guid_of(s->out[side]), border);
    }
    ocrEdtCreate(&update, guid_of(s->update), EDT_PARAM_DEF, paramv, EDT_PARAM_DEF, NULL, EDT_PROP_NONE,
                 near_part(&hint, OCR_HINT_EDT_T, s->strand, s->columns * s->rows), NULL);
    for (u32 side = 0; side < SIDES; side++)
        ocrAddDependence(guid_of(s->in[side]), update, 1 + side, DB_MODE_RO);
    ocrAddDependence(guid_of(s->block), update, 0, DB_MODE_RW);
    return NULL_GUID;
}

static ocrGuid_t update(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Strand *s = (Strand *)paramv;
    Rectangle r = rectangle(s);
    s64 width = (s64)r.width, height = (s64)r.height;
    double *in = depv[0].ptr, *out = in + r.width * r.height;
    const double *border[SIDES] = {depv[1].ptr, depv[2].ptr, depv[3].ptr, depv[4].ptr};
    static const double weight[RADIUS] = {1.0 / (2 * 1 * RADIUS), 1.0 / (2 * 2 * RADIUS)};
    ocrHint_t hint;
    (void)paramc, (void)depc;
    for (s64 y = 0; y < height; y++) {
        s64 gy = (s64)r.y0 + y;
        if (gy < RADIUS || gy >= (s64)s->side - RADIUS) continue;
        for (s64 x = 0; x < width; x++) {
            s64 gx = (s64)r.x0 + x;
            if (gx < RADIUS || gx >= (s64)s->side - RADIUS) continue;
            double sum = 0;
            for (s64 d = 1; d <= RADIUS; d++) {
                double left = x >= d ? in[y * width + x - d] : border[LEFT][y * RADIUS + RADIUS + x - d];
                double right = x + d < width ? in[y * width + x + d]
                                             : border[RIGHT][y * RADIUS + x + d - width];
                double up = y >= d ? in[(y - d) * width + x] : border[UP][(RADIUS + y - d) * width + x];
                double down = y + d < height ? in[(y + d) * width + x]
                                             : border[DOWN][(y + d - height) * width + x];
                sum += weight[d - 1] * (right - left + down - up);
            }
            out[y * width + x] += sum;
        }
    }
    for (s64 i = 0; i < width * height; i++) in[i] += 1;
    for (int side = 0; side < SIDES; side++)
        if (!ocrGuidIsNull(depv[1 + side].guid)) ocrDbDestroy(depv[1 + side].guid);
    s->iteration++;
    if (s->iteration < s->iterations) {
        ocrGuid_t next;
        ocrEdtCreate(&next, guid_of(s->exchange), EDT_PARAM_DEF, paramv, EDT_PARAM_DEF, NULL,
                     EDT_PROP_NONE, near_part(&hint, OCR_HINT_EDT_T, s->strand, s->columns * s->rows),
                     NULL);
        ocrAddDependence(guid_of(s->block), next, 0, DB_MODE_RO);
    } else {
        ocrGuid_t result;
        double *norm, sum = 0;
        for (s64 i = 0; i < width * height; i++) sum += fabs(out[i]);
        ocrDbCreate(&result, (void **)&norm, sizeof *norm, DB_PROP_NONE, NULL_HINT, NO_ALLOC);
        *norm = sum;
        ocrDbRelease(result);
        ocrDbDestroy(guid_of(s->block));
        ocrEventSatisfy(guid_of(s->done), result);
    }
    return NULL_GUID;
}

/* First task of a strand: makes and fills its rectangle. */
static ocrGuid_t start(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Strand *s = (Strand *)paramv;
    Rectangle r = rectangle(s);
    ocrGuid_t block, first;
    double *in;
    ocrHint_t hint;
    (void)paramc, (void)depc, (void)depv;
    ocrDbCreate(&block, (void **)&in, 2 * r.width * r.height * sizeof(double), DB_PROP_NONE,
                near_part(&hint, OCR_HINT_DB_T, s->strand, s->columns * s->rows), NO_ALLOC);
    for (u64 y = 0; y < r.height; y++)
        for (u64 x = 0; x < r.width; x++) in[y * r.width + x] = (double)(r.x0 + x + r.y0 + y);
    memset(in + r.width * r.height, 0, r.width * r.height * sizeof(double));
    s->block = (u64)block.guid;
    ocrDbRelease(block);
    ocrEdtCreate(&first, guid_of(s->exchange), EDT_PARAM_DEF, paramv, EDT_PARAM_DEF, NULL, EDT_PROP_NONE,
                 near_part(&hint, OCR_HINT_EDT_T, s->strand, s->columns * s->rows), NULL);
    ocrAddDependence(block, first, 0, DB_MODE_RO);
    return NULL_GUID;
}

ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    Strand s = {0};
    ocrGuid_t templates[4], finisher, *channels;
    ocrHint_t hint;
    (void)paramc, (void)paramv, (void)depc;
    s.side = argument(depv, 1, 512);
    s.columns = argument(depv, 2, 2);
    s.rows = argument(depv, 3, 2);
    s.iterations = argument(depv, 4, 8);
    u64 strands = s.columns * s.rows;
    if (strands == 0 || s.iterations == 0 || s.side / s.columns < RADIUS || s.side / s.rows < RADIUS ||
        s.side <= 2 * RADIUS) {
        fprintf(stderr, "stencil2d: rectangles must be at least %d points wide and high\n", RADIUS);
        ocrAbort(2);
    }
    ocrEdtTemplateCreate(&templates[0], start, PARAMS, 0);
    ocrEdtTemplateCreate(&templates[1], exchange, PARAMS, 1);
    ocrEdtTemplateCreate(&templates[2], update, PARAMS, 1 + SIDES);
    ocrEdtTemplateCreate(&templates[3], finish, 2, EDT_PARAM_UNK);
    s.exchange = (u64)templates[1].guid;
    s.update = (u64)templates[2].guid;
    channels = malloc(strands * SIDES * sizeof *channels);
    for (u64 i = 0; i < strands * SIDES; i++) {
        ocrEventParams_t params;
        params.EVENT_CHANNEL.maxGen = EVENT_CHANNEL_UNBOUNDED;
        params.EVENT_CHANNEL.nbSat = params.EVENT_CHANNEL.nbDeps = 1;
        ocrEventCreateParams(&channels[i], OCR_EVENT_CHANNEL_T, EVT_PROP_TAKES_ARG, &params);
    }
    u64 finish_params[2] = {s.side, s.iterations};
    ocrEdtCreate(&finisher, templates[3], EDT_PARAM_DEF, finish_params, (u32)strands, NULL, EDT_PROP_NONE,
                 NULL_HINT, NULL);
    started = seconds();
    for (u64 i = 0; i < strands; i++) {
        ocrGuid_t edt, done;
        u64 column = i % s.columns, row = i / s.columns;
        bool inside[SIDES] = {column > 0, column + 1 < s.columns, row > 0, row + 1 < s.rows};
        u64 neighbour[SIDES] = {i - 1, i + 1, i - s.columns, i + s.columns};
        for (int side = 0; side < SIDES; side++) {
            /* What comes from my left I find in my LEFT channel; I write to its RIGHT one. */
            s.in[side] = inside[side] ? (u64)channels[i * SIDES + (u64)side].guid : 0;
            s.out[side] = inside[side] ? (u64)channels[neighbour[side] * SIDES + (u64)(side ^ 1)].guid : 0;
        }
        ocrEventCreate(&done, OCR_EVENT_ONCE_T, EVT_PROP_TAKES_ARG);
        ocrAddDependence(done, finisher, (u32)i, DB_MODE_RO);
        s.done = (u64)done.guid;
        s.strand = i;
        ocrEdtCreate(&edt, templates[0], EDT_PARAM_DEF, (u64 *)&s, EDT_PARAM_DEF, NULL, EDT_PROP_NONE,
                     near_part(&hint, OCR_HINT_EDT_T, i, strands), NULL);
    }
    free(channels);
    return NULL_GUID;
}
