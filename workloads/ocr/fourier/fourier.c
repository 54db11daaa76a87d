/*
 * 3-D Fourier transforms, there and back, of a cube cut into slabs: fourier [SIDE [SLABS [ITERATIONS]]]      default 32 8 4
 *
 * SIDE is a power of two and a multiple of SLABS. A step transforms each slab's planes in both directions, then cuts them into
 * SLABS pieces, one for each slab of the other orientation; when all pieces have arrived, those slabs are transformed in the
 * third direction and cut up again for the way back. Pieces are data blocks that are made once and written in each step.
 *
 * Pattern: all to all between slabs, SIDE * SIDE * SIDE / SLABS^2 complex numbers each; a slab is used by its own tasks only.
 * Checked: what comes back is what was there (the transform and its inverse, ITERATIONS times).
 */
#include "../common/workload.h"
#include <complex.h>
#include <math.h>
#include <string.h>

typedef double complex number;

static u64 side, slabs, iterations, planes;
static ocrGuid_t cubes, pieces;

/* Of slab `from` to slab `to`; those of the second orientation follow those of the first. */
static u64 piece(u64 way, u64 from, u64 to) { return (way * slabs + from) * slabs + to; }

static number initial(u64 z, u64 y, u64 x) {
    u64 mixed = ((z * side + y) * side + x) * 2654435761u;
    return (double)(mixed % 1000) / 1000 + I * (double)(mixed / 1000 % 1000) / 1000;
}

/* In place, `count` numbers `stride` apart; back: the inverse, scaled. */
static void transform(number *data, u64 count, u64 stride, bool back) {
    for (u64 i = 1, j = 0; i < count; i++) {
        u64 bit = count >> 1;
        for (; j & bit; bit >>= 1) j ^= bit;
        j ^= bit;
        if (i < j) {
            number kept = data[i * stride];
            data[i * stride] = data[j * stride], data[j * stride] = kept;
        }
    }
    for (u64 length = 2; length <= count; length *= 2) {
        number turn = cexp((back ? 2 : -2) * M_PI * I / (double)length);
        for (u64 first = 0; first < count; first += length) {
            number factor = 1;
            for (u64 k = 0; k < length / 2; k++, factor *= turn) {
                number *low = data + (first + k) * stride, *high = low + length / 2 * stride, odd = *high * factor;
                *high = *low - odd, *low += odd;
            }
        }
    }
    for (u64 i = 0; back && i < count; i++) data[i * stride] /= (double)count;
}

static void transform_planes(number *slab, bool back) {
    for (u64 plane = 0; plane < planes; plane++) {
        number *at = slab + plane * side * side;
        for (u64 i = 0; i < side; i++) transform(at + i * side, side, 1, back);
        for (u64 i = 0; i < side; i++) transform(at + i, side, side, back);
    }
}

/* Slots: the slab, then its pieces to all. Planes of z, cut by y. */
static ocrGuid_t forthEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    number *slab = depv[0].ptr;
    (void)paramc, (void)paramv, (void)depc;
    transform_planes(slab, false);
    for (u64 to = 0; to < slabs; to++) {
        number *out = depv[1 + to].ptr;
        for (u64 z = 0; z < planes; z++)
            memcpy(out + z * planes * side, slab + (z * side + to * planes) * side, planes * side * sizeof *out);
    }
    return NULL_GUID;
}

/* Slots: the slab of the second orientation, the pieces from all, its pieces to all. Planes of y, z next. */
static ocrGuid_t acrossEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    number *slab = depv[0].ptr;
    (void)paramc, (void)paramv, (void)depc;
    for (u64 from = 0; from < slabs; from++)
        for (u64 z = 0; z < planes; z++)
            memcpy(slab + (from * planes + z) * planes * side, (number *)depv[1 + from].ptr + z * planes * side,
                   planes * side * sizeof *slab);
    for (u64 back = 0; back < 2; back++)
        for (u64 i = 0; i < planes * side; i++) transform(slab + i, side, planes * side, back);
    for (u64 to = 0; to < slabs; to++)
        memcpy(depv[1 + slabs + to].ptr, slab + to * planes * planes * side, planes * planes * side * sizeof *slab);
    return NULL_GUID;
}

/* Slots: the slab, the pieces from all. */
static ocrGuid_t backEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    number *slab = depv[0].ptr;
    (void)paramc, (void)paramv, (void)depc;
    for (u64 from = 0; from < slabs; from++)
        for (u64 z = 0; z < planes; z++)
            memcpy(slab + (z * side + from * planes) * side, (number *)depv[1 + from].ptr + z * planes * side,
                   planes * side * sizeof *slab);
    transform_planes(slab, true);
    return NULL_GUID;
}

static ocrGuid_t checkEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    double worst = 0;
    (void)paramc, (void)paramv, (void)depc;
    for (u64 z = 0; z < side; z++) {
        const number *plane = (number *)depv[z / planes].ptr + z % planes * side * side;
        for (u64 i = 0; i < side * side; i++) worst = fmax(worst, cabs(plane[i] - initial(z, i / side, i % side)));
    }
    int wrong = !(worst < 1e-9);
    PRINTF("fourier %" PRIu64 " %" PRIu64 " %" PRIu64 ": largest error %.1e, %s\n", side, slabs, iterations, worst,
           wrong ? "WRONG" : "correct");
    if (wrong) ocrAbort(1);
    ocrShutdown();
    return NULL_GUID;
}

/* A step's phases: tasks of all slabs. Parameter 0: which of the three. */
static ocrGuid_t phaseEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)depc, (void)depv;
    for (u64 s = 0; s < slabs; s++) {
        u32 all = (u32)slabs;
        ocrGuid_t edt = paramv[0] == 0   ? TASK(forthEdt, 0, NULL, 1 + all, EDT_PROP_NONE, NULL, s, slabs)
                        : paramv[0] == 1 ? TASK(acrossEdt, 0, NULL, 1 + 2 * all, EDT_PROP_NONE, NULL, s, slabs)
                                         : TASK(backEdt, 0, NULL, 1 + all, EDT_PROP_NONE, NULL, s, slabs);
        for (u32 other = 0; other < all; other++) {
            if (paramv[0] == 0) needs(pieces, piece(0, s, other), edt, 1 + other, DB_MODE_RW);
            if (paramv[0] == 1) needs(pieces, piece(0, other, s), edt, 1 + other, DB_MODE_RO);
            if (paramv[0] == 1) needs(pieces, piece(1, s, other), edt, 1 + all + other, DB_MODE_RW);
            if (paramv[0] == 2) needs(pieces, piece(1, other, s), edt, 1 + other, DB_MODE_RO);
        }
        needs(cubes, paramv[0] == 1 ? slabs + s : s, edt, 0, DB_MODE_RW);
    }
    return NULL_GUID;
}

static ocrGuid_t loopEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 params[3] = {0}, left = paramv[0];
    (void)paramc, (void)depc, (void)depv;
    if (left == 0) {
        ocrGuid_t check = TASK(checkEdt, 0, NULL, (u32)slabs, EDT_PROP_NONE, NULL, 0, 0);
        for (u64 s = 0; s < slabs; s++) needs(cubes, s, check, (u32)s, DB_MODE_RO);
        return NULL_GUID;
    }
    ocrGuid_t done = NULL_GUID;
    for (params[0] = 0; params[0] < 3; params[0]++) done = PHASE(phaseEdt, params, done);
    left--;
    ocrGuid_t next = TASK(loopEdt, 1, &left, 1, EDT_PROP_NONE, NULL, 0, 0);
    ocrAddDependence(done, next, 0, DB_MODE_NULL);
    return NULL_GUID;
}

static ocrGuid_t slabEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 s = paramv[0], bytes = planes * side * side * sizeof(number);
    (void)paramc, (void)depc, (void)depv;
    number *slab = block_near(cubes, s, bytes, s, slabs);
    for (u64 i = 0; i < planes * side * side; i++)
        slab[i] = initial(s * planes + i / side / side, i / side % side, i % side);
    memset(block_near(cubes, slabs + s, bytes, s, slabs), 0, bytes);
    for (u64 way = 0; way < 2; way++)
        for (u64 to = 0; to < slabs; to++)
            memset(block_near(pieces, piece(way, s, to), bytes / slabs, s, slabs), 0, bytes / slabs);
    return NULL_GUID;
}

static ocrGuid_t prepareEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    (void)paramc, (void)paramv, (void)depc, (void)depv;
    for (u64 s = 0; s < slabs; s++) TASK(slabEdt, 1, &s, 0, EDT_PROP_NONE, NULL, s, slabs);
    return NULL_GUID;
}

ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    u64 params[3] = {0};
    (void)paramc, (void)paramv, (void)depc;
    side = argument(&depv[0], 1, 32), slabs = argument(&depv[0], 2, 8), iterations = argument(&depv[0], 3, 4);
    if (side == 0 || (side & (side - 1)) != 0 || slabs == 0 || side % slabs != 0) {
        fprintf(stderr, "fourier: the side must be a power of two and a multiple of the slabs\n");
        ocrAbort(2);
    }
    planes = side / slabs;
    ocrGuidRangeCreate(&cubes, 2 * slabs, GUID_USER_DB);
    ocrGuidRangeCreate(&pieces, 2 * slabs * slabs, GUID_USER_DB);
    ocrGuid_t ready = PHASE(prepareEdt, params, NULL_GUID);
    ocrGuid_t loop = TASK(loopEdt, 1, &iterations, 1, EDT_PROP_NONE, NULL, 0, 0);
    ocrAddDependence(ready, loop, 0, DB_MODE_NULL);
    return NULL_GUID;
}
